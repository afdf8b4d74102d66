//! Whether a store can do its work now, part by part: what readiness asks of it.
//!
//! Each part is looked at by itself, so that an answer names what is wrong: the writer is sent an empty
//! request, the last write and the last claim are remembered with their errors, the file is compared with the
//! one that was opened, and the clock with the wall clock.

use aetheris_core::time::Span;

use crate::ErrorKind;

/// The state of a store's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// How far the store's clock is ahead of the wall clock: zero, or next to it, unless the wall clock was set back.
    pub clock_ahead: Span,
    /// The file at the store's path; `None` for a store without one.
    pub file: Option<FileHealth>,
    /// The last claim, if it failed.
    pub last_claim: Option<FailedWrite>,
    /// The last write, if it failed and none has worked since. A full or unreachable store is tried once more
    /// by the question itself, so that this ends when the trouble does.
    pub last_write: Option<FailedWrite>,
    /// Whether the writer answers.
    pub writer: WriterHealth,
}

impl Health {
    /// A store of which every part does its work and which has no file.
    #[must_use]
    pub fn good() -> Self {
        Self { clock_ahead: Span::ZERO, file: None, last_claim: None, last_write: None, writer: WriterHealth::Answers }
    }
}

/// Whether a store's writer answers an empty request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterHealth {
    /// It does.
    Answers,
    /// It has not within this time: it waits for another process, or hangs.
    Silent(Span),
    /// It has ended.
    Gone,
}

/// What stands at the path of a store's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileHealth {
    /// The file that was opened.
    AsOpened,
    /// Nothing: it was removed or moved away.
    Gone,
    /// Another file.
    Replaced,
    /// It cannot be looked at: the operating system's words.
    Unknown(String),
}

/// A write, or a claim, that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedWrite {
    /// How long ago, by the boot clock.
    pub age: Span,
    /// What the store said.
    pub error: String,
    /// What kind of trouble.
    pub kind: ErrorKind,
}
