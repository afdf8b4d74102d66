//! The hash chain over a job's events (SPEC §3).
//!
//! `hash = H(header fields, payload_hash, prev_hash)`. The payload enters by its hash alone, so that
//! it can later be erased or re-encrypted while the chain still verifies. Where a row stands right
//! before it, `prev_hash` is that row's `hash`; it is not stored a second time.

use sha2::{Digest, Sha256};

use crate::event::EncodedEvent;
use crate::hash::Hash;
use crate::id::{EventId, JobId};
use crate::lease::Fence;
use crate::time::Timestamp;

/// The header fields of one event row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The job.
    pub job: JobId,
    /// Its place in the job's stream.
    pub seq: u64,
    /// Its author's name for it.
    pub id: EventId,
    /// The number of its kind.
    pub kind: u8,
    /// The version of its payload's schema.
    pub schema_version: u16,
    /// The fence of its author.
    pub fence: Fence,
    /// The store's time of the write.
    pub at: Timestamp,
    /// Hash of the canonical payload.
    pub payload_hash: Hash,
}

impl Header {
    /// The header that a store gives to an encoded event.
    #[must_use]
    pub fn of(job: JobId, seq: u64, event: &EncodedEvent, fence: Fence, at: Timestamp) -> Self {
        Self {
            job,
            seq,
            id: event.id,
            kind: event.kind.code(),
            schema_version: event.schema_version,
            fence,
            at,
            payload_hash: event.payload_hash,
        }
    }

    /// The chain up to and with this event, given the chain before it ([`Hash::ZERO`] at the start).
    #[must_use]
    pub fn chain(&self, previous: &Hash) -> Hash {
        let mut hasher = Sha256::new();
        hasher.update(b"aetheris.event.1\0");
        hasher.update(self.job.to_bytes());
        hasher.update(self.seq.to_be_bytes());
        hasher.update(self.id.to_bytes());
        hasher.update([self.kind]);
        hasher.update(self.schema_version.to_be_bytes());
        hasher.update(self.fence.generation.to_be_bytes());
        hasher.update(self.fence.epoch.to_be_bytes());
        hasher.update(self.at.micros().to_be_bytes());
        hasher.update(self.payload_hash.as_bytes());
        hasher.update(previous.as_bytes());
        Hash::from_bytes(hasher.finalize().into())
    }
}
