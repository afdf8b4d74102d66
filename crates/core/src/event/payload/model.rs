//! What events say of models: which has answered, and what that has used.

use serde::{Deserialize, Serialize};

use super::is_none;
use crate::hash::Hash;
use crate::plan::AnswerFormat;

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

/// Why a model stopped. Only [`FinishReason::End`] and [`FinishReason::Tool`] are answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The conversation is longer than its context window.
    ContextFull,
    /// It said all that it had to say.
    End,
    /// The provider's filter held its answer back.
    Filtered,
    /// It reached its limit of tokens.
    Length,
    /// The provider paused the answer, and would go on if asked again.
    Pause,
    /// It declined to answer.
    Refusal,
    /// It asked for calls of tools.
    Tool,
}

impl FinishReason {
    /// Every reason.
    pub const ALL: [Self; 7] =
        [Self::ContextFull, Self::End, Self::Filtered, Self::Length, Self::Pause, Self::Refusal, Self::Tool];

    /// Its name in events and on screens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContextFull => "context_full",
            Self::End => "end",
            Self::Filtered => "filtered",
            Self::Length => "length",
            Self::Pause => "pause",
            Self::Refusal => "refusal",
            Self::Tool => "tool",
        }
    }
}

/// The parameters of a model call. The texts are hashed, not kept: replay renders them again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelParameters {
    /// The form of the answer that was asked for.
    #[serde(default, skip_serializing_if = "is_text")]
    pub format: AnswerFormat,
    /// Most tokens of the answer; the provider's default where absent.
    #[serde(default, skip_serializing_if = "is_none")]
    pub max_tokens: Option<u32>,
    /// `provider/model` as it was asked for.
    pub model: String,
    /// Sampling temperature; the provider's default where absent.
    #[serde(default, skip_serializing_if = "is_none")]
    pub temperature: Option<f64>,
}

fn is_text(format: &AnswerFormat) -> bool {
    *format == AnswerFormat::Text
}

/// Which model answered what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// Why it stopped, where that is known. Builds before this field did not record it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub finish: Option<FinishReason>,
    /// `provider/model` as it answered.
    pub model: String,
    /// How it was asked. Builds before this field did not record it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub parameters: Option<ModelParameters>,
    /// Hash of the canonical request.
    pub prompt_hash: Hash,
    /// What it used.
    pub usage: Usage,
}
