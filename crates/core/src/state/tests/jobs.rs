//! Events that speak of the job.

use super::*;
use crate::event::{Answer, JobCancelled, JobCompleted, JobFailed, NodeSkipped, SkipReason, TimerFired};
use crate::job::JobStatus;
use crate::limits;
use crate::state::{Blocked, Ending, Ownership, PlanRef, Timer, WaitPhase, WaitRecord};
use crate::step::StepStatus;
use crate::time::Span;

fn completed() -> JobCompleted {
    JobCompleted { answer: Answer::Value(json("done")) }
}

fn failed() -> JobFailed {
    JobFailed { error: Failure::new("code", "message"), node: Some("a".into()) }
}

#[test]
fn a_job_begins_with_what_its_message_says() {
    let Story(state) = Story::blank().then(created());
    assert_eq!((state.agent.as_str(), state.agent_version.as_str()), ("agent", "3"));
    assert_eq!(state.labels["k"], "v");
    assert_eq!((state.message.clone(), state.priority), (json("hello"), 7));
    assert_eq!((state.not_before, state.session), (Some(at(99)), Some("s".into())));
    assert_eq!((state.created_at, state.last_at, state.seq), (at(10), at(10), 1));
    assert_eq!(state.fence, Fence { generation: 1, epoch: 0 });
}

#[test]
fn only_its_creation_begins_a_job_and_only_once() {
    says(&Story::blank().refuses(planned(1)), "plan_generated at place 1");
    says(&Story::accepted().refuses(created()), "job_created at place 3");
}

#[test]
fn a_stream_is_dense() {
    let story = Story::accepted();
    for seq in [1, 2, 4] {
        let recorded = Recorded { seq, ..story.recorded(claimed()) };
        let refused = story.0.clone().replay(&recorded).unwrap_err();
        assert_eq!(refused, Illegal::Sequence { last: 2, found: seq });
    }
}

#[test]
fn every_event_carries_the_last_claims_fence_and_a_claim_the_next() {
    let fenced = |story: &Story, event: Event, generation, epoch| {
        let recorded = Recorded { fence: Fence { generation, epoch }, ..story.recorded(event) };
        let mut state = story.0.clone();
        state.replay(&recorded).map(|()| state.fence)
    };
    let accepted = Story::accepted();
    assert_eq!(fenced(&accepted, claimed().into(), 1, 1), Ok(Fence { generation: 1, epoch: 1 }));
    assert_eq!(fenced(&accepted, claimed().into(), 2, 1), Ok(Fence { generation: 2, epoch: 1 }));
    for (generation, epoch) in [(1, 0), (1, 2), (0, 1)] {
        let found = Fence { generation, epoch };
        let last = Fence { generation: 1, epoch: 0 };
        assert_eq!(fenced(&accepted, claimed().into(), generation, epoch), Err(Illegal::Fence { last, found }));
    }
    let running = Story::running();
    assert_eq!(fenced(&running, end_requested().into(), 1, 1), Ok(Fence { generation: 1, epoch: 1 }));
    for (generation, epoch) in [(1, 0), (1, 2), (0, 1), (2, 1)] {
        let found = Fence { generation, epoch };
        let last = Fence { generation: 1, epoch: 1 };
        assert_eq!(fenced(&running, end_requested().into(), generation, epoch), Err(Illegal::Fence { last, found }));
    }
}

#[test]
fn what_makes_a_job_longer_is_bounded_and_what_ends_it_is_not() {
    let mut story = Story::running();
    story.0.seq = limits::JOB_EVENTS_MAX - 1;
    let full = story.clone().then(node_started("a", 1));
    assert_eq!(full.0.seq, limits::JOB_EVENTS_MAX);
    assert_eq!(full.refuses(node_started("b", 1)), Illegal::Bound { bound: 100_000, what: "events" });
    assert_eq!(full.clone().then(timer_set(TimerId::Deadline)).0.seq, limits::JOB_EVENTS_MAX + 1);
    assert_eq!(full.then(failed()).0.status, JobStatus::Failed);
}

#[test]
fn plans_follow_each_other_while_the_job_is_pending() {
    let fresh = Story::blank().then(created());
    says(&fresh.refuses(planned(2)), "version 2 cannot follow 0");
    let first = fresh.then(planned(1));
    assert_eq!(first.0.plan, Some(PlanRef { hash: Hash::of(b"plan"), version: 1 }));
    says(&first.refuses(planned(1)), "version 1 cannot follow 1");
    assert_eq!(first.then(planned(2)).0.plan.unwrap().version, 2);
    says(&Story::running().refuses(planned(2)), "plan version 2");
}

#[test]
fn a_claim_names_the_holder_and_ends_every_delay() {
    let story = Story::running().then(requeued(RequeueReason::Retry));
    assert_eq!(story.0.owner, None);
    assert_eq!((story.0.not_before_delay, story.0.not_before), (Some(Span::from_millis(1)), Some(at(1_040))));
    let story = story.then(claimed());
    let owner =
        Ownership { attempt_id: AttemptId::from_u128(4), instance: InstanceId::from_u128(5), worker: "w".into() };
    assert_eq!((story.0.status, story.0.owner.as_ref()), (JobStatus::Running, Some(&owner)));
    assert_eq!((story.0.not_before_delay, story.0.not_before), (None, None));
    assert!(matches!(story.refuses(claimed()), Illegal::Job(_)));
}

#[test]
fn reclaims_are_counted_until_a_node_finishes_well() {
    let mut story = Story::running();
    for (reason, reclaims) in [
        (RequeueReason::Retry, 0),
        (RequeueReason::Draining, 0),
        (RequeueReason::LeaseExpired, 1),
        (RequeueReason::HolderDied, 2),
        // Whoever gives a job back in order has not brought it further.
        (RequeueReason::Retry, 2),
        (RequeueReason::Draining, 2),
    ] {
        story = story.then(requeued(reason));
        assert_eq!(story.0.reclaims, reclaims, "{reason:?}");
        story = story.then(claimed());
    }
    story = story.then(node_started("a", 1)).then(finished("a", StepResult::PermanentFailure));
    assert_eq!(story.0.reclaims, 2);
    story = story.then(node_started("b", 1)).then(finished("b", StepResult::Success));
    assert_eq!(story.0.reclaims, 0);
}

#[test]
fn a_requeue_without_a_delay_is_claimable_at_once() {
    let Story(state) = Story::running().then(JobRequeued { after_us: None, reason: RequeueReason::Draining });
    assert_eq!((state.status, state.not_before_delay, state.not_before), (JobStatus::Pending, None, None));
}

#[test]
fn a_wait_blocks_the_job_and_opens_its_key() {
    let Story(state) = Story::started().then(waiting("a", Some("key")));
    assert_eq!((state.status, state.owner.as_ref()), (JobStatus::Waiting, None));
    assert_eq!(state.step_status(&node("a")), StepStatus::Waiting);
    let blocked = Blocked {
        correlation_key: Some("key".to_owned()),
        doubt: false,
        node: "a".into(),
        reason: Some("because".to_owned()),
        seq: 5,
        since: at(50),
        wait_type: WaitType::Human,
    };
    assert_eq!(state.blocks, [blocked].into_iter().collect());
    assert_eq!(state.open_key(), Some("key"));
    let record = WaitRecord { node: "a".into(), phase: WaitPhase::Open, wait_type: WaitType::Human };
    assert_eq!(state.waits["key"], record);
    let parked = Story::started().then(JobWaiting { park: true, ..waiting("a", None) });
    assert_eq!((parked.0.status, parked.0.open_key()), (JobStatus::Parked, None));
}

#[test]
fn a_key_names_one_wait_of_a_job() {
    let story = Story::started().then(waiting("a", Some("key"))).then(timed_out("a")).then(claimed());
    let story = story.then(finished("a", StepResult::Success)).then(node_started("b", 1));
    assert_eq!(story.refuses(waiting("b", Some("key"))), Illegal::KeyUsed("key".to_owned()));
    assert_eq!(story.then(waiting("b", Some("other"))).0.open_key(), Some("other"));
}

#[test]
fn the_waits_of_a_job_are_bounded() {
    let mut story = Story::started();
    let record = WaitRecord { node: "z".into(), phase: WaitPhase::Over, wait_type: WaitType::Signal };
    story.0.waits = (1..limits::JOB_WAITS_MAX).map(|n| (n.to_string(), record.clone())).collect();
    let last = story.clone().then(waiting("a", Some("key")));
    assert_eq!(last.0.waits.len(), limits::JOB_WAITS_MAX);
    story.0.waits.insert("0".to_owned(), record);
    let refused = story.refuses(waiting("a", Some("key")));
    assert_eq!(refused, Illegal::Bound { bound: limits::JOB_WAITS_MAX as u64, what: "waits" });
}

#[test]
fn a_signal_or_time_ends_the_wait_of_its_node() {
    let mut story = Story::started().then(timer_set(TimerId::Wait(node("a"))));
    story = story.then(timer_set(TimerId::Doubt(node("a")))).then(timer_set(TimerId::Wait(node("b"))));
    story = story.then(waiting("a", Some("key")));
    says(&story.refuses(signalled("b")), "not blocked on node `b`");
    let by_signal = story.clone().then(signalled("a"));
    assert_eq!((by_signal.0.status, by_signal.0.blocks.oldest()), (JobStatus::Pending, None));
    let delivered = WaitPhase::Delivered { payload_hash: json("yes").hash(), signal: SignalId::from_u128(8) };
    assert_eq!(by_signal.0.waits["key"].phase, delivered);
    assert_eq!(by_signal.0.timers.keys().collect::<Vec<_>>(), [&TimerId::Wait(node("b"))]);
    assert_eq!(by_signal.step("a").wait_end.as_deref(), Some(&signalled("a").by));
    assert_eq!(by_signal.step("a").status, StepStatus::Running);
    says(&by_signal.refuses(signalled("a")), "not blocked on node `a`");
    let by_time = story.then(timed_out("a"));
    assert_eq!(by_time.0.waits["key"].phase, WaitPhase::Over);
    assert_eq!(by_time.step("a").wait_end.as_deref(), Some(&WaitEnd::Time));
}

/// A step that waits does not keep its job from going on with another, whose wait is told of again when the job is given away.
#[test]
fn a_job_is_at_work_for_one_step_while_another_waits() {
    let story = Story::started().then(node_started("b", 1)).then(waiting("a", Some("key")));
    let park = |node: &str| JobWaiting { park: true, ..waiting(node, None) };
    assert_eq!(story.clone().then(park("b")).0.status, JobStatus::Waiting, "it parks only if it would for both");
    let since = story.0.blocks.oldest().unwrap().since;
    let story = story.then(park("b")).then(requeued(RequeueReason::Retry));
    assert_eq!((story.0.status, story.0.not_before.is_some()), (JobStatus::Pending, true));
    for reason in [RequeueReason::Draining, RequeueReason::LeaseExpired, RequeueReason::HolderDied] {
        let blocked = Story::started().then(waiting("a", None));
        says(&blocked.refuses(requeued(reason)), "held by nobody");
    }
    // The end of a wait ends the delay of another step's next try.
    let story = story.then(timed_out("b"));
    assert_eq!((story.0.status, story.0.not_before, story.0.not_before_delay), (JobStatus::Pending, None, None));
    let story = story.then(claimed());
    assert_eq!(story.clone().then(timed_out("a")).0.status, JobStatus::Running);
    says(&story.refuses(waiting("a", Some("other"))), "waits for something else");
    says(
        &story.refuses(JobWaiting { wait_type: WaitType::Timer, ..waiting("a", Some("key")) }),
        "waits for something else",
    );
    let story = story.then(waiting("a", Some("key")));
    assert_eq!((story.0.status, story.0.blocks.oldest().unwrap().since), (JobStatus::Waiting, since));
}

#[test]
fn an_end_is_asked_for_once_of_a_running_job_and_nothing_new_starts_then() {
    says(&Story::accepted().refuses(end_requested()), "asked for once");
    let story = Story::started().then(end_requested());
    assert_eq!(story.0.end_requested, Some(EndCause::Cancel));
    says(&story.refuses(end_requested()), "asked for once");
    let ending = Illegal::Ending(EndCause::Cancel);
    assert_eq!(story.refuses(node_started("b", 1)), ending);
    assert_eq!(story.refuses(permit(1)), ending);
    assert_eq!(story.refuses(waiting("a", None)), ending);
    assert_eq!(story.refuses(requeued(RequeueReason::Draining)), ending);
    let story = story.then(finished("a", StepResult::Success));
    assert_eq!(story.refuses(completed()), ending);
    assert_eq!(story.then(JobCancelled {}).0.ending, Some(Ending::Cancelled));
}

#[test]
fn a_job_completes_when_every_step_has_ended() {
    let open = Story::started();
    says(&open.refuses(completed()), "node `a` has not ended");
    let skipped = NodeSkipped { node: "b".into(), reason: SkipReason::Condition };
    let story = open.then(finished("a", StepResult::Success)).then(skipped).then(completed());
    assert_eq!((story.0.status, story.0.owner.as_ref()), (JobStatus::Completed, None));
    assert_eq!((story.0.ended_at, story.0.last_at), (Some(at(70)), at(70)));
    assert_eq!(story.0.ending, Some(Ending::Answered(Answer::Value(json("done")))));
    assert!(matches!(story.refuses(completed()), Illegal::Job(_)));
    assert!(matches!(story.refuses(JobCancelled {}), Illegal::Job(_)));
}

#[test]
fn an_end_closes_the_wait_and_takes_timers_and_delays_away() {
    let story = Story::started().then(timer_set(TimerId::Deadline)).then(waiting("a", Some("key")));
    let Story(state) = story.then(failed());
    assert_eq!((state.status, state.blocks.oldest()), (JobStatus::Failed, None));
    assert_eq!(state.waits["key"].phase, WaitPhase::Over);
    assert!(state.timers.is_empty());
    let error = Failure::new("code", "message");
    assert_eq!(state.ending, Some(Ending::Failed { error, node: Some("a".into()) }));
    let Story(state) = Story::running().then(requeued(RequeueReason::Retry)).then(JobCancelled {});
    assert_eq!((state.not_before, state.not_before_delay), (None, None));
    assert_eq!((state.status, state.ending), (JobStatus::Cancelled, Some(Ending::Cancelled)));
}

/// Of a job that is blocked on several steps, the end of one wait leaves the others, and the end of the job none. That the job
/// is pending where one of several has ended goes with steps that run one by one.
#[test]
fn blocks_of_several_steps_end_one_by_one_or_all_with_the_job() {
    let mut story = Story::started().then(waiting("a", Some("key")));
    let other = Blocked {
        correlation_key: Some("other".to_owned()),
        node: "b".into(),
        ..story.0.blocks.oldest().unwrap().clone()
    };
    let record = WaitRecord { node: "b".into(), phase: WaitPhase::Open, wait_type: WaitType::Human };
    story.0.waits.insert("other".to_owned(), record);
    story.0.steps.insert("b".into(), story.step("a").clone());
    story.0.blocks.insert(other);
    let one = story.clone().then(signalled("b"));
    assert_eq!((one.0.open_key(), one.0.status), (Some("key"), JobStatus::Pending));
    assert_eq!(one.0.step_status(&node("a")), StepStatus::Waiting);
    assert_eq!(one.0.waits["key"].phase, WaitPhase::Open);
    let Story(state) = story.then(failed());
    assert!(state.blocks.is_empty() && state.waits.values().all(|wait| wait.phase == WaitPhase::Over));
}

#[test]
fn a_timer_fires_once_and_only_if_it_is_set() {
    let story = Story::running().then(timer_set(TimerId::Deadline));
    let timer = Timer { after: Span::from_micros(70), due: at(110) };
    assert_eq!(story.0.timers[&TimerId::Deadline], timer);
    let fired = TimerFired { timer: TimerId::Deadline };
    let story = story.then(fired.clone());
    assert!(story.0.timers.is_empty());
    says(&story.refuses(fired), "the timer deadline is not set");
}

#[test]
fn a_state_is_what_its_events_say_and_is_named_by_its_hash() {
    let events: Vec<Recorded> = {
        let story = Story::accepted();
        vec![
            Story::blank().recorded(created()),
            Story::blank().then(created()).recorded(planned(1)),
            story.recorded(claimed()),
        ]
    };
    let state = JobState::fold(JobId::from_u128(1), &events).unwrap();
    assert_eq!(state, Story::running().0);
    assert_ne!(state.hash(), Story::accepted().0.hash());
    assert_eq!(state.hash(), Hash::of(&crate::json::to_canonical(&state)));
    assert!(JobState::fold(JobId::from_u128(1), &events[1..]).is_err());
    let with_timer = Story::running().then(timer_set(TimerId::Wait(node("a")))).0;
    let read: JobState = serde_json::from_slice(&crate::json::to_canonical(&with_timer)).unwrap();
    assert_eq!(read, with_timer);
}

/// A job whose plan is made by its own run, and is held by one.
fn planning() -> Story {
    let created = JobCreated { planning: Some(Hash::of(b"planning")), ..created() };
    Story::blank().then(created).then(claimed())
}

/// What makes the plan comes before it, whole; and nothing of the plan does.
#[test]
fn a_plan_is_recorded_when_it_is_made_and_nothing_runs_before() {
    let begun = || planning().then(node_started("$plan", 1));
    let done = || begun().then(finished("$plan", StepResult::Success));
    let judged =
        NodeFinished { verdict: Some(crate::event::Verdict::Pending), ..finished("$plan", StepResult::Success) };
    let reviewed = || begun().then(judged.clone());
    let failed =
        NodeFinished { error: Some(Failure::new("c", "m")), ..finished("$plan", StepResult::PermanentFailure) };
    for story in
        [planning(), begun(), reviewed(), reviewed().then(node_started("$plan/critic", 1)), begun().then(failed)]
    {
        says(&story.refuses(planned(1)), "plan version 1 cannot follow 0");
        assert!(matches!(story.refuses(node_started("a", 1)), Illegal::NoPlan(_)));
        let skipped = NodeSkipped { node: "a".into(), reason: SkipReason::Condition };
        assert!(matches!(story.refuses(skipped), Illegal::NoPlan(_)));
    }
    says(&done().refuses(completed()), "it has no plan");
    let story = done().then(planned(1));
    assert_eq!(
        (story.0.followed_plan(), done().0.followed_plan()),
        (Some(Hash::of(b"plan")), Some(Hash::of(b"planning")))
    );
    says(&story.refuses(node_started("$plan@1", 1)), "the job has its plan");
    assert_eq!(story.then(node_started("a", 1)).step("a").tries, 1);
    // A job whose plan came with it plans nothing.
    assert!(matches!(
        Story::blank().then(created()).then(claimed()).refuses(node_started("$plan", 1)),
        Illegal::NoPlan(_)
    ));
    says(&Story::running().refuses(node_started("$plan", 1)), "the job has its plan");
    // Behind an order to end or to pause nothing is planned any more.
    let asked = done().then(crate::event::JobPauseRequested {});
    assert!(matches!(asked.refuses(planned(1)), Illegal::Ending(_)));
}
