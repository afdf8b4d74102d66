//! What the tools themselves have logged: the one evidence that the runtime did not write.

use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::lease::Fence;
use aetheris_core::ledger::PermitNumber;
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
    /// The tool broke the connection before it acted.
    Dropped,
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
    /// The permit that the caller named; a call that needs none has none.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "permit_as_text")]
    pub permit: Option<PermitNumber>,
    /// Hash of the canonical answer, where the body is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_hash: Option<Hash>,
    /// The tool's own name.
    pub tool: String,
}

impl WitnessLine {
    /// The line of a call that came, from the headers that the runtime sends with it. `None` where they are missing or cannot
    /// be read; a permit may be missing.
    pub fn of_call<'h>(
        (tool, acts): (&str, bool),
        at: Timestamp,
        input_hash: Hash,
        header: impl Fn(&str) -> Option<&'h str>,
    ) -> Option<Self> {
        Some(Self {
            kind: WitnessKind::BodyStart,
            acts,
            at,
            attempt: header("aetheris-attempt")?.parse().ok()?,
            fence: parse_fence(header("aetheris-fence")?).ok()?,
            input_hash,
            job: header("aetheris-job")?.parse().ok()?,
            key: header("idempotency-key")?.parse().ok()?,
            node: header("aetheris-node")?.into(),
            permit: header("aetheris-permit").map(parse_permit).transpose().ok()?,
            result_hash: None,
            tool: tool.to_owned(),
        })
    }

    /// The same call where nothing acts for it.
    #[must_use]
    pub fn turned_away(self, kind: WitnessKind) -> Self {
        Self { kind, acts: false, ..self }
    }

    /// Whether a body that changes the world began.
    #[must_use]
    pub fn is_act(&self) -> bool {
        self.acts && self.kind == WitnessKind::BodyStart
    }

    /// Whether a call came that needs a permission: it acted, or it named its permit and was turned away.
    #[must_use]
    pub fn is_arrival(&self) -> bool {
        match self.kind {
            WitnessKind::BodyStart => self.acts || self.permit.is_some(),
            WitnessKind::Refused | WitnessKind::Dropped => self.permit.is_some(),
            WitnessKind::BodyEnd => false,
        }
    }
}

/// Whether a log says of calls under which permit they came, as logs of early tools do not.
#[must_use]
pub fn names_permits(log: &[WitnessLine]) -> bool {
    log.iter().any(|line| line.permit.is_some())
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
    let pair = pair(text).ok_or_else(|| format!("`{text}` is not a fence: expected GENERATION.EPOCH"));
    pair.map(|(generation, epoch)| Fence { generation, epoch })
}

/// A permit as it travels: `generation.number`.
///
/// # Errors
/// A sentence for people.
pub fn parse_permit(text: &str) -> Result<PermitNumber, String> {
    let pair = pair(text).ok_or_else(|| format!("`{text}` is not a permit: expected GENERATION.NUMBER"));
    pair.map(|(generation, number)| PermitNumber { generation, number })
}

fn pair(text: &str) -> Option<(u32, u32)> {
    let (first, second) = text.split_once('.')?;
    Some((first.parse().ok()?, second.parse().ok()?))
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

mod permit_as_text {
    use aetheris_core::ledger::PermitNumber;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(permit: &Option<PermitNumber>, serializer: S) -> Result<S::Ok, S::Error> {
        match permit {
            Some(permit) => serializer.collect_str(permit),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PermitNumber>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| super::parse_permit(&text).map_err(serde::de::Error::custom)).transpose()
    }
}
