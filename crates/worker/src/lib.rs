//! The worker: claims jobs into its slots, holds their leases, runs them, and drains.
//!
//! Two parts, so that one cannot starve the other: [`Worker::run`] claims and runs; [`Keeper::run`]
//! renews the leases and tells a run when its lease is lost. The keeper belongs on a thread of its own:
//! steps that keep a processor busy must not cost a lease.
//!
//! A lease is safe for its length less a quarter, from the *sending* of its last good renewal, by the
//! boot clock. A refused renewal ends the run at once; an error is retried until the lease is not safe.

mod keeper;

pub use keeper::Keeper;

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::id::{AttemptId, EventId, InstanceId, JobId, WorkerId};
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_runtime::Runtime;
use aetheris_runtime::run::{self, Lease, RunEnd};
use aetheris_store::Bus;
use aetheris_store::{ClaimIds, ClaimRequest, Claimed};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::keeper::HeldLeases;

/// What a worker is configured with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// How often leases are renewed; at most a third of their length.
    pub heartbeat: Span,
    /// Its name.
    pub id: WorkerId,
    /// How long a lease lives without being renewed.
    pub lease_ttl: Span,
    /// How long a claim may wait for work that other processes make.
    pub poll_interval: Span,
    /// How many jobs it runs at once.
    pub slots: usize,
}

/// Tokens by which a worker is told to stop.
#[derive(Debug, Clone, Default)]
pub struct StopSignals {
    /// Give up calls that have left as well.
    pub abandon: CancellationToken,
    /// No new claims and steps; give back what runs.
    pub drain: CancellationToken,
}

/// Claims jobs into slots and runs them.
#[derive(Debug)]
pub struct Worker {
    /// The last claim has answered.
    claimed_last: CancellationToken,
    held: Arc<HeldLeases>,
    instance: InstanceId,
    options: WorkerOptions,
    rt: Runtime,
    slots: Arc<Semaphore>,
    stop: StopSignals,
}

/// The longest that one claim waits for work. A claim under way is never broken off, so this is how long an
/// idle worker takes to hear that it is to drain.
const LINGER_MAX: Span = Span::from_millis(250);

/// The most jobs one claim asks for. Names are made for each, and more come with the next claim, which is
/// served in the next commit.
const JOBS_PER_CLAIM: usize = 64;

/// How long a lease counts as safe after the sending of its renewal: three quarters of its length.
pub(crate) fn safe_for(ttl: Span) -> Duration {
    let whole = ttl.to_std();
    whole - whole / 4
}

impl Worker {
    /// A worker and the keeper of its leases.
    #[must_use]
    pub fn new(rt: Runtime, instance: InstanceId, options: WorkerOptions, stop: StopSignals) -> (Self, Keeper) {
        let slots = options.slots.clamp(1, limits::WORKER_SLOTS_MAX);
        let options = WorkerOptions { slots, ..options };
        let held = Arc::new(HeldLeases::default());
        let keeper = Keeper::new(rt.clone(), options.clone(), Arc::clone(&held));
        let slots = Arc::new(Semaphore::new(slots));
        (Self { claimed_last: CancellationToken::new(), held, instance, options, rt, slots, stop }, keeper)
    }

    /// Claims and runs until told to drain; returns when every run has ended.
    pub async fn run(self) {
        // Dropping the worker ends its runs with it: nothing of it outlives it.
        let mut runs = JoinSet::new();
        let mut trouble = 0u32;
        while !self.stop.drain.is_cancelled() {
            aetheris_fault::crash_point!("vital.worker");
            let Some(slots) = self.free_slots().await else {
                break;
            };
            while let Some(ended) = runs.try_join_next() {
                note_panic(ended);
            }
            let claim = self.rt.store.claim(self.request(slots.num_permits()));
            let claimed = if aetheris_fault::planted!("drain-breaks-claim-off") {
                self.stop.drain.run_until_cancelled(claim).await.unwrap_or(Ok(Vec::new()))
            } else {
                claim.await
            };
            match claimed {
                Ok(claimed) => {
                    trouble = 0;
                    if !claimed.is_empty() {
                        aetheris_fault::crash_point!("worker.claimed");
                    }
                    self.launch(&mut runs, slots, claimed);
                    // The runs first, then the next claim.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    trouble = trouble.saturating_add(1);
                    tracing::warn!(%error, "claiming failed; trying again");
                    self.pause(trouble).await;
                }
            }
        }
        // From here on nothing is claimed any more, so that what is given back stays given back.
        self.claimed_last.cancel();
        if !runs.is_empty() {
            tracing::info!(jobs = runs.len(), "draining: jobs are given back; calls in flight are waited for");
        }
        while let Some(ended) = runs.join_next().await {
            note_panic(ended);
        }
        aetheris_fault::crash_point!("worker.drained");
        tracing::info!("drained");
        self.held.close();
    }

    /// Waits for a free slot, then takes all that are free; `None` when the worker is to drain.
    async fn free_slots(&self) -> Option<OwnedSemaphorePermit> {
        let mut taken = tokio::select! {
            biased;
            () = self.stop.drain.cancelled() => return None,
            permit = Arc::clone(&self.slots).acquire_owned() => permit.ok()?,
        };
        let more = self.slots.available_permits().min(JOBS_PER_CLAIM - 1);
        let more = u32::try_from(more).unwrap_or(0);
        if more > 0
            && let Ok(rest) = Arc::clone(&self.slots).try_acquire_many_owned(more)
        {
            taken.merge(rest);
        }
        Some(taken)
    }

    fn request(&self, slots: usize) -> ClaimRequest {
        let ids = self.rt.system.ids.as_ref();
        let pair =
            |_| ClaimIds { attempt: AttemptId::from_u128(ids.secret()), event: EventId::from_u128(ids.secret()) };
        ClaimRequest {
            ids: (0..slots).map(pair).collect(),
            instance: self.instance,
            linger: self.options.poll_interval.min(LINGER_MAX),
            ttl: self.options.lease_ttl,
            worker: self.options.id.clone(),
        }
    }

    /// Starts a run per claimed job, each with its slot; the slots that nothing was claimed for are free
    /// again.
    fn launch(&self, runs: &mut JoinSet<()>, mut slots: OwnedSemaphorePermit, claimed: Vec<Claimed>) {
        for claimed in claimed {
            let Some(slot) = slots.split(1) else {
                // More than was asked for: it expires and is taken back.
                tracing::error!(job = %claimed.job, "the store gave a job for which no slot was asked");
                continue;
            };
            let (drain, abandon) = (self.stop.drain.clone(), self.stop.abandon.clone());
            let safe_until = claimed.sent_at + safe_for(self.options.lease_ttl);
            let lease = Lease::new(claimed.fence, safe_until, drain, abandon);
            let lease = Arc::new(lease.given_back_after(self.claimed_last.clone()));
            tracing::info!(job = %claimed.job, fence = %claimed.fence, "claimed");
            let kept = KeptLease::begin(self, claimed.job, &lease);
            let rt = self.rt.clone();
            runs.spawn(async move {
                let job = claimed.job;
                let end = Box::pin(run::run_job(&rt, claimed, &lease)).await;
                aetheris_fault::crash_point!("worker.run_ended");
                drop(kept);
                drop(slot);
                match end {
                    Ok(RunEnd::Lost) => tracing::warn!(%job, "the lease was lost; the run has ended"),
                    // The run itself says how a job has ended or what it waits for, and why.
                    Ok(RunEnd::Finished(_) | RunEnd::Blocked) => {}
                    Ok(RunEnd::Paused) => tracing::info!(%job, "paused"),
                    Ok(RunEnd::Requeued) => tracing::info!(%job, "given back"),
                    Err(error) => tracing::error!(%job, %error, "the run has stopped; its lease is left to expire"),
                }
            });
        }
    }

    async fn pause(&self, trouble: u32) {
        let millis = 50u64.saturating_mul(1 << trouble.min(6)).min(2_000);
        tokio::select! {
            biased;
            () = self.stop.drain.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(millis)) => {}
        }
    }
}

/// A run's lease being kept; dropping it, by a panic too, ends that, and the lease expires.
struct KeptLease {
    bus: Bus,
    held: Arc<HeldLeases>,
    job: JobId,
    lease: Arc<Lease>,
}

impl KeptLease {
    fn begin(worker: &Worker, job: JobId, lease: &Arc<Lease>) -> Self {
        let next_beat = worker.rt.system.clock.boot() + worker.options.heartbeat.to_std();
        worker.held.begin(job, Arc::clone(lease), next_beat);
        worker.rt.store.bus().run_began(job, lease.fence, lease.ending.clone(), Arc::clone(&lease.news));
        let (bus, held) = (worker.rt.store.bus().clone(), Arc::clone(&worker.held));
        Self { bus, held, job, lease: Arc::clone(lease) }
    }
}

impl Drop for KeptLease {
    fn drop(&mut self) {
        self.bus.run_ended(self.job, self.lease.fence);
        self.held.end(self.job, &self.lease);
    }
}

/// A run that panicked has left its lease, which expires; nothing of it was written by halves.
fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a run broke off; its lease is left to expire");
    }
}

#[cfg(test)]
mod tests {
    use aetheris_testing::{FakeModels, FakeTools, TestWorld};

    use super::*;

    fn worker(slots: usize, poll_interval: Span) -> (Worker, Keeper, StopSignals) {
        let rt = TestWorld::new(&FakeTools::new(), &FakeModels::new()).runtime().clone();
        let (id, stop) = (WorkerId::from("w"), StopSignals::default());
        let options =
            WorkerOptions { heartbeat: Span::from_secs(10), id, lease_ttl: Span::from_secs(30), poll_interval, slots };
        let (worker, keeper) = Worker::new(rt, InstanceId::from_u128(1), options, stop.clone());
        (worker, keeper, stop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_asks_for_the_free_slots_and_no_longer_than_a_drain_may_wait() {
        let long = Span::from_secs(60);
        for (slots, first, second) in [(0, 1, None), (1, 1, None), (10, 10, None), (64, 64, None), (65, 64, Some(1))] {
            let (worker, _keeper, stop) = worker(slots, long);
            let taken = worker.free_slots().await.unwrap();
            assert_eq!(taken.num_permits(), first, "{slots} slots");
            let request = worker.request(taken.num_permits());
            assert_eq!((request.ids.len(), request.ttl), (first, Span::from_secs(30)));
            assert_eq!(request.linger, LINGER_MAX);
            let names: std::collections::BTreeSet<u128> =
                request.ids.iter().flat_map(|ids| [ids.attempt.as_u128(), ids.event.as_u128()]).collect();
            assert_eq!(names.len(), 2 * first, "every claim has names of its own");
            match second {
                Some(left) => assert_eq!(worker.free_slots().await.unwrap().num_permits(), left),
                None => {
                    stop.drain.cancel();
                    assert!(worker.free_slots().await.is_none(), "no slot is free, and it is to drain");
                }
            }
        }
        let (often, ..) = worker(1, Span::from_millis(10));
        assert_eq!(often.request(1).linger, Span::from_millis(10));
        assert_eq!(safe_for(Span::from_secs(40)), Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_worker_and_its_keeper_end_soon_after_they_are_told_to() {
        let (worker, keeper, stop) = worker(2, Span::from_secs(60));
        let both = tokio::spawn(async { tokio::join!(worker.run(), keeper.run()) });
        tokio::time::sleep(Duration::from_millis(10)).await;
        stop.drain.cancel();
        tokio::select! {
            biased;
            ended = both => drop(ended.unwrap()),
            () = tokio::time::sleep(LINGER_MAX.to_std()) => panic!("one of them goes on"),
        }
    }
}
