//! What events say of models: which has answered, and what that has used.

use serde::{Deserialize, Serialize};

use crate::hash::Hash;

const fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// What a model call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Those of the request that the provider has read from a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// Tokens of the request.
    pub prompt_tokens: u64,
    /// Those of the answer that the model has thought with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.completion_tokens.saturating_add(self.prompt_tokens)
    }
}

/// Which model answered what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// `provider/model` as it answered.
    pub model: String,
    /// Hash of the canonical request.
    pub prompt_hash: Hash,
    /// What it used.
    pub usage: Usage,
}
