//! What is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use aetheris_core::event::TimerId;
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, JobId, SignalId, TenantId};
use aetheris_core::ledger::LedgerRow;
use aetheris_core::plan::Plan;
use aetheris_core::projection::Promise;
use aetheris_core::time::Timestamp;

use crate::clock::{Look, Mark};
use crate::query::{AgentRow, EffectRow, EventRow, Evidence, JobRow, KeptSignal, WriterStats};
use crate::scope::Scope;
use crate::unit::{Checkpoint, ChildOf};

/// The generation that a store begins with.
const FIRST_GENERATION: u32 = 1;

/// Everything.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// By tenant and name.
    pub(super) agents: BTreeMap<(TenantId, AgentName), AgentRow>,
    /// Clients' names for messages, of an agent of a tenant: the job each has made, and the hash of its request.
    pub(super) client_keys: BTreeMap<(TenantId, AgentName, String), (JobId, Hash)>,
    /// By id. The order in which they came is in each of them: an id is made before its job is written.
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// Children by their parent, in the order in which they were created.
    pub(super) children: BTreeMap<JobId, Vec<(JobId, ChildOf)>>,
    /// By idempotency key, of all jobs.
    pub(super) ledger: BTreeMap<IdempotencyKey, LedgerRow>,
    /// What is kept of the clock.
    pub(super) mark: Option<Mark>,
    /// What was promised, by its number.
    pub(super) outbox: BTreeMap<u64, (JobId, Promise)>,
    /// By hash.
    pub(super) plans: BTreeMap<Hash, Arc<Plan>>,
    /// How often it was put back.
    pub(super) restores: u32,
    /// The number of the last promise.
    pub(super) promised: u64,
    /// What was written.
    pub(super) stats: WriterStats,
}

impl Tables {
    /// A job that is there for whoever asks.
    pub(super) fn job(&self, scope: &Scope, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).filter(|job| scope.admits(&job.row.tenant))
    }

    /// The generation of whatever is claimed or made from now on.
    pub(super) const fn generation(&self) -> u32 {
        FIRST_GENERATION + self.restores
    }
}

/// A job with all its rows.
#[derive(Debug)]
pub(super) struct Job {
    /// How many jobs were there before it.
    pub(super) arrival: usize,
    /// The newest folded state.
    pub(super) checkpoint: Option<Checkpoint>,
    /// By invocation and permit.
    pub(super) effects: BTreeMap<(IdempotencyKey, u32), EffectRow>,
    /// In order.
    pub(super) events: Vec<EventRow>,
    /// In the order they came.
    pub(super) evidence: Vec<Evidence>,
    /// In the order they came.
    pub(super) inbox: Vec<InboxRow>,
    /// The row.
    pub(super) row: JobRow,
    /// By name.
    pub(super) timers: BTreeMap<TimerId, Timestamp>,
}

/// A signal that came.
#[derive(Debug)]
pub(super) struct InboxRow {
    /// Whether a wait has had it.
    pub(super) delivered: bool,
    /// The signal.
    pub(super) signal: KeptSignal,
}

impl Tables {
    /// The store's clock for a write, which stores it.
    pub(super) fn tick(&mut self, look: Look) -> Timestamp {
        self.mark = look.mark.or(self.mark);
        look.now
    }

    /// Counts a transaction.
    pub(super) fn count(&mut self, units: u64, rows: usize, bytes: usize) {
        let size = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        self.stats.commits += 1;
        self.stats.units += units;
        self.stats.rows += size(rows);
        self.stats.bytes += size(bytes);
    }
}

impl Job {
    /// Signals that no wait has had yet.
    pub(super) fn consumed(&self) -> impl Iterator<Item = SignalId> {
        self.inbox.iter().filter(|row| row.delivered).map(|row| row.signal.signal)
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = &KeptSignal> {
        self.inbox.iter().filter(|row| !row.delivered).map(|row| &row.signal)
    }
}
