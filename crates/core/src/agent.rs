//! The agent: a named profile that says how messages become plans.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::hash::Hash;
use crate::id::AgentName;
use crate::json::Json;
use crate::plan::Plan;
use crate::time::Span;

/// Who makes the plan of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Planner {
    /// The graph in the agent's file.
    Static,
}

impl Planner {
    /// Its name in files and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
        }
    }
}

/// A checked agent. Only code that has checked a file, or a program that builds one in Rust and calls
/// [`Plan::compile`], makes these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its name.
    pub agent: AgentName,
    /// The time a whole job may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON Schema of its messages: one that does not fit is refused at the send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_schema: Option<Json>,
    /// The graph that its static planner records.
    pub plan: Arc<Plan>,
    /// Who makes the plan.
    pub planner: Planner,
    /// The author's name of this version.
    pub version: String,
}

impl Agent {
    /// The hash of its canonical form: two files of equal meaning have the same.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of(&crate::json::to_canonical(self))
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn an_agent_is_named_by_the_hash_of_its_canonical_form() {
        let plan = r#"{"budget":{},"nodes":[],"schema_version":1,"retry":{"backoff":"1s","factor":2.0,"jitter":"full","max_attempts":3,"max_backoff":"30s","on_timeout":"retry"}}"#;
        let agent = Agent {
            agent: "a".into(),
            deadline: None,
            description: String::new(),
            message_schema: None,
            plan: Arc::new(serde_json::from_str(plan).unwrap()),
            planner: Planner::Static,
            version: "1".to_owned(),
        };
        assert_eq!(agent.hash(), Hash::of(&crate::json::to_canonical(&agent)));
        assert_ne!(agent.hash(), Agent { version: "2".to_owned(), ..agent }.hash());
        assert_eq!(serde_json::to_value(Planner::Static).unwrap(), Planner::Static.as_str());
    }
}
