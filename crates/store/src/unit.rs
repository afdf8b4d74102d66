//! The unit of work: everything that one step of one job changes, written through one door.

use std::collections::BTreeMap;

use aetheris_core::disproof::Disproof;
use aetheris_core::event::EncodedEvent;
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, EventId, IdempotencyKey, JobId, PermitId, SessionId, SignalId, TenantId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::{PermitRequest, Settle};
use aetheris_core::path::StepPath;
use aetheris_core::plan::{OnParentEnd, WaitType};
use aetheris_core::projection::{Projection, Promise, TimerChange};
use aetheris_core::state::JobState;
use aetheris_core::time::Timestamp;

use crate::query::{Evidence, PlanDocument};

/// What a unit is for; names it in logs, metrics and crash points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// A message is accepted.
    Create,
    /// Commit A: a tool may be called.
    Permit,
    /// Commit C: results are recorded.
    Record,
    /// The job ends.
    Finish,
    /// The job blocks.
    Block,
    /// The job is given back.
    Requeue,
    /// A call's outcome is unknown, or its policies go on.
    Doubt,
    /// A signal arrived.
    Signal,
    /// A timer fired.
    Timer,
    /// The job's end is asked for.
    Cancel,
    /// The job is held still, or goes on.
    Pause,
    /// An expired lease is taken back.
    Reclaim,
    /// An outcome that came after the lease was lost.
    Deposit,
    /// Someone answered a doubt.
    Resolve,
    /// What was promised with another unit is done.
    Deliver,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 15] = [
        Self::Create,
        Self::Permit,
        Self::Record,
        Self::Finish,
        Self::Block,
        Self::Requeue,
        Self::Doubt,
        Self::Signal,
        Self::Timer,
        Self::Cancel,
        Self::Pause,
        Self::Reclaim,
        Self::Deposit,
        Self::Resolve,
        Self::Deliver,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Permit => "permit",
            Self::Record => "record",
            Self::Finish => "finish",
            Self::Block => "block",
            Self::Requeue => "requeue",
            Self::Doubt => "doubt",
            Self::Signal => "signal",
            Self::Timer => "timer",
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Reclaim => "reclaim",
            Self::Deposit => "deposit",
            Self::Resolve => "resolve",
            Self::Deliver => "deliver",
        }
    }
}

/// A client's name for a message, so that sending it again makes no second job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientKey {
    /// Hash of everything else in the request.
    pub body_hash: Hash,
    /// The name, unique per agent of a tenant.
    pub key: String,
}

/// What a job's row needs beside its projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// The agent.
    pub agent: AgentName,
    /// Its version.
    pub agent_version: String,
    /// The client's name for the message.
    pub client_key: Option<ClientKey>,
    /// The client's labels.
    pub labels: BTreeMap<String, String>,
    /// The job that asked for it.
    pub parent: Option<ChildOf>,
    /// Higher is earlier.
    pub priority: i32,
    /// The conversation.
    pub session: Option<SessionId>,
    /// Whose it is.
    pub tenant: TenantId,
}

/// Whose child a new job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildOf {
    /// The parent.
    pub job: JobId,
    /// Its step.
    pub node: StepPath,
    /// What becomes of the child when the parent ends: one that is to end with it is not created any more then.
    pub on_parent_end: OnParentEnd,
}

/// Whether the writer goes on holding the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseChange {
    /// The holder, if any, stays.
    Keep,
    /// The job is nobody's after this.
    Release,
}

/// A change of the ledger, decided by the rules of [`aetheris_core::ledger`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerWrite {
    /// A permission is asked for; it also needs an unexpired lease.
    Permit(PermitRequest),
    /// The current permit's status is settled.
    Settle(Settle),
    /// "Did not happen", whose grounds the store checks by its own clocks.
    Disprove(Disproof),
    /// The boot clock of the writing process is noted as having read the permit.
    See {
        /// The invocation.
        key: IdempotencyKey,
        /// The permit.
        permit_id: PermitId,
    },
}

impl LedgerWrite {
    /// The invocation.
    #[must_use]
    pub const fn key(&self) -> IdempotencyKey {
        match self {
            Self::Permit(request) => request.key,
            Self::Settle(settle) => settle.key,
            Self::Disprove(disproof) => disproof.key,
            Self::See { key, .. } => *key,
        }
    }
}

/// A recorded outcome. One per key and permit; the first stays.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEffect {
    /// The invocation.
    pub key: IdempotencyKey,
    /// The permit's number.
    pub permit: u32,
    /// The permit's id, which must be the ledger's current one.
    pub permit_id: PermitId,
    /// What the tool answered.
    pub result: Json,
}

/// A change of the inbox.
#[derive(Debug, Clone, PartialEq)]
pub enum InboxWrite {
    /// A signal arrived. Kept for a wait that the job has not reached, or delivered in this unit.
    Receive {
        /// Whether this unit delivers it.
        delivered: bool,
        /// The wait it names.
        key: String,
        /// What it brings.
        payload: Json,
        /// Its id.
        signal: SignalId,
        /// What it claims to be.
        wait_type: Option<WaitType>,
    },
    /// A kept signal is kept no longer: this unit delivers it, or says that it does not fit its wait.
    Consume(SignalId),
}

/// A folded state to start the next fold from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The place of the last event in it.
    pub seq: u64,
    /// The state's canonical bytes.
    pub state: Vec<u8>,
    /// The version of its form: [`JobState::VERSION`](aetheris_core::state::JobState::VERSION) of its author.
    pub version: u16,
}

impl Checkpoint {
    /// The checkpoint of a state that has been folded up to `seq`.
    #[must_use]
    pub fn of(seq: u64, state: &JobState) -> Self {
        Self::from_bytes(seq, aetheris_core::json::to_canonical(state))
    }

    /// A checkpoint of this build's version with these bytes.
    #[must_use]
    pub const fn from_bytes(seq: u64, state: Vec<u8>) -> Self {
        Self { seq, state, version: JobState::VERSION }
    }

    /// Whether this build can fold on from it.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.version == JobState::VERSION || aetheris_fault::planted!("checkpoint-of-any-version")
    }
}

/// How many signals of a key are kept for waits that a job has not reached, as far as a unit's author knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedSignals {
    /// How many.
    pub count: usize,
    /// The key.
    pub key: String,
}

/// One write of one job. The store checks guard, sequence, ledger and inbox in the transaction that
/// writes, and writes all of it or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitOfWork {
    /// A folded state to keep.
    pub checkpoint: Option<Checkpoint>,
    /// The row of a new job.
    pub create: Option<NewJob>,
    /// What was promised with other units and is done with this one, by number: each must stand.
    pub delivers: Vec<u64>,
    /// Effects to put.
    pub effects: Vec<NewEffect>,
    /// Events to append.
    pub events: Vec<EncodedEvent>,
    /// Outcomes that came too late to be effects.
    pub evidence: Vec<Evidence>,
    /// The place of the last event that the author has seen; `None` where the unit appends none and
    /// holds whatever else was written.
    pub expected_seq: Option<u64>,
    /// The kept signals that its author knows, of each key that it is to wait for: one that has come since would be missed.
    pub expected_signals: Vec<ExpectedSignals>,
    /// In whose right it is written.
    pub guard: Guard,
    /// The author's name for the unit; the id of its first event where it has one.
    pub id: EventId,
    /// Changes of the inbox.
    pub inbox: Vec<InboxWrite>,
    /// The job.
    pub job: JobId,
    /// Whether the writer goes on holding the job.
    pub lease: LeaseChange,
    /// Changes of the ledger, in order.
    pub ledger: Vec<LedgerWrite>,
    /// What is to be done later because of it, once.
    pub outbox: Vec<Promise>,
    /// Whether the author keeps working while this is written. A store need not spin for the answer then.
    pub overlaps: bool,
    /// The document of the plan that it records, where the store may not have it.
    pub plan: Option<PlanDocument>,
    /// What it is for.
    pub purpose: Purpose,
    /// The derived part of the row, where it may have changed.
    pub row: Option<Projection>,
    /// Changes of the timers.
    pub timers: Vec<TimerChange>,
}

impl UnitOfWork {
    /// A unit that changes nothing yet.
    #[must_use]
    pub fn new(id: EventId, job: JobId, purpose: Purpose, guard: Guard) -> Self {
        Self {
            checkpoint: None,
            create: None,
            delivers: Vec::new(),
            effects: Vec::new(),
            events: Vec::new(),
            evidence: Vec::new(),
            expected_seq: None,
            expected_signals: Vec::new(),
            guard,
            id,
            inbox: Vec::new(),
            job,
            lease: LeaseChange::Keep,
            ledger: Vec::new(),
            outbox: Vec::new(),
            overlaps: false,
            plan: None,
            purpose,
            row: None,
            timers: Vec::new(),
        }
    }
}

/// What a store says of a unit that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The store's time of the write: of all its events.
    pub at: Timestamp,
    /// The chain's head after it.
    pub head: Hash,
    /// The place of the last event after it.
    pub seq: u64,
}
