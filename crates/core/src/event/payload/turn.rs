//! What events say of the turns of a loop: what a model has asked for, beside the text of its answer.

use serde::{Deserialize, Serialize};

use super::is_none;
use crate::id::ToolName;
use crate::json::Json;

/// A call that a model has asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolAsked {
    /// The arguments, as the model wrote them: they may be no JSON.
    pub arguments: String,
    /// The model's name of the call, which goes back with what it came to.
    pub id: String,
    /// The name that the model has called.
    pub name: String,
    /// What else the provider said of the call. It goes back as it came.
    #[serde(default, skip_serializing_if = "is_none", deserialize_with = "Json::present")]
    pub provider: Option<Json>,
    /// The tool that is meant; absent where the loop has none of that name.
    #[serde(default, skip_serializing_if = "is_none")]
    pub tool: Option<ToolName>,
}

/// What a turn came to, beside the text that is its output.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The calls that are asked for, in their order. Where there is none, and no reply, the text is the last word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolAsked>,
    /// What the model is told instead of what calls came to: its last word cannot be taken.
    #[serde(default, skip_serializing_if = "is_none")]
    pub reply: Option<String>,
}

impl Turn {
    /// Whether the text is the last word.
    #[must_use]
    pub fn is_last_word(&self) -> bool {
        self.calls.is_empty() && self.reply.is_none()
    }
}
