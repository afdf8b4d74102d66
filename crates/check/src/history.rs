//! What clients sent and what they were told.

use std::collections::BTreeSet;

use aetheris_core::hash::Hash;
use aetheris_core::id::{EventId, JobId};
use serde::{Deserialize, Serialize};

/// A client's view of a run. An answer that never came is not in it, except as [`Write::unknown`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientHistory {
    /// Jobs whose cancel was answered well.
    pub cancels: BTreeSet<JobId>,
    /// Jobs whose pause was answered with "done" or "asked for".
    pub pauses: BTreeSet<JobId>,
    /// Whether the run was driven to its end: nothing is pending, running or about to be.
    pub quiet: bool,
    /// Signals that were answered well.
    pub signals: Vec<AckedSignal>,
    /// Messages that were accepted.
    pub submissions: Vec<Submission>,
    /// Writes that their author named itself.
    pub writes: Vec<Write>,
}

impl ClientHistory {
    /// Whether it says nothing about any job.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { cancels, pauses, quiet: _, signals, submissions, writes } = self;
        cancels.is_empty() && pauses.is_empty() && signals.is_empty() && submissions.is_empty() && writes.is_empty()
    }
}

/// A message that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The client's name for it, with the tenant and the agent that it is a name within where the run has several.
    #[serde(default)]
    pub client_key: Option<String>,
    /// The job that it was told.
    pub job: JobId,
}

/// What a client was told of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalAck {
    /// It, or one before it with the same key, ended the wait.
    Delivered,
    /// It waits for its wait.
    Kept,
}

/// A signal that was answered well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckedSignal {
    /// What the client was told.
    pub ack: SignalAck,
    /// The job.
    pub job: JobId,
    /// The wait it names.
    pub key: String,
    /// Hash of the canonical payload, where it is the one that counts.
    #[serde(default)]
    pub payload_hash: Option<Hash>,
}

/// A write that its author named, and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The name of its first event.
    pub event: EventId,
    /// The job.
    pub job: JobId,
    /// Whether its author was told nothing; else it was told that it is written.
    pub unknown: bool,
}
