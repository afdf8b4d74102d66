//! How runs end from outside: cancel, drain, poison.

use aetheris_core::event::{DoubtOutcome, Event, RequeueReason};
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::state::Ending;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::ops::Cancelled;
use aetheris_store::faulty::{Fault, FaultKind, FaultPlan, Op};
use aetheris_store::{Purpose, Scope};
use serde_json::json;

use crate::world::{Act, World, done, hold, unknown};

const AGENT: &str = "agent: a\nversion: \"1\"\nplanner: static\nmodel: scripted/echo\ntools:\n  pay: { kind: function, function: f, timeout: 60s }\n  look: { kind: function, function: f, effect: pure, timeout: 60s }\nplan:\n  nodes:\n    - { id: n, kind: tool, tool: pay, when: \"message.pay\" }\n    - { id: m, kind: tool, tool: look, when: \"not message.pay\" }\n    - { id: last, kind: tool, tool: look, needs: [n, m] }\n";

#[tokio::test(start_paused = true)]
async fn a_cancel_waits_for_the_call_that_has_left_and_records_its_outcome() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("pay", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "pay": true })).await;
    reached.notified().await;
    assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Requested);
    assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Requested);
    release.notify_one();
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Cancelled);
    assert_eq!(state.step_status(&"n".into()), StepStatus::Completed);
    assert_eq!((world.tools.count("pay"), world.tools.count("look")), (1, 0));
}

/// A job that is to end still waits for the outcome of its call. Its lease is renewed until then: whoever reclaimed the job
/// would not know the outcome.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_to_end_or_to_pause_keeps_its_lease_until_its_call_has_ended() {
    for pauses in [false, true] {
        let world = World::new();
        let tools = "tools:\n  t: { kind: function, function: f, effect: at_most_once, timeout: 500s }\n";
        world.put(&format!("agent: a\n{tools}plan:\n  nodes:\n    - {{ id: n, kind: tool, tool: t }}\n")).await;
        let (act, reached, release) = hold(done(json!(1)));
        world.tools.next("t", [act]);
        let first = world.start("first");
        let job = world.submit("a", json!(1)).await;
        reached.notified().await;
        let _second = world.start("second");
        let end = if pauses {
            first.rt.pause(job).await.unwrap();
            JobStatus::Paused
        } else {
            first.rt.cancel(job).await.unwrap();
            JobStatus::Cancelled
        };
        tokio::time::sleep(std::time::Duration::from_secs(300)).await;
        assert_eq!(world.state(job).await.status, JobStatus::Running);
        release.notify_one();
        let state = world.until(job, &[end]).await;
        assert_eq!((state.step_status(&"n".into()), world.tools.count("t")), (StepStatus::Completed, 1));
        let reclaims = |event: &Event| matches!(event, Event::JobRequeued(e) if e.reason != RequeueReason::Draining);
        assert!(!world.events(job).await.iter().any(reclaims), "{pauses}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_drops_a_pure_call() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, _release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "pay": false })).await;
    reached.notified().await;
    world.rt.cancel(job).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_jobs_back_and_cancels_nothing() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("pay", [act]);
    let first = world.start("first");
    let job = world.submit("a", json!({ "pay": true })).await;
    reached.notified().await;
    first.stop.drain.cancel();
    release.notify_one();
    let sweeps = first.sweeps.clone();
    first.worker.await.unwrap();
    sweeps.cancel();
    let state = world.state(job).await;
    assert_eq!((state.status, state.owner.is_none()), (JobStatus::Pending, true));
    assert_eq!(state.step_status(&"n".into()), StepStatus::Completed);
    let _second = world.start("second");
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(world.tools.count("pay"), 1);
}

/// The cancel comes through another process, so that the run hears of it only when it gives the job back. The
/// outcome that it then writes is kept, and is what the answer names.
#[tokio::test(start_paused = true)]
async fn a_cancel_while_the_worker_drains_ends_the_job_with_all_that_is_known() {
    let world = World::new();
    world
        .put("agent: a\nversion: \"1\"\nplanner: static\nmodel: scripted/echo\ntools:\n  pay: { kind: function, function: f }\nplan:\n  nodes:\n    - { id: n, kind: tool, tool: pay }\n  answer: { got: \"{{ nodes.n.output }}\" }\n")
        .await;
    let (act, reached, release) = hold(done(json!({ "id": 1 })));
    world.tools.next("pay", [act]);
    let process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Requested);
    process.stop.drain.cancel();
    release.notify_one();
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Cancelled);
    assert_eq!(state.step_status(&"n".into()), StepStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_kills_its_workers_ends_failed() {
    let world = World::new();
    world.put(AGENT).await;
    for n in 0..3 {
        let (act, reached, _release) = hold(done(json!(1)));
        world.tools.next("look", [act]);
        let process = world.start("w");
        if n == 0 {
            world.submit("a", json!({ "pay": false })).await;
        }
        reached.notified().await;
        process.kill();
    }
    let _sweeps = world.start("last");
    let page = world.rt.store.jobs(aetheris_store::JobFilter { limit: 1, ..Default::default() }).await.unwrap();
    let state = world.done(page.jobs[0].id).await;
    let Some(Ending::Failed { error, .. }) = &state.ending else { panic!("{:?}", state.ending) };
    assert_eq!((error.code.as_str(), world.tools.count("look")), ("attempts_exhausted", 3));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_whose_worker_died_keeps_its_unknown_call_in_the_list() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, _release) = hold(done(json!(1)));
    world.tools.next("pay", [act]);
    let first = world.start("first");
    let job = world.submit("a", json!({ "pay": true })).await;
    reached.notified().await;
    world.rt.cancel(job).await.unwrap();
    first.kill();
    let _second = world.start("second");
    let state = world.done(job).await;
    assert_eq!((state.status, state.step_status(&"n".into())), (JobStatus::Cancelled, StepStatus::InDoubt));
    assert_eq!(world.rt.store.in_doubt(10).await.unwrap().len(), 1);
    let events = world.events(job).await;
    assert!(events.iter().any(|event| matches!(event, Event::StepInDoubt(_))));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_not_overtaken_by_a_long_back_off() {
    let world = World::new();
    let file = AGENT
        .replace("model: scripted/echo", "retry: { max_attempts: 5, backoff: 1h, jitter: none, max_backoff: 24h }");
    world.put(&file).await;
    let error = aetheris_core::event::Failure::new("busy", "later");
    let refused = aetheris_runtime::ToolOutcome::RefusedRetryable { error, retry_after: None };
    let (act, reached, release) = hold(refused);
    world.tools.next("pay", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "pay": true })).await;
    reached.notified().await;
    world.rt.cancel(job).await.unwrap();
    release.notify_one();
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Cancelled);
    assert!(state.last_at.since(state.created_at) < aetheris_core::time::Span::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ends_during_a_back_off_leaves_nothing_to_be_asked() {
    let world = World::new();
    let file = "agent: a\nversion: \"1\"\nplanner: static\nretry: { backoff: 1h, jitter: none, max_backoff: 24h }\ntools:\n  t: { kind: function, function: f, effect: idempotent }\nplan:\n  nodes:\n    - { id: n, kind: tool, tool: t }\n";
    world.put(file).await;
    world.tools.next("t", [Act::Say(unknown("reset"))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    while world.state(job).await.not_before.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Now);
    assert_eq!(world.rt.store.in_doubt(10).await.unwrap(), []);
}

/// The outcome is recorded in a history that ends meanwhile: what the run has read of the ledger is older than it.
#[tokio::test(start_paused = true)]
async fn an_end_that_comes_between_a_call_and_its_unknown_outcome_gives_the_call_up() {
    let world = World::new();
    let file = "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  t: { kind: function, function: f, effect: idempotent }\nplan:\n  nodes:\n    - { id: n, kind: tool, tool: t }\n";
    world.put(file).await;
    world.tools.next("t", [Act::Say(unknown("reset"))]);
    // The write of the outcome is slow, and the request to end is written before it.
    let slow = Fault::Delay(Span::from_secs(3));
    let _process = world.start_behind("w", FaultPlan::none().script(Op::Commit(Purpose::Record), [Some(slow)]));
    let job = world.submit("a", json!({})).await;
    while world.tools.count("t") == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Requested);
    let state = world.done(job).await;
    let kinds = ["job_cancel_requested", "tool_invocation_finished", "node_retry_scheduled", "job_cancelled"];
    assert!(world.kinds(job).await.ends_with(&kinds));
    let row = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().ledger.remove(0);
    assert_eq!((row.permit, row.status), (1, LedgerStatus::FailedUnresolved));
    assert_eq!(world.rt.store.in_doubt(10).await.unwrap(), []);
    assert_eq!(state.steps[&"n".into()].left_in_doubt(state.status), Some(DoubtOutcome::Unresolved));
}

/// A plain body runs as often as it has to; but nothing new starts under a lease that is spent.
#[tokio::test(start_paused = true)]
async fn no_plain_body_begins_under_a_spent_lease() {
    let world = World::new();
    world
        .put(
            "agent: a\nversion: \"1\"\nplanner: static\nmodel: scripted/echo\ntools:\n  look: { kind: http, method: GET, url: \"http://look.test/\", effect: pure }\n\
             plan:\n  nodes:\n    - { id: n, kind: tool, tool: look }\n    - { id: m, kind: tool, tool: look, needs: [n] }\n",
        )
        .await;
    // The write before the second body takes longer than the lease is safe, and nobody looks at the lease.
    let slow = Fault::Delay(Span::from_secs(25));
    let first = world.start_behind("first", FaultPlan::none().script(Op::Commit(Purpose::Record), [Some(slow)]));
    first.freeze_keeper();
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Running]).await;
    let _second = world.start("second");
    world.done(job).await;
    let epochs: Vec<_> =
        world.tools.calls_of("look").iter().map(|call| (call.node.to_string(), call.fence.epoch)).collect();
    assert_eq!(epochs, [("n".to_owned(), 1), ("m".to_owned(), 2)]);
}

/// What is left of the lease is looked at before a permission is asked for: the next run gives the first.
#[tokio::test(start_paused = true)]
async fn no_permission_is_asked_for_under_a_lease_that_is_spent() {
    let world = World::new();
    world
        .put(
            "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  look: { kind: function, function: f, effect: pure }\n  \
             pay: { kind: function, function: f }\nplan:\n  nodes:\n    - { id: n, kind: tool, tool: look }\n    \
             - { id: m, kind: tool, tool: pay, needs: [n] }\n",
        )
        .await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let first = world.start("first");
    first.freeze_keeper();
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    // The store would still take it: the lease ends in five seconds.
    tokio::time::sleep(std::time::Duration::from_secs(25)).await;
    release.notify_one();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!((world.state(job).await.fence.epoch, world.tools.count("look")), (1, 1));
    let _second = world.start("second");
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    let permits = world.events(job).await.into_iter().filter_map(|event| match event {
        Event::ToolInvocationStarted(started) => Some(started.permit),
        _ => None,
    });
    assert_eq!(permits.collect::<Vec<_>>(), [1]);
    assert_eq!(world.tools.calls_of("pay").iter().map(|call| call.fence.epoch).collect::<Vec<_>>(), [2]);
}

/// Its end is asked for while the doubt is being written: no tool is asked about a call that the end leaves open.
#[tokio::test(start_paused = true)]
async fn no_question_is_put_once_the_end_of_a_job_is_known() {
    let world = World::new();
    world.put(&crate::doubt::agent("[{ reconcile: look }, human]")).await;
    world.tools.next("pay", [Act::Say(unknown("reset"))]);
    let slow = Fault::Delay(Span::from_secs(3));
    let process = world.start_behind("w", FaultPlan::none().script(Op::Commit(Purpose::Doubt), [Some(slow)]));
    let job = world.submit("a", json!({})).await;
    while process.store.happened(FaultKind::Delay) == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Requested);
    assert_eq!(world.done(job).await.status, JobStatus::Cancelled);
    assert_eq!((world.tools.count("pay"), world.tools.count("look")), (1, 0));
    assert_eq!(world.rt.store.in_doubt(10).await.unwrap().len(), 1);
}
