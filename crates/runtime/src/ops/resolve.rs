//! An operator answers a doubt.

use aetheris_core::event::{
    DoubtOutcome, Failure, InDoubtResolved, NodeFinished, NodeRetryScheduled, Resolver, StepResult,
};
use aetheris_core::id::{IdempotencyKey, JobId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::{LedgerTrigger, Settle};
use aetheris_core::limits;
use aetheris_store::{LedgerWrite, NewEffect, Purpose};

use super::{Plan, is_open_doubt};
use crate::Runtime;
use crate::error::OpError;

/// What follows a call that did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Then {
    /// One more try, whatever the retry policy has left; the budget is asked before it calls.
    #[default]
    Retry,
    /// The step fails.
    Fail,
}

/// The answer to a doubt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Resolution {
    /// Whether the call had its effect, and with which result.
    pub happened: Option<Json>,
    /// The operator's words.
    pub note: String,
    /// The permit whose call the operator has looked at. An answer that arrives late is then never taken
    /// for the next permit's; without it, it is taken for whichever is in doubt.
    pub permit: Option<u32>,
    /// What follows if it did not happen.
    pub then: Then,
}

impl Resolution {
    /// The call happened, with this result.
    #[must_use]
    pub fn happened(result: Json) -> Self {
        Self { happened: Some(result), ..Self::default() }
    }

    /// The call did not happen, and one more try is to follow.
    #[must_use]
    pub fn did_not_happen() -> Self {
        Self::default()
    }
}

impl Runtime {
    /// Records an operator's answer to the doubt about one invocation. "Did not happen" is accepted
    /// only when the permit's call can no longer arrive; the store checks that by its clock. It ends the try, in
    /// the same commit.
    ///
    /// # Errors
    /// [`OpError`]: nothing of that name, no open doubt, too early, or no store.
    pub async fn resolve(&self, job: JobId, key: IdempotencyKey, resolution: Resolution) -> Result<(), OpError> {
        if limits::is_longer(&resolution.note, limits::NOTE_CHARS_MAX) {
            return Err(OpError::InvalidRequest("note: at most 4096 characters are accepted".to_owned()));
        }
        let ids = self.system.ids.as_ref();
        self.amend(job, Purpose::Resolve, Guard::Outside, |loaded, mut draft| {
            let mut steps = loaded.state.steps.iter();
            let found = steps.find_map(|(node, step)| {
                step.invocation
                    .as_ref()
                    .filter(|invocation| invocation.key == key)
                    .map(|i| (node.clone(), step, i.clone()))
            });
            let (node, step, invocation) = found.ok_or(OpError::InvocationNotFound { job, key })?;
            if !is_open_doubt(step) {
                return Err(OpError::StateConflict(format!(
                    "invocation {key} (node `{node}`) is not in doubt; nothing is to be answered"
                )));
            }
            if let Some(asked) = resolution.permit.filter(|asked| *asked != invocation.permit) {
                aetheris_fault::sometimes!(AnswerForOldPermit);
                return Err(OpError::StateConflict(format!(
                    "the answer is about permit {asked} of invocation {key} (node `{node}`); in doubt is permit {} now: look again",
                    invocation.permit
                )));
            }
            let event = |outcome| InDoubtResolved {
                by: Resolver::Operator,
                node: node.clone(),
                note: Some(resolution.note.clone()).filter(|note| !note.is_empty()),
                outcome,
                permit: invocation.permit,
            };
            let settle = |trigger| LedgerWrite::Settle(Settle { key, permit_id: invocation.permit_id, trigger });
            match &resolution.happened {
                Some(result) => {
                    let (permit, permit_id) = (invocation.permit, invocation.permit_id);
                    let effect = NewEffect { key, permit, permit_id, result: result.clone() };
                    let event = event(DoubtOutcome::Happened);
                    draft.push_with_effect(ids, event, effect, settle(LedgerTrigger::Commit))?;
                }
                None => {
                    let event = event(DoubtOutcome::DidNotHappen);
                    draft.push_with_ledger(ids, event, settle(LedgerTrigger::Disprove))?;
                    let node = node.clone();
                    let error = not_happened(&invocation.tool, "a person said so");
                    match resolution.then {
                        Then::Retry => draft.push(ids, NodeRetryScheduled { after_us: 0, error, node })?,
                        Then::Fail => {
                            let (error, result) = (Some(error), StepResult::PermanentFailure);
                            draft.push(ids, NodeFinished { error, model: None, node, output: None, result })?;
                        }
                    }
                }
            }
            Ok(Plan::Write(Box::new(draft), ()))
        })
        .await
    }
}

/// Why a try ended whose call is said not to have happened.
pub(crate) fn not_happened(tool: &ToolName, why: &str) -> Failure {
    Failure::new("did_not_happen", format!("the call of `{tool}` did not happen: {why}"))
}
