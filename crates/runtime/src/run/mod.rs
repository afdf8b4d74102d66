//! A run: one job under one lease, from its claim to the moment it ends, blocks or is given back.
//!
//! ```text
//! claim ─ fold ─┬─ what comes next? ── recovery decision ── step ─┐
//!               └──────────────────────────────────────────────────┘ until done, blocked, given back or lost
//! ```
//!
//! **Decisions are values.** What is next of a step, and what the end of a body means, are pure functions over a
//! [`view::View`] of what is recorded: [`step`], a file for each of [`kind`], [`permit`] and [`doubt`], with [`facts`] and
//! [`budget`] below them. They return facts and what is next ([`prepared`]). The run alone holds the draft and the lease, and
//! the driver begins everything ([`drive`]): it drafts the facts and keeps what follows from them ([`keep`], [`rows`]), writes them as early as a body needs
//! ([`start`]), has the body performed ([`body`]) and asks what its end means.
//!
//! **Commits.** Facts gather in a [`Draft`] and are written before anything leaves the process and before the run
//! ends. A plain step's start and result go together, and the start of the next step rides along: a
//! chain of n plain steps costs n commits, the last of which ends the job. Functions of the process do not wait for the
//! unit before them, and share the next one ([`overlap`]). A ledger step's permission
//! (commit A) rides with the result of the step before: a chain of n ledger steps costs n+1. Transforms,
//! conditions and skips cost none of their own. One commit is one round trip to the store's writer, and
//! many runs share its fsync.
//!
//! **Losing the lease** shows in a refused write, or in [`Lease::lost`]. Nothing new starts then; pure,
//! idempotent and model calls are dropped; a call of an `at_most_once` tool that has left is awaited to
//! its own timeout, and its outcome is committed if the fence still holds, else deposited (SPEC §4).

mod adopt;
mod bodies;
mod body;
mod budget;
mod conclude;
mod doubt;
mod drive;
mod end;
mod facts;
mod give_up;
mod held;
mod judge;
mod keep;
mod kind;
mod lease;
mod lists;
mod overlap;
mod permit;
mod places;
pub mod prepared;
pub mod rows;
mod start;
pub mod step;
#[cfg(test)]
mod tests;
mod values;
pub mod view;
mod write;

pub(crate) use end::note_end;
pub(crate) use kind::agent::given;
pub(crate) use kind::human::asking_step;
pub(crate) use kind::input;
pub(crate) use kind::map::items;
pub(crate) use kind::{review, rules};
pub use lease::Lease;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use aetheris_core::event::Failure;
use aetheris_core::id::{IdSource, IdempotencyKey, NodeId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::path::StepPath;
use aetheris_core::plan::CompiledPlan;
use aetheris_core::schedule::{self, Cursor};
use aetheris_core::state::{Illegal, JobState};
use aetheris_core::time::Timestamp;
use aetheris_expr::Context;
use aetheris_store::{Claimed, Scope};

use bodies::Bodies;
use held::Held;
use overlap::Sent;
use rows::Rows;

use crate::draft::Draft;
use crate::error::OpError;
use crate::load::Loaded;
use crate::memory;
use crate::ops::Deposit;
use crate::{Runtime, names};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The job has ended.
    Finished(JobStatus),
    /// The job waits for something outside.
    Blocked,
    /// The job is held still, as it was asked for.
    Paused,
    /// The job is pending again.
    Requeued,
    /// The lease was lost; the job is someone else's.
    Lost,
}

/// Why a run cannot go on.
#[derive(Debug)]
enum Stop {
    /// The lease is lost.
    Lost,
    /// The store or the job's history gives no way on; the lease is left to expire.
    Op(OpError),
    /// The job itself cannot go on; it is failed.
    Fault(Failure),
}

impl From<OpError> for Stop {
    fn from(error: OpError) -> Self {
        Self::Op(error)
    }
}

impl From<Illegal> for Stop {
    fn from(illegal: Illegal) -> Self {
        Self::Fault(Failure::new("illegal_transition", illegal.to_string()))
    }
}

/// A run in progress.
struct Run<'r> {
    /// About how many bytes the outputs have that were drafted since a unit was sent.
    ahead: usize,
    /// From when on the store accepts that a call in doubt has not happened, where it has just refused to.
    accepted_from: BTreeMap<IdempotencyKey, Timestamp>,
    /// The tool calls that the job has used up; kept up to date where its budget bounds them.
    calls: u32,
    /// Whether the answer of something outside the process is drafted and not written yet.
    answered: bool,
    /// The job's state with the facts that are not written yet.
    draft: Draft,
    /// Writes that failed since the worker is to stop.
    draining_writes: u32,
    /// Steps whose delay has passed since they were held.
    rested: BTreeSet<StepPath>,
    /// What is known beside the state.
    rows: Rows,
    lease: &'r Lease,
    /// The lists of maps that have begun.
    lists: BTreeMap<NodeId, Vec<Json>>,
    /// How often the ledger has refused in this run, by call.
    ledger_refusals: BTreeMap<IdempotencyKey, u32>,
    /// What the values that the job keeps take.
    memory: usize,
    /// What templates may name.
    names: Context,
    /// Outcomes that are known and not written yet; deposited if the lease is lost.
    owed: Vec<Deposit>,
    /// Where in the plan the first node is that has not ended.
    cursor: Cursor,
    /// Whether a step has failed, so that the job is to fail with it and nothing starts beside it.
    failed: bool,
    /// Steps that cannot go on for now.
    held: BTreeMap<StepPath, Held>,
    plan: Arc<CompiledPlan>,
    /// Questions of this run to reconcile tools.
    questions: u32,
    /// How often the job was read again.
    readings: u64,
    rt: &'r Runtime,
    /// The unit that is being written while the run goes on.
    sent: Option<Sent<'r>>,
    /// How often a wait was refused for a signal that was kept for it.
    signals_met: u32,
    /// When it may be looked at because of news again.
    news_from: Option<tokio::time::Instant>,
    /// Steps whose calls could not leave for want of something in this process, and how often in a row.
    wanting: BTreeMap<StepPath, u32>,
    /// Writes of this run.
    writes: u64,
}

/// A job that other code has accepted goes on, and the log says so: once for each claim.
fn note_version(rt: &Runtime, state: &JobState) {
    let (accepted_by, own) = (&state.execution_version, &rt.settings.execution_version);
    if accepted_by != own {
        tracing::warn!(job = %state.id, %accepted_by, %own, "a job of another version goes on");
    }
}

/// Runs a claimed job until it ends, blocks, is given back or is lost.
///
/// # Errors
/// The store cannot be asked or the job's history cannot be folded. The lease then expires and the job
/// is taken back.
pub async fn run_job(rt: &Runtime, claimed: Claimed, lease: &Lease) -> Result<RunEnd, OpError> {
    // What is looked at once is not carried about by the run.
    let mut run = match Box::pin(begin(rt, claimed, lease)).await? {
        ControlFlow::Continue(run) => run,
        ControlFlow::Break(end) => return Ok(end),
    };
    let mut bodies = Bodies::default();
    let stop = match run.drive(&mut bodies).await {
        Ok(end) => return Ok(end),
        Err(stop) => stop,
    };
    let deposited = Box::pin(run.wind_down(bodies)).await;
    match stop {
        Stop::Lost => {
            aetheris_fault::sometimes!(RunLost);
            deposited?;
            Ok(RunEnd::Lost)
        }
        Stop::Fault(failure) => {
            deposited?;
            Box::pin(run.fail_faulty(failure)).await
        }
        Stop::Op(error) => {
            deposited?;
            Err(error)
        }
    }
}

/// The run of a claimed job, or how it has ended before it began.
async fn begin<'r>(
    rt: &'r Runtime,
    claimed: Claimed,
    lease: &'r Lease,
) -> Result<ControlFlow<RunEnd, Box<Run<'r>>>, OpError> {
    aetheris_fault::crash_point!("run.claimed");
    let loaded = match claimed.history {
        Some(history) => Loaded::fold(history)?,
        None => Loaded::read(rt.store.as_ref(), &Scope::System, claimed.job).await?,
    };
    if loaded.state.fence != claimed.fence || loaded.state.status != JobStatus::Running {
        return Ok(ControlFlow::Break(RunEnd::Lost));
    }
    note_version(rt, &loaded.state);
    let Some(followed) = loaded.state.followed_plan() else {
        return end::fail_unplanned(rt, loaded, claimed.fence).await.map(ControlFlow::Break);
    };
    let mut hash = followed;
    if aetheris_fault::planted!("plan-of-newest-version") {
        hash = rt
            .store
            .agent(loaded.state.tenant.clone(), loaded.state.agent.clone())
            .await?
            .map_or(hash, |row| row.plan_hash);
    }
    let plan = rt.plans.get(rt.store.as_ref(), hash).await?;
    aetheris_fault::always!(
        plan.hash() == hash,
        "job {}: plan {hash} was asked for, {} came",
        claimed.job,
        plan.hash()
    );
    aetheris_fault::crash_point!("run.loaded");
    Ok(ControlFlow::Continue(Box::new(Run::new(rt, lease, plan, loaded))))
}

impl<'r> Run<'r> {
    fn new(rt: &'r Runtime, lease: &'r Lease, plan: Arc<CompiledPlan>, loaded: Loaded) -> Self {
        let names = names::of(&loaded.state, &loaded.effects);
        let failed = schedule::fails(&loaded.state);
        let rows = Rows { effects: loaded.effects, kept: loaded.kept, ledger: loaded.ledger };
        let calls = loaded.state.tool_calls(&plan);
        let memory = memory::of_run(&loaded.state, &rows, &names);
        Self {
            ahead: 0,
            accepted_from: BTreeMap::new(),
            answered: false,
            calls,
            draft: Draft::new(loaded.state, Guard::Run(lease.fence), loaded.checkpoint),
            draining_writes: 0,
            rested: BTreeSet::new(),
            rows,
            lease,
            lists: BTreeMap::new(),
            ledger_refusals: BTreeMap::new(),
            memory,
            names,
            owed: Vec::new(),
            cursor: Cursor::default(),
            failed,
            held: BTreeMap::new(),
            plan,
            questions: 0,
            readings: 0,
            rt,
            sent: None,
            signals_met: 0,
            news_from: None,
            wanting: BTreeMap::new(),
            writes: 0,
        }
    }

    /// Another plan is followed from here on: that which its planning has made.
    fn follow(&mut self, plan: Arc<CompiledPlan>) {
        self.cursor = Cursor::default();
        self.plan = plan;
    }

    fn state(&self) -> &JobState {
        self.draft.state()
    }

    fn ids(&self) -> &'r dyn IdSource {
        self.rt.system.ids.as_ref()
    }
}
