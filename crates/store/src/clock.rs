//! The clock of a store that takes its time from the host: the wall clock, never below the highest value
//! stored, and never moved by a step of the wall clock alone.
//!
//! Writing the highest value with every transaction would cost a page of each. Instead the store keeps a
//! [`Mark`]: a value of the clock, with the boot clock and the distance between wall and boot clock at that
//! moment. Four rules make it as good as writing every value:
//!
//! 1. A value above `mark + SLACK` is stored only together with a new mark.
//! 2. A value from a wall clock that is further ahead of the boot clock than the mark's is stored only
//!    together with a new mark.
//! 3. All processes of one store share one boot clock, which never goes back ([`BootId`]).
//! 4. Between two marks the clock does not pass what it *expected*: the wall clock as far ahead of the boot clock as
//!    the mark says or, where the clock itself was ahead of that, nine tenths of the boot clock's pace.
//!
//! So everything stored since the mark was taken is at most the smaller of `mark + SLACK` and what is expected now.
//!
//! A wall clock that is set back leaves the clock ahead of it: it goes on at nine tenths of the boot clock's pace
//! until the two meet, so that no timer, lease or delay stands still. One that is set forward by more than a minute
//! against the boot clock is believed when it has stood for ten seconds, so that a short mistake ends no lease. After
//! a reboot the boot clock says nothing, and `mark + SLACK` is the floor.

use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::id::BootId;
use aetheris_core::limits;
use aetheris_core::time::{BootMoment, Reading, Span, Timestamp};

use crate::system::Clock;

/// How far the clock runs before a new mark is written.
const SLACK_US: i64 = 100_000;
/// How far the wall clock may fall behind the boot clock before the mark is lowered: above what reading
/// two clocks after one another can differ by.
const FALL_US: i64 = 2_000;
/// How long reading the wall clock may take for both to be of one moment.
const APART_US: u64 = 1_000;
/// How often both are read again where a process was held up between them.
const READINGS_MAX: u32 = 100;
/// Two looks at a step of the wall clock are of the same one up to this.
const SAME_STEP_US: i64 = 1_000_000;

/// What a store keeps of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The boot clock, in microseconds.
    pub boot: i64,
    /// Which boot clock; unknown where a build wrote it that did not ask.
    pub boot_id: Option<BootId>,
    /// The store's clock, in microseconds.
    pub clock: i64,
    /// The wall clock less the boot clock, in microseconds.
    pub offset: i64,
}

/// One look at the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The boot clock at that moment.
    pub boot: BootMoment,
    /// To be written with whatever is stored at that time.
    pub mark: Option<Mark>,
    /// The store's time.
    pub now: Timestamp,
    /// The wall clock at that moment.
    pub wall: Timestamp,
}

impl Look {
    /// Both clocks.
    #[must_use]
    pub fn reading(&self) -> Reading {
        Reading { at: self.now, boot: self.boot }
    }

    /// How far the store's clock is ahead of the wall clock: zero, unless that was set back.
    #[must_use]
    pub fn ahead(&self) -> Span {
        self.now.since(self.wall)
    }

    /// How far the wall clock is ahead of the store's: zero, unless it was just set forward.
    #[must_use]
    pub fn behind(&self) -> Span {
        self.wall.since(self.now)
    }
}

/// A step forward of the wall clock that is not believed yet.
#[derive(Debug, Clone, Copy)]
struct Step {
    offset: i64,
    since: i64,
}

/// The clock of one process's store.
pub struct StoreClock {
    clock: Arc<dyn Clock>,
    step: Mutex<Option<Step>>,
}

impl StoreClock {
    /// On the clocks of a process.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, step: Mutex::default() }
    }

    /// The clocks that it is made of.
    #[must_use]
    pub fn clocks(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Reads the clock against the store's mark, which was read in the same transaction; a new store has none.
    #[must_use]
    pub fn look(&self, mark: Option<Mark>) -> Look {
        let (moment, wall) = self.together();
        let boot = moment.at.micros_i64();
        let offset = wall.saturating_sub(boot);
        let taken = |now: i64, offset| Mark { boot, boot_id: Some(moment.of), clock: now, offset };
        let look = |now: i64, mark| Look {
            boot: moment,
            mark,
            now: Timestamp::from_micros(now),
            wall: Timestamp::from_micros(wall),
        };
        let Some(mark) = mark else {
            return look(wall, Some(taken(wall, offset)));
        };
        if aetheris_fault::planted!("clock-goes-back") {
            return look(wall, Some(taken(wall, offset)));
        }
        let cap = mark.clock.saturating_add(SLACK_US);
        if boot < mark.boot || mark.boot_id.is_some_and(|of| of != moment.of) {
            let now = wall.max(cap);
            return look(now, Some(taken(now, offset)));
        }
        let expected = expected(mark, boot);
        let offset = if self.believes(mark, offset, boot) { offset } else { mark.offset };
        let now = boot.saturating_add(offset).max(paced(mark, boot)).max(expected.min(cap));
        let stale = now > cap || offset > mark.offset || offset < mark.offset.saturating_sub(FALL_US);
        look(now, stale.then(|| taken(now, offset)))
    }

    /// Both clocks at one moment. A process that stood still between the two would take the wall clock for one that was
    /// set: ahead by so much, which is believed at once up to a minute and never taken back. The boot clock is read last,
    /// so that where it stands still each time the wall clock seems to be behind, for a while.
    fn together(&self) -> (BootMoment, i64) {
        let mut before = self.clock.boot_moment();
        let mut left = READINGS_MAX;
        loop {
            let wall = self.clock.wall().micros();
            let moment = self.clock.boot_moment();
            left -= 1;
            if left == 0 || moment.at.minus(before.at).micros() <= APART_US {
                return (moment, wall);
            }
            before = moment;
        }
    }

    /// Whether the wall clock is where it can be, or has stood there long enough.
    fn believes(&self, mark: Mark, offset: i64, boot: i64) -> bool {
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        if aetheris_fault::planted!("clock-step-believed") {
            return true;
        }
        if offset.saturating_sub(mark.offset) <= limits::CLOCK_STEP_MAX.micros_i64() {
            *step = None;
            return true;
        }
        let same =
            step.filter(|seen| seen.offset.abs_diff(offset) <= SAME_STEP_US.unsigned_abs() && seen.since <= boot);
        let seen = *step.insert(same.unwrap_or(Step { offset, since: boot }));
        boot - seen.since >= limits::CLOCK_STEP_STANDS.micros_i64()
    }
}

impl std::fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreClock")
    }
}

/// The mark's clock at nine tenths of the boot clock's pace.
fn paced(mark: Mark, boot: i64) -> i64 {
    let passed = boot.saturating_sub(mark.boot);
    mark.clock.saturating_add(passed - passed / 10)
}

/// What the clock can have shown since the mark was taken.
fn expected(mark: Mark, boot: i64) -> i64 {
    boot.saturating_add(mark.offset).max(paced(mark, boot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::ManualClock;

    const START: i64 = 1_780_000_000_000_000;
    const HOUR: i64 = 3_600_000_000;
    const SECOND: i64 = 1_000_000;

    /// A store of one row, written at every look.
    struct Host {
        clock: StoreClock,
        hands: ManualClock,
        mark: Option<Mark>,
        marks: u32,
    }

    impl Host {
        fn new() -> Self {
            let hands = ManualClock::at(Timestamp::from_micros(START));
            hands.advance(Span::from_secs(1_000));
            Self { clock: StoreClock::new(Arc::new(hands.clone())), hands, mark: None, marks: 0 }
        }

        fn pass(&self, micros: i64) {
            self.hands.advance(Span::from_micros(micros.unsigned_abs()));
        }

        fn step(&self, micros: i64) {
            self.hands.set_wall(Timestamp::from_micros(self.hands.wall().micros() + micros));
        }

        /// Another boot, which has lasted for so long; the wall clock is left as it is.
        fn reboot(&self, lasted: Span) {
            let wall = self.hands.wall();
            self.hands.reboot();
            self.hands.advance(lasted);
            self.hands.set_wall(wall);
        }

        /// The clock without a write.
        fn read(&self) -> i64 {
            self.clock.look(self.mark).now.micros()
        }

        fn write(&mut self) -> Look {
            let look = self.clock.look(self.mark);
            if look.mark.is_some() {
                self.mark = look.mark;
                self.marks += 1;
            }
            look
        }
    }

    /// A process that is stopped while it reads the wall clock, and before or behind that.
    struct Stopped {
        behind: bool,
        hands: ManualClock,
        stops: Mutex<Vec<Span>>,
    }

    impl Clock for Stopped {
        fn boot(&self) -> std::time::Duration {
            self.hands.boot()
        }

        fn boot_id(&self) -> BootId {
            self.hands.boot_id()
        }

        fn wall(&self) -> Timestamp {
            let stop = self.stops.lock().unwrap().pop().unwrap_or(Span::ZERO);
            let before = self.hands.wall();
            self.hands.advance(stop);
            if self.behind { before } else { self.hands.wall() }
        }
    }

    #[test]
    fn a_process_that_stands_still_between_two_clocks_takes_none_for_set() {
        for behind in [false, true] {
            for stops in 1..5 {
                let hands = ManualClock::at(Timestamp::from_micros(START));
                let mark = StoreClock::new(Arc::new(hands.clone())).look(None).mark;
                hands.advance(Span::from_secs(1));
                let stops = Mutex::new(vec![Span::from_secs(50); stops]);
                let look = StoreClock::new(Arc::new(Stopped { behind, hands: hands.clone(), stops })).look(mark);
                assert_eq!((look.now, look.wall), (hands.wall(), hands.wall()));
                assert_eq!(look.mark.unwrap().offset, mark.unwrap().offset);
            }
        }
        // Held up each time, it is slower for a while, and never ahead.
        let hands = ManualClock::at(Timestamp::from_micros(START));
        let mark = StoreClock::new(Arc::new(hands.clone())).look(None).mark;
        for behind in [false, true] {
            let stops = Mutex::new(vec![Span::from_millis(50); 1_000]);
            let look = StoreClock::new(Arc::new(Stopped { behind, hands: hands.clone(), stops })).look(mark);
            assert!(look.now <= hands.wall(), "{look:?}");
        }
    }

    /// A small deterministic generator: the test needs variety, not quality.
    fn next(state: &mut u64) -> i64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(*state >> 40).unwrap()
    }

    #[test]
    fn no_value_is_ever_below_one_that_was_stored_whatever_the_wall_clock_does() {
        let mut host = Host::new();
        let (mut highest, mut state) = (0, 7);
        for round in 0..200_000 {
            host.pass(next(&mut state) % 3_000);
            match next(&mut state) % 1_000 {
                0 => host.step(-(next(&mut state) % 10_000_000)),
                1 => host.step(next(&mut state) % 10_000_000),
                2..40 => host.step(-(next(&mut state) % 1_500)),
                40..70 => host.step(next(&mut state) % 1_500),
                70 => host.reboot(Span::from_micros(next(&mut state).unsigned_abs() % 1_000_000_000)),
                71 => host.step(next(&mut state) * 100),
                72 => host.step(-next(&mut state) * 100),
                73 => host.pass(next(&mut state) * 10),
                74 => host.clock = StoreClock::new(Arc::new(host.hands.clone())),
                _ => {}
            }
            let now = if next(&mut state) % 3 == 0 { host.read() } else { host.write().now.micros() };
            assert!(now >= highest, "round {round}: {now} after {highest}");
            highest = now.max(highest);
        }
        assert!(host.marks < 40_000, "{} marks for 200,000 transactions", host.marks);
    }

    #[test]
    fn a_steady_clock_is_the_wall_clock_and_marks_rarely() {
        let mut host = Host::new();
        host.write();
        for _ in 0..10_000 {
            host.pass(100);
            assert_eq!(host.write().now, host.hands.wall());
        }
        assert_eq!(host.marks, 10);
    }

    #[test]
    fn a_clock_that_was_set_back_goes_on_at_nine_tenths_until_both_meet() {
        let mut host = Host::new();
        let before = host.write().now.micros();
        host.step(-HOUR);
        let behind = host.write();
        assert_eq!(behind.now.micros(), before);
        assert_eq!(behind.ahead(), Span::from_micros(HOUR.unsigned_abs()));
        host.pass(10 * SECOND);
        // Nobody writes: it goes on all the same, and after a restart as well.
        assert_eq!(host.read(), before + 9 * SECOND);
        host.clock = StoreClock::new(Arc::new(host.hands.clone()));
        assert_eq!(host.read(), before + 9 * SECOND);
        for _ in 0..100 {
            host.pass(10 * SECOND);
            host.write();
        }
        assert_eq!(host.read(), before + 909 * SECOND);
        host.pass(10 * HOUR);
        assert_eq!(host.read(), host.hands.wall().micros(), "they have met");
        assert_eq!(host.write().ahead(), Span::ZERO);
    }

    #[test]
    fn after_a_reboot_it_goes_on_from_its_mark() {
        let mut host = Host::new();
        let before = host.write().now.micros();
        // The boot clock is already further on than it was: only its source says that it is another one.
        host.reboot(Span::from_secs(5_000));
        host.step(-HOUR);
        let look = host.write();
        assert_eq!(look.now.micros(), before + SLACK_US);
        host.pass(10 * SECOND);
        assert_eq!(host.read(), before + SLACK_US + 9 * SECOND);
        host.reboot(Span::from_secs(1));
        host.step(3 * HOUR);
        assert_eq!(host.write().now, host.hands.wall(), "how long the machine was off is not known: the wall clock is");
    }

    #[test]
    fn a_short_mistake_of_the_wall_clock_moves_nothing() {
        let mut host = Host::new();
        let before = host.write().now.micros();
        host.step(24 * HOUR);
        assert_eq!(host.write().now.micros(), before);
        host.pass(9 * SECOND);
        let look = host.write();
        assert_eq!((look.now.micros(), look.behind()), (before + 9 * SECOND, Span::from_secs(86_400)));
        host.step(-24 * HOUR);
        host.pass(SECOND);
        assert_eq!(host.write().now, host.hands.wall());
        assert_eq!(host.read(), before + 10 * SECOND);
    }

    #[test]
    fn a_step_forward_is_believed_when_it_has_stood() {
        let mut host = Host::new();
        let before = host.write().now.micros();
        host.step(HOUR);
        assert_eq!(host.write().now.micros(), before);
        host.pass(5 * SECOND);
        // Another step is another mistake until it has stood by itself.
        host.step(HOUR);
        assert_eq!(host.write().now.micros(), before + 5 * SECOND);
        host.pass(9 * SECOND);
        assert_eq!(host.write().now.micros(), before + 14 * SECOND);
        host.pass(SECOND);
        assert_eq!(host.write().now, host.hands.wall());
        host.step(60 * SECOND);
        assert_eq!(host.write().now, host.hands.wall(), "a minute is nothing");
    }

    #[test]
    fn a_mistake_that_comes_back_is_another_one() {
        let mut host = Host::new();
        for _ in 0..3 {
            let before = host.write().now.micros();
            host.step(24 * HOUR);
            assert_eq!(host.write().now.micros(), before);
            host.pass(6 * SECOND);
            assert_eq!(host.write().now.micros(), before + 6 * SECOND);
            // Right again, and looked at: what stood before does not count for the next one.
            host.step(-24 * HOUR);
            assert_eq!(host.write().now.micros(), before + 6 * SECOND);
            host.pass(6 * SECOND);
        }
    }
}
