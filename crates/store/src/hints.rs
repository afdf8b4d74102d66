//! Wake-ups inside one process. A hint says that a job was written; it may come twice or never, and
//! whoever waits for one also looks at the store from time to time.

#[expect(clippy::disallowed_types, reason = "lookups only; its order is never seen")]
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aetheris_core::id::JobId;
use tokio::sync::watch;

#[expect(clippy::disallowed_types, reason = "lookups only; its order is never seen")]
type Followed = HashMap<JobId, Entry>;

/// A job that is followed, and by how many: counted here, under the lock, because a receiver is still counted by
/// its sender while it is being dropped.
#[derive(Debug)]
struct Entry {
    followers: usize,
    sender: watch::Sender<u64>,
}

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
        let entry = followed.entry(job).or_insert_with(|| {
            self.inner.count.fetch_add(1, Ordering::Release);
            Entry { followers: 0, sender: watch::Sender::new(0) }
        });
        entry.followers += 1;
        let receiver = entry.sender.subscribe();
        Follower { inner: Arc::clone(&self.inner), job, receiver }
    }

    /// Says that a job was written and has `seq` events now.
    pub fn written(&self, job: JobId, seq: u64) {
        if self.inner.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let followed = self.inner.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = followed.get(&job) {
            // A write without an event is told as well: `send` always marks the value as changed.
            entry.sender.send_replace(seq);
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
        let Some(entry) = followed.get_mut(&self.job) else {
            return;
        };
        entry.followers = entry.followers.saturating_sub(1);
        if entry.followers == 0 {
            followed.remove(&self.job);
            self.inner.count.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn two_followers_that_end_together_leave_nothing() {
        let (hints, start) = (Hints::default(), Barrier::new(2));
        let rounds = 20_000;
        let follow = || {
            for round in 0..rounds {
                let follower = hints.follow(JobId::from_u128(round));
                start.wait();
                drop(follower);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(follow);
            scope.spawn(follow);
        });
        assert_eq!(hints.inner.count.load(Ordering::Acquire), 0);
        assert_eq!(hints.inner.followed.lock().unwrap().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn every_follower_hears_and_the_last_one_takes_the_entry_with_it() {
        let hears = async |follower: &mut Follower| {
            #[expect(clippy::disallowed_methods, reason = "around a wait for a hint: no future of a database")]
            let heard = tokio::time::timeout(std::time::Duration::from_secs(1), follower.changed()).await;
            heard.expect("a write is heard by whoever follows");
        };
        let (hints, job) = (Hints::default(), JobId::from_u128(1));
        let (mut first, mut second) = (hints.follow(job), hints.follow(job));
        hints.written(job, 3);
        hears(&mut first).await;
        hears(&mut second).await;
        // A write without an event, as a signal that is kept, is one.
        hints.written(job, 3);
        hears(&mut first).await;
        hears(&mut second).await;
        drop(first);
        hints.written(job, 4);
        hears(&mut second).await;
        drop(second);
        assert_eq!(hints.inner.followed.lock().unwrap().len(), 0);
    }
}
