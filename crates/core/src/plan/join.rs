//! What a node waits for, and what its failure means to those behind it.

use serde::{Deserialize, Serialize};

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
    /// How many must have completed, where some are enough.
    #[must_use]
    pub const fn least(self) -> Option<u32> {
        match self {
            Self::All => None,
            Self::Any => Some(1),
            Self::Quorum(least) => Some(least),
        }
    }

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
    /// Whether the job goes on over a failure of the node itself.
    #[must_use]
    pub const fn absorbs(self) -> bool {
        matches!(self, Self::FailSafe)
    }

    /// Whether it is the default.
    #[must_use]
    pub const fn is_fail_fast(&self) -> bool {
        matches!(self, Self::FailFast)
    }
}
