//! The one reducer: a job's state as a fold over its events.
//!
//! The job row, replay, the trace and the consistency check all come from [`JobState::apply`]. A run
//! applies an event before it is written, to be refused early, and stamps it afterwards with the time
//! that the store gave to it ([`JobState::stamp`]): everything but times is decided without a clock.

mod apply;
mod blocks;
mod calls;
mod children;
mod invocation;
mod items;
mod pause;
mod rounds;
mod stamp;
mod steps;
#[cfg(test)]
mod tests;
mod turns;
mod usage;
mod values;
mod waits;

pub use apply::Illegal;
pub use blocks::{Blocked, Blocks};
pub use children::{Child, ChildCount};
pub use invocation::{Doubt, Invocation, InvocationPhase};
pub use items::{ItemsState, StoppedBy};
pub use turns::TurnsState;
pub use values::Values;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::event::{
    Answer, DoubtOutcome, EndCause, Failure, InvocationOutcome, Parent, PauseReason, Source, StepResult, TimerId, Turn,
    Verdict, WaitEnd,
};
use crate::hash::Hash;
use crate::id::{
    AgentName, AttemptId, IdempotencyKey, InstanceId, JobId, NodeId, SessionId, SignalId, TenantId, WorkerId,
};
use crate::job::JobStatus;
use crate::json::Json;
use crate::lease::Fence;
use crate::ledger::{LedgerStatus, LedgerTrigger};
use crate::path::StepPath;
use crate::plan::{EffectClass, WaitType};
use crate::step::StepStatus;
use crate::time::{Span, Timestamp};

/// Where a step's output is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// It is the effect of this invocation.
    Effect(IdempotencyKey),
    /// It is this value.
    Inline(Json),
    /// It is what the items of the map came to, in their order.
    Items,
}

/// One step being executed. A job may have very many of them, and most have little of what a step can have: that is boxed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepState {
    /// It failed, and its job goes on.
    #[serde(default, skip_serializing_if = "usage::is_false")]
    pub absorbed: bool,
    /// The job that it has asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Box<Child>>,
    /// The doubt about its call.
    pub doubt: Option<Box<Doubt>>,
    /// Why its last try failed.
    pub error: Option<Box<Failure>>,
    /// What its round was told of the one before, if it is a further round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// It is an item that was given up, since its map had failed with another.
    #[serde(default, skip_serializing_if = "usage::is_false")]
    pub given_up: bool,
    /// Its call, for ledger steps.
    pub invocation: Option<Box<Invocation>>,
    /// Its items, if it is a map that has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Box<ItemsState>>,
    /// The nodes before it that had not ended when it started, of which it sees nothing else.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub open: BTreeSet<NodeId>,
    /// Its output.
    pub output: Option<Output>,
    /// How it ended.
    pub result: Option<StepResult>,
    /// When its next try may begin.
    pub retry_at: Option<Timestamp>,
    /// How long it waits before that, from the event that says so.
    pub retry_delay: Option<Span>,
    /// Its newest round: 0 is itself.
    #[serde(default, skip_serializing_if = "usage::is_zero")]
    pub round: u32,
    /// Where its result came from.
    pub source: Source,
    /// When its first try began.
    pub started_at: Option<Timestamp>,
    /// What it is doing.
    pub status: StepStatus,
    /// Tries so far.
    pub tries: u32,
    /// What it came to beside its output, if it is a turn of a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Box<Turn>>,
    /// Its turns, if it is a loop that has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Box<TurnsState>>,
    /// What it was given that nobody can compute again.
    #[serde(default, skip_serializing_if = "Values::is_none")]
    pub values: Values,
    /// What was said of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What ended its wait.
    pub wait_end: Option<Box<WaitEnd>>,
}

impl StepState {
    /// What is known of its call, where the end of its job, which is so, or its own left that in doubt: `Unresolved` until
    /// somebody has said more.
    #[must_use]
    pub fn left_in_doubt(&self, job: JobStatus) -> Option<DoubtOutcome> {
        let invocation = self.invocation.as_deref().filter(|_| job.is_terminal() || self.absorbed)?;
        let open = invocation.is_doubted(self.status) || invocation.is_left_unresolved();
        invocation.answered_late.or(open.then_some(DoubtOutcome::Unresolved))
    }

    /// Whether it has failed, and its job with it.
    #[must_use]
    pub fn fails_job(&self) -> bool {
        self.status == StepStatus::Failed && !self.absorbed
    }

    /// What is left of the delay before its next try at a moment; all of it while the store has not given its time.
    #[must_use]
    pub fn delay_left(&self, now: Timestamp) -> Span {
        let left = self.retry_at.map(|at| at.since(now));
        left.or(self.retry_delay).unwrap_or(Span::ZERO)
    }

    /// Whether "did not happen" was said of the current permit.
    #[must_use]
    pub fn is_disproved(&self) -> bool {
        self.invocation.as_deref().is_some_and(|i| i.phase == InvocationPhase::Resolved(DoubtOutcome::DidNotHappen))
    }

    /// Whether a ledger row of its call, with this status and disproved or not, fits what the events of its job have
    /// recorded. `job` is that job's status. No row fits a step without a call.
    #[must_use]
    pub fn fits(&self, status: LedgerStatus, disproved: bool, job: JobStatus) -> bool {
        let Some(call) = &self.invocation else {
            return false;
        };
        let told = if call.is_doubted(self.status) { (LedgerStatus::InDoubt, false) } else { call.ledger() };
        let mut early = LedgerTrigger::ALL.into_iter().filter(|trigger| may_precede_its_event(*trigger));
        let ahead = early.any(|trigger| told.0.next(trigger) == Some(status));
        (status, disproved) == told || (!disproved && (ahead || self.may_be_left(call, status, job)))
    }

    /// Whether an end may have left the row of its call with this status, without an event that says so.
    fn may_be_left(&self, call: &Invocation, status: LedgerStatus, job: JobStatus) -> bool {
        let unknown = call.phase == InvocationPhase::Finished(InvocationOutcome::InDoubt);
        let (ended, late) = (self.status.is_terminal(), call.answered_late.is_some());
        match status {
            // A late answer is kept beside a row that was given up; about a doubt that was open it settles the row.
            LedgerStatus::FailedUnresolved => {
                (unknown && (ended || job.is_terminal())) || (late && self.status != StepStatus::InDoubt)
            }
            // Earlier builds did not give every row up that nobody would call again.
            LedgerStatus::InDoubt => late && call.class == EffectClass::Idempotent,
            LedgerStatus::Started
            | LedgerStatus::Committed
            | LedgerStatus::RefusedRetryable
            | LedgerStatus::RefusedPermanent
            | LedgerStatus::NotSent => false,
        }
    }
}

/// Whether the ledger may be settled so before an event tells it: an outcome is deposited before the job's next run
/// records it. Answers come with their events.
const fn may_precede_its_event(trigger: LedgerTrigger) -> bool {
    match trigger {
        LedgerTrigger::Commit
        | LedgerTrigger::RefuseRetryable
        | LedgerTrigger::RefusePermanent
        | LedgerTrigger::NotSent
        | LedgerTrigger::Doubt => true,
        LedgerTrigger::Disprove | LedgerTrigger::GiveUp => false,
    }
}

impl Default for StepState {
    fn default() -> Self {
        Self {
            absorbed: false,
            child: None,
            doubt: None,
            error: None,
            feedback: None,
            finished_at: None,
            given_up: false,
            invocation: None,
            items: None,
            open: BTreeSet::new(),
            output: None,
            result: None,
            retry_at: None,
            retry_delay: None,
            round: 0,
            source: Source::Executed,
            started_at: None,
            status: StepStatus::Pending,
            tries: 0,
            turn: None,
            turns: None,
            values: Values::default(),
            verdict: None,
            wait_end: None,
        }
    }
}

/// What became of a correlation key in this job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitPhase {
    /// A signal ended the wait.
    Delivered {
        /// Hash of its payload.
        payload_hash: Hash,
        /// Which.
        signal: SignalId,
    },
    /// The job waits for it.
    Open,
    /// It ended without a signal.
    Over,
}

/// A wait of this job, by its rendered correlation key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRecord {
    /// The step.
    pub node: StepPath,
    /// What became of it.
    pub phase: WaitPhase,
    /// What ends it.
    pub wait_type: WaitType,
}

/// A timer that is set: how long from which moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// How long after its event.
    pub after: Span,
    /// When it is due.
    pub due: Timestamp,
}

/// The plan that a job follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRef {
    /// Hash of the plan document.
    pub hash: Hash,
    /// 1, and one more at each explicit re-planning.
    pub version: u32,
}

/// Ownership as the events tell it. The lease's end is not in the events: it is renewed without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    /// The public name of the epoch.
    pub attempt_id: AttemptId,
    /// The process.
    pub instance: InstanceId,
    /// The worker.
    pub worker: WorkerId,
}

/// Why a job is held still, and what it goes back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Whether a step of it can go on although it is blocked on others. Left out where none can, as it was before a job
    /// could be blocked on several.
    #[serde(default, skip_serializing_if = "usage::is_false")]
    pub can_go_on: bool,
    /// Whether it was parked: what it is blocked on is a long wait.
    pub parked: bool,
    /// Why.
    pub reason: PauseReason,
    /// Since when; `None` until the store has given the time.
    pub since: Option<Timestamp>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With an answer.
    Answered(Answer),
    /// Because someone asked for it.
    Cancelled,
    /// With an error.
    Failed {
        /// Why.
        error: Failure,
        /// The node that failed.
        node: Option<StepPath>,
    },
}

/// A job, as its events tell it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    /// The agent.
    pub agent: AgentName,
    /// Its version.
    pub agent_version: String,
    /// What it is blocked on.
    #[serde(rename = "blocked")]
    pub blocks: Blocks,
    /// How many child jobs it has asked for.
    #[serde(default, skip_serializing_if = "ChildCount::is_none")]
    pub children: ChildCount,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Why its end, or a pause, was asked for while a worker holds it.
    pub end_requested: Option<EndCause>,
    /// When it ended. What is recorded later, as the answer to a doubt that it left, does not change that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How it ended.
    pub ending: Option<Ending>,
    /// The version of the code that accepted it.
    pub execution_version: String,
    /// The last claim.
    pub fence: Fence,
    /// The job.
    pub id: JobId,
    /// The client's labels.
    pub labels: BTreeMap<String, String>,
    /// The time of the last event.
    pub last_at: Timestamp,
    /// The message.
    pub message: Json,
    /// Claimable only from here on.
    pub not_before: Option<Timestamp>,
    /// How long after its last requeue it is claimable.
    pub not_before_delay: Option<Span>,
    /// Who holds it.
    pub owner: Option<Ownership>,
    /// The job whose step asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Why it is held still. Left out where it is not: a state has the hash that it had before there were pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// Its plan.
    pub plan: Option<PlanRef>,
    /// Hash of the planning plan by which its plan is made. Left out where it was recorded with the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<Hash>,
    /// Higher is earlier.
    pub priority: i32,
    /// Reclaims since a node last finished.
    pub reclaims: u32,
    /// The place of the last event.
    pub seq: u64,
    /// The conversation.
    pub session: Option<SessionId>,
    /// What it is doing.
    pub status: JobStatus,
    /// Its steps, as far as anything happened to them.
    pub steps: BTreeMap<StepPath, StepState>,
    /// Whose it is. Left out for the tenant `default`: such a state has the hash that it had before there were tenants.
    #[serde(default, skip_serializing_if = "TenantId::is_default")]
    pub tenant: TenantId,
    /// Its timers.
    #[serde(with = "timers_as_text")]
    pub timers: BTreeMap<TimerId, Timer>,
    /// Tokens used so far.
    pub tokens: u64,
    /// Its waits, by rendered correlation key.
    pub waits: BTreeMap<String, WaitRecord>,
}

impl JobState {
    /// Hash of the plan that its steps belong to now: while its plan is made, that of its planning.
    #[must_use]
    pub fn followed_plan(&self) -> Option<Hash> {
        self.plan.map(|plan| plan.hash).or(self.planning)
    }

    /// The state of a job of which no event is known yet.
    #[must_use]
    pub fn new(id: JobId) -> Self {
        Self {
            agent: AgentName::from(""),
            agent_version: String::new(),
            blocks: Blocks::default(),
            children: ChildCount::default(),
            created_at: Timestamp::default(),
            end_requested: None,
            ended_at: None,
            ending: None,
            execution_version: String::new(),
            fence: Fence::default(),
            id,
            labels: BTreeMap::new(),
            last_at: Timestamp::default(),
            message: Json::null(),
            not_before: None,
            not_before_delay: None,
            owner: None,
            parent: None,
            paused: None,
            plan: None,
            planning: None,
            priority: 0,
            reclaims: 0,
            seq: 0,
            session: None,
            status: JobStatus::Pending,
            steps: BTreeMap::new(),
            tenant: TenantId::default(),
            timers: BTreeMap::new(),
            tokens: 0,
            waits: BTreeMap::new(),
        }
    }

    /// Folds recorded events from the beginning of a stream.
    ///
    /// # Errors
    /// [`Illegal`] names the first event that the tables refuse.
    pub fn fold<'a>(id: JobId, events: impl IntoIterator<Item = &'a crate::event::Recorded>) -> Result<Self, Illegal> {
        let mut state = Self::new(id);
        for recorded in events {
            state.replay(recorded)?;
        }
        Ok(state)
    }

    /// The version of the form in which a state is kept as a checkpoint. Raise it with every change of that form: a
    /// checkpoint of another version is not read, and its job is folded from the first event.
    pub const VERSION: u16 = 11;

    /// The hash of the canonical form of this state.
    #[must_use]
    pub fn hash(&self) -> Hash {
        crate::json::canonical_hash(self)
    }

    /// The oldest open wait's correlation key.
    #[must_use]
    pub fn open_key(&self) -> Option<&str> {
        self.blocks.oldest().and_then(|blocked| blocked.correlation_key.as_deref())
    }
}

/// Timers' names are structured; as keys of a JSON object they are text.
mod timers_as_text {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Timer, TimerId};

    pub(super) fn serialize<S: Serializer>(
        timers: &BTreeMap<TimerId, Timer>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text: BTreeMap<String, &Timer> = timers.iter().map(|(id, timer)| (id.to_string(), timer)).collect();
        text.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<TimerId, Timer>, D::Error> {
        BTreeMap::<String, Timer>::deserialize(deserializer)?
            .into_iter()
            .map(|(id, timer)| id.parse().map(|id| (id, timer)).map_err(serde::de::Error::custom))
            .collect()
    }
}
