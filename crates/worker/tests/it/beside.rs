//! What comes beside a write that is slow, or beside the end of another step of its set.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::Failure;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerRefusal;
use aetheris_core::state::Ending;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::ToolOutcome;
use aetheris_runtime::ops::Cancelled;
use aetheris_store::faulty::{Fault, FaultPlan, Op};
use aetheris_store::{LedgerWrite, Purpose, Refusal, Scope};
use serde_json::json;
use tokio::time::Instant;

use crate::parallel::{agent, held, settle};
use crate::refused::Refuses;
use crate::world::{Act, Process, World, did_not_happen, done, hold, unknown};

const MOMENT: Fault = Fault::Slow(Span::from_micros(1));

const fn slow(seconds: u64) -> Fault {
    Fault::Delay(Span::from_secs(seconds))
}

/// `a` is a function and `b` a call under a permit, whose outcome comes while the write of what `a` gave takes its time.
async fn answered_while_writing(writes: [Fault; 2]) -> (World, Process, JobId) {
    let world = World::new();
    let file = agent(2, 2, "pure")
        .replace("b: { kind: function, function: f, effect: pure", "b: { kind: function, function: f");
    world.put(&file).await;
    let (act, reached, release) = hold(done(json!(7)));
    world.tools.next("b", [act]);
    let faults = FaultPlan::none().script(Op::Commit(Purpose::Record), writes.map(Some));
    let process = world.start_behind("w", faults);
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    release.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    (world, process, job)
}

/// How many effects of a job are known.
async fn effects(world: &World, job: JobId) -> usize {
    world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().effects.len()
}

/// The job is cancelled meanwhile: the write is refused or, where its answer alone was slow, made already.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_comes_beside_a_slow_write_and_a_cancel_is_recorded() {
    for write in [slow(5), Fault::Slow(Span::from_secs(5))] {
        let (world, process, job) = answered_while_writing([write, MOMENT]).await;
        assert_eq!(process.rt.cancel(job).await.unwrap(), Cancelled::Requested);
        let took = Instant::now();
        assert_eq!(world.done(job).await.status, JobStatus::Cancelled);
        assert!(took.elapsed() < Duration::from_secs(10), "its run has ended it: {:?}", took.elapsed());
        assert_eq!((effects(&world, job).await, world.tools.count("b")), (1, 1));
    }
}

/// The bodies are dropped, and a unit is on its way whose answer is slow: it is awaited before the job is read again.
#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_while_the_answer_of_a_write_is_slow_ends_the_job() {
    let world = World::new();
    world.put(&agent(2, 2, "pure")).await;
    let (act, reached, _never) = hold(done(json!(7)));
    world.tools.next("b", [act]);
    let faults = FaultPlan::none().script(Op::Commit(Purpose::Record), [Some(Fault::Slow(Span::from_secs(5)))]);
    let process = world.start_behind("w", faults);
    let job = world.submit("a", json!({})).await;
    reached.notified().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(process.rt.cancel(job).await.unwrap(), Cancelled::Requested);
    let asked = Instant::now();
    assert_eq!(world.done(job).await.status, JobStatus::Cancelled);
    assert!(asked.elapsed() < Duration::from_secs(10), "its run has ended it: {:?}", asked.elapsed());
}

/// A function of the process begins beside a write, however long that takes.
#[tokio::test(start_paused = true)]
async fn a_slow_write_holds_up_no_function() {
    let world = World::new();
    world.put(&agent(2, 4, "pure")).await;
    let mut releases = Vec::new();
    for name in ["b", "c"] {
        let (act, _, release) = hold(done(json!(name)));
        world.tools.next(name, [act]);
        releases.push(release);
    }
    let _process =
        world.start_behind("w", FaultPlan::none().script(Op::Commit(Purpose::Record), [Some(slow(5)), Some(slow(5))]));
    let job = world.submit("a", json!({})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((world.tools.count("c"), world.tools.count("d")), (1, 0));
    releases[0].notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.tools.count("d"), 1);
    releases[1].notify_one();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// Another run has the job before its own write arrives.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_comes_beside_a_slow_write_outlives_its_run() {
    let (world, process, job) = answered_while_writing([slow(5), slow(90)]).await;
    process.freeze_keeper();
    let _second = world.start("second");
    world.until(job, &[JobStatus::Parked]).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!((effects(&world, job).await, world.tools.count("b")), (1, 1));
}

/// A doubt is answered while the delay of the step beside it is written: its step goes on.
#[tokio::test(start_paused = true)]
async fn a_doubt_that_is_answered_beside_a_slow_write_is_not_waited_for() {
    let world = World::new();
    let file = agent(3, 3, "pure").replace("timeout: 60s", "timeout: 4h");
    let call = "a: { kind: function, function: f, effect: pure, timeout: 4h";
    world.put(&file.replace(call, "a: { kind: function, function: f, timeout: 60s")).await;
    world.tools.next("a", [Act::Say(unknown("reset"))]);
    let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
    let (act, _, fail) = hold(busy);
    world.tools.next("b", [act]);
    let (process, job, releases) = held(&world, &["c"], |_| done(json!("c"))).await;
    settle().await;
    let state = world.state(job).await;
    assert_eq!(state.node_status(&"a".into()), StepStatus::InDoubt);
    tokio::time::sleep(Duration::from_secs(600)).await;
    process.store.replan(FaultPlan::none().script(Op::Commit(Purpose::Record), [Some(slow(5))]));
    fail.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let key = state.steps[&"a".into()].invocation.as_deref().unwrap().key;
    world.rt.resolve(job, key, did_not_happen(1)).await.unwrap();
    // The answer ends its try: its own delay is all that is left to wait for.
    tokio::time::sleep(Duration::from_secs(2 * 3_600)).await;
    assert_eq!(world.tools.count("a"), 2);
    releases[0].notify_one();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

/// Three steps end in the same moment, in each order: one fails, one gives its result, and the third would begin its next
/// try.
#[tokio::test(start_paused = true)]
async fn no_try_begins_in_the_moment_in_which_a_step_beside_it_fails() {
    let never = || ToolOutcome::RefusedPermanent(Failure::new("no", "never"));
    for (fails, gives) in [("a", "b"), ("b", "a")] {
        let world = World::new();
        world.put(&agent(3, 3, "pure").replace("1h", "400ms")).await;
        let after = |outcome| Act::After(Duration::from_millis(400), outcome);
        world.tools.next(fails, [after(never())]);
        world.tools.next(gives, [after(done(json!(1)))]);
        let busy = ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None };
        world.tools.next("c", [Act::Say(busy)]);
        let _process = world.start("w");
        let job = world.submit("a", json!({})).await;
        let state = world.done(job).await;
        let Some(Ending::Failed { node, .. }) = &state.ending else { panic!("{:?}", state.ending) };
        assert_eq!(node.as_ref().map(ToString::to_string).as_deref(), Some(fails));
        assert_eq!(state.node_status(&gives.into()), StepStatus::Completed, "{fails} fails");
        assert_eq!(world.tools.count("c"), 1, "{fails} fails");
    }
}

/// The store alone knows that the call can still arrive: the tool that looks is asked again at the moment that it has named.
#[tokio::test(start_paused = true)]
async fn a_tool_is_not_asked_again_before_the_moment_that_the_store_has_named() {
    let world = World::new();
    let ask = "a: { kind: function, function: f, on_in_doubt: [{ reconcile: look }, fail]";
    let file = agent(2, 2, "at_most_once").replace("a: { kind: function, function: f", ask);
    world.put(&file.replace("  end:", "  look: { kind: function, function: f, effect: pure }\n  end:")).await;
    world.tools.next("a", [Act::Say(unknown("reset"))]);
    let no = || Act::Say(done(json!({ "outcome": "did_not_happen" })));
    world.tools.next("look", std::iter::repeat_with(no).take(100));
    let accepted_from = world.rt.store.status().await.unwrap().now.after(Span::from_secs(7_200));
    let until = Instant::now() + Duration::from_secs(7_200);
    let store = Refuses::of(&world, move |unit| {
        let answer = unit.ledger.iter().find(|write| matches!(write, LedgerWrite::Disprove(_)));
        let key = answer.filter(|_| Instant::now() < until)?.key();
        Some(Refusal::Ledger(LedgerRefusal::CanStillArrive { key, accepted_from }))
    });
    let _process = world.start_over("w", Arc::clone(&store) as _);
    let job = world.submit("a", json!({})).await;
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    assert_eq!(store.times(), 1, "how often it was refused");
    let asked = world.tools.count("look");
    assert!((2..=4).contains(&asked), "{asked} questions");
    assert_eq!(world.tools.count("a"), 2);
}
