//! Jobs whose holder is gone: taken back when their lease is over, or at once by proof of its death.

use std::time::Duration;

use aetheris_core::id::{InstanceId, JobId};
use aetheris_core::lease::Fence;
use aetheris_runtime::ops::{Proof, Reclaimed};
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{OpError, Runtime};
use aetheris_store::ExpiredLease;
use futures_util::StreamExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::writes::Writes;
use crate::{CONCURRENT_WRITES, SweepOptions};

/// Takes back expired leases, until told to stop. Its pulse beats with every page and every job.
pub async fn reclaim_expired(rt: Runtime, options: SweepOptions, pulse: Pulse, stop: CancellationToken) {
    let mut sweep = Sweep::new(rt, pulse, stop);
    while !sweep.stop.is_cancelled() {
        aetheris_fault::crash_point!("vital.leases");
        if let Err(error) = sweep.pass().await {
            tracing::warn!(%error, "expired leases could not be looked at; trying again");
        }
        sweep.rest(options.leases.to_std()).await;
    }
    sweep.finish().await;
}

/// Takes back what has expired, in one pass; how many jobs were taken.
///
/// # Errors
/// The leases cannot be read.
pub async fn sweep_expired(rt: &Runtime) -> Result<usize, OpError> {
    let mut sweep = Sweep::new(rt.clone(), Pulse::default(), CancellationToken::new());
    sweep.pass().await?;
    sweep.finish().await;
    Ok(sweep.taken)
}

/// Takes back at once every job of an instance that is proved dead; how many there were. What fails is passed
/// over and tried again for as long as others can be taken.
///
/// # Errors
/// The store cannot be asked, or some jobs cannot be taken: they are left to expire.
pub async fn reclaim_instance(rt: &Runtime, dead: InstanceId) -> Result<usize, OpError> {
    let mut taken = 0;
    loop {
        let (now, left) = take_all_of(rt, dead).await?;
        taken += now;
        if left == 0 || aetheris_fault::planted!("dead-only-first-page") {
            return Ok(taken);
        }
        if now == 0 {
            return Err(OpError::StateConflict(format!(
                "{left} jobs of the dead instance {dead} could not be taken back, {taken} were"
            )));
        }
    }
}

/// One pass over an instance's jobs: how many were taken, and how many failed.
async fn take_all_of(rt: &Runtime, dead: InstanceId) -> Result<(usize, usize), OpError> {
    let (mut after, mut taken, mut left) = (None, 0, 0);
    loop {
        let held = rt.store.held_by(dead, after, crate::page()).await?;
        let Some((last, _)) = held.last() else {
            return Ok((taken, left));
        };
        if after.is_some() && aetheris_fault::planted!("dead-only-first-page") {
            return Ok((taken, left));
        }
        after = Some(*last);
        aetheris_fault::crash_point!("sweep.instance.listed");
        for outcome in reclaim_all(rt, held, Proof::Dead(dead)).await {
            match outcome {
                Ok(Reclaimed::Taken) => taken += 1,
                Ok(Reclaimed::NotHeld) => {}
                Err(_) => left += 1,
            }
        }
    }
}

struct Sweep {
    failed: Backoff<JobId>,
    pulse: Pulse,
    rt: Runtime,
    stop: CancellationToken,
    taken: usize,
    writes: Writes<JobId, Result<Reclaimed, OpError>>,
}

impl Sweep {
    fn new(rt: Runtime, pulse: Pulse, stop: CancellationToken) -> Self {
        Self { failed: Backoff::default(), pulse, rt, stop, taken: 0, writes: Writes::default() }
    }

    /// Goes through everything that has expired, page by page, unless it is told to stop. It does not wait for those that
    /// are slow: they go on during the rest, and the next pass leaves them alone.
    async fn pass(&mut self) -> Result<(), OpError> {
        let mut after = None;
        loop {
            let page = crate::page();
            let expired = self.rt.store.expired(after, page).await?;
            self.beat();
            if !expired.is_empty() {
                aetheris_fault::crash_point!("sweep.leases.listed");
            }
            after = expired.last().copied().filter(|_| expired.len() >= page);
            for lease in expired {
                self.begin(lease).await;
            }
            if after.is_none() || self.stop.is_cancelled() {
                self.failed.forget_absent(self.rt.system.clock.boot());
                return Ok(());
            }
        }
    }

    /// Begins to take one back, unless it is left alone for now, as soon as not too many are under way.
    async fn begin(&mut self, ExpiredLease { fence, job, .. }: ExpiredLease) {
        if self.writes.has(&job) || !self.failed.may_try(&job, self.rt.system.clock.boot()) {
            return;
        }
        while self.writes.is_full() {
            self.end_one().await;
        }
        let rt = self.rt.clone();
        self.writes.begin(job, async move { reclaim(&rt, job, fence, Proof::Expired).await });
    }

    /// Waits for so long, while those under way go on.
    async fn rest(&mut self, pause: Duration) {
        let (until, stop) = (Instant::now() + pause, self.stop.clone());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some((job, outcome)) = self.writes.next() => self.ended(job, &outcome),
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    /// Waits for all that are under way.
    async fn finish(&mut self) {
        while self.end_one().await {}
    }

    /// Waits for the next that ends; whether there was one.
    async fn end_one(&mut self) -> bool {
        let Some((job, outcome)) = self.writes.next().await else { return false };
        self.ended(job, &outcome);
        true
    }

    fn ended(&mut self, job: JobId, outcome: &Result<Reclaimed, OpError>) {
        self.beat();
        match outcome {
            Ok(Reclaimed::Taken) => {
                self.taken += 1;
                self.failed.worked(&job);
            }
            Ok(Reclaimed::NotHeld) => self.failed.worked(&job),
            Err(error) if error.is_of_this_job() => drop(self.failed.failed(job, self.rt.system.clock.boot())),
            Err(_) => {}
        }
    }

    fn beat(&self) {
        self.pulse.beat(self.rt.system.clock.as_ref());
    }
}

/// Takes one job back, and says so.
async fn reclaim(rt: &Runtime, job: JobId, fence: Fence, proof: Proof) -> Result<Reclaimed, OpError> {
    let outcome = rt.reclaim(job, fence, proof).await;
    match &outcome {
        Ok(Reclaimed::Taken) => {
            tracing::info!(%job, %fence, reason = proof.as_str(), "a job was taken back from its holder");
        }
        Ok(Reclaimed::NotHeld) => {}
        Err(OpError::Crowded) => tracing::debug!(%job, %fence, "a large job waits for room to be taken back"),
        Err(error) => tracing::warn!(%job, %fence, %error, "a job could not be taken back from its holder"),
    }
    outcome
}

async fn reclaim_all(rt: &Runtime, jobs: Vec<(JobId, Fence)>, proof: Proof) -> Vec<Result<Reclaimed, OpError>> {
    let reclaim = |(job, fence)| reclaim(rt, job, fence, proof);
    futures_util::stream::iter(jobs).map(reclaim).buffer_unordered(CONCURRENT_WRITES).collect().await
}
