//! The server itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::evidence::CheckView;

/// The process answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveView {
    /// Always `true`.
    pub live: bool,
    /// The server's version.
    pub version: String,
}

/// Whether the server can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadyView {
    /// What was looked at; those that are not `ok` say what is not ready.
    pub checks: Vec<CheckView>,
    /// What is not as it should be and keeps nothing from working: each begins with its code, `clock_ahead`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
    /// Whether every check is `ok`.
    pub ready: bool,
}
