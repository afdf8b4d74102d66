//! What events say. Fields stand in alphabetical order (see the parent module).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::timer_id::TimerId;
use crate::hash::Hash;
use crate::id::{
    AgentName, AttemptId, IdempotencyKey, InstanceId, NodeId, PermitId, SessionId, SignalId, ToolName, WorkerId,
};
use crate::json::Json;
use crate::plan::{EffectClass, WaitType};
use crate::time::{Due, Span};

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn is_none<T>(value: &Option<T>) -> bool {
    value.is_none()
}

/// `null` is a value here; only an absent field is none.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// A message was accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCreated {
    /// The agent.
    pub agent: AgentName,
    /// Its version.
    pub agent_version: String,
    /// Version of the code that accepted it.
    pub execution_version: String,
    /// The client's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The message.
    pub message: Json,
    /// Higher is earlier.
    #[serde(default)]
    pub priority: i32,
    /// Not before.
    #[serde(default, skip_serializing_if = "is_none")]
    pub run_at: Option<crate::time::Timestamp>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "is_none")]
    pub session: Option<SessionId>,
}

/// The plan was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanGenerated {
    /// Hash of the plan document.
    pub plan_hash: Hash,
    /// 1, and one more at each explicit re-planning.
    pub plan_version: u32,
    /// Who made it.
    pub planner: String,
    /// Version of the planner.
    pub planner_version: String,
}

/// A worker took ownership.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobClaimed {
    /// The public name of the epoch.
    pub attempt_id: AttemptId,
    /// The process.
    pub instance: InstanceId,
    /// The worker.
    pub worker: WorkerId,
}

/// Why a job is pending again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequeueReason {
    /// A step waits for its next try.
    Retry,
    /// The holder's lease ended.
    LeaseExpired,
    /// The holder's process is proved dead.
    HolderDied,
    /// The worker shuts down.
    Draining,
}

impl RequeueReason {
    /// Its name in events and on screens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::LeaseExpired => "lease_expired",
            Self::HolderDied => "holder_died",
            Self::Draining => "draining",
        }
    }
}

/// Ownership was given back or taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRequeued {
    /// Claimable only so long after this.
    #[serde(default, skip_serializing_if = "is_none")]
    pub after_us: Option<u64>,
    /// Why.
    pub reason: RequeueReason,
}

/// The job blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobWaiting {
    /// What a signal must name.
    #[serde(default, skip_serializing_if = "is_none")]
    pub correlation_key: Option<String>,
    /// Whether it waits for the answer to a doubt, which no signal gives.
    #[serde(default, skip_serializing_if = "is_false")]
    pub doubt: bool,
    /// The node that waits.
    pub node: NodeId,
    /// Whether it is a long wait.
    #[serde(default, skip_serializing_if = "is_false")]
    pub park: bool,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "is_none")]
    pub reason: Option<String>,
    /// What ends it.
    pub wait_type: WaitType,
}

/// What ended a wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitEnd {
    /// A signal.
    Signal {
        /// What it brought.
        payload: Json,
        /// Which.
        signal: SignalId,
    },
    /// Its deadline, or the end of a sleep.
    Time,
}

/// What the job was blocked on is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitCompleted {
    /// What ended it.
    pub by: WaitEnd,
    /// The node that waited.
    pub node: NodeId,
}

/// Someone asked for the job's end while a worker held it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCancelRequested {
    /// Why the job is to end.
    pub cause: EndCause,
}

/// Why a worker is asked to stop working on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// Someone asked for the job's end.
    Cancel,
    /// Its deadline passed.
    Deadline,
    /// Someone asked to hold it still. `job_pause_requested` says so, and never `job_cancel_requested`.
    Pause,
}

/// Why a job is held still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    /// Someone asked for it.
    Operator,
    /// The store was put back from a backup: what the job did since is not in it.
    Restored,
}

impl PauseReason {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::Operator, Self::Restored];

    /// Its name in events and on screens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Restored => "restored",
        }
    }
}

/// Someone asked to hold the job still while a worker held it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobPauseRequested {}

/// The job is held still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobPaused {
    /// Why.
    pub reason: PauseReason,
}

/// The job goes on where it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobResumed {}

/// Where the answer is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is this node's output, stored there.
    Node(NodeId),
    /// It is this value.
    Value(Json),
}

/// The job has its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCompleted {
    /// The answer.
    pub answer: Answer,
}

/// Why a step or a job failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Stable, snake case.
    pub code: String,
    /// For people.
    pub message: String,
}

impl Failure {
    /// A failure; the message is cut to its bound.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if message.len() > crate::limits::ERROR_MESSAGE_BYTES_MAX {
            let end = message.floor_char_boundary(crate::limits::ERROR_MESSAGE_BYTES_MAX - 3);
            message.truncate(end);
            message.push('…');
        }
        Self { code: code.to_owned(), message }
    }
}

/// The job has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFailed {
    /// Why.
    pub error: Failure,
    /// The node that failed, where it was one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub node: Option<NodeId>,
}

/// The job was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCancelled {}

/// A try of a step began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeStarted {
    /// The node.
    pub node: NodeId,
    /// 1, 2, …
    #[serde(rename = "try")]
    pub number: u32,
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

/// What a model call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// Tokens of the request.
    pub prompt_tokens: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.completion_tokens.saturating_add(self.prompt_tokens)
    }
}

/// Which model answered what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// `provider/model` as it answered.
    pub model: String,
    /// Hash of the canonical request.
    pub prompt_hash: Hash,
    /// What it used.
    pub usage: Usage,
}

/// A step ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFinished {
    /// Why it failed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub error: Option<Failure>,
    /// The model call behind it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub model: Option<ModelRecord>,
    /// The node.
    pub node: NodeId,
    /// A plain step's output. A ledger step's is its effect, a wait's is its signal's payload.
    #[serde(default, skip_serializing_if = "is_none", deserialize_with = "present")]
    pub output: Option<Json>,
    /// How it ended.
    pub result: StepResult,
}

/// A step failed and is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRetryScheduled {
    /// How long after this event.
    pub after_us: u64,
    /// Why it failed.
    pub error: Failure,
    /// The node.
    pub node: NodeId,
}

/// Why a step is not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Its condition did not hold.
    Condition,
    /// All it needs were skipped.
    Upstream,
}

/// A step is not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSkipped {
    /// The node.
    pub node: NodeId,
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
    #[serde(default, skip_serializing_if = "is_none", deserialize_with = "present")]
    pub input: Option<Json>,
    /// The idempotency key.
    pub key: IdempotencyKey,
    /// How long the call can still arrive.
    pub lifetime_us: u64,
    /// The node.
    pub node: NodeId,
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

/// The outcome of a permission is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolInvocationFinished {
    /// What the other side or the connection said.
    #[serde(default, skip_serializing_if = "is_none")]
    pub error: Option<Failure>,
    /// The node.
    pub node: NodeId,
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
    /// The node.
    pub node: NodeId,
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
    /// The node.
    pub node: NodeId,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InDoubtResolved {
    /// Who answered.
    pub by: Resolver,
    /// The node.
    pub node: NodeId,
    /// The operator's words.
    #[serde(default, skip_serializing_if = "is_none")]
    pub note: Option<String>,
    /// The answer.
    pub outcome: DoubtOutcome,
    /// The permit it speaks of.
    pub permit: u32,
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::limits::ERROR_MESSAGE_BYTES_MAX;

    #[test]
    fn a_message_is_cut_to_its_bound_between_characters() {
        let fits = "x".repeat(ERROR_MESSAGE_BYTES_MAX);
        assert_eq!(Failure::new("code", fits.clone()), Failure { code: "code".to_owned(), message: fits });
        let cut = Failure::new("code", "x".repeat(ERROR_MESSAGE_BYTES_MAX + 1)).message;
        assert_eq!(cut, format!("{}…", "x".repeat(ERROR_MESSAGE_BYTES_MAX - 3)));
        let wide = Failure::new("code", "é".repeat(ERROR_MESSAGE_BYTES_MAX)).message;
        assert_eq!(wide, format!("{}…", "é".repeat((ERROR_MESSAGE_BYTES_MAX - 3) / 2)));
    }

    #[test]
    fn names_are_as_they_are_stored() {
        for reason in
            [RequeueReason::Retry, RequeueReason::LeaseExpired, RequeueReason::HolderDied, RequeueReason::Draining]
        {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        for reason in PauseReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        for source in [Source::Executed, Source::CaughtUp, Source::Reconciled, Source::Resolved] {
            assert_eq!(serde_json::to_value(source).unwrap(), source.as_str());
            assert_eq!(source.is_executed(), source == Source::Executed);
        }
    }

    #[test]
    fn good_ends_are_told_from_bad_ones_and_tokens_are_added() {
        use StepResult::{PermanentFailure, Pure, RetryableFailure, SideEffectCommitted, Success};
        let good: Vec<StepResult> = [Success, Pure, SideEffectCommitted, RetryableFailure, PermanentFailure]
            .into_iter()
            .filter(|result| result.is_success())
            .collect();
        assert_eq!(good, [Success, Pure, SideEffectCommitted]);
        assert_eq!(Usage { completion_tokens: 2, prompt_tokens: 3 }.total(), 5);
        assert_eq!(Usage { completion_tokens: u64::MAX, prompt_tokens: 3 }.total(), u64::MAX);
        let set = TimerSet { after_us: 9, timer: TimerId::Deadline };
        assert_eq!(set.due(), Due::After(Span::from_micros(9)));
    }

    /// Fields that say nothing are left out, and `null` is not nothing.
    #[test]
    fn what_is_absent_stays_absent() {
        let text = |event: &dyn erased::ToText| event.to_text();
        let requeued = JobRequeued { after_us: None, reason: RequeueReason::Retry };
        assert_eq!(text(&requeued), r#"{"reason":"retry"}"#);
        let requeued = JobRequeued { after_us: Some(0), ..requeued };
        assert_eq!(text(&requeued), r#"{"after_us":0,"reason":"retry"}"#);
        let wait = JobWaiting {
            correlation_key: None,
            doubt: false,
            node: "a".into(),
            park: true,
            reason: None,
            wait_type: WaitType::Timer,
        };
        assert_eq!(text(&wait), r#"{"node":"a","park":true,"wait_type":"timer"}"#);
        let finished =
            NodeFinished { error: None, model: None, node: "a".into(), output: None, result: StepResult::Pure };
        assert_eq!(text(&finished), r#"{"node":"a","result":"pure"}"#);
        let null = NodeFinished { output: Some(Json::null()), ..finished };
        assert_eq!(text(&null), r#"{"node":"a","output":null,"result":"pure"}"#);
        assert_eq!(serde_json::from_str::<NodeFinished>(&text(&null)).unwrap(), null);
    }

    mod erased {
        /// Canonical text of any payload.
        pub(super) trait ToText {
            fn to_text(&self) -> String;
        }

        impl<T: serde::Serialize> ToText for T {
            fn to_text(&self) -> String {
                String::from_utf8(crate::json::to_canonical(self)).unwrap()
            }
        }
    }
}
