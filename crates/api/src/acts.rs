//! What is done to a job from outside: signals, cancels, answers to doubts.

use aetheris_core::event::EndCause;
use aetheris_core::id::IdempotencyKey;
use aetheris_core::job::JobStatus;
use aetheris_core::plan::WaitType;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::raw::Raw;
use crate::schema;

/// A message that ends a wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    // Required, but an option, so that its absence has a code of its own.
    /// The wait it names.
    #[serde(default)]
    #[schema(value_type = schema::CorrelationKey, required = true)]
    pub correlation_key: Option<String>,
    // Required, but an option, so that a missing key is told before a missing payload.
    /// What it brings: any JSON value, also `null`.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::Any, required = true)]
    pub payload: Option<Raw>,
    /// What it claims to be; refused where the wait is of another type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Wait>)]
    pub wait_type: Option<WaitType>,
}

/// A value that is there, `null` as any other.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Raw>, D::Error> {
    Raw::deserialize(deserializer).map(Some)
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignalStatus {
    /// It ended the wait.
    Delivered,
    /// One with the same key had ended the wait before; nothing changed.
    AlreadyDelivered,
    /// It is kept until the job reaches its wait.
    Kept,
}

/// The answer to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignalResult {
    /// Whether this payload is the one that ended the wait or, of a wait that is not reached, whether it is kept: of those
    /// that are, the first that fits the wait counts.
    pub payload_matches: bool,
    /// What became of it.
    pub status: SignalStatus,
}

/// The answer to a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelAnswer {
    /// `cancel` where a worker holds the job and was asked to end it.
    #[serde(default)]
    #[schema(value_type = Option<schema::End>)]
    pub end_requested: Option<EndCause>,
    /// What the job is doing now.
    #[schema(value_type = schema::Status)]
    pub status: JobStatus,
}

/// The answer to a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PauseResult {
    /// `pause` where a worker holds the job and was asked to let it go.
    #[serde(default)]
    #[schema(value_type = Option<schema::End>)]
    pub end_requested: Option<EndCause>,
    /// What the job is doing now.
    #[schema(value_type = schema::Status)]
    pub status: JobStatus,
}

/// The answer to a resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResumeResult {
    /// What the job is doing now.
    #[schema(value_type = schema::Status)]
    pub status: JobStatus,
}

/// What an operator says of a call whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The call has had its effect.
    Happened,
    /// It has not, and can no longer arrive. Accepted only after the permit's deadline and what settles after it, or
    /// with `refused`.
    DidNotHappen,
}

/// What follows a call that did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterNo {
    /// One more try, if the budget allows it.
    Retry,
    /// The step fails.
    Fail,
}

/// An operator's answer to a doubt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    /// How it is known, for whoever reads the history.
    #[schema(value_type = schema::Note)]
    pub note: String,
    /// The answer.
    pub outcome: Outcome,
    /// The permit that was looked at, as the in-doubt list has it. An answer about an earlier one is refused with
    /// `state_conflict`: it would be taken for a call that nobody has looked at.
    pub permit: u32,
    /// With `did_not_happen`: the other side now refuses this permit of this key and every earlier one. The answer
    /// counts at once then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// With `happened`: what the call answered; it becomes the step's output. `null` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::Any)]
    pub result: Option<Raw>,
    /// With `did_not_happen`: what follows. One more try where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<AfterNo>,
}

/// The answer to a resolve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResolveAnswer {
    /// The invocation.
    #[schema(value_type = schema::Invocation)]
    pub invocation: IdempotencyKey,
    /// What was recorded.
    pub outcome: Outcome,
    /// What the job is doing now.
    #[schema(value_type = schema::Status)]
    pub status: JobStatus,
}
