//! Numbers that follow from a seed alone, and are the same for ever: a seed that failed once has to fail again after any update
//! of any dependency, so the generator is our own.

/// SplitMix64 (Steele, Lea and Flood, 2014): variety, not secrecy.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

/// What the state moves on by.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl SplitMix64 {
    /// The stream that begins behind a state.
    #[must_use]
    pub const fn seeded(state: u64) -> Self {
        Self(state)
    }

    /// The same stream from a place on, as if so many numbers had been drawn.
    #[must_use]
    pub const fn skip(self, numbers: u64) -> Self {
        Self(self.0.wrapping_add(STEP.wrapping_mul(numbers)))
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of several; `None`, and no number drawn, of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.below(of.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the authors' own implementation, for the seed 1234567.
    #[test]
    fn it_is_the_generator_that_its_name_says() {
        let mut random = SplitMix64::seeded(1_234_567);
        let drawn = [(); 5].map(|()| random.next());
        let known = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(drawn, known);
        assert_eq!(SplitMix64::seeded(1_234_567).skip(3).next(), known[3]);
    }

    #[test]
    fn every_place_is_reached_and_none_beyond() {
        let mut random = SplitMix64::seeded(7);
        let mut seen = [false; 5];
        (0..200).for_each(|_| seen[random.below(5)] = true);
        assert!(seen.iter().all(|seen| *seen));
        assert_eq!((random.below(0), random.below(1), random.pick::<u8>(&[])), (0, 0, None));
        assert!((0..100).any(|_| random.one_in(3)) && !(0..100).all(|_| random.one_in(3)));
    }
}
