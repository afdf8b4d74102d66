//! A call of a tool. A pure one asks no permission: its result is recorded once, and after a crash before that it is
//! called again. Of any other the call is a ledger step's (`permit.rs`).

use aetheris_core::event::{Failure, StepResult};
use aetheris_core::id::ToolName;
use aetheris_core::json::Json;
use aetheris_core::retry::OnTimeout;

use crate::ports::ToolOutcome;
use crate::run::prepared::{Body, Next, Prepared, Role, TryFailed};
use crate::run::view::View;
use crate::run::{permit, step};

/// # Errors
/// The plan has no such tool.
pub(super) fn prepare(view: &View<'_>, name: &ToolName, input: &Json) -> Result<Prepared, Failure> {
    if view.plan.tool(name).is_some_and(|tool| tool.effect.is_ledger()) {
        return permit::ask(view, name, input);
    }
    let input = match view.value(input) {
        Ok(input) => input,
        Err(error) => return Ok(step::fail_template(view, "its input", &error)),
    };
    let call = view.tool_call(name, input)?;
    Ok(view.start().perform(Body::Call(Box::new(call), Role::Pure)))
}

pub(in crate::run) fn conclude(view: &View<'_>, outcome: ToolOutcome, took: u64) -> Prepared {
    let failed = match outcome {
        ToolOutcome::Done(output) => return succeed_within_bounds(view, &output, took),
        ToolOutcome::NotSent { error, permanent } => TryFailed::new(error, None, !permanent),
        ToolOutcome::RefusedRetryable { error, retry_after } => TryFailed::new(error, retry_after, true),
        ToolOutcome::RefusedPermanent(error) => TryFailed::new(error, None, false),
        ToolOutcome::Unknown { error, retry_after, timeout } => {
            let given_up = timeout && view.retry().on_timeout == OnTimeout::Fail;
            TryFailed::new(error, retry_after, !given_up)
        }
    };
    Prepared::default().next(Next::Failed(TryFailed { took_us: Some(took), ..failed }))
}

fn succeed_within_bounds(view: &View<'_>, output: &Json, took: u64) -> Prepared {
    match Json::checked(output.value().clone()) {
        Ok(output) => step::succeed(view, StepResult::Pure, Some(output), None, Some(took)),
        Err(error) => {
            let failure = Failure::new("result_refused", format!("the tool's result cannot be recorded: {error}"));
            step::fail(view, failure, StepResult::PermanentFailure, None)
        }
    }
}
