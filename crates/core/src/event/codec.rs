//! The stored form of events: a kind, a version of its schema, canonical bytes and their hash.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Event, EventKind};
use crate::hash::Hash;
use crate::id::EventId;
use crate::limits;

/// Rewrites a payload of one version as one of the next.
type Upcast = fn(&mut Map<String, Value>);

/// The steps from a kind's version to its next, where more than optional fields has changed. None has yet. A step that was
/// released is never changed and never removed: what was written is read for ever.
const UPCASTS: &[(EventKind, u16, Upcast)] = &[];

/// Why stored bytes are not an event that this build may fold.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The kind is of a later build, or damaged.
    #[error("the event kind {0} is unknown to this build; it was written by a newer one, or the row is damaged")]
    UnknownKind(u8),
    /// The schema version is of a later build.
    #[error(
        "{kind} has schema version {version}; this build reads 1 to {newest}: it was written by a newer one, or the row \
         is damaged",
        kind = .kind.as_str(),
        newest = .kind.schema_version()
    )]
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
        let kind = event.kind();
        Self { id, kind, schema_version: kind.schema_version(), payload_hash: Hash::of(&payload), payload }
    }

    /// Whether it exceeds the bound of one payload. The envelope of a bounded value may add a little.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.payload.len() > limits::PAYLOAD_BYTES_MAX + 4_096
    }
}

/// Reads a stored payload, of this build's version or of an older one.
///
/// # Errors
/// [`DecodeError`]; an event that is not understood is refused, never skipped.
pub fn decode(kind: u8, schema_version: u16, payload: &[u8]) -> Result<Event, DecodeError> {
    let kind = EventKind::from_code(kind).ok_or(DecodeError::UnknownKind(kind))?;
    if schema_version == 0 || schema_version > kind.schema_version() {
        return Err(DecodeError::UnknownVersion { kind, version: schema_version });
    }
    let unreadable = |source| DecodeError::Payload { kind, source };
    let payload = upcast(UPCASTS, kind, schema_version, payload).map_err(unreadable)?;
    Event::from_payload(kind, &payload).map_err(unreadable)
}

/// The payload as the newest version has it.
fn upcast<'a>(
    steps: &[(EventKind, u16, Upcast)],
    kind: EventKind,
    version: u16,
    payload: &'a [u8],
) -> Result<Cow<'a, [u8]>, serde_json::Error> {
    let mut due = steps.iter().filter(|(of, from, _)| *of == kind && *from >= version).peekable();
    if due.peek().is_none() {
        return Ok(Cow::Borrowed(payload));
    }
    let mut fields: Map<String, Value> = serde_json::from_slice(payload)?;
    for (_, _, step) in due {
        step(&mut fields);
    }
    serde_json::to_vec(&fields).map(Cow::Owned)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::event::{JobCancelled, TimerFired, TimerId};

    #[test]
    fn an_event_survives_its_stored_form() {
        let event = Event::from(TimerFired { timer: TimerId::Deadline });
        let encoded = EncodedEvent::new(EventId::from_u128(1), &event);
        let version = EventKind::TimerFired.schema_version();
        assert_eq!((encoded.kind, encoded.schema_version), (EventKind::TimerFired, version));
        assert_eq!(
            (encoded.payload.as_slice(), encoded.payload_hash),
            (br#"{"timer":"deadline"}"#.as_slice(), Hash::of(&encoded.payload))
        );
        assert_eq!(decode(encoded.kind.code(), version, &encoded.payload).unwrap(), event);
    }

    #[test]
    fn what_a_later_build_wrote_is_refused() {
        let (cancelled, newest) = (EventKind::JobCancelled.code(), EventKind::JobCancelled.schema_version());
        assert!(decode(cancelled, newest, b"{}").is_ok());
        assert!(matches!(decode(0, newest, b"{}"), Err(DecodeError::UnknownKind(0))));
        for version in [0, newest + 1, u16::MAX] {
            assert!(matches!(decode(cancelled, version, b"{}"), Err(DecodeError::UnknownVersion { .. })));
        }
        assert!(matches!(decode(cancelled, newest, b"{\"x\":1}"), Err(DecodeError::Payload { .. })));
    }

    #[test]
    fn an_older_payload_takes_every_step_from_its_version_on() {
        let steps: &[(EventKind, u16, Upcast)] = &[
            (EventKind::TimerFired, 1, |_| unreachable!("a step of another kind")),
            (EventKind::JobCancelled, 1, |fields| drop(fields.insert("steps".to_owned(), Value::from("1")))),
            (EventKind::JobCancelled, 2, |fields| drop(fields.insert("last".to_owned(), Value::from(2)))),
        ];
        let as_of = |version| upcast(steps, EventKind::JobCancelled, version, b"{\"kept\":true}").unwrap().into_owned();
        assert_eq!(as_of(1), br#"{"kept":true,"last":2,"steps":"1"}"#);
        assert_eq!(as_of(2), br#"{"kept":true,"last":2}"#);
        assert_eq!(as_of(3), br#"{"kept":true}"#);
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
