//! Rows as they are read, and the questions that are asked of a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use aetheris_core::agent::Agent;
use aetheris_core::event::{EndCause, EventKind, Failure, PauseReason, Recorded, TimerId};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, EventId, IdempotencyKey, JobId, PermitId, SessionId, SignalId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Holder};
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{Plan, WaitType};
use aetheris_core::projection::WaitingView;
use aetheris_core::state::JobState;
use aetheris_core::time::Timestamp;

use crate::amiss::Amiss;
use crate::error::StoreError;
use crate::scope::Scope;
use crate::unit::Checkpoint;

/// A job's row: its projection, its ownership and what it was created with.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    /// The agent.
    pub agent: AgentName,
    /// Its version.
    pub agent_version: String,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Why its end was asked for.
    pub end_requested: Option<EndCause>,
    /// Why it failed, and at which node.
    pub error: Option<(Failure, Option<StepPath>)>,
    /// The last claim.
    pub fence: Fence,
    /// The chain's head.
    pub head: Hash,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// The job.
    pub id: JobId,
    /// The client's labels.
    pub labels: BTreeMap<String, String>,
    /// Claimable only from here on.
    pub not_before: Option<Timestamp>,
    /// Why it is held still, and since when.
    pub paused: Option<(PauseReason, Timestamp)>,
    /// Hash of its plan.
    pub plan_hash: Option<Hash>,
    /// Higher is earlier.
    pub priority: i32,
    /// The place of the last event.
    pub seq: u64,
    /// The conversation.
    pub session: Option<SessionId>,
    /// What it is doing.
    pub status: JobStatus,
    /// Whose it is.
    pub tenant: TenantId,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// What it waits for.
    pub waiting: Option<WaitingView>,
}

impl JobRow {
    /// Whether a restore has held the job by this row alone, as its events could not be read then: `state`, which they
    /// tell now, goes on, and nobody has claimed it in the store's `generation`, which the restore began. The event follows when
    /// the job is next written to.
    #[must_use]
    pub fn holds_alone(&self, state: &JobState, generation: u32) -> bool {
        let restored = self.paused.is_some_and(|(reason, _)| reason == PauseReason::Restored);
        let goes_on = !state.status.is_terminal() && state.status != JobStatus::Paused;
        let untouched = (self.seq, self.fence) == (state.seq, state.fence) && self.fence.generation < generation;
        self.status == JobStatus::Paused && restored && self.holder.is_none() && goes_on && untouched
    }
}

/// An event's row, with its bytes as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// The store's time of the write.
    pub at: Timestamp,
    /// The fence of its author.
    pub fence: Fence,
    /// The chain up to and with it.
    pub hash: Hash,
    /// Its author's name for it.
    pub id: EventId,
    /// The number of its kind.
    pub kind: u8,
    /// The payload's canonical bytes.
    pub payload: Vec<u8>,
    /// Their hash, as stored.
    pub payload_hash: Hash,
    /// The version of its payload's schema.
    pub schema_version: u16,
    /// Its place.
    pub seq: u64,
}

impl EventRow {
    /// Its kind's name, or its number where this build does not know it.
    #[must_use]
    pub fn kind_name(&self) -> String {
        EventKind::from_code(self.kind)
            .map_or_else(|| format!("unknown_{}", self.kind), |kind| kind.as_str().to_owned())
    }

    /// The event itself.
    ///
    /// # Errors
    /// The row is of a later build or damaged.
    pub fn decode(&self) -> Result<Recorded, aetheris_core::event::DecodeError> {
        let event = aetheris_core::event::codec::decode(self.kind, self.schema_version, &self.payload)?;
        Ok(Recorded { seq: self.seq, id: self.id, fence: self.fence, at: self.at, hash: self.hash, event })
    }
}

/// A recorded effect.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectRow {
    /// When it was put.
    pub at: Timestamp,
    /// The invocation.
    pub key: IdempotencyKey,
    /// The permit.
    pub permit: u32,
    /// What the tool answered.
    pub result: Json,
}

/// A signal that waits for its wait.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptSignal {
    /// The wait it names.
    pub key: String,
    /// What it brings.
    pub payload: Json,
    /// When it came.
    pub received_at: Timestamp,
    /// Its id.
    pub signal: SignalId,
    /// What it claims to be.
    pub wait_type: Option<WaitType>,
}

/// A kept signal without what it brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptHead {
    /// The wait it names.
    pub key: String,
    /// When it came.
    pub received_at: Timestamp,
    /// What it claims to be.
    pub wait_type: Option<WaitType>,
}

impl KeptHead {
    /// Of a signal.
    #[must_use]
    pub fn of(signal: &KeptSignal) -> Self {
        Self { key: signal.key.clone(), received_at: signal.received_at, wait_type: signal.wait_type }
    }
}

/// An outcome that came for a permit that was not the current one any more. Never an effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// When it was put; given by the store.
    pub at: Timestamp,
    /// Whether it contradicts what the job went on with.
    pub conflict: bool,
    /// The invocation.
    pub key: IdempotencyKey,
    /// The step.
    pub node: StepPath,
    /// What came: `{"outcome": …, "result": …}`.
    pub outcome: Json,
    /// The permit's number.
    pub permit: u32,
    /// The permit's id; evidence is kept once per permit.
    pub permit_id: PermitId,
}

/// All that is needed to fold a job.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// A state to start from.
    pub checkpoint: Option<Checkpoint>,
    /// Recorded effects.
    pub effects: Vec<EffectRow>,
    /// Events after the checkpoint, or all.
    pub events: Vec<Recorded>,
    /// Signals for waits that the job has not reached.
    pub kept: Vec<KeptSignal>,
    /// The ledger's rows of this job.
    pub ledger: Vec<LedgerRow>,
    /// The row.
    pub row: JobRow,
}

/// What a short look at a job's history finds.
#[derive(Debug, Clone, PartialEq)]
pub enum Glance {
    /// More than a look reads: ask for its history, and fold it where nobody else is held up.
    Long,
    /// All of it.
    Short(Box<History>),
}

/// Everything that a store has about one job, read at once, with its events as they are stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Dossier {
    /// The newest checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Signals that are kept no more: they ended a wait, or were refused by one.
    pub consumed: Vec<SignalId>,
    /// Recorded effects.
    pub effects: Vec<EffectRow>,
    /// Its events, with their bytes as stored.
    pub events: Vec<EventRow>,
    /// Late evidence.
    pub evidence: Vec<Evidence>,
    /// Signals that wait for their wait.
    pub kept: Vec<KeptSignal>,
    /// Its ledger rows.
    pub ledger: Vec<LedgerRow>,
    /// How claims find it.
    pub placing: Placing,
    /// Its row.
    pub row: JobRow,
    /// Its timers.
    pub timers: Vec<TimerRow>,
}

/// How claims find a job, and what its row says of its status and its time: facts. Whoever asks judges whether they fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placing {
    /// Another job of its session comes first.
    pub behind: bool,
    /// From when on claims find it.
    pub delayed_until: Option<Timestamp>,
    /// Its time.
    pub not_before: Option<Timestamp>,
    /// Whether its status is pending.
    pub pending: bool,
    /// Whether claims find it now.
    pub ready: bool,
}

/// A job that is there and cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Why.
    pub error: StoreError,
    /// The job.
    pub job: JobId,
    /// How claims find it.
    pub placing: Placing,
}

/// Jobs in the order of their arrival.
#[derive(Debug)]
pub struct Dossiers {
    /// What is amiss in rows that no job's history tells of: beside these jobs, below `next` and `to`, and, with the first of
    /// all, in the whole store.
    pub amiss: Vec<Amiss>,
    /// The first arrival that is not there yet.
    pub end: u64,
    /// The jobs that were asked for, as far as they were read.
    pub jobs: Vec<Result<Dossier, Unreadable>>,
    /// The first arrival that was not read. It lies beyond `to` if there is no job between the two; rows of jobs that have
    /// gone may be there.
    pub next: u64,
    /// The store's time at which they were read.
    pub now: Timestamp,
}

/// What a blocked job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedOn {
    /// Whatever it is.
    Anything,
    /// Anything but what only time ends: a doubt can be answered while its policy waits.
    Someone,
    /// A wait of this type.
    Type(WaitType),
}

impl BlockedOn {
    /// Whether a job waits for it that waits for this.
    #[must_use]
    pub fn is_on(self, waiting: &WaitingView) -> bool {
        match self {
            Self::Anything => true,
            Self::Someone => waiting.doubt || !matches!(waiting.wait_type, WaitType::Timer | WaitType::Child),
            Self::Type(wait_type) => waiting.wait_type == wait_type,
        }
    }
}

/// Which jobs are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// Of this agent.
    pub agent: Option<AgentName>,
    /// Older than this one.
    pub before: Option<JobId>,
    /// Blocked on this.
    pub blocked_on: Option<BlockedOn>,
    /// With this label.
    pub label: Option<(String, String)>,
    /// At most so many; bounded by [`aetheris_core::limits::PAGE_JOBS_MAX`].
    pub limit: usize,
    /// On whose behalf.
    pub scope: Scope,
    /// Of this conversation.
    pub session: Option<SessionId>,
    /// In one of these states; empty for any.
    pub statuses: Vec<JobStatus>,
}

/// A page of jobs, newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobPage {
    /// The rows.
    pub jobs: Vec<JobRow>,
    /// Where the next page begins, if there is one.
    pub next: Option<JobId>,
}

/// A blocked job, and since and until when it waits.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitRow {
    /// When time ends the wait, if it does.
    pub deadline: Option<Timestamp>,
    /// The job.
    pub row: JobRow,
    /// When it began to wait.
    pub since: Timestamp,
}

/// A page of blocked jobs, newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WaitPage {
    /// Where the next page begins, if there is one.
    pub next: Option<JobId>,
    /// The jobs.
    pub waits: Vec<WaitRow>,
}

impl JobRow {
    /// The timer that ends the wait of a blocked job, if one does.
    #[must_use]
    pub fn wait_timer(&self) -> Option<TimerId> {
        self.waiting.as_ref().map(WaitingView::timer)
    }
}

/// An agent to be put.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAgent {
    /// The checked agent.
    pub agent: Arc<Agent>,
    /// The file as it came.
    pub source: String,
    /// Whose it is.
    pub tenant: TenantId,
}

/// What putting an agent did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutAgent {
    /// Whether there was none of that name.
    pub created: bool,
    /// Its hash.
    pub hash: Hash,
}

/// A stored agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRow {
    /// The checked agent.
    pub agent: Arc<Agent>,
    /// Its hash.
    pub hash: Hash,
    /// The hash of its plan.
    pub plan_hash: Hash,
    /// The file as it came.
    pub source: String,
    /// When it was put.
    pub updated_at: Timestamp,
}

/// A page of agents, by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentPage {
    /// The agents.
    pub agents: Vec<AgentRow>,
    /// Behind which agent the next page begins, if there is one.
    pub next: Option<AgentName>,
    bytes: usize,
}

impl AgentPage {
    /// Takes the next agent. Where the page has its `limit`, or files of [`limits::PAGE_ROWS_BYTES_MAX`] bytes, the agent
    /// is one of the next page, and this one is whole: false.
    pub fn take(&mut self, row: AgentRow, limit: usize) -> bool {
        if self.agents.len() >= limit.min(limits::PAGE_JOBS_MAX) || self.bytes >= limits::PAGE_ROWS_BYTES_MAX {
            self.next = self.agents.last().map(|last| last.agent.agent.clone());
            return false;
        }
        self.bytes += row.source.len();
        self.agents.push(row);
        true
    }
}

/// A stored plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanDocument {
    /// Its hash.
    pub hash: Hash,
    /// The plan.
    pub plan: Arc<Plan>,
}

/// A timer's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerRow {
    /// When it is due.
    pub due: Timestamp,
    /// The job.
    pub job: JobId,
    /// Which.
    pub timer: TimerId,
}

/// A lease that is over while its job is still held. Ordered as it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpiredLease {
    /// When it ended.
    pub until: Timestamp,
    /// The job.
    pub job: JobId,
    /// The claim that it was of.
    pub fence: Fence,
}

/// Timers that are due.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DueTimers {
    /// When the first one is due that is not yet, if there is one.
    pub next: Option<Timestamp>,
    /// The store's clock.
    pub now: Timestamp,
    /// Those that are due, oldest first.
    pub timers: Vec<TimerRow>,
}

/// What a store's writer has done since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriterStats {
    /// Canonical bytes of event payloads, effects and row fields written.
    pub bytes: u64,
    /// Database transactions committed.
    pub commits: u64,
    /// Rows inserted, updated or deleted.
    pub rows: u64,
    /// Units of work accepted.
    pub units: u64,
}

/// The store's clock, counts and settings.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreStatus {
    /// `sqlite` or `memory`.
    pub backend: &'static str,
    /// The durability settings in force, for people.
    pub durability: String,
    /// The number of the store's life.
    pub generation: u32,
    /// Jobs by status.
    pub jobs: BTreeMap<JobStatus, u64>,
    /// The store's clock.
    pub now: Timestamp,
    /// What the writer has done.
    pub writer: WriterStats,
}

#[cfg(test)]
pub(crate) mod tests {
    use aetheris_core::id::{AttemptId, InstanceId};

    use super::*;

    /// A job's row as a restore that begins generation 3 has left it, and the state that its events tell.
    pub(crate) fn restored() -> (JobRow, JobState) {
        let (id, fence) = (JobId::from_u128(1), Fence { generation: 2, epoch: 5 });
        let row = JobRow {
            agent: "a".into(),
            agent_version: "1".to_owned(),
            created_at: Timestamp::default(),
            end_requested: None,
            error: None,
            fence,
            head: Hash::ZERO,
            holder: None,
            id,
            labels: BTreeMap::new(),
            not_before: None,
            paused: Some((PauseReason::Restored, Timestamp::default())),
            plan_hash: None,
            priority: 0,
            seq: 9,
            session: None,
            status: JobStatus::Paused,
            tenant: TenantId::default(),
            updated_at: Timestamp::default(),
            waiting: None,
        };
        let mut state = JobState::new(id);
        (state.status, state.seq, state.fence) = (JobStatus::Running, row.seq, fence);
        (row, state)
    }

    #[test]
    fn a_job_is_held_by_its_row_alone_until_anything_is_written_to_it() {
        let (row, state) = restored();
        assert!(row.holds_alone(&state, 3));
        // A store that has not begun another life has restored nothing.
        assert!(!row.holds_alone(&state, 2) && !row.holds_alone(&state, 1));
        let operator = Some((PauseReason::Operator, Timestamp::default()));
        let holder = Holder {
            attempt_id: AttemptId::from_u128(1),
            instance: InstanceId::from_u128(1),
            lease_until: Timestamp::default(),
            worker: "w".into(),
        };
        for other in [
            JobRow { status: JobStatus::Running, ..row.clone() },
            JobRow { paused: operator, ..row.clone() },
            JobRow { paused: None, ..row.clone() },
            JobRow { holder: Some(holder), ..row.clone() },
            JobRow { seq: 8, ..row.clone() },
            JobRow { seq: 10, ..row.clone() },
            JobRow { fence: Fence { epoch: 6, ..row.fence }, ..row.clone() },
            JobRow { fence: Fence { generation: 3, ..row.fence }, ..row.clone() },
        ] {
            assert!(!other.holds_alone(&state, 3), "{other:?}");
        }
        for status in JobStatus::ALL {
            let goes_on = !status.is_terminal() && status != JobStatus::Paused;
            assert_eq!(row.holds_alone(&JobState { status, ..state.clone() }, 3), goes_on, "{status:?}");
        }
    }
}
