//! A loop: a model and tools by turns, until the model has the last word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CompiledPlan, GraphError, Node, NodeKind, Plan, Work};
use crate::id::{NodeId, ToolName};
use crate::json::Json;
use crate::limits;

/// What follows when a loop has used up its turns or tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// The model is asked once more, and may call no tool.
    Answer,
    /// The node fails.
    #[default]
    Fail,
}

impl OnLimit {
    /// Whether it is the default.
    #[must_use]
    pub const fn is_fail(&self) -> bool {
        matches!(self, Self::Fail)
    }
}

/// A loop. Its texts are templates. Its output is the last word of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentNode {
    /// Most tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_answer_tokens: Option<u32>,
    /// Once the loop has used so many tokens, no further turn begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Most turns, at least one.
    pub max_turns: u32,
    /// `provider/model`.
    pub model: String,
    /// What follows when turns or tokens are used up.
    #[serde(default, skip_serializing_if = "OnLimit::is_fail")]
    pub on_limit: OnLimit,
    /// How many calls of one turn run beside each other, at least one. One that waits keeps its place.
    pub parallel_tool_calls: u32,
    /// The user's message.
    pub prompt: String,
    /// The JSON Schema of the last word, which is JSON then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    /// The system message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolName>,
}

impl AgentNode {
    /// A loop of which nothing else is said: its model may call no tool.
    #[must_use]
    pub fn new(model: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self {
            max_answer_tokens: None,
            max_tokens: None,
            max_turns: limits::LOOP_TURNS_DEFAULT,
            model: model.into(),
            on_limit: OnLimit::Fail,
            parallel_tool_calls: 1,
            prompt: prompt.into(),
            schema: None,
            system: None,
            tools: Vec::new(),
        }
    }

    /// The name by which a model is told of a tool: providers allow letters, digits, `_` and `-`.
    #[must_use]
    pub fn name_for_model(tool: &ToolName) -> String {
        tool.as_str().replace('.', "_")
    }

    /// The tool that the model means with a name, if it may call one of that name.
    #[must_use]
    pub fn meant(&self, name: &str) -> Option<&ToolName> {
        self.tools.iter().find(|tool| Self::name_for_model(tool) == name)
    }

    /// Whether a loop that has used so many tokens begins no further turn.
    #[must_use]
    pub fn has_used_up(&self, tokens: u64) -> bool {
        self.max_tokens.is_some_and(|max| tokens >= max)
    }

    /// How many calls of one turn run beside each other.
    #[must_use]
    pub fn calls_at_once(&self) -> usize {
        usize::try_from(self.parallel_tool_calls).unwrap_or(usize::MAX).clamp(1, limits::TURN_CALLS_MAX)
    }
}

/// What is done in calls of loops: for each node that is a loop, or has one for each item, the call of each of its tools.
pub(super) type Calls = BTreeMap<NodeId, BTreeMap<ToolName, Work>>;

impl Plan {
    pub(super) fn calls(&self) -> Calls {
        let mut calls = Calls::new();
        for node in &self.nodes {
            let works = [&node.work].into_iter().chain(node.work.each());
            for (work, agent) in works.filter_map(|work| Some((work, work.agent()?))) {
                let of_node = calls.entry(node.id.clone()).or_default();
                for tool in &agent.tools {
                    let kind = NodeKind::Tool { input: Json::null(), tool: tool.clone() };
                    let (retry, timeout) = (work.retry.clone(), work.timeout);
                    of_node.insert(tool.clone(), Work { retry, timeout, ..Work::new(kind) });
                }
            }
        }
        calls
    }
}

impl Work {
    /// The tools that it calls, or may call.
    pub fn tools(&self) -> impl Iterator<Item = &ToolName> {
        let (one, many) = match &self.kind {
            NodeKind::Tool { tool, .. } => (Some(tool), &[][..]),
            NodeKind::Agent(agent) => (None, &agent.tools[..]),
            NodeKind::Condition
            | NodeKind::Critic(_)
            | NodeKind::Job(_)
            | NodeKind::Llm(_)
            | NodeKind::Map(_)
            | NodeKind::Plan(_)
            | NodeKind::Review
            | NodeKind::Rules(_)
            | NodeKind::Sleep(_)
            | NodeKind::Transform(_)
            | NodeKind::Wait(_) => (None, &[][..]),
        };
        one.into_iter().chain(many)
    }
}

/// Two tools of a loop that its model cannot tell apart.
pub(super) fn clash(node: &Node, work: &Work) -> Option<GraphError> {
    let mut seen: BTreeMap<String, &ToolName> = BTreeMap::new();
    work.agent()?.tools.iter().find_map(|other| {
        let tool = seen.insert(AgentNode::name_for_model(other), other)?;
        Some(GraphError::ToolNamesClash { node: node.id.clone(), other: other.clone(), tool: tool.clone() })
    })
}

impl CompiledPlan {
    /// What is done in a call of one of its tools by the loop of a node.
    pub(super) fn call_of(&self, node: &NodeId, tool: &ToolName) -> Option<&Work> {
        self.calls.get(node)?.get(tool)
    }
}
