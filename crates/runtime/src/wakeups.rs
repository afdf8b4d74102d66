//! Hints inside one process. None of them is a fact: whoever waits for one also looks by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::id::JobId;
use aetheris_core::lease::Fence;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Who is to be woken by what this process has written.
#[derive(Debug, Clone, Default)]
pub struct Wakeups {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    running: Mutex<BTreeMap<JobId, (Fence, CancellationToken)>>,
    timers: Notify,
}

impl Wakeups {
    /// A run of this process wants to hear that its job's end is asked for.
    pub fn run_began(&self, job: JobId, fence: Fence, ending: CancellationToken) {
        self.running().insert(job, (fence, ending));
    }

    /// The run under this fence is over; the job's next one may have begun already.
    pub fn run_ended(&self, job: JobId, fence: Fence) {
        let mut running = self.running();
        if running.get(&job).is_some_and(|(began, _)| *began == fence) {
            running.remove(&job);
        }
    }

    /// The end of a job was asked for while it ran under this fence; that run, if it is in this process, hears it now
    /// and not with its next heartbeat. A later one has nothing to end.
    pub fn end_requested(&self, job: JobId, fence: Fence) {
        if let Some((_, ending)) = self.running().get(&job).filter(|(began, _)| *began == fence) {
            ending.cancel();
        }
    }

    /// A timer was set; it may be due before anything that was known.
    pub fn timer_set(&self) {
        self.inner.timers.notify_one();
    }

    /// Waits for the next [`Wakeups::timer_set`].
    pub async fn timers_changed(&self) {
        self.inner.timers.notified().await;
    }

    fn running(&self) -> std::sync::MutexGuard<'_, BTreeMap<JobId, (Fence, CancellationToken)>> {
        self.inner.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_heard_late_ends_no_later_run() {
        let (wakeups, job) = (Wakeups::default(), JobId::from_u128(1));
        let [first, second] = [1, 2].map(|epoch| Fence { generation: 1, epoch });
        let ending = CancellationToken::new();
        wakeups.run_began(job, second, ending.clone());
        wakeups.end_requested(job, first);
        assert!(!ending.is_cancelled());
        wakeups.end_requested(job, second);
        assert!(ending.is_cancelled());
    }

    /// A job may come back to its process before the run that gave it away has ended.
    #[test]
    fn the_end_of_an_old_run_leaves_the_next_one_listening() {
        let (wakeups, job) = (Wakeups::default(), JobId::from_u128(1));
        let [first, second] = [1, 2].map(|epoch| Fence { generation: 1, epoch });
        let ending = CancellationToken::new();
        wakeups.run_began(job, first, CancellationToken::new());
        wakeups.run_began(job, second, ending.clone());
        wakeups.run_ended(job, first);
        wakeups.end_requested(job, second);
        assert!(ending.is_cancelled());
        wakeups.run_ended(job, second);
        assert!(wakeups.running().is_empty());
    }
}
