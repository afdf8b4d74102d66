//! What a decision about a step comes to: facts, and what is next.
//!
//! ```text
//! prepare(view) ─► facts, next ──┬─ nothing more: the job is looked at again
//!                                ├─ the step waits, and with it the job once nothing else can go on
//!                                └─ a body ─► what it said ─► conclude(view, said) ─► facts, next
//! ```
//!
//! Decisions are values. They await nothing, read no clock and write nothing: the driver drafts the facts, writes them as
//! early as the body needs them, and has the body performed.

use aetheris_core::event::{
    Failure, JobRequeued, JobWaiting, Judge, ModelParameters, ModelRecord, NodeFinished, RequeueReason, ToolAsked,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, PermitId, SessionId, TenantId};
use aetheris_core::json::Json;
use aetheris_core::plan::{EffectClass, OnParentEnd, Reconcile};
use aetheris_core::schema::Violation;
use aetheris_core::time::{BootMoment, Reading, Span};
use aetheris_store::{ExpectedSignals, KeptSignal, LedgerWrite};

use crate::draft::Fact;
use crate::ports::{ModelAnswer, ModelError, ModelRequest, ToolCall, ToolOutcome, is_own_want};

/// Facts, and what is next.
#[derive(Debug, Default)]
pub struct Prepared {
    /// What is to be recorded, in order.
    pub facts: Vec<Fact>,
    /// What comes then.
    pub next: Next,
    /// A first reading of this boot clock that the ledger is to keep, whatever is written next.
    pub see: Option<LedgerWrite>,
}

/// What is next once the facts are drafted.
#[derive(Debug, Default)]
pub enum Next {
    /// The job is looked at again.
    #[default]
    Go,
    /// The step is decided again at once, on the state with these facts.
    Again,
    /// The facts are written first; then the job is looked at again.
    Record,
    /// The try has failed with these facts: its retry policy is asked.
    TryFailed(TryFailed),
    /// The step waits, and with it the job once nothing else of it can go on.
    Release(Release),
    /// A body is performed.
    Perform(Body),
    /// A schema is asked about the output of the step; the facts are drafted with what follows from that.
    Check(Box<Check>),
    /// The output of the step was rejected with these facts, for this reason.
    Rejected(Judge, String),
}

/// An output that a schema is asked about.
#[derive(Debug)]
pub struct Check {
    /// The end of the try that has given it, if that is not recorded.
    pub end: Option<NodeFinished>,
    /// The output.
    pub output: Json,
    /// The schema.
    pub schema: Json,
    /// Whose schema it is.
    pub whose: Whose,
}

/// Whose schema an output must fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The loop's, of its last word.
    Loop,
    /// That of a question to a model, of its answer: one that does not fit is asked for again, as the retry policy says.
    Question,
    /// The step's own: one that does not fit is made again.
    Step,
    /// The tool's, of what it answers: one that does not fit is a failure, whatever the call has done.
    Tool,
}

impl Prepared {
    /// Facts, after which the job is looked at again.
    pub fn of(facts: impl Into<Vec<Fact>>) -> Self {
        Self { facts: facts.into(), ..Self::default() }
    }

    /// The same with a fact more.
    pub fn and(mut self, fact: Fact) -> Self {
        self.facts.push(fact);
        self
    }

    /// Its facts, and then all that follows, whose next is the next of both.
    pub fn then(self, later: Self) -> Self {
        debug_assert!(matches!(self.next, Next::Go), "what follows has nothing before it");
        let facts = self.facts.into_iter().chain(later.facts).collect();
        Self { facts, next: later.next, see: self.see.or(later.see) }
    }

    /// The same with another next.
    pub fn next(self, next: Next) -> Self {
        Self { next, ..self }
    }

    /// The same with a body that is performed next.
    pub fn perform(self, body: Body) -> Self {
        self.next(Next::Perform(body))
    }
}

/// How a step that cannot go on lets its job be given away, once nothing else of the job can go on.
#[derive(Debug)]
pub enum Release {
    /// It waits for something outside.
    Block {
        /// The facts that say so.
        facts: Vec<Fact>,
        /// The kept signals that the run knows: the store is to have no other.
        expected: Option<ExpectedSignals>,
    },
    /// It may go on after this delay.
    Requeue(Span, RequeueReason),
}

impl Release {
    /// The facts that give the job away where it waits for this alone.
    #[must_use]
    pub fn facts(&self) -> Vec<Fact> {
        match self {
            Self::Block { facts, .. } => facts.clone(),
            Self::Requeue(delay, reason) => {
                let requeued = JobRequeued { after_us: Some(delay.micros()), reason: *reason };
                vec![Fact::of(requeued)]
            }
        }
    }
}

/// Why a try failed, and what may follow.
#[derive(Debug)]
pub struct TryFailed {
    /// What happened.
    pub error: Failure,
    /// It is a step that is given up, since its map or its loop has failed with another.
    pub given_up: bool,
    /// What a model used for an answer that could not be taken.
    pub model: Option<Box<ModelRecord>>,
    /// The job as a whole has used up what it may: it fails whatever its node says.
    pub of_job: bool,
    /// When the other side asked to be called again.
    pub retry_after: Option<Span>,
    /// Whether another try may help.
    pub retryable: bool,
    /// How long the body took, if that is told with the step's end.
    pub took_us: Option<u64>,
}

impl TryFailed {
    /// A failure of which nothing more is known.
    pub fn new(error: Failure, retry_after: Option<Span>, retryable: bool) -> Self {
        Self { error, given_up: false, model: None, of_job: false, retry_after, retryable, took_us: None }
    }
}

/// Work that has to be done before more can be decided.
#[derive(Debug)]
pub enum Body {
    /// A tool is called.
    Call(Box<ToolCall>, Role),
    /// A model is asked.
    Ask(Box<ModelRequest>, Asked),
    /// Kept signals are judged by the schema of the wait that is reached.
    Judge(Box<Reached>, Json),
    /// The input that a model gives to a tool is judged by that tool's schema.
    CheckInput(Box<InputGiven>),
    /// The agent of a child job is looked up, and its message judged.
    FindAgent(Box<ChildWanted>),
    /// What is left of a back-off passes.
    Rest(Span),
}

/// What a body came to.
#[derive(Debug)]
pub enum Said {
    /// What is known after a call of a pure tool, and how long it took.
    Called(ToolOutcome, u64),
    /// What is known after a call under a permit.
    Permitted(ToolOutcome, Permit),
    /// Nothing left under a permit, for a reason of this process.
    Unsent(Permit, Failure),
    /// What is known after a question about a call.
    Reconciled(ToolOutcome, Question, Clocks),
    /// A model's answer, and how long it took.
    Model(Result<ModelAnswer, ModelError>, Asked, u64),
    /// What has come for a wait.
    Judged(Box<Reached>, Arrival),
    /// What of the input that a model gives to a tool with this call does not fit.
    InputChecked(Box<ToolAsked>, Vec<Violation>),
    /// Whether the agent of a child job takes it.
    AgentFound(Box<ChildWanted>, AgentFound),
    /// The back-off is over.
    Rested,
}

/// An input that a model gives to a tool.
#[derive(Debug)]
pub struct InputGiven {
    /// The call that it is given with: what is found counts for this one alone.
    pub asked: ToolAsked,
    /// The input.
    pub input: Json,
    /// The schema of the tool.
    pub schema: Json,
}

/// A child job that a step is to ask for.
#[derive(Debug)]
pub struct ChildWanted {
    /// Its agent.
    pub agent: AgentName,
    /// The time that it may take; its agent's own where absent.
    pub deadline: Option<Span>,
    /// Its message.
    pub message: Json,
    /// What becomes of it when this job ends.
    pub on_parent_end: OnParentEnd,
    /// Its conversation.
    pub session: Option<SessionId>,
    /// Whose it is: of the same tenant as this job.
    pub tenant: TenantId,
    /// Whether the step waits for its end.
    pub waits: bool,
}

/// What is found of the agent of a child job.
#[derive(Debug)]
pub enum AgentFound {
    /// It takes the message.
    Agent {
        /// The time that a job of it may take.
        deadline: Option<Span>,
        /// Its plan.
        plan_hash: Hash,
        /// Who makes its plans.
        planner: String,
        /// Its version.
        version: String,
    },
    /// It is not there, or does not take the message.
    Refused(Failure),
}

impl Said {
    /// What this process alone lacked, so that nothing left.
    pub fn own_want(&self) -> Option<&Failure> {
        let error = match self {
            Self::Called(outcome, _) | Self::Permitted(outcome, _) | Self::Reconciled(outcome, ..) => match outcome {
                ToolOutcome::NotSent { error, .. } => error,
                ToolOutcome::Done(_)
                | ToolOutcome::RefusedRetryable { .. }
                | ToolOutcome::RefusedPermanent(_)
                | ToolOutcome::Unknown { .. } => return None,
            },
            Self::Model(Err(failed), ..) => &failed.error,
            Self::Model(Ok(_), ..)
            | Self::Judged(..)
            | Self::AgentFound(..)
            | Self::InputChecked(..)
            | Self::Rested
            | Self::Unsent(..) => {
                return None;
            }
        };
        is_own_want(error).then_some(error)
    }
}

/// What a tool is called for.
#[derive(Debug)]
pub enum Role {
    /// A pure tool's step.
    Pure,
    /// A ledger step, under a permit.
    Permit(Permit),
    /// A question about a call in doubt.
    Reconcile(Question),
}

/// A permission that this run is given.
#[derive(Debug, Clone, Copy)]
pub struct Permit {
    /// What repeating the call would do.
    pub class: EffectClass,
    /// Its author's name for it.
    pub id: PermitId,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// 1, 2, … within its key.
    pub number: u32,
}

/// A question about a call.
#[derive(Debug)]
pub struct Question {
    /// The permit of the call.
    pub permit_id: PermitId,
    /// Whether the tool refuses the permit from the question on; else it only looks.
    pub refuses: bool,
    /// The tool that is asked, and when its answer counts.
    pub whom: Reconcile,
}

/// When a question about a call was asked and answered.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// What both clocks were known to show right before it was asked.
    pub asked: Reading,
    /// The boot clock at its answer.
    pub answered: BootMoment,
    /// Whether this process still awaited the call then.
    pub flying: bool,
}

/// What of a question to a model is told with its answer.
#[derive(Debug, Clone)]
pub struct Asked {
    /// How it is asked.
    pub parameters: ModelParameters,
    /// The hash of the whole question.
    pub prompt_hash: Hash,
}

/// A wait that begins now.
#[derive(Debug)]
pub struct Reached {
    /// The signals of its key that are kept.
    pub kept: Vec<KeptSignal>,
    /// How long it lasts at most.
    pub lasts: Option<Span>,
    /// The fact that begins it.
    pub waiting: JobWaiting,
}

/// What has come for a wait before it was reached.
#[derive(Debug, Default)]
pub struct Arrival {
    /// The one that ends the wait at once.
    pub fits: Option<KeptSignal>,
    /// Those before it that do not fit the wait's schema.
    pub misfits: Vec<(KeptSignal, Vec<Violation>)>,
}
