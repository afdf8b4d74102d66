//! Retry policies and the durable back-off: a pure function of try, policy and one random number.

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::time::Span;

/// How the delay is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Anywhere between nothing and the full delay (the default: it spreads best).
    #[default]
    Full,
    /// Exactly the delay.
    None,
}

/// What a timeout counts as, where the tool's class leaves a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// A retryable failure (the default).
    #[default]
    Retry,
    /// A permanent failure.
    Fail,
}

/// When and how often a failed step is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Delay before the second try.
    pub backoff: Span,
    /// What each further delay is multiplied by; at least 1.
    pub factor: f64,
    /// How the delay is spread.
    pub jitter: Jitter,
    /// Tries in all, the first included; at least 1.
    pub max_attempts: u32,
    /// No delay is longer; also the most that a `Retry-After` is honoured for.
    pub max_backoff: Span,
    /// What a timeout counts as.
    pub on_timeout: OnTimeout,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            backoff: Span::from_millis(200),
            factor: 2.0,
            jitter: Jitter::Full,
            max_attempts: 3,
            max_backoff: Span::from_secs(30),
            on_timeout: OnTimeout::Retry,
        }
    }
}

impl RetryPolicy {
    /// Whether a step that has been tried `tries` times may be tried again.
    #[must_use]
    pub fn allows_another(&self, tries: u32) -> bool {
        tries < self.max_attempts.min(limits::RETRY_ATTEMPTS_MAX)
    }

    /// The delay after try number `tries` (1, 2, …). `random` spreads it; `retry_after` is what the
    /// other side asked for and is honoured up to [`RetryPolicy::max_backoff`].
    #[must_use]
    pub fn delay(&self, tries: u32, random: u64, retry_after: Option<Span>) -> Span {
        let cap = self.max_backoff.min(limits::BACKOFF_MAX);
        if let Some(asked) = retry_after {
            return asked.min(cap);
        }
        // Nothing times a factor that has grown beyond all doubles is no number, and would become the cap.
        if self.backoff == Span::ZERO {
            return Span::ZERO;
        }
        let exponent = i32::try_from(tries.saturating_sub(1)).unwrap_or(i32::MAX);
        #[expect(clippy::cast_precision_loss, reason = "a delay needs no exact microsecond")]
        let grown = self.backoff.micros() as f64 * self.factor.max(1.0).powi(exponent);
        #[expect(clippy::cast_precision_loss, reason = "a cap needs no exact microsecond")]
        let bounded = grown.min(cap.micros() as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the cap, not negative")]
        let full = bounded as u64;
        match self.jitter {
            Jitter::None => Span::from_micros(full),
            Jitter::Full => {
                let spread = (u128::from(full) * u128::from(random)) >> 64;
                Span::from_micros(u64::try_from(spread).unwrap_or(full))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_cap_and_jitter_stays_inside() {
        let policy = RetryPolicy { jitter: Jitter::None, ..RetryPolicy::default() };
        let delays: Vec<u64> = (1..=9).map(|n| policy.delay(n, 0, None).micros() / 1_000).collect();
        assert_eq!(delays, [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000]);
        let full = RetryPolicy::default();
        assert_eq!(full.delay(1, 0, None), Span::ZERO);
        assert!(full.delay(1, u64::MAX, None) <= Span::from_millis(200));
        assert_eq!(full.delay(u32::MAX, u64::MAX, None).micros(), 29_999_999);
    }

    #[test]
    fn no_back_off_stays_none_however_many_tries() {
        let policy =
            RetryPolicy { backoff: Span::ZERO, factor: 1000.0, jitter: Jitter::None, ..RetryPolicy::default() };
        assert_eq!(policy.delay(100, 0, None), Span::ZERO);
        assert_eq!(policy.delay(u32::MAX, 0, None), Span::ZERO);
    }

    #[test]
    fn retry_after_is_honoured_up_to_the_cap() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(1, 5, Some(Span::from_secs(3))), Span::from_secs(3));
        assert_eq!(policy.delay(1, 5, Some(Span::from_secs(3_000))), Span::from_secs(30));
    }

    #[test]
    fn attempts_count_the_first_try() {
        let policy = RetryPolicy { max_attempts: 2, ..RetryPolicy::default() };
        assert!(policy.allows_another(1));
        assert!(!policy.allows_another(2));
    }

    #[test]
    fn no_policy_goes_over_the_bounds_of_the_runtime() {
        let policy =
            RetryPolicy { max_attempts: u32::MAX, max_backoff: Span::from_secs(u64::MAX), ..RetryPolicy::default() };
        assert!(policy.allows_another(limits::RETRY_ATTEMPTS_MAX - 1));
        assert!(!policy.allows_another(limits::RETRY_ATTEMPTS_MAX));
        let asked = Some(Span::from_secs(u64::MAX));
        assert_eq!(policy.delay(1, 0, asked), limits::BACKOFF_MAX);
        let exact = RetryPolicy { jitter: Jitter::None, ..policy };
        assert_eq!(exact.delay(1_000, 0, None), limits::BACKOFF_MAX);
    }

    #[test]
    fn jitter_spreads_evenly_from_nothing_to_the_delay() {
        let policy = RetryPolicy { backoff: Span::from_micros(1_000), ..RetryPolicy::default() };
        let half = 1u64 << 63;
        assert_eq!(policy.delay(1, half, None), Span::from_micros(500));
        assert_eq!(policy.delay(2, half, None), Span::from_micros(1_000));
        assert_eq!(policy.delay(1, u64::MAX, None), Span::from_micros(999));
        let shrinking = RetryPolicy { factor: 0.5, jitter: Jitter::None, ..policy };
        assert_eq!(shrinking.delay(3, 0, None), Span::from_micros(1_000));
    }
}
