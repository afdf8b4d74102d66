//! What is said of the output of a step, and what follows when it is rejected.

use serde::{Deserialize, Serialize};

use crate::path::StepPath;

/// What was said of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Accepted.
    Pass,
    /// Its critic has not answered.
    Pending,
    /// Rejected.
    Reject,
}

impl Verdict {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Pass, Self::Pending, Self::Reject];

    /// Its name in events and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Pending => "pending",
            Self::Reject => "reject",
        }
    }
}

/// Who has rejected an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judge {
    /// The critic of the node.
    Critic,
    /// The JSON Schema of the node.
    Schema,
}

impl Judge {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Critic, Self::Schema];

    /// Its name in events and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critic => "critic",
            Self::Schema => "schema",
        }
    }
}

/// The output of a step was rejected: another round follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRefining {
    /// Who has rejected it.
    pub by: Judge,
    /// What the next round is told.
    pub feedback: String,
    /// The node, or the item of a map, whose work is done again.
    pub node: StepPath,
    /// The round that follows: 1, 2, …
    pub round: u32,
}
