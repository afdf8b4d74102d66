//! What is met again with every look is logged once in a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use aetheris_core::limits;

/// The texts that were logged lately, and when: at most [`limits::REPEATS_KEPT_MAX`].
#[derive(Debug)]
pub struct Repeats(Mutex<BTreeMap<String, Instant>>);

impl Repeats {
    /// Nothing was logged yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Whether this was not logged within [`limits::REPEAT_AFTER`]; then it counts as logged now. Where too much was
    /// logged lately, nothing further is new.
    pub fn is_new(&self, text: String, now: Instant) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.contains_key(&text) || logged.len() >= limits::REPEATS_KEPT_MAX {
            logged.retain(|_, at| now.saturating_duration_since(*at) < limits::REPEAT_AFTER.to_std());
        }
        let new = !logged.contains_key(&text) && logged.len() < limits::REPEATS_KEPT_MAX;
        if new {
            logged.insert(text, now);
        }
        new
    }
}

impl Default for Repeats {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// Also of what is met in between all the time.
    #[test]
    fn a_text_is_new_once_in_a_while() {
        let (now, repeats) = (now(), Repeats::new());
        let minute = limits::REPEAT_AFTER.to_std().as_secs();
        for text in ["a", "b"] {
            let new = |second: &u64| repeats.is_new(text.to_owned(), now + Duration::from_secs(*second));
            let seconds: Vec<u64> = (0..=2 * minute).filter(new).collect();
            assert_eq!(seconds, [0, minute, 2 * minute]);
        }
    }

    #[test]
    fn further_texts_are_new_when_the_first_are_long_ago() {
        let (now, repeats) = (now(), Repeats::new());
        assert!((0..limits::REPEATS_KEPT_MAX).all(|n| repeats.is_new(format!("row {n}"), now)));
        assert!(!repeats.is_new("one more".to_owned(), now));
        assert!(repeats.is_new("one more".to_owned(), now + limits::REPEAT_AFTER.to_std()));
    }
}
