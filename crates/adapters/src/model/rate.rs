//! How often a provider is asked: what the configuration allows, and what the provider has said that it will take. A question
//! that has to wait has not left, and is nobody's try.
//!
//! What the configuration allows holds in every minute, at most a seventh of it at once. What a provider says of its own
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
/// Longest time after which a question is asked about again that waits for a limit of ours: what was reckoned with may have been
/// corrected by then.
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(30);
/// Between two questions that come back, where nothing says how far apart they may be.
const APART_MIN: Duration = Duration::from_millis(100);
/// Models of one provider that are told apart; of more, the one that may be asked first is forgotten.
const MODELS_MAX: usize = 1_024;

/// The limits of the configuration, for each model of a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests in a minute; any number without one.
    pub requests_per_minute: Option<u32>,
    /// Tokens of questions and answers in a minute; any number without one.
    pub tokens_per_minute: Option<u32>,
}

/// What a question is reckoned to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reckoned {
    /// Tokens of the answer, at most.
    pub(super) answer: u64,
    /// Tokens of the question.
    pub(super) prompt: u64,
}

impl Reckoned {
    const fn total(self) -> u64 {
        self.prompt.saturating_add(self.answer)
    }
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
    requests: Bucket,
    told_requests: Option<Filling>,
    told_tokens: Option<Filling>,
    tokens: Bucket,
    /// Questions that were told to wait since one left: about as many are before the next that is.
    waiting: u32,
}

impl Rate {
    fn new(now: Instant) -> Self {
        let full = || Bucket(now);
        let (requests, tokens) = (full(), full());
        Self { closed_until: now, requests, told_requests: None, told_tokens: None, tokens, waiting: 0 }
    }

    /// When it may be asked again for all that is known.
    fn free_at(&self) -> Instant {
        self.closed_until.max(self.requests.0).max(self.tokens.0)
    }

    /// How long one more question waits behind those that do: they come back one after the other, not all at once.
    fn behind(&mut self, wait: Duration, apart: Duration) -> Duration {
        let spread = apart.max(APART_MIN).saturating_mul(self.waiting).min(LOOK_AGAIN_MAX);
        self.waiting = self.waiting.saturating_add(1);
        wait + spread
    }
}

/// What a question is reckoned with until it is known what it has used: also where its asker goes away.
#[derive(Debug)]
pub(super) struct Leave<'r> {
    model: &'r str,
    rates: &'r Rates,
    reckoned: Reckoned,
    used: u64,
}

impl Leave<'_> {
    /// So many tokens were used.
    pub(super) fn used(mut self, tokens: u64) {
        self.used = tokens;
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.rates.correct(self.model, self.reckoned.total(), self.used, Instant::now());
    }
}

impl Rates {
    pub(super) fn new(limits: RateLimits) -> Self {
        Self { limits, models: Mutex::default() }
    }

    /// Leave for one question, or how long it has to wait. Nobody waits in line for another: whoever asks when it is free leaves.
    pub(super) fn leave<'r>(&'r self, model: &'r str, reckoned: Reckoned, now: Instant) -> Result<Leave<'r>, Duration> {
        let mut models = self.models();
        let rate = rate_of(&mut models, model, now);
        let [requests, per_token] = self.costs();
        let (request, tokens) = (requests.unwrap_or_default(), times(per_token.unwrap_or_default(), reckoned.total()));
        rate.told_requests.iter_mut().for_each(|told| told.doubt(1, now));
        rate.told_tokens.iter_mut().for_each(|told| told.doubt(reckoned.prompt, now));
        let told =
            |filling: &Option<Filling>, count| filling.as_ref().map_or(Duration::ZERO, |told| told.wait(count, now));
        let own = rate.requests.wait(request, now).max(rate.tokens.wait(tokens, now)).min(LOOK_AGAIN_MAX);
        let waits = [
            rate.closed_until.saturating_duration_since(now),
            own,
            told(&rate.told_requests, 1),
            told(&rate.told_tokens, reckoned.prompt),
        ];
        let wait = waits.into_iter().max().unwrap_or_default();
        if !wait.is_zero() {
            return Err(rate.behind(wait, request));
        }
        rate.waiting = 0;
        rate.requests.take(request, now);
        rate.tokens.take(tokens, now);
        rate.told_requests.iter_mut().for_each(|told| told.take(1));
        rate.told_tokens.iter_mut().for_each(|told| told.take(reckoned.prompt));
        // What has left and is not heard of again has used its question.
        Ok(Leave { model, rates: self, reckoned, used: reckoned.prompt })
    }

    fn correct(&self, model: &str, reckoned: u64, used: u64, now: Instant) {
        let Some(per_token) = self.costs()[1] else { return };
        let mut models = self.models();
        rate_of(&mut models, model, now).tokens.correct(times(per_token, reckoned), times(per_token, used));
    }

    /// What the provider has said of its limits beside an answer.
    pub(super) fn told(&self, model: &str, told: &Told, now: Instant) {
        if *told == Told::default() {
            return;
        }
        let mut models = self.models();
        let rate = rate_of(&mut models, model, now);
        let filling = |left: Left| Filling { at: now, left, taken: 0 };
        rate.told_requests = told.requests.map(filling).or(rate.told_requests.take());
        rate.told_tokens = told.tokens.map(filling).or(rate.told_tokens.take());
    }

    /// The provider takes nothing for so long: how long this question has to wait.
    pub(super) fn close(&self, model: &str, wait: Duration, now: Instant) -> Duration {
        let wait = wait.min(WAIT_MAX);
        let mut models = self.models();
        let rate = rate_of(&mut models, model, now);
        rate.closed_until = rate.closed_until.max(now + wait);
        rate.behind(wait, Duration::ZERO)
    }

    /// The time that one request, and one token, takes: so long that a full bucket and what fills it meanwhile are a minute's worth.
    fn costs(&self) -> [Option<Duration>; 2] {
        let RateLimits { requests_per_minute, tokens_per_minute } = self.limits;
        [requests_per_minute, tokens_per_minute].map(|limit| limit.map(|limit| (MINUTE + BURST) / limit.max(1)))
    }

    fn models(&self) -> MutexGuard<'_, BTreeMap<String, Rate>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rate_of<'m>(models: &'m mut BTreeMap<String, Rate>, model: &str, now: Instant) -> &'m mut Rate {
    if models.len() >= MODELS_MAX && !models.contains_key(model) {
        let first = models.iter().min_by_key(|(_, rate)| rate.free_at()).map(|(model, _)| model.clone());
        first.map(|first| models.remove(&first));
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
        let less = reckoned.saturating_sub(used);
        self.0 = self.0.checked_sub(less).unwrap_or(self.0) + used.saturating_sub(reckoned);
    }
}

/// What a provider has said of a limit, when, and how many have left since.
#[derive(Debug, Clone, Copy)]
struct Filling {
    at: Instant,
    left: Left,
    taken: u64,
}

impl Filling {
    /// How long so many have to wait: until as many are left, or all where there are never as many.
    fn wait(&self, count: u64, now: Instant) -> Duration {
        let Left { limit, remaining, reset } = self.left;
        let passed = now.saturating_duration_since(self.at);
        let missing = count.min(limit).saturating_add(self.taken).saturating_sub(remaining);
        if passed >= reset || missing == 0 {
            return Duration::ZERO;
        }
        let all = limit.saturating_sub(remaining).max(1);
        let until = reset.as_nanos().saturating_mul(missing.into()) / u128::from(all);
        let until = Duration::from_nanos(u64::try_from(until).unwrap_or(u64::MAX)).min(reset);
        until.saturating_sub(passed).min(WAIT_MAX)
    }

    fn take(&mut self, count: u64) {
        self.taken = self.taken.saturating_add(count);
    }

    /// No provider is believed for ever: only an answer brings new figures, and none comes while every question is held. After
    /// [`WAIT_MAX`] the next question leaves, which is of this size, whatever was said.
    fn doubt(&mut self, count: u64, now: Instant) {
        let (passed, Left { limit, remaining, reset }) = (now.saturating_duration_since(self.at), self.left);
        if passed < WAIT_MAX || reset <= passed {
            return;
        }
        let filled = passed.as_nanos().saturating_mul(limit.saturating_sub(remaining).into()) / reset.as_nanos().max(1);
        let filled = u64::try_from(filled).unwrap_or(u64::MAX);
        let left = remaining.saturating_add(filled).saturating_sub(self.taken).max(count.min(limit));
        *self =
            Self { at: now, left: Left { limit, remaining: left.min(limit.max(1)), reset: reset - passed }, taken: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rates(requests: Option<u32>, tokens: Option<u32>) -> (Rates, Instant) {
        (Rates::new(RateLimits { requests_per_minute: requests, tokens_per_minute: tokens }), Instant::now())
    }

    const ASKED: Reckoned = Reckoned { answer: 0, prompt: 1 };

    fn of(prompt: u64, answer: u64) -> Reckoned {
        Reckoned { answer, prompt }
    }

    /// Asks, and is reckoned with what it was reckoned to use.
    fn leaves(rates: &Rates, model: &str, reckoned: Reckoned, now: Instant) -> Result<(), Duration> {
        rates.leave(model, reckoned, now).map(|leave| leave.used(reckoned.total()))
    }

    #[test]
    fn a_limit_holds_in_every_minute_and_a_seventh_of_it_leaves_at_once() {
        let (rates, start) = rates(Some(70), None);
        for _ in 0..10 {
            assert_eq!(leaves(&rates, "m", ASKED, start), Ok(()));
        }
        assert_eq!(leaves(&rates, "m", ASKED, start), Err(SECOND));
        assert_eq!(leaves(&rates, "n", ASKED, start), Ok(()), "another model has its own rate");
        // Those that wait are told to come one after the other, and whoever is there first when it is free leaves.
        assert_eq!(leaves(&rates, "m", ASKED, start), Err(2 * SECOND));
        assert_eq!(leaves(&rates, "m", ASKED, start + SECOND), Ok(()));
        assert_eq!(leaves(&rates, "m", ASKED, start + SECOND), Err(SECOND), "none waits any more that is known of");
        let left = (2..=60).filter(|second| leaves(&rates, "m", ASKED, start + *second * SECOND).is_ok()).count();
        assert_eq!(10 + 1 + left, 70);
    }

    /// Nobody is sent away for long by those that were before it and may never come back.
    #[test]
    fn however_many_wait_one_leaves_whenever_it_may() {
        let (rates, start) = rates(Some(70), None);
        let mut left = 0;
        for second in 0..120 {
            for _ in 0..100 {
                match leaves(&rates, "m", ASKED, start + second * SECOND) {
                    Ok(()) => left += 1,
                    Err(wait) => assert!(wait <= SECOND + LOOK_AGAIN_MAX, "{wait:?}"),
                }
            }
        }
        assert_eq!(left, 10 + 119);
    }

    #[test]
    fn tokens_are_reckoned_with_and_then_counted() {
        let (rates, start) = rates(None, Some(7_000));
        let leave = rates.leave("m", of(100, 800), start).unwrap();
        assert_eq!(leaves(&rates, "m", of(200, 0), start), Err(SECOND));
        leave.used(500);
        assert_eq!(leaves(&rates, "m", of(200, 0), start), Ok(()));
        // A question that nobody waits for any more has used itself.
        drop(rates.leave("m", of(100, 200), start).unwrap());
        assert_eq!(leaves(&rates, "m", of(200, 0), start), Ok(()), "500, 200, 100 and 200 are a burst");
        assert!(leaves(&rates, "m", of(1, 0), start).is_err());
        // What is larger than all that may leave at once leaves alone, and what it has not used is given back.
        let large = rates.leave("m", of(1, u64::MAX), start + 10 * SECOND).unwrap();
        assert_eq!(leaves(&rates, "m", ASKED, start + 10 * SECOND), Err(LOOK_AGAIN_MAX), "it may be corrected soon");
        large.used(1);
        assert_eq!(leaves(&rates, "m", ASKED, start + 10 * SECOND), Ok(()));
    }

    #[test]
    fn without_limits_nothing_waits_and_what_a_provider_closes_opens_again() {
        let (rates, start) = rates(None, None);
        assert!((0..10_000).all(|_| leaves(&rates, "m", of(1_000_000, 0), start).is_ok()));
        assert_eq!(rates.close("m", 5 * SECOND, start), 5 * SECOND);
        // Those that were refused come back apart.
        assert_eq!(rates.close("m", SECOND, start), SECOND + APART_MIN);
        assert_eq!(leaves(&rates, "m", ASKED, start), Err(5 * SECOND + 2 * APART_MIN));
        assert_eq!(leaves(&rates, "m", ASKED, start + 5 * SECOND), Ok(()));
        rates.close("m", Duration::MAX, start);
        assert_eq!(leaves(&rates, "m", ASKED, start + WAIT_MAX), Ok(()), "nobody is believed for ever");
    }

    #[test]
    fn what_a_provider_has_left_fills_evenly() {
        let (rates, start) = rates(None, None);
        let left = |limit, remaining, reset| Some(Left { limit, remaining, reset });
        rates.told("m", &Told { requests: left(60, 1, 59 * SECOND), tokens: None }, start);
        assert_eq!(leaves(&rates, "m", ASKED, start), Ok(()), "one was left");
        assert_eq!(leaves(&rates, "m", ASKED, start), Err(SECOND));
        for second in 1..30 {
            assert_eq!(leaves(&rates, "m", ASKED, start + second * SECOND), Ok(()));
            assert!(leaves(&rates, "m", ASKED, start + second * SECOND).is_err(), "one each second");
        }
        rates.told("m", &Told { requests: left(60, 60, SECOND), tokens: left(1_000, 0, 10 * SECOND) }, start);
        assert_eq!(leaves(&rates, "m", of(500, 9_000), start), Err(5 * SECOND + APART_MIN));
        assert_eq!(leaves(&rates, "m", of(5_000, 0), start + 10 * SECOND), Ok(()), "all that there ever is");
        // A day's limit fills over the day.
        let day = 86_400 * SECOND;
        rates.told("d", &Told { requests: left(24, 0, day), tokens: None }, start);
        assert_eq!(leaves(&rates, "d", ASKED, start), Err(WAIT_MAX));
        assert!(leaves(&rates, "d", ASKED, start + 3_599 * SECOND).is_err());
        assert_eq!(leaves(&rates, "d", ASKED, start + 3_600 * SECOND), Ok(()));
        // A moment where a duration should be: one leaves each hour, and hears what is so.
        for (model, reset) in [("e", Duration::from_secs(1_700_000_000)), ("f", Duration::MAX)] {
            rates.told(model, &Told { requests: left(60, 0, reset), tokens: left(9_000, 0, reset) }, start);
            assert!(leaves(&rates, model, ASKED, start + 3_599 * SECOND).is_err());
            for hour in 1..4 {
                let large = of(500, 0);
                assert_eq!(leaves(&rates, model, large, start + hour * WAIT_MAX), Ok(()), "{model} {hour}");
                assert!(leaves(&rates, model, large, start + hour * WAIT_MAX).is_err());
            }
        }
    }

    #[test]
    fn of_too_many_models_the_one_that_may_be_asked_first_is_forgotten() {
        let (rates, start) = rates(Some(1), None);
        rates.close("0", WAIT_MAX, start);
        for model in 1..MODELS_MAX + 5 {
            assert_eq!(leaves(&rates, &model.to_string(), ASKED, start), Ok(()));
        }
        assert_eq!(rates.models().len(), MODELS_MAX);
        assert!(leaves(&rates, "0", ASKED, start).is_err(), "it is closed for longest");
    }

    /// As many tokens as a question has are gone from what its provider had left.
    #[test]
    fn what_has_left_is_taken_from_the_tokens_that_a_provider_had() {
        let (rates, start) = rates(None, None);
        let tokens = Some(Left { limit: 1_000, remaining: 1_000, reset: 60 * SECOND });
        rates.told("m", &Told { requests: None, tokens }, start);
        assert_eq!(leaves(&rates, "m", of(600, 0), start), Ok(()));
        assert!(leaves(&rates, "m", of(600, 0), start).is_err(), "400 are left");
        assert_eq!(leaves(&rates, "m", of(400, 0), start + 60 * SECOND), Ok(()));
    }

    /// Who is not believed any more is not believed to have again what has left since.
    #[test]
    fn a_doubt_gives_nothing_back_that_has_left() {
        let (rates, start) = rates(None, None);
        let requests = Some(Left { limit: 60, remaining: 3, reset: 24 * WAIT_MAX });
        rates.told("m", &Told { requests, tokens: None }, start);
        let leave_at = |now| (0..10).filter(|_| leaves(&rates, "m", ASKED, now).is_ok()).count();
        assert_eq!(leave_at(start), 3);
        // In an hour two of the 57 that come in a day have come.
        assert_eq!(leave_at(start + WAIT_MAX), 2);
    }
}
