//! Values that templates ask for and nobody can compute again: a moment, and chance.

use serde::{Deserialize, Serialize};

use crate::path::StepPath;

/// A value that was drawn for a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drawn {
    /// The time of the event that records it, by the store's clock. A step has one.
    Now,
    /// A number from 0 up to, and not including, 1.
    Random(f64),
    /// A UUID, version 4, as it is written.
    Uuid(String),
}

/// What kind of value is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// [`Drawn::Now`].
    Now,
    /// [`Drawn::Random`].
    Random,
    /// [`Drawn::Uuid`].
    Uuid,
}

impl Draw {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Now, Self::Random, Self::Uuid];

    /// The function of templates that asks for it.
    #[must_use]
    pub const fn function(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Random => "random",
            Self::Uuid => "uuid",
        }
    }
}

impl Drawn {
    /// What kind it is.
    #[must_use]
    pub const fn draw(&self) -> Draw {
        match self {
            Self::Now => Draw::Now,
            Self::Random(_) => Draw::Random,
            Self::Uuid(_) => Draw::Uuid,
        }
    }

    /// A number made of chance.
    #[must_use]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "53 bits are exact in a double")]
    pub fn random(chance: u128) -> Self {
        let bits = (chance as u64) >> 11;
        Self::Random(bits as f64 / (1_u64 << 53) as f64)
    }

    /// A UUID made of chance (RFC 9562, version 4).
    #[must_use]
    pub fn uuid(chance: u128) -> Self {
        let bits = (chance & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hex[part]);
        Self::Uuid(parts.join("-"))
    }
}

/// A step was given values that nobody can compute again: every try of it has them, and so has whoever goes on with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueRecorded {
    /// The step.
    pub node: StepPath,
    /// In the order in which its templates ask for them.
    pub values: Vec<Drawn>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_says_its_version_and_a_number_is_below_one() {
        let uuid = |chance| match Drawn::uuid(chance) {
            Drawn::Uuid(text) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef), "01234567-89ab-4def-8123-456789abcdef");
        let random = |chance| match Drawn::random(chance) {
            Drawn::Random(number) => number,
            other => panic!("{other:?}"),
        };
        assert_eq!(random(0), 0.0);
        assert_eq!(random(1 << 63), 0.5);
        assert!(random(u128::MAX) < 1.0);
        for value in [Drawn::random(u128::MAX), Drawn::random(12_345 << 20), Drawn::Now, Drawn::uuid(7)] {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Drawn>(&text).unwrap(), value, "{text}");
        }
    }
}
