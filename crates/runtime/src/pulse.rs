//! Signs of life: a loop that must not stand still beats, and readiness looks how long ago that was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aetheris_store::system::Clock;

/// The last beat of one loop. Clones are the same pulse.
#[derive(Debug, Clone, Default)]
pub struct Pulse {
    last_us: Arc<AtomicU64>,
}

impl Pulse {
    /// The loop has come round.
    pub fn beat(&self, clock: &dyn Clock) {
        let now = u64::try_from(clock.boot().as_micros()).unwrap_or(u64::MAX);
        self.last_us.store(now.max(1), Ordering::Release);
    }

    /// How long the loop has not come round; `None` before its first beat.
    #[must_use]
    pub fn silent_for(&self, clock: &dyn Clock) -> Option<Duration> {
        let last = self.last_us.load(Ordering::Acquire);
        (last > 0).then(|| clock.boot().saturating_sub(Duration::from_micros(last)))
    }
}
