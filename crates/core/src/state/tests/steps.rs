//! Events that speak of plain steps.

use super::*;
use crate::event::{BranchStatus, ModelRecord, NodeSkipped, SkipReason, Usage};
use crate::id::NodeId;
use crate::state::{Output, StepState};
use crate::step::StepStatus;
use crate::time::Span;

#[test]
fn a_step_starts_under_a_plan_in_a_running_job_and_counts_its_tries() {
    says(&Story::accepted().refuses(node_started("a", 1)), "while its job is pending");
    let unplanned = Story::blank().then(created()).then(claimed());
    assert_eq!(unplanned.refuses(node_started("a", 1)), Illegal::NoPlan(node("a")));
    let running = Story::running();
    says(&running.refuses(node_started("a", 2)), "starts try 2 after 0");
    let story = running.then(node_started("a", 1));
    assert_eq!((story.step("a").tries, story.step("a").started_at), (1, Some(at(40))));
    assert!(matches!(story.refuses(node_started("a", 2)), Illegal::Step { .. }));
}

#[test]
fn a_retry_has_its_moment_and_the_next_try_forgets_it() {
    let story = Story::started().then(retry_scheduled("a"));
    let step = story.step("a");
    assert_eq!(step.status, StepStatus::Retrying);
    assert_eq!((step.retry_delay, step.retry_at), (Some(Span::from_micros(500)), Some(at(550))));
    assert_eq!(step.error.as_deref(), Some(&Failure::new("code", "message")));
    says(&story.refuses(node_started("a", 3)), "starts try 3 after 1");
    let story = story.then(node_started("a", 2));
    let step = story.step("a");
    assert_eq!((step.tries, step.retry_delay, step.retry_at), (2, None, None));
    // Since its first try.
    assert_eq!(step.started_at, Some(at(40)));
}

/// Where the next try may not begin, none is counted and none is due.
#[test]
fn a_step_can_fail_in_the_place_of_its_next_try() {
    let story = Story::started().then(retry_scheduled("a")).then(finished("a", StepResult::PermanentFailure));
    let step = story.step("a");
    assert_eq!((step.status, step.tries, step.retry_at, step.retry_delay), (StepStatus::Failed, 1, None, None));
    let retrying = Story::started().then(retry_scheduled("a"));
    assert!(matches!(retrying.refuses(finished("a", StepResult::Pure)), Illegal::Step { .. }));
}

#[test]
fn steps_move_only_while_a_worker_holds_the_job() {
    let freed = Story::started().then(requeued(RequeueReason::Draining));
    says(&freed.refuses(finished("a", StepResult::Success)), "while its job is pending");
    says(&freed.refuses(retry_scheduled("a")), "while its job is pending");
    says(&freed.refuses(NodeSkipped { node: "b".into(), reason: SkipReason::Upstream }), "while its job is pending");
    says(&freed.refuses(permit(1)), "while its job is pending");
    let called = Story::called().then(requeued(RequeueReason::LeaseExpired));
    says(&called.refuses(outcome(1, InvocationOutcome::NotSent)), "while its job is pending");
}

#[test]
fn a_finished_step_has_its_result_output_and_tokens() {
    let usage = Usage { completion_tokens: 3, prompt_tokens: 4, ..Usage::default() };
    let model = Some(Box::new(ModelRecord {
        finish: None,
        parameters: None,
        model: "m".to_owned(),
        prompt_hash: Hash::ZERO,
        usage,
    }));
    let answered = NodeFinished { model, output: Some(json("text")), ..finished("a", StepResult::Pure) };
    let story = Story::started().then(answered.clone());
    let step = story.step("a");
    assert_eq!(
        (step.status, step.result, step.finished_at),
        (StepStatus::Completed, Some(StepResult::Pure), Some(at(50)))
    );
    assert_eq!((step.output.clone(), step.error.as_ref()), (Some(Output::Inline(json("text"))), None));
    assert_eq!(story.0.tokens, 7);
    let twice = story.then(node_started("b", 1)).then(NodeFinished { node: "b".into(), ..answered.clone() });
    assert_eq!(twice.0.tokens, 14);
    // What was used for an answer that could not be taken is used as well.
    let tried = NodeRetryScheduled { model: answered.model.clone(), ..retry_scheduled("a") };
    let story = Story::started().then(tried).then(node_started("a", 2));
    assert_eq!(story.0.tokens, 7);
    let failed = NodeFinished { model: answered.model, ..finished("a", StepResult::RetryableFailure) };
    assert_eq!(story.then(failed).0.tokens, 14);
}

#[test]
fn a_step_that_succeeds_after_a_failed_try_has_no_error() {
    let story = Story::started().then(retry_scheduled("a")).then(node_started("a", 2));
    assert!(story.step("a").error.is_some());
    let step = story.then(finished("a", StepResult::Success)).step("a").clone();
    assert_eq!((step.status, step.error, step.tries), (StepStatus::Completed, None, 2));
}

/// A start that was written with its end is dated back by what the body took, and never behind an earlier try.
#[test]
fn a_step_began_with_its_first_try_or_before_it_was_written() {
    let began = |tries: u32, took_us: Option<u64>| {
        let mut story = Story::started();
        if tries == 2 {
            story = story.then(retry_scheduled("a")).then(node_started("a", 2));
        }
        let step = story.then(NodeFinished { took_us, ..finished("a", StepResult::Pure) }).step("a").clone();
        (step.started_at, step.finished_at)
    };
    assert_eq!(began(1, None), (Some(at(40)), Some(at(50))));
    assert_eq!(began(1, Some(30)), (Some(at(20)), Some(at(50))));
    assert_eq!(began(2, Some(5)), (Some(at(40)), Some(at(70))));
    assert_eq!(began(2, Some(50)), (Some(at(20)), Some(at(70))));
}

#[test]
fn a_failed_step_has_its_error_and_no_output() {
    let error = Some(Failure::new("code", "message"));
    let failed = NodeFinished { error: error.clone(), ..finished("a", StepResult::RetryableFailure) };
    let story = Story::started().then(failed);
    let step = story.step("a");
    assert_eq!((step.status, step.error.as_deref(), step.output.clone()), (StepStatus::Failed, error.as_ref(), None));
    assert_eq!(step.finished_at, Some(at(50)));
}

#[test]
fn the_output_of_a_wait_is_what_ended_it() {
    let after = |end: WaitCompleted| {
        let story = Story::started().then(waiting("a", Some("key"))).then(end).then(claimed());
        story.then(finished("a", StepResult::Success)).step("a").output.clone()
    };
    assert_eq!(after(signalled("a")), Some(Output::Inline(json("yes"))));
    assert_eq!(after(timed_out("a")), Some(Output::Inline(Json::null())));
}

#[test]
fn a_skipped_step_has_ended() {
    let story = Story::running().then(NodeSkipped { node: "b".into(), reason: SkipReason::Condition });
    assert_eq!((story.step("b").status, story.step("b").finished_at), (StepStatus::Skipped, Some(at(40))));
    assert_eq!(story.0.step_status(&node("b")), StepStatus::Skipped);
    assert_eq!(story.0.step_status(&node("c")), StepStatus::Pending);
    assert!(matches!(story.refuses(node_started("b", 1)), Illegal::Step { .. }));
}

/// What a step saw as open, and that its failure was absorbed, is kept with a checkpoint.
#[test]
fn a_checkpoint_keeps_what_was_open_and_what_was_absorbed() {
    let needs = [("x".into(), BranchStatus::Open), ("y".into(), BranchStatus::Completed)].into();
    let story = Story::running().then(NodeStarted { needs, ..node_started("a", 1) });
    let failed = NodeFinished { absorbed: true, ..finished("a", StepResult::PermanentFailure) };
    let step = story.then(failed).step("a").clone();
    assert_eq!((step.open.iter().map(NodeId::as_str).collect::<Vec<_>>(), step.absorbed), (vec!["x"], true));
    let kept: StepState = serde_json::from_slice(&crate::json::to_canonical(&step)).unwrap();
    assert_eq!(kept, step);
}
