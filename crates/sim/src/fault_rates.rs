//! How much goes wrong in one run. Every seed has rates of its own: calm ones find what storms hide,
//! and a storm of one kind finds what a little of everything does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aetheris_testing::random::Random;

use crate::strikes::{Blow, Strikes};

/// A slow answer that costs no lease, of the shortest that are drawn.
pub const HARMLESS: u64 = 250;

/// What becomes of hints, which are never facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    /// They arrive.
    Good,
    /// None arrives: every part looks by itself, as parts of different processes do.
    Dropped,
    /// They come again, late and without a cause.
    Doubled,
}

/// The fault rates of a run: of a thousand. Clones end together.
#[derive(Debug, Clone)]
pub struct FaultRates {
    /// Crossings at which a process dies.
    pub deaths: u64,
    /// Whether clocks drift.
    pub drift: bool,
    /// What becomes of hints.
    pub hints: Hints,
    /// Whether the store's clock jumps.
    pub jumps: bool,
    /// Calls of tools and models that the network spoils.
    pub network: u64,
    /// Whether the nemesis only lets processes drain and sets their wall clocks.
    pub mild: bool,
    /// How often the nemesis acts: the longest pause in milliseconds; 0 for never.
    pub nemesis: u64,
    /// Crossings at which a process stands still.
    pub stops: u64,
    /// Calls of the store that meet a fault.
    pub store: u64,
    /// Calls of the store whose answers are slow, and nothing worse.
    pub slow: u64,
    /// The longest that such an answer takes, in milliseconds.
    pub slow_longest: u64,
    /// The longest delay of a call of the store, in milliseconds.
    pub store_delay: u64,
    /// Blows that are planned, where nothing is drawn.
    pub strikes: Strikes,
    bad: Arc<AtomicBool>,
}

impl FaultRates {
    /// Draws them.
    #[must_use]
    pub fn draw(random: &mut Random) -> Self {
        fn rate(random: &mut Random, often: u64, most: u64) -> u64 {
            if random.chance(often) { random.between(1, most) } else { 0 }
        }
        Self {
            store: rate(random, 600, 120),
            network: rate(random, 600, 300),
            deaths: rate(random, 500, 12),
            stops: rate(random, 400, 8),
            nemesis: rate(random, 700, 15_000),
            store_delay: rate(random, 700, 4_000),
            slow: rate(random, 400, 300),
            slow_longest: if random.chance(500) { HARMLESS } else { random.between(HARMLESS, 4_000) },
            hints: match random.below(10) {
                0..=2 => Hints::Dropped,
                3..=5 => Hints::Doubled,
                _ => Hints::Good,
            },
            mild: random.chance(300),
            drift: random.chance(300),
            jumps: random.chance(120),
            strikes: Strikes::default(),
            bad: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Nothing is drawn: what goes wrong is planned.
    #[must_use]
    pub fn planned(strikes: Strikes) -> Self {
        Self {
            deaths: 0,
            drift: false,
            hints: Hints::Good,
            jumps: false,
            network: 0,
            mild: true,
            nemesis: 0,
            // What is asked of processes that never stand still is not asked of one that does.
            stops: u64::from(strikes.plan(Blow::Standstill)),
            store: 0,
            slow: 0,
            slow_longest: HARMLESS,
            store_delay: 0,
            strikes,
            bad: Arc::default(),
        }
    }

    /// Whether things go wrong.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        self.bad.load(Ordering::Relaxed)
    }

    /// Nothing goes wrong from here on.
    pub fn clear_up(&self) {
        self.bad.store(false, Ordering::Relaxed);
    }
}
