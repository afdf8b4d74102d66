//! How the nodes before one stood, and why one is not run.

use serde::{Deserialize, Serialize};

use crate::step::StepStatus;

/// How a node stood when one behind it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BranchStatus {
    /// It had completed.
    Completed,
    /// It had failed.
    Failed,
    /// It had not ended.
    Open,
    /// It was not run.
    Skipped,
}

impl BranchStatus {
    /// Each way in which a node can stand.
    pub const ALL: [Self; 4] = [Self::Completed, Self::Failed, Self::Open, Self::Skipped];

    /// How a node stands whose step has this status.
    #[must_use]
    pub const fn of(status: StepStatus) -> Self {
        match status {
            StepStatus::Completed => Self::Completed,
            StepStatus::Failed => Self::Failed,
            StepStatus::Skipped => Self::Skipped,
            StepStatus::Pending
            | StepStatus::Running
            | StepStatus::Retrying
            | StepStatus::Waiting
            | StepStatus::InDoubt
            | StepStatus::Validating
            | StepStatus::Refining
            | StepStatus::Rejected => Self::Open,
        }
    }

    /// Its name in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Open => "open",
            Self::Skipped => "skipped",
        }
    }
}

/// Why a step is not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Its condition did not hold.
    Condition,
    /// Too few of those that it needs have completed.
    Join,
    /// All it needs were skipped.
    Upstream,
}

impl SkipReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::Condition, Self::Join, Self::Upstream];

    /// Its name in events and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::Join => "join",
            Self::Upstream => "upstream",
        }
    }
}
