//! A job that a node asks for: another agent gets a message.

use serde::{Deserialize, Serialize};

use crate::json::Json;
use crate::time::Span;

/// What becomes of a child job when its parent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnParentEnd {
    /// It is cancelled.
    Cancel,
    /// It goes on.
    Leave,
}

impl OnParentEnd {
    /// What it is where a node does not say.
    #[must_use]
    pub const fn default_of(waits: bool) -> Self {
        if waits { Self::Cancel } else { Self::Leave }
    }

    /// Its name in files and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Leave => "leave",
        }
    }
}

/// A child job. Texts are templates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobNode {
    /// The agent that gets the message.
    pub agent: String,
    /// The time that the child as a whole may take; its agent's own where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// The message.
    pub message: Json,
    /// What becomes of the child when this job ends.
    pub on_parent_end: OnParentEnd,
    /// The conversation that the child belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether the node waits for the child's end. If not, its output is the child's id.
    pub wait: bool,
}
