//! A call of a tool. A pure one asks no permission: its result is recorded once, and after a crash before that it is
//! called again. Of any other the call is a ledger step's (`permit.rs`). One that asks a person waits (`human.rs`).

use aetheris_core::event::{Failure, InvocationOutcome};
use aetheris_core::id::ToolName;
use aetheris_core::json::Json;
use aetheris_core::retry::OnTimeout;
use aetheris_expr::ExprError;

use super::human;
use crate::ports::ToolOutcome;
use crate::run::prepared::{Body, Next, Prepared, Role, TryFailed};
use crate::run::view::View;
use crate::run::{facts, permit};

/// Calls a tool with this input, which is made once.
///
/// # Errors
/// The plan has no such tool.
pub(super) fn prepare(
    view: &View<'_>,
    name: &ToolName,
    input: impl FnOnce() -> Result<Json, ExprError>,
) -> Result<Prepared, Failure> {
    let tool = view.plan.tool(name);
    if let Some(human) = tool.and_then(|tool| tool.kind.human()) {
        return Ok(human::prepare(view, human, input));
    }
    if tool.is_some_and(|tool| tool.effect.is_ledger()) {
        return permit::ask(view, name, input);
    }
    let input = match input() {
        Ok(input) => input,
        Err(error) => return Ok(facts::fail_template(view, "its input", &error)),
    };
    let call = view.tool_call(name, input)?;
    Ok(facts::start(view).perform(Body::Call(Box::new(call), Role::Pure)))
}

pub(in crate::run) fn conclude(view: &View<'_>, outcome: ToolOutcome, took: u64) -> Prepared {
    match come_to(view, outcome) {
        CameTo::Result(output) => facts::succeed_after(view, output, None, took),
        CameTo::Failure(_, failed) => {
            Prepared::default().next(Next::TryFailed(TryFailed { took_us: Some(took), ..failed }))
        }
    }
}

/// What a call came to.
pub(in crate::run) enum CameTo {
    /// A result that can be recorded.
    Result(Json),
    /// What is recorded of it instead, and what may follow.
    Failure(InvocationOutcome, TryFailed),
}

/// Reads what a tool said, for pure and permitted calls alike.
pub(in crate::run) fn come_to(view: &View<'_>, outcome: ToolOutcome) -> CameTo {
    let (told, failed) = match outcome {
        ToolOutcome::Done(result) => match Json::checked(result.value().clone()) {
            Ok(result) => return CameTo::Result(result),
            // It acted, and what it said cannot be kept: nobody can say what the result is.
            Err(error) => {
                let failure = Failure::new("result_refused", format!("the tool's result cannot be recorded: {error}"));
                (InvocationOutcome::InDoubt, TryFailed::new(failure, None, false))
            }
        },
        ToolOutcome::NotSent { error, permanent } => {
            (InvocationOutcome::NotSent, TryFailed::new(error, None, !permanent))
        }
        ToolOutcome::RefusedRetryable { error, retry_after } => {
            (InvocationOutcome::RefusedRetryable, TryFailed::new(error, retry_after, true))
        }
        ToolOutcome::RefusedPermanent(error) => {
            (InvocationOutcome::RefusedPermanent, TryFailed::new(error, None, false))
        }
        ToolOutcome::Unknown { error, retry_after, timeout } => {
            let given_up = timeout && view.retry().on_timeout == OnTimeout::Fail;
            (InvocationOutcome::InDoubt, TryFailed::new(error, retry_after, !given_up))
        }
    };
    CameTo::Failure(told, failed)
}
