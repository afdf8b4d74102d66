//! What events say. Fields stand in alphabetical order (see the parent module).

mod branch;
mod child;
mod job;
mod model;
mod refine;
#[cfg(test)]
mod tests;
mod turn;
mod value;

pub use branch::*;
pub use child::*;
pub use job::*;
pub use model::*;
pub use refine::*;
pub use turn::*;
pub use value::*;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::timer_id::TimerId;
use crate::disproof::Grounds;
use crate::hash::Hash;
use crate::id::{IdempotencyKey, NodeId, PermitId, ToolName};
use crate::json::Json;
use crate::ledger::LedgerTrigger;
use crate::path::StepPath;
use crate::plan::EffectClass;
use crate::time::{Due, Span};

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn is_none<T>(value: &Option<T>) -> bool {
    value.is_none()
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// The list of a map, as it was read when the map began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Items {
    /// Whether a failure is told in the item's place, and the others go on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub collect: bool,
    /// How many there are.
    pub count: u32,
}

/// A try of a step began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeStarted {
    /// What a map works through.
    #[serde(default, skip_serializing_if = "is_none")]
    pub items: Option<Items>,
    /// What its first try saw of the nodes before it, where some of them may be open: of all that it needs, and of those
    /// further up that its templates name and that are. Every later try sees the same.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub needs: BTreeMap<NodeId, BranchStatus>,
    /// The step.
    pub node: StepPath,
    /// 1, 2, …
    #[serde(rename = "try")]
    pub number: u32,
    /// Whether it is a loop, whose turns are steps of their own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub turns: bool,
}

impl NodeStarted {
    /// A try of a step before which nothing is open.
    #[must_use]
    pub fn new(node: impl Into<StepPath>, number: u32) -> Self {
        Self { items: None, needs: BTreeMap::new(), node: node.into(), number, turns: false }
    }
}

/// How a step ended (SPEC §5, result types).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// A wait, sleep, condition or transform ended well.
    Success,
    /// A pure tool or a model answered.
    Pure,
    /// A ledger step's effect is recorded.
    SideEffectCommitted,
    /// Its last allowed try failed in a way that could have been tried again.
    RetryableFailure,
    /// It failed for good.
    PermanentFailure,
}

impl StepResult {
    /// Whether it is a good end.
    #[must_use]
    pub const fn is_success(self) -> bool {
        match self {
            Self::Success | Self::Pure | Self::SideEffectCommitted => true,
            Self::RetryableFailure | Self::PermanentFailure => false,
        }
    }
}

/// Where a result came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The body ran in this run.
    #[default]
    Executed,
    /// A recorded effect or ledger outcome, found after a crash or brought by a late deposit.
    CaughtUp,
    /// A reconcile tool said so.
    Reconciled,
    /// An operator said so.
    Resolved,
}

impl Source {
    fn is_executed(&self) -> bool {
        *self == Self::Executed
    }

    /// Its name in the trace.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::CaughtUp => "caught_up",
            Self::Reconciled => "reconciled",
            Self::Resolved => "resolved",
        }
    }
}

/// A step ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFinished {
    /// It failed, and the job goes on: its node says so, and nothing that the job as a whole may use is used up.
    #[serde(default, skip_serializing_if = "is_false")]
    pub absorbed: bool,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub error: Option<Failure>,
    /// It was under way when its map had failed: it is given up, and the map's error is another's.
    #[serde(default, skip_serializing_if = "is_false")]
    pub given_up: bool,
    /// The model call behind it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub model: Option<Box<ModelRecord>>,
    /// The step.
    pub node: StepPath,
    /// A plain step's output. A ledger step's is its effect, a wait's is its signal's payload.
    #[serde(default, skip_serializing_if = "is_none", deserialize_with = "Json::present")]
    pub output: Option<Json>,
    /// How it ended.
    pub result: StepResult,
    /// It is a call of a loop that has failed, and is known not to have happened: the model is told, and the loop goes on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub told: bool,
    /// How long its body took, by the boot clock of its process: for plain steps, whose start may be written
    /// with their end. In microseconds.
    #[serde(default, skip_serializing_if = "is_none")]
    pub took_us: Option<u64>,
    /// What a turn of a loop came to, if it is one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub turn: Option<Box<Turn>>,
    /// What was said of its output, where something is to be said; of a critic's step, what that says.
    #[serde(default, skip_serializing_if = "is_none")]
    pub verdict: Option<Verdict>,
}

impl NodeFinished {
    /// An end of which nothing more is told.
    #[must_use]
    pub fn new(node: impl Into<StepPath>, result: StepResult) -> Self {
        Self {
            absorbed: false,
            error: None,
            given_up: false,
            model: None,
            node: node.into(),
            output: None,
            result,
            told: false,
            took_us: None,
            turn: None,
            verdict: None,
        }
    }
}

/// A step failed and is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRetryScheduled {
    /// How long after this event.
    pub after_us: u64,
    /// Why it failed.
    pub error: Failure,
    /// What a model used for an answer that could not be taken. Absent in events of earlier builds.
    #[serde(default, skip_serializing_if = "is_none")]
    pub model: Option<Box<ModelRecord>>,
    /// The step.
    pub node: StepPath,
}

/// A step is not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSkipped {
    /// The step.
    pub node: StepPath,
    /// Why.
    pub reason: SkipReason,
}

/// A permission to call a tool was taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolInvocationStarted {
    /// What repeating the call would do.
    pub effect: EffectClass,
    /// The input as rendered once. Absent for further permits, which reuse it.
    #[serde(default, skip_serializing_if = "is_none", deserialize_with = "Json::present")]
    pub input: Option<Json>,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// How long the call can still arrive.
    pub lifetime_us: u64,
    /// The step.
    pub node: StepPath,
    /// The permit's number.
    pub permit: u32,
    /// Its author's name for it.
    pub permit_id: PermitId,
    /// The tool.
    pub tool: ToolName,
    /// Its version.
    #[serde(default, skip_serializing_if = "is_none")]
    pub tool_version: Option<String>,
}

/// What became of a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvocationOutcome {
    /// The effect is recorded.
    Committed,
    /// Refused before acting; may be asked again.
    RefusedRetryable,
    /// Refused for good.
    RefusedPermanent,
    /// Nothing left.
    NotSent,
    /// Unknown, and the tool is idempotent: it may be called again with the same key.
    InDoubt,
}

impl InvocationOutcome {
    /// What the ledger learns of the permission with it.
    #[must_use]
    pub const fn settles(self) -> LedgerTrigger {
        match self {
            Self::Committed => LedgerTrigger::Commit,
            Self::RefusedRetryable => LedgerTrigger::RefuseRetryable,
            Self::RefusedPermanent => LedgerTrigger::RefusePermanent,
            Self::NotSent => LedgerTrigger::NotSent,
            Self::InDoubt => LedgerTrigger::Doubt,
        }
    }
}

/// The outcome of a permission is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolInvocationFinished {
    /// What the other side or the connection said.
    #[serde(default, skip_serializing_if = "is_none")]
    pub error: Option<Failure>,
    /// The step.
    pub node: StepPath,
    /// What became of it.
    pub outcome: InvocationOutcome,
    /// The permit's number.
    pub permit: u32,
    /// Where the knowledge comes from.
    #[serde(default, skip_serializing_if = "Source::is_executed")]
    pub source: Source,
}

/// The effect is part of the job's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandCommitted {
    /// The step.
    pub node: StepPath,
    /// Hash of the effect's canonical result.
    pub result_hash: Hash,
}

/// A durable timer was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimerSet {
    /// How long after this event it is due.
    pub after_us: u64,
    /// Which.
    pub timer: TimerId,
}

impl TimerSet {
    /// When it is due.
    #[must_use]
    pub fn due(&self) -> Due {
        Due::After(Span::from_micros(self.after_us))
    }
}

/// A durable timer fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimerFired {
    /// Which.
    pub timer: TimerId,
}

/// The outcome of a call is unknown, or still unknown at the next policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepInDoubt {
    /// The step.
    pub node: StepPath,
    /// The permit whose outcome is unknown.
    pub permit: u32,
    /// The place in the tool's list of policies that is tried now.
    pub policy: u32,
    /// Why, for people.
    pub reason: String,
}

/// The answer to a doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoubtOutcome {
    /// The call has had its effect.
    Happened,
    /// It has not, and can no longer arrive.
    DidNotHappen,
    /// Nobody could say; the step is given up.
    Unresolved,
}

impl DoubtOutcome {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Happened, Self::DidNotHappen, Self::Unresolved];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::DidNotHappen => "did_not_happen",
            Self::Unresolved => "unresolved",
        }
    }
}

/// Who answered a doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolver {
    /// The worker that had called, after losing its lease.
    LateDeposit,
    /// The reconcile tool.
    Reconcile,
    /// A person.
    Operator,
    /// The end of the policy list.
    Policy,
}

impl Resolver {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::LateDeposit, Self::Reconcile, Self::Operator, Self::Policy];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LateDeposit => "late_deposit",
            Self::Reconcile => "reconcile",
            Self::Operator => "operator",
            Self::Policy => "policy",
        }
    }

    /// Where a result that it brings comes from.
    #[must_use]
    pub const fn source(self) -> Source {
        match self {
            Self::LateDeposit | Self::Policy => Source::CaughtUp,
            Self::Reconcile => Source::Reconciled,
            Self::Operator => Source::Resolved,
        }
    }
}

/// The doubt has an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InDoubtResolved {
    /// Who answered.
    pub by: Resolver,
    /// Why "did not happen" could be believed. Absent in other answers and in events of builds that knew only one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub grounds: Option<Grounds>,
    /// The step.
    pub node: StepPath,
    /// The operator's words.
    #[serde(default, skip_serializing_if = "is_none")]
    pub note: Option<String>,
    /// The answer.
    pub outcome: DoubtOutcome,
    /// The permit it speaks of.
    pub permit: u32,
    /// With "happened" of a call that its job's end had left unresolved: what it answered.
    #[serde(default, skip_serializing_if = "is_none", deserialize_with = "Json::present")]
    pub result: Option<Json>,
    /// With `clock`: how long after the permit's deadline the question was asked at least.
    #[serde(default, skip_serializing_if = "is_none")]
    pub settle_us: Option<u64>,
    /// With "did not happen" of a person: what is to follow. Absent in events of earlier builds.
    #[serde(default, skip_serializing_if = "is_none")]
    pub then: Option<Then>,
}

/// What follows a call that did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// One more try, whatever the retry policy has left; the budget is asked before it calls.
    Retry,
    /// The step fails.
    Fail,
}

impl Then {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Retry, Self::Fail];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Fail => "fail",
        }
    }
}
