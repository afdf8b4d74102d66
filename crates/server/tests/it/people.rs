//! What waits for someone.

use aetheris_core::event::StepInDoubt;
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerTrigger, Settle};
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_runtime::draft::Fact;
use aetheris_runtime::ops::{Deposit, DepositOutcome, Deposited};
use aetheris_store::system::SystemIds;
use aetheris_store::{LedgerWrite, Purpose, Scope};
use serde_json::Value;

use crate::bed::{Bed, moment};

/// All that a list has, in pages of so many at most, and how many there were in each page.
async fn pages(bed: &Bed, (path, limit): (&str, usize), name: &str) -> (Vec<Value>, Vec<usize>) {
    let (mut all, mut sizes, mut cursor) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = bed.get(&format!("{path}?limit={limit}{cursor}")).await;
        let rows = page.is(200)[name].as_array().unwrap();
        sizes.push(rows.len());
        all.extend(rows.iter().cloned());
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (all, sizes),
        }
    }
}

/// Each wait has its schema in it: a page of many would be as many times as large.
#[tokio::test]
async fn a_page_of_waits_ends_by_the_bytes_of_its_schemas() {
    let bed = Bed::new();
    let words: Vec<String> = (0..50).map(|n| format!("{n:01000}")).collect();
    let schema = serde_json::json!({ "enum": words });
    let agent = format!(
        "agent: approve\nplan:\n  nodes:\n    - {{ id: ask, kind: wait, wait_type: human, correlation_key: \"ok-7\", park: true, \
         deadline: 24h, schema: {schema} }}\n"
    );
    bed.call("PUT", "/api/agents/approve", agent).await.is(201);
    let mut jobs = Vec::new();
    for _ in 0..60 {
        jobs.push(bed.waiting().await);
    }
    jobs.reverse();
    let most = limits::PAGE_ROWS_BYTES_MAX / 50_000 + 1;
    let mut full = 0;
    // Where the store has more than it was asked for, the next page begins behind what is told all the same.
    for limit in [55, 500] {
        let (waits, sizes) = pages(&bed, ("/api/waits", limit), "waits").await;
        let listed: Vec<&str> = waits.iter().map(|wait| wait["job_id"].as_str().unwrap()).collect();
        assert_eq!(listed, jobs, "{limit}");
        assert!(waits.iter().all(|wait| wait["schema"] == schema));
        assert!(sizes.len() >= 3, "{sizes:?}");
        assert!(sizes.iter().all(|size| (1..=most).contains(size)), "{sizes:?}");
        full = sizes[0];
    }
    // A list that ends where its page is full ends there, and not with an empty page.
    for job in &jobs[full..] {
        bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await.is(202);
    }
    assert_eq!(pages(&bed, ("/api/waits", 500), "waits").await.1, [full]);
}

#[tokio::test]
async fn a_page_of_agents_ends_by_the_bytes_of_their_files() {
    let bed = Bed::new();
    let large = format!("# {}\n", "x".repeat(300 * 1024));
    let mut names: Vec<String> = (0..9).map(|n| format!("agent-{n}")).collect();
    for name in &names {
        let file = format!("agent: {name}\nplan:\n  nodes:\n    - {{ id: n, kind: transform, output: 1 }}\n{large}");
        bed.call("PUT", &format!("/api/agents/{name}"), file).await.is(201);
    }
    let (agents, sizes) = pages(&bed, ("/api/agents", 500), "agents").await;
    let listed: Vec<&str> = agents.iter().map(|agent| agent["agent"].as_str().unwrap()).collect();
    assert_eq!(listed, names);
    assert_eq!(sizes, [4, 4, 1]);
    let page = bed.get("/api/agents?limit=2&cursor=agent-3").await;
    names.retain(|name| name == "agent-4" || name == "agent-5");
    let listed: Vec<&str> =
        page.is(200)["agents"].as_array().unwrap().iter().map(|agent| agent["agent"].as_str().unwrap()).collect();
    assert_eq!((listed, page.body["next_cursor"].as_str()), (vec!["agent-4", "agent-5"], Some("agent-5")));
}

/// After an outage many calls are in doubt for one reason: what each was to do is what they are told apart by.
#[tokio::test]
async fn a_call_in_doubt_is_listed_with_what_it_was_given() {
    let bed = Bed::with_agents().await;
    bed.doubted().await;
    let list = bed.get("/api/in-doubt").await;
    let input = &list.is(200)["invocations"][0]["input"];
    assert_eq!((&input["value"], &input["from"]), (&serde_json::json!({ "cents": 5 }), &"recorded".into()));
}

/// What is kept may have been meant for the wait that is open, and nobody but its sender would know of it.
#[tokio::test]
async fn kept_signals_are_shown_wherever_a_job_is_told_of() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", r#"{"order": 7}"#).await;
    assert_eq!(bed.get(&format!("/api/jobs/{job}")).await.is(200)["kept"], serde_json::json!([]));
    let signal = r#"{"correlation_key": "ok-7", "payload": {"secret": 1}, "wait_type": "human"}"#;
    bed.call("POST", &format!("/api/jobs/{job}/signal"), signal).await.is(202);
    let expected = serde_json::json!([
        { "correlation_key": "ok-7", "received_at": "2026-11-21T09:00:00.000000Z", "wait_type": "human" }
    ]);
    for path in ["", "/trace"] {
        assert_eq!(bed.get(&format!("/api/jobs/{job}{path}")).await.is(200)["kept"], expected, "{path}");
    }
    let why = bed.get(&format!("/api/jobs/{job}/why")).await;
    assert_eq!(why.is(200)[0]["kept"], expected);
    assert!(!why.body[0]["detail"].as_str().unwrap().contains("ok-7"), "{}", why.text);
    assert!(bed.get("/api/jobs").await.is(200)["jobs"][0].get("kept").is_none());
}

/// `null` would say that the wait has no end.
#[tokio::test]
async fn what_a_list_does_not_know_of_a_wait_is_left_out() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let list = bed.get("/api/jobs").await;
    let waiting = &list.is(200)["jobs"][0]["waiting"];
    assert_eq!((waiting.get("deadline"), waiting.get("since")), (None, None));
    let one = bed.get(&format!("/api/jobs/{job}")).await;
    let waiting = &one.is(200)["waiting"];
    assert_eq!(waiting["deadline"].as_str().map(moment), Some(moment("2026-11-22T09:00:00Z")));
    assert_eq!(waiting["since"].as_str().map(moment), Some(moment("2026-11-21T09:00:00Z")));
}

#[tokio::test]
async fn waits_are_listed_with_key_reason_age_and_deadline() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    bed.clock.advance(Span::from_micros(90_500_000));
    let list = bed.get("/api/waits?wait_type=human").await;
    let waits = list.is(200)["waits"].as_array().unwrap();
    assert_eq!(waits.len(), 1);
    let wait = &waits[0];
    assert_eq!((wait["job_id"].as_str(), wait["agent"].as_str()), (Some(job.as_str()), Some("approve")));
    assert_eq!((wait["correlation_key"].as_str(), wait["reason"].as_str()), (Some("ok-7"), Some("Please look")));
    assert_eq!((wait["age"].as_str(), wait["wait_type"].as_str()), (Some("90s"), Some("human")));
    assert_eq!(wait["deadline"].as_str().map(moment), Some(moment("2026-11-22T09:00:00Z")));
    assert_eq!(bed.get("/api/waits").await.is(200)["waits"].as_array().unwrap().len(), 1);
    assert_eq!(bed.get("/api/waits?wait_type=webhook").await.is(200)["waits"].as_array().unwrap().len(), 0);
    bed.get("/api/waits?wait_type=owl").await.problem(400, "invalid_request");
}

#[tokio::test]
async fn waits_come_in_pages() {
    let bed = Bed::with_agents().await;
    bed.get("/api/waits?wait_type=").await.problem(400, "invalid_request");
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(bed.waiting().await);
    }
    let first = bed.get("/api/waits?limit=2").await;
    let cursor = first.is(200)["next_cursor"].as_str().unwrap();
    let second = bed.get(&format!("/api/waits?limit=2&cursor={cursor}")).await;
    assert!(second.is(200)["next_cursor"].is_null());
    let of = |list: &serde_json::Value| {
        let waits = list["waits"].as_array().unwrap().iter();
        waits.map(|wait| wait["job_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    jobs.reverse();
    assert_eq!([of(&first.body), of(&second.body)].concat(), jobs);
}

#[tokio::test]
async fn calls_in_doubt_are_listed_with_all_that_an_operator_needs() {
    let bed = Bed::with_agents().await;
    let (job, key) = bed.doubted().await;
    let list = bed.get("/api/in-doubt").await;
    let call = &list.is(200)["invocations"][0];
    let text = |name: &str| call[name].as_str().unwrap().to_owned();
    assert_eq!((text("invocation"), text("job_id")), (key, job));
    assert_eq!((text("agent"), text("node_id"), text("tool")), ("pay".into(), "send".into(), "send".into()));
    assert_eq!(
        (text("effect"), text("status"), text("policy")),
        ("at_most_once".into(), "in_doubt".into(), "human".into())
    );
    assert_eq!(text("reason"), "the answer was lost");
    assert_eq!((moment(&text("since")), call["permit"].as_u64()), (moment("2026-11-21T09:00:00Z"), Some(1)));
    assert_eq!(moment(&text("deadline")), moment("2026-11-21T09:01:00Z"));
    assert_eq!((call["waiting"]["doubt"].as_bool(), text("job_status")), (Some(true), "parked".into()));
    let waits = bed.get("/api/waits").await;
    assert_eq!(waits.is(200)["waits"][0]["doubt"], true);
}

#[tokio::test]
async fn calls_in_doubt_come_in_pages() {
    let bed = Bed::with_agents().await;
    // All at one moment: their order is that of their keys.
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.push(bed.doubted().await.1);
    }
    expected.sort_unstable();
    let (mut found, mut query) = (Vec::new(), String::from("limit=2"));
    for left in [3, 1, 0] {
        let page = bed.get(&format!("/api/in-doubt?{query}")).await;
        let calls = page.is(200)["invocations"].as_array().unwrap();
        found.extend(calls.iter().map(|call| call["invocation"].as_str().unwrap().to_owned()));
        assert_eq!(found.len(), 5 - left);
        match page.body["next_cursor"].as_str() {
            Some(cursor) => query = format!("limit=2&cursor={cursor}"),
            None => assert_eq!((left, &page.body["next_cursor"]), (0, &serde_json::Value::Null)),
        }
    }
    assert_eq!(found, expected);
    assert!(bed.get("/api/in-doubt?limit=5").await.is(200)["next_cursor"].is_null());
    let cursor = query.strip_prefix("limit=2&cursor=").unwrap();
    let shorter = &cursor[1..];
    for wrong in ["", "x", "job_01JD0000000000000000000001", shorter, "8000000000000000.key_01JD0000000000000000000009"]
    {
        let refused = bed.get(&format!("/api/in-doubt?cursor={wrong}")).await;
        assert!(refused.problem(400, "invalid_request").contains("`cursor`"), "{}", refused.text);
    }
}

/// An agent whose tool is asked about by every kind of policy.
const POLICIES: &str = "agent: pay
tools:
  look: { kind: function, function: builtin.echo, effect: pure }
  send:
    kind: function
    function: builtin.echo
    on_in_doubt: [{ wait: 5m }, { reconcile: look, settle: 5s }, human]
plan:
  nodes:
    - { id: send, kind: tool, tool: send, input: { cents: '{{ message }}' } }
";

#[tokio::test]
async fn a_call_in_doubt_is_listed_with_what_is_done_about_it() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/pay", POLICIES).await.is(201);
    let job = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    let settle = Settle { trigger: LedgerTrigger::Doubt, ..hand.permit("send").await };
    let policies = [("wait: 5m", true), ("reconcile: look", true), ("human", false), ("fail", false)];
    for (policy, (words, by_itself)) in (0..).zip(policies) {
        let doubt = StepInDoubt { node: "send".into(), permit: 1, policy, reason: format!("lost {policy}") };
        hand.write(Purpose::Doubt, |draft| {
            if policy == 0 {
                draft.add(&SystemIds, Fact::with_ledger(doubt, LedgerWrite::Settle(settle))).unwrap();
            } else {
                draft.push(&SystemIds, doubt).unwrap();
            }
        })
        .await;
        let list = bed.get(&format!("/api/in-doubt?job={job}")).await;
        let call = &list.is(200)["invocations"][0];
        assert_eq!((&call["policy"], &call["reason"]), (&words.into(), &format!("lost {policy}").into()));
        // The deadline, and what this tool settles in.
        assert_eq!(moment(call["accepted_from"].as_str().unwrap()), moment("2026-11-21T09:01:05Z"), "{call}");
        assert_eq!(moment(call["since"].as_str().unwrap()), moment("2026-11-21T09:00:00Z"), "{call}");
        assert_eq!((&call["waiting"], &call["job_status"]), (&Value::Null, &"running".into()));
        // A job that is at work on it says the same of it as one that waits.
        assert_eq!(call["next"], if by_itself { "own_policies" } else { "person" });
        let why = bed.get(&format!("/api/jobs/{job}/why")).await;
        let said =
            if by_itself { "; its tool's own policies come first: there is nothing for you to do yet" } else { "" };
        let said = format!("w1 holds it; send has made a call whose outcome is unknown: lost {policy}{said}");
        assert_eq!((&why.is(200)[0]["code"], &why.body[0]["detail"]), (&"held_by".into(), &said.into()));
        bed.clock.advance(Span::from_secs(1));
    }
}

/// What arrives when the outcome is known already is kept beside it, with whether it is another one.
#[tokio::test]
async fn what_comes_too_late_is_told_with_whether_it_contradicts() {
    for (late, conflict) in [(serde_json::json!({ "receipt": 3 }), false), (serde_json::json!(4), true)] {
        let bed = Bed::with_agents().await;
        let (job, key) = bed.doubted().await;
        let yes = r#"{"outcome": "happened", "note": "seen", "permit": 1, "result": {"receipt": 3}}"#;
        bed.call("POST", &format!("/api/jobs/{job}/in-doubt/{key}"), yes).await.is(202);
        let id = job.parse().unwrap();
        let row = bed.store.history(Scope::System, id, true).await.unwrap().unwrap().ledger[0].clone();
        let outcome = DepositOutcome::Done(Json::new(late.clone()));
        let (permit, permit_id, node) = (row.permit, row.permit_id, row.node);
        let deposit = Deposit { job: id, key: row.key, node, outcome, permit, permit_id };
        bed.clock.advance(Span::from_secs(5));
        let deposited = bed.state.runtime.deposit(&deposit).await.unwrap();
        let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
        let evidence = trace.is(200)["evidence"].as_array().unwrap();
        assert_eq!((deposited, evidence.len()), (Deposited::Evidence { conflict }, 1), "{late}");
        let told = &evidence[0];
        assert_eq!(
            (&told["conflict"], &told["invocation"], &told["permit"]),
            (&conflict.into(), &key.into(), &1.into())
        );
        assert_eq!((&told["node_id"], &told["outcome"]["result"]), (&"send".into(), &late));
        assert_eq!(moment(told["at"].as_str().unwrap()), moment("2026-11-21T09:00:05Z"));
    }
}
