//! What a node waits for, and what its failure means to those behind it.

use serde::{Deserialize, Serialize};

use super::Node;
use crate::event::Failure;
use crate::state::StepState;
use crate::step::StepStatus;

/// How many of the nodes that a node needs must have completed before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// All have ended, however they did. Where all were skipped, so is the node.
    #[default]
    All,
    /// One has completed.
    Any,
    /// So many have completed.
    Quorum(u32),
}

impl Join {
    /// Whether it is the default.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

/// What follows when a node fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The job fails.
    #[default]
    FailFast,
    /// The node has failed, and nodes behind it run and see that it has.
    FailSafe,
}

impl OnFailure {
    /// Whether it is the default.
    #[must_use]
    pub const fn is_fail_fast(&self) -> bool {
        matches!(self, Self::FailFast)
    }
}

impl Node {
    /// Whether the job goes on where this node fails with this error. What the job as a whole has used up fails the job.
    #[must_use]
    pub fn absorbs(&self, error: Option<&Failure>) -> bool {
        self.on_failure == OnFailure::FailSafe && !error.is_some_and(Failure::is_of_the_job)
    }

    /// Whether its step has failed, and the job with it.
    #[must_use]
    pub fn fails_job(&self, step: &StepState) -> bool {
        step.status == StepStatus::Failed && !self.absorbs(step.error.as_ref())
    }
}
