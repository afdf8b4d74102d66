//! The bus: what the parts of one process tell each other so that nobody has to poll. A job was written, its end was asked
//! for, a timer was set. Nothing on it is a fact: a message may come twice or never, and whoever waits for one also looks
//! at the store from time to time.

use std::collections::BTreeMap;
#[expect(clippy::disallowed_types, reason = "lookups only; its order is never seen")]
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_core::id::{AttemptId, JobId};
use aetheris_core::lease::Fence;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

#[expect(clippy::disallowed_types, reason = "lookups only; its order is never seen")]
type Followed = HashMap<JobId, Entry>;

/// A job that is followed, and by how many: counted here, under the lock, because a receiver is still counted by
/// its sender while it is being dropped.
#[derive(Debug)]
struct Entry {
    /// What its models say; nobody listens where there is none.
    deltas: Option<broadcast::Sender<Delta>>,
    followers: usize,
    sender: watch::Sender<u64>,
}

/// A piece of a model's answer, for people who watch. What is recorded is the whole answer; a piece may be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The claim under which the model was asked.
    pub attempt: AttemptId,
    /// How many characters of this answer came before it. At 0 an answer begins: what was heard of the step before is void.
    pub from: u64,
    /// The step.
    pub path: StepPath,
    /// The piece.
    pub text: String,
}

/// Who waits for what. Clones are the same bus.
#[derive(Debug, Clone, Default)]
pub struct Bus {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: AtomicUsize,
    followed: Mutex<Followed>,
    running: Mutex<BTreeMap<JobId, Running>>,
    outbox: Notify,
    timers: Notify,
}

/// A run of this process.
#[derive(Debug)]
struct Running {
    ending: CancellationToken,
    fence: Fence,
    news: Arc<Notify>,
}

/// What a follower hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A model has said something.
    Delta(Delta),
    /// The job was written again.
    Written,
}

/// A follower of one job; dropping it ends the following.
#[derive(Debug)]
pub struct Follower {
    deltas: Option<broadcast::Receiver<Delta>>,
    inner: Arc<Inner>,
    job: JobId,
    receiver: watch::Receiver<u64>,
}

impl Bus {
    /// Follows what is written of a job from now on.
    #[must_use]
    pub fn follow(&self, job: JobId) -> Follower {
        self.follower(job, false)
    }

    /// The same, and what its models say.
    #[must_use]
    pub fn listen(&self, job: JobId) -> Follower {
        self.follower(job, true)
    }

    fn follower(&self, job: JobId, listens: bool) -> Follower {
        let mut followed = self.inner.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = followed.entry(job).or_insert_with(|| {
            self.inner.count.fetch_add(1, Ordering::Release);
            Entry { deltas: None, followers: 0, sender: watch::Sender::new(0) }
        });
        entry.followers += 1;
        let heard =
            listens.then(|| entry.deltas.get_or_insert_with(|| broadcast::Sender::new(limits::DELTAS_HELD_MAX)));
        let (deltas, receiver) = (heard.map(|deltas| deltas.subscribe()), entry.sender.subscribe());
        Follower { deltas, inner: Arc::clone(&self.inner), job, receiver }
    }

    /// A model has said something; `pieces` are made only where somebody listens. Costs nobody a wait: followers that are
    /// behind lose the oldest pieces.
    pub fn said<P: IntoIterator<Item = Delta>>(&self, job: JobId, pieces: impl FnOnce() -> P) {
        if self.inner.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let followed = self.inner.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let deltas = followed.get(&job).and_then(|entry| entry.deltas.as_ref());
        if let Some(deltas) = deltas.filter(|deltas| deltas.receiver_count() > 0) {
            for piece in pieces() {
                // Whoever listened may have gone.
                let _unheard = deltas.send(piece);
            }
        }
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

    /// A run of this process wants to hear that its job's end is asked for, and of what ends a wait of it.
    pub fn run_began(&self, job: JobId, fence: Fence, ending: CancellationToken, news: Arc<Notify>) {
        self.running().insert(job, Running { ending, fence, news });
    }

    /// The run under this fence is over; the job's next one may have begun already.
    pub fn run_ended(&self, job: JobId, fence: Fence) {
        let mut running = self.running();
        if running.get(&job).is_some_and(|run| run.fence == fence) {
            running.remove(&job);
        }
    }

    /// The end of a job was asked for while it ran under this fence; that run, if it is in this process, hears it now
    /// and not with its next heartbeat. A later one has nothing to end.
    pub fn end_requested(&self, job: JobId, fence: Fence) {
        if let Some(run) = self.running().get(&job).filter(|run| run.fence == fence) {
            run.ending.cancel();
        }
    }

    /// A step of a job may go on for something that was written from outside; its run, if it is in this process, looks now
    /// and not with its next write.
    pub fn news(&self, job: JobId) {
        if let Some(run) = self.running().get(&job) {
            run.news.notify_one();
        }
    }

    /// A timer was set; it may be due before anything that was known.
    pub fn timer_set(&self) {
        self.inner.timers.notify_one();
    }

    /// Waits for the next [`Bus::timer_set`].
    pub async fn timers_changed(&self) {
        self.inner.timers.notified().await;
    }

    /// Something was promised.
    pub fn promised(&self) {
        self.inner.outbox.notify_one();
    }

    /// Waits for the next [`Bus::promised`].
    pub async fn outbox_changed(&self) {
        self.inner.outbox.notified().await;
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<JobId, Running>> {
        self.inner.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    /// Waits for the next piece of an answer, or until the job is written again. Safe to drop at any time.
    pub async fn heard(&mut self) -> Heard {
        let (deltas, receiver) = (self.deltas.as_mut(), &mut self.receiver);
        let piece = async {
            let Some(deltas) = deltas else { return std::future::pending().await };
            loop {
                match deltas.recv().await {
                    Ok(delta) => return delta,
                    // The gap shows in `from`.
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            biased;
            delta = piece => Heard::Delta(delta),
            Ok(()) = receiver.changed() => Heard::Written,
            else => std::future::pending().await,
        }
    }

    /// A piece of an answer that is already here.
    pub fn ready_delta(&mut self) -> Option<Delta> {
        let deltas = self.deltas.as_mut()?;
        loop {
            match deltas.try_recv() {
                Ok(delta) => return Some(delta),
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(broadcast::error::TryRecvError::Closed | broadcast::error::TryRecvError::Empty) => return None,
            }
        }
    }

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
        let (bus, start) = (Bus::default(), Barrier::new(2));
        let rounds = 20_000;
        let follow = || {
            for round in 0..rounds {
                let follower = bus.follow(JobId::from_u128(round));
                start.wait();
                drop(follower);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(follow);
            scope.spawn(follow);
        });
        assert_eq!(bus.inner.count.load(Ordering::Acquire), 0);
        assert_eq!(bus.inner.followed.lock().unwrap().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn every_follower_hears_and_the_last_one_takes_the_entry_with_it() {
        let hears = async |follower: &mut Follower| {
            #[expect(clippy::disallowed_methods, reason = "around a wait for a hint: no future of a database")]
            let heard = tokio::time::timeout(std::time::Duration::from_secs(1), follower.changed()).await;
            heard.expect("a write is heard by whoever follows");
        };
        let (bus, job) = (Bus::default(), JobId::from_u128(1));
        let (mut first, mut second) = (bus.follow(job), bus.follow(job));
        bus.written(job, 3);
        hears(&mut first).await;
        hears(&mut second).await;
        // A write without an event, as a signal that is kept, is one.
        bus.written(job, 3);
        hears(&mut first).await;
        hears(&mut second).await;
        drop(first);
        bus.written(job, 4);
        hears(&mut second).await;
        drop(second);
        assert_eq!(bus.inner.followed.lock().unwrap().len(), 0);
    }

    /// A sweep that is looking while a timer is set hears of it when it waits.
    #[tokio::test(start_paused = true)]
    async fn a_timer_that_is_set_while_nobody_waits_is_heard_by_whoever_waits_next() {
        let bus = Bus::default();
        bus.timer_set();
        #[expect(clippy::disallowed_methods, reason = "around a wait for a hint: no future of a database")]
        let heard = tokio::time::timeout(std::time::Duration::from_secs(1), bus.timers_changed()).await;
        heard.expect("what was set before the wait is heard");
    }

    #[test]
    fn a_request_that_is_heard_late_ends_no_later_run() {
        let (bus, job) = (Bus::default(), JobId::from_u128(1));
        let [first, second] = [1, 2].map(|epoch| Fence { generation: 1, epoch });
        let ending = CancellationToken::new();
        bus.run_began(job, second, ending.clone(), Arc::default());
        bus.end_requested(job, first);
        assert!(!ending.is_cancelled());
        bus.end_requested(job, second);
        assert!(ending.is_cancelled());
    }

    /// A job may come back to its process before the run that gave it away has ended.
    #[test]
    fn the_end_of_an_old_run_leaves_the_next_one_listening() {
        let (bus, job) = (Bus::default(), JobId::from_u128(1));
        let [first, second] = [1, 2].map(|epoch| Fence { generation: 1, epoch });
        let ending = CancellationToken::new();
        bus.run_began(job, first, CancellationToken::new(), Arc::default());
        bus.run_began(job, second, ending.clone(), Arc::default());
        bus.run_ended(job, first);
        bus.end_requested(job, second);
        assert!(ending.is_cancelled());
        bus.run_ended(job, second);
        assert!(bus.running().is_empty());
    }
    /// A run that is busy when the news comes hears of it when it waits; that of another job does not.
    #[tokio::test(start_paused = true)]
    async fn news_of_a_job_is_heard_by_its_run() {
        let (bus, news) = (Bus::default(), Arc::<Notify>::default());
        let [job, other] = [1, 2].map(JobId::from_u128);
        bus.run_began(job, Fence::default(), CancellationToken::new(), Arc::clone(&news));
        bus.news(other);
        #[expect(clippy::disallowed_methods, reason = "around a wait for a hint: no future of a database")]
        let heard = || tokio::time::timeout(std::time::Duration::from_secs(1), news.notified());
        assert!(heard().await.is_err());
        bus.news(job);
        assert!(heard().await.is_ok());
        bus.run_ended(job, Fence::default());
        bus.news(job);
        assert!(heard().await.is_err());
    }

    /// Whoever begins to listen takes nothing from those who listened before.
    #[test]
    fn everyone_who_listens_hears_what_a_model_says() {
        let (bus, job) = (Bus::default(), JobId::from_u128(1));
        let mut first = bus.listen(job);
        let mut second = bus.listen(job);
        let _third = bus.follow(job);
        let delta = Delta { attempt: AttemptId::from_u128(1), from: 0, path: "n".into(), text: "a".to_owned() };
        bus.said(job, || Some(delta.clone()));
        assert_eq!([first.ready_delta(), second.ready_delta()], [Some(delta.clone()), Some(delta)]);
        drop(second);
        assert_eq!(first.ready_delta(), None);
    }
}
