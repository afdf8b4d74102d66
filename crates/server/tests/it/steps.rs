use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::{
    Failure, JobFailed, JobRequeued, JobWaiting, NodeStarted, RequeueReason, StepInDoubt, TimerId, TimerSet,
};
use aetheris_core::ledger::{LedgerTrigger, Settle};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::WaitType;
use aetheris_core::time::Span;
use aetheris_runtime::draft::Fact;
use aetheris_store::faulty::{FaultPlan, FaultyStore};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::{Clock as _, ManualClock, SystemClock, SystemIds};
use aetheris_store::{ErrorKind, FailedWrite, Health, LedgerWrite, Purpose, Store};
use serde_json::{Value, json};

use crate::bed::{APPROVE, Bed, Hand, moment, started};

/// An agent with plain steps only.
const ASK: &str = r#"
agent: ask
tools:
  look: { kind: function, function: builtin.echo, effect: pure }
plan:
  nodes:
    - { id: look, kind: tool, tool: look, input: { order: "{{ message.order }}" } }
    - { id: decide, kind: llm, needs: [look], model: scripted/approve, prompt: "Refund {{ nodes.look.output.cents }}?" }
    - { id: nap, kind: sleep, needs: [decide], duration: 1h }
"#;

#[tokio::test]
async fn inputs_of_plain_steps_are_rendered_again_and_say_so() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/ask", ASK).await.is(201);
    let job = bed.send("ask", r#"{"order": "A-1"}"#).await;
    let path = format!("/api/jobs/{job}/steps");
    assert_eq!(bed.get(&path).await.is(200), &json!({ "next_cursor": null, "steps": [] }));
    let hand = bed.claim().await;
    hand.run("look", json!({ "cents": 4990 })).await;
    hand.run("decide", json!("approve")).await;
    let plain = bed.get(&path).await;
    let look = &plain.is(200)["steps"][0];
    let output = json!({ "bytes": 14, "from": "recorded", "value": { "cents": 4990 } });
    assert_eq!(look, &json!({ "input": null, "node_id": "look", "output": output, "status": "completed" }));
    let rendered = bed.get(&format!("{path}?render=true")).await;
    let steps = rendered.is(200)["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2, "what has not begun is left out");
    assert_eq!(steps[0]["input"], json!({ "bytes": 15, "from": "rendered", "value": { "order": "A-1" } }));
    assert_eq!(steps[1]["input"]["value"], json!({ "prompt": "Refund 4990?" }));
}

#[tokio::test]
async fn the_input_of_a_called_tool_is_the_recorded_one() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    hand.called("send", json!({ "receipt": 9 })).await;
    let reply = bed.get(&format!("/api/jobs/{job}/steps?node=send")).await;
    let step = &reply.is(200)["steps"][0];
    assert_eq!(step["input"], json!({ "bytes": 11, "from": "recorded", "value": { "cents": 5 } }));
    assert_eq!(step["output"]["value"], json!({ "receipt": 9 }));
    let other = bed.get(&format!("/api/jobs/{job}/steps?node=other")).await;
    assert_eq!(other.is(200)["steps"], json!([]));
}

#[tokio::test]
async fn values_are_bounded_and_steps_come_page_by_page() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/ask", ASK).await.is(201);
    let job = bed.send("ask", r#"{"order": "A-1"}"#).await;
    let hand = bed.claim().await;
    hand.run("look", json!({ "cents": 1, "text": "x".repeat(5_000) })).await;
    hand.run("decide", json!("approve")).await;
    let path = format!("/api/jobs/{job}/steps");
    let output = bed.get(&format!("{path}?limit=1")).await;
    let page = output.is(200);
    assert_eq!(page["next_cursor"], "look");
    let shown = &page["steps"][0]["output"];
    assert_eq!((shown["text"].as_str().map(str::len), shown["bytes"].as_u64()), (Some(2_048), Some(5_021)));
    assert!(shown.get("value").is_none());
    let rest = bed.get(&format!("{path}?limit=1&cursor=look")).await;
    assert_eq!((&rest.is(200)["steps"][0]["node_id"], &rest.body["next_cursor"]), (&json!("decide"), &json!(null)));
    let whole = bed.get(&format!("{path}?bytes=10000&node=look")).await;
    assert_eq!(whole.is(200)["steps"][0]["output"]["value"]["cents"], 1);
    bed.get(&format!("{path}?render=perhaps")).await.problem(400, "invalid_request");
    bed.get(&format!("{path}?bytes=0")).await.problem(400, "invalid_request");
}

async fn why(bed: &Bed, job: &str) -> serde_json::Value {
    let reply = bed.get(&format!("/api/jobs/{job}/why")).await;
    let reasons = reply.is(200).as_array().unwrap();
    for reason in reasons {
        assert!(reason["detail"].as_str().is_some_and(|text| !text.is_empty()), "{reason}");
        assert!(reason["do"].as_str().is_some_and(|text| text.starts_with("aetheris ")), "{reason}");
        assert!(reason["since"].is_string(), "{reason}");
    }
    reasons[0].clone()
}

#[tokio::test]
async fn a_pending_job_says_why() {
    let bed = Bed::with_agents().await;
    let ready = bed.send("approve", r#"{"order": 1}"#).await;
    assert_eq!(why(&bed, &ready).await["code"], "no_worker");
    let _hand = bed.claim().await;
    let next = bed.send("approve", r#"{"order": 2}"#).await;
    assert_eq!(why(&bed, &next).await["code"], "no_slot");

    let later = r#"{"message": 1, "run_at": "2026-11-21T10:00:00Z"}"#;
    let later = bed.call("POST", "/api/agents/approve/message", later).await;
    let later = why(&bed, later.is(202)["job_id"].as_str().unwrap()).await;
    assert_eq!(later["code"], "not_before");
    assert_eq!(later["until"].as_str().map(moment), Some(moment("2026-11-21T10:00:00Z")));
    assert!(later["do"].as_str().unwrap().starts_with("aetheris watch job_"), "{later}");
    assert_eq!((&later["detail"], &later["fails"]), (&json!("it was sent for later"), &Value::Null));

    // At one moment the deadline comes first.
    for (run_at, fails) in [("10:00:00Z", true), ("09:10:00Z", true), ("09:09:59.999999Z", false)] {
        let never = format!(r#"{{"message": 1, "run_at": "2026-11-21T{run_at}", "deadline": "10m"}}"#);
        let never = bed.call("POST", "/api/agents/approve/message", never).await;
        let never = why(&bed, never.is(202)["job_id"].as_str().unwrap()).await;
        assert_eq!(
            (&never["code"], never["fails"].as_bool()),
            (&json!("not_before"), fails.then_some(true)),
            "{never}"
        );
        if !fails {
            continue;
        }
        let said = format!("it is scheduled for 2026-11-21 {run_at}, not before its deadline");
        assert!(never["detail"].as_str().unwrap().starts_with(&said), "{never}");
        assert_eq!(never["until"].as_str().map(moment), Some(moment("2026-11-21T09:10:00Z")));
        assert!(never["do"].as_str().unwrap().starts_with("aetheris cancel job_"), "{never}");
    }
}

#[tokio::test]
async fn a_job_behind_its_session_names_the_one_before() {
    let bed = Bed::with_agents().await;
    let body = r#"{"message": {"order": 7}, "session_id": "s"}"#;
    let first = bed.call("POST", "/api/agents/approve/message", body).await;
    let second = bed.call("POST", "/api/agents/approve/message", body).await;
    let first = first.is(202)["job_id"].as_str().unwrap();
    let second = second.is(202)["job_id"].as_str().unwrap();
    let reason = why(&bed, second).await;
    assert_eq!(reason["code"], "session_busy");
    assert!(reason["detail"].as_str().unwrap().contains(first), "{reason}");
    bed.claim().await.wait("ask", "ok-7").await;
    let reason = why(&bed, second).await;
    assert!(reason["detail"].as_str().unwrap().contains("is parked"), "{reason}");
    assert_eq!(reason["do"], format!("aetheris why {first}"));
}

#[tokio::test]
async fn a_job_that_is_held_blocked_or_ended_says_why() {
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", r#"{"order": 7}"#).await;
    let hand = bed.claim().await;
    let held = why(&bed, &job).await;
    assert_eq!(held["code"], "held_by");
    assert!(held["detail"].as_str().unwrap().starts_with("w1 holds it"), "{held}");
    bed.clock.advance(aetheris_core::time::Span::from_secs(31));
    let lost = why(&bed, &job).await;
    let told = [&lost["code"], &lost["detail"], &lost["do"]];
    let said = "w1 has lost its lease; a sweep is about to take the job back";
    assert_eq!(told, [&json!("lease_expired_unreclaimed"), &json!(said), &json!(format!("aetheris watch {job}"))]);
    drop(hand);

    let bed = Bed::with_agents().await;
    let waiting = bed.waiting().await;
    let reason = why(&bed, &waiting).await;
    assert_eq!(reason["code"], "waiting_approval");
    assert_eq!(reason["detail"], "ask waits for a person: Please look");
    assert_eq!(reason["do"], format!("aetheris signal {waiting} ok-7 '{{ANSWER}}'"));
    assert_eq!(reason["until"].as_str().map(moment), Some(moment("2026-11-22T09:00:00Z")));
    let (doubted, _) = bed.doubted().await;
    let reason = why(&bed, &doubted).await;
    assert_eq!(reason["code"], "in_doubt");
    assert!(reason["detail"].as_str().unwrap().ends_with("the answer was lost"), "{reason}");
    bed.call("POST", &format!("/api/jobs/{waiting}/pause"), "").await.is(202);
    let reason = why(&bed, &waiting).await;
    assert_eq!((&reason["code"], &reason["do"]), (&json!("paused_by"), &json!(format!("aetheris resume {waiting}"))));
    assert_eq!(codes(&bed, &waiting).await, ["paused_by", "waiting_approval"]);
    bed.call("POST", &format!("/api/jobs/{doubted}/pause"), "").await.is(202);
    assert_eq!(codes(&bed, &doubted).await, ["paused_by", "in_doubt"]);
    bed.call("POST", &format!("/api/jobs/{waiting}/cancel"), "").await.is(202);
    let reason = why(&bed, &waiting).await;
    assert_eq!((&reason["code"], &reason["detail"]), (&json!("ended"), &json!("cancelled")));
}

/// A trial as a new user: whoever resumed a job that was paused in its back-off, for later or behind its session saw
/// nothing happen, and nothing had said why.
#[tokio::test]
async fn a_paused_job_says_what_else_keeps_it_from_going_on() {
    let bed = Bed::with_agents().await;
    let send = async |body: &'static str| {
        let sent = bed.call("POST", "/api/agents/approve/message", body).await;
        sent.is(202)["job_id"].as_str().unwrap().to_owned()
    };
    let later = send(r#"{"message": 1, "run_at": "2026-11-21T10:00:00Z"}"#).await;
    let in_session = r#"{"message": {"order": 7}, "session_id": "s"}"#;
    let [_first, second] = [send(in_session).await, send(in_session).await];
    for (job, reason) in [(&later, "not_before"), (&second, "session_busy")] {
        bed.call("POST", &format!("/api/jobs/{job}/pause"), "").await.is(202);
        assert_eq!(codes(&bed, job).await, ["paused_by", reason]);
    }
}

/// A trial as a new user: its call was in doubt, and every answer spoke of the pause alone.
#[tokio::test]
async fn a_job_that_is_paused_while_its_call_is_lost_says_both() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    let call = hand.permit("send").await;
    bed.call("POST", &format!("/api/jobs/{job}/pause"), "").await.is(202);
    hand.doubt_and_pause(call, "send").await;
    assert_eq!(codes(&bed, &job).await, ["paused_by", "in_doubt"]);
    let reply = bed.get(&format!("/api/jobs/{job}/why")).await;
    let doubt = &reply.is(200)[1];
    assert_eq!(doubt["detail"], "send has made a call whose outcome is unknown: the answer was lost");
    // The job goes on: among the calls that an end has left there is none of it.
    assert_eq!(doubt["do"], format!("aetheris in-doubt --job {job}"));
    let listed = bed.get(&format!("/api/in-doubt?job={job}")).await;
    assert_eq!(listed.is(200)["invocations"].as_array().unwrap().len(), 1);
}

/// The codes of the reasons, the first first.
async fn codes(bed: &Bed, job: &str) -> Vec<String> {
    let reply = bed.get(&format!("/api/jobs/{job}/why")).await;
    let reasons = reply.is(200).as_array().unwrap();
    reasons.iter().map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_commands_words_are_quoted_whatever_the_key_is() {
    for (key, word) in [
        ("approve-x; touch PWNED #", "'approve-x; touch PWNED #'"),
        ("$(touch PWNED)", "'$(touch PWNED)'"),
        ("it's", r"'it'\''s'"),
        ("a\u{1b}[31m'\u{202e}", r"$'a\u001b[31m\047\u202e'"),
        ("", "''"),
    ] {
        let bed = Bed::with_agents().await;
        let job = bed.send("approve", r#"{"order": 7}"#).await;
        bed.claim().await.wait("ask", key).await;
        let expected = format!("aetheris signal {job} {word} '{{ANSWER}}'");
        assert_eq!(why(&bed, &job).await["do"], expected, "{key:?}");
    }
    let bed = Bed::with_agents().await;
    let job = bed.send("approve", r#"{"order": 7}"#).await;
    bed.claim().await.wait("ask", "--server=http://evil").await;
    let expected = format!("aetheris signal -- {job} --server=http://evil '{{ANSWER}}'");
    assert_eq!(why(&bed, &job).await["do"], expected);
}

#[tokio::test]
async fn a_job_waits_only_for_jobs_of_its_session_that_came_before() {
    let bed = Bed::with_agents().await;
    let body = r#"{"message": {"order": 7}, "session_id": "s"}"#;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let sent = bed.call("POST", "/api/agents/approve/message", body).await;
        jobs.push(sent.is(202)["job_id"].as_str().unwrap().to_owned());
    }
    bed.call("POST", &format!("/api/jobs/{}/pause", jobs[1]), "").await.is(202);
    let first = why(&bed, &jobs[0]).await;
    assert_eq!(first["code"], "no_worker", "{first}");
    // The first unfinished one comes first, whatever stands between.
    let third = why(&bed, &jobs[2]).await;
    assert_eq!(third["do"], format!("aetheris why {}", jobs[0]), "{third}");
    bed.call("POST", &format!("/api/jobs/{}/cancel", jobs[0]), "").await.is(202);
    let third = why(&bed, &jobs[2]).await;
    assert!(third["detail"].as_str().unwrap().contains("is paused"), "{third}");
    assert_eq!(third["do"], format!("aetheris why {}", jobs[1]), "{third}");
}

#[tokio::test]
async fn who_may_claim_a_ready_job_is_said_as_far_as_it_is_known() {
    let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
    let memory = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let store = Arc::new(FaultyStore::new(memory, FaultPlan::none()));
    let bed = Bed::on(clock, Arc::clone(&store) as Arc<dyn Store>, |state| state);
    bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
    let job = bed.send("approve", r#"{"order": 7}"#).await;
    let ready = why(&bed, &job).await;
    assert_eq!(ready["code"], "no_worker");
    let said = ready["detail"].as_str().unwrap();
    assert!(said.contains("no worker has taken it"), "{said}");
    let failed = FailedWrite { age: Span::from_secs(7), error: "the disk is full".to_owned(), kind: ErrorKind::Full };
    store.report(Health { last_claim: Some(failed), ..Health::good() });
    let ready = why(&bed, &job).await;
    assert_eq!(ready["code"], "no_worker");
    let said = ready["detail"].as_str().unwrap();
    assert!(said.ends_with("the last claim here failed 7s ago: the disk is full"), "{said}");
}

#[tokio::test]
async fn what_is_due_at_this_very_moment_is_due() {
    let clock = ManualClock::at("2026-11-21T09:00:00Z".parse().unwrap());
    let memory = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let store = Arc::new(FaultyStore::new(memory, FaultPlan::none()));
    let bed = Bed::on(clock, Arc::clone(&store) as Arc<dyn Store>, |state| state);
    bed.call("PUT", "/api/agents/approve", APPROVE).await.is(201);
    let later = r#"{"message": {"order": 7}, "run_at": "2026-11-21T10:00:00Z"}"#;
    let sent = bed.call("POST", "/api/agents/approve/message", later).await;
    let job = sent.is(202)["job_id"].as_str().unwrap().to_owned();
    let failed = FailedWrite { age: Span::from_secs(7), error: "the disk is full".to_owned(), kind: ErrorKind::Full };
    store.report(Health { last_claim: Some(failed), ..Health::good() });
    bed.clock.advance(Span::from_micros(3_599_999_999));
    assert_eq!(why(&bed, &job).await["code"], "not_before");
    bed.clock.advance(Span::from_micros(1));
    let due = why(&bed, &job).await;
    assert_eq!(due["code"], "no_worker");
    assert!(due["detail"].as_str().unwrap().contains("the last claim here failed"), "{due}");
    // Since it is due, and not since it was sent.
    assert_eq!(moment(due["since"].as_str().unwrap()), moment("2026-11-21T10:00:00Z"));
    let _hand = bed.claim().await;
    bed.clock.advance(Span::from_micros(29_999_999));
    assert_eq!(why(&bed, &job).await["code"], "held_by");
    bed.clock.advance(Span::from_micros(1));
    let lost = why(&bed, &job).await;
    assert_eq!(lost["code"], "lease_expired_unreclaimed");
    assert_eq!(moment(lost["since"].as_str().unwrap()), moment("2026-11-21T10:00:30Z"));
}

/// A moment that has passed before a job was sent is not since when it waits.
#[tokio::test]
async fn a_job_is_ready_since_it_is_there() {
    let bed = Bed::with_agents().await;
    let past = r#"{"message": {"order": 7}, "run_at": "2026-11-21T08:00:00Z"}"#;
    let sent = bed.call("POST", "/api/agents/approve/message", past).await;
    let ready = why(&bed, sent.is(202)["job_id"].as_str().unwrap()).await;
    assert_eq!(moment(ready["since"].as_str().unwrap()), moment("2026-11-21T09:00:00Z"));
}

#[tokio::test]
async fn a_step_that_is_tried_again_says_which_try_it_is_and_why() {
    let bed = Bed::new();
    bed.call(
        "PUT",
        "/api/agents/pay",
        crate::bed::PAY
            .replace("version:", "effect: idempotent\n    version:")
            .replace("\n    on_in_doubt: [human]", ""),
    )
    .await
    .is(201);
    let job = bed.send("pay", "5").await;
    bed.clock.advance(Span::from_secs(1));
    bed.claim().await.unheard("send", true).await;
    let later = why(&bed, &job).await;
    assert_eq!(later["code"], "retry_backoff");
    assert_eq!(moment(later["since"].as_str().unwrap()), moment("2026-11-21T09:00:01Z"));
    assert_eq!(later["detail"], "try 1 of send failed and is tried again: timeout: the answer was lost");
    assert_eq!(later["do"], format!("aetheris trace {job}"));
    assert_eq!(moment(later["until"].as_str().unwrap()), moment("2026-11-21T10:00:01Z"));
    bed.clock.advance(Span::from_secs(3_600));
    let hand = bed.claim().await;
    assert_eq!(why(&bed, &job).await["detail"], "w1 holds it");
    hand.push([NodeStarted::new("send", 2).into()]).await;
    assert_eq!(why(&bed, &job).await["detail"], "w1 holds it and runs send, try 2");
}

#[tokio::test]
async fn a_held_job_says_what_it_is_asked_for() {
    for (act, said) in
        [(Some("cancel"), "asked to cancel"), (Some("pause"), "asked to pause"), (None, "its deadline has passed")]
    {
        let bed = Bed::with_agents().await;
        let body = r#"{"message": {"order": 7}, "deadline": "10s"}"#;
        let sent = bed.call("POST", "/api/agents/approve/message", body).await;
        let job = sent.is(202)["job_id"].as_str().unwrap().to_owned();
        let hand = bed.claim().await;
        hand.push([started("ask").into()]).await;
        bed.clock.advance(Span::from_secs(1));
        match act {
            Some(act) => drop(bed.call("POST", &format!("/api/jobs/{job}/{act}"), "").await.is(202)),
            None => {
                bed.clock.advance(Span::from_secs(9));
                let due = bed.store.due_timers(None, 10).await.unwrap();
                assert!(bed.state.runtime.fire(&due.timers[0]).await.unwrap());
            }
        }
        let held = why(&bed, &job).await;
        assert_eq!(held["detail"], format!("w1 holds it and runs ask; {said}"));
        // It runs since its step began, whatever is asked of it meanwhile.
        assert_eq!(moment(held["since"].as_str().unwrap()), moment("2026-11-21T09:00:00Z"));
    }
}

/// Lets a job wait for time to pass, in a step or for its doubt.
async fn nap(hand: &Hand, node: &str, doubt: Option<Settle>) {
    let node = StepPath::from(node);
    let timer = if doubt.is_some() { TimerId::Doubt(node.clone()) } else { TimerId::Wait(node.clone()) };
    let waiting = JobWaiting {
        correlation_key: None,
        doubt: doubt.is_some(),
        node: node.clone(),
        park: false,
        reason: None,
        wait_type: WaitType::Timer,
    };
    hand.write(Purpose::Block, |draft| {
        if let Some(settle) = doubt {
            let settle = LedgerWrite::Settle(Settle { trigger: LedgerTrigger::Doubt, ..settle });
            let reason = "the answer was lost".to_owned();
            draft
                .add(&SystemIds, Fact::with_ledger(StepInDoubt { node, permit: 1, policy: 0, reason }, settle))
                .unwrap();
        } else {
            draft.push(&SystemIds, NodeStarted::new(node, 1)).unwrap();
        }
        draft.push(&SystemIds, waiting).unwrap();
        draft.push(&SystemIds, TimerSet { after_us: 3_600_000_000, timer }).unwrap();
        draft.release();
    })
    .await;
}

#[tokio::test]
async fn a_job_that_only_time_moves_says_until_when() {
    let bed = Bed::with_agents().await;
    bed.call("PUT", "/api/agents/ask", ASK).await.is(201);
    let job = bed.send("ask", r#"{"order": "A-1"}"#).await;
    let hand = bed.claim().await;
    hand.run("look", json!({ "cents": 1 })).await;
    hand.run("decide", json!("approve")).await;
    nap(&hand, "nap", None).await;
    let doubted = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    let call = hand.permit("send").await;
    nap(&hand, "send", Some(call)).await;
    let unknown = "send has made a call whose outcome is unknown: the answer was lost";
    let by_itself = format!("{unknown}; its tool's own policies come first: there is nothing for you to do yet");
    let of_time = (job, "waiting_time", "nap waits for time to pass");
    for (job, code, detail) in [of_time, (doubted.clone(), "in_doubt", by_itself.as_str())] {
        let reason = why(&bed, &job).await;
        assert_eq!((&reason["code"], &reason["detail"]), (&json!(code), &json!(detail)));
        assert_eq!(reason["until"].as_str().map(moment), Some(moment("2026-11-21T10:00:00Z")), "{reason}");
        // Nothing of this is for a person, and nobody can answer it with a payload.
        let view = bed.get(&format!("/api/jobs/{job}")).await;
        assert_eq!(view.is(200)["waiting"]["deadline"].as_str().map(moment), Some(moment("2026-11-21T10:00:00Z")));
        assert_eq!(view.body["waiting"]["schema"], Value::Null);
    }
    // Whoever asks what waits for someone is shown the doubt, and no mere pause.
    let waits = bed.get("/api/waits").await;
    let listed: Vec<_> = waits.is(200)["waits"].as_array().unwrap().iter().map(|wait| &wait["doubt"]).collect();
    assert_eq!(listed, [&json!(true)]);
    assert_eq!(bed.get("/api/waits?wait_type=timer").await.is(200)["waits"].as_array().unwrap().len(), 2);
    // What comes next of it is one thing wherever it is told. A paused job does not go on with its policies.
    assert_eq!(next_of_doubt(&bed, &doubted).await, ["own_policies"; 3]);
    bed.call("POST", &format!("/api/jobs/{doubted}/pause"), "").await.is(202);
    assert_eq!(next_of_doubt(&bed, &doubted).await, ["person"; 3]);
    let reasons = bed.get(&format!("/api/jobs/{doubted}/why")).await;
    let told: Vec<_> = reasons.is(200).as_array().unwrap().iter().map(|reason| &reason["detail"]).collect();
    assert_eq!(told, [&json!("paused by an operator"), &json!(unknown)]);
}

/// What comes next of the doubt for which a job waits: as the job, its row in the list of jobs and the list of doubts
/// say it.
async fn next_of_doubt(bed: &Bed, job: &str) -> [String; 3] {
    let (one, list) = (bed.get(&format!("/api/jobs/{job}")).await, bed.get("/api/jobs").await);
    let row = list.is(200)["jobs"].as_array().unwrap().iter().find(|row| row["id"] == job).unwrap();
    let doubts = bed.get(&format!("/api/in-doubt?job={job}")).await;
    let told = [&one.is(200)["waiting"]["next"], &row["waiting"]["next"], &doubts.is(200)["invocations"][0]["next"]];
    told.map(|next| next.as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_failed_job_says_where_and_why() {
    let bed = Bed::with_agents().await;
    for (node, said) in [(Some("ask"), "failed at ask: boom: it broke"), (None, "failed: boom: it broke")] {
        let job = bed.send("approve", r#"{"order": 7}"#).await;
        let hand = bed.claim().await;
        let failed = JobFailed { error: Failure::new("boom", "it broke"), node: node.map(StepPath::from) };
        hand.write(Purpose::Finish, |draft| {
            draft.push(&SystemIds, failed).unwrap();
            draft.release();
        })
        .await;
        assert_eq!(why(&bed, &job).await["detail"], said);
        let error = &bed.get(&format!("/api/jobs/{job}")).await.is(200)["error"].clone();
        assert_eq!(error, &json!({ "code": "boom", "message": "it broke", "node_id": node }));
        assert_eq!(&bed.get(&format!("/api/jobs/{job}/trace")).await.is(200)["error"], error);
    }
}

/// However many bytes of each value are asked for, so many steps of them are one answer.
#[tokio::test]
async fn a_page_of_large_step_values_is_shorter_and_goes_on() {
    let bed = Bed::new();
    let job = crate::bed::large_job(&bed, 40).await;
    let path = format!("/api/jobs/{job}/steps?bytes=1048576&limit=200");
    let (mut cursor, mut seen, mut pages) = (String::new(), Vec::new(), 0);
    loop {
        let page = bed.get(&format!("{path}{cursor}")).await;
        let steps = page.is(200)["steps"].as_array().unwrap();
        let most = limits::PAGE_VALUES_BYTES_MAX.div_ceil(300 * 1024);
        assert!(steps.len() <= most, "{}", steps.len());
        seen.extend(steps.iter().map(|step| step["node_id"].as_str().unwrap().to_owned()));
        pages += 1;
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((seen.len(), pages), (40, 2));
    // By default a page has a hundred.
    let hundred = bed.get(&format!("/api/jobs/{job}/steps")).await;
    assert_eq!(hundred.is(200)["steps"].as_array().unwrap().len(), 40);
}

/// A template that cannot be rendered any more is told of in its place, and keeps no other step from being shown.
#[tokio::test]
async fn an_input_that_cannot_be_rendered_says_why() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/ask", ASK).await.is(201);
    let job = bed.send("ask", r#"{"other": 1}"#).await;
    let hand = bed.claim().await;
    hand.run("look", json!({ "cents": 4990 })).await;
    let reply = bed.get(&format!("/api/jobs/{job}/steps?render=true")).await;
    let input = &reply.is(200)["steps"][0]["input"];
    assert_eq!((&input["bytes"], &input["from"]), (&json!(0), &json!("rendered")));
    assert!(input["error"].as_str().is_some_and(|error| error.contains("order")), "{input}");
}

/// Of several reasons the one that lets go last is not hidden, and others' jobs are counted as they are.
#[tokio::test]
async fn a_pending_job_says_all_that_holds_it_and_how_many_are_held() {
    let bed = Bed::with_agents().await;
    let first = r#"{"message": {"order": 7}, "session_id": "s"}"#;
    let later = r#"{"message": {"order": 7}, "session_id": "s", "run_at": "2026-11-21T10:00:00Z"}"#;
    bed.call("POST", "/api/agents/approve/message", first).await.is(202);
    bed.clock.advance(Span::from_secs(1));
    let later = bed.call("POST", "/api/agents/approve/message", later).await;
    let later = later.is(202)["job_id"].as_str().unwrap().to_owned();
    assert_eq!(codes(&bed, &later).await, ["not_before", "session_busy"]);
    bed.clock.advance(Span::from_secs(1));
    let reasons = bed.get(&format!("/api/jobs/{later}/why")).await;
    for reason in reasons.is(200).as_array().unwrap() {
        assert_eq!(moment(reason["since"].as_str().unwrap()), moment("2026-11-21T09:00:01Z"), "{reason}");
    }
    let held = [bed.claim().await, {
        bed.send("pay", "1").await;
        bed.claim().await
    }];
    let ready = bed.send("pay", "2").await;
    let said = why(&bed, &ready).await;
    assert_eq!(said["detail"], "it is ready and takes the next free slot; workers hold 2 other jobs");
    drop(held);
}

/// An agent that asks two people at once.
const BOTH: &str = "
agent: both
plan:
  nodes:
    - { id: one, kind: wait, wait_type: human, correlation_key: ok-1, park: true, deadline: 24h }
    - { id: two, kind: wait, wait_type: human, correlation_key: ok-2, park: true, deadline: 24h }
";

/// Whoever lets a job go on is told what came last.
#[tokio::test]
async fn of_several_answers_the_newest_is_told_whichever_step_has_it() {
    for order in [["one", "two"], ["two", "one"]] {
        let bed = Bed::new();
        bed.call("PUT", "/api/agents/both", BOTH).await.is(201);
        let job = bed.send("both", "1").await;
        for node in order {
            let key = if node == "one" { "ok-1" } else { "ok-2" };
            bed.claim().await.wait(node, key).await;
            bed.clock.advance(Span::from_secs(1));
            let signal = json!({ "correlation_key": key, "payload": 1 }).to_string();
            bed.call("POST", &format!("/api/jobs/{job}/signal"), signal).await.is(200);
        }
        bed.call("POST", &format!("/api/jobs/{job}/pause"), "").await.is(202);
        let said = why(&bed, &job).await["detail"].as_str().unwrap().to_owned();
        let expected = format!("; the wait of {} has ended with a signal at 2026-11-21 09:00:02Z", order[1]);
        assert!(said.ends_with(&expected), "{said}");
    }
}

/// By its time as well; and a step that goes on has none any more.
#[tokio::test]
async fn an_answer_says_what_gave_it_and_is_gone_when_its_step_goes_on() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    bed.call("POST", &format!("/api/jobs/{job}/pause"), "").await.is(202);
    bed.clock.advance(Span::from_secs(86_400));
    let due = bed.store.due_timers(None, 10).await.unwrap();
    assert!(bed.state.runtime.fire(&due.timers[0]).await.unwrap());
    let path = format!("/api/jobs/{job}");
    let answered = bed.get(&path).await.is(200)["steps"]["ask"]["answered"].clone();
    assert_eq!(answered, json!({ "at": "2026-11-22T09:00:00.000000Z", "by": "time" }));
    let said = why(&bed, &job).await["detail"].as_str().unwrap().to_owned();
    assert!(said.ends_with("; the wait of ask has ended with its time at 2026-11-22 09:00:00Z"), "{said}");

    let (job, key) = bed.doubted().await;
    let path = format!("/api/jobs/{job}");
    let no = r#"{"outcome": "did_not_happen", "note": "seen", "permit": 1, "refused": true}"#;
    bed.call("POST", &format!("{path}/in-doubt/{key}"), no).await.is(202);
    let answered = async || bed.get(&path).await.is(200)["steps"]["send"].get("answered").cloned();
    assert_eq!(answered().await.unwrap()["by"], "did_not_happen");
    let hand = bed.claim().await;
    hand.push([NodeStarted::new("send", 2).into()]).await;
    assert_eq!(answered().await, None);
}

/// Of inputs as of outputs.
#[tokio::test]
async fn a_page_of_large_inputs_is_shorter_as_well() {
    let bed = Bed::new();
    let nodes: String = (0..20)
        .map(|n| format!("    - {{ id: n{n}, kind: tool, tool: look, input: {{ order: '{{{{ message }}}}' }} }}\n"))
        .collect();
    let tools = "tools:\n  look: { kind: function, function: builtin.echo, effect: pure }\n";
    bed.call("PUT", "/api/agents/wide", format!("agent: wide\n{tools}plan:\n  nodes:\n{nodes}")).await.is(201);
    let text = "x".repeat(900 * 1024);
    let job = bed.send("wide", &json!(text).to_string()).await;
    let hand = bed.claim().await;
    for n in 0..20 {
        hand.run(&format!("n{n}"), 1.into()).await;
    }
    let page = bed.get(&format!("/api/jobs/{job}/steps?bytes=1048576&render=true")).await;
    let most = limits::PAGE_VALUES_BYTES_MAX.div_ceil(text.len());
    assert_eq!(page.is(200)["steps"].as_array().unwrap().len(), most);
}

/// The shortest of a few readings: what disturbs one disturbs no other.
async fn reading(bed: &Bed, path: &str) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let began = SystemClock.boot();
        bed.get(path).await.is(200);
        shortest = shortest.min(SystemClock.boot().saturating_sub(began));
    }
    shortest
}

/// A look at each step for each step takes a hundred times as long for ten times as many.
#[tokio::test]
async fn a_job_of_many_steps_is_shown_in_a_time_that_grows_with_them_and_no_faster() {
    let bed = Bed::new();
    let mut jobs = Vec::new();
    for steps in [900, 9_000] {
        let name = format!("steps-{steps}");
        let mut file = format!(
            "agent: {name}\ntools:\n  look: {{ kind: function, function: builtin.echo, effect: pure }}\nplan:\n  nodes:\n"
        );
        for step in 0..steps {
            writeln!(file, "    - {{ id: s{step}, kind: tool, tool: look, input: null }}").unwrap();
        }
        bed.call("PUT", &format!("/api/agents/{name}"), file).await.is(201);
        let job = bed.send(&name, "null").await;
        bed.claim().await.run("s0", json!(1)).await;
        assert_eq!(bed.get(&format!("/api/jobs/{job}")).await.is(200)["steps"].as_object().unwrap().len(), steps);
        jobs.push(job);
    }
    for path in ["", "/steps", "/trace"] {
        let (few, many) = (
            reading(&bed, &format!("/api/jobs/{}{path}", jobs[0])).await,
            reading(&bed, &format!("/api/jobs/{}{path}", jobs[1])).await,
        );
        assert!(many < 40 * few, "{path}: {many:?} for 9,000 steps, {few:?} for 900");
    }
}

/// Also where a step's end says nothing of its values.
#[tokio::test]
async fn why_a_step_is_tried_again_stands_beside_its_values() {
    let bed = Bed::new();
    let agent = crate::bed::PAY
        .replace("version:", "effect: idempotent\n    version:")
        .replace("\n    on_in_doubt: [human]", "");
    bed.call("PUT", "/api/agents/pay", agent).await.is(201);
    let job = bed.send("pay", "5").await;
    bed.claim().await.unheard("send", true).await;
    let page = bed.get(&format!("/api/jobs/{job}/steps?node=send")).await.is(200)["steps"].clone();
    assert_eq!(page[0]["error"], json!({ "code": "timeout", "message": "the answer was lost", "node_id": null }));
}

/// A job that was given back since its model's provider may not be asked more says so, and when it is asked.
#[tokio::test]
async fn a_job_that_waits_for_its_models_provider_says_so() {
    let bed = Bed::new();
    let agent = "agent: ask\nmodel: scripted/echo\nplan:\n  nodes:\n    - { id: say, kind: llm, prompt: hello }\n";
    bed.call("PUT", "/api/agents/ask", agent).await.is(201);
    let job = bed.send("ask", "{}").await;
    let hand = bed.claim().await;
    hand.push([started("say").into()]).await;
    let requeued = JobRequeued { after_us: Some(40_000_000), reason: RequeueReason::RateLimited };
    hand.write(Purpose::Requeue, |draft| {
        draft.push(&SystemIds, requeued).unwrap();
        draft.release();
    })
    .await;
    let later = why(&bed, &job).await;
    assert_eq!(later["code"], "rate_limited");
    let detail = "say asks a model whose provider may not be asked more for now";
    assert!(later["detail"].as_str().unwrap().starts_with(detail), "{later}");
    assert_eq!(moment(later["until"].as_str().unwrap()), moment("2026-11-21T09:00:40Z"));
    bed.clock.advance(Span::from_secs(41));
    assert_eq!(why(&bed, &job).await["code"], "no_worker");
}
