//! At which round of its work a node or an item is.

use crate::plan::{CompiledPlan, Step};
use crate::state::{JobState, StepState};

/// The step at which the work of a node or an item is: its newest round, or what its critic is asked about that.
#[must_use]
pub fn at_work<'a>(state: &JobState, plan: &'a CompiledPlan, base: Step<'a>) -> Step<'a> {
    if !base.node.is_judged() {
        return base;
    }
    let path = state.newest_round(&base.path);
    if let Some(critic) = plan.critic_of(base.node).filter(|_| base.path.is_whole())
        && state.steps.get(&path).is_some_and(StepState::waits_for_critic)
        && !state.step_status(&path.critic()).is_terminal()
    {
        return Step { path: path.critic(), work: &critic.work, ..base };
    }
    Step { path, ..base }
}
