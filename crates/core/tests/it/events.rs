//! The stored form of events.

use aetheris_core::event::{EncodedEvent, EventKind, codec};
use aetheris_core::id::EventId;
use aetheris_core::json::{Json, to_canonical};
use proptest::prelude::*;

use crate::arbitrary::event;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::CASES))]

    /// Struct fields stand in alphabetical order: writing a payload gives the canonical bytes of its value.
    #[test]
    fn payloads_are_canonical_and_survive_their_stored_form(event in event()) {
        let bytes = event.canonical();
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        prop_assert_eq!(String::from_utf8(to_canonical(&Json::new(value))).unwrap(), String::from_utf8(bytes).unwrap());
        let encoded = EncodedEvent::new(EventId::from_u128(1), &event);
        let back = codec::decode(encoded.kind.code(), encoded.schema_version, &encoded.payload).unwrap();
        prop_assert_eq!(back, event);
    }

    /// Whatever bytes stand in a row, they are understood or refused.
    #[test]
    fn decoding_refuses_and_never_panics(kind in any::<u8>(), version in 0u16..3, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _refused_or_read = codec::decode(kind, version, &bytes);
    }
}

#[test]
fn kinds_have_codes_and_names_of_their_own() {
    let codes: std::collections::BTreeSet<u8> = EventKind::ALL.iter().map(|kind| kind.code()).collect();
    let names: std::collections::BTreeSet<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!((codes.len(), names.len()), (EventKind::ALL.len(), EventKind::ALL.len()));
    for kind in EventKind::ALL {
        assert_eq!(EventKind::from_code(kind.code()), Some(*kind));
    }
}

#[test]
fn an_unknown_field_is_refused_and_not_skipped() {
    let payload = br#"{"node":"a","reason":"condition","surprise":1}"#;
    assert!(codec::decode(EventKind::NodeSkipped.code(), 1, payload).is_err());
}
