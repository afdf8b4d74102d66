//! Steps that nobody needs any more: items of a map that another item has ended, and parts of a loop that another part has.

use aetheris_core::event::{Failure, InvocationOutcome, Source, StepResult};
use aetheris_core::recovery::Decision;
use aetheris_core::state::StoppedBy;

use super::kind::{self, human};
use super::prepared::{Next, Prepared, TryFailed};
use super::view::View;
use super::{doubt, facts, permit};

/// What a step comes to that has begun and is needed no more: what is known of a call is recorded, and nothing is called or
/// asked.
///
/// # Errors
/// What is stored contradicts itself.
pub(in crate::run) fn give_up(view: &View<'_>, by: &StoppedBy, decision: &Decision) -> Result<Prepared, Failure> {
    // What its child comes to is waited for: it is told to end, unless it is one that is left.
    if view.step().is_some_and(|step| step.child.is_some()) && *decision == Decision::Run {
        return kind::prepare(view);
    }
    aetheris_fault::sometimes!(ItemGivenUp);
    match decision {
        Decision::Inject | Decision::Nothing => Ok(Prepared::default()),
        Decision::CatchUp => permit::catch_up(view),
        Decision::CatchUpOutcome(outcome) => permit::catch_up_outcome(view, *outcome),
        Decision::Run | Decision::NextTry | Decision::EndTry => Ok(human::dropped(view).then(given_up(view, by))),
        Decision::EnterDoubt if aetheris_fault::planted!("given-up-item-untold") => Ok(given_up(view, by)),
        Decision::EnterDoubt => doubt::enter(view, crate::ops::CRASHED),
        Decision::ResumeDoubt => doubt::abandon(view, of_given_up(by)),
        Decision::CallAgain => {
            let call = view.called()?;
            let unknown = Failure::new("outcome_unknown", "nobody waits for the call any more");
            let (outcome, source) = (InvocationOutcome::InDoubt, Source::CaughtUp);
            let ended = facts::call_ended(view, call.permit, outcome, source, Some(unknown));
            let told = Prepared::of([facts::unknown(view, call, ended)]);
            Ok(told.next(Next::TryFailed(of_given_up(by))))
        }
        Decision::Corrupt(why) => Err(view.corrupt(&format!("{why}; nothing was run"))),
    }
}

/// A step of which nothing is under way has ended with its map or its loop.
fn given_up(view: &View<'_>, by: &StoppedBy) -> Prepared {
    facts::fail_after(view, StepResult::PermanentFailure, of_given_up(by))
}

fn of_given_up(by: &StoppedBy) -> TryFailed {
    let (code, what) = match by {
        StoppedBy::Item(item) => ("map_stopped", format!("item {item}")),
        StoppedBy::Part(part) => ("loop_stopped", format!("`{part}`")),
    };
    let error = Failure::new(code, format!("given up because {what} failed"));
    TryFailed { given_up: true, ..TryFailed::new(error, None, false) }
}
