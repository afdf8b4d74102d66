//! Holding a job still and letting it go on.

use super::*;
use crate::event::{JobCancelled, JobFailed, JobPauseRequested, JobPaused, JobResumed, PauseReason, TimerFired};
use crate::job::JobStatus;
use crate::state::{Paused, WaitPhase};
use crate::step::StepStatus;

fn paused() -> JobPaused {
    JobPaused { reason: PauseReason::Operator }
}

fn restored() -> JobPaused {
    JobPaused { reason: PauseReason::Restored }
}

fn asked() -> JobPauseRequested {
    JobPauseRequested {}
}

fn resumed() -> JobResumed {
    JobResumed {}
}

fn parked() -> Story {
    Story::started().then(JobWaiting { park: true, ..waiting("a", Some("key")) })
}

#[test]
fn a_pending_job_pauses_and_goes_on_where_it_was() {
    let story = Story::accepted().then(paused());
    let since = Some(story.0.last_at);
    assert_eq!(story.0.status, JobStatus::Paused);
    assert_eq!(story.0.paused, Some(Paused { can_go_on: false, parked: false, reason: PauseReason::Operator, since }));
    let story = story.then(resumed());
    assert_eq!((story.0.status, story.0.paused), (JobStatus::Pending, None));
}

#[test]
fn a_delay_outlives_a_pause() {
    let story = Story::running().then(requeued(RequeueReason::Retry)).then(paused()).then(resumed());
    assert_eq!((story.0.status, story.0.not_before), (JobStatus::Pending, Some(at(1_040))));
}

#[test]
fn a_blocked_job_goes_back_to_its_wait() {
    for (story, status) in
        [(Story::started().then(waiting("a", Some("key"))), JobStatus::Waiting), (parked(), JobStatus::Parked)]
    {
        let before = story.0.blocks.clone();
        let story = story.then(paused());
        assert_eq!((story.0.status, story.0.open_key()), (JobStatus::Paused, Some("key")));
        let story = story.then(resumed());
        assert_eq!((story.0.status, &story.0.blocks), (status, &before));
    }
}

#[test]
fn a_wait_that_ends_meanwhile_leaves_the_job_paused_and_then_pending() {
    for end in [signalled("a"), timed_out("a")] {
        let story = parked().then(paused()).then(end);
        assert_eq!((story.0.status, story.0.blocks.is_empty()), (JobStatus::Paused, true));
        assert_ne!(story.0.waits["key"].phase, WaitPhase::Open);
        assert_eq!(story.0.step_status(&node("a")), StepStatus::Running);
        assert_eq!(story.then(resumed()).0.status, JobStatus::Pending);
    }
}

#[test]
fn a_doubt_is_answered_while_its_job_is_paused() {
    let waits = Story::in_doubt().then(doubt_waits()).then(paused());
    let answered = waits.then(resolved(1, Resolver::Operator, DoubtOutcome::Happened));
    assert_eq!((answered.0.status, answered.0.blocks.is_empty()), (JobStatus::Paused, true));
    assert_eq!(answered.then(resumed()).0.status, JobStatus::Pending);
    // Paused before it waited for the answer.
    let held = Story::in_doubt().then(asked()).then(paused());
    let answered = held.then(resolved(1, Resolver::Operator, DoubtOutcome::Happened));
    assert_eq!(answered.0.status, JobStatus::Paused);
}

/// Of a job that waits for two steps the end of one sets it going, also when it was held still meanwhile.
#[test]
fn a_paused_job_that_waits_for_two_goes_on_with_what_has_ended() {
    let two = || Story::started().then(node_started("b", 1)).then(waiting("a", Some("key"))).then(waiting("b", None));
    let resumes = |story: Story| story.then(resumed()).0.status;
    assert_eq!(resumes(two().then(paused())), JobStatus::Waiting);
    let ended = two().then(paused()).then(timed_out("b"));
    assert_eq!((ended.0.status, ended.0.open_key()), (JobStatus::Paused, Some("key")));
    assert_eq!(resumes(ended.clone()), JobStatus::Pending);
    assert_eq!(resumes(ended.then(timed_out("a"))), JobStatus::Pending);
    // It could have gone on, or was at work for one of them, when it was paused.
    assert_eq!(resumes(two().then(timed_out("b")).then(paused())), JobStatus::Pending);
    assert_eq!(resumes(two().then(requeued(RequeueReason::Retry)).then(paused())), JobStatus::Pending);
    let at_work = two().then(timed_out("b")).then(claimed()).then(asked()).then(paused());
    assert_eq!(at_work.0.open_key(), Some("key"));
    assert_eq!(resumes(at_work), JobStatus::Pending);
}

#[test]
fn a_job_that_is_held_pauses_when_its_holder_lets_it_go() {
    says(&Story::started().refuses(paused()), "pauses when that was asked for");
    let story = Story::started().then(asked());
    assert_eq!((story.0.status, story.0.end_requested), (JobStatus::Running, Some(EndCause::Pause)));
    says(&story.refuses(asked()), "asked for once");
    for refused in
        [Event::from(node_started("b", 1)), waiting("a", None).into(), requeued(RequeueReason::Draining).into()]
    {
        assert_eq!(story.refuses(refused), Illegal::Ending(EndCause::Pause));
    }
    let story = story.then(finished("a", StepResult::Success)).then(paused());
    assert_eq!((story.0.status, story.0.end_requested, story.0.owner.as_ref()), (JobStatus::Paused, None, None));
    assert_eq!(story.then(resumed()).0.status, JobStatus::Pending);
}

#[test]
fn an_end_outranks_a_pause() {
    let asked_to_end = Story::started().then(asked()).then(end_requested());
    assert_eq!(asked_to_end.0.end_requested, Some(EndCause::Cancel));
    says(&asked_to_end.refuses(paused()), "pauses when that was asked for");
    says(&asked_to_end.refuses(restored()), "pauses when that was asked for");
    says(&asked_to_end.refuses(asked()), "asked for once");
    says(&Story::started().refuses(JobCancelRequested { cause: EndCause::Pause }), "asked for once");
    for end in [Event::from(JobCancelled {}), JobFailed { error: Failure::new("code", "why"), node: None }.into()] {
        let ended = parked().then(paused()).then(end);
        assert!(ended.0.status.is_terminal());
        assert_eq!((ended.0.paused, ended.0.waits["key"].phase.clone()), (None, WaitPhase::Over));
    }
}

#[test]
fn only_a_paused_job_resumes_and_nobody_claims_it() {
    assert!(matches!(Story::accepted().refuses(resumed()), Illegal::Job(_)));
    assert!(matches!(parked().refuses(resumed()), Illegal::Job(_)));
    let story = Story::accepted().then(paused());
    assert!(matches!(story.refuses(claimed()), Illegal::Job(_)));
    assert!(matches!(story.refuses(paused()), Illegal::Job(_)));
    says(&story.refuses(asked()), "of a running job");
}

#[test]
fn a_restored_job_pauses_whoever_held_it() {
    let story = Story::started().then(restored());
    assert_eq!(story.0.paused.map(|paused| paused.reason), Some(PauseReason::Restored));
    assert_eq!((story.0.owner.as_ref(), story.0.step_status(&node("a"))), (None, StepStatus::Running));
}

#[test]
fn timers_of_a_paused_job_fire() {
    let story = parked().then(timer_set(TimerId::Deadline)).then(paused());
    assert!(story.0.timers.contains_key(&TimerId::Deadline));
    let story = story.then(TimerFired { timer: TimerId::Deadline });
    assert_eq!(story.0.status, JobStatus::Paused);
}

/// A checkpoint of an older build has no such field, and a job that was never paused has the hash it had then.
#[test]
fn a_state_without_a_pause_says_nothing_of_one() {
    let state = Story::accepted().0;
    let text = String::from_utf8(crate::json::to_canonical(&state)).unwrap();
    assert!(!text.contains("paused"), "{text}");
    assert_eq!(serde_json::from_str::<JobState>(&text).unwrap(), state);
    let held = Story::accepted().then(paused()).0;
    let text = String::from_utf8(crate::json::to_canonical(&held)).unwrap();
    assert_eq!(serde_json::from_str::<JobState>(&text).unwrap(), held);
}
