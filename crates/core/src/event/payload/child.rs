//! What events say of child jobs: jobs that a step of another job asks for.

use serde::{Deserialize, Serialize};

use super::Failure;
use super::{is_false, is_none};
use crate::hash::Hash;
use crate::id::{AgentName, JobId, SessionId};
use crate::json::Json;
use crate::path::StepPath;
use crate::plan::OnParentEnd;
use crate::time::Timestamp;

/// The job whose step asked for this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// How many jobs are above it: 1 for the child of a job that a client sent.
    pub depth: u32,
    /// The job.
    pub job: JobId,
    /// Its step.
    pub node: StepPath,
    /// What becomes of this job when the parent ends.
    pub on_parent_end: OnParentEnd,
    /// The conversations of all jobs above it, by [`conversation`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<Hash>,
    /// Whether the step waits for its end.
    #[serde(default, skip_serializing_if = "is_false")]
    pub waits: bool,
}

/// Names a conversation: a session of an agent. Jobs of one run one after the other.
#[must_use]
pub fn conversation(agent: &AgentName, session: &SessionId) -> Hash {
    Hash::of(format!("aetheris.conversation.1\0{agent}\0{session}").as_bytes())
}

/// A step asks for a child job. The child is known by its id from here on, and is created later, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildStarted {
    /// The child's agent.
    pub agent: AgentName,
    /// Its version.
    pub agent_version: String,
    /// The child.
    pub child: JobId,
    /// The time that the child as a whole may take.
    #[serde(default, skip_serializing_if = "is_none")]
    pub deadline_us: Option<u64>,
    /// How many jobs are above it.
    pub depth: u32,
    /// The message that it is sent.
    pub message: Json,
    /// The step.
    pub node: StepPath,
    /// What becomes of the child when this job ends.
    pub on_parent_end: OnParentEnd,
    /// The moment of this job's own deadline, where the child is to end with this job.
    #[serde(default, skip_serializing_if = "is_none")]
    pub parent_deadline: Option<Timestamp>,
    /// Hash of the plan that it follows, or of the planning plan by which its plan is made: that of its agent now, whatever the agent's is when it is created.
    pub plan_hash: Hash,
    /// Who made that plan.
    pub planner: String,
    /// The conversation that it belongs to.
    #[serde(default, skip_serializing_if = "is_none")]
    pub session: Option<SessionId>,
    /// The conversations of all jobs above it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<Hash>,
    /// Whether the step waits for its end.
    #[serde(default, skip_serializing_if = "is_false")]
    pub waits: bool,
}

impl ChildStarted {
    /// What the child's first event says of this job.
    #[must_use]
    pub fn parent(&self, job: JobId) -> Parent {
        Parent {
            depth: self.depth,
            job,
            node: self.node.clone(),
            on_parent_end: self.on_parent_end,
            sessions: self.sessions.clone(),
            waits: self.waits,
        }
    }
}

/// How a child job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildOutcome {
    /// Because someone asked for it.
    Cancelled,
    /// With an answer.
    Completed {
        /// The answer.
        result: Json,
    },
    /// With an error.
    Failed {
        /// Why.
        error: Failure,
    },
}

impl ChildOutcome {
    /// What it takes in memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        match self {
            Self::Completed { result } => result.memory(),
            Self::Cancelled | Self::Failed { .. } => 0,
        }
    }
}

/// A child job has ended, and the step that waits for it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildEnded {
    /// The child.
    pub child: JobId,
    /// The step.
    pub node: StepPath,
    /// How it ended.
    pub outcome: ChildOutcome,
}
