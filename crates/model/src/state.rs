//! What there is: jobs as the store has them, runs as workers have them, units on their way, and the truth
//! about calls that only the tool knows.
//!
//! States are compared by what can still make a difference. A fold is compared without its length: whether
//! someone has seen the newest one is what counts ([`Seen`]).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use aetheris_core::event::{DoubtOutcome, EndCause, Event, InvocationOutcome, Recorded, TimerId, WaitEnd};
use aetheris_core::hash;
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Holder;
use aetheris_core::ledger::{LedgerRow, LedgerStatus, LedgerTrigger};
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::state::{Illegal, InvocationPhase, JobState, Output, StepState, WaitPhase};
use aetheris_core::step::StepStatus;
use aetheris_core::time::{BootMoment, Span};

use crate::config::{Program, STEPS_MAX, wait_key};
use crate::fact::{self, Fact, Known, Late, NOW, Permit};
use crate::signal::{Signal, Word};

/// A job's fold by production's reducer, compared by what can still make a difference.
#[derive(Debug, Clone)]
pub struct Fold {
    digest: Digest,
    state: Arc<JobState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Digest {
    blocked: u8,
    deadline: bool,
    delayed: bool,
    ending: u8,
    epoch: u32,
    reclaims: u32,
    status: JobStatus,
    steps: [StepDigest; STEPS_MAX],
    timers: [u8; STEPS_MAX],
    waits: [u8; STEPS_MAX],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct StepDigest {
    doubt: u8,
    effect_output: bool,
    permit: u128,
    phase: u8,
    status: u8,
    tries: u8,
    wait_end: u8,
}

impl PartialEq for Fold {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Fold {}

impl Hash for Fold {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl Fold {
    /// Takes a state as it is.
    #[must_use]
    pub fn of(state: JobState, paths: &[StepPath]) -> Self {
        Self { digest: digest(&state, paths), state: Arc::new(state) }
    }

    /// A new job that has its plan.
    ///
    /// # Errors
    /// The reducer refuses the first events.
    pub fn begin(job: u8, program: &Program, sent: fact::Sent) -> Result<Self, Illegal> {
        let mut state = JobState::new(fact::job_id(job));
        for event in fact::beginning(program, sent) {
            replay(&mut state, event, 0)?;
        }
        Ok(Self::of(state, &program.paths))
    }

    /// The fold itself.
    #[must_use]
    pub fn state(&self) -> &JobState {
        &self.state
    }

    /// The last event's place.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.state.seq
    }

    /// The epoch of the last claim.
    #[must_use]
    pub fn epoch(&self) -> u8 {
        u8::try_from(self.state.fence.epoch).unwrap_or(u8::MAX)
    }

    /// What the job does.
    #[must_use]
    pub fn status(&self) -> JobStatus {
        self.state.status
    }

    /// A step, if anything happened to it.
    #[must_use]
    pub fn step(&self, program: &Program, node: u8) -> Option<&StepState> {
        self.state.steps.get(&program.paths[usize::from(node)])
    }
}

/// Folds one fact as a reader does: place, fence and tables are checked by the reducer.
///
/// # Errors
/// What the reducer refuses.
pub fn replay(state: &mut JobState, event: Event, epoch: u8) -> Result<(), Illegal> {
    state.replay(&Recorded {
        at: NOW,
        event,
        fence: fact::fence(epoch),
        hash: hash::Hash::ZERO,
        id: fact::event_id(),
        seq: state.seq + 1,
    })
}

fn digest(state: &JobState, paths: &[StepPath]) -> Digest {
    let place = |path: &StepPath| paths.iter().position(|id| id == path).and_then(|place| u8::try_from(place).ok());
    let mut steps = [StepDigest::default(); STEPS_MAX];
    let mut timers = [0; STEPS_MAX];
    let mut waits = [0; STEPS_MAX];
    for (place, node) in paths.iter().enumerate() {
        steps[place] = state.steps.get(node).map(step_digest).unwrap_or_default();
        let set = |doubt| u8::from(state.timers.contains_key(&fact::timer(doubt, node.clone())));
        timers[place] = set(false) | (set(true) << 1);
        let record = u8::try_from(place).ok().and_then(|place| state.waits.get(&wait_key(place)));
        waits[place] = record.map_or(0, |record| match &record.phase {
            WaitPhase::Open => 1,
            WaitPhase::Over => 2,
            WaitPhase::Delivered { payload_hash, .. } => 3 + Word::of(*payload_hash).map_or(0, |word| word as u8),
        });
    }
    let blocked = state.blocks.oldest();
    Digest {
        blocked: blocked.and_then(|b| place(&b.node).map(|n| 1 + 2 * n + u8::from(b.doubt))).unwrap_or(0),
        deadline: state.timers.contains_key(&TimerId::Deadline),
        delayed: state.not_before.is_some(),
        ending: state.end_requested.map_or(0, |cause| match cause {
            EndCause::Cancel => 1,
            EndCause::Deadline => 2,
            EndCause::Pause => 3,
        }),
        epoch: state.fence.epoch,
        reclaims: state.reclaims,
        status: state.status,
        steps,
        timers,
        waits,
    }
}

fn step_digest(step: &StepState) -> StepDigest {
    let phase = step.invocation.as_deref().map_or(0, |invocation| match invocation.phase {
        InvocationPhase::Started => 1,
        InvocationPhase::Finished(outcome) => match outcome {
            InvocationOutcome::Committed => 2,
            InvocationOutcome::RefusedRetryable => 3,
            InvocationOutcome::RefusedPermanent => 4,
            InvocationOutcome::NotSent => 5,
            InvocationOutcome::InDoubt => 6,
        },
        InvocationPhase::Resolved(outcome) => match outcome {
            DoubtOutcome::Happened => 7,
            DoubtOutcome::DidNotHappen => 8,
            DoubtOutcome::Unresolved => 9,
        },
    });
    let small = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
    StepDigest {
        doubt: step.doubt.as_deref().map_or(0, |d| 1 + small(d.policy) * 2 + u8::from(d.waited)),
        effect_output: matches!(step.output, Some(Output::Effect(_))),
        permit: step.invocation.as_deref().map_or(0, |invocation| invocation.permit_id.as_u128()),
        phase,
        status: step.status as u8,
        tries: small(step.tries),
        wait_end: match step.wait_end.as_deref() {
            None => 0,
            Some(WaitEnd::Dropped | WaitEnd::Time) => 1,
            Some(WaitEnd::Signal { .. }) => 2,
        },
    }
}

/// The place of the last event that an author has seen. Compared only as far as the store can: the newest or
/// not, which [`crate::system::System`] keeps beside it.
#[derive(Debug, Clone, Copy)]
pub struct Seen(pub u64);

impl PartialEq for Seen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Seen {}

impl Hash for Seen {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A row of the ledger, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// Whether a doubt was answered by "did not happen".
    pub disproved: bool,
    /// Whether the permit's call can no longer arrive.
    pub passed: bool,
    /// The current permit.
    pub permit: Permit,
    /// What is known of it.
    pub status: LedgerStatus,
}

impl Row {
    /// The row as the ledger's functions want it.
    #[must_use]
    pub fn full(self, job: u8, class: EffectClass) -> LedgerRow {
        let left = if self.passed { Span::ZERO } else { fact::LIFETIME };
        let boot = fact::READING.boot;
        LedgerRow {
            boot: Some(BootMoment { at: boot.at.plus(left), ..boot }),
            class,
            deadline: NOW.after(left),
            disproved: self.disproved,
            fence: fact::fence(self.permit.by),
            input_hash: hash::Hash::ZERO,
            job: fact::job_id(job),
            key: fact::key_of(job, self.permit.node),
            lifetime: Some(fact::LIFETIME),
            node: StepPath::from(""),
            permit: u32::from(self.permit.number),
            permit_id: self.permit.id(),
            seen: None,
            status: self.status,
            tool: fact::tool(self.permit.node),
            updated_at: NOW,
        }
    }
}

/// What a run knows of its job: the fold, the ledger, effects, and kept signals.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    /// Permits with an effect, by step.
    pub effects: [u8; STEPS_MAX],
    /// The fold.
    pub fold: Fold,
    /// Kept signals, in the order in which they came.
    pub kept: Vec<Signal>,
    /// The ledger.
    pub ledger: [Option<Row>; STEPS_MAX],
}

impl View {
    /// The kept signals of a wait, in the order in which they came.
    pub fn kept_for(&self, node: u8) -> impl Iterator<Item = Signal> + '_ {
        self.kept.iter().copied().filter(move |kept| kept.node == node)
    }
}

/// A job as the store has it, and the truth about its calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Job {
    /// Truth: signals that their senders were told are kept or delivered, in that order.
    pub acknowledged: Vec<Signal>,
    /// Truth: permits whose call has left and has neither begun nor become impossible, by step.
    pub air: [u8; STEPS_MAX],
    /// Truth: permits under which a body began, by step.
    pub bodies: [u8; STEPS_MAX],
    /// Whether a cancel was accepted.
    pub cancelled: bool,
    /// Signals that have ended a wait.
    pub delivered: Vec<Signal>,
    /// How often someone has paused it.
    pub pauses: u8,
    /// Timers that are due: waits and doubts, by step.
    pub due: [u8; STEPS_MAX],
    /// Whether its deadline has come.
    pub expired: bool,
    /// Whether a late success is not what the job went on with, by step.
    pub contradicted: [bool; STEPS_MAX],
    /// Late outcomes, by step.
    pub evidence: [u8; STEPS_MAX],
    /// Truth: permits whose call has left, by step.
    pub left: [u8; STEPS_MAX],
    /// Whether it was sent for later.
    pub later: bool,
    /// Whether the lease lives; only of use while it is held.
    pub live: bool,
    /// Truth: whether the moment has come that it was sent for.
    pub moment: bool,
    /// Whether anyone holds it.
    pub held: bool,
    /// The program.
    pub program: u8,
    /// Signals that their waits have refused.
    pub refused: Vec<Signal>,
    /// Signals sent so far.
    pub sent: u8,
    /// What runs may see.
    pub view: View,
}

impl Job {
    /// The holder as the job's row names it.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        let epoch = self.view.fold.epoch();
        let lease_until = if self.live { NOW.after(Span::from_micros(1)) } else { NOW };
        self.held.then(|| Holder {
            attempt_id: aetheris_core::id::AttemptId::from_u128(u128::from(epoch)),
            instance: fact::instance(epoch),
            lease_until,
            worker: fact::worker(),
        })
    }

    /// Truth: whether anyone has worked on it.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        let acted = |permits: &[u8; STEPS_MAX]| permits.iter().any(|permits| *permits != 0);
        self.view.fold.epoch() > 0 || acted(&self.left) || acted(&self.bodies)
    }

    /// What the job's steps do at the moment of their last event.
    #[must_use]
    pub fn status(&self) -> JobStatus {
        self.view.fold.status()
    }

    /// Whether a step's doubt is open.
    #[must_use]
    pub fn open_doubt(&self, program: &Program, node: u8) -> Option<Permit> {
        let step = self.view.fold.step(program, node)?;
        let invocation = step.invocation.as_deref()?;
        let open = step.status == StepStatus::InDoubt && invocation.phase == InvocationPhase::Started;
        open.then(|| permit_of(node, invocation))
    }
}

/// The permit that a step's events speak of.
#[must_use]
pub fn permit_of(node: u8, invocation: &aetheris_core::state::Invocation) -> Permit {
    let by = u8::try_from(invocation.permit_id.as_u128() >> 16).unwrap_or(u8::MAX);
    Permit { by, node, number: u8::try_from(invocation.permit).unwrap_or(u8::MAX) }
}

/// What a run has to do next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Phase {
    /// To decide and write.
    Ready,
    /// It has this permission and has not called.
    Permitted(Permit),
    /// Its call has left.
    Calling(Permit),
    /// It asks a pure tool whether the call happened.
    Asking(Permit),
    /// It does not know whether this unit was written. `landed` is the truth.
    Settling {
        /// The fold with it, if it is there.
        landed: Option<Fold>,
        /// The unit.
        unit: Arc<Unit>,
    },
    /// It has lost its lease and knows an outcome.
    Depositing,
}

/// One job in one worker's hands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run {
    /// The fence's epoch.
    pub epoch: u8,
    /// Whether it has seen the job's last event.
    pub fresh: bool,
    /// The job.
    pub job: u8,
    /// The outcome it owes.
    pub known: Option<Known>,
    /// What it has to do.
    pub phase: Phase,
    /// Whether its own clock says that the lease is safe.
    pub safe: bool,
    /// What it knows.
    pub view: View,
}

/// In whose right a unit is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    /// The run of this epoch.
    Run(u8),
    /// Anyone who has seen the sequence.
    Outside,
    /// Whoever fires a timer whose moment has come: here, time does not go back.
    Due,
    /// The reclaimer, because the lease of this epoch is over.
    Expired(u8),
    /// The reclaimer, because the process of this epoch is dead.
    Dead(u8),
}

/// A change of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// This permission is asked for.
    Ask(Permit),
    /// This permit is settled.
    Settle(Permit, LedgerTrigger),
}

impl Hash for Change {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Ask(permit) => (0u8, permit).hash(state),
            Self::Settle(permit, trigger) => (1 + *trigger as u8, permit).hash(state),
        }
    }
}

/// A change of the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inbox {
    /// This signal came, and is delivered at once or kept.
    Receive {
        /// Whether it is delivered.
        delivered: bool,
        /// The signal.
        signal: Signal,
    },
    /// A kept signal ends its wait, or is refused by it.
    Consume(Signal),
}

/// A fact with what is written because of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The effect of this permit is recorded.
    pub effect: Option<Permit>,
    /// The event; a deposit may write none.
    pub fact: Option<Fact>,
    /// A change of the inbox.
    pub inbox: Option<Inbox>,
    /// A change of the ledger.
    pub ledger: Option<Change>,
}

/// What the run does once a unit is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Then {
    /// It goes on.
    Go,
    /// It calls.
    Call(Permit),
    /// It asks about the call.
    Ask(Permit),
    /// It has given the job away.
    End,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unit {
    /// Its facts, in order.
    pub entries: Vec<Entry>,
    /// A late outcome to keep beside the job.
    pub evidence: Option<Late>,
    /// How many signals are kept for this step's wait as far as its author knows.
    pub expected_signals: Option<(u8, u8)>,
    /// Whether its author has seen the newest event.
    pub fresh: bool,
    /// The job.
    pub job: u8,
    /// Whether the job is nobody's after it.
    pub release: bool,
    /// In whose right.
    pub right: Right,
    /// What its author has seen.
    pub seen: Option<Seen>,
    /// What its author does then.
    pub then: Then,
}

impl Unit {
    /// A unit that changes nothing yet, on what its author has seen.
    #[must_use]
    pub fn new(job: u8, right: Right, seen: Option<&Fold>) -> Self {
        Self {
            entries: Vec::new(),
            evidence: None,
            expected_signals: None,
            fresh: true,
            job,
            release: false,
            right,
            seen: seen.map(|fold| Seen(fold.seq())),
            then: Then::Go,
        }
    }

    /// Whether it would change nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.evidence.is_none()
    }
}

impl Entry {
    /// A fact alone.
    #[must_use]
    pub fn of(fact: Fact) -> Self {
        Self { fact: Some(fact), ..Self::default() }
    }
}
