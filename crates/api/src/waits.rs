//! What waits for someone: open waits, and calls whose outcome is unknown.

use aetheris_core::id::{AgentName, IdempotencyKey, JobId, SessionId, ToolName};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::recovery::DoubtNext;
use aetheris_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::acts::Outcome;
use crate::evidence::EvidenceView;
use crate::jobs::{PausedView, WaitingView};
use crate::schema;
use crate::steps::ValueView;

/// A job that waits for someone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitView {
    /// How long it has been waiting, in whole seconds.
    #[schema(value_type = schema::Duration)]
    pub age: Span,
    /// The agent.
    #[schema(value_type = schema::Agent)]
    pub agent: AgentName,
    /// What a signal must name.
    pub correlation_key: Option<String>,
    /// When the wait ends by itself.
    #[schema(value_type = Option<schema::Time>)]
    pub deadline: Option<Timestamp>,
    /// Whether it waits for the answer to a doubt: see the in-doubt list.
    pub doubt: bool,
    /// The job.
    #[schema(value_type = schema::Job)]
    pub job_id: JobId,
    /// The node.
    #[schema(value_type = String)]
    pub node_id: StepPath,
    /// Why its job is held still, and since when; what ends the wait counts all the same.
    #[serde(default)]
    pub paused: Option<PausedView>,
    /// Why, for people.
    pub reason: Option<String>,
    /// The JSON Schema that the payload must fit, where the agent's file has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Any>)]
    pub schema: Option<Json>,
    /// The conversation.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// Since when.
    #[schema(value_type = schema::Time)]
    pub since: Timestamp,
    /// What ends it.
    #[schema(value_type = schema::Wait)]
    pub wait_type: WaitType,
}

/// A page of waits, newest job first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitList {
    /// Give it as `cursor` to have the next page; `null` at the end.
    pub next_cursor: Option<String>,
    /// The waits.
    pub waits: Vec<WaitView>,
}

/// What a call in doubt comes to next, if nobody does anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InDoubtNext {
    /// It is made again, with the same key, as its effect may be repeated; in a paused job once it is resumed. No answer
    /// is accepted.
    CalledAgain,
    /// Its tool's own policies come first: there is nothing for a person to do yet.
    OwnPolicies,
    /// Its tool is asked about it once its paused job is resumed; a person may find out and answer before. Not of a job that
    /// a restore holds: what it did since the backup is looked at first.
    AfterResume,
    /// Nothing: a person finds out and answers.
    Person,
}

impl InDoubtNext {
    /// What a person is told who has nothing to do about it yet.
    #[must_use]
    pub const fn nothing_to_do(self) -> Option<&'static str> {
        match self {
            Self::OwnPolicies => Some("its tool's own policies come first: there is nothing for you to do yet"),
            Self::CalledAgain | Self::AfterResume | Self::Person => None,
        }
    }
}

impl From<DoubtNext> for InDoubtNext {
    fn from(next: DoubtNext) -> Self {
        match next {
            DoubtNext::CalledAgain => Self::CalledAgain,
            DoubtNext::OwnPolicies => Self::OwnPolicies,
            DoubtNext::AfterResume => Self::AfterResume,
            DoubtNext::Person => Self::Person,
        }
    }
}

/// A call that durably started and whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InDoubtView {
    /// Before this "did not happen" is refused, unless the other side refuses the call: the deadline, and how long a call
    /// may stand in the receiver's queue after it.
    #[schema(value_type = schema::Time)]
    pub accepted_from: Timestamp,
    /// The agent.
    #[schema(value_type = schema::Agent)]
    pub agent: AgentName,
    /// What a person has said of it after the job's end; kept with the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Outcome>,
    /// Before this the call can still arrive.
    #[schema(value_type = schema::Time)]
    pub deadline: Timestamp,
    /// What repeating the call would do.
    #[schema(value_type = schema::Effect)]
    pub effect: EffectClass,
    /// What came too late to be an effect.
    #[serde(default)]
    pub evidence: Vec<EvidenceView>,
    /// What the tool was given: as recorded, the first 2 KiB of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<ValueView>,
    /// Its id, which is the idempotency key that the tool was given.
    #[schema(value_type = schema::Invocation)]
    pub invocation: IdempotencyKey,
    /// The job.
    #[schema(value_type = schema::Job)]
    pub job_id: JobId,
    /// What the job is doing.
    #[schema(value_type = schema::Status)]
    pub job_status: JobStatus,
    /// What comes next; absent where `answer` says what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<InDoubtNext>,
    /// The node.
    #[schema(value_type = String)]
    pub node_id: StepPath,
    /// The number of the permission whose call is unknown.
    pub permit: u32,
    /// What is being done about it, of the tool's list `on_in_doubt`.
    pub policy: Option<String>,
    /// Why the outcome is unknown.
    pub reason: Option<String>,
    /// That permission as the tool was sent it in `Aetheris-Permit`: what the other side is to refuse.
    pub sent_permit: String,
    /// Since when.
    #[schema(value_type = schema::Time)]
    pub since: Timestamp,
    /// What the ledger says.
    #[schema(value_type = schema::Ledger)]
    pub status: LedgerStatus,
    /// The tool.
    #[schema(value_type = String)]
    pub tool: ToolName,
    /// What the job waits for.
    pub waiting: Option<WaitingView>,
}

/// A page of the calls in doubt, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InDoubtList {
    /// The calls.
    pub invocations: Vec<InDoubtView>,
    /// Give it as `cursor` to have the next page; `null` at the end.
    #[serde(default)]
    pub next_cursor: Option<String>,
}
