//! Agents.

use aetheris_core::hash::Hash;
use aetheris_core::id::AgentName;
use aetheris_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// The answer to putting an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentPut {
    /// Its name.
    #[schema(value_type = schema::Agent)]
    pub agent: AgentName,
    /// The hash of its meaning.
    #[schema(value_type = schema::Digest)]
    pub hash: Hash,
    /// The author's name of its version.
    pub version: String,
}

/// A stored agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentView {
    /// Its name.
    #[schema(value_type = schema::Agent)]
    pub agent: AgentName,
    /// The time a whole job may take.
    #[schema(value_type = Option<schema::Duration>)]
    pub deadline: Option<Span>,
    /// What it is for.
    pub description: String,
    /// The hash of its meaning.
    #[schema(value_type = schema::Digest)]
    pub hash: Hash,
    /// How many nodes its plan has: with rules, the largest plan; 0 if a model makes the plan.
    pub nodes: u32,
    /// The hash of its plan; with another planner than `static`, of what its plans are made from.
    #[schema(value_type = schema::Digest)]
    pub plan_hash: Hash,
    /// Who makes the plan of a job.
    pub planner: String,
    /// The file as it was put. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// When it was put.
    #[schema(value_type = schema::Time)]
    pub updated_at: Timestamp,
    /// The author's name of its version.
    pub version: String,
}

/// A page of agents, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentList {
    /// The agents.
    pub agents: Vec<AgentView>,
    /// Give it as `cursor` to have the next page; `null` at the end.
    pub next_cursor: Option<String>,
}
