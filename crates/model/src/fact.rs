//! Events in short form: what units in flight are made of. [`Fact::event`] makes the real event.

use std::sync::LazyLock;

use aetheris_core::event::{
    Answer, CommandCommitted, DoubtOutcome, EndCause, Event, Failure, InDoubtResolved, InvocationOutcome,
    JobCancelRequested, JobCancelled, JobClaimed, JobCompleted, JobCreated, JobFailed, JobPauseRequested, JobPaused,
    JobRequeued, JobResumed, JobWaiting, NodeFinished, NodeRetryScheduled, NodeStarted, PauseReason, PlanGenerated,
    RequeueReason, Resolver, SignalRefused, Source, StepInDoubt, StepResult, TimerFired, TimerId, TimerSet,
    ToolInvocationFinished, ToolInvocationStarted, WaitCompleted, WaitEnd,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::{
    AgentName, AttemptId, BootId, EventId, IdempotencyKey, InstanceId, JobId, PermitId, SessionId, TenantId, ToolName,
    WorkerId,
};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::time::{BootMoment, Reading, Span, Timestamp};

use crate::config::{Program, STEPS_MAX, wait_key};
use crate::signal::Signal;

/// The store's clock: it stands still, and what has ended ends before it.
pub const NOW: Timestamp = Timestamp::from_micros(1_000_000);
/// When a job that is sent for later may begin. For such a job it is this late once that has come.
pub const MOMENT: Timestamp = Timestamp::from_micros(NOW.micros() + 1);
/// Both clocks: neither goes on, and nobody sets them.
pub const READING: Reading = Reading { at: NOW, boot: BootMoment { at: Span::from_secs(1), of: BootId::from_u128(1) } };
/// How long a permit's call can still arrive.
pub const LIFETIME: Span = Span::from_secs(100);

/// The outcome of a call, as its run learns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The tool answered.
    Done,
    /// The other side refused and has not acted.
    Refused,
    /// The permit was too old; nothing left.
    NotSent,
    /// Too little was left of the lease; nothing left, and it is no failure of the step.
    Unused,
    /// Nobody knows.
    Unknown,
}

/// The answer to a doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answered {
    /// It happened.
    Happened,
    /// It did not and cannot any more.
    DidNotHappen,
    /// It stayed unknown.
    Unresolved,
}

/// One permission: its number, and the epoch of the run that asked for it, which makes its name unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permit {
    /// The asking run.
    pub by: u8,
    /// The step's place.
    pub node: u8,
    /// 1, 2, …
    pub number: u8,
}

/// A known outcome that is not written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Known {
    /// What is known.
    pub outcome: Outcome,
    /// Of which permit.
    pub permit: Permit,
}

/// A late outcome that is kept beside its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Late {
    /// Whether it is a success that the job did not go on with.
    pub contradicts: bool,
    /// Of which permit.
    pub permit: Permit,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// `job_claimed`
    Claimed(u8),
    /// `job_requeued`; with the retry policy's delay, or because the holder is gone.
    Requeued {
        /// Whether it is for a further try.
        retry: bool,
    },
    /// `job_waiting`
    Waiting {
        /// Whether it waits for the answer to a doubt.
        doubt: bool,
        /// The step.
        node: u8,
    },
    /// `wait_completed`, by this signal or by time.
    WaitEnded {
        /// The step.
        node: u8,
        /// The signal.
        signal: Option<Signal>,
    },
    /// `signal_refused`
    SignalRefused(Signal),
    /// `job_cancel_requested`
    EndRequested,
    /// `job_cancel_requested`, because the deadline has come.
    DeadlineRequested,
    /// `timer_fired`, of the job's deadline.
    DeadlineFired,
    /// `job_pause_requested`
    PauseRequested,
    /// `job_paused`
    Paused,
    /// `job_resumed`
    Resumed,
    /// `job_completed`
    Completed,
    /// `job_failed`
    Failed,
    /// `job_cancelled`
    Cancelled,
    /// `node_started`
    Started {
        /// The step.
        node: u8,
        /// The try.
        number: u8,
    },
    /// `node_finished`, well.
    Finished {
        /// The step.
        node: u8,
        /// Whether a tool's effect is its output.
        tool: bool,
    },
    /// `node_finished`, with an error.
    StepFailed(u8),
    /// `node_retry_scheduled`
    Retry(u8),
    /// `tool_invocation_started`
    Called(Permit),
    /// `tool_invocation_finished`
    InvocationFinished {
        /// What is known.
        outcome: Outcome,
        /// Of which permit.
        permit: Permit,
    },
    /// `command_committed`
    Command(u8),
    /// `timer_set`
    TimerSet {
        /// Whether it belongs to a doubt.
        doubt: bool,
        /// The step.
        node: u8,
    },
    /// `timer_fired`
    TimerFired {
        /// Whether it belongs to a doubt.
        doubt: bool,
        /// The step.
        node: u8,
    },
    /// `step_in_doubt`
    Doubt {
        /// Which call.
        permit: Permit,
        /// The place in the tool's list.
        policy: u8,
    },
    /// `in_doubt_resolved`
    Answered {
        /// How.
        answer: Answered,
        /// Which call.
        permit: Permit,
    },
}

/// Names that are made once.
struct Names {
    error: Failure,
    tools: Vec<ToolName>,
    worker: WorkerId,
    keys: Vec<Vec<IdempotencyKey>>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
    error: Failure::new("modelled", ""),
    tools: (0..STEPS_MAX).map(|place| ToolName::from(format!("t{place}").as_str())).collect(),
    worker: WorkerId::from("w"),
    keys: (0..4u8)
        .map(|job| {
            let key = |place| IdempotencyKey::derive(job_id(job), &StepPath::from(format!("n{place}").as_str()), 0);
            (0..STEPS_MAX).map(key).collect()
        })
        .collect(),
});

/// The id of a job by its place.
#[must_use]
pub const fn job_id(job: u8) -> JobId {
    JobId::from_u128(job as u128 + 1)
}

/// The key of a step's invocation.
#[must_use]
pub fn key_of(job: u8, node: u8) -> IdempotencyKey {
    NAMES.keys[usize::from(job)][usize::from(node)]
}

/// The fence of an epoch.
#[must_use]
pub fn fence(epoch: u8) -> Fence {
    Fence { generation: 1, epoch: u32::from(epoch) }
}

/// The instance that holds an epoch: each run is a process of its own.
#[must_use]
pub const fn instance(epoch: u8) -> InstanceId {
    InstanceId::from_u128(epoch as u128 + 1)
}

/// The worker's name: fences tell runs apart.
#[must_use]
pub fn worker() -> WorkerId {
    NAMES.worker.clone()
}

/// The tool of a step.
#[must_use]
pub fn tool(node: u8) -> ToolName {
    NAMES.tools[usize::from(node)].clone()
}

/// A name for events; nothing here looks at it.
#[must_use]
pub const fn event_id() -> EventId {
    EventId::from_u128(1)
}

impl Permit {
    /// Its author's name for it.
    #[must_use]
    pub fn id(self) -> PermitId {
        let [by, node, number] = [self.by, self.node, self.number].map(u128::from);
        PermitId::from_u128((by << 16) | (node << 8) | number)
    }

    /// The bit of its number in sets of permits.
    #[must_use]
    pub const fn bit(self) -> u8 {
        1 << (self.number & 7)
    }
}

impl Outcome {
    fn told(self) -> InvocationOutcome {
        match self {
            Self::Done => InvocationOutcome::Committed,
            Self::Refused => InvocationOutcome::RefusedRetryable,
            Self::NotSent | Self::Unused => InvocationOutcome::NotSent,
            Self::Unknown => InvocationOutcome::InDoubt,
        }
    }
}

impl Fact {
    /// The event it stands for.
    #[must_use]
    pub fn event(self, job: u8, program: &Program) -> Event {
        let id = |node: u8| program.paths[usize::from(node)].clone();
        match self {
            Self::Claimed(epoch) => JobClaimed {
                attempt_id: AttemptId::from_u128(u128::from(epoch)),
                instance: instance(epoch),
                worker: worker(),
            }
            .into(),
            Self::Requeued { retry } => {
                let reason = if retry { RequeueReason::Retry } else { RequeueReason::LeaseExpired };
                JobRequeued { after_us: None, reason }.into()
            }
            Self::Waiting { doubt, node } => waiting(doubt, node, id(node)).into(),
            Self::WaitEnded { node, signal } => wait_ended(signal, id(node)).into(),
            Self::SignalRefused(signal) => refused(signal, id(signal.node)).into(),
            Self::EndRequested => JobCancelRequested { cause: EndCause::Cancel }.into(),
            Self::DeadlineRequested => JobCancelRequested { cause: EndCause::Deadline }.into(),
            Self::DeadlineFired => TimerFired { timer: TimerId::Deadline }.into(),
            Self::PauseRequested => JobPauseRequested {}.into(),
            Self::Paused => JobPaused { reason: PauseReason::Operator }.into(),
            Self::Resumed => JobResumed {}.into(),
            Self::Completed => JobCompleted { answer: Answer::Value(Json::null()) }.into(),
            Self::Failed => JobFailed { error: NAMES.error.clone(), node: None }.into(),
            Self::Cancelled => JobCancelled {}.into(),
            Self::TimerSet { doubt, node } => TimerSet { after_us: 1, timer: timer(doubt, id(node)) }.into(),
            Self::TimerFired { doubt, node } => TimerFired { timer: timer(doubt, id(node)) }.into(),
            Self::Started { .. }
            | Self::Finished { .. }
            | Self::StepFailed(_)
            | Self::Retry(_)
            | Self::Called(_)
            | Self::InvocationFinished { .. }
            | Self::Command(_)
            | Self::Doubt { .. }
            | Self::Answered { .. } => self.step_event(job, program),
        }
    }

    fn step_event(self, job: u8, program: &Program) -> Event {
        let id = |node: u8| program.paths[usize::from(node)].clone();
        let finished = |node, error, result| NodeFinished { error, ..NodeFinished::new(id(node), result) };
        match self {
            Self::Started { node, number } => NodeStarted::new(id(node), u32::from(number)).into(),
            Self::Finished { node, tool } => {
                finished(node, None, if tool { StepResult::SideEffectCommitted } else { StepResult::Success }).into()
            }
            Self::StepFailed(node) => finished(node, Some(NAMES.error.clone()), StepResult::PermanentFailure).into(),
            Self::Retry(node) => {
                NodeRetryScheduled { after_us: 0, error: NAMES.error.clone(), model: None, node: id(node) }.into()
            }
            Self::Called(permit) => ToolInvocationStarted {
                effect: program.steps[usize::from(permit.node)].class().unwrap_or(EffectClass::Pure),
                input: (permit.number == 1).then(Json::null),
                key: key_of(job, permit.node),
                lifetime_us: LIFETIME.micros(),
                node: id(permit.node),
                permit: u32::from(permit.number),
                permit_id: permit.id(),
                tool: tool(permit.node),
                tool_version: None,
            }
            .into(),
            Self::InvocationFinished { outcome, permit } => ToolInvocationFinished {
                error: None,
                node: id(permit.node),
                outcome: outcome.told(),
                permit: u32::from(permit.number),
                source: Source::Executed,
            }
            .into(),
            Self::Command(node) => CommandCommitted { node: id(node), result_hash: Hash::ZERO }.into(),
            Self::Doubt { permit, policy } => StepInDoubt {
                node: id(permit.node),
                permit: u32::from(permit.number),
                policy: u32::from(policy),
                reason: String::new(),
            }
            .into(),
            Self::Answered { answer, permit } => answered(answer, permit, id(permit.node)).into(),
            Self::Claimed(_)
            | Self::Requeued { .. }
            | Self::Waiting { .. }
            | Self::WaitEnded { .. }
            | Self::SignalRefused(_)
            | Self::EndRequested
            | Self::DeadlineRequested
            | Self::DeadlineFired
            | Self::PauseRequested
            | Self::Paused
            | Self::Resumed
            | Self::Completed
            | Self::Failed
            | Self::Cancelled
            | Self::TimerSet { .. }
            | Self::TimerFired { .. } => self.event(job, program),
        }
    }
}

fn waiting(doubt: bool, place: u8, node: StepPath) -> JobWaiting {
    JobWaiting {
        correlation_key: (!doubt).then(|| wait_key(place)),
        doubt,
        node,
        park: false,
        reason: None,
        wait_type: WaitType::Signal,
    }
}

fn wait_ended(signal: Option<Signal>, node: StepPath) -> WaitCompleted {
    let by = signal
        .map_or(WaitEnd::Time, |signal| WaitEnd::Signal { payload: signal.word.payload(), signal: signal.name() });
    WaitCompleted { by, node }
}

fn refused(signal: Signal, node: StepPath) -> SignalRefused {
    SignalRefused {
        correlation_key: wait_key(signal.node),
        node,
        payload_hash: signal.word.hash(),
        signal: signal.name(),
        violations: Vec::new(),
    }
}

fn answered(answer: Answered, permit: Permit, node: StepPath) -> InDoubtResolved {
    InDoubtResolved {
        by: Resolver::Operator,
        node,
        note: None,
        outcome: outcome_of(answer),
        permit: u32::from(permit.number),
        grounds: None,
        result: None,
        settle_us: None,
        then: None,
    }
}

const fn outcome_of(answer: Answered) -> DoubtOutcome {
    match answer {
        Answered::Happened => DoubtOutcome::Happened,
        Answered::DidNotHappen => DoubtOutcome::DidNotHappen,
        Answered::Unresolved => DoubtOutcome::Unresolved,
    }
}

/// The timer of a wait or of a doubt.
#[must_use]
pub fn timer(doubt: bool, node: StepPath) -> TimerId {
    if doubt { TimerId::Doubt(node) } else { TimerId::Wait(node) }
}

/// How a job is sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    /// Whether it has a deadline.
    pub deadline: bool,
    /// Whether it is not to begin before [`MOMENT`].
    pub later: bool,
    /// Whether it belongs to the session.
    pub session: bool,
}

/// The first events of every job.
#[must_use]
pub fn beginning(program: &Program, sent: Sent) -> Vec<Event> {
    let created = JobCreated {
        agent: AgentName::from("a"),
        agent_version: String::new(),
        execution_version: String::new(),
        labels: std::collections::BTreeMap::new(),
        message: Json::null(),
        parent: None,
        planning: None,
        priority: 0,
        run_at: sent.later.then_some(MOMENT),
        session: sent.session.then(|| SessionId::from("s")),
        tenant: TenantId::default(),
    };
    let planned = PlanGenerated {
        plan_hash: program.plan.hash(),
        plan_version: 1,
        planner: String::new(),
        planner_version: String::new(),
    };
    let timer = TimerSet { after_us: 1, timer: TimerId::Deadline };
    [created.into(), planned.into()].into_iter().chain(sent.deadline.then(|| timer.into())).collect()
}
