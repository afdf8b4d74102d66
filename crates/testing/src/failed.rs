//! Why a test has failed.

use std::fmt;

use aetheris_runtime::OpError;
use aetheris_store::StoreError;

/// A failure as a story for people. Its `Debug` is its text, so that a test that returns it, or unwraps it,
/// shows it whole.
#[derive(Clone, PartialEq, Eq)]
pub struct Failed(String);

impl Failed {
    /// A failure of this text.
    #[must_use]
    pub fn new(story: impl Into<String>) -> Self {
        Self(story.into())
    }

    /// Its text.
    #[must_use]
    pub fn story(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

impl From<OpError> for Failed {
    fn from(error: OpError) -> Self {
        Self(error.to_string())
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}
