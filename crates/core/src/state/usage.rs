//! The tool calls that a job has used up: asked by budgets and told by the API, by one definition.

use super::JobState;
use crate::plan::{CompiledPlan, Node};

/// The code of a step that its job's budget has ended before a call or a question.
pub const BUDGET_EXCEEDED: &str = "budget_exceeded";

impl JobState {
    /// Tool calls so far: permits of ledger steps under which a call may have left, and tries of pure ones. A try that the
    /// budget has ended made no call.
    #[must_use]
    pub fn tool_calls(&self, plan: &CompiledPlan) -> u32 {
        let calls = |node: &Node| {
            let step = self.steps.get(&node.id)?;
            plan.tool_of(node)?;
            let prevented = step.error.as_ref().is_some_and(|error| error.code == BUDGET_EXCEEDED);
            let tries = step.tries.saturating_sub(u32::from(prevented));
            Some(step.invocation.as_ref().map_or(tries, |call| call.permit.saturating_sub(call.unsent)))
        };
        plan.ordered().filter_map(calls).fold(0, u32::saturating_add)
    }
}

pub(super) const fn is_zero(count: &u32) -> bool {
    *count == 0
}
