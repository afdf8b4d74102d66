//! A run: one job under one lease, from its claim to the moment it ends, blocks or is given back.
//!
//! ```text
//! claim ─ fold ─┬─ what comes next? ── recovery decision ── step ─┐
//!               └──────────────────────────────────────────────────┘ until done, blocked, given back or lost
//! ```
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

mod block;
mod doubt;
mod end;
mod invoke;
mod lease;
mod overlap;
mod plain;
mod step;
mod write;

pub(crate) use end::note_end;
pub use lease::Lease;
use overlap::Sent;
use write::is_permanent;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::Failure;
use aetheris_core::id::{IdSource, IdempotencyKey, NodeId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::plan::CompiledPlan;
use aetheris_core::schedule::{self, Next};
use aetheris_core::state::{Illegal, JobState};
use aetheris_core::time::Timestamp;
use aetheris_expr::Context;
use aetheris_store::{Claimed, EffectRow, KeptSignal, NewEffect, Purpose, Scope};

use crate::draft::Draft;
use crate::error::OpError;
use crate::load::Loaded;
use crate::memory;
use crate::ops::{Deposit, Ledger};
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

/// What became of one step's turn.
enum Turn {
    /// The run goes on.
    Go,
    /// The run is over.
    End(RunEnd),
}

/// A run in progress.
struct Run<'r> {
    /// About how many bytes the outputs have that were drafted since a unit was sent.
    ahead: usize,
    /// From when on the store accepts that the call in doubt has not happened, where it has refused to before.
    accepted_from: Option<Timestamp>,
    /// Whether the answer of something outside the process is drafted and not written yet.
    answered: bool,
    draft: Draft,
    /// Writes that failed since the worker is to stop.
    draining_writes: u32,
    effects: BTreeMap<IdempotencyKey, EffectRow>,
    kept: Vec<KeptSignal>,
    lease: &'r Lease,
    ledger: Ledger,
    /// How often the ledger has refused in this run.
    ledger_refusals: u32,
    /// What the values that the job keeps take.
    memory: usize,
    names: Context,
    /// Outcomes that are known and not written yet; deposited if the lease is lost.
    owed: Vec<Deposit>,
    place: usize,
    plan: Arc<CompiledPlan>,
    /// Questions of this run to reconcile tools.
    questions: u32,
    rt: &'r Runtime,
    /// The unit that is being written while the run goes on.
    sent: Option<Sent<'r>>,
    /// How often a wait was refused for a signal that was kept for it.
    signals_met: u32,
    /// The step whose call could not leave for want of something in this process, and how often in a row.
    wanting: Option<(NodeId, u32)>,
    /// Writes of this run.
    writes: u64,
}

/// Runs a claimed job until it ends, blocks, is given back or is lost.
///
/// # Errors
/// The store cannot be asked or the job's history cannot be folded. The lease then expires and the job
/// is taken back.
pub async fn run_job(rt: &Runtime, claimed: Claimed, lease: &Lease) -> Result<RunEnd, OpError> {
    aetheris_fault::crash_point!("run.claimed");
    let loaded = match claimed.history {
        Some(history) => Loaded::fold(history)?,
        None => Loaded::read(rt.store.as_ref(), &Scope::System, claimed.job).await?,
    };
    if loaded.state.fence != claimed.fence || loaded.state.status != JobStatus::Running {
        return Ok(RunEnd::Lost);
    }
    let Some(plan) = loaded.state.plan else {
        return end::fail_unplanned(rt, loaded, claimed.fence).await;
    };
    let mut hash = plan.hash;
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
    let mut run = Run::new(rt, lease, plan, loaded);
    let stop = match run.drive().await {
        Ok(end) => return Ok(end),
        Err(stop) => stop,
    };
    run.await_sent().await;
    match stop {
        Stop::Lost => {
            aetheris_fault::sometimes!(RunLost);
            run.deposit_owed().await?;
            Ok(RunEnd::Lost)
        }
        Stop::Fault(failure) => run.fail_faulty(failure).await,
        Stop::Op(error) => {
            run.deposit_owed().await?;
            Err(error)
        }
    }
}

impl<'r> Run<'r> {
    fn new(rt: &'r Runtime, lease: &'r Lease, plan: Arc<CompiledPlan>, loaded: Loaded) -> Self {
        let names = names::of(&loaded.state, &loaded.effects);
        let memory = memory::of_run(&loaded.state, &loaded.kept, &names);
        Self {
            ahead: 0,
            accepted_from: None,
            answered: false,
            draft: Draft::new(loaded.state, Guard::Run(lease.fence), loaded.checkpoint_seq),
            draining_writes: 0,
            effects: loaded.effects,
            kept: loaded.kept,
            lease,
            ledger: loaded.ledger,
            ledger_refusals: 0,
            memory,
            names,
            owed: Vec::new(),
            place: 0,
            plan,
            questions: 0,
            rt,
            sent: None,
            signals_met: 0,
            wanting: None,
            writes: 0,
        }
    }

    fn state(&self) -> &JobState {
        self.draft.state()
    }

    fn ids(&self) -> &'r dyn IdSource {
        self.rt.system.ids.as_ref()
    }

    async fn drive(&mut self) -> Result<RunEnd, Stop> {
        let plan = Arc::clone(&self.plan);
        let mut turn = 0_usize;
        loop {
            turn = turn.wrapping_add(1);
            let written = self.writes;
            if let Some(end) = self.check_interrupts().await? {
                return Ok(end);
            }
            let mut place = self.place;
            let next = schedule::next(self.draft.state(), &plan, &mut place);
            self.place = place;
            match next {
                Next::Done => match self.complete().await? {
                    Some(end) => return Ok(end),
                    None => continue,
                },
                Next::Failed(node) => match self.fail(node).await? {
                    Some(end) => return Ok(end),
                    None => continue,
                },
                Next::Skip(node, reason) => self.skip(&node.id, reason)?,
                Next::Node(node) => match self.turn(node).await? {
                    Turn::Go => {}
                    Turn::End(end) => return Ok(end),
                },
            }
            let full = self.draft.len() + EVENTS_OF_ONE_TURN_MAX > limits::UNIT_EVENTS_MAX;
            if full || (self.sent.is_some() && self.ahead > limits::UNWRITTEN_BYTES_MAX) {
                self.flush(Purpose::Record).await?;
            }
            // A turn may have computed for as long as its templates are allowed to, and who writes may have been answered
            // without waiting.
            if self.writes == written || turn.is_multiple_of(limits::TURNS_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Acts on what came from outside the run: a lost lease, a requested end or pause, a drain.
    async fn check_interrupts(&mut self) -> Result<Option<RunEnd>, Stop> {
        if self.lease.lost.is_cancelled() {
            // What is known is written if the fence still holds; else it is deposited.
            self.flush(Purpose::Record).await?;
            return Err(Stop::Lost);
        }
        if self.lease.ending.is_cancelled() && self.state().end_requested.is_none() {
            self.flush(Purpose::Record).await?;
            self.look_again().await?;
        }
        for _ in 0..limits::CONFLICT_RETRIES_MAX {
            let ended = match self.state().end_requested {
                Some(cause) => self.end_as_asked(cause).await?,
                None if self.lease.drain.is_cancelled() => self.give_back().await?,
                None => return Ok(None),
            };
            // Where a newer state refused it, that is looked at before anything else.
            if ended.is_some() {
                return Ok(ended);
            }
        }
        Err(self.too_busy())
    }

    /// Others write the job faster than its own run can.
    fn too_busy(&self) -> Stop {
        let job = self.state().id;
        Stop::Op(OpError::StateConflict(format!("job {job} keeps changing while its run writes it")))
    }

    /// Takes in what the draft's state says after the job was read again: with it the effects that the draft
    /// is about to write, which the store cannot know.
    fn refresh_names(&mut self) {
        for effect in self.draft.effects() {
            self.effects.insert(effect.key, unwritten(effect));
        }
        self.names = names::of(self.draft.state(), &self.effects);
        self.memory = memory::of_run(self.draft.state(), &self.kept, &self.names);
        self.place = 0;
    }

    /// Makes a node's output known to templates.
    fn name_output(&mut self, node: &NodeId, output: Json) {
        let bytes = output.memory();
        self.memory += bytes;
        self.ahead += bytes;
        self.names.nodes.insert(node.clone(), output);
    }

    /// Outcomes that could not be written in this run's right are deposited in the right of their permit.
    async fn deposit_owed(&mut self) -> Result<(), OpError> {
        let mut deposited = Ok(());
        for deposit in std::mem::take(&mut self.owed) {
            aetheris_fault::crash_point!("run.deposit.owed");
            if aetheris_fault::planted!("deposit-dropped") {
                continue;
            }
            let mut tries = 0;
            while let Err(error) = self.rt.deposit(&deposit).await {
                tries += 1;
                let permanent = matches!(&error, OpError::Store(error) if is_permanent(error));
                if permanent || tries >= limits::DEPOSIT_TRIES_MAX || self.lease.abandon.is_cancelled() {
                    // The others are tried all the same.
                    deposited = deposited.and(Err(error));
                    break;
                }
                tracing::warn!(job = %deposit.job, node = %deposit.node, %error, "a late outcome could not be deposited; trying again");
                tokio::time::sleep(STORE_RETRY).await;
            }
        }
        deposited
    }
}

/// An effect as its row will be; the store gives it its time.
fn unwritten(effect: &NewEffect) -> EffectRow {
    EffectRow { at: Timestamp::default(), key: effect.key, permit: effect.permit, result: effect.result.clone() }
}

/// The most facts that one turn adds to a draft before it writes: those of a wait tell of each kept signal that does not fit.
const EVENTS_OF_ONE_TURN_MAX: usize = 16 + limits::KEPT_SIGNALS_OF_KEY_MAX;
/// The pause before a store that failed is asked again.
const STORE_RETRY: Duration = Duration::from_millis(100);
