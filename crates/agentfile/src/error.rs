//! What is wrong with a file, with its place.

use std::fmt;

use aetheris_core::limits;
use aetheris_schema::Allowance;
use serde::Serialize;

/// What kind of mistake it is; the names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A duration that cannot be read or is out of bounds.
    BadDuration,
    /// A name with characters that it must not have, or too long.
    BadName,
    /// A JSON Schema that is wrong, or beyond what is accepted.
    BadSchema,
    /// A template or condition that cannot work.
    BadTemplate,
    /// A value that its key does not take.
    BadValue,
    /// Nodes that need each other in a circle.
    Cycle,
    /// Two waits for one correlation key.
    DuplicateCorrelationKey,
    /// Two nodes of one id.
    DuplicateId,
    /// A key that stands twice in one place.
    DuplicateKey,
    /// A key without which the rest has no meaning.
    MissingKey,
    /// Part of the format, but not executed by this build.
    NotSupportedYet,
    /// Not YAML or JSON, or a part of YAML that agent files do not use.
    Syntax,
    /// More than the limits allow.
    TooLarge,
    /// A key that does not exist here.
    UnknownKey,
    /// A need that is no node.
    UnknownNeed,
    /// A tool that is not defined.
    UnknownTool,
    /// A node that can never run.
    UnreachableNode,
    /// A value of another type than its key takes.
    WrongType,
}

impl Code {
    /// Its stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadDuration => "bad_duration",
            Self::BadName => "bad_name",
            Self::BadSchema => "bad_schema",
            Self::BadTemplate => "bad_template",
            Self::BadValue => "bad_value",
            Self::Cycle => "cycle",
            Self::DuplicateCorrelationKey => "duplicate_correlation_key",
            Self::DuplicateId => "duplicate_id",
            Self::DuplicateKey => "duplicate_key",
            Self::MissingKey => "missing_key",
            Self::NotSupportedYet => "not_supported_yet",
            Self::Syntax => "syntax",
            Self::TooLarge => "too_large",
            Self::UnknownKey => "unknown_key",
            Self::UnknownNeed => "unknown_need",
            Self::UnknownTool => "unknown_tool",
            Self::UnreachableNode => "unreachable_node",
            Self::WrongType => "wrong_type",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One mistake in an agent file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("line {line}: {}{message}", shown(.path))]
pub struct FileError {
    /// Where, as keys and positions: `plan.nodes[2].tool`. Empty for the file as a whole.
    pub path: String,
    /// The line, counted from 1.
    pub line: u32,
    /// What kind of mistake.
    pub code: Code,
    /// What is wrong and what to do.
    pub message: String,
}

fn shown(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

/// Most mistakes that are reported of one file.
const ERRORS_MAX: usize = 200;

/// Collects mistakes while a file is read.
#[derive(Debug)]
pub(crate) struct Errors {
    bytes: usize,
    list: Vec<FileError>,
    /// What is being read, for the beginning of each message.
    pub(crate) of: Option<String>,
    /// What may still be done for its schemas.
    pub(crate) schemas: Allowance,
}

impl Default for Errors {
    fn default() -> Self {
        Self { bytes: 0, list: Vec::new(), of: None, schemas: Allowance::of(limits::AGENT_PATTERNS_MAX) }
    }
}

impl Errors {
    /// The path is written out only if there is room.
    pub(crate) fn add(&mut self, path: impl Into<String>, line: u32, code: Code, message: impl Into<String>) {
        if self.is_full() {
            return;
        }
        let message = match &self.of {
            Some(of) => format!("{of}: {}", message.into()),
            None => message.into(),
        };
        let error =
            FileError { path: path.into(), line, code, message: limits::cut(message, limits::ERROR_MESSAGE_BYTES_MAX) };
        self.bytes += error.path.len() + error.message.len();
        self.list.push(error);
    }

    /// Whether further mistakes are left out.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= ERRORS_MAX || self.bytes >= limits::FILE_ERRORS_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them in the order of the file.
    pub(crate) fn into_sorted(mut self) -> Vec<FileError> {
        self.list.sort_by_key(|error| error.line);
        self.list
    }
}
