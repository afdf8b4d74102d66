//! How often a provider is asked: what the configuration allows, and what the provider has said that it will take. A question
//! that has to wait has not left, and is nobody's try.
//!
//! What the configuration allows is spread over the minute: at most a sixth of it at once. What a provider says of its own
//! limits is taken as a bucket that fills evenly, from what is left now to all of it at its reset.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::told::{Left, Told};

/// What the limits are per.
const MINUTE: Duration = Duration::from_secs(60);
/// How much of a minute's worth may leave at once.
const BURST: Duration = Duration::from_secs(10);
/// Longest wait that a provider is believed.
const WAIT_MAX: Duration = Duration::from_secs(3_600);
/// Models of one provider that are told apart; of more, those that are idle are forgotten.
const MODELS_MAX: usize = 1_024;

/// The limits of the configuration, for each model of a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests in a minute; any number without one.
    pub requests_per_minute: Option<u32>,
    /// Tokens of questions and answers in a minute; any number without one.
    pub tokens_per_minute: Option<u32>,
}

/// The rates of a provider's models.
#[derive(Debug)]
pub(super) struct Rates {
    limits: RateLimits,
    models: Mutex<BTreeMap<String, Rate>>,
}

/// How often one model is asked.
#[derive(Debug)]
struct Rate {
    /// Nothing leaves before: the provider has said so.
    closed_until: Instant,
    /// Of those that wait, the last one was told to come back then.
    promised: Instant,
    requests: Bucket,
    told_requests: Option<Filling>,
    told_tokens: Option<Filling>,
    tokens: Bucket,
}

impl Rate {
    fn new(now: Instant) -> Self {
        let full = || Bucket(now);
        let (requests, tokens) = (full(), full());
        Self { closed_until: now, promised: now, requests, told_requests: None, told_tokens: None, tokens }
    }
}

impl Rates {
    pub(super) fn new(limits: RateLimits) -> Self {
        Self { limits, models: Mutex::default() }
    }

    /// Leave for one question of about so many tokens, or how long it has to wait.
    pub(super) fn leave(&self, model: &str, tokens: u64, now: Instant) -> Result<(), Duration> {
        let mut models = self.models();
        let rate = rate_of(&mut models, model, now);
        let [requests, per_token] = self.costs();
        let (request, of_tokens) = (requests.unwrap_or_default(), times(per_token.unwrap_or_default(), tokens));
        let told =
            |filling: &Option<Filling>, count| filling.as_ref().map_or(Duration::ZERO, |told| told.wait(count, now));
        let waits = [
            rate.closed_until.saturating_duration_since(now),
            rate.requests.wait(request, now),
            rate.tokens.wait(of_tokens, now),
            told(&rate.told_requests, 1),
            told(&rate.told_tokens, tokens),
        ];
        let wait = waits.into_iter().max().unwrap_or_default();
        if wait.is_zero() {
            rate.requests.take(request, now);
            rate.tokens.take(of_tokens, now);
            rate.told_requests.iter_mut().for_each(|told| told.take(1));
            rate.told_tokens.iter_mut().for_each(|told| told.take(tokens));
            return Ok(());
        }
        // Those that wait come back one after the other, not all at once.
        let behind = if rate.promised > now { rate.promised + request.max(of_tokens) } else { now };
        rate.promised = behind.max(now + wait).min(now + WAIT_MAX);
        Err(rate.promised.saturating_duration_since(now))
    }

    /// What an answer has used, of which so many tokens were reckoned with.
    pub(super) fn used(&self, model: &str, reckoned: u64, used: u64, now: Instant) {
        let Some(per_token) = self.costs()[1] else { return };
        let mut models = self.models();
        let rate = rate_of(&mut models, model, now);
        rate.tokens.correct(times(per_token, reckoned), times(per_token, used));
    }

    /// What the provider has said of its limits beside an answer.
    pub(super) fn told(&self, model: &str, told: &Told, now: Instant) {
        if *told == Told::default() {
            return;
        }
        let mut models = self.models();
        let rate = rate_of(&mut models, model, now);
        let filling = |left: Left| Filling { at: now, left };
        rate.told_requests = told.requests.map(filling).or(rate.told_requests.take());
        rate.told_tokens = told.tokens.map(filling).or(rate.told_tokens.take());
    }

    /// The provider takes nothing for so long.
    pub(super) fn close(&self, model: &str, wait: Duration, now: Instant) {
        let mut models = self.models();
        let rate = rate_of(&mut models, model, now);
        rate.closed_until = rate.closed_until.max(now + wait.min(WAIT_MAX));
    }

    /// The time that one request, and one token, takes of a minute.
    fn costs(&self) -> [Option<Duration>; 2] {
        let RateLimits { requests_per_minute, tokens_per_minute } = self.limits;
        [requests_per_minute, tokens_per_minute].map(|limit| limit.map(|limit| MINUTE / limit.max(1)))
    }

    fn models(&self) -> MutexGuard<'_, BTreeMap<String, Rate>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rate_of<'m>(models: &'m mut BTreeMap<String, Rate>, model: &str, now: Instant) -> &'m mut Rate {
    if models.len() >= MODELS_MAX && !models.contains_key(model) {
        models.retain(|_, rate| {
            rate.closed_until > now || rate.promised > now || rate.requests.0 > now || rate.tokens.0 > now
        });
        if models.len() >= MODELS_MAX {
            models.pop_first();
        }
    }
    models.entry(model.to_owned()).or_insert_with(|| Rate::new(now))
}

fn times(cost: Duration, count: u64) -> Duration {
    let nanos = cost.as_nanos().saturating_mul(count.into());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(WAIT_MAX)
}

/// A limit of the configuration, as the moment at which all that has left is paid for.
#[derive(Debug, Clone, Copy)]
struct Bucket(Instant);

impl Bucket {
    /// How long something of this cost has to wait. What costs more than may leave at once leaves when nothing is owed.
    fn wait(self, cost: Duration, now: Instant) -> Duration {
        if cost.is_zero() {
            return Duration::ZERO;
        }
        let owed = self.0.saturating_duration_since(now);
        (owed + cost.min(BURST)).saturating_sub(BURST)
    }

    fn take(&mut self, cost: Duration, now: Instant) {
        self.0 = self.0.max(now) + cost;
    }

    /// What was reckoned with is given back, and what was used is taken.
    fn correct(&mut self, reckoned: Duration, used: Duration) {
        self.0 = if used > reckoned { self.0 + (used - reckoned) } else { self.0 - (reckoned - used) };
    }
}

/// What a provider has said of a limit, and when.
#[derive(Debug, Clone, Copy)]
struct Filling {
    at: Instant,
    left: Left,
}

impl Filling {
    /// How long so many have to wait: until as many are left, or all where there are never as many.
    fn wait(&self, count: u64, now: Instant) -> Duration {
        let Left { limit, remaining, reset } = self.left;
        let (reset, passed) = (reset.min(WAIT_MAX), now.saturating_duration_since(self.at));
        if passed >= reset || remaining >= count.min(limit) {
            return Duration::ZERO;
        }
        let (missing, all) = (count.min(limit) - remaining, limit.saturating_sub(remaining).max(1));
        let until = reset.as_nanos().saturating_mul(missing.into()) / u128::from(all);
        Duration::from_nanos(u64::try_from(until).unwrap_or(u64::MAX)).saturating_sub(passed)
    }

    fn take(&mut self, count: u64) {
        self.left.remaining = self.left.remaining.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rates(requests: Option<u32>, tokens: Option<u32>) -> (Rates, Instant) {
        (Rates::new(RateLimits { requests_per_minute: requests, tokens_per_minute: tokens }), Instant::now())
    }

    #[test]
    fn a_sixth_leaves_at_once_and_then_one_after_the_other() {
        let (rates, start) = rates(Some(60), None);
        for _ in 0..10 {
            assert_eq!(rates.leave("m", 0, start), Ok(()));
        }
        assert_eq!(rates.leave("m", 0, start), Err(SECOND));
        assert_eq!(rates.leave("n", 0, start), Ok(()), "another model has its own rate");
        // Those that wait are told to come one after the other.
        assert_eq!(rates.leave("m", 0, start), Err(2 * SECOND));
        assert_eq!(rates.leave("m", 0, start + SECOND), Ok(()));
        // In any minute from then on as many leave as are allowed.
        let left = (1..=60).filter(|second| rates.leave("m", 0, start + (*second + 1) * SECOND).is_ok()).count();
        assert_eq!(left, 60);
    }

    #[test]
    fn tokens_are_reckoned_with_and_then_counted() {
        let (rates, start) = rates(None, Some(6_000));
        assert_eq!(rates.leave("m", 900, start), Ok(()));
        assert_eq!(rates.leave("m", 200, start), Err(SECOND));
        rates.used("m", 900, 500, start);
        assert_eq!(rates.leave("m", 200, start), Ok(()));
        rates.used("m", 200, 1_200, start);
        assert!(rates.leave("m", 1, start).is_err());
        // What is larger than all that may leave at once leaves alone.
        assert_eq!(rates.leave("m", 50_000, start + 17 * SECOND), Ok(()));
        assert!(rates.leave("m", 1, start + 300 * SECOND).is_err());
    }

    #[test]
    fn without_limits_nothing_waits_and_what_a_provider_closes_opens_again() {
        let (rates, start) = rates(None, None);
        assert!((0..10_000).all(|_| rates.leave("m", 1_000_000, start).is_ok()));
        rates.close("m", 5 * SECOND, start);
        rates.close("m", SECOND, start);
        assert_eq!(rates.leave("m", 1, start), Err(5 * SECOND));
        assert_eq!(rates.leave("m", 1, start + 5 * SECOND), Ok(()));
        rates.close("m", Duration::MAX, start);
        assert_eq!(rates.leave("m", 1, start + WAIT_MAX), Ok(()), "nobody is believed for ever");
    }

    #[test]
    fn what_a_provider_has_left_fills_evenly() {
        let (rates, start) = rates(None, None);
        let left = |limit, remaining, reset| Some(Left { limit, remaining, reset });
        rates.told("m", &Told { requests: left(60, 1, 59 * SECOND), tokens: None }, start);
        assert_eq!(rates.leave("m", 1, start), Ok(()), "one was left");
        assert_eq!(rates.leave("m", 1, start).unwrap_err().as_millis(), 983);
        assert_eq!(rates.leave("m", 1, start + SECOND), Ok(()));
        rates.told("m", &Told { requests: left(60, 60, SECOND), tokens: left(1_000, 0, 10 * SECOND) }, start);
        assert_eq!(rates.leave("m", 500, start), Err(5 * SECOND));
        assert_eq!(rates.leave("m", 5_000, start + 10 * SECOND), Ok(()), "all that there ever is");
    }

    #[test]
    fn models_that_are_idle_are_forgotten() {
        let (rates, start) = rates(Some(1), None);
        for model in 0..MODELS_MAX + 5 {
            assert_eq!(rates.leave(&model.to_string(), 1, start), Ok(()));
        }
        assert_eq!(rates.models().len(), MODELS_MAX);
        let later = start + 2 * MINUTE;
        assert_eq!(rates.leave("new", 1, later), Ok(()));
        assert_eq!(rates.models().len(), 1);
    }
}
