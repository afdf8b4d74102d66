//! What is done about a call whose outcome is unknown.

use serde::{Deserialize, Serialize};

use crate::id::ToolName;
use crate::limits;
use crate::time::Span;

/// One way to settle a call whose outcome is unknown, tried in the order of the tool's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoubtPolicy {
    /// Give up: the step fails, the call stays on record as unresolved.
    Fail,
    /// Park until an operator answers.
    Human,
    /// Ask a pure tool with the idempotency key.
    Reconcile(Reconcile),
    /// Wait for a late deposit.
    Wait(Span),
}

/// Whom to ask about a call, and when its answer counts. Stored as the tool's name alone where nothing else is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredReconcile", into = "StoredReconcile")]
pub struct Reconcile {
    /// How long after the permit's deadline the question has to be asked for "did not happen" to count: a bound of how
    /// long a call may stand in the receiver's queue. The default where absent.
    pub settle: Option<Span>,
    /// The tool.
    pub tool: ToolName,
}

impl Reconcile {
    /// Asks this tool, with the default of `settle`.
    #[must_use]
    pub fn by(tool: impl Into<ToolName>) -> Self {
        Self { settle: None, tool: tool.into() }
    }

    /// How long after the permit's deadline the question has to be asked.
    #[must_use]
    pub fn settle(&self) -> Span {
        self.settle.unwrap_or(limits::SETTLE_DEFAULT)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredReconcile {
    Tool(ToolName),
    Settled { settle: Span, tool: ToolName },
}

impl From<StoredReconcile> for Reconcile {
    fn from(stored: StoredReconcile) -> Self {
        match stored {
            StoredReconcile::Tool(tool) => Self { settle: None, tool },
            StoredReconcile::Settled { settle, tool } => Self { settle: Some(settle), tool },
        }
    }
}

impl From<Reconcile> for StoredReconcile {
    fn from(Reconcile { settle, tool }: Reconcile) -> Self {
        match settle {
            None => Self::Tool(tool),
            Some(settle) => Self::Settled { settle, tool },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans of before name the tool alone.
    #[test]
    fn a_stored_policy_is_read_as_it_was_written() {
        let policy = |settle| DoubtPolicy::Reconcile(Reconcile { settle, ..Reconcile::by("look") });
        for (text, read) in [
            (r#"{"reconcile":"look"}"#, policy(None)),
            (r#"{"reconcile":{"settle":"5s","tool":"look"}}"#, policy(Some(Span::from_secs(5)))),
        ] {
            assert_eq!(serde_json::from_str::<DoubtPolicy>(text).unwrap(), read);
            assert_eq!(crate::json::to_canonical(&read), text.as_bytes());
        }
        assert_eq!(Reconcile::by("look").settle(), limits::SETTLE_DEFAULT);
    }
}
