//! SHA-256 as a value.

use std::fmt;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A SHA-256 digest; shown as 64 hexadecimal characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// What a chain starts from.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// From a digest's own bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// From stored bytes; `None` unless there are exactly 32.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The digest's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A digest of bytes that come piece by piece.
#[derive(Debug, Clone, Default)]
pub struct Hashing(Sha256);

impl Hashing {
    /// The digest of what has come.
    #[must_use]
    pub fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

impl io::Write for Hashing {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.0.update(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a hash: expected 64 hexadecimal characters");
        // The digits are looked at here: the number parser below would take a sign for one.
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0u8; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_hash_is_sha_256_and_survives_its_text_form() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let hash = Hash::of(b"abc");
        assert_eq!((hash.to_string(), format!("{hash:?}")), (text.to_owned(), text.to_owned()));
        assert_eq!(text.parse::<Hash>().unwrap(), hash);
        assert_eq!(serde_json::from_value::<Hash>(serde_json::to_value(hash).unwrap()).unwrap(), hash);
        assert_eq!(Hash::from_slice(hash.as_bytes()), Some(hash));
        assert_eq!(Hash::from_slice(&hash.as_bytes()[1..]), None);
        assert_eq!(Hash::from_bytes([0; 32]), Hash::ZERO);
    }

    #[test]
    fn what_is_not_a_hash_is_refused() {
        for text in [String::new(), "0".repeat(63), "0".repeat(65), "g".repeat(64), "é".repeat(32)] {
            assert!(text.parse::<Hash>().unwrap_err().contains("64 hexadecimal"), "{text}");
        }
    }
}
