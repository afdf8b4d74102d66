//! The stored form of events: a kind, a version of its schema, canonical bytes and their hash.

use super::{Event, EventKind};
use crate::hash::Hash;
use crate::id::EventId;
use crate::limits;

/// The schema version that this build writes for every kind.
pub const SCHEMA_VERSION: u16 = 1;

/// Why stored bytes are not an event that this build may fold.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The kind is of a later build, or damaged.
    #[error("the event kind {0} is unknown to this build; it was written by a newer one, or the row is damaged")]
    UnknownKind(u8),
    /// The schema version is of a later build.
    #[error("{kind} has schema version {version}; this build reads up to {SCHEMA_VERSION}", kind = .kind.as_str())]
    UnknownVersion {
        /// The kind.
        kind: EventKind,
        /// The version found.
        version: u16,
    },
    /// The bytes are not such a payload.
    #[error("the payload of {kind} cannot be read: {source}", kind = .kind.as_str())]
    Payload {
        /// The kind.
        kind: EventKind,
        /// What the parser says.
        source: serde_json::Error,
    },
}

/// A fact ready to be written: everything that its author knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedEvent {
    /// The author's name for it.
    pub id: EventId,
    /// Its kind.
    pub kind: EventKind,
    /// The version of its payload's schema.
    pub schema_version: u16,
    /// The payload's canonical bytes.
    pub payload: Vec<u8>,
    /// Their hash.
    pub payload_hash: Hash,
}

impl EncodedEvent {
    /// Encodes an event under its author's name for it.
    #[must_use]
    pub fn new(id: EventId, event: &Event) -> Self {
        let payload = event.canonical();
        Self { id, kind: event.kind(), schema_version: SCHEMA_VERSION, payload_hash: Hash::of(&payload), payload }
    }

    /// Whether it exceeds the bound of one payload. The envelope of a bounded value may add a little.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.payload.len() > limits::PAYLOAD_BYTES_MAX + 4_096
    }
}

/// Reads a stored payload.
///
/// # Errors
/// [`DecodeError`]; an event that is not understood is refused, never skipped.
pub fn decode(kind: u8, schema_version: u16, payload: &[u8]) -> Result<Event, DecodeError> {
    let kind = EventKind::from_code(kind).ok_or(DecodeError::UnknownKind(kind))?;
    if schema_version != SCHEMA_VERSION {
        return Err(DecodeError::UnknownVersion { kind, version: schema_version });
    }
    Event::from_payload(kind, payload).map_err(|source| DecodeError::Payload { kind, source })
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::event::{JobCancelled, TimerFired, TimerId};

    #[test]
    fn an_event_survives_its_stored_form() {
        let event = Event::from(TimerFired { timer: TimerId::Deadline });
        let encoded = EncodedEvent::new(EventId::from_u128(1), &event);
        assert_eq!((encoded.kind, encoded.schema_version), (EventKind::TimerFired, SCHEMA_VERSION));
        assert_eq!(
            (encoded.payload.as_slice(), encoded.payload_hash),
            (br#"{"timer":"deadline"}"#.as_slice(), Hash::of(&encoded.payload))
        );
        assert_eq!(decode(encoded.kind.code(), SCHEMA_VERSION, &encoded.payload).unwrap(), event);
    }

    #[test]
    fn what_a_later_build_wrote_is_refused() {
        let cancelled = EventKind::JobCancelled.code();
        assert!(decode(cancelled, SCHEMA_VERSION, b"{}").is_ok());
        assert!(matches!(decode(0, SCHEMA_VERSION, b"{}"), Err(DecodeError::UnknownKind(0))));
        for version in [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1] {
            assert!(matches!(decode(cancelled, version, b"{}"), Err(DecodeError::UnknownVersion { .. })));
        }
        assert!(matches!(decode(cancelled, SCHEMA_VERSION, b"{\"x\":1}"), Err(DecodeError::Payload { .. })));
    }

    #[test]
    fn a_payload_is_bounded_with_its_envelope() {
        let mut encoded = EncodedEvent::new(EventId::from_u128(1), &JobCancelled {}.into());
        encoded.payload = vec![0; limits::PAYLOAD_BYTES_MAX + 4_096];
        assert!(!encoded.is_too_large());
        encoded.payload.push(0);
        assert!(encoded.is_too_large());
    }
}
