//! What a sweep remembers of rows that failed: until when each is left alone.

use std::collections::BTreeMap;
use std::time::Duration;

use aetheris_core::limits;

/// Rows that failed, by what names them.
#[derive(Debug)]
pub(crate) struct Backoff<K: Ord> {
    rows: BTreeMap<K, Row>,
}

#[derive(Debug)]
struct Row {
    tries: u32,
    until: Duration,
}

impl<K: Ord> Default for Backoff<K> {
    fn default() -> Self {
        Self { rows: BTreeMap::new() }
    }
}

impl<K: Ord> Backoff<K> {
    /// Whether a row may be tried at this moment of the boot clock.
    pub(crate) fn may_try(&self, key: &K, now: Duration) -> bool {
        self.rows.get(key).is_none_or(|row| row.until <= now)
    }

    /// It failed: it is left alone for a second, then twice as long each time. Whether it was the first time.
    /// Beyond the bound nothing more is remembered, and the row is tried at every pass.
    pub(crate) fn failed(&mut self, key: K, now: Duration) -> bool {
        if !self.rows.contains_key(&key) && self.rows.len() >= limits::SWEEP_FAILED_MAX {
            return false;
        }
        let row = self.rows.entry(key).or_insert(Row { tries: 0, until: now });
        let pause = limits::SWEEP_BACKOFF.to_std().saturating_mul(1 << row.tries.min(16));
        row.until = now + pause.min(limits::SWEEP_BACKOFF_MAX.to_std());
        row.tries = row.tries.saturating_add(1);
        row.tries == 1
    }

    /// It worked, or somebody else has done it.
    pub(crate) fn worked(&mut self, key: &K) {
        self.rows.remove(key);
    }

    /// Forgets rows that were due to be tried and did not come up any more: they are done, or gone.
    pub(crate) fn forget_absent(&mut self, now: Duration) {
        let long = limits::SWEEP_BACKOFF_MAX.to_std();
        self.rows.retain(|_, row| row.until + long >= now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_fails_is_tried_less_and_less_often_and_at_once_when_it_has_worked() {
        let (mut backoff, mut now, mut pauses) = (Backoff::default(), Duration::from_secs(100), Vec::new());
        assert!(backoff.may_try(&"a", now));
        for round in 0..8 {
            assert_eq!(backoff.failed("a", now), round == 0);
            let before = now;
            while !backoff.may_try(&"a", now) {
                now += Duration::from_millis(500);
            }
            pauses.push((now - before).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(backoff.may_try(&"b", now));
        backoff.failed("a", now);
        backoff.worked(&"a");
        assert!(backoff.may_try(&"a", now));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten() {
        let (mut backoff, now) = (Backoff::default(), Duration::ZERO);
        for row in 0..limits::SWEEP_FAILED_MAX + 5 {
            backoff.failed(row, now);
        }
        assert_eq!(backoff.rows.len(), limits::SWEEP_FAILED_MAX);
        backoff.forget_absent(now + Duration::from_secs(30));
        assert_eq!(backoff.rows.len(), limits::SWEEP_FAILED_MAX);
        backoff.forget_absent(now + Duration::from_secs(62));
        assert_eq!(backoff.rows.len(), 0);
    }
}
