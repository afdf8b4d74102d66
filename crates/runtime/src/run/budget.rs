//! What a job may use up: the budget of its plan, and memory.

use aetheris_core::event::Failure;
use aetheris_core::limits;

use super::kind::{self, Uses};
use super::view::View;

/// The code of a step that its job's budget has ended before a call or a question.
pub(super) const BUDGET_EXCEEDED: &str = "budget_exceeded";

/// Why the node may not start, if the job's budget is used up.
pub(super) fn over_budget(view: &View<'_>) -> Option<Failure> {
    over_budget_after(view, 0)
}

/// The same where a try has just used so many tokens that no event has told of yet.
pub(super) fn over_budget_after(view: &View<'_>, used: u64) -> Option<Failure> {
    let budget = view.plan.plan().budget;
    let exceeded = |what: String| Failure::new(BUDGET_EXCEEDED, what);
    match kind::uses(view) {
        Uses::Tokens => {
            let tokens = view.state.tokens.saturating_add(used);
            let max = budget.max_tokens.filter(|max| tokens >= *max)?;
            Some(exceeded(format!("the job has used {tokens} of {max} tokens")))
        }
        Uses::Calls => {
            let max = budget.max_tool_calls?;
            let calls = view.calls;
            (calls >= max).then(|| exceeded(format!("the job has made {calls} of {max} tool calls")))
        }
        Uses::Nothing => None,
    }
}

/// Why the node may not start, if the job keeps too much.
pub(super) fn over_memory(memory: usize) -> Option<Failure> {
    let max = limits::JOB_MEMORY_MAX;
    (memory > max).then(|| {
        let what = format!(
            "the job's message, the inputs of its calls and its outputs use about {} MiB of memory, and the limit is {} MiB; store large data elsewhere and pass a reference",
            memory >> 20,
            max >> 20
        );
        Failure::new("job_too_large", what)
    })
}
