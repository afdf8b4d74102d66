//! A small generator whose numbers follow from its seed alone: the test needs variety, not secrecy.

use std::ops::Range;
use std::time::Duration;

use aetheris_harness::SplitMix64;

/// Numbers that follow from a seed.
#[derive(Debug, Clone)]
pub struct Dice(SplitMix64);

impl Dice {
    /// A generator of its own for each pair of seed and purpose.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Self(SplitMix64::seeded(seed ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        dice.roll();
        dice
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0.next()
    }

    /// One of a range; its start where it is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        let width = range.end.saturating_sub(range.start).max(1);
        range.start + self.roll() % width
    }

    /// Whether something of so many in a hundred happens.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// One of a list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let place = self.within(0..u64::try_from(list.len()).unwrap_or(1));
        &list[usize::try_from(place).unwrap_or(0)]
    }

    /// So many milliseconds of a range.
    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_every_place_is_reached() {
        let (mut one, mut other) = (Dice::new(7, 1), Dice::new(7, 1));
        assert!((0..100).all(|_| one.roll() == other.roll()));
        assert_ne!(Dice::new(7, 2).roll(), Dice::new(7, 1).roll());
        let mut seen = [false; 5];
        for _ in 0..200 {
            let place = usize::try_from(one.within(0..5)).unwrap();
            seen[place] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
    }
}
