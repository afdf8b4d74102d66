//! The store's clock: the host's wall clock, and never below the highest value stored.
//!
//! Writing the highest value with every transaction would cost a page of each. Instead the one row of
//! `meta` keeps a [`Mark`]: a value of the clock, with the boot clock and the distance between wall and
//! boot clock at that moment. Three rules make it as good as writing every value:
//!
//! 1. A value above `mark + SLACK` is stored only together with a new mark.
//! 2. A value from a wall clock that is further ahead of the boot clock than the mark's is stored only
//!    together with a new mark.
//! 3. All processes of one file are on one host and share its boot clock, which never goes back.
//!
//! So everything stored since the mark was taken is at most the smaller of `mark + SLACK` and *boot now +
//! the mark's distance*. Where the wall clock is still as far ahead as the mark says, it is itself past
//! that; where it is not, it was set back, and the smaller of the two is the clock. After a reboot the
//! boot clock says nothing, and `mark + SLACK` is the floor.

use aetheris_core::time::Timestamp;
use aetheris_store::system::Clock;

/// How far the clock runs before a new mark is written.
const SLACK_US: i64 = 100_000;
/// How far the wall clock may fall behind the boot clock before the mark is lowered: above what reading
/// two clocks after one another can differ by.
const FALL_US: i64 = 2_000;
/// A jump back of more than this is reported.
pub(crate) const JUMP_US: i64 = 60_000_000;

/// What `meta` keeps of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) clock: i64,
    pub(crate) offset: i64,
    pub(crate) boot: i64,
}

/// One look at the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// The store's time.
    pub(crate) now: Timestamp,
    /// To be written with whatever is stored at that time.
    pub(crate) mark: Option<Mark>,
    /// How far the wall clock is behind.
    pub(crate) behind_us: i64,
}

/// Reads the clock against the mark that the same transaction has read.
pub(crate) fn look(clock: &dyn Clock, mark: Mark) -> Look {
    let boot = i64::try_from(clock.boot().as_micros()).unwrap_or(i64::MAX);
    let wall = clock.wall().micros();
    let offset = wall.saturating_sub(boot);
    let cap = mark.clock.saturating_add(SLACK_US);
    let rebooted = boot < mark.boot;
    let floor = if rebooted {
        cap
    } else if offset < mark.offset {
        boot.saturating_add(mark.offset).min(cap)
    } else {
        mark.clock
    };
    let now = if aetheris_fault::planted!("clock-goes-back") { wall } else { wall.max(mark.clock).max(floor) };
    let stale = rebooted || now > cap || offset > mark.offset || offset < mark.offset.saturating_sub(FALL_US);
    Look {
        now: Timestamp::from_micros(now),
        mark: stale.then_some(Mark { clock: now, offset, boot }),
        behind_us: now.saturating_sub(wall),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Hands {
        boot: AtomicI64,
        wall: AtomicI64,
    }

    impl Hands {
        fn pass(&self, micros: i64) {
            self.boot.fetch_add(micros, Ordering::Relaxed);
            self.wall.fetch_add(micros, Ordering::Relaxed);
        }
    }

    impl Clock for Hands {
        fn boot_id(&self) -> aetheris_core::id::BootId {
            aetheris_core::id::BootId::from_u128(1)
        }

        fn boot(&self) -> Duration {
            Duration::from_micros(self.boot.load(Ordering::Relaxed).unsigned_abs())
        }
        fn wall(&self) -> Timestamp {
            Timestamp::from_micros(self.wall.load(Ordering::Relaxed))
        }
    }

    /// A small deterministic generator: the test needs variety, not quality.
    fn next(state: &mut u64) -> i64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(*state >> 40).unwrap()
    }

    #[test]
    fn no_value_is_ever_below_one_that_was_stored_whatever_the_wall_clock_does() {
        let hands = Hands::default();
        hands.pass(1_000_000_000);
        hands.wall.fetch_add(1_700_000_000_000_000, Ordering::Relaxed);
        let mut mark = Mark { clock: 0, offset: 0, boot: 0 };
        let (mut highest, mut state, mut marks) = (0, 7, 0);
        for round in 0..200_000 {
            hands.pass(next(&mut state) % 3_000);
            match next(&mut state) % 1_000 {
                0 => drop(hands.wall.fetch_sub(next(&mut state) % 10_000_000, Ordering::Relaxed)),
                1 => drop(hands.wall.fetch_add(next(&mut state) % 10_000_000, Ordering::Relaxed)),
                2..40 => drop(hands.wall.fetch_sub(next(&mut state) % 1_500, Ordering::Relaxed)),
                40..70 => drop(hands.wall.fetch_add(next(&mut state) % 1_500, Ordering::Relaxed)),
                70 => hands.boot.store(next(&mut state) % 1_000_000, Ordering::Relaxed),
                _ => {}
            }
            let look = look(&hands, mark);
            assert!(look.now.micros() >= highest, "round {round}");
            assert!(look.now >= hands.wall());
            highest = look.now.micros();
            if let Some(new) = look.mark {
                mark = new;
                marks += 1;
            }
        }
        assert!(marks < 20_000, "{marks} marks for 200,000 transactions");
    }

    #[test]
    fn a_steady_clock_is_the_wall_clock_and_marks_rarely() {
        let hands = Hands::default();
        hands.wall.store(5_000_000, Ordering::Relaxed);
        let mut mark = Mark { clock: 0, offset: 0, boot: 0 };
        let mut marks = 0;
        for _ in 0..10_000 {
            hands.pass(100);
            let look = look(&hands, mark);
            assert_eq!(look.now, hands.wall());
            if let Some(new) = look.mark {
                mark = new;
                marks += 1;
            }
        }
        assert_eq!(marks, 10);
    }
}
