//! The keeper of leases: renews all of a worker's in one statement, and ends runs that lose theirs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_core::id::JobId;
use aetheris_runtime::Runtime;
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::run::Lease;
use aetheris_store::{Heartbeat, LeaseRenewal, Renewal, StoreError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{WorkerOptions, safe_for};

/// The leases of a worker's runs.
#[derive(Debug, Default)]
pub(crate) struct HeldLeases {
    closed: CancellationToken,
    leases: Mutex<BTreeMap<JobId, Arc<Lease>>>,
    /// A lease has come that the keeper is to look at before its next beat.
    short: Notify,
}

impl HeldLeases {
    /// Begins to keep a lease. An earlier one of the same job is lost: this claim came after it. A claim
    /// that was long on its way brings a lease that may be spent before the next beat, at `next_beat` by
    /// the boot clock at the latest: the keeper is told.
    pub(crate) fn begin(&self, job: JobId, lease: Arc<Lease>, next_beat: Duration) {
        let short = lease.safe_until() <= next_beat;
        if let Some(earlier) = self.leases().insert(job, lease) {
            earlier.lost.cancel();
        }
        if short {
            self.short.notify_one();
        }
    }

    /// Keeps exactly this lease no more; the job's next run may have begun already.
    pub(crate) fn end(&self, job: JobId, lease: &Arc<Lease>) {
        let mut leases = self.leases();
        let whichever = aetheris_fault::planted!("old-run-ends-new-lease");
        if leases.get(&job).is_some_and(|held| Arc::ptr_eq(held, lease) || whichever) {
            leases.remove(&job);
        }
    }

    /// Every run has ended; the keeper may stop.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    fn snapshot(&self) -> Vec<(JobId, Arc<Lease>)> {
        self.leases().iter().map(|(job, lease)| (*job, Arc::clone(lease))).collect()
    }

    fn leases(&self) -> std::sync::MutexGuard<'_, BTreeMap<JobId, Arc<Lease>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews leases until its worker has ended.
#[derive(Debug)]
pub struct Keeper {
    held: Arc<HeldLeases>,
    options: WorkerOptions,
    pulse: Pulse,
    rt: Runtime,
}

impl Keeper {
    pub(crate) fn new(rt: Runtime, options: WorkerOptions, held: Arc<HeldLeases>) -> Self {
        Self { held, options, pulse: Pulse::default(), rt }
    }

    /// Shows its signs of life in this pulse: one with every look at its leases.
    #[must_use]
    pub fn with_pulse(self, pulse: Pulse) -> Self {
        Self { pulse, ..self }
    }

    /// Renews at each heartbeat, sooner after an error, and between two of them ends every run whose
    /// lease is not safe any more.
    pub async fn run(self) {
        let beat = self.options.heartbeat.to_std();
        // Errors are retried often enough to have several tries before the lease is unsafe.
        let retry = (beat / 8).max(Duration::from_millis(10));
        let mut pause = beat;
        self.pulse.beat(self.rt.system.clock.as_ref());
        loop {
            tokio::select! {
                biased;
                () = self.held.closed.cancelled() => return,
                () = self.held.short.notified() => {}
                () = tokio::time::sleep(self.until_unsafe(pause)) => {}
            }
            aetheris_fault::crash_point!("vital.lease-keeper");
            self.end_unsafe();
            pause = if self.renew().await { beat } else { retry };
        }
    }

    /// The pause, or less if a lease becomes unsafe before.
    fn until_unsafe(&self, pause: Duration) -> Duration {
        let now = self.rt.system.clock.boot();
        let open = self.held.snapshot().into_iter().filter(|(_, lease)| !lease.lost.is_cancelled());
        let first = open.map(|(_, lease)| lease.safe_until().saturating_sub(now)).min();
        first.map_or(pause, |first| pause.min(first.max(Duration::from_millis(1))))
    }

    fn end_unsafe(&self) {
        let clock = self.rt.system.clock.as_ref();
        self.pulse.beat(clock);
        for (job, lease) in self.held.snapshot() {
            if !lease.lost.is_cancelled() && !lease.is_safe(clock) {
                aetheris_fault::sometimes!(LeaseNotSafe);
                tracing::warn!(%job, fence = %lease.fence, "the lease could not be renewed in time; its run ends");
                lease.lost.cancel();
            }
        }
    }

    /// Renews everything that is not lost. Whether the store answered.
    async fn renew(&self) -> bool {
        let held: BTreeMap<JobId, Arc<Lease>> =
            self.held.snapshot().into_iter().filter(|(_, lease)| !lease.lost.is_cancelled()).collect();
        if held.is_empty() {
            return true;
        }
        let leases = held.iter().map(|(job, lease)| LeaseRenewal { fence: lease.fence, job: *job }).collect();
        let request = Heartbeat { leases, ttl: self.options.lease_ttl, worker: self.options.id.clone() };
        let renewals = match self.beat(request).await {
            Ok(renewals) => renewals,
            Err(error) => {
                tracing::warn!(%error, "renewing leases failed; trying again while they are safe");
                return false;
            }
        };
        aetheris_fault::crash_point!("keeper.answered");
        for renewal in renewals {
            match renewal {
                Renewal::Renewed { end_requested, job, sent_at } => {
                    if let Some(lease) = held.get(&job) {
                        let late = aetheris_fault::planted!("lease-from-receipt");
                        let since = if late { self.rt.system.clock.boot() } else { sent_at };
                        lease.extend(since + safe_for(self.options.lease_ttl));
                        if end_requested {
                            lease.ending.cancel();
                        }
                    }
                }
                Renewal::Refused(job) => {
                    aetheris_fault::sometimes!(LeaseRefused);
                    if let Some(lease) = held.get(&job) {
                        lease.lost.cancel();
                    }
                }
            }
        }
        true
    }

    /// Sends the renewals, and goes on ending runs whose leases become unsafe while the store takes its
    /// time.
    async fn beat(&self, request: Heartbeat) -> Result<Vec<Renewal>, StoreError> {
        let mut beat = std::pin::pin!(self.rt.store.heartbeat(request));
        loop {
            tokio::select! {
                biased;
                renewals = &mut beat => return renewals,
                () = tokio::time::sleep(self.until_unsafe(Duration::from_secs(1))) => self.end_unsafe(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::id::{AttemptId, EventId, InstanceId, WorkerId};
    use aetheris_core::lease::Fence;
    use aetheris_core::time::Span;
    use aetheris_store::faulty::{Fault, FaultPlan, FaultyStore, Op};
    use aetheris_store::{ClaimIds, ClaimRequest};
    use aetheris_testing::{FakeModels, FakeTools, TestWorld};
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_comes_nearly_spent_is_looked_at_before_the_next_beat() {
        let rt = TestWorld::new(&FakeTools::new(), &FakeModels::new()).runtime().clone();
        let beat = Span::from_secs(10);
        let (id, poll_interval) = (WorkerId::from("w"), Span::from_secs(1));
        let options = WorkerOptions { heartbeat: beat, id, lease_ttl: Span::from_secs(30), poll_interval, slots: 1 };
        let held = Arc::new(HeldLeases::default());
        let keeper = tokio::spawn(Keeper::new(rt.clone(), options, Arc::clone(&held)).run());
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = rt.system.clock.boot();
        let lease = |left| {
            Arc::new(Lease::new(Fence::default(), now + left, CancellationToken::new(), CancellationToken::new()))
        };
        let (long, short) = (lease(Duration::from_secs(20)), lease(Duration::from_secs(2)));
        held.begin(JobId::from_u128(1), Arc::clone(&long), now + beat.to_std());
        held.begin(JobId::from_u128(2), Arc::clone(&short), now + beat.to_std());
        // The store knows neither: whoever looks ends the runs.
        short.lost.cancelled().await;
        assert!(rt.system.clock.boot() <= now + Duration::from_secs(2));
        // So does a refusal, however much is left.
        long.lost.cancelled().await;
        assert!(rt.system.clock.boot() <= now + Duration::from_secs(2));
        held.close();
        keeper.await.unwrap();
    }

    fn lease(rt: &Runtime, left: Duration) -> Arc<Lease> {
        let until = rt.system.clock.boot() + left;
        Arc::new(Lease::new(Fence::default(), until, CancellationToken::new(), CancellationToken::new()))
    }

    /// At its next beat the keeper would find it spent, and end its run instead of renewing it.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_spent_with_the_next_beat_is_looked_at_before() {
        let rt = TestWorld::new(&FakeTools::new(), &FakeModels::new()).runtime().clone();
        let (beat, moment) = (Duration::from_secs(10), Duration::from_micros(1));
        for (left, told) in [(beat - moment, true), (beat, true), (beat + moment, false)] {
            let (held, next_beat) = (HeldLeases::default(), rt.system.clock.boot() + beat);
            held.begin(JobId::from_u128(1), lease(&rt, left), next_beat);
            assert_eq!(held.short.notified().now_or_never().is_some(), told, "{left:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_keeper_shows_a_sign_of_life_from_its_start_on_and_with_every_look() {
        let rt = TestWorld::new(&FakeTools::new(), &FakeModels::new()).runtime().clone();
        let (heartbeat, id, poll_interval) = (Span::from_secs(10), WorkerId::from("w"), Span::from_secs(1));
        let options = WorkerOptions { heartbeat, id, lease_ttl: Span::from_secs(30), poll_interval, slots: 1 };
        let (held, pulse, clock) = (Arc::new(HeldLeases::default()), Pulse::default(), Arc::clone(&rt.system.clock));
        let keeper = Keeper::new(rt.clone(), options, Arc::clone(&held)).with_pulse(pulse.clone());
        assert_eq!(pulse.silent_for(clock.as_ref()), None);
        let keeper = tokio::spawn(keeper.run());
        for silent in [5, 0, 5, 0, 5] {
            tokio::time::sleep(Duration::from_millis(5_001)).await;
            let found = pulse.silent_for(clock.as_ref()).map(|silent| silent.as_secs());
            assert_eq!(found, Some(silent));
        }
        held.close();
        keeper.await.unwrap();
    }

    /// It was not there when the renewal was sent.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_comes_while_a_renewal_is_on_its_way_is_looked_at_too() {
        let mut rt = TestWorld::new(&FakeTools::new(), &FakeModels::new()).runtime().clone();
        let answer = FaultPlan::none().script(Op::Heartbeat, [Some(Fault::Slow(Span::from_secs(60)))]);
        rt.store = Arc::new(FaultyStore::new(Arc::clone(&rt.store), answer));
        let (heartbeat, id, poll_interval) = (Span::from_secs(10), WorkerId::from("w"), Span::from_secs(1));
        let options = WorkerOptions { heartbeat, id, lease_ttl: Span::from_secs(30), poll_interval, slots: 2 };
        let held = Arc::new(HeldLeases::default());
        held.begin(JobId::from_u128(1), lease(&rt, Duration::from_secs(50)), Duration::ZERO);
        let keeper = Keeper::new(rt.clone(), options, Arc::clone(&held));
        let comes = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let (short, began) = (lease(&rt, Duration::from_secs(2)), rt.system.clock.boot());
            held.begin(JobId::from_u128(2), Arc::clone(&short), Duration::ZERO);
            short.lost.cancelled().await;
            rt.system.clock.boot() - began
        };
        let (_, after) = tokio::join!(keeper.renew(), comes);
        assert!(after >= Duration::from_secs(2) && after <= Duration::from_secs(3), "{after:?}");
    }

    /// A run whose lease is lost may still await its call. Nothing is to be done for it, and nothing comes sooner.
    #[tokio::test(start_paused = true)]
    async fn a_lost_lease_makes_the_keeper_look_no_sooner() {
        let rt = TestWorld::new(&FakeTools::new(), &FakeModels::new()).runtime().clone();
        let (beat, id) = (Span::from_secs(10), WorkerId::from("w"));
        let options =
            WorkerOptions { heartbeat: beat, id, lease_ttl: Span::from_secs(30), poll_interval: beat, slots: 2 };
        let (spent, open) = (lease(&rt, Duration::ZERO), lease(&rt, Duration::from_secs(2)));
        let held = Arc::new(HeldLeases::default());
        let keeper = Keeper::new(rt, options, Arc::clone(&held));
        spent.lost.cancel();
        held.begin(JobId::from_u128(1), spent, Duration::ZERO);
        assert_eq!(keeper.until_unsafe(beat.to_std()), beat.to_std());
        held.begin(JobId::from_u128(2), open, Duration::ZERO);
        assert_eq!(keeper.until_unsafe(beat.to_std()), Duration::from_secs(2));
    }

    /// A job may come back to the worker before the run that gave it away has ended.
    #[tokio::test(start_paused = true)]
    async fn the_end_of_an_old_run_leaves_the_lease_of_the_next_alone() {
        let rt = TestWorld::new(&FakeTools::new(), &FakeModels::new()).runtime().clone();
        let held = HeldLeases::default();
        let (job, long) = (JobId::from_u128(1), Duration::from_secs(20));
        let (old, new) = (lease(&rt, long), lease(&rt, long));
        held.begin(job, Arc::clone(&old), Duration::ZERO);
        held.begin(job, Arc::clone(&new), Duration::ZERO);
        assert!(old.lost.is_cancelled() && !new.lost.is_cancelled(), "the newer claim came after the older lease");
        held.end(job, &old);
        assert!(held.snapshot().iter().any(|(_, kept)| Arc::ptr_eq(kept, &new)));
        held.end(job, &new);
        assert!(held.snapshot().is_empty());
    }

    /// An answer is of the lease that was asked for, also when the job has come back meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_refusal_that_comes_late_ends_no_later_run() {
        let mut rt = TestWorld::new(&FakeTools::new(), &FakeModels::new()).runtime().clone();
        let answer = FaultPlan::none().script(Op::Heartbeat, [Some(Fault::Slow(Span::from_secs(5)))]);
        rt.store = Arc::new(FaultyStore::new(Arc::clone(&rt.store), answer));
        let (id, second) = (WorkerId::from("w"), Span::from_secs(1));
        let options =
            WorkerOptions { heartbeat: second, id, lease_ttl: Span::from_secs(40), poll_interval: second, slots: 1 };
        let held = Arc::new(HeldLeases::default());
        let (job, long) = (JobId::from_u128(1), Duration::from_secs(20));
        let (old, new) = (lease(&rt, long), lease(&rt, long));
        held.begin(job, Arc::clone(&old), Duration::ZERO);
        let keeper = Keeper::new(rt.clone(), options, Arc::clone(&held));
        let comes_back = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            held.begin(job, Arc::clone(&new), Duration::ZERO);
        };
        let (answered, ()) = tokio::join!(keeper.renew(), comes_back);
        assert!(answered && old.lost.is_cancelled());
        assert!(!new.lost.is_cancelled());
    }

    /// Neither the next beat nor the next try is waited for.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_cannot_be_renewed_is_lost_at_the_moment_when_it_is_not_safe() {
        let mut rt = TestWorld::new(&FakeTools::new(), &FakeModels::new()).runtime().clone();
        let fails = FaultPlan::none().script(Op::Heartbeat, vec![Some(Fault::Before); 1_000]);
        rt.store = Arc::new(FaultyStore::new(Arc::clone(&rt.store), fails));
        let (id, poll_interval) = (WorkerId::from("w"), Span::from_secs(1));
        let heartbeat = Span::from_secs(10);
        let options = WorkerOptions { heartbeat, id, lease_ttl: Span::from_secs(30), poll_interval, slots: 1 };
        let (held, began) = (Arc::new(HeldLeases::default()), rt.system.clock.boot());
        let kept = lease(&rt, Duration::from_millis(12_300));
        held.begin(JobId::from_u128(1), Arc::clone(&kept), began);
        let keeper = tokio::spawn(Keeper::new(rt.clone(), options, Arc::clone(&held)).run());
        kept.lost.cancelled().await;
        let after = rt.system.clock.boot() - began;
        assert!(after >= Duration::from_millis(12_300) && after < Duration::from_millis(12_310), "{after:?}");
        held.close();
        keeper.await.unwrap();
    }

    /// Whoever waits for a store that does not answer goes on looking at what it holds.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_becomes_unsafe_while_its_renewal_is_on_its_way_is_lost_then() {
        let mut rt = TestWorld::new(&FakeTools::new(), &FakeModels::new()).runtime().clone();
        let answer = FaultPlan::none().script(Op::Heartbeat, [Some(Fault::Slow(Span::from_secs(60)))]);
        rt.store = Arc::new(FaultyStore::new(Arc::clone(&rt.store), answer));
        let (id, second) = (WorkerId::from("w"), Span::from_secs(1));
        let options =
            WorkerOptions { heartbeat: second, id, lease_ttl: Span::from_secs(40), poll_interval: second, slots: 1 };
        let (held, began) = (Arc::new(HeldLeases::default()), rt.system.clock.boot());
        let kept = lease(&rt, Duration::from_secs(5));
        held.begin(JobId::from_u128(1), Arc::clone(&kept), Duration::ZERO);
        let keeper = Keeper::new(rt.clone(), options, held);
        let lost = async {
            kept.lost.cancelled().await;
            rt.system.clock.boot() - began
        };
        let (_, after) = tokio::join!(keeper.renew(), lost);
        assert!(after >= Duration::from_secs(5) && after < Duration::from_secs(7), "{after:?}");
    }

    /// What the answer of a renewal took is no part of what is left of the lease.
    #[tokio::test(start_paused = true)]
    async fn a_lease_counts_from_the_sending_of_its_renewal() {
        let world = TestWorld::new(&FakeTools::new(), &FakeModels::new());
        let file = "agent: a\nplan:\n  nodes:\n    - { id: n, kind: transform, output: 1 }\n";
        let agent = world.put(file).await.unwrap();
        let job = world.send(agent.as_str(), serde_json::Value::Null).await.unwrap();
        let mut rt = world.runtime().clone();
        let (id, second, ttl) = (WorkerId::from("w"), Span::from_secs(1), Span::from_secs(40));
        let ids = vec![ClaimIds { attempt: AttemptId::from_u128(1), event: EventId::from_u128(1) }];
        let (instance, linger, worker) = (InstanceId::from_u128(1), Span::ZERO, id.clone());
        let claimed = rt.store.claim(ClaimRequest { ids, instance, linger, ttl, worker }).await.unwrap();
        let slow = Span::from_secs(5);
        let answer = FaultPlan::none().script(Op::Heartbeat, [Some(Fault::Slow(slow))]);
        rt.store = Arc::new(FaultyStore::new(Arc::clone(&rt.store), answer));
        let options = WorkerOptions { heartbeat: second, id, lease_ttl: ttl, poll_interval: second, slots: 1 };
        let held = Arc::new(HeldLeases::default());
        let sent_at = rt.system.clock.boot();
        let until = sent_at + Duration::from_secs(10);
        let lease = Lease::new(claimed[0].fence, until, CancellationToken::new(), CancellationToken::new());
        let kept = Arc::new(lease);
        held.begin(job, Arc::clone(&kept), Duration::ZERO);
        assert!(Keeper::new(rt.clone(), options, held).renew().await);
        assert_eq!(rt.system.clock.boot() - sent_at, slow.to_std());
        assert_eq!(kept.safe_until(), sent_at + safe_for(ttl));
        // An answer that comes late takes nothing back.
        kept.extend(sent_at);
        assert_eq!(kept.safe_until(), sent_at + safe_for(ttl));
    }
}
