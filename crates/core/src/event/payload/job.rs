//! What events say of a job as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Parent, is_false, is_none};
use crate::hash::Hash;
use crate::id::{AgentName, AttemptId, InstanceId, NodeId, SessionId, SignalId, TenantId, WorkerId};
use crate::json::Json;
use crate::limits;
use crate::path::StepPath;
use crate::plan::WaitType;
use crate::schema::Violation;

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
    /// The job whose step asked for it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub parent: Option<Parent>,
    /// Hash of the planning plan by which its plan is made; none where it is recorded at once.
    #[serde(default, skip_serializing_if = "is_none")]
    pub planning: Option<Hash>,
    /// Higher is earlier.
    #[serde(default)]
    pub priority: i32,
    /// Not before.
    #[serde(default, skip_serializing_if = "is_none")]
    pub run_at: Option<crate::time::Timestamp>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "is_none")]
    pub session: Option<SessionId>,
    /// Whose it is. Left out for the tenant `default`, so that its events have the bytes that they always had.
    #[serde(default, skip_serializing_if = "TenantId::is_default")]
    pub tenant: TenantId,
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
    /// A question to a model has not left yet: what its provider may be asked is used up. No try is counted.
    RateLimited,
}

impl RequeueReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::Retry, Self::LeaseExpired, Self::HolderDied, Self::Draining, Self::RateLimited];

    /// Whether a holder gives the job back because a step of it waits for a time.
    #[must_use]
    pub const fn waits(self) -> bool {
        match self {
            Self::RateLimited | Self::Retry => true,
            Self::Draining | Self::HolderDied | Self::LeaseExpired => false,
        }
    }

    /// Its name in events and on screens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::LeaseExpired => "lease_expired",
            Self::HolderDied => "holder_died",
            Self::Draining => "draining",
            Self::RateLimited => "rate_limited",
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
    pub node: StepPath,
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
    /// Nobody waits for it any more: its map or its loop has failed.
    Dropped,
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
    pub node: StepPath,
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

impl EndCause {
    /// Whether the job is to end, and not only to be held still. Such a request takes the place of a pause's.
    #[must_use]
    pub const fn ends(self) -> bool {
        match self {
            Self::Cancel | Self::Deadline => true,
            Self::Pause => false,
        }
    }
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

/// A kept signal does not fit the schema of its wait, which is reached only now: it ends nothing, and a later one is
/// accepted. What it brought stays in the inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRefused {
    /// The wait it names.
    pub correlation_key: String,
    /// The wait's node.
    pub node: StepPath,
    /// Hash of what it brought.
    pub payload_hash: Hash,
    /// Its id.
    pub signal: SignalId,
    /// In what it does not fit, as far as that is said.
    pub violations: Vec<Violation>,
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
        Self { code: code.to_owned(), message: limits::cut(message.into(), limits::ERROR_MESSAGE_BYTES_MAX) }
    }
}

/// Why a job fails whose call is not permitted again: an earlier call of the same key is known to have succeeded.
pub const SUCCEEDED_BEFORE: &str = "succeeded_before";

/// The job has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFailed {
    /// Why.
    pub error: Failure,
    /// The node that failed, where it was one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub node: Option<StepPath>,
}

/// The job was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCancelled {}
