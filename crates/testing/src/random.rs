//! Pseudo-random numbers that are the same for ever.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::id::IdSource;
use aetheris_harness::SplitMix64;

/// A stream of numbers that a seed decides.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds begin far apart.
        Self(SplitMix64::seeded(SplitMix64::seeded(seed).next() ^ seed.rotate_left(32)))
    }

    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "a stream without an end is not asked like an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let random = self.next();
        random.checked_rem(end).unwrap_or(0)
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// Whether something happens that happens to `per_mille` of a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of several; `None` of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let place = usize::try_from(self.below(u64::try_from(of.len()).unwrap_or(u64::MAX))).unwrap_or(0);
        of.get(place)
    }

    /// A stream of its own, so that what one part draws does not move another's numbers.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }
}

/// Identifiers that a seed decides. Clones count together, so that ids grow across processes as time
/// does.
#[derive(Debug, Clone)]
pub struct SeededIds {
    count: Arc<AtomicU64>,
    random: Arc<Mutex<Random>>,
}

impl SeededIds {
    /// The ids of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { count: Arc::default(), random: Arc::new(Mutex::new(Random::new(seed))) }
    }

    fn random(&self) -> u128 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        (u128::from(random.next()) << 64) | u128::from(random.next())
    }
}

impl IdSource for SeededIds {
    fn ordered(&self) -> u128 {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        (u128::from(count) << 80) | (self.random() & ((1 << 80) - 1))
    }

    fn secret(&self) -> u128 {
        self.random()
    }
}
