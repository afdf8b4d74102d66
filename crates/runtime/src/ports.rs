//! The outside world as the runtime sees it: tools and models. Adapters implement these; replay never
//! calls them.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::{Failure, FinishReason, ToolAsked, Usage};
use aetheris_core::id::{AgentName, IdempotencyKey, JobId, SessionId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::ledger::PermitNumber;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{AnswerFormat, Tool};
use aetheris_core::time::Span;
use aetheris_store::Boxed;

/// One call of a tool, with everything that travels with it.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The agent, for templates of the tool.
    pub agent: AgentName,
    /// The fencing token; a tool that can compare refuses older ones.
    pub fence: Fence,
    /// The input, rendered once and the same at every try.
    pub input: Json,
    /// The job.
    pub job: JobId,
    /// The idempotency key, the same at every try.
    pub key: IdempotencyKey,
    /// The step.
    pub node: StepPath,
    /// The permit that the call leaves under, of ledger tools: a tool that can compare refuses what it has refused.
    pub permit: Option<PermitNumber>,
    /// The conversation, for templates of the tool.
    pub session: Option<SessionId>,
    /// The time it may take; the adapter ends the call then and says what is known.
    pub timeout: Duration,
    /// The tool as the plan pins it.
    pub tool: Arc<Tool>,
    /// Its name.
    pub tool_name: ToolName,
    /// The try of this step: 1, 2, …
    pub try_number: u32,
}

/// What is known after a call (INTERFACE, HTTP tools).
#[derive(Debug, Clone, PartialEq)]
pub enum ToolOutcome {
    /// It answered; this is its output.
    Done(Json),
    /// Proved: not a byte left, or it was refused by our own rules. `permanent` says that trying again
    /// cannot help.
    NotSent {
        /// What happened.
        error: Failure,
        /// Whether trying again cannot help.
        permanent: bool,
    },
    /// The other side refused before it acted, and may accept later.
    RefusedRetryable {
        /// What it said.
        error: Failure,
        /// When it asked to be called again.
        retry_after: Option<Span>,
    },
    /// The other side refused for good.
    RefusedPermanent(Failure),
    /// It may or may not have acted. `timeout` says that our own timeout ended the call.
    Unknown {
        /// What happened.
        error: Failure,
        /// When it asked to be called again.
        retry_after: Option<Span>,
        /// Whether our own timeout ended the call.
        timeout: bool,
    },
}

/// The code of a [`ToolOutcome::NotSent`], or a [`ModelError`], that is nobody's but this process's: it has no open file
/// left. The runtime waits and calls again, and no try is counted.
pub const OUT_OF_FILES: &str = "out_of_files";
/// The code of a call that did not leave because this process cannot read where the store's own servers listen.
pub const OWN_ADDRESSES_UNKNOWN: &str = "own_addresses_unknown";

/// The code of a [`ModelError`] of a question that did not leave: the places or the rate that the configuration allows for
/// its provider are used up, or the provider has told this process to wait.
pub const MODEL_HELD_BACK: &str = "model_held_back";

/// Whether a call did not leave because this process alone lacked something. That passes and says nothing of the other side:
/// it is nobody's try, and the call is made when what was wanting is there.
#[must_use]
pub fn is_own_want(error: &Failure) -> bool {
    matches!(error.code.as_str(), MODEL_HELD_BACK | OUT_OF_FILES | OWN_ADDRESSES_UNKNOWN)
}

/// The code of a [`ModelError`] that says that our own timeout ended the question.
pub const MODEL_TIMED_OUT: &str = "model_timeout";

/// Whoever calls tools.
pub trait Tools: Send + Sync {
    /// Calls once. The adapter has no retries of its own, keeps the timeout, and classifies what
    /// happened by the tool's class. Dropping the future ends the call where it is; the runtime does
    /// that to pure and idempotent calls only.
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome>;
}

/// A request to a model, every text rendered.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The form of the answer that is wanted.
    pub format: AnswerFormat,
    /// Most tokens of the answer.
    pub max_tokens: Option<u32>,
    /// Whether it may ask for calls of tools in this answer.
    pub may_call: bool,
    /// `provider/model`.
    pub model: String,
    /// The user's message.
    pub prompt: String,
    /// The system message.
    pub system: Option<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// The time it may take.
    pub timeout: Duration,
    /// The tools that it is told of.
    pub tools: Vec<ToolOffer>,
    /// What it has answered to this message before, in order, and what came of that.
    pub turns: Vec<PastTurn>,
}

impl ModelAnswer {
    /// A text without calls.
    #[must_use]
    pub fn text(model: impl Into<String>, text: impl Into<String>, usage: Usage) -> Self {
        Self { calls: Vec::new(), finish: FinishReason::End, model: model.into(), text: text.into(), usage }
    }
}

impl ModelError {
    /// No answer, of which nothing more is known.
    #[must_use]
    pub fn new(error: Failure, retryable: bool) -> Self {
        Self { error, finish: None, retry_after: None, retryable, usage: None }
    }
}

impl ModelRequest {
    /// A message to a model, of which nothing else is said.
    #[must_use]
    pub fn new(model: impl Into<String>, prompt: impl Into<String>, timeout: Duration) -> Self {
        Self {
            format: AnswerFormat::Text,
            max_tokens: None,
            may_call: false,
            model: model.into(),
            prompt: prompt.into(),
            system: None,
            temperature: None,
            timeout,
            tools: Vec::new(),
            turns: Vec::new(),
        }
    }
}

/// A tool that a model is told of.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOffer {
    /// What it does.
    pub description: Option<String>,
    /// The JSON Schema of its input.
    pub input_schema: Option<Json>,
    /// The name by which the model calls it.
    pub name: String,
}

/// An answer of a model in a conversation, and what it was told then.
#[derive(Debug, Clone, PartialEq)]
pub struct PastTurn {
    /// The calls that it asked for, in order.
    pub calls: Vec<PastCall>,
    /// What it was told beside what they came to.
    pub reply: Option<String>,
    /// What it said.
    pub text: String,
}

/// A call that a model has asked for, and what it came to.
#[derive(Debug, Clone, PartialEq)]
pub struct PastCall {
    /// What it asked for.
    pub asked: ToolAsked,
    /// Whether the result tells of a failure.
    pub failed: bool,
    /// What the call came to.
    pub result: String,
}

/// A model's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelAnswer {
    /// The calls that it asks for. Which tool each of them means is not the adapter's to say.
    pub calls: Vec<ToolAsked>,
    /// Why it stopped: [`FinishReason::End`] or [`FinishReason::Tool`]; with any other reason there is no answer.
    pub finish: FinishReason,
    /// `provider/model` as it answered.
    pub model: String,
    /// The text.
    pub text: String,
    /// What it used.
    pub usage: Usage,
}

/// Why a model gave no answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelError {
    /// What happened.
    pub error: Failure,
    /// Why the model stopped, where it began to answer and said so.
    pub finish: Option<FinishReason>,
    /// When it asked to be called again.
    pub retry_after: Option<Span>,
    /// Whether trying again may help.
    pub retryable: bool,
    /// What it used all the same.
    pub usage: Option<Usage>,
}

/// Hears the text of an answer piece by piece. It does not block.
pub type Heard<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Whoever calls models.
pub trait Models: Send + Sync {
    /// Asks once, without retries of its own, within the request's timeout. `heard` is given the text of the answer as it
    /// comes, where the provider streams it: for people who watch, never for what is recorded.
    fn complete<'a>(&'a self, request: ModelRequest, heard: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>>;

    /// Whether a model of that name is configured; `Err` says what is missing.
    ///
    /// # Errors
    /// A sentence for people.
    fn knows(&self, model: &str) -> Result<(), String>;
}
