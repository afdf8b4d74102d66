//! A process in trouble, or at its end: nothing is tried for ever, and what fails holds up nobody else.

use std::time::Duration;

use aetheris_core::event::{Event, Failure, RequeueReason};
use aetheris_core::id::{AttemptId, EventId, InstanceId, WorkerId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::state::Ending;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::ToolOutcome;
use aetheris_runtime::draft::RESOLVE_TRIES_MAX;
use aetheris_runtime::ops::{PauseAnswer, Signal, SignalAnswer};
use aetheris_runtime::ports::{OUT_OF_FILES, OWN_ADDRESSES_UNKNOWN};
use aetheris_runtime::run::{Lease, RunEnd, run_job};
use aetheris_store::faulty::{Fault, FaultKind, FaultPlan, Op};
use aetheris_store::{ClaimIds, ClaimRequest, Claimed, Purpose, Scope};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::world::{TTL, World, done, hold};

const LOOK: &str = "agent: a\nversion: \"1\"\nplanner: static\nmodel: scripted/echo\ntools:\n  look: { kind: function, function: f, effect: pure, timeout: 60s }\nplan:\n  nodes:\n    - { id: n, kind: tool, tool: look }\n    - { id: m, kind: tool, tool: look, needs: [n] }\n";
const PAY: &str = "agent: a\nversion: \"1\"\nplanner: static\nmodel: scripted/echo\ntools:\n  pay: { kind: function, function: f, timeout: 60s }\nplan:\n  nodes:\n    - { id: n, kind: tool, tool: pay, retry: { max_attempts: 1 } }\n";
const SLEEP: &str =
    "agent: s\nversion: \"1\"\nplanner: static\nplan:\n  nodes:\n    - { id: n, kind: sleep, duration: 5s }\n";

#[tokio::test(start_paused = true)]
async fn a_unit_that_can_never_be_written_fails_its_job_and_no_other() {
    let world = World::new();
    world.put(LOOK).await;
    // The first result; the job's end, in a unit of its own, is another one.
    let faults = FaultPlan::none().script(Op::Commit(Purpose::Record), [Some(Fault::Impossible)]);
    let process = world.start_behind("w", faults);
    let first = world.submit("a", json!(1)).await;
    let state = world.done(first).await;
    let Some(Ending::Failed { error, .. }) = &state.ending else { panic!("{:?}", state.ending) };
    assert_eq!((error.code.as_str(), process.store.happened(FaultKind::Impossible)), ("write_impossible", 1));
    let second = world.submit("a", json!(1)).await;
    assert_eq!(world.done(second).await.status, JobStatus::Completed);
}

/// It may have been written: the next run looks, and does nothing twice. This one tries nothing more on such a store.
#[tokio::test(start_paused = true)]
async fn a_run_whose_store_is_damaged_leaves_it_to_the_next_one_to_see_what_was_written() {
    let world = World::new();
    // What leaves the process waits for what is before it.
    world
        .put(&LOOK.replace("kind: function, function: f", "kind: http, method: GET, url: \"http://look.test/\""))
        .await;
    let faults = FaultPlan::none().script(Op::Commit(Purpose::Record), [Some(Fault::Damaged)]);
    // Nor does the question what became of it have an answer.
    let asked = usize::try_from(RESOLVE_TRIES_MAX).unwrap();
    let faults = faults.script(Op::ResolveUnknown, vec![Some(Fault::Damaged); asked]);
    let process = world.start_behind("w", faults);
    let job = world.submit("a", json!(1)).await;
    let state = world.done(job).await;
    assert_eq!(process.store.happened(FaultKind::Damaged), 1 + u64::from(RESOLVE_TRIES_MAX));
    assert_eq!((state.status, state.fence.epoch), (JobStatus::Completed, 2));
    assert_eq!(world.tools.calls_of("look").len(), 2, "each step once");
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_where_nothing_can_ever_be_written() {
    let world = World::new();
    world.put(LOOK).await;
    let always = |purpose| (Op::Commit(purpose), vec![Some(Fault::Impossible); 1_000]);
    let faults = [Purpose::Record, Purpose::Finish].map(always);
    let faults = faults.into_iter().fold(FaultPlan::none(), |plan, (op, faults)| plan.script(op, faults));
    let process = world.start_behind("w", faults);
    let job = world.submit("a", json!(1)).await;
    // Each claim fails at its first write and once more at saying so; the third reclaim ends the job.
    let state = world.done(job).await;
    let Some(Ending::Failed { error, .. }) = &state.ending else { panic!("{:?}", state.ending) };
    assert_eq!((error.code.as_str(), process.store.happened(FaultKind::Impossible)), ("attempts_exhausted", 6));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_to_stop_does_not_wait_for_a_store_for_ever() {
    let world = World::new();
    world.put(LOOK).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let process = world.start("w");
    let job = world.submit("a", json!(1)).await;
    reached.notified().await;
    let never = vec![Some(Fault::Before); 100_000];
    let gone = [Purpose::Record, Purpose::Requeue, Purpose::Finish].into_iter();
    process.store.replan(gone.fold(FaultPlan::none(), |plan, purpose| plan.script(Op::Commit(purpose), never.clone())));
    process.stop.drain.cancel();
    release.notify_one();
    process.worker.await.unwrap();
    let tries = process.store.happened(FaultKind::Before);
    // Once, and as often again as is allowed.
    assert_eq!(tries, 1 + u64::from(limits::DRAINING_WRITES_MAX));
    // The lease is left to expire, and the job goes on elsewhere.
    let _second = world.start("second");
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_drains_claims_nothing_that_it_gives_back() {
    let world = World::new();
    world.put(LOOK).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let (act, reached, release) = hold(done(json!(1)));
        world.tools.next("look", [act]);
        held.push((reached, release));
    }
    let process = world.start("w");
    let mut jobs = Vec::new();
    for n in 0..5 {
        jobs.push(world.submit("a", json!(n)).await);
    }
    for (reached, _) in &held {
        reached.notified().await;
    }
    // The next claim is on its way, and waits for jobs.
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    process.stop.drain.cancel();
    process.sweeps.cancel();
    process.worker.await.unwrap();
    for job in jobs {
        let events = world.events(job).await;
        let claims = events.iter().filter(|event| matches!(event, Event::JobClaimed(_))).count();
        let given_back = |event: &&Event| matches!(event, Event::JobRequeued(e) if e.reason == RequeueReason::Draining);
        assert_eq!((claims, events.iter().filter(given_back).count()), (1, 1));
        assert_eq!(world.state(job).await.status, JobStatus::Pending);
    }
}

/// A drain waits for the calls that have left, and as long as it does its leases are renewed.
#[tokio::test(start_paused = true)]
async fn a_call_that_a_drain_waits_for_keeps_its_lease() {
    let world = World::new();
    let tools = "tools:\n  t: { kind: function, function: f, effect: at_most_once, timeout: 500s }\n";
    world.put(&format!("agent: a\n{tools}plan:\n  nodes:\n    - {{ id: n, kind: tool, tool: t }}\n")).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("t", [act]);
    let first = world.start("first");
    let job = world.submit("a", json!(1)).await;
    reached.notified().await;
    let _second = world.start("second");
    first.stop.drain.cancel();
    tokio::time::sleep(std::time::Duration::from_secs(300)).await;
    assert_eq!(world.state(job).await.status, JobStatus::Running);
    release.notify_one();
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    let lost = |event: &Event| matches!(event, Event::JobRequeued(e) if e.reason != RequeueReason::Draining);
    assert_eq!((world.events(job).await.iter().filter(|event| lost(event)).count(), world.tools.count("t")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn timers_of_jobs_that_cannot_be_read_hold_up_no_other() {
    let world = World::new();
    world.put(SLEEP).await;
    let process = world.start("w");
    let mut bad = Vec::new();
    for n in 0..limits::SWEEP_ROWS_MAX + 1 {
        bad.push(world.submit("s", json!(n)).await);
    }
    for job in &bad {
        world.until(*job, &[JobStatus::Waiting]).await;
    }
    process.store.damage(bad.iter().copied());
    // Its timer is the last of all.
    let good = world.submit("s", json!("good")).await;
    assert_eq!(world.done(good).await.status, JobStatus::Completed);
    for job in bad {
        assert_eq!(world.state(job).await.status, JobStatus::Waiting);
    }
}

#[tokio::test(start_paused = true)]
async fn leases_of_jobs_that_cannot_be_read_hold_up_no_other() {
    let world = World::new();
    world.put(LOOK).await;
    let many = limits::SWEEP_ROWS_MAX + 1;
    let mut bad = Vec::new();
    for n in 0..=many {
        bad.push(world.submit("a", json!(n)).await);
    }
    // All are claimed by a process that is gone at once.
    let instance = world.claim_all().await;
    let good = bad.pop().unwrap();
    let process = world.start("w");
    process.store.damage(bad.iter().copied());
    let rt = process.rt.clone();
    assert!(aetheris_scheduler::reclaim_instance(&rt, instance).await.is_err());
    assert_eq!(world.until(good, &[JobStatus::Completed]).await.status, JobStatus::Completed);
    // The same by the end of their leases: the good one is among the last of the list.
    let late = world.submit("a", json!("late")).await;
    process.stop.drain.cancel();
    process.worker.await.unwrap();
    world.claim_all().await;
    tokio::time::sleep(TTL.to_std()).await;
    assert_eq!(
        aetheris_scheduler::sweep_expired(&rt).await.unwrap(),
        usize::from(world.state(late).await.owner.is_none())
    );
    assert_eq!(world.state(late).await.status, JobStatus::Pending);
}

/// A timer that cannot be fired is tried again in a second; one that is due before is fired at its moment.
#[tokio::test(start_paused = true)]
async fn a_timer_that_cannot_be_fired_makes_no_other_late() {
    let world = World::new();
    for (name, length) in [("bad", "1s"), ("good", "1300ms")] {
        world.put(&SLEEP.replace("agent: s", &format!("agent: {name}")).replace("5s", length)).await;
    }
    let process = world.start("w");
    let (bad, good) = (world.submit("bad", json!(1)).await, world.submit("good", json!(1)).await);
    for job in [bad, good] {
        world.until(job, &[JobStatus::Waiting]).await;
    }
    process.store.damage([bad]);
    let state = world.until(good, &[JobStatus::Completed]).await;
    let slept = state.last_at.since(state.created_at);
    assert!(slept < Span::from_millis(1_700), "{slept}");
}

/// The store is an hour about one of them.
#[tokio::test(start_paused = true)]
async fn a_slow_timer_makes_no_other_late() {
    let world = World::new();
    for (name, length) in [("slow", "1s"), ("good", "1300ms")] {
        world.put(&SLEEP.replace("agent: s", &format!("agent: {name}")).replace("5s", length)).await;
    }
    let hour = Span::from_secs(3_600);
    let faults = FaultPlan::none().script(Op::Commit(Purpose::Timer), [Some(Fault::Delay(hour))]);
    let _process = world.start_behind("w", faults);
    let (slow, good) = (world.submit("slow", json!(1)).await, world.submit("good", json!(1)).await);
    let state = world.until(good, &[JobStatus::Completed]).await;
    let slept = state.last_at.since(state.created_at);
    assert!(slept < Span::from_millis(1_700), "{slept}");
    // It was begun once, and ends when the store has answered.
    let state = world.done(slow).await;
    let slept = state.last_at.since(state.created_at);
    assert!(slept > hour, "{slept}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_slowly_taken_back_makes_no_other_late() {
    let world = World::new();
    world.put(LOOK).await;
    let hour = Span::from_secs(3_600);
    let faults = FaultPlan::none().script(Op::Commit(Purpose::Reclaim), [Some(Fault::Delay(hour))]);
    let mut jobs = Vec::new();
    for n in 0..2 {
        jobs.push(world.submit("a", json!(n)).await);
        world.claim_all().await;
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    }
    let _process = world.start_behind("w", faults);
    let state = world.until(jobs[1], &[JobStatus::Completed]).await;
    let took = state.last_at.since(state.created_at);
    assert!(took < Span::from_secs(39), "{took}");
    assert_eq!(world.state(jobs[0]).await.status, JobStatus::Running);
    world.done(jobs[0]).await;
}

/// Those that are left alone for a while fill the first page still.
#[tokio::test(start_paused = true)]
async fn leases_that_failed_before_hold_up_none_that_expires_later() {
    let world = World::new();
    world.put(LOOK).await;
    let mut bad = Vec::new();
    for n in 0..=limits::SWEEP_ROWS_MAX {
        bad.push(world.submit("a", json!(n)).await);
    }
    world.claim_all().await;
    let process = world.start("w");
    process.store.damage(bad.iter().copied());
    tokio::time::sleep(TTL.to_std() * 4 + std::time::Duration::from_secs(10)).await;
    process.stop.drain.cancel();
    process.worker.await.unwrap();
    let late = world.submit("a", json!("late")).await;
    world.claim_all().await;
    tokio::time::sleep(TTL.to_std() + std::time::Duration::from_secs(5)).await;
    assert_eq!(world.state(late).await.status, JobStatus::Pending);
}

#[tokio::test(start_paused = true)]
async fn what_this_process_alone_wants_for_a_call_is_nobodys_try() {
    let once = LOOK.replace("tool: look }", "tool: look, retry: { max_attempts: 1 } }");
    let own = [OUT_OF_FILES, OWN_ADDRESSES_UNKNOWN];
    for (code, (agent, tool)) in own.into_iter().flat_map(|code| [(code, (&*once, "look")), (code, (PAY, "pay"))]) {
        let none = || ToolOutcome::NotSent { error: Failure::new(code, "not now"), permanent: false };
        let world = World::new();
        // A call that never left is none of the budget's either.
        world.put(&format!("budget: {{ max_tool_calls: 2 }}\n{agent}")).await;
        world.tools.next(tool, (0..20).map(|_| crate::world::Act::Say(none())));
        let _process = world.start("w");
        let job = world.submit("a", json!(1)).await;
        let state = world.done(job).await;
        let step = &state.steps[&"n".into()];
        assert_eq!((state.status, step.status, step.tries), (JobStatus::Completed, StepStatus::Completed, 1), "{tool}");
        assert!(world.tools.count(tool) > 20);
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_step_that_takes_long_is_seen_while_it_runs_and_says_how_long_it_took() {
    let world = World::new();
    world.put(LOOK).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let _process = world.start("w");
    let job = world.submit("a", json!(1)).await;
    reached.notified().await;
    // Nothing else is written by then: the claim's first step has only begun.
    world.start_shown(job, "n").await;
    tokio::time::sleep(std::time::Duration::from_secs(7)).await;
    release.notify_one();
    let state = world.done(job).await;
    let (slow, quick) = (&state.steps[&"n".into()], &state.steps[&"m".into()]);
    let took = |event: &Event| match event {
        Event::NodeFinished(e) => e.took_us,
        _ => None,
    };
    let took: Vec<u64> = world.events(job).await.iter().filter_map(took).collect();
    assert!(took.len() == 2 && took[0] >= 7_000_000 && took[1] < 100_000, "{took:?}");
    let lasted =
        |step: &aetheris_core::state::StepState| step.finished_at.unwrap().since(step.started_at.unwrap()).micros();
    assert!(lasted(slow) >= took[0] && lasted(quick) >= took[1], "{} {}", lasted(slow), lasted(quick));
    // One that is quick costs no write of its own.
    let starts = world.kinds(job).await.iter().filter(|kind| **kind == "node_started").count();
    assert_eq!(starts, 2);
}

/// Whoever proves the death must not be told that all is done: it would forget whose jobs they are.
#[tokio::test(start_paused = true)]
async fn jobs_of_a_dead_instance_that_the_store_cannot_take_back_now_are_not_counted_as_taken() {
    let world = World::new();
    world.put(LOOK).await;
    for n in 0..3 {
        world.submit("a", json!(n)).await;
    }
    let instance = world.claim_all().await;
    let process = world.start("w");
    process.sweeps.cancel();
    let refuse = |times| FaultPlan::none().script(Op::Commit(Purpose::Reclaim), vec![Some(Fault::Before); times]);
    process.store.replan(refuse(1_000));
    let rt = process.rt.clone();
    assert!(aetheris_scheduler::reclaim_instance(&rt, instance).await.is_err());
    // One refusal of three: the second pass takes what the first has left.
    process.store.replan(refuse(1));
    assert_eq!(aetheris_scheduler::reclaim_instance(&rt, instance).await.unwrap(), 3);
}

/// One page is 256 jobs. What is left behind would be held by the dead until its leases expire.
#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_dead_instance_are_taken_back_however_many_pages_they_fill() {
    let world = World::new();
    world.put(LOOK).await;
    let jobs = 2 * limits::SWEEP_ROWS_MAX + 1;
    for n in 0..jobs {
        world.submit("a", json!(n)).await;
    }
    let instance = world.claim_all().await;
    assert_eq!(aetheris_scheduler::reclaim_instance(&world.rt, instance).await.unwrap(), jobs);
    let page = world.rt.store.jobs(aetheris_store::JobFilter { limit: 1, ..Default::default() }).await.unwrap();
    let Some(Event::JobRequeued(why)) = world.events(page.jobs[0].id).await.pop() else { panic!() };
    assert_eq!((why.reason, why.after_us), (RequeueReason::HolderDied, None));
}

/// How often a write is sent again is bounded once the worker is to stop, and by the lease alone before that.
#[tokio::test(start_paused = true)]
async fn a_write_is_sent_again_for_as_long_as_the_lease_lives() {
    let world = World::new();
    world.put(LOOK).await;
    let fails = vec![Some(Fault::Before); 2 * usize::try_from(limits::DRAINING_WRITES_MAX).unwrap()];
    let process = world.start_behind("w", FaultPlan::none().script(Op::Commit(Purpose::Record), fails));
    let job = world.submit("a", json!(1)).await;
    let state = world.done(job).await;
    assert_eq!((state.status, state.fence.epoch, world.tools.count("look")), (JobStatus::Completed, 1, 2));
    assert_eq!(process.store.happened(FaultKind::Before), 2 * u64::from(limits::DRAINING_WRITES_MAX));
}

/// A known outcome belongs to the job, also where its run gives up on the store.
#[tokio::test(start_paused = true)]
async fn a_run_that_gives_up_on_the_store_deposits_what_it_knows() {
    let world = World::new();
    world.put(PAY).await;
    let (act, reached, release) = hold(done(json!(7)));
    world.tools.next("pay", [act]);
    let process = world.start("w");
    let job = world.submit("a", json!(1)).await;
    reached.notified().await;
    let gone = [Purpose::Record, Purpose::Requeue, Purpose::Finish].into_iter();
    let never = vec![Some(Fault::Before); 1_000];
    process.store.replan(gone.fold(FaultPlan::none(), |plan, purpose| plan.script(Op::Commit(purpose), never.clone())));
    process.stop.drain.cancel();
    release.notify_one();
    process.worker.await.unwrap();
    let effects = world.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().effects;
    assert_eq!(effects.len(), 1, "the tool has answered, and nobody else knows what");
    let _second = world.start("second");
    assert_eq!((world.done(job).await.status, world.tools.count("pay")), (JobStatus::Completed, 1));
}

/// What a claim has brought may be long on its way: somebody else has the job since.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_job_has_been_claimed_again_runs_nothing() {
    let world = World::new();
    world.put(LOOK).await;
    let job = world.submit("a", json!(1)).await;
    let ids = vec![ClaimIds { attempt: AttemptId::from_u128(1), event: EventId::from_u128(1) }];
    let (instance, worker) = (InstanceId::from_u128(1), WorkerId::from("late"));
    let request = ClaimRequest { ids, instance, linger: Span::ZERO, ttl: Span::from_secs(1), worker };
    let late = world.rt.store.claim(request).await.unwrap().pop().unwrap();
    let (act, reached, _release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let _process = world.start("w");
    reached.notified().await;
    let token = CancellationToken::new;
    let lease = Lease::new(late.fence, late.sent_at + Duration::from_secs(600), token(), token());
    let end = Box::pin(run_job(&world.rt, Claimed { history: None, ..late }, &lease)).await.unwrap();
    assert_eq!((end, world.tools.count("look")), (RunEnd::Lost, 1));
    assert_eq!(world.state(job).await.fence.epoch, 2);
}

/// A claim that was long on its way brings a lease of which little is left: it began when the claim was sent.
#[tokio::test(start_paused = true)]
async fn no_body_begins_under_a_claim_that_was_answered_too_late() {
    let world = World::new();
    world.put(LOOK).await;
    let job = world.submit("a", json!(1)).await;
    let late = Some(Fault::Slow(Span::from_secs(25)));
    let _process = world.start_behind("w", FaultPlan::none().script(Op::Claim, [late]));
    assert_eq!(world.done(job).await.status, JobStatus::Completed);
    let epochs: Vec<u32> = world.tools.calls_of("look").iter().map(|call| call.fence.epoch).collect();
    assert_eq!(epochs, [2, 2]);
}

/// One renewal that fails is tried again long before the next would be due: two in a row cost no lease.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_failed_is_tried_again_before_the_next_is_due() {
    let world = World::new();
    world.put(LOOK).await;
    let (act, reached, release) = hold(done(json!(1)));
    world.tools.next("look", [act]);
    let fails = [Some(Fault::Before), Some(Fault::Before), Some(Fault::Before)];
    let _process = world.start_behind("w", FaultPlan::none().script(Op::Heartbeat, fails));
    let job = world.submit("a", json!(1)).await;
    reached.notified().await;
    tokio::time::sleep(std::time::Duration::from_secs(50)).await;
    release.notify_one();
    let state = world.done(job).await;
    assert_eq!((state.status, state.fence.epoch, world.tools.count("look")), (JobStatus::Completed, 1, 2));
}

/// A store that answers in between is asked again at once: the pauses grow only while it fails.
#[tokio::test(start_paused = true)]
async fn a_claim_that_works_ends_the_trouble_of_those_before() {
    let world = World::new();
    world.put(LOOK).await;
    let fails = || Some(Fault::Before);
    let script = [fails(), fails(), fails(), fails(), fails(), fails(), fails(), None, fails()];
    let process = world.start_behind("w", FaultPlan::none().script(Op::Claim, script));
    let first = world.submit("a", json!(1)).await;
    assert_eq!(world.done(first).await.status, JobStatus::Completed);
    let second = world.submit("a", json!(2)).await;
    let state = world.done(second).await;
    assert_eq!(process.store.happened(FaultKind::Before), 8);
    let took = state.last_at.since(state.created_at);
    assert!(took < Span::from_millis(700), "{took}");
}

/// What was written since the job was read is no reason to leave it: it is read again, and its holder is dead still.
#[tokio::test(start_paused = true)]
async fn a_job_of_a_dead_instance_that_is_paused_meanwhile_is_taken_back_all_the_same() {
    let world = World::new();
    world.put(LOOK).await;
    let job = world.submit("a", json!(1)).await;
    let instance = world.claim_all().await;
    let slow = Some(Fault::Delay(Span::from_secs(1)));
    let process = world.start_behind("w", FaultPlan::none().script(Op::Commit(Purpose::Reclaim), [slow]));
    let began = Instant::now();
    let taking = aetheris_scheduler::reclaim_instance(&process.rt, instance);
    let pausing = async {
        // The job has been read by then, and is not written yet.
        while process.store.happened(FaultKind::Delay) == 0 {
            tokio::task::yield_now().await;
        }
        world.rt.pause(job).await.unwrap()
    };
    let (taken, paused) = tokio::join!(taking, pausing);
    assert_eq!((taken.unwrap(), paused), (1, PauseAnswer::Requested));
    assert!(began.elapsed() < TTL.to_std() / 2, "{:?}", began.elapsed());
    let state = world.state(job).await;
    assert_eq!((state.status, state.owner), (JobStatus::Paused, None));
}

/// It is busy for longer than whoever waits for it is patient. That is no failure, after which it would be left alone.
#[tokio::test(start_paused = true)]
async fn the_timer_of_a_large_job_that_is_busy_fires_once_it_is_free_and_makes_no_other_late() {
    let world = World::new();
    world.put(SLEEP).await;
    let wait = "    - { id: w, kind: wait, wait_type: human, correlation_key: k, needs: [n] }";
    let large = SLEEP.replace("agent: s", "agent: large").replace("5s", "2s");
    world.put(&format!("{large}{wait}\n")).await;
    let slow = Span::from_millis(20_500);
    assert!(slow.to_std() > limits::ANSWER_PATIENCE.to_std() * 3 / 2);
    let faults = FaultPlan::none().script(Op::Commit(Purpose::Signal), [Some(Fault::Delay(slow))]);
    let process = world.start_behind("w", faults);
    let large = world.submit("large", json!("x".repeat(limits::LOOK_BYTES_MAX))).await;
    world.until(large, &[JobStatus::Waiting]).await;
    let small = world.submit("s", json!(1)).await;
    let signal = Signal { correlation_key: "k".to_owned(), payload: Json::null(), wait_type: None };
    let rt = process.rt.clone();
    let busy = tokio::spawn(async move { rt.signal(large, signal).await });
    let state = world.until(small, &[JobStatus::Completed]).await;
    let slept = state.last_at.since(state.created_at);
    assert!(slept < Span::from_millis(5_400), "{slept}");
    // Its own timer is long due.
    assert_eq!(world.state(large).await.status, JobStatus::Waiting);
    assert_eq!(busy.await.unwrap().unwrap(), SignalAnswer::Kept { payload_matches: true });
    let free = Instant::now();
    assert_eq!(world.done(large).await.status, JobStatus::Completed);
    // At once, and not when the sweep looks again.
    assert!(free.elapsed() < Span::from_millis(300).to_std(), "{:?}", free.elapsed());
}
