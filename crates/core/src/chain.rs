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

#[cfg(test)]
mod tests {

    use super::*;
    use crate::event::EventKind;

    fn header() -> Header {
        let event = EncodedEvent {
            id: EventId::from_u128(3),
            kind: EventKind::NodeStarted,
            schema_version: 4,
            payload: b"payload".to_vec(),
            payload_hash: Hash::of(b"payload"),
        };
        Header::of(JobId::from_u128(1), 2, &event, Fence { generation: 5, epoch: 6 }, Timestamp::from_micros(7))
    }

    #[test]
    fn a_header_is_what_its_event_says() {
        let expected = Header {
            job: JobId::from_u128(1),
            seq: 2,
            id: EventId::from_u128(3),
            kind: EventKind::NodeStarted.code(),
            schema_version: 4,
            fence: Fence { generation: 5, epoch: 6 },
            at: Timestamp::from_micros(7),
            payload_hash: Hash::of(b"payload"),
        };
        assert_eq!(header(), expected);
    }

    /// Stored chains must verify for ever: the bytes that go into the hash are written out once more.
    #[test]
    fn the_chain_is_the_hash_of_exactly_these_bytes() {
        let mut bytes = b"aetheris.event.1\0".to_vec();
        for number in [1u128.to_be_bytes().as_slice(), &2u64.to_be_bytes(), &3u128.to_be_bytes()] {
            bytes.extend_from_slice(number);
        }
        bytes.push(EventKind::NodeStarted.code());
        bytes.extend_from_slice(&4u16.to_be_bytes());
        bytes.extend_from_slice(&5u32.to_be_bytes());
        bytes.extend_from_slice(&6u32.to_be_bytes());
        bytes.extend_from_slice(&7i64.to_be_bytes());
        bytes.extend_from_slice(Hash::of(b"payload").as_bytes());
        bytes.extend_from_slice(Hash::of(b"previous").as_bytes());
        assert_eq!(header().chain(&Hash::of(b"previous")), Hash::of(&bytes));
    }

    #[test]
    fn every_field_and_the_event_before_change_the_chain() {
        let header = header();
        let changed = [
            Header { job: JobId::from_u128(9), ..header },
            Header { seq: 9, ..header },
            Header { id: EventId::from_u128(9), ..header },
            Header { kind: 9, ..header },
            Header { schema_version: 9, ..header },
            Header { fence: Fence { generation: 9, ..header.fence }, ..header },
            Header { fence: Fence { epoch: 9, ..header.fence }, ..header },
            Header { at: Timestamp::from_micros(9), ..header },
            Header { payload_hash: Hash::of(b"9"), ..header },
        ];
        let mut chains: std::collections::BTreeSet<Hash> = changed.iter().map(|h| h.chain(&Hash::ZERO)).collect();
        chains.insert(header.chain(&Hash::ZERO));
        chains.insert(header.chain(&Hash::of(b"other")));
        assert_eq!(chains.len(), changed.len() + 2);
    }
}
