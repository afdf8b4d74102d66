use aetheris_check::calls;
use aetheris_core::event::{
    Event, Failure, InvocationOutcome, JobFailed, JobPaused, JobRequeued, ModelRecord, NodeFinished,
    NodeRetryScheduled, NodeSkipped, NodeStarted, PauseReason, RequeueReason, SkipReason, Source, StepInDoubt,
    StepResult, ToolInvocationFinished, ToolInvocationStarted, Usage,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, PermitId, ToolName};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerStatus, LedgerTrigger, PermitRequest, Settle};
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::state::JobState;
use aetheris_core::time::Span;
use aetheris_runtime::draft::Fact;
use aetheris_server::verify::Chain;
use aetheris_store::system::SystemIds;
use aetheris_store::{EventRow, History, JobRow, LedgerWrite, Purpose, Scope};
use serde_json::Value;

use crate::bed::{Bed, Hand, finished, moment, started};

/// An agent that calls a tool which may be called twice.
const MAIL: &str = "agent: mail
tools:
  send: { kind: function, function: builtin.echo, effect: idempotent, version: '2' }
plan:
  nodes:
    - { id: send, kind: tool, tool: send, input: { cents: '{{ message }}' } }
";

pub(crate) async fn completed(bed: &Bed) -> String {
    let job = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    hand.called("send", serde_json::json!({"receipt": 9})).await;
    hand.complete("send").await;
    job
}

#[tokio::test]
async fn a_sound_job_replays_and_verifies() {
    let bed = Bed::with_agents().await;
    let doubted = bed.doubted().await.0;
    for job in [completed(&bed).await, bed.waiting().await, doubted, bed.send("pay", "1").await] {
        let replay = bed.get(&format!("/api/jobs/{job}/replay")).await;
        assert_eq!(replay.is(200)["matches"], true, "{}", replay.text);
        assert_eq!(replay.body["state_hash"], replay.body["live_state_hash"]);
        assert_eq!(replay.body["state"]["id"], job.as_str());
        assert_eq!(replay.body["events"], replay.body["state"]["seq"]);
        let verify = bed.get(&format!("/api/jobs/{job}/verify")).await;
        assert_eq!(verify.is(200)["valid"], true, "{}", verify.text);
        let names: Vec<_> =
            verify.body["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["sequence", "payloads", "chain", "head", "readable", "replay", "ledger"]);
    }
}

#[tokio::test]
async fn a_trace_tells_the_runs_and_where_results_came_from() {
    let bed = Bed::with_agents().await;
    let job = completed(&bed).await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    let view = trace.is(200);
    assert_eq!(view["runs"][0]["ended_by"], "job_completed");
    let step = &view["steps"][0];
    assert_eq!((step["node_id"].as_str(), step["kind"].as_str()), (Some("send"), Some("tool")));
    assert_eq!((step["source"].as_str(), step["result"].as_str()), (Some("executed"), Some("side_effect_committed")));
    assert_eq!((step["tool"]["version"].as_str(), step["tool"]["permits"].as_u64()), (Some("2"), Some(1)));
    assert_eq!(step["attempts"].as_array().unwrap().len(), 1);

    let job = bed.waiting().await;
    bed.call("POST", &format!("/api/jobs/{job}/signal"), r#"{"correlation_key": "ok-7", "payload": null}"#)
        .await
        .is(200);
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    assert_eq!(trace.is(200)["steps"][0]["ended_by"], "signal");
    assert_eq!(trace.body["steps"][1]["needs"], serde_json::json!(["ask"]));
    assert_eq!(trace.body["runs"][0]["ended_by"], "job_waiting");
}

/// A step whose outcome was unknown waits by its policy, which is not how it ends.
#[tokio::test]
async fn a_call_in_doubt_is_not_ended_by_time() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "1").await;
    bed.claim().await.doubt_and_wait("send").await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    assert_eq!(trace.is(200)["steps"][0]["doubts"].as_array().unwrap().len(), 1);
    assert_eq!(trace.body["steps"][0]["ended_by"], serde_json::Value::Null);
    // Nor is it an answer.
    let view = bed.get(&format!("/api/jobs/{job}")).await;
    assert_eq!(view.is(200)["steps"]["send"].get("answered"), None);
}

/// A call that may be repeated is never asked about while its job goes on: what somebody says of it after the end is
/// told with who said it, how it is known, and since when it was unknown.
#[tokio::test]
async fn an_answer_about_a_call_that_may_be_repeated_is_in_the_trace() {
    for (again, outcome) in [(true, "happened"), (false, "happened"), (true, "did_not_happen")] {
        let bed = Bed::new();
        bed.call("PUT", "/api/agents/mail", MAIL).await.is(201);
        let job = bed.send("mail", "5").await;
        let [view, trace, events] = ["", "/trace", "/events"].map(|what| format!("/api/jobs/{job}{what}"));
        for path in [&view, &trace] {
            assert_eq!(bed.get(path).await.is(200).get("ended_at"), Some(&Value::Null), "{path}");
        }
        let key = bed.claim().await.unheard("send", again).await;
        if again {
            bed.call("POST", &format!("{view}/cancel"), "").await.is(202);
        }
        assert_eq!(bed.get(&trace).await.is(200)["steps"][0]["doubts"], serde_json::json!([]));
        let left = bed.get(&format!("/api/in-doubt?unresolved=true&job={job}")).await;
        assert_eq!(left.is(200)["invocations"][0]["reason"], "the answer was lost");
        bed.clock.advance(Span::from_secs(24 * 3_600));
        let answer = serde_json::json!({ "outcome": outcome, "note": "seen", "permit": 1 });
        bed.call("POST", &format!("{view}/in-doubt/{key}"), answer.to_string()).await.is(202);
        let listed = bed.get(&events).await;
        let at = |kind: &str| {
            let mut events = listed.is(200)["events"].as_array().unwrap().iter();
            events.find(|event| event["type"] == kind).unwrap()["at"].clone()
        };
        let mut told = serde_json::json!([{
            "at": at("tool_invocation_finished"), "note": "seen", "outcome": outcome, "permit": 1,
            "reason": "the answer was lost", "resolved_at": at("in_doubt_resolved"), "resolved_by": "operator",
        }]);
        if outcome == "happened" {
            told[0]["result"] = serde_json::json!({ "bytes": 4, "from": "recorded", "value": null });
        }
        let step = bed.get(&trace).await.is(200)["steps"][0].clone();
        assert_eq!((&step["doubts"], &step["left_in_doubt"]), (&told, &outcome.into()));
        assert_eq!(step["tool"]["effect"], "idempotent");
        let verify = bed.get(&format!("{view}/verify")).await;
        assert_eq!(verify.is(200)["valid"], true, "{}", verify.text);
    }
}

/// Calls under this permit what may be called again, and hears no outcome.
async fn tried(hand: &Hand, permit: u32, message: &str) -> Settle {
    let (node, tool, input) =
        (StepPath::from("send"), ToolName::from("send"), Json::new(serde_json::json!({"cents": 5})));
    let (key, permit_id) = (IdempotencyKey::derive(hand.job, &node, 0), PermitId::from_u128(u128::from(permit)));
    let (class, lifetime) = (EffectClass::Idempotent, Span::from_secs(60));
    let request = PermitRequest {
        class,
        input_hash: input.hash(),
        key,
        lifetime,
        node: node.clone(),
        permit,
        permit_id,
        tool: tool.clone(),
    };
    let event = ToolInvocationStarted {
        effect: class,
        input: (permit == 1).then_some(input),
        key,
        lifetime_us: lifetime.micros(),
        node: node.clone(),
        permit,
        permit_id,
        tool,
        tool_version: Some("2".to_owned()),
    };
    hand.write(Purpose::Permit, |draft| {
        if permit == 1 {
            draft.push(&SystemIds, NodeStarted::new(node.clone(), 1)).unwrap();
        }
        draft.add(&SystemIds, Fact::with_ledger(event, LedgerWrite::Permit(request))).unwrap();
    })
    .await;
    let error = Some(Failure::new("timeout", message));
    let outcome = InvocationOutcome::InDoubt;
    let done = ToolInvocationFinished { error, node, outcome, permit, source: Source::Executed };
    let settle = Settle { key, permit_id, trigger: LedgerTrigger::Doubt };
    hand.write(Purpose::Record, |draft| {
        draft.add(&SystemIds, Fact::with_ledger(done, LedgerWrite::Settle(settle))).unwrap();
    })
    .await;
    settle
}

/// Each try has a doubt of its own: the answer is about the last one, and is told with what is known of that.
#[tokio::test]
async fn an_answer_about_a_second_try_is_told_of_that_try() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/mail", MAIL).await.is(201);
    let job = bed.send("mail", "5").await;
    let hand = bed.claim().await;
    tried(&hand, 1, "the first answer was lost").await;
    bed.clock.advance(Span::from_secs(1));
    let settle = Settle { trigger: LedgerTrigger::GiveUp, ..tried(&hand, 2, "the second answer was lost").await };
    let (error, node) = (Failure::new("timeout", "no answer came"), StepPath::from("send"));
    let end =
        NodeFinished { error: Some(error.clone()), ..NodeFinished::new(node.clone(), StepResult::RetryableFailure) };
    hand.write(Purpose::Finish, |draft| {
        draft.add(&SystemIds, Fact::with_ledger(end, LedgerWrite::Settle(settle))).unwrap();
        draft.push(&SystemIds, JobFailed { error, node: Some(node) }).unwrap();
        draft.release();
    })
    .await;
    bed.clock.advance(Span::from_secs(24 * 3_600));
    let answer = serde_json::json!({ "outcome": "happened", "note": "seen", "permit": 2 });
    bed.call("POST", &format!("/api/jobs/{job}/in-doubt/{}", settle.key), answer.to_string()).await.is(202);
    let listed = bed.get(&format!("/api/jobs/{job}/events")).await;
    let events = listed.is(200)["events"].as_array().unwrap().iter();
    let at: Vec<_> =
        events.filter(|event| event["type"] == "tool_invocation_finished").map(|event| event["at"].clone()).collect();
    assert!(at.len() == 2 && at[0] != at[1], "{at:?}");
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    let doubts = trace.is(200)["steps"][0]["doubts"].as_array().unwrap();
    assert_eq!(doubts.len(), 1, "{doubts:?}");
    let told = (&doubts[0]["permit"], &doubts[0]["reason"], &doubts[0]["at"], &doubts[0]["outcome"]);
    assert_eq!(told, (&2.into(), &"the second answer was lost".into(), &at[1], &"happened".into()));
}

/// What is found where ledger and effects are these.
fn found(state: &JobState, history: &History) -> Vec<String> {
    let effects = history.effects.iter().map(|effect| ((effect.key, effect.permit), effect.result.hash())).collect();
    let results = history.events.iter().filter_map(|recorded| match &recorded.event {
        Event::CommandCommitted(e) => Some((recorded.seq, &e.node, e.result_hash)),
        _ => None,
    });
    let mut found = calls::differences(state, &history.ledger);
    found.extend(calls::of_effects(state, &history.ledger, &effects, results));
    found
}

pub(crate) async fn stored(bed: &Bed, job: &str) -> (Vec<EventRow>, History) {
    let id = job.parse().unwrap();
    let rows = bed.store.events(Scope::System, id, 0, 1_000).await.unwrap();
    (rows, bed.store.history(Scope::System, id, true).await.unwrap().unwrap())
}

/// The names of the checks that a changed stream fails.
fn failed(rows: &[EventRow], row: &JobRow) -> Vec<String> {
    let mut chain = Chain::new(row.id);
    rows.iter().for_each(|event| chain.push(event));
    chain.checks(row).into_iter().filter(|check| !check.ok).map(|check| check.name).collect()
}

#[tokio::test]
async fn every_change_of_a_stored_stream_is_found() {
    let bed = Bed::with_agents().await;
    let (rows, history) = stored(&bed, &completed(&bed).await).await;
    let row = &history.row;
    assert_eq!(failed(&rows, row), [""; 0]);
    let with = |change: fn(&mut Vec<EventRow>)| {
        let mut changed = rows.clone();
        change(&mut changed);
        failed(&changed, row)
    };
    assert_eq!(with(|rows| drop(rows.remove(3))), ["sequence", "chain"]);
    assert_eq!(with(|rows| drop(rows.pop())), ["head"]);
    assert_eq!(with(|rows| rows.swap(2, 3)), ["sequence", "chain"]);
    assert_eq!(with(|rows| rows[0].payload[5] ^= 1), ["payloads", "readable"]);
    assert_eq!(with(|rows| rows[1].fence.epoch += 1), ["chain"]);
    assert_eq!(with(|rows| rows[4].schema_version += 1), ["chain", "readable"]);
    assert_eq!(with(|rows| rows[4].kind = 200), ["chain", "readable"]);
    assert_eq!(with(|rows| rows[2].hash = Hash::ZERO), ["chain"]);
    // A forger who computes the payload's hash anew breaks the chain instead.
    assert_eq!(
        with(|rows| {
            rows[0].payload = rows[0].payload.iter().map(|b| if *b == b'5' { b'6' } else { *b }).collect();
            rows[0].payload_hash = Hash::of(&rows[0].payload);
        }),
        ["chain"]
    );
    let mut other = row.clone();
    other.head = Hash::ZERO;
    assert_eq!(failed(&rows, &other), ["head"]);
}

#[tokio::test]
async fn every_disagreement_of_ledger_and_events_is_found() {
    let bed = Bed::with_agents().await;
    let (_, history) = stored(&bed, &completed(&bed).await).await;
    let state = JobState::fold(history.row.id, &history.events).unwrap();
    assert_eq!(state.status, JobStatus::Completed);
    let with = |change: fn(&mut History)| {
        let mut changed = history.clone();
        change(&mut changed);
        found(&state, &changed)
    };
    assert_eq!(with(|_| {}), [""; 0]);
    for (change, says) in [
        ((|h| h.effects.clear()) as fn(&mut History), "has no effect"),
        (|h| h.ledger.clear(), "not in the ledger"),
        (|h| h.effects[0].result = serde_json::json!(1).into(), "another result"),
        (|h| h.ledger[0].status = LedgerStatus::NotSent, "has an effect"),
        (|h| h.ledger[0].permit = 2, "permit 2"),
        (|h| h.ledger[0].permit_id = PermitId::from_u128(9), "the ledger is at permit 1"),
        (|h| h.ledger[0].class = EffectClass::Idempotent, "another class or deadline"),
        (|h| h.ledger[0].deadline = h.ledger[0].deadline.after(Span::from_micros(1)), "another class or deadline"),
        (|h| h.effects[0].key = IdempotencyKey::from_u128(1), "has no row in the ledger"),
        (|h| h.ledger[0].input_hash = Hash::ZERO, "other arguments"),
        (|h| h.ledger[0].node = "other".into(), "at node `other`"),
        (|h| h.ledger[0].tool = "other".into(), "as a call of `other`"),
        (|h| h.ledger[0].key = aetheris_core::id::IdempotencyKey::from_u128(1), "not in the events"),
    ] {
        let found = with(change);
        assert!(found.iter().any(|text| text.contains(says)), "{says}: {found:?}");
    }
    let doubted = bed.doubted().await.0;
    for (status, disproved) in [
        (LedgerStatus::Started, false),
        (LedgerStatus::NotSent, false),
        (LedgerStatus::RefusedRetryable, false),
        (LedgerStatus::FailedUnresolved, false),
        (LedgerStatus::InDoubt, true),
    ] {
        only_the_status_is_told(&bed, &doubted, (status, disproved)).await;
    }
    let refused = refused(&bed).await;
    for status in [LedgerStatus::Started, LedgerStatus::InDoubt, LedgerStatus::NotSent] {
        only_the_status_is_told(&bed, &refused, (status, false)).await;
    }
}

/// A row is as it should be, and with this status nothing else speaks against it.
async fn only_the_status_is_told(bed: &Bed, job: &str, (status, disproved): (LedgerStatus, bool)) {
    let (_, mut history) = stored(bed, job).await;
    let state = JobState::fold(history.row.id, &history.events).unwrap();
    assert_eq!(found(&state, &history), [""; 0]);
    (history.ledger[0].status, history.ledger[0].disproved) = (status, disproved);
    let found = found(&state, &history);
    let says = format!("the ledger has {} as {}", history.ledger[0].key, status.as_str());
    assert!(found.len() == 1 && found[0].starts_with(&says), "{status:?}, {disproved}: {found:?}");
}

/// A call that was refused for good; its job goes on.
async fn refused(bed: &Bed) -> String {
    let job = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    let settle = Settle { trigger: LedgerTrigger::RefusePermanent, ..hand.permit("send").await };
    let refused = ToolInvocationFinished {
        error: None,
        node: "send".into(),
        outcome: InvocationOutcome::RefusedPermanent,
        permit: 1,
        source: Source::Executed,
    };
    hand.write(Purpose::Record, |draft| {
        draft.add(&SystemIds, Fact::with_ledger(refused, LedgerWrite::Settle(settle))).unwrap();
    })
    .await;
    job
}

/// One event more than is read at once.
#[tokio::test]
async fn a_job_verifies_whatever_its_length() {
    let bed = Bed::new();
    let nodes: String = (0..33).map(|n| format!("    - {{ id: n{n}, kind: transform, output: 1 }}\n")).collect();
    bed.call("PUT", "/api/agents/long", format!("agent: long\nplan:\n  nodes:\n{nodes}")).await.is(201);
    let job = bed.send("long", "1").await;
    let hand = bed.claim().await;
    for n in 0..33 {
        hand.run(&format!("n{n}"), n.into()).await;
        let verify = bed.get(&format!("/api/jobs/{job}/verify")).await;
        assert_eq!(verify.is(200)["valid"], true, "{n}: {}", verify.text);
    }
}

/// A job that nobody holds is ended by others: its last run has ended before.
#[tokio::test]
async fn the_end_of_a_run_is_its_own() {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    bed.call("POST", &format!("/api/jobs/{job}/cancel"), "").await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    assert_eq!(trace.is(200)["status"], "cancelled");
    assert_eq!(trace.body["runs"][0]["ended_by"], "job_waiting");
}

/// An agent whose steps are tried, skipped and asked of a model.
const TRIES: &str = "agent: tries
plan:
  nodes:
    - { id: ask, kind: llm, model: scripted/echo, prompt: 'x' }
    - { id: left, kind: transform, needs: [ask], output: 1 }
    - { id: right, kind: transform, needs: [left], output: 1 }
";

#[tokio::test]
async fn a_trace_tells_of_every_try_and_every_run() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/tries", TRIES).await.is(201);
    let job = bed.send("tries", "1").await;
    let (ask, second) = (StepPath::from("ask"), Span::from_secs(1).micros());
    let error = Failure::new("busy", "try again");
    let hand = bed.claim().await;
    hand.push([started("ask").into()]).await;
    bed.clock.advance(Span::from_secs(2));
    hand.write(Purpose::Requeue, |draft| {
        let retry = NodeRetryScheduled { after_us: second, error: error.clone(), model: None, node: ask.clone() };
        draft.push(&SystemIds, retry).unwrap();
        draft.push(&SystemIds, JobRequeued { after_us: Some(second), reason: RequeueReason::Retry }).unwrap();
        draft.release();
    })
    .await;
    bed.clock.advance(Span::from_secs(8));
    let hand = bed.claim().await;
    hand.push([NodeStarted::new(ask.clone(), 2).into()]).await;
    let usage = Usage { completion_tokens: 3, prompt_tokens: 9, ..Usage::default() };
    let model = ModelRecord {
        finish: None,
        parameters: None,
        model: "scripted/echo".to_owned(),
        prompt_hash: Hash::ZERO,
        usage,
    };
    let end =
        NodeFinished { model: Some(Box::new(model)), took_us: Some(4 * second), ..finished("ask", Some(1.into())) };
    hand.push([end.into()]).await;
    let skipped = |node: &str, reason| NodeSkipped { node: StepPath::from(node), reason };
    hand.push([skipped("left", SkipReason::Condition).into(), skipped("right", SkipReason::Upstream).into()]).await;
    bed.call("POST", &format!("/api/jobs/{job}/pause"), "").await.is(202);
    hand.write(Purpose::Pause, |draft| {
        draft.push(&SystemIds, JobPaused { reason: PauseReason::Operator }).unwrap();
        draft.release();
    })
    .await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    let step = &trace.is(200)["steps"][0];
    let tries = step["attempts"].as_array().unwrap();
    let told: Vec<_> = tries
        .iter()
        .map(|attempt| {
            let at = |name: &str| moment(attempt[name].as_str().unwrap());
            (attempt["number"].as_u64(), attempt["epoch"].as_u64(), at("started_at"), at("ended_at"))
        })
        .collect();
    let at = |text| moment(&format!("2026-11-21T09:00:{text}Z"));
    // A step's start that was written late says how long it took.
    assert_eq!(told, [(Some(1), Some(1), at("00"), at("02")), (Some(2), Some(2), at("06"), at("10"))]);
    assert_eq!(tries[0]["error"], serde_json::json!({ "code": "busy", "message": "try again", "node_id": null }));
    assert_eq!(tries[1]["error"], Value::Null);
    let model = &step["model"];
    assert_eq!((&model["prompt_tokens"], &model["completion_tokens"]), (&9.into(), &3.into()));
    let skipped = [1, 2].map(|place| trace.body["steps"][place]["skipped"].as_str().unwrap());
    assert_eq!(skipped, ["condition", "upstream"]);
    let runs: Vec<_> =
        trace.body["runs"].as_array().unwrap().iter().map(|run| run["ended_by"].as_str().unwrap()).collect();
    assert_eq!(runs, ["job_requeued: retry", "job_paused: paused"]);
    assert_eq!((&trace.body["status"], &trace.body["usage"]["tokens"]), (&"paused".into(), &12.into()));
}

/// It says what became of that call, and the step why there is no other.
#[tokio::test]
async fn a_step_that_ends_in_the_place_of_its_next_try_leaves_the_last_one_as_it_was() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/tries", TRIES).await.is(201);
    let job = bed.send("tries", "1").await;
    let hand = bed.claim().await;
    let busy = Failure::new("busy", "try again");
    let retry = NodeRetryScheduled { after_us: 1, error: busy, model: None, node: StepPath::from("ask") };
    hand.push([started("ask").into(), retry.into()]).await;
    bed.clock.advance(Span::from_secs(1));
    let error = Some(Failure::new("budget_exceeded", "no calls are left"));
    let end = NodeFinished { error, result: StepResult::PermanentFailure, ..finished("ask", None) };
    hand.push([end.into()]).await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    let step = &trace.is(200)["steps"][0];
    let tries = step["attempts"].as_array().unwrap();
    assert_eq!(
        (tries.len(), &tries[0]["error"]["code"], &step["error"]["code"]),
        (1, &"busy".into(), &"budget_exceeded".into())
    );
    assert_eq!(tries[0]["ended_at"], tries[0]["started_at"]);
}

#[tokio::test]
async fn a_try_that_failed_for_good_says_why() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/tries", TRIES).await.is(201);
    let job = bed.send("tries", "1").await;
    let hand = bed.claim().await;
    let error = Some(Failure::new("boom", "it broke"));
    let end = NodeFinished { error, result: StepResult::PermanentFailure, ..finished("ask", None) };
    hand.push([started("ask").into(), end.into()]).await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    let step = &trace.is(200)["steps"][0];
    let said = serde_json::json!({ "code": "boom", "message": "it broke", "node_id": null });
    assert_eq!((&step["attempts"][0]["error"], &step["error"]), (&said, &said));
}

/// Each policy of a doubt says it again.
#[tokio::test]
async fn a_doubt_that_goes_through_several_policies_is_one() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    let settle = Settle { trigger: LedgerTrigger::Doubt, ..hand.permit("send").await };
    for policy in 0..2 {
        let doubt = StepInDoubt { node: "send".into(), permit: 1, policy, reason: format!("lost {policy}") };
        hand.write(Purpose::Doubt, |draft| {
            if policy == 0 {
                draft.add(&SystemIds, Fact::with_ledger(doubt, LedgerWrite::Settle(settle))).unwrap();
            } else {
                draft.push(&SystemIds, doubt).unwrap();
            }
        })
        .await;
    }
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    let doubts = trace.is(200)["steps"][0]["doubts"].as_array().unwrap();
    assert_eq!((doubts.len(), &doubts[0]["reason"]), (1, &"lost 0".into()));
    assert_eq!(trace.body["steps"][0]["source"], Value::Null);
}

/// A step says when it began, and a try that was told of late no earlier than it is known to have begun.
#[tokio::test]
async fn what_a_step_took_moves_no_beginning_that_was_written_before() {
    let bed = Bed::new();
    bed.call("PUT", "/api/agents/tries", TRIES).await.is(201);
    let job = bed.send("tries", "1").await;
    let hand = bed.claim().await;
    hand.push([started("ask").into()]).await;
    bed.clock.advance(Span::from_secs(9));
    let end = NodeFinished { took_us: Some(4_000_000), ..finished("ask", Some(1.into())) };
    hand.push([end.into()]).await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    let attempt = &trace.is(200)["steps"][0]["attempts"][0];
    assert_eq!(moment(attempt["started_at"].as_str().unwrap()), moment("2026-11-21T09:00:00Z"));
}

/// Of a tool that was not called, what the plan has.
#[tokio::test]
async fn a_tool_has_its_version_before_it_is_called() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "5").await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    let tool = serde_json::json!({
        "effect": "at_most_once", "invocation": null, "name": "send", "permits": 0, "version": "2"
    });
    assert_eq!(trace.is(200)["steps"][0]["tool"], tool);
}

/// How much was looked at is told with what was found.
#[tokio::test]
async fn a_verification_says_how_much_it_has_looked_at() {
    let bed = Bed::with_agents().await;
    let job = completed(&bed).await;
    let verify = bed.get(&format!("/api/jobs/{job}/verify")).await;
    let said: Vec<_> =
        verify.is(200)["checks"].as_array().unwrap().iter().map(|check| check["detail"].as_str().unwrap()).collect();
    assert_eq!(
        said,
        [
            "9 events without gap or repetition",
            "9 payloads are what their hashes say",
            "9 events, each chained to the one before",
            "9 is the last event, by the row and by the stream",
            "9 events can be read",
            "9 events fold to the state, the row and the timers",
            "2 rows of ledger and effects agree with the events",
        ]
    );
}
