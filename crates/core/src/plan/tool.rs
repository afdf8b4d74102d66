//! Tools as a plan pins them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::DoubtPolicy;
use crate::json::Json;
use crate::limits;
use crate::time::Span;

/// What repeating a tool call would do to the outside world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Reads only: may run again until its result is recorded.
    Pure,
    /// May be called again, but only with the same idempotency key.
    Idempotent,
    /// Is sent at most once per recorded permission (the default: nothing else is safe to assume).
    #[default]
    AtMostOnce,
}

impl EffectClass {
    /// Whether calls go through the ledger.
    #[must_use]
    pub const fn is_ledger(self) -> bool {
        match self {
            Self::Pure => false,
            Self::Idempotent | Self::AtMostOnce => true,
        }
    }

    /// Whether nothing but proof or a person allows another call.
    #[must_use]
    pub const fn must_not_repeat(self) -> bool {
        match self {
            Self::AtMostOnce => true,
            Self::Pure | Self::Idempotent => false,
        }
    }

    /// Its name in files and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Idempotent => "idempotent",
            Self::AtMostOnce => "at_most_once",
        }
    }
}

/// How an HTTP tool is called. Texts are templates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HttpTool {
    /// Body; the whole input when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "Json::present")]
    pub body: Option<Json>,
    /// Headers beside those that the runtime sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// GET, POST, PUT, PATCH or DELETE.
    pub method: String,
    /// Statuses by which the other side says that it has not acted and will not (INTERFACE: 409).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub refused_statuses: BTreeSet<u16>,
    /// Address.
    pub url: String,
}

/// A person who is asked. The step waits for a signal, whose payload is what the tool answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HumanTool {
    /// How long it waits at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// What the person is asked; a template over the input.
    pub question: String,
    /// The JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
}

/// How a tool is reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// A function registered from Rust code, built-ins included.
    Function(String),
    /// An HTTP request.
    Http(HttpTool),
    /// A person. Nothing is called, so that nothing is ever in doubt.
    Human(HumanTool),
}

impl ToolKind {
    /// Whether a call can be noticed outside the process: it waits until all before it is durable.
    #[must_use]
    pub const fn leaves_process(&self) -> bool {
        match self {
            Self::Function(_) | Self::Human(_) => false,
            Self::Http(_) => true,
        }
    }

    /// The question, if it is a person.
    #[must_use]
    pub const fn human(&self) -> Option<&HumanTool> {
        match self {
            Self::Human(human) => Some(human),
            Self::Function(_) | Self::Http(_) => None,
        }
    }
}

/// A tool as the plan pins it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// What models are told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What repeating a call would do.
    pub effect: EffectClass,
    /// The JSON Schema of the input that a model may give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Json>,
    /// How it is reached.
    pub kind: ToolKind,
    /// What is done when a call's outcome is unknown. Empty means fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_in_doubt: Vec<DoubtPolicy>,
    /// The JSON Schema of what a call answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// Asked about a call, it refuses with "did not happen" every later call with that key and that or an earlier
    /// permit. So its answer counts at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuses: bool,
    /// The time one call may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The author's name of its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Tool {
    /// A tool of which nothing else is said.
    #[must_use]
    pub const fn new(effect: EffectClass, kind: ToolKind) -> Self {
        Self {
            description: None,
            effect,
            input_schema: None,
            kind,
            on_in_doubt: Vec::new(),
            output_schema: None,
            refuses: false,
            timeout: None,
            version: None,
        }
    }

    /// The policy at a place of the tool's list; behind its end there is none.
    #[must_use]
    pub fn policy_at(&self, place: u32) -> Option<&DoubtPolicy> {
        self.on_in_doubt.get(usize::try_from(place).ok()?)
    }

    /// How long after a permit's deadline the word of a person counts who looked and does not know that the other side
    /// refuses: the longest that the tool's own list says.
    #[must_use]
    pub fn settle(&self) -> Span {
        let settles = self.on_in_doubt.iter().filter_map(|policy| match policy {
            DoubtPolicy::Reconcile(reconcile) => Some(reconcile.settle()),
            DoubtPolicy::Fail | DoubtPolicy::Human | DoubtPolicy::Wait(_) => None,
        });
        settles.max().unwrap_or(limits::SETTLE_DEFAULT)
    }
}
