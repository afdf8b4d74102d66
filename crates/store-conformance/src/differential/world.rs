//! What both stores are believed to hold, and where randomness comes from.

use aetheris_core::id::{AgentName, InstanceId, JobId, WorkerId};
use aetheris_core::lease::Fence;
use aetheris_core::plan::Plan;
use aetheris_core::state::JobState;
use aetheris_harness::SplitMix64;
use std::sync::Arc;

use super::Report;
use crate::Draft;
use crate::fixture::{Ids, state};
use aetheris_core::lease::Guard;
use aetheris_store::system::ManualClock;
use aetheris_store::unit::{ClientKey, Purpose, UnitOfWork};
use aetheris_store::{CommitError, PromiseRow, Store};

/// How often each answer to each kind of unit is sought within a seed.
const SOUGHT: u64 = 3;
/// How many events make a job long.
const LONG: u64 = 60;

/// A run.
pub(super) struct World<'a> {
    pub(super) a: &'a dyn Store,
    pub(super) b: &'a dyn Store,
    /// Requests that have made a job.
    pub(super) client_keys: Vec<(AgentName, ClientKey)>,
    pub(super) clock: &'a ManualClock,
    pub(super) ids: Ids,
    /// Promises that somebody has tried to keep, newest last.
    pub(super) kept: Vec<PromiseRow>,
    /// Every job, oldest first.
    pub(super) jobs: Vec<JobId>,
    /// Those that had not ended when they were last looked at.
    pub(super) live: Vec<JobId>,
    pub(super) plans: Vec<Arc<Plan>>,
    pub(super) random: SplitMix64,
    pub(super) report: Report,
    /// Every claim that was made.
    pub(super) runs: Vec<(JobId, Fence)>,
    pub(super) seed: u64,
    /// Units that were sent, newest last.
    pub(super) sent: Vec<UnitOfWork>,
}

/// The worker of a number.
pub(super) fn worker(n: usize) -> WorkerId {
    WorkerId::new(format!("worker {n}"))
}

/// The process of a number.
pub(super) fn instance(n: usize) -> InstanceId {
    InstanceId::from_u128(u128::try_from(n).unwrap() + 1)
}

/// All processes of a run.
pub(super) fn instances() -> [InstanceId; 3] {
    [instance(0), instance(1), instance(2)]
}

impl<'a> World<'a> {
    pub(super) fn new(seed: u64, a: &'a dyn Store, b: &'a dyn Store, clock: &'a ManualClock) -> Self {
        Self {
            a,
            b,
            client_keys: Vec::new(),
            clock,
            ids: Ids::default(),
            kept: Vec::new(),
            jobs: Vec::new(),
            live: Vec::new(),
            plans: Vec::new(),
            random: SplitMix64::seeded(seed),
            report: Report::default(),
            runs: Vec::new(),
            seed,
            sent: Vec::new(),
        }
    }

    /// A job's state; nearly always of one that has not ended.
    pub(super) async fn folded(&mut self) -> Option<JobState> {
        if self.random.one_in(24) {
            let job = *self.random.pick(&self.jobs)?;
            return Some(state(self.a, job).await);
        }
        let job = *self.random.pick(&self.live)?;
        let folded = state(self.a, job).await;
        // What has ended is left alone, and so is what has become long: every look at it costs a fold.
        if folded.status.is_terminal() || folded.seq > LONG {
            self.live.retain(|live| *live != job);
        }
        Some(folded)
    }

    /// A unit on top of a state.
    pub(super) fn draft(&self, state: JobState, purpose: Purpose, guard: Guard) -> Draft {
        Draft::new(UnitOfWork::new(self.ids.event(), state.id, purpose, guard), state, self.ids.clone())
    }

    /// Counts an accepted operation.
    pub(super) fn accepted(&mut self, kind: &'static str) {
        *self.report.operations.entry(kind).or_insert(0) += 1;
    }

    /// An answer that this kind of unit has had too rarely.
    pub(super) fn rare_answer(&mut self, kind: &'static str) -> Option<&'static str> {
        let seen = |answer: &&'static str| self.report.count(kind, answer) < SOUGHT;
        let rare: Vec<&'static str> = super::ANSWERS.iter().copied().filter(seen).collect();
        self.random.pick(&rare).copied().filter(|answer| *answer != "ok")
    }

    /// Counts a unit that was not accepted.
    pub(super) fn not_accepted(&mut self, error: &CommitError) {
        *self.report.refusals.entry(super::compare::kind(error)).or_insert(0) += 1;
    }
}
