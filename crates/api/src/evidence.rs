//! What happened, and whether it still adds up: events, replay, verify, trace.

use aetheris_core::event::{DoubtOutcome, Judge, Resolver, Source, StepResult, Verdict};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, AttemptId, EventId, IdempotencyKey, JobId, NodeId, SessionId, ToolName, WorkerId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::jobs::{AnsweredView, JobErrorView, KeptView, UsageView};
use crate::raw::Raw;
use crate::schema;
use crate::steps::ValueView;

/// One message of an event stream, as the form of server-sent events has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamedEvent {
    /// An [`EventView`] as JSON, or a [`DeltaView`].
    pub data: String,
    /// The event's type, or `delta`.
    pub event: String,
    /// The event's place; a delta has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// A piece of a model's answer, as it comes: for people who watch. It is no fact and may be lost; the recorded output is what
/// counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeltaView {
    /// The claim under which the model was asked.
    #[schema(value_type = String)]
    pub attempt: AttemptId,
    /// How many characters (Unicode code points) of the answer came before it. At 0 an answer begins: what was heard of the
    /// step before is void.
    pub from: u64,
    /// The step.
    #[schema(value_type = String)]
    pub path: StepPath,
    /// The piece.
    pub text: String,
}

/// An immutable fact of a job's stream. Its schema is [`crate::events::AnyEvent`]: a form for each kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventView {
    /// The store's time of the write.
    pub at: Timestamp,
    /// The claim under which it was written, or the last one where its author had none.
    pub epoch: u32,
    /// The number of the store's life.
    #[serde(default)]
    pub generation: u32,
    /// The chain up to and with it.
    pub hash: Hash,
    /// Its author's name for it.
    pub id: EventId,
    /// What it says.
    pub payload: Raw,
    /// Hash of the payload's canonical bytes.
    pub payload_hash: Hash,
    /// The version of its payload's schema.
    #[serde(default)]
    pub schema_version: u16,
    /// Its place: 1, 2, … without gaps.
    pub seq: u64,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// The events, in order.
    #[schema(value_type = Vec<crate::events::AnyEvent>)]
    pub events: Vec<EventView>,
    /// Give it as `after` to have the next page; `null` where this page reached the end.
    pub next_after: Option<u64>,
}

/// A fold from the first event, compared with what is live.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplayView {
    /// What differs, in words.
    #[serde(default)]
    pub differences: Vec<String>,
    /// How many events were folded.
    pub events: u64,
    /// Hash of the state that the job goes on from.
    #[schema(value_type = schema::Digest)]
    pub live_state_hash: Hash,
    /// Whether row, timers and state are what the events say.
    pub matches: bool,
    /// The state as folded from the first event.
    #[schema(value_type = schema::Any)]
    pub state: Json,
    /// Its hash.
    #[schema(value_type = schema::Digest)]
    pub state_hash: Hash,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckView {
    /// What was found.
    pub detail: String,
    /// What was looked at.
    pub name: String,
    /// Whether it is as it must be.
    pub ok: bool,
}

/// Whether what is stored of a job adds up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyView {
    /// Every check.
    pub checks: Vec<CheckView>,
    /// Whether all of them are ok.
    pub valid: bool,
}

/// An outcome that came for a permit that was not the current one any more. Never an effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EvidenceView {
    /// When it came.
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// Whether it contradicts what the job went on with.
    pub conflict: bool,
    /// The invocation.
    #[schema(value_type = schema::Invocation)]
    pub invocation: IdempotencyKey,
    /// The node.
    #[schema(value_type = String)]
    pub node_id: StepPath,
    /// What came.
    #[schema(value_type = schema::Any)]
    pub outcome: Json,
    /// The permit's number.
    pub permit: u32,
}

/// What happened in a job: its runs, and its steps in the order of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceView {
    /// The agent.
    #[schema(value_type = schema::Agent)]
    pub agent: AgentName,
    /// The agent's version.
    pub agent_version: String,
    /// When it was accepted.
    #[schema(value_type = schema::Time)]
    pub created_at: Timestamp,
    /// When it ended; `null` until then.
    #[serde(default)]
    #[schema(value_type = Option<schema::Time>)]
    pub ended_at: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<JobErrorView>,
    /// What came too late to be an effect.
    pub evidence: Vec<EvidenceView>,
    /// The job.
    #[schema(value_type = schema::Job)]
    pub job_id: JobId,
    /// The signals that are kept for waits that have not begun.
    #[serde(default)]
    pub kept: Vec<KeptView>,
    /// Hash of its plan.
    #[schema(value_type = Option<schema::Digest>)]
    pub plan_hash: Option<Hash>,
    /// Its claims.
    pub runs: Vec<TraceRun>,
    /// The conversation.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// What it is doing.
    #[schema(value_type = schema::Status)]
    pub status: JobStatus,
    /// Its steps; `needs` makes the tree.
    pub steps: Vec<TraceStep>,
    /// When it was last written.
    #[schema(value_type = schema::Time)]
    pub updated_at: Timestamp,
    /// What it has used up.
    pub usage: UsageView,
}

/// One worker's time with a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceRun {
    /// The public name of the epoch.
    #[schema(value_type = String)]
    pub attempt_id: AttemptId,
    /// When it began.
    #[schema(value_type = schema::Time)]
    pub claimed_at: Timestamp,
    /// The event that ended it, with its reason.
    pub ended_by: Option<String>,
    /// When it ended.
    #[schema(value_type = Option<schema::Time>)]
    pub ended_at: Option<Timestamp>,
    /// The claim's number.
    pub epoch: u32,
    /// The worker.
    #[schema(value_type = String)]
    pub worker: WorkerId,
}

/// One try of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceAttempt {
    /// When it ended.
    #[schema(value_type = Option<schema::Time>)]
    pub ended_at: Option<Timestamp>,
    /// The claim it ran under.
    pub epoch: u32,
    /// Why it failed.
    pub error: Option<JobErrorView>,
    /// 1, 2, …
    pub number: u32,
    /// When it began.
    #[schema(value_type = schema::Time)]
    pub started_at: Timestamp,
}

/// A step's call through the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceTool {
    /// Whether it asks a person; left out where it does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks_person: bool,
    /// What repeating the call would do.
    #[schema(value_type = schema::Effect)]
    pub effect: EffectClass,
    /// Its id, for ledger steps.
    #[schema(value_type = Option<schema::Invocation>)]
    pub invocation: Option<IdempotencyKey>,
    /// The tool.
    #[schema(value_type = String)]
    pub name: ToolName,
    /// Permissions taken.
    pub permits: u32,
    /// Its version.
    pub version: Option<String>,
}

/// A step's model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceModel {
    /// Those of the request that the provider has read from a cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// Why it stopped: `end` or `tool`, or why that is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    /// Most tokens of the answer, where the agent says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// `provider/model` as it answered.
    pub model: String,
    /// Hash of the request.
    #[schema(value_type = schema::Digest)]
    pub prompt_hash: Hash,
    /// Tokens of the request.
    pub prompt_tokens: u64,
    /// Those of the answer that the model has thought with.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// Sampling temperature, where the agent says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// A doubt about a step's call, open or answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceDoubt {
    /// Since when.
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// The operator's words.
    pub note: Option<String>,
    /// What became of the call; `null` while the doubt is open.
    #[schema(value_type = Option<schema::Doubt>)]
    pub outcome: Option<DoubtOutcome>,
    /// The permission whose call is unknown.
    pub permit: u32,
    /// Why.
    pub reason: String,
    /// When it was answered.
    #[schema(value_type = Option<schema::Time>)]
    pub resolved_at: Option<Timestamp>,
    /// Who answered.
    #[schema(value_type = Option<schema::Answerer>)]
    pub resolved_by: Option<Resolver>,
    /// What the call returned, where no step has it as its output: the answer came after the job's end, or the job ended
    /// before it could go on with it. `resolved_by` says from whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ValueView>,
}

/// A node of the plan and what happened to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceStep {
    /// What its wait, or the doubt about its call, has ended with, where the job has not gone on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<AnsweredView>,
    /// Its tries.
    pub attempts: Vec<TraceAttempt>,
    /// The job that it has asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<crate::jobs::ChildOfStep>,
    /// Doubts about its call. One about a call that may be repeated is here once somebody has answered it.
    pub doubts: Vec<TraceDoubt>,
    /// `signal`, `time` or `dropped` (nobody needed the answer any more), for waits, sleeps and questions to people that have ended.
    pub ended_by: Option<String>,
    /// Why it failed.
    pub error: Option<JobErrorView>,
    /// Feedback on the previous round; absent in the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// When it ended.
    #[schema(value_type = Option<schema::Time>)]
    pub finished_at: Option<Timestamp>,
    /// The steps of its items, in their order, if it is a map that has begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    pub items: Vec<Self>,
    /// What it does: `tool`, `llm`, `wait`, …
    pub kind: String,
    /// What is known of a call that the job's end left in doubt: `unresolved` until somebody has said more, or it has
    /// succeeded after all. Absent where none was left. The step's `status` stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Doubt>)]
    pub left_in_doubt: Option<DoubtOutcome>,
    /// Its model call.
    pub model: Option<TraceModel>,
    /// What must be over before it.
    #[schema(value_type = Vec<String>)]
    pub needs: Vec<NodeId>,
    /// The node.
    #[schema(value_type = String)]
    pub node_id: StepPath,
    /// Its critic's steps, its further rounds, and the turns and calls of a loop, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    pub parts: Vec<Self>,
    /// How it ended.
    #[schema(value_type = Option<schema::Result>)]
    pub result: Option<StepResult>,
    /// Why it was not run: `condition`, `join` or `upstream`.
    pub skipped: Option<String>,
    /// Where its result came from: `executed`, `caught_up`, `reconciled` or `resolved`.
    #[schema(value_type = Option<schema::Origin>)]
    pub source: Option<Source>,
    /// When its first try began.
    #[schema(value_type = Option<schema::Time>)]
    pub started_at: Option<Timestamp>,
    /// What it is doing.
    #[schema(value_type = schema::Step)]
    pub status: StepStatus,
    /// It is a call of a loop that has failed, and the model was told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
    /// Its tool.
    pub tool: Option<TraceTool>,
    /// Who rejected its output, where it was rejected; of a node that was refined, the output of its first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Rejecter>)]
    pub rejected_by: Option<Judge>,
    /// What was said of its output, `pending` until its critic has answered; of a critic's step, its answer. Absent where nothing
    /// judges it, and where its output fits and it has no critic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Judged>)]
    pub verdict: Option<Verdict>,
}
