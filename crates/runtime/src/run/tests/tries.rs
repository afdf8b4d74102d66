//! Tries: what is asked before one, and what follows one that failed.

use aetheris_core::event::{EndCause, Failure, Usage};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{AnswerFormat, EffectClass, LlmNode, NodeKind};
use aetheris_core::state::Output;
use aetheris_core::step::StepStatus;
use aetheris_core::time::{Span, Timestamp};
use serde_json::json;

use super::bed::{Bed, calls_tool};
use crate::ports::{MODEL_TIMED_OUT, ModelAnswer, ModelError, ToolOutcome};
use crate::run::prepared::{Body, Next, Release, Said};
use crate::run::step;

fn refused() -> Said {
    Said::Called(ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after: None }, 1)
}

fn plain() -> Bed {
    Bed::of(calls_tool(), EffectClass::Pure)
}

#[test]
fn a_condition_a_budget_and_the_jobs_size_are_asked_before_the_first_try_alone() {
    let mut bed = plain();
    bed.node.work.when = Some("message.to == 'bob'".to_owned());
    assert_eq!(bed.prepare().0, ["node_skipped"]);
    let mut bed = plain();
    bed.node.work.when = Some("message.to == 'ann'".to_owned());
    assert_eq!(bed.prepare().0, ["node_started"]);
    // What would end it now is not asked of a step that is on its way.
    bed.node.work.when = Some("false".to_owned());
    bed.memory = limits::JOB_MEMORY_MAX + 1;
    assert!(matches!(bed.begin(), Body::Call(..)));

    let mut bed = plain();
    bed.memory = limits::JOB_MEMORY_MAX;
    assert_eq!(bed.prepare().0, ["node_started"]);
    let mut bed = plain();
    bed.memory = limits::JOB_MEMORY_MAX + 1;
    assert_eq!(bed.prepare().0, ["node_finished"]);
    assert_eq!(bed.error().unwrap().code, "job_too_large");

    let mut bed = plain();
    bed.budget.max_tool_calls = Some(0);
    assert_eq!(bed.prepare().0, ["node_finished"]);
    assert_eq!(bed.error().unwrap().code, "budget_exceeded");
}

/// The slot is held for a short back-off; for a longer one the job is given back, unless its end is asked for.
#[test]
fn a_back_off_is_held_up_to_its_bound_and_released_beyond() {
    for (backoff, released) in
        [(limits::BACKOFF_HELD_MAX, false), (limits::BACKOFF_HELD_MAX.plus(Span::from_micros(1)), true)]
    {
        let mut bed = plain();
        bed.retry.backoff = backoff;
        bed.begin();
        let (facts, next) = bed.conclude(refused());
        if released {
            assert_eq!(facts, ["node_retry_scheduled", "job_requeued"]);
            assert!(matches!(next, Next::Release(Release::Requeue(..))));
        } else {
            assert_eq!(facts, ["node_retry_scheduled"]);
            assert!(matches!(next, Next::Record));
        }
    }
    let mut bed = plain();
    bed.retry.backoff = Span::from_secs(9);
    bed.begin();
    bed.state.end_requested = Some(EndCause::Cancel);
    let (facts, next) = bed.conclude(refused());
    assert_eq!(facts, ["node_retry_scheduled"]);
    assert!(matches!(next, Next::Go));
}

/// What is left of a back-off passes in the run where it is short, and is given back again where it is long.
#[test]
fn what_is_left_of_a_back_off_passes_before_the_next_try() {
    let mut bed = plain();
    bed.begin();
    bed.conclude(refused());
    let due = |bed: &mut Bed, left: i64| {
        let step = bed.state.steps.get_mut(&"n".into()).unwrap();
        step.retry_at = Some(Timestamp::from_micros(1_000 + left));
        bed.state.last_at = Timestamp::from_micros(1_000);
    };
    due(&mut bed, 400);
    assert!(matches!(bed.begin(), Body::Rest(left) if left == Span::from_micros(400)));
    due(&mut bed, 60_000_000);
    let prepared = bed.ask(step::prepare).unwrap();
    assert!(matches!(prepared.next, Next::Release(Release::Requeue(..))));
    due(&mut bed, 0);
    let (facts, _) = bed.prepare();
    assert_eq!(facts, ["node_started"]);
    bed.conclude(refused());
    bed.budget.max_tool_calls = Some(2);
    // The budget was used up while it rested.
    assert_eq!(bed.conclude(Said::Rested).0, ["node_finished"]);
}

#[test]
fn the_last_try_ends_the_step_and_a_used_up_budget_announces_none() {
    let mut bed = plain();
    bed.retry.max_attempts = 1;
    bed.begin();
    assert_eq!(bed.conclude(refused()).0, ["node_finished"]);
    assert_eq!(bed.error().unwrap().code, "busy");
    let mut bed = plain();
    bed.budget.max_tool_calls = Some(1);
    bed.begin();
    assert_eq!(bed.conclude(refused()).0, ["node_finished"]);
    let error = bed.error().unwrap();
    assert_eq!(error.code, "budget_exceeded");
    assert!(error.message.ends_with("the last try: later (busy)"), "{}", error.message);
}

fn asks_model(format: AnswerFormat) -> Bed {
    let llm = LlmNode {
        format,
        max_tokens: None,
        model: "p/m".to_owned(),
        prompt: "to {{ message.to }}".to_owned(),
        schema: None,
        system: None,
        temperature: None,
    };
    Bed::of(NodeKind::Llm(llm), EffectClass::Pure)
}

/// After a crash, a pure call is repeated within the try that counts it; a model is not asked beyond the budget.
#[test]
fn a_body_that_a_crash_ended_is_repeated_if_the_budget_allows() {
    let mut bed = Bed::of(calls_tool(), EffectClass::Pure);
    bed.begin();
    bed.budget.max_tool_calls = Some(1);
    assert!(matches!(bed.begin(), Body::Call(..)));
    let mut bed = asks_model(AnswerFormat::Text);
    bed.begin();
    bed.budget.max_tokens = Some(10);
    bed.state.tokens = 9;
    assert!(matches!(bed.begin(), Body::Ask(..)));
    bed.state.tokens = 10;
    assert_eq!(bed.prepare().0, ["node_finished"]);
    assert_eq!(bed.error().unwrap().code, "budget_exceeded");
}

/// Tokens count whatever the answer was worth, and before another try is announced.
#[test]
fn a_models_tokens_count_also_where_its_answer_cannot_be_taken() {
    let usage = Usage { completion_tokens: 4, prompt_tokens: 6, ..Usage::default() };
    let answer = |text: &str| Ok(ModelAnswer::text("p/m", text, usage));
    for (budget, tries) in [(None, true), (Some(11), true), (Some(10), false)] {
        let mut bed = asks_model(AnswerFormat::Json);
        bed.budget.max_tokens = budget;
        let Body::Ask(request, asked) = bed.begin() else { panic!("no question") };
        assert_eq!(request.prompt, "to ann");
        let (facts, _) = bed.conclude(Said::Model(answer("no json"), asked, 1));
        assert_eq!(facts, [if tries { "node_retry_scheduled" } else { "node_finished" }], "{budget:?}");
        assert_eq!(bed.state.tokens, 10, "{budget:?}");
    }
    let mut bed = asks_model(AnswerFormat::Json);
    let Body::Ask(_, asked) = bed.begin() else { panic!("no question") };
    assert_eq!(bed.conclude(Said::Model(answer("{\"a\":1}"), asked, 1)).0, ["node_finished"]);
    let step = &bed.state.steps[&"n".into()];
    assert_eq!((step.status, &step.output), (StepStatus::Completed, &Some(Output::Inline(Json::new(json!({"a":1}))))));
}

#[test]
fn a_model_that_did_not_answer_in_time_is_asked_again_as_the_policy_says() {
    use aetheris_core::retry::OnTimeout::{Fail, Retry};
    for (on_timeout, code, again) in
        [(Retry, MODEL_TIMED_OUT, true), (Fail, MODEL_TIMED_OUT, false), (Fail, "overloaded", true)]
    {
        let mut bed = asks_model(AnswerFormat::Text);
        bed.retry.on_timeout = on_timeout;
        let Body::Ask(_, asked) = bed.begin() else { panic!("no question") };
        let failed = ModelError::new(Failure::new(code, ""), true);
        let (facts, _) = bed.conclude(Said::Model(Err(failed), asked, 1));
        assert_eq!(facts == ["node_retry_scheduled"], again, "{on_timeout:?} {code}");
    }
}
