//! A vertex of the plan: what it does, and what it waits for.

use serde::{Deserialize, Serialize};

use super::{AgentNode, JobNode, Join, MapNode, OnFailure, PlanNode, Rule};
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
    /// The end of a job that the step has asked for.
    Child,
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
            Self::Child => "child",
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
    /// The JSON Schema of the answer, which is JSON then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
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
    /// A model and tools by turns.
    Agent(AgentNode),
    /// A gate: completes with `true` where its `when` holds, else it is skipped.
    Condition,
    /// What a model is asked about the outputs of other nodes. It is not scheduled by itself: it runs as the step `n/critic` of
    /// each node that names it.
    Critic(LlmNode),
    /// Another agent gets a message, as a child of this job.
    Job(JobNode),
    /// A model call.
    Llm(LlmNode),
    /// The same work for each item of a list.
    Map(MapNode),
    /// A model makes the job's plan.
    Plan(PlanNode),
    /// A person is asked about a plan that was made.
    Review,
    /// The job's plan is that of the first of these that holds.
    Rules(Vec<Rule>),
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
            Self::Agent(_) => "agent",
            Self::Condition => "condition",
            Self::Critic(_) => "critic",
            Self::Job(_) => "job",
            Self::Llm(_) => "llm",
            Self::Map(_) => "map",
            Self::Plan(_) => "plan",
            Self::Review => "review",
            Self::Rules(_) => "rules",
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
            Self::Review | Self::Sleep(_) | Self::Wait(_) => true,
            Self::Agent(_)
            | Self::Condition
            | Self::Critic(_)
            | Self::Job(_)
            | Self::Llm(_)
            | Self::Map(_)
            | Self::Plan(_)
            | Self::Rules(_)
            | Self::Tool { .. }
            | Self::Transform(_) => false,
        }
    }

    /// Whether it judges the outputs of others, and is scheduled with them alone.
    #[must_use]
    pub const fn judges(&self) -> bool {
        match self {
            Self::Critic(_) | Self::Review => true,
            Self::Agent(_)
            | Self::Condition
            | Self::Job(_)
            | Self::Llm(_)
            | Self::Map(_)
            | Self::Plan(_)
            | Self::Rules(_)
            | Self::Sleep(_)
            | Self::Tool { .. }
            | Self::Transform(_)
            | Self::Wait(_) => false,
        }
    }

    /// Whether it can be done for each item of a map.
    #[must_use]
    pub const fn is_for_items(&self) -> bool {
        match self {
            Self::Agent(_) | Self::Job(_) | Self::Llm(_) | Self::Tool { .. } | Self::Transform(_) => true,
            Self::Condition
            | Self::Critic(_)
            | Self::Map(_)
            | Self::Plan(_)
            | Self::Review
            | Self::Rules(_)
            | Self::Sleep(_)
            | Self::Wait(_) => false,
        }
    }
}

fn is_false(told: &bool) -> bool {
    !*told
}

/// What is done in one step: by a node, or for an item of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// What it does.
    pub kind: NodeKind,
    /// How often it is done again after its output was rejected, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_refines: Option<u32>,
    /// Whether a call of it that must not be repeated may be made anew in a further round.
    #[serde(default, skip_serializing_if = "is_false")]
    pub refine_repeats_effect: bool,
    /// Its own retry policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// The time one try may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The JSON Schema of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate: Option<Json>,
    /// The condition without which it is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

impl Work {
    /// Work of which nothing else is said.
    #[must_use]
    pub const fn new(kind: NodeKind) -> Self {
        let (max_refines, refine_repeats_effect, validate) = (None, false, None);
        Self { kind, max_refines, refine_repeats_effect, retry: None, timeout: None, validate, when: None }
    }

    /// The map that it is, if it is one.
    #[must_use]
    pub const fn map(&self) -> Option<&MapNode> {
        match &self.kind {
            NodeKind::Map(map) => Some(map),
            NodeKind::Agent(_)
            | NodeKind::Condition
            | NodeKind::Critic(_)
            | NodeKind::Job(_)
            | NodeKind::Llm(_)
            | NodeKind::Plan(_)
            | NodeKind::Review
            | NodeKind::Rules(_)
            | NodeKind::Sleep(_)
            | NodeKind::Tool { .. }
            | NodeKind::Transform(_)
            | NodeKind::Wait(_) => None,
        }
    }

    /// The loop that it is, if it is one.
    #[must_use]
    pub const fn agent(&self) -> Option<&AgentNode> {
        match &self.kind {
            NodeKind::Agent(agent) => Some(agent),
            NodeKind::Condition
            | NodeKind::Critic(_)
            | NodeKind::Job(_)
            | NodeKind::Llm(_)
            | NodeKind::Map(_)
            | NodeKind::Plan(_)
            | NodeKind::Review
            | NodeKind::Rules(_)
            | NodeKind::Sleep(_)
            | NodeKind::Tool { .. }
            | NodeKind::Transform(_)
            | NodeKind::Wait(_) => None,
        }
    }

    /// The model that it asks, if it asks one.
    #[must_use]
    pub const fn model(&self) -> Option<&String> {
        match &self.kind {
            NodeKind::Agent(agent) => Some(&agent.model),
            NodeKind::Critic(llm) | NodeKind::Llm(llm) => Some(&llm.model),
            NodeKind::Plan(planner) => Some(&planner.model),
            NodeKind::Condition
            | NodeKind::Job(_)
            | NodeKind::Map(_)
            | NodeKind::Review
            | NodeKind::Rules(_)
            | NodeKind::Sleep(_)
            | NodeKind::Tool { .. }
            | NodeKind::Transform(_)
            | NodeKind::Wait(_) => None,
        }
    }

    /// What is done for each item, if it is a map.
    #[must_use]
    pub fn each(&self) -> Option<&Self> {
        self.map().map(|map| &*map.each)
    }
}

/// A vertex of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Node {
    /// The node of the kind critic that judges its output.
    pub critic: Option<NodeId>,
    /// Its name, unique in the plan.
    pub id: NodeId,
    /// How many of its needs it waits for.
    pub join: Join,
    /// The nodes before it.
    pub needs: Vec<NodeId>,
    /// What follows when it fails.
    pub on_failure: OnFailure,
    /// What it does.
    pub work: Work,
}

/// A node as it is stored: what it is and what it does in one, in the order that its hash asks for.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    critic: Option<NodeId>,
    id: NodeId,
    #[serde(default, skip_serializing_if = "Join::is_all")]
    join: Join,
    kind: NodeKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_refines: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    needs: Vec<NodeId>,
    #[serde(default, skip_serializing_if = "OnFailure::is_fail_fast")]
    on_failure: OnFailure,
    #[serde(default, skip_serializing_if = "is_false")]
    refine_repeats_effect: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    validate: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<String>,
}

impl From<Stored> for Node {
    fn from(stored: Stored) -> Self {
        let Stored { critic, id, join, kind, max_refines, needs, on_failure, retry, timeout, validate, when, .. } =
            stored;
        let refine_repeats_effect = stored.refine_repeats_effect;
        let work = Work { kind, max_refines, refine_repeats_effect, retry, timeout, validate, when };
        Self { critic, id, join, needs, on_failure, work }
    }
}

impl From<Node> for Stored {
    fn from(node: Node) -> Self {
        let Node { critic, id, join, needs, on_failure, work } = node;
        let Work { kind, max_refines, refine_repeats_effect, retry, timeout, validate, when } = work;
        Self {
            critic,
            id,
            join,
            kind,
            max_refines,
            needs,
            on_failure,
            refine_repeats_effect,
            retry,
            timeout,
            validate,
            when,
        }
    }
}

impl Node {
    /// A node that needs none and says nothing else of itself.
    #[must_use]
    pub fn new(id: impl Into<NodeId>, kind: NodeKind) -> Self {
        let (needs, on_failure) = (Vec::new(), OnFailure::FailFast);
        Self { critic: None, id: id.into(), join: Join::All, needs, on_failure, work: Work::new(kind) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::OnItemFailure;

    /// The hash of a plan is that of its value, whoever computes it: fields stand in their order, of every kind.
    #[test]
    fn a_nodes_canonical_bytes_are_those_of_its_value() {
        let each = Work { when: Some("item".to_owned()), ..Work::new(NodeKind::Transform(Json::null())) };
        let map = MapNode {
            name: "row".to_owned(),
            concurrency: 2,
            each: Box::new(Work { retry: Some(RetryPolicy::default()), timeout: Some(Span::from_secs(1)), ..each }),
            on_item_failure: OnItemFailure::Collect,
            over: Json::null(),
        };
        let call = NodeKind::Tool { input: Json::null(), tool: "t".into() };
        for kind in [NodeKind::Map(map), call, NodeKind::Condition, NodeKind::Sleep(Span::from_secs(1))] {
            let mut node = Node::new("n", kind);
            (node.join, node.needs, node.on_failure) = (Join::Any, vec!["m".into()], OnFailure::FailSafe);
            node.critic = Some("c".into());
            node.work.when = Some("true".to_owned());
            (node.work.max_refines, node.work.refine_repeats_effect) = (Some(1), true);
            node.work.validate = Some(Json::new(true.into()));
            (node.work.retry, node.work.timeout) = (Some(RetryPolicy::default()), Some(Span::from_secs(2)));
            let value = Json::new(serde_json::to_value(&node).unwrap());
            let bytes = crate::json::to_canonical(&node);
            assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&value.canonical()));
            assert_eq!(serde_json::from_slice::<Node>(&bytes).unwrap(), node);
        }
    }
}
