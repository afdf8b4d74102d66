//! Virtual time: the paused clock of the async runtime, and clocks of processes that drift from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use aetheris_core::time::{Span, Timestamp};
use aetheris_store::system::Clock;
use tokio::time::Instant;

/// The moment at which virtual time begins.
pub const BEGINNING: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// Virtual time as one machine sees it: its boot clock may run fast or slow, its wall clock may be off.
#[derive(Debug)]
pub struct VirtualClock {
    origin: Instant,
    rate_ppm: i64,
    wall_offset_us: AtomicI64,
}

impl VirtualClock {
    /// A true clock that begins now. To be called inside a runtime whose time is paused.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { origin: Instant::now(), rate_ppm: 0, wall_offset_us: AtomicI64::new(0) })
    }

    /// Another machine's clock over the same time: its boot clock gains `rate_ppm` microseconds a
    /// second, its wall clock is off by `wall_offset_us`.
    #[must_use]
    pub fn skewed(&self, rate_ppm: i64, wall_offset_us: i64) -> Arc<Self> {
        Arc::new(Self { origin: self.origin, rate_ppm, wall_offset_us: AtomicI64::new(wall_offset_us) })
    }

    /// Sets the wall clock forward or back.
    pub fn jump(&self, by_us: i64) {
        self.wall_offset_us.fetch_add(by_us, Ordering::Relaxed);
    }

    /// How much time has truly passed.
    #[must_use]
    pub fn passed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// What this boot clock shows when so much time has truly passed.
    #[must_use]
    pub fn boot_at(&self, passed: Duration) -> Duration {
        let us = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
        let gained = us.saturating_mul(self.rate_ppm) / 1_000_000;
        Duration::from_micros(u64::try_from(us.saturating_add(gained)).unwrap_or(0))
    }
}

impl Clock for VirtualClock {
    fn boot_id(&self) -> aetheris_core::id::BootId {
        aetheris_core::id::BootId::from_u128(1)
    }

    fn boot(&self) -> Duration {
        self.boot_at(self.passed())
    }

    fn wall(&self) -> Timestamp {
        let passed = Span::from_micros(u64::try_from(self.passed().as_micros()).unwrap_or(u64::MAX));
        let now = BEGINNING.after(passed).micros();
        Timestamp::from_micros(now.saturating_add(self.wall_offset_us.load(Ordering::Relaxed)))
    }
}
