//! Holding a job still: from every state, with what arrives meanwhile.

use aetheris_core::event::{Event, Failure, PauseReason};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::state::Ending;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::ops::{Cancelled, Held, PauseAnswer, ResumeAnswer, SignalAnswer};
use aetheris_runtime::{OpError, ToolOutcome};
use aetheris_store::{JobFilter, Scope};
use serde_json::json;
use tokio::time::Instant;

use crate::world::{Act, World, done, happened, hold, unknown};

const AGENT: &str = "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  pay: { kind: function, function: f, timeout: 60s, on_in_doubt: human }\n  look: { kind: function, function: f, effect: pure, timeout: 60s }\nplan:\n  nodes:\n    - { id: n, kind: tool, tool: pay, when: \"message.pay\" }\n    - { id: m, kind: tool, tool: look, when: \"not message.pay\" }\n    - { id: last, kind: tool, tool: look, needs: [n, m] }\n";

const WAIT: &str = "agent: a\nversion: \"1\"\nplanner: static\ntools:\n  t: { kind: function, function: f }\nplan:\n  nodes:\n    - { id: w, kind: wait, wait_type: human, correlation_key: k, park: trueDEADLINE }\n    - { id: last, kind: tool, tool: t, needs: [w], input: \"{{ nodes.w.output }}\" }\n";

fn wait(deadline: &str) -> String {
    WAIT.replace("DEADLINE", deadline)
}

/// Long enough for every sweep, poll and lease.
async fn a_while() {
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn a_pending_job_is_held_until_it_is_resumed() {
    let world = World::new();
    world.put(AGENT).await;
    let job = world.submit("a", json!({ "pay": true })).await;
    assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Now);
    assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Already);
    let _process = world.start("w");
    a_while().await;
    let state = world.state(job).await;
    assert_eq!((state.status, world.tools.count("pay")), (JobStatus::Paused, 0));
    assert_eq!(state.paused.map(|paused| paused.reason), Some(PauseReason::Operator));
    assert_eq!(world.rt.resume(job).await.unwrap(), ResumeAnswer::Now(JobStatus::Pending));
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert!(matches!(world.rt.pause(job).await, Err(OpError::JobFinished { .. })));
    assert!(matches!(world.rt.resume(job).await, Err(OpError::JobFinished { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_pause_waits_for_the_call_that_has_left_and_records_its_outcome() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("pay", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "pay": true })).await;
    reached.notified().await;
    assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Requested);
    assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Requested);
    // Its bodies are ending: that cannot be taken back.
    assert!(matches!(world.rt.resume(job).await, Err(OpError::StateConflict(_))));
    release.notify_one();
    let state = world.until(job, &[JobStatus::Paused]).await;
    assert_eq!((state.step_status(&"n".into()), state.owner), (StepStatus::Completed, None));
    a_while().await;
    assert_eq!((world.tools.count("pay"), world.tools.count("look")), (1, 0));
    world.rt.resume(job).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!((world.tools.count("pay"), world.tools.count("look")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pause_drops_a_pure_call_which_runs_again() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, _release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "pay": false })).await;
    reached.notified().await;
    world.rt.pause(job).await.unwrap();
    world.until(job, &[JobStatus::Paused]).await;
    world.rt.resume(job).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(world.tools.count("look"), 3);
}

/// The request reaches the run with the answer to its heartbeat, where no hint can: another process wrote it.
/// The start of the step was to be shown while its body ran, and the pause came before it: the body counts for nothing.
#[tokio::test(start_paused = true)]
async fn what_a_body_brings_whose_start_could_not_be_written_counts_for_nothing() {
    let world = World::new();
    // Nothing but the start is unwritten when the body begins.
    world.put("agent: a\nversion: \"1\"\nplanner: static\ntools:\n  look: { kind: function, function: f, effect: pure }\nplan:\n  nodes:\n    - { id: m, kind: tool, tool: look }\n").await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    // By another process: the run hears of it when it writes the start, and not before.
    assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Requested);
    tokio::time::sleep(limits::START_SHOWN_AFTER.to_std() * 2).await;
    release.notify_one();
    let state = world.until(job, &[JobStatus::Paused, JobStatus::Failed]).await;
    assert_eq!((state.status, state.step_status(&"m".into())), (JobStatus::Paused, StepStatus::Pending));
    world.rt.resume(job).await.unwrap();
    assert_eq!((world.done(job).await.status, world.tools.count("look")), (JobStatus::Completed, 2));
}

#[tokio::test(start_paused = true)]
async fn a_holder_elsewhere_hears_of_a_pause_with_its_heartbeat() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, _release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "pay": false })).await;
    reached.notified().await;
    let asked = world.state(job).await.last_at;
    // `world.rt` is a process of its own: its wake-ups are not those of the worker.
    world.rt.pause(job).await.unwrap();
    let state = world.until(job, &[JobStatus::Paused]).await;
    assert!(state.last_at.since(asked) < Span::from_secs(25), "{:?}", state.last_at.since(asked));
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_worker_died_is_paused_by_whoever_takes_it_back() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, _release) = hold(done(json!(1)));
    world.tools.next("pay", [act]);
    let first = world.start("first");
    let job = world.submit("a", json!({ "pay": true })).await;
    reached.notified().await;
    world.rt.pause(job).await.unwrap();
    first.kill();
    let _second = world.start("second");
    let state = world.until(job, &[JobStatus::Paused]).await;
    assert_eq!((state.fence.epoch, state.reclaims), (1, 0));
    a_while().await;
    assert_eq!(world.tools.count("pay"), 1);
    // Its call is in doubt, and not made again.
    assert_eq!(world.rt.store.in_doubt(9).await.unwrap().len(), 1);
    world.rt.resume(job).await.unwrap();
    world.until(job, &[JobStatus::Parked]).await;
    assert_eq!((world.tools.count("pay"), world.rt.store.in_doubt(9).await.unwrap().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_parked_job_goes_back_to_its_wait() {
    let world = World::new();
    world.put(&wait("")).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    world.rt.pause(job).await.unwrap();
    assert_eq!(world.rt.resume(job).await.unwrap(), ResumeAnswer::Now(JobStatus::Parked));
    assert_eq!(world.rt.resume(job).await.unwrap(), ResumeAnswer::Already(JobStatus::Parked));
    world.signal(job, "k", json!(1)).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// Whoever pauses a job that a restore holds wants it still when the others are let go.
#[tokio::test(start_paused = true)]
async fn a_pause_takes_over_what_a_restore_holds() {
    for file in [AGENT.to_owned(), wait("")] {
        let world = World::new();
        world.put(&file).await;
        let process = world.start("w");
        if file == AGENT {
            process.kill();
        }
        let job = world.submit("a", json!({ "pay": false })).await;
        let status = if file == AGENT { JobStatus::Pending } else { JobStatus::Parked };
        world.until(job, &[status]).await;
        let reason = async || world.state(job).await.paused.map(|paused| paused.reason);
        world.rt.hold_restored(job).await.unwrap();
        assert_eq!(reason().await, Some(PauseReason::Restored));
        assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Now);
        assert_eq!(reason().await, Some(PauseReason::Operator));
        assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Already);
        world.rt.hold_restored(job).await.unwrap();
        assert_eq!((reason().await, world.state(job).await.status), (Some(PauseReason::Operator), JobStatus::Paused));
        assert_eq!(world.rt.resume(job).await.unwrap(), ResumeAnswer::Now(status));
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_comes_while_a_job_is_paused_counts() {
    let world = World::new();
    world.put(&wait("")).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    world.rt.pause(job).await.unwrap();
    assert_eq!(world.signal(job, "k", json!("yes")).await.unwrap(), SignalAnswer::Delivered);
    let again = SignalAnswer::AlreadyDelivered { payload_matches: true };
    assert_eq!(world.signal(job, "k", json!("yes")).await.unwrap(), again);
    a_while().await;
    assert_eq!((world.state(job).await.status, world.tools.count("t")), (JobStatus::Paused, 0));
    assert_eq!(world.rt.resume(job).await.unwrap(), ResumeAnswer::Now(JobStatus::Pending));
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(world.result(job).await, json!("yes"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_while_its_job_is_paused_is_over() {
    let world = World::new();
    world.put(&wait(", deadline: 30s, on_deadline: { continue_with: late }")).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    world.rt.pause(job).await.unwrap();
    a_while().await;
    let state = world.state(job).await;
    assert_eq!((state.status, state.blocks.oldest()), (JobStatus::Paused, None));
    assert!(matches!(world.signal(job, "k", json!(1)).await, Err(OpError::WaitOver(_))));
    world.rt.resume(job).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(world.result(job).await, json!("late"));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_paused_job_and_so_does_a_cancel() {
    let world = World::new();
    world.put(&wait("").replace("plan:", "deadline: 40s\nplan:")).await;
    let _process = world.start("w");
    let (late, unwanted) = (world.submit("a", json!({})).await, world.submit("a", json!({})).await);
    for job in [late, unwanted] {
        world.until(job, &[JobStatus::Parked]).await;
        world.rt.pause(job).await.unwrap();
    }
    assert_eq!(world.rt.cancel(unwanted).await.unwrap(), Cancelled::Now);
    assert_eq!(world.done(unwanted).await.status, JobStatus::Cancelled);
    assert_eq!(world.done(late).await.status, JobStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_outranks_a_pause_that_was_asked_for() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("pay", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "pay": true })).await;
    reached.notified().await;
    world.rt.pause(job).await.unwrap();
    assert_eq!(world.rt.cancel(job).await.unwrap(), Cancelled::Requested);
    assert!(matches!(world.rt.pause(job).await, Err(OpError::StateConflict(_))));
    release.notify_one();
    assert_eq!(world.done(job).await.status, JobStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_outranks_a_pause_that_was_asked_for() {
    let world = World::new();
    world.put(&format!("deadline: 5s\n{AGENT}")).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("pay", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "pay": true })).await;
    reached.notified().await;
    assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Requested);
    tokio::time::sleep(std::time::Duration::from_secs(8)).await;
    release.notify_one();
    let Some(Ending::Failed { error, .. }) = world.done(job).await.ending else { panic!() };
    assert_eq!(error.code, "deadline_exceeded");
}

#[tokio::test(start_paused = true)]
async fn a_doubt_is_answered_while_its_job_is_paused() {
    let world = World::new();
    world.put(AGENT).await;
    world.tools.next("pay", [crate::world::Act::Say(unknown("reset"))]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "pay": true })).await;
    world.until(job, &[JobStatus::Parked]).await;
    world.rt.pause(job).await.unwrap();
    let doubt = world.rt.store.in_doubt(9).await.unwrap().remove(0);
    let answer = happened(1, Json::new(json!({ "id": 7 })));
    world.rt.resolve(job, doubt.key, answer).await.unwrap();
    a_while().await;
    let state = world.state(job).await;
    assert_eq!((state.status, state.blocks.oldest(), world.tools.count("look")), (JobStatus::Paused, None, 0));
    world.rt.resume(job).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(world.tools.count("pay"), 1);
}

/// A restore finds a request that a worker had not heard of yet: the pause is its operator's, as where the worker dies.
#[tokio::test(start_paused = true)]
async fn a_pause_that_was_asked_for_before_a_restore_is_its_operators() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, _release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let process = world.start("w");
    let job = world.submit("a", json!({ "pay": false })).await;
    reached.notified().await;
    assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Requested);
    process.kill();
    assert_eq!(world.rt.hold_restored(job).await.unwrap(), Held::AsAsked);
    assert_eq!(world.state(job).await.paused.map(|paused| paused.reason), Some(PauseReason::Operator));
    assert_eq!(world.rt.hold_restored(job).await.unwrap(), Held::Already);
}

/// Nobody runs a job that is held: what its lost call came to is listed and answered while it is, whoever holds it.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_lost_is_answered_while_its_job_is_held() {
    for way in ["asked for first", "pending again", "given up by its worker", "restored"] {
        let world = World::new();
        world.put(AGENT).await;
        let (act, reached, _release) = hold(done(json!(1)));
        world.tools.next("pay", [act]);
        let first = world.start("first");
        let job = world.submit("a", json!({ "pay": true })).await;
        reached.notified().await;
        let fence = world.state(job).await.fence;
        let holder = world.rt.store.job(Scope::System, job).await.unwrap().unwrap().holder.unwrap().instance;
        let dead = aetheris_runtime::ops::Proof::Dead(holder);
        match way {
            "asked for first" => {
                world.rt.pause(job).await.unwrap();
                first.kill();
                world.rt.reclaim(job, fence, dead).await.unwrap();
            }
            "pending again" => {
                first.kill();
                world.rt.reclaim(job, fence, dead).await.unwrap();
                assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Now);
            }
            "given up by its worker" => {
                world.rt.pause(job).await.unwrap();
                first.stop.drain.cancel();
                first.stop.abandon.cancel();
            }
            _ => {
                first.kill();
                world.rt.hold_restored(job).await.unwrap();
            }
        }
        world.until(job, &[JobStatus::Paused]).await;
        let listed = world.rt.store.in_doubt(9).await.unwrap();
        assert_eq!(listed.len(), 1, "{way}");
        let answer = happened(1, Json::new(json!({ "id": 7 })));
        world.rt.resolve(job, listed[0].key, answer).await.unwrap();
        assert_eq!(world.state(job).await.status, JobStatus::Paused, "{way}");
        let _second = world.start("second");
        world.rt.resume(job).await.unwrap();
        assert_eq!(world.done(job).await.status, JobStatus::Completed, "{way}");
        assert_eq!(world.tools.count("pay"), 1, "{way}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_job_is_listed_and_its_history_says_when_and_why() {
    let world = World::new();
    world.put(&wait("")).await;
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    world.until(job, &[JobStatus::Parked]).await;
    world.rt.pause(job).await.unwrap();
    let since = world.state(job).await.last_at;
    let filter = JobFilter { limit: 9, statuses: vec![JobStatus::Paused], ..JobFilter::default() };
    let page = world.rt.store.jobs(filter).await.unwrap();
    assert_eq!((page.jobs.len(), page.jobs[0].paused), (1, Some((PauseReason::Operator, since))));
    world.rt.resume(job).await.unwrap();
    world.signal(job, "k", json!(1)).await.unwrap();
    world.done(job).await;
    let told = world.events(job).await;
    assert!(told.iter().any(|event| matches!(event, Event::JobPaused(_))));
    assert!(told.iter().any(|event| matches!(event, Event::JobResumed(_))));
}

/// A try that failed while its job was being held is tried again when its back-off is over: until then the job is
/// pending, and nobody's slot is taken.
#[tokio::test(start_paused = true)]
async fn a_long_back_off_that_a_pause_came_upon_holds_no_slot() {
    let world = World::new();
    let retry = "retry: { max_attempts: 2, backoff: 1h, max_backoff: 1h, jitter: none }\n";
    world.put(&format!("{retry}{AGENT}")).await;
    let busy = Failure::new("busy", "come back later");
    let (act, reached, release) = hold(ToolOutcome::RefusedRetryable { error: busy, retry_after: None });
    world.tools.next("pay", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!({ "pay": true })).await;
    reached.notified().await;
    world.rt.pause(job).await.unwrap();
    release.notify_one();
    let held = world.until(job, &[JobStatus::Paused]).await;
    let due = held.steps[&"n".into()].retry_at.unwrap();
    assert_eq!(held.step_status(&"n".into()), StepStatus::Retrying);
    world.rt.resume(job).await.unwrap();
    a_while().await;
    let waits = world.state(job).await;
    assert_eq!((waits.status, waits.owner.is_none()), (JobStatus::Pending, true));
    let early = |moment: aetheris_core::time::Timestamp| due.since(moment);
    assert!(waits.not_before.is_some_and(|moment| early(moment) < Span::from_secs(1)), "{:?}", waits.not_before);
    let end = world.done(job).await;
    assert_eq!((end.status, world.tools.count("pay")), (JobStatus::Completed, 2));
    assert!(early(end.last_at) == Span::ZERO, "the second try was over at {} and due at {due}", end.last_at);
}

/// Nothing but its own process would tell the run before its heartbeat.
#[tokio::test(start_paused = true)]
async fn a_holder_in_the_same_process_hears_of_a_pause_at_once() {
    let world = World::new();
    world.put(AGENT).await;
    let (act, reached, _release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let process = world.start("w");
    let job = world.submit("a", json!({ "pay": false })).await;
    reached.notified().await;
    world.start_shown(job, "m").await;
    let asked = Instant::now();
    assert_eq!(process.rt.pause(job).await.unwrap(), PauseAnswer::Requested);
    world.until(job, &[JobStatus::Paused]).await;
    assert!(asked.elapsed() < Span::from_secs(1).to_std(), "{:?}", asked.elapsed());
}

/// It is paused as was asked, and fails when a holder is lost after it was resumed.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_to_be_paused_does_not_fail_when_its_last_holder_is_lost() {
    let world = World::new();
    world.put(AGENT).await;
    let job = world.submit("a", json!({ "pay": false })).await;
    let lose = async |name: &str, pause: bool| {
        let (act, reached, _release) = hold(done(json!(1)));
        world.tools.next("look", [act]);
        let process = world.start(name);
        reached.notified().await;
        if pause {
            assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Requested);
        }
        process.kill();
    };
    let most = world.rt.settings.max_attempts;
    for lost in 0..most - 1 {
        assert_eq!(world.state(job).await.reclaims, lost.saturating_sub(1));
        lose(&format!("w{lost}"), false).await;
    }
    lose("paused", true).await;
    assert_eq!(world.state(job).await.reclaims, most - 1);
    let sweeps = world.start("sweeps");
    let state = world.until(job, &[JobStatus::Paused, JobStatus::Failed]).await;
    assert_eq!((state.status, state.ending), (JobStatus::Paused, None));
    sweeps.kill();
    world.rt.resume(job).await.unwrap();
    lose("resumed", false).await;
    let _last = world.start("last");
    let Some(Ending::Failed { error, .. }) = world.done(job).await.ending else { panic!() };
    assert_eq!(error.code, "attempts_exhausted");
}

/// The run hears of it only when it has its answer: the job is held still then, and does not fail, and begins no wait.
#[tokio::test(start_paused = true)]
async fn a_pause_that_comes_while_a_tool_is_asked_holds_the_doubt() {
    let world = World::new();
    world.put(&crate::doubt::agent("[{ reconcile: look, settle: 5s }, human]")).await;
    world.tools.next("pay", [Act::Say(unknown("reset"))]);
    let (no, asked, answer) = hold(done(json!({ "outcome": "did_not_happen" })));
    let yes = Act::Say(done(json!({ "outcome": "happened", "result": 7 })));
    world.tools.next("look", [no, yes]);
    let _process = world.start("w");
    let job = world.submit("a", json!({})).await;
    asked.notified().await;
    // In another process, and before the next heartbeat.
    assert_eq!(world.rt.pause(job).await.unwrap(), PauseAnswer::Requested);
    answer.notify_one();
    let state = world.until(job, &[JobStatus::Paused, JobStatus::Failed, JobStatus::Waiting]).await;
    assert_eq!((state.status, world.tools.count("look")), (JobStatus::Paused, 1));
    assert!(!world.kinds(job).await.contains(&"job_waiting"));
    world.rt.resume(job).await.unwrap();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!((world.result(job).await, world.tools.count("pay")), (json!(7), 1));
}
