//! Planning: how a job comes by a plan that does not stand in its agent's file. An agent that has one made has a *planning plan*
//! instead, with one node, whose output says what the plan is. The job follows that plan first, and the one that was made then.

use serde::{Deserialize, Serialize};

use super::{Node, NodeKind, Plan};
use crate::id::NodeId;
use crate::json::Json;
use crate::path::StepPath;

/// What a model is asked that makes a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanNode {
    /// The kinds of nodes that it may use, by their names in files.
    pub kinds: Vec<String>,
    /// How many nodes it may use.
    pub max_nodes: u32,
    /// `provider/model` of the planner.
    pub model: String,
    /// `provider/model` of nodes that name none. They may name no other but this one and the planner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_model: Option<String>,
    /// What is to be planned; a template.
    pub prompt: String,
}

/// What a plan has of its own beside what all plans of its agent have: its nodes, and what they come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// The job's result; a template. Absent: the output of the last node.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "Json::present")]
    pub answer: Option<Json>,
    /// The vertices, in the order of the file.
    pub nodes: Vec<Node>,
}

/// A graph, and for which messages it is the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// The graph.
    pub graph: Graph,
    /// A condition on the message; one without holds always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// The name of the node that makes a plan. No file can name a node so.
const PLANNING: &str = "$plan";
/// The name of the critic that asks a person about it.
const REVIEW: &str = "$review";

impl Plan {
    /// The planning plan of an agent, which has all that its plans have but nodes.
    #[must_use]
    pub fn planning(self, planning: Planning) -> Self {
        let Planning { kind, max_refines, reviewed } = planning;
        let mut node = Node::new(PLANNING, kind);
        node.work.max_refines = Some(max_refines);
        node.critic = reviewed.then(|| REVIEW.into());
        let review = reviewed.then(|| Node::new(REVIEW, NodeKind::Review));
        Self { nodes: [node].into_iter().chain(review).collect(), ..self }
    }

    /// The node that makes a plan, if this is a planning plan.
    #[must_use]
    pub fn planning_node(&self) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id.as_str() == PLANNING)
    }

    /// The plan that has this graph, of the same agent as this one.
    #[must_use]
    pub fn with(&self, graph: Graph) -> Self {
        let Graph { answer, nodes } = graph;
        let Self { budget, max_parallel_steps, retry, schema_version, step_timeout, tools, answer: _, nodes: _ } = self;
        let (retry, tools) = (retry.clone(), tools.clone());
        let (budget, max_parallel_steps) = (*budget, *max_parallel_steps);
        let (schema_version, step_timeout) = (*schema_version, *step_timeout);
        Self { answer, budget, max_parallel_steps, nodes, retry, schema_version, step_timeout, tools }
    }

    /// The graphs that its rules choose from, if it is a planning plan that has rules.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        match self.planning_node().map(|node| &node.work.kind) {
            Some(NodeKind::Rules(rules)) => rules,
            Some(_) | None => &[],
        }
    }
}

/// How a planning plan makes plans.
#[derive(Debug, Clone, PartialEq)]
pub struct Planning {
    /// What its node does.
    pub kind: NodeKind,
    /// How often a plan that is rejected is asked for again.
    pub max_refines: u32,
    /// Whether a person is asked about it.
    pub reviewed: bool,
}

impl StepPath {
    /// Whether the step makes a plan, or is a part of that.
    #[must_use]
    pub fn is_planning(&self) -> bool {
        self.node().as_str() == PLANNING
    }

    /// The step that makes a plan.
    #[must_use]
    pub fn planning() -> Self {
        Self::from(NodeId::from(PLANNING))
    }
}
