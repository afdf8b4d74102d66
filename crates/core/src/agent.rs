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
    /// A model.
    Llm,
    /// Rules in the agent's file.
    Rules,
    /// The graph in the agent's file.
    Static,
}

impl Planner {
    /// Its name in files and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Rules => "rules",
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
    /// The plan in its file; where another planner makes the plans, its planning plan ([`Plan::planning_node`]).
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

    /// How many nodes its plan has; of several the largest, and none where a model makes it.
    #[must_use]
    pub fn nodes(&self) -> usize {
        match self.planner {
            Planner::Static => self.plan.nodes.len(),
            Planner::Rules => self.plan.rules().iter().map(|rule| rule.graph.nodes.len()).max().unwrap_or(0),
            Planner::Llm => 0,
        }
    }

    /// The plan documents that it brings: its own, and those that its rules choose from.
    pub fn plans(&self) -> impl Iterator<Item = Arc<Plan>> {
        let chosen = self.plan.rules().iter().map(|rule| Arc::new(self.plan.with(rule.graph.clone())));
        [Arc::clone(&self.plan)].into_iter().chain(chosen)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn an_agent_is_named_by_the_hash_of_its_canonical_form() {
        let plan = r#"{"budget":{},"nodes":[],"schema_version":1,"retry":{"backoff":"1s","factor":2.0,"jitter":"full","max_attempts":3,"max_backoff":"30s","on_timeout":"retry"}}"#;
        let plan: Plan = serde_json::from_str(plan).unwrap();
        let agent = Agent {
            agent: "a".into(),
            deadline: None,
            description: String::new(),
            message_schema: None,
            plan: Arc::new(plan.clone()),
            planner: Planner::Static,
            version: "1".to_owned(),
        };
        assert_eq!(agent.hash(), Hash::of(&crate::json::to_canonical(&agent)));
        // One file for each field.
        let Agent { agent: _, deadline: _, description: _, message_schema: _, plan: _, planner: _, version: _ } =
            &agent;
        let schema = |text: &str| Some(Json::new(serde_json::from_str(text).unwrap()));
        let others = [
            Agent { agent: "b".into(), ..agent.clone() },
            Agent { deadline: Some(Span::from_secs(1)), ..agent.clone() },
            Agent { deadline: Some(Span::from_secs(2)), ..agent.clone() },
            Agent { description: "a".to_owned(), ..agent.clone() },
            Agent { description: "b".to_owned(), ..agent.clone() },
            Agent { message_schema: schema("{}"), ..agent.clone() },
            Agent { message_schema: schema("{\"type\":\"object\"}"), ..agent.clone() },
            Agent { plan: Arc::new(Plan { step_timeout: Some(Span::from_secs(1)), ..plan }), ..agent.clone() },
            Agent { planner: Planner::Llm, ..agent.clone() },
            Agent { planner: Planner::Rules, ..agent.clone() },
            Agent { version: "2".to_owned(), ..agent.clone() },
        ];
        let hashes: std::collections::BTreeSet<Hash> = others.iter().chain([&agent]).map(Agent::hash).collect();
        assert_eq!(hashes.len(), others.len() + 1);
        // A file that says the same in another order is the same.
        let text = crate::json::to_canonical(&others[6]);
        let again: Agent = serde_json::from_slice(text.as_ref()).unwrap();
        assert_eq!(again.hash(), others[6].hash());
        for planner in [Planner::Llm, Planner::Rules, Planner::Static] {
            assert_eq!(serde_json::to_value(planner).unwrap(), planner.as_str());
        }
    }
}
