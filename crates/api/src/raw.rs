//! Values that are passed on exactly as they came.

use aetheris_core::json::{Json, JsonError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Any JSON value, as its text: it is read within the limits of the core, which keeps integers exact,
/// only when it is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(Box<RawValue>);

impl Raw {
    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The value, if it is within the limits.
    ///
    /// # Errors
    /// [`JsonError`] says which limit it breaks.
    pub fn parse(&self) -> Result<Json, JsonError> {
        Json::parse(self.text().as_bytes())
    }

    /// From a value.
    #[must_use]
    pub fn new(value: &Json) -> Self {
        Self::from_bytes(&value.canonical())
    }

    /// From bytes as they are stored; `null` where they are not JSON.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).map(Self).unwrap_or_default()
    }
}

impl Default for Raw {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned())
    }
}

impl From<&Json> for Raw {
    fn from(value: &Json) -> Self {
        Self::new(value)
    }
}

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_every_digit_and_too_large_ones_are_refused() {
        let raw: Raw = serde_json::from_str("{\"n\": 18446744073709551615}").unwrap();
        assert_eq!(raw.parse().unwrap().to_string(), "{\"n\":18446744073709551615}");
        let raw: Raw = serde_json::from_str("18446744073709551616").unwrap();
        assert!(matches!(raw.parse(), Err(JsonError::Number(_))));
    }
}
