//! Identifiers: a type for each, so that two of them are never confused.
//!
//! Ids are 128 bits, shown as a prefix and 26 Crockford base-32 characters (`job_01J…`). Nothing here
//! makes randomness: an [`IdSource`] is given to whoever authors facts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Why a text is not an identifier of the asked kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind} id: expected `{prefix}_` and 26 characters of 0-9 A-Z without I, L, O, U")]
pub struct ParseIdError {
    text: String,
    kind: &'static str,
    prefix: &'static str,
}

/// Where new identifiers come from. Production uses time-ordered and random 128-bit values; a
/// simulator uses its seed.
pub trait IdSource: Send + Sync {
    /// A unique value that grows with time, for ids that stores sort by.
    fn ordered(&self) -> u128;
    /// A unique value that cannot be guessed.
    fn secret(&self) -> u128;
}

fn encode(value: u128, out: &mut String) {
    for shift in (0..26u32).rev() {
        let digit = (value >> (shift * 5)) & 31;
        out.push(char::from(ALPHABET[digit as usize]));
    }
}

fn decode(text: &str) -> Option<u128> {
    if text.len() != 26 {
        return None;
    }
    let mut value: u128 = 0;
    for (position, byte) in text.bytes().enumerate() {
        let digit = ALPHABET.iter().position(|&a| a == byte.to_ascii_uppercase())?;
        // 26 * 5 = 130 bits: the first character carries only three.
        if position == 0 && digit > 7 {
            return None;
        }
        value = (value << 5) | digit as u128;
    }
    Some(value)
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal, $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// From its 128 bits.
            #[must_use]
            pub const fn from_u128(value: u128) -> Self {
                Self(value)
            }

            /// Its 128 bits.
            #[must_use]
            pub const fn as_u128(self) -> u128 {
                self.0
            }

            /// Big-endian bytes, which sort like the id.
            #[must_use]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }

            /// From big-endian bytes; `None` unless there are exactly sixteen.
            #[must_use]
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(|b| Self(u128::from_be_bytes(b)))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = String::with_capacity($prefix.len() + 27);
                text.push_str($prefix);
                text.push('_');
                encode(self.0, &mut text);
                f.pad(&text)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                text.strip_prefix(concat!($prefix, "_"))
                    .and_then(decode)
                    .map(Self)
                    .ok_or_else(|| ParseIdError { text: text.to_owned(), kind: $kind, prefix: $prefix })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// One message being worked on.
    JobId = "job", "a job";
    /// One event, named by its author before it is written.
    EventId = "ev", "an event";
    /// The public, unguessable name of an epoch.
    AttemptId = "att", "an attempt";
    /// One permission to call a tool, named by its author before it is asked for.
    PermitId = "permit", "a permit";
    /// One running process; never used again.
    InstanceId = "inst", "an instance";
    /// One boot clock: a start of a machine, as a time namespace shows it.
    BootId = "boot", "a boot clock";
    /// One received signal.
    SignalId = "sig", "a signal";
    /// The idempotency key of a tool invocation, and the invocation's id in the ledger.
    IdempotencyKey = "key", "an invocation";
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a name as it is; checks belong to whoever accepts it from outside.
            #[must_use]
            pub fn new(name: impl Into<Arc<str>>) -> Self {
                Self(name.into())
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(name.into())
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    )*};
}

names! {
    /// A vertex of the plan, unique in it.
    NodeId;
    /// The name of an agent.
    AgentName;
    /// The name of a tool in an agent's profile.
    ToolName;
    /// A process that claims and executes.
    WorkerId;
    /// An ordered conversation with an agent.
    SessionId;
    /// Whose agents and jobs they are. A name of another tenant's is another name.
    TenantId;
}

/// The tenant of whatever names none: everything that came before there were tenants is its own.
impl Default for TenantId {
    fn default() -> Self {
        Self::from(Self::DEFAULT)
    }
}

impl TenantId {
    /// The name of the tenant that is always there.
    pub const DEFAULT: &str = "default";

    /// Whether it is the tenant of whatever names none: in events and states that one is left out.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.as_str() == Self::DEFAULT
    }
}

impl JobId {
    /// The id of the child job that a step asks for: a hash of job and path, behind the moment that its job's own id has. Nothing
    /// else is in it: whoever asks again, also on a database that was put back from before the step, asks for the same job, whose
    /// calls have the same keys. Lists and claims order jobs by their ids: a child stands with its job.
    #[must_use]
    pub fn of_child(job: Self, path: &crate::path::StepPath) -> Self {
        const RANDOM_BITS: u128 = (1 << 80) - 1;
        let mut input = b"aetheris.child.1\0".to_vec();
        input.extend_from_slice(&job.to_bytes());
        input.extend_from_slice(path.text().as_bytes());
        let digest = crate::hash::Hash::of(&input);
        let mut half = [0u8; 16];
        half.copy_from_slice(&digest.as_bytes()[..16]);
        let moment = job.as_u128() & !RANDOM_BITS;
        // As a UUID of version 7 has it.
        let version = 7 << 76;
        let variant = 2 << 62;
        let hash = u128::from_be_bytes(half) & RANDOM_BITS & !(15 << 76) & !(3 << 62);
        Self(moment | hash | version | variant)
    }
}

impl IdempotencyKey {
    /// The key of one call: a hash of job, step path and call ordinal (SPEC §5). It holds neither the
    /// attempt nor the arguments, so that a downstream system sees the same key after a crash.
    #[must_use]
    pub fn derive(job: JobId, path: &crate::path::StepPath, call: u32) -> Self {
        let path = path.text();
        let mut input = Vec::with_capacity(35 + path.len());
        input.extend_from_slice(b"aetheris.key.1\0");
        input.extend_from_slice(&job.to_bytes());
        input.extend_from_slice(&call.to_be_bytes());
        input.extend_from_slice(path.as_bytes());
        let digest = crate::hash::Hash::of(&input);
        let mut first = [0u8; 16];
        first.copy_from_slice(&digest.as_bytes()[..16]);
        Self(u128::from_be_bytes(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_form_and_sorts_like_it() {
        for value in [0, 1, 31, u128::MAX, u128::MAX / 3] {
            let id = JobId::from_u128(value);
            assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        }
        assert!(JobId::from_u128(5).to_string() < JobId::from_u128(77).to_string());
    }

    #[test]
    fn what_is_not_an_id_is_refused_with_its_text() {
        for text in ["", "job_", "ev_00000000000000000000000000", "job_Z0000000000000000000000000", "job_0"] {
            assert!(text.parse::<JobId>().unwrap_err().to_string().contains("26 characters"));
        }
    }

    #[test]
    fn a_key_depends_on_job_path_and_ordinal_only() {
        let job = JobId::from_u128(7);
        let key = IdempotencyKey::derive(job, &"a".into(), 0);
        assert_eq!(key, IdempotencyKey::derive(job, &"a".into(), 0));
        assert_ne!(key, IdempotencyKey::derive(job, &"a".into(), 1));
        for other in ["b", "a[0]", "a@1", "a/0.0"] {
            assert_ne!(key, IdempotencyKey::derive(job, &other.into(), 0), "{other}");
        }
        assert_ne!(key, IdempotencyKey::derive(JobId::from_u128(8), &"a".into(), 0));
    }

    #[test]
    fn ids_have_one_text_and_one_order_of_bytes() {
        let id = JobId::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
        assert_eq!(id.to_string(), "job_01081G81860W40J2GB1G6GW3RG");
        assert_eq!(format!("{id:?}"), id.to_string());
        assert_eq!("job_01081g81860w40j2gb1g6gw3rg".parse::<JobId>().unwrap(), id);
        assert_eq!(id.to_bytes()[..3], [1, 2, 3]);
        assert_eq!(JobId::from_slice(&id.to_bytes()), Some(id));
        assert_eq!(JobId::from_slice(&id.to_bytes()[1..]), None);
        assert_eq!(id.as_u128(), 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
        assert_eq!("job_7ZZZZZZZZZZZZZZZZZZZZZZZZZ".parse::<JobId>().unwrap(), JobId::from_u128(u128::MAX));
        for text in
            ["job_80000000000000000000000000", "job_0000000000000000000000000U", "job_000000000000000000000000000"]
        {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
        assert_eq!(serde_json::to_value(id).unwrap(), id.to_string());
        assert_eq!(serde_json::from_value::<JobId>(id.to_string().into()).unwrap(), id);
    }

    /// Downstream systems keep keys: they must come out the same in every later version.
    #[test]
    fn a_key_is_the_hash_of_exactly_these_bytes() {
        let mut bytes = b"aetheris.key.1\0".to_vec();
        bytes.extend_from_slice(&7u128.to_be_bytes());
        bytes.extend_from_slice(&2u32.to_be_bytes());
        bytes.extend_from_slice(b"node");
        let key = IdempotencyKey::derive(JobId::from_u128(7), &"node".into(), 2);
        assert_eq!(key.to_bytes(), crate::hash::Hash::of(&bytes).as_bytes()[..16]);
    }

    #[test]
    fn names_are_their_text() {
        let name = NodeId::new("node");
        assert_eq!((name.as_str(), name.to_string(), format!("{name:?}")), ("node", "node".into(), "node".into()));
        assert_eq!(format!("{name:>6}"), "  node");
        assert_eq!(std::collections::BTreeMap::from([(name, 1)]).get("node"), Some(&1));
    }
}
