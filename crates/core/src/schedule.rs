//! What comes next in a job: a pure function of its plan and its steps.

use crate::event::SkipReason;
use crate::id::NodeId;
use crate::plan::{CompiledPlan, Node};
use crate::state::JobState;
use crate::step::StepStatus;

/// The next piece of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next<'a> {
    /// This node: to be started, or somewhere on its way.
    Node(&'a Node),
    /// This node is not to be run, since all it needs were skipped.
    Skip(&'a Node, SkipReason),
    /// This node has failed, and the job with it.
    Failed(&'a NodeId),
    /// Every node has ended well.
    Done,
}

/// Finds the next piece of work, looking from one place of the execution order on, and moves that
/// place over what has ended. Nodes run one at a time in topological order.
#[must_use]
pub fn next<'a>(state: &JobState, plan: &'a CompiledPlan, place: &mut usize) -> Next<'a> {
    while let Some(node) = plan.at(*place) {
        match state.step_status(&node.id) {
            StepStatus::Completed | StepStatus::Skipped => *place += 1,
            StepStatus::Failed => return Next::Failed(&node.id),
            StepStatus::Running | StepStatus::Retrying | StepStatus::Waiting | StepStatus::InDoubt => {
                return Next::Node(node);
            }
            StepStatus::Pending => {
                let skipped = |need: &NodeId| state.step_status(need) == StepStatus::Skipped;
                let orphaned = !node.needs.is_empty() && node.needs.iter().all(skipped);
                return if orphaned { Next::Skip(node, SkipReason::Upstream) } else { Next::Node(node) };
            }
        }
    }
    Next::Done
}
