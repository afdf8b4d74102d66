//! A vertex of the plan: what it does, and what it waits for.

use serde::{Deserialize, Serialize};

use super::{Join, MapNode, OnFailure};
use crate::id::{NodeId, ToolName};
use crate::json::Json;
use crate::retry::RetryPolicy;
use crate::time::Span;

/// What kind of outside message ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitType {
    /// A person.
    Human,
    /// Any program.
    Signal,
    /// Only time.
    Timer,
    /// An outside system's callback.
    Webhook,
}

impl WaitType {
    /// Its name in files, requests and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Signal => "signal",
            Self::Timer => "timer",
            Self::Webhook => "webhook",
        }
    }
}

/// What happens when a wait's deadline passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDeadline {
    /// The node goes on with this value as its output.
    ContinueWith(Json),
    /// The node fails.
    Fail,
}

/// The form of a model's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum AnswerFormat {
    /// The text itself.
    #[default]
    Text,
    /// The value that the text is JSON of; anything else is a retryable failure.
    Json,
}

/// A model call. Texts are templates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LlmNode {
    /// The form of the answer.
    pub format: AnswerFormat,
    /// Most tokens of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// `provider/model`.
    pub model: String,
    /// The user's message.
    pub prompt: String,
    /// The system message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// A wait for an outside message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitNode {
    /// What a signal must name; a template. Absent for a wait that only time ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_key: Option<String>,
    /// How long it lasts at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// What happens then.
    pub on_deadline: OnDeadline,
    /// Whether it is a long wait.
    pub park: bool,
    /// Why, for the people who are asked; a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The JSON Schema of the payload that ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    /// What ends it.
    pub wait_type: WaitType,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A gate: completes with `true` where its `when` holds, else it is skipped.
    Condition,
    /// A model call.
    Llm(LlmNode),
    /// The same work for each item of a list.
    Map(MapNode),
    /// A durable pause.
    Sleep(Span),
    /// A tool call with its input, whose texts are templates.
    Tool {
        /// The input.
        input: Json,
        /// The tool's name.
        tool: ToolName,
    },
    /// A value built from templates.
    Transform(Json),
    /// A wait for an outside message.
    Wait(WaitNode),
}

impl NodeKind {
    /// Its name in files.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::Llm(_) => "llm",
            Self::Map(_) => "map",
            Self::Sleep(_) => "sleep",
            Self::Tool { .. } => "tool",
            Self::Transform(_) => "transform",
            Self::Wait(_) => "wait",
        }
    }

    /// Whether a step of it does nothing but wait for something outside.
    #[must_use]
    pub const fn waits(&self) -> bool {
        match self {
            Self::Sleep(_) | Self::Wait(_) => true,
            Self::Condition | Self::Llm(_) | Self::Map(_) | Self::Tool { .. } | Self::Transform(_) => false,
        }
    }
}

/// What is done in one step: by a node, or for an item of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// What it does.
    pub kind: NodeKind,
    /// Its own retry policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// The time one try may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The condition without which it is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

impl Work {
    /// Work of which nothing else is said.
    #[must_use]
    pub const fn new(kind: NodeKind) -> Self {
        Self { kind, retry: None, timeout: None, when: None }
    }
}

/// A vertex of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, unique in the plan.
    pub id: NodeId,
    /// How many of its needs it waits for.
    #[serde(default, skip_serializing_if = "Join::is_all")]
    pub join: Join,
    /// The nodes before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<NodeId>,
    /// What follows when it fails.
    #[serde(default, skip_serializing_if = "OnFailure::is_fail_fast")]
    pub on_failure: OnFailure,
    /// What it does.
    #[serde(flatten)]
    pub work: Work,
}

impl Node {
    /// A node that needs none and says nothing else of itself.
    #[must_use]
    pub fn new(id: impl Into<NodeId>, kind: NodeKind) -> Self {
        let (needs, on_failure) = (Vec::new(), OnFailure::FailFast);
        Self { id: id.into(), join: Join::All, needs, on_failure, work: Work::new(kind) }
    }
}
