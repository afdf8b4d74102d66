//! Wake-ups inside one process. A hint says that a job was written; it may come twice or never, and
//! whoever waits for one also looks at the store from time to time.

#[expect(clippy::disallowed_types, reason = "lookups only; its order is never seen")]
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::id::JobId;
use tokio::sync::watch;

#[expect(clippy::disallowed_types, reason = "lookups only; its order is never seen")]
type Followed = HashMap<JobId, watch::Sender<u64>>;

/// Who follows which job.
#[derive(Debug, Clone, Default)]
pub struct Hints {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    followed: Mutex<Followed>,
    count: AtomicUsize,
}

/// A follower of one job; dropping it ends the following.
#[derive(Debug)]
pub struct Follower {
    inner: Arc<Inner>,
    job: JobId,
    receiver: watch::Receiver<u64>,
}

impl Hints {
    /// Follows a job from now on.
    #[must_use]
    pub fn follow(&self, job: JobId) -> Follower {
        let mut followed = self.inner.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = match followed.get(&job) {
            Some(sender) => sender.subscribe(),
            None => {
                let (sender, receiver) = watch::channel(0);
                followed.insert(job, sender);
                self.inner.count.fetch_add(1, Ordering::Release);
                receiver
            }
        };
        Follower { inner: Arc::clone(&self.inner), job, receiver }
    }

    /// Says that a job was written and has `seq` events now.
    pub fn written(&self, job: JobId, seq: u64) {
        if self.inner.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let followed = self.inner.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = followed.get(&job) {
            // A write without an event is told as well: `send` always marks the value as changed.
            sender.send_replace(seq);
        }
    }
}

impl Follower {
    /// Waits until the job is written again. Safe to drop at any time.
    pub async fn changed(&mut self) {
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut followed = self.inner.followed.lock().unwrap_or_else(PoisonError::into_inner);
        // This receiver is still counted while it is being dropped.
        if followed.get(&self.job).is_some_and(|sender| sender.receiver_count() <= 1) {
            followed.remove(&self.job);
            self.inner.count.fetch_sub(1, Ordering::Release);
        }
    }
}
