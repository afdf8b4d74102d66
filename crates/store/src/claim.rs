//! Ownership requests and their answers.

use std::time::Duration;

use aetheris_core::id::{AttemptId, EventId, InstanceId, JobId, WorkerId};
use aetheris_core::lease::Fence;
use aetheris_core::time::{Span, Timestamp};

use crate::query::History;

/// The names that a claim's author gives to one job's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimIds {
    /// The public name of the epoch.
    pub attempt: AttemptId,
    /// The name of the `job_claimed` event.
    pub event: EventId,
}

/// A worker asks for jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// One pair per free slot: never more than can be run.
    pub ids: Vec<ClaimIds>,
    /// The process.
    pub instance: InstanceId,
    /// How long the answer may wait for something to claim.
    pub linger: Span,
    /// How long a lease lives.
    pub ttl: Span,
    /// The worker.
    pub worker: WorkerId,
}

/// A job that the asking worker now owns.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// The public name of the epoch.
    pub attempt_id: AttemptId,
    /// The fence that every write of the run carries.
    pub fence: Fence,
    /// The job's history up to and with the claim, where it is short; else it is to be read.
    pub history: Option<History>,
    /// The job.
    pub job: JobId,
    /// The end of the lease by the store's clock.
    pub lease_until: Timestamp,
    /// This process's boot-time clock before the claim was sent to where it is decided: what is left of
    /// the lease is measured from here.
    pub sent_at: Duration,
}

/// A worker renews its leases, all in one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// What it holds.
    pub leases: Vec<LeaseRenewal>,
    /// How long they are to live from now.
    pub ttl: Span,
    /// The worker.
    pub worker: WorkerId,
}

/// One lease to renew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRenewal {
    /// Its fence.
    pub fence: Fence,
    /// The job.
    pub job: JobId,
}

/// What became of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The lease lives on.
    Renewed {
        /// Whether the job's end is asked for.
        end_requested: bool,
        /// The job.
        job: JobId,
        /// This process's boot-time clock before the renewal was sent.
        sent_at: Duration,
    },
    /// It is not this worker's any more; the run ends at once.
    Refused(JobId),
}
