//! Jobs whose holder is gone: taken back when their lease is over, or at once by proof of its death.

use std::time::Duration;

use aetheris_core::id::{InstanceId, JobId};
use aetheris_core::lease::Fence;
use aetheris_runtime::ops::{Proof, Reclaimed};
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{OpError, Runtime};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::{CONCURRENT_WRITES, SweepOptions};

/// Takes back expired leases, until told to stop. Its pulse beats with every page.
pub async fn reclaim_expired(rt: Runtime, options: SweepOptions, pulse: Pulse, stop: CancellationToken) {
    let mut sweep = Sweep { failed: Backoff::default(), pulse, stop: stop.clone() };
    while !stop.is_cancelled() {
        aetheris_fault::crash_point!("vital.leases");
        if let Err(error) = sweep.pass(&rt).await {
            tracing::warn!(%error, "expired leases could not be looked at; trying again");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(options.leases.to_std()) => {}
        }
    }
}

/// Takes back what has expired, in one pass; how many jobs were taken.
///
/// # Errors
/// The leases cannot be read.
pub async fn sweep_expired(rt: &Runtime) -> Result<usize, OpError> {
    let (pulse, stop) = (Pulse::default(), CancellationToken::new());
    Sweep { failed: Backoff::default(), pulse, stop }.pass(rt).await
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
        for (_, outcome) in reclaim_all(rt, held, Proof::Dead(dead)).await {
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
    stop: CancellationToken,
}

impl Sweep {
    /// Goes through everything that has expired, page by page, unless it is told to stop.
    async fn pass(&mut self, rt: &Runtime) -> Result<usize, OpError> {
        let (mut after, mut taken) = (None, 0);
        loop {
            let page = crate::page();
            let expired = rt.store.expired(after, page).await?;
            self.pulse.beat(rt.system.clock.as_ref());
            if !expired.is_empty() {
                aetheris_fault::crash_point!("sweep.leases.listed");
            }
            after = expired.last().copied().filter(|_| expired.len() >= page);
            let now = rt.system.clock.boot();
            let ready = expired.iter().filter(|lease| self.failed.may_try(&lease.job, now));
            let ready = ready.map(|lease| (lease.job, lease.fence)).collect();
            taken += self.take(reclaim_all(rt, ready, Proof::Expired).await, now);
            if after.is_none() || self.stop.is_cancelled() {
                self.failed.forget_absent(now);
                return Ok(taken);
            }
        }
    }

    fn take(&mut self, outcomes: Vec<(JobId, Result<Reclaimed, OpError>)>, now: Duration) -> usize {
        let mut taken = 0;
        for (job, outcome) in outcomes {
            match outcome {
                Ok(Reclaimed::Taken) => {
                    taken += 1;
                    self.failed.worked(&job);
                }
                Ok(Reclaimed::NotHeld) => self.failed.worked(&job),
                Err(error) if error.is_of_this_job() => drop(self.failed.failed(job, now)),
                Err(_) => {}
            }
        }
        taken
    }
}

async fn reclaim_all(
    rt: &Runtime,
    jobs: Vec<(JobId, Fence)>,
    proof: Proof,
) -> Vec<(JobId, Result<Reclaimed, OpError>)> {
    futures_util::stream::iter(jobs)
        .map(|(job, fence)| async move {
            let outcome = rt.reclaim(job, fence, proof).await;
            match &outcome {
                Ok(Reclaimed::Taken) => {
                    tracing::info!(%job, %fence, reason = proof.as_str(), "a job was taken back from its holder");
                }
                Ok(Reclaimed::NotHeld) => {}
                Err(error) => tracing::warn!(%job, %fence, %error, "a job could not be taken back from its holder"),
            }
            (job, outcome)
        })
        .buffer_unordered(CONCURRENT_WRITES)
        .collect()
        .await
}
