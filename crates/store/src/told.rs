//! What was told of lately: whatever is met again with every look at a row is said once in a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use aetheris_core::limits;

/// What was told of lately, and when: at most [`limits::UNREADABLE_TOLD_MAX`] texts.
#[derive(Debug)]
pub struct Told(Mutex<BTreeMap<String, Instant>>);

impl Told {
    /// Nothing was told yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Whether this has not been told for [`limits::SWEEP_BACKOFF_MAX`]; then it counts as told now. Where too much was
    /// told lately, nothing further is new.
    pub fn is_new(&self, text: String, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.contains_key(&text) || told.len() >= limits::UNREADABLE_TOLD_MAX {
            told.retain(|_, at| now.saturating_duration_since(*at) < limits::SWEEP_BACKOFF_MAX.to_std());
        }
        let new = !told.contains_key(&text) && told.len() < limits::UNREADABLE_TOLD_MAX;
        if new {
            told.insert(text, now);
        }
        new
    }
}

impl Default for Told {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    #[test]
    fn a_text_is_told_once_in_a_while() {
        let (now, told) = (now(), Told::new());
        let later = now + limits::SWEEP_BACKOFF_MAX.to_std();
        let said = ["a", "b"].map(|text| [now, now, later].map(|at| told.is_new(text.to_owned(), at)));
        assert_eq!(said, [[true, false, true]; 2]);
    }

    #[test]
    fn further_texts_are_told_when_the_first_are_long_ago() {
        let (now, told) = (now(), Told::new());
        assert!((0..limits::UNREADABLE_TOLD_MAX).all(|n| told.is_new(format!("row {n}"), now)));
        assert!(!told.is_new("one more".to_owned(), now));
        assert!(told.is_new("one more".to_owned(), now + limits::SWEEP_BACKOFF_MAX.to_std()));
    }
}
