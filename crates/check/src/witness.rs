//! What the tools themselves have logged: the one evidence that the runtime did not write.

use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::lease::Fence;
use aetheris_core::path::StepPath;
use aetheris_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What a line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WitnessKind {
    /// The body began: the first thing that it did.
    BodyStart,
    /// The body is over and its answer leaves.
    BodyEnd,
    /// The tool refused before it acted.
    Refused,
}

/// One line of a witness log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WitnessLine {
    /// What it tells.
    pub kind: WitnessKind,
    /// Whether this body changes the world; reads and questions do not.
    pub acts: bool,
    /// When, by the tool's clock.
    pub at: Timestamp,
    /// The try that the caller named.
    pub attempt: u32,
    /// The fence that the caller named.
    #[serde(with = "fence_as_text")]
    pub fence: Fence,
    /// Hash of what was sent.
    pub input_hash: Hash,
    /// The job that the caller named.
    pub job: JobId,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// The node that the caller named.
    pub node: StepPath,
    /// Hash of the canonical answer, where the body is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_hash: Option<Hash>,
    /// The tool's own name.
    pub tool: String,
}

impl WitnessLine {
    /// Whether a body that changes the world began.
    #[must_use]
    pub fn is_act(&self) -> bool {
        self.acts && self.kind == WitnessKind::BodyStart
    }
}

/// Reads a log, one JSON object a line. A last line without its end is one whose write was cut off.
///
/// # Errors
/// The first line that is not one, with its number.
pub fn parse(log: &str) -> Result<Vec<WitnessLine>, String> {
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    let lines = whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(index, line)| serde_json::from_str(line).map_err(|e| format!("line {}: {e}", index + 1))).collect()
}

/// A fence as it travels: `generation.epoch`.
///
/// # Errors
/// A sentence for people.
pub fn parse_fence(text: &str) -> Result<Fence, String> {
    let wrong = || format!("`{text}` is not a fence: expected GENERATION.EPOCH");
    let (generation, epoch) = text.split_once('.').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    Ok(Fence { generation: number(generation)?, epoch: number(epoch)? })
}

mod fence_as_text {
    use aetheris_core::lease::Fence;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(fence: &Fence, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(fence)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Fence, D::Error> {
        super::parse_fence(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
