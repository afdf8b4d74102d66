//! What a run knows of its lease: how much is left by the boot clock, and what it was told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aetheris_core::lease::Fence;
use aetheris_store::system::Clock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A run's hold on its job. The worker renews it, and tells the run through it what is wanted.
#[derive(Debug)]
pub struct Lease {
    /// A second request to stop: calls that have left are given up as well.
    pub abandon: CancellationToken,
    /// The worker shuts down: nothing new starts, the job is given back.
    pub drain: CancellationToken,
    /// The job's end is asked for.
    pub ending: CancellationToken,
    /// The job may be given back: the worker claims nothing any more that it would only claim again. By itself that
    /// is so as soon as it drains.
    pub(super) give_back: CancellationToken,
    /// The fence that every write carries.
    pub fence: Fence,
    /// The lease is lost.
    pub lost: CancellationToken,
    /// Something was written from outside that a step waits for.
    pub news: Arc<Notify>,
    safe_until_us: AtomicU64,
}

impl Lease {
    /// A lease that is safe until a moment of the boot clock: the sending of its last good renewal, and
    /// its length less a margin.
    #[must_use]
    pub fn new(fence: Fence, safe_until: Duration, drain: CancellationToken, abandon: CancellationToken) -> Self {
        // Each run asks its own of them, and does so at each step: of one for all, all threads would want the lock.
        let (abandon, drain) = (abandon.child_token(), drain.child_token());
        Self {
            abandon,
            give_back: drain.clone(),
            drain,
            ending: CancellationToken::new(),
            fence,
            lost: CancellationToken::new(),
            news: Arc::default(),
            safe_until_us: AtomicU64::new(micros(safe_until)),
        }
    }

    /// The job may be given back only after this.
    #[must_use]
    pub fn given_back_after(self, give_back: CancellationToken) -> Self {
        Self { give_back, ..self }
    }

    /// The worker has renewed it.
    pub fn extend(&self, safe_until: Duration) {
        self.safe_until_us.fetch_max(micros(safe_until), Ordering::AcqRel);
    }

    /// Until when nothing forbids a call to leave.
    #[must_use]
    pub fn safe_until(&self) -> Duration {
        Duration::from_micros(self.safe_until_us.load(Ordering::Acquire))
    }

    /// Whether a call may still leave, by this process's own clock.
    #[must_use]
    pub fn is_safe(&self, clock: &dyn Clock) -> bool {
        !self.lost.is_cancelled() && clock.boot() < self.safe_until()
    }

    /// Whether the run should stop what can be stopped.
    pub(super) fn is_interrupted(&self) -> bool {
        self.lost.is_cancelled() || self.ending.is_cancelled() || self.drain.is_cancelled()
    }

    /// Resolves when the run should stop what can be stopped.
    pub(super) async fn interrupted(&self) {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => {}
            () = self.ending.cancelled() => {}
            () = self.drain.cancelled() => {}
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use aetheris_core::time::Span;
    use aetheris_store::system::ManualClock;

    use super::*;

    #[test]
    fn a_lease_is_safe_up_to_its_moment_and_not_at_it() {
        let (clock, token) = (ManualClock::default(), CancellationToken::new);
        let lease = Lease::new(Fence::default(), Duration::from_micros(10), token(), token());
        clock.advance(Span::from_micros(9));
        assert!(lease.is_safe(&clock));
        clock.advance(Span::from_micros(1));
        assert!(!lease.is_safe(&clock));
        lease.extend(Duration::from_micros(11));
        assert!(lease.is_safe(&clock));
        // What is lost is safe for no moment.
        lease.lost.cancel();
        assert!(!lease.is_safe(&clock));
    }
}
