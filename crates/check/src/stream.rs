//! What the stored bytes of a job's event stream say of themselves, event by event: their places, their payloads, the chain, and
//! whether they are understood. The check of whole stores and `verify` of one job ask the same.

use std::fmt;

use aetheris_core::chain::Header;
use aetheris_core::event::{DecodeError, Recorded};
use aetheris_core::hash::Hash;
use aetheris_core::id::JobId;
use aetheris_store::EventRow;

/// What is wrong with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// It does not follow this event, which came before it.
    Gap(u64),
    /// Its payload does not have its hash.
    Payload,
    /// Its hash does not follow from its header and the event before.
    Chain,
    /// It is not understood, for this reason.
    Unreadable(String),
    /// It is understood, and would be written otherwise.
    Form,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap(before) => write!(f, "it follows event {before}"),
            Self::Payload => f.write_str("its payload does not have its hash"),
            Self::Chain => f.write_str("its hash does not follow from its header and the event before"),
            Self::Unreadable(why) => f.write_str(why),
            Self::Form => f.write_str("its payload is not in canonical form"),
        }
    }
}

/// A job's event stream, as far as it was read.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Events.
    pub count: u64,
    /// The hash of the last one.
    pub head: Hash,
    /// The place of the last one.
    pub seq: u64,
    job: JobId,
}

impl Stream {
    /// Before the first event.
    #[must_use]
    pub const fn new(job: JobId) -> Self {
        Self { count: 0, head: Hash::ZERO, seq: 0, job }
    }

    /// Takes in the next stored event, with what it is understood as. Returns everything wrong with it.
    pub fn take(&mut self, event: &EventRow, decoded: &Result<Recorded, DecodeError>) -> Vec<Flaw> {
        let mut flaws = Vec::new();
        if event.seq != self.seq.saturating_add(1) {
            flaws.push(Flaw::Gap(self.seq));
        }
        if Hash::of(&event.payload) != event.payload_hash {
            flaws.push(Flaw::Payload);
        }
        let header = Header {
            job: self.job,
            seq: event.seq,
            id: event.id,
            kind: event.kind,
            schema_version: event.schema_version,
            fence: event.fence,
            at: event.at,
            payload_hash: event.payload_hash,
        };
        if header.chain(&self.head) != event.hash {
            flaws.push(Flaw::Chain);
        }
        match decoded {
            Err(error) => flaws.push(Flaw::Unreadable(error.to_string())),
            Ok(recorded) if recorded.event.canonical() != event.payload => flaws.push(Flaw::Form),
            Ok(_) => {}
        }
        self.count += 1;
        self.head = event.hash;
        self.seq = event.seq;
        flaws
    }
}
