//! Questions about the steps of a job.

use super::{JobState, StepState};
use crate::id::NodeId;
use crate::path::StepPath;
use crate::step::StepStatus;

impl JobState {
    /// The status of a step; pending where nothing happened to it.
    #[must_use]
    pub fn step_status(&self, path: &StepPath) -> StepStatus {
        self.steps.get(path).map_or(StepStatus::Pending, |step| step.status)
    }

    /// The step that is a whole node, if anything happened to it.
    #[must_use]
    pub fn step_of(&self, node: &NodeId) -> Option<&StepState> {
        self.steps.get(&StepPath::from(node))
    }

    /// The status of the step that is a whole node; pending where nothing happened to it.
    #[must_use]
    pub fn node_status(&self, node: &NodeId) -> StepStatus {
        self.step_of(node).map_or(StepStatus::Pending, |step| step.status)
    }
}
