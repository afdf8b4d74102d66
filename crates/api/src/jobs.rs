//! Messages, and the jobs that work on them.

use std::collections::BTreeMap;

use aetheris_core::event::{DoubtOutcome, EndCause, PauseReason};
use aetheris_core::id::{AgentName, AttemptId, JobId, SessionId, WorkerId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{OnParentEnd, WaitType};
use aetheris_core::step::StepStatus;
use aetheris_core::time::{Span, Timestamp};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::raw::Raw;
use crate::schema;
use crate::waits::InDoubtNext;

/// A message for an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageRequest {
    /// The time the whole job may take; the agent's own where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Duration>)]
    pub deadline: Option<Span>,
    /// Labels to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = schema::Labels)]
    pub labels: BTreeMap<String, String>,
    /// The message: any JSON value.
    #[schema(value_type = schema::Any)]
    pub message: Raw,
    /// Higher is earlier.
    #[serde(default, deserialize_with = "whole", skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Not before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub run_at: Option<Timestamp>,
    /// The conversation: its jobs run one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Session>)]
    pub session_id: Option<SessionId>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

/// A whole number, however it is written: to JSON Schema `3.0` is an integer, and some clients write it so.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    let exact = number.as_i64().and_then(|number| i32::try_from(number).ok());
    #[expect(clippy::cast_possible_truncation, reason = "compared with what it was")]
    let from_double = |double: f64| Some(double as i32).filter(|whole| f64::from(*whole) == double);
    exact.or_else(|| number.as_f64().and_then(from_double)).ok_or_else(|| {
        D::Error::custom(format!("`priority` is {number}; expected a whole number from {} to {}", i32::MIN, i32::MAX))
    })
}

impl MessageRequest {
    /// A message with nothing else.
    #[must_use]
    pub fn new(message: &Json) -> Self {
        Self {
            deadline: None,
            labels: BTreeMap::new(),
            message: Raw::new(message),
            priority: 0,
            run_at: None,
            session_id: None,
        }
    }
}

/// The job of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MessageAnswer {
    /// The job.
    #[schema(value_type = schema::Job)]
    pub job_id: JobId,
    /// What it is doing.
    #[schema(value_type = schema::Status)]
    pub status: JobStatus,
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobErrorView {
    /// Stable, snake case.
    pub code: String,
    /// For people.
    pub message: String,
    /// The node that failed, where it was one.
    #[schema(value_type = Option<String>)]
    pub node_id: Option<StepPath>,
}

/// What a blocked job waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitingView {
    /// What a signal must name.
    pub correlation_key: Option<String>,
    /// When the wait ends by itself; `null` where it does not. In lists of jobs it is left out: the job and the list of
    /// waits have it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<schema::Time>)]
    pub deadline: Option<Option<Timestamp>>,
    /// Whether it waits for the answer to a doubt, which no signal gives.
    pub doubt: bool,
    /// What comes next of that doubt. Only where `doubt` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<InDoubtNext>,
    /// The node.
    #[schema(value_type = String)]
    pub node_id: StepPath,
    /// Why, for people.
    pub reason: Option<String>,
    /// The JSON Schema that the payload must fit, where the agent's file has one. In lists of jobs it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Any>)]
    pub schema: Option<Json>,
    /// Since when. In lists of jobs it is left out: the job and the list of waits have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub since: Option<Timestamp>,
    /// What ends it.
    #[schema(value_type = schema::Wait)]
    pub wait_type: WaitType,
}

/// A field that is there, `null` or not.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A signal that is kept until a wait with its key begins. A key that no wait has is kept as well where the keys of waits
/// ahead are not known yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptView {
    /// The key that it names.
    pub correlation_key: String,
    /// When it came.
    #[schema(value_type = schema::Time)]
    pub received_at: Timestamp,
    /// What it claims to be; `null` where it claims nothing.
    #[schema(value_type = Option<schema::Wait>)]
    pub wait_type: Option<WaitType>,
}

/// What a step that has not gone on yet has been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnsweredView {
    /// When.
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// What.
    pub by: AnsweredBy,
}

/// What ends a wait, or the doubt about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredBy {
    /// The doubt: the call did not happen.
    DidNotHappen,
    /// The doubt: the call happened.
    Happened,
    /// The wait, by a signal.
    Signal,
    /// The wait, because its time was over.
    Time,
}

/// A step of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepView {
    /// What its wait, or the doubt about its call, has ended with, while the job has not gone on with it: it is paused, or
    /// nobody has claimed it yet. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<AnsweredView>,
    /// Tries so far.
    pub attempt: u32,
    /// The job that it has asked for. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildOfStep>,
    /// When it ended.
    #[schema(value_type = Option<schema::Time>)]
    pub finished_at: Option<Timestamp>,
    /// What is known of a call that the job's end left in doubt: `unresolved` until somebody has said more, or it has
    /// succeeded after all. Absent where none was left. The step's `status` stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Doubt>)]
    pub left_in_doubt: Option<DoubtOutcome>,
    /// How its items stand, if it is a map that has begun. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<ItemsView>,
    /// How often its work has been done again after a rejection, and the round that counts: `attempt` is that round's. Absent if
    /// never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u32>,
    /// When its first try began.
    #[schema(value_type = Option<schema::Time>)]
    pub started_at: Option<Timestamp>,
    /// What it is doing.
    #[schema(value_type = schema::Step)]
    pub status: StepStatus,
}

/// The job that a step has asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChildOfStep {
    /// Its agent.
    #[schema(value_type = String)]
    pub agent: AgentName,
    /// The job. It may not be created yet.
    #[schema(value_type = schema::Job)]
    pub job_id: JobId,
}

/// The job whose step asked for this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParentView {
    /// The job.
    #[schema(value_type = schema::Job)]
    pub job_id: JobId,
    /// Its step.
    #[schema(value_type = String)]
    pub node_id: StepPath,
    /// What becomes of this job when the parent ends.
    #[schema(value_type = schema::OnParent)]
    pub on_parent_end: OnParentEnd,
    /// Whether the step waits for this job's end.
    pub waits: bool,
}

/// A job that another has asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChildView {
    /// The job, as lists have it.
    #[serde(flatten)]
    pub job: JobView,
    /// The step that asked for it.
    #[schema(value_type = String)]
    pub node_id: StepPath,
    /// What becomes of it when the parent ends.
    #[schema(value_type = schema::OnParent)]
    pub on_parent_end: OnParentEnd,
}

/// A page of the jobs that a job has asked for, as they were created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChildList {
    /// The children.
    pub children: Vec<ChildView>,
    /// Give it as `cursor` to have the next page; `null` at the end.
    pub next_cursor: Option<String>,
}

/// How the items of a map stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, Default)]
pub struct ItemsView {
    /// How many have completed.
    pub completed: u32,
    /// How many there are.
    pub count: u32,
    /// How many have failed.
    pub failed: u32,
    /// How many were given up, since the map had failed with another.
    pub given_up: u32,
    /// How many have begun and not ended.
    pub open: u32,
    /// How many were not run, as their condition did not hold.
    pub skipped: u32,
}

/// What a job has used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, Default)]
pub struct UsageView {
    /// Tokens of all model calls.
    pub tokens: u64,
    /// Tool calls: permits of ledger steps under which a call may have left, and tries of pure ones.
    pub tool_calls: u64,
}

/// A job. In lists `ended_at`, `kept`, `message`, `result`, `steps`, `usage` and `waits` are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// The agent.
    #[schema(value_type = schema::Agent)]
    pub agent: AgentName,
    /// The agent's version it was planned with.
    pub agent_version: String,
    /// The public name of the current claim.
    #[schema(value_type = Option<String>)]
    pub attempt_id: Option<AttemptId>,
    /// When it was accepted.
    #[schema(value_type = schema::Time)]
    pub created_at: Timestamp,
    /// Why the worker that still holds it was asked to stop: its end, or a pause.
    #[serde(default)]
    #[schema(value_type = Option<schema::End>)]
    pub end_requested: Option<EndCause>,
    /// When it ended; `null` until then. What is written later, as the answer to a doubt that it left open, does not
    /// change that. In lists it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub ended_at: Option<Timestamp>,
    /// Claims so far.
    pub epoch: u32,
    /// Why it failed.
    pub error: Option<JobErrorView>,
    /// The job.
    #[schema(value_type = schema::Job)]
    pub id: JobId,
    /// The signals that are kept and that no wait has taken, the first that came first, at most 100. In lists it is left
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Vec<KeptView>>,
    /// The client's labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The end of the holder's lease.
    #[schema(value_type = Option<schema::Time>)]
    pub lease_until: Option<Timestamp>,
    /// The message.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "Json::present")]
    #[schema(value_type = schema::Any)]
    pub message: Option<Json>,
    /// Claimable only from here on.
    #[serde(default)]
    #[schema(value_type = Option<schema::Time>)]
    pub not_before: Option<Timestamp>,
    /// The job whose step asked for it. Absent in lists, and where a client sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentView>,
    /// Why it is held still, and since when; `null` where it is not.
    #[serde(default)]
    pub paused: Option<PausedView>,
    /// Higher is earlier.
    #[serde(default)]
    pub priority: i32,
    /// The answer; absent until it is there; `null` is an answer like any other.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "Json::present")]
    #[schema(value_type = schema::Any)]
    pub result: Option<Json>,
    /// The place of its last event.
    #[serde(default)]
    pub seq: u64,
    /// The conversation.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// What it is doing.
    #[schema(value_type = schema::Status)]
    pub status: JobStatus,
    /// Its steps by node, all of its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, StepView>>)]
    pub steps: Option<BTreeMap<StepPath, StepView>>,
    /// When it was last written.
    #[schema(value_type = schema::Time)]
    pub updated_at: Timestamp,
    /// What it has used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// What it waits for: where that is more than one thing, the oldest.
    pub waiting: Option<WaitingView>,
    /// All that it waits for, the oldest first. In lists it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Vec<WaitingView>>,
    /// Who holds it.
    #[schema(value_type = Option<String>)]
    pub worker: Option<WorkerId>,
}

impl JobView {
    /// All that it waits for, the oldest first; of a job from a list, the one wait that the list names.
    pub fn open_waits(&self) -> impl Iterator<Item = &WaitingView> {
        let listed = self.waiting.as_ref().filter(|_| self.waits.is_none());
        self.waits.iter().flatten().chain(listed)
    }
}

/// Why a job is held still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PausedView {
    /// Whether the job has not run since a restore: what it did after the backup was taken is not in its history, and
    /// would be done again.
    #[serde(default)]
    pub before_restore: bool,
    /// `operator`: someone asked for it; `restored`: the store was put back from a backup.
    #[schema(value_type = schema::Pause)]
    pub reason: PauseReason,
    /// Since when.
    #[schema(value_type = schema::Time)]
    pub since: Timestamp,
}

/// A page of jobs, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// Give it as `cursor` to have the next page; `null` at the end.
    pub next_cursor: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_whole_however_it_is_written() {
        for (text, priority) in [("3", 3), ("3.0", 3), ("-132732.0", -132_732), ("2e3", 2_000), ("0.0", 0)] {
            let request: MessageRequest =
                serde_json::from_str(&format!(r#"{{"message": 1, "priority": {text}}}"#)).unwrap();
            assert_eq!(request.priority, priority, "{text}");
        }
        for text in ["1.5", "2147483648", "1e300", "-2147483649.0", "null", "\"3\""] {
            assert!(
                serde_json::from_str::<MessageRequest>(&format!(r#"{{"message": 1, "priority": {text}}}"#)).is_err()
            );
        }
    }

    #[test]
    fn a_request_says_every_priority_but_the_usual_one() {
        for priority in [i32::MIN, -1, 0, 1, i32::MAX] {
            let request = MessageRequest { priority, ..MessageRequest::new(&Json::null()) };
            let text = serde_json::to_string(&request).unwrap();
            assert_eq!(text.contains("priority"), priority != 0, "{text}");
            assert_eq!(serde_json::from_str::<MessageRequest>(&text).unwrap().priority, priority);
        }
    }

    #[test]
    fn an_unknown_field_is_refused_by_name_and_a_message_is_needed() {
        let error = serde_json::from_str::<MessageRequest>(r#"{"message": 1, "colour": 2}"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `colour`"), "{error}");
        let error = serde_json::from_str::<MessageRequest>("{}").unwrap_err();
        assert!(error.to_string().contains("missing field `message`"), "{error}");
        let request: MessageRequest = serde_json::from_str(r#"{"message": null, "deadline": "5m"}"#).unwrap();
        assert_eq!((request.message.text(), request.deadline), ("null", Some(Span::from_secs(300))));
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"deadline":"5m","message":null}"#);
    }
}
