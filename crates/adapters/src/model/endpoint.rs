//! An endpoint of a provider: how it is asked over HTTP, and what its refusals mean. What is said in which form is its dialect's
//! (`chat`, `messages`).
//!
//! One request. Its answer is streamed, so that a silent provider is told from one that thinks, and people see it come; it is
//! recorded whole or not at all. What fails on the way is retryable, as asking again changes nothing but the bill; what the
//! endpoint refuses for the request's own sake is not.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aetheris_core::event::{FinishReason, ToolAsked, Usage};
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_runtime::ports::{
    Heard, MODEL_HELD_BACK, MODEL_TIMED_OUT, ModelAnswer, ModelError, ModelRequest, OUT_OF_FILES, PastCall, PastTurn,
    ToolOffer,
};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::rate::{Leave, Rates, Reckoned};
use super::stream::{SILENCE_MAX, Unread};
use super::{Dialect, ModelEndpoint, chat, messages, permanent, retryable, stream, told};
use crate::exchange::{
    BodyError, Deadline, Elapsed, Quotation, cause, client_builder, is_out_of_files, quote, read_body,
};
use crate::secret::Scrubber;
use crate::{BuildError, OF_WORKER};

/// Largest answer, in bytes: a text of the largest payload, and room for JSON's escapes around it.
pub(super) const ANSWER_BYTES_MAX: usize = 2 * limits::PAYLOAD_BYTES_MAX;

/// Longest wait for a rate that a step sits out; for a longer one it gives its place away.
const WAIT_HELD_MAX: Duration = Duration::from_millis(500);
/// Longest time that those who found no place stay apart.
const CROWD_WAIT_MAX: Duration = Duration::from_secs(5);
/// What a provider says of an account that has nothing left, whatever the status.
const USED_UP: [&str; 4] =
    ["insufficient_quota", "billing_hard_limit_reached", "credit balance is too low", "limit: 0,"];

/// The client that all endpoints share.
pub(super) fn client() -> Result<Client, BuildError> {
    client_builder()?.build().map_err(|error| BuildError::Client(error.to_string()))
}

/// What an endpoint said, as far as its dialect can be read.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) calls: Vec<ToolAsked>,
    /// As it names itself.
    pub(super) model: Option<String>,
    pub(super) text: String,
}

/// Why an answer is none.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// It is none of the dialect at all: nobody knows whether a model was asked.
    Foreign(String),
    /// It cannot be read, or says nothing: models that sample give another one.
    Unreadable(String),
    /// It was cut off at its limit of tokens.
    Cut,
    /// The conversation is longer than the model can read.
    ContextFull,
    /// The provider paused the answer.
    Paused,
    /// The model does not answer this, in its words.
    Refused(FinishReason, String),
    /// The endpoint tells of an error where an answer should be.
    Told {
        /// What it is called.
        kind: String,
        /// What it says.
        message: String,
    },
}

impl NoAnswer {
    /// Why the model stopped, where it began to answer.
    const fn finish(&self) -> Option<FinishReason> {
        match self {
            Self::Foreign(_) | Self::Told { .. } | Self::Unreadable(_) => None,
            Self::ContextFull => Some(FinishReason::ContextFull),
            Self::Cut => Some(FinishReason::Length),
            Self::Paused => Some(FinishReason::Pause),
            Self::Refused(finish, _) => Some(*finish),
        }
    }
}

/// An answer in a dialect: what was said, and what the endpoint has counted, if that can be read.
pub(super) type Parsed = (Result<Completed, NoAnswer>, Option<Usage>);

/// A configured provider.
pub(super) struct Endpoint {
    authorization: Option<(HeaderName, HeaderValue)>,
    client: Client,
    config: ModelEndpoint,
    /// Questions that found no place since one did.
    crowd: AtomicU32,
    rates: Rates,
    /// Questions that may be under way beside those that are.
    room: Option<Semaphore>,
    scrubber: Scrubber,
    url: Url,
}

impl Endpoint {
    pub(super) fn new(config: ModelEndpoint, client: Client) -> Result<Self, BuildError> {
        let problem = |problem: String| BuildError::BaseUrl { provider: config.name.clone(), problem };
        let mut url = Url::parse(&config.base_url).map_err(|error| problem(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(problem("it does not begin with http:// or https://".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(problem("it must end with its path; keys belong into `api_key_env`".to_owned()));
        }
        let path = format!("{}{}", url.path().trim_end_matches('/'), config.dialect.path());
        url.set_path(&path);
        let key = config.api_key.as_ref().map(|key| key.expose().trim());
        let mut authorization = key
            .map(|key| match config.dialect {
                Dialect::ChatCompletions => {
                    HeaderValue::try_from(format!("Bearer {key}")).map(|value| (AUTHORIZATION, value))
                }
                Dialect::Messages => HeaderValue::try_from(key).map(|value| (messages::KEY, value)),
            })
            .transpose()
            .map_err(|_| problem("its key has characters that HTTP does not allow".to_owned()))?;
        if let Some((_, value)) = &mut authorization {
            value.set_sensitive(true);
        }
        let scrubber = Scrubber::new(key, None);
        let room = config.max_concurrent.map(Semaphore::new);
        let rates = Rates::new(config.rate);
        Ok(Self { authorization, client, crowd: AtomicU32::new(0), rates, room, scrubber, url, config })
    }

    /// Asks once, when the provider may be asked.
    pub(super) async fn complete(
        &self,
        model: &str,
        request: &ModelRequest,
        heard: Heard<'_>,
    ) -> Result<ModelAnswer, ModelError> {
        let time = request.timeout.min(self.config.timeout);
        let deadline = Deadline::after(time);
        // Held until the answer is read. The room is never closed. Whoever waits longer would have no time for its answer.
        let _place = match &self.room {
            Some(room) => match deadline.at_most(WAIT_HELD_MAX.min(time / 2)).within(room.acquire()).await {
                Ok(place) => {
                    self.crowd.store(0, Ordering::Relaxed);
                    place.ok()
                }
                Err(Elapsed) => return Err(self.no_room(request)),
            },
            None => None,
        };
        let unasked = match self.config.dialect {
            Dialect::ChatCompletions => 0,
            Dialect::Messages => messages::MAX_TOKENS,
        };
        let answer = request.max_tokens.unwrap_or(unasked).into();
        let reckoned = Reckoned { answer, prompt: estimate(asked_bytes(request)) };
        let leave = self.await_rate(model, request, reckoned, deadline).await?;
        let asked = self.ask(model, request, heard, deadline).await;
        match &asked {
            Ok(answer) => leave.used(answer.usage.total()),
            Err(ModelError { usage: Some(usage), .. }) => leave.used(usage.total()),
            // Nothing has left.
            Err(failed) if failed.error.code == OUT_OF_FILES => leave.used(0),
            Err(_) => drop(leave),
        }
        // There is a place again.
        self.crowd.store(0, Ordering::Relaxed);
        asked
    }

    /// Sits a short wait out. For a longer one the question is held back: nothing has left.
    async fn await_rate<'r>(
        &'r self,
        model: &'r str,
        request: &ModelRequest,
        reckoned: Reckoned,
        deadline: Deadline,
    ) -> Result<Leave<'r>, ModelError> {
        loop {
            let wait = match self.rates.leave(model, reckoned, Instant::now()) {
                Ok(leave) => return Ok(leave),
                Err(wait) => wait,
            };
            let wait_ends = deadline.within(tokio::time::sleep(wait.min(WAIT_HELD_MAX)));
            if wait > WAIT_HELD_MAX || wait_ends.await.is_err() {
                let what = format!("was not asked: its rate is used up for {}", Span::from_std(wait).rounded());
                let held = retryable(MODEL_HELD_BACK, self.words(request, &what));
                return Err(ModelError { retry_after: Some(Span::from_std(wait)), ..held });
            }
        }
    }

    async fn ask(
        &self,
        model: &str,
        request: &ModelRequest,
        heard: Heard<'_>,
        deadline: Deadline,
    ) -> Result<ModelAnswer, ModelError> {
        let body = match self.config.dialect {
            Dialect::ChatCompletions => chat::body(model, request, self.config.stream),
            Dialect::Messages => messages::body(model, request, self.config.stream),
        };
        let mut call = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        call = call.body(body.to_string());
        if let Some((name, value)) = &self.authorization {
            call = call.header(name.clone(), value.clone());
        }
        if self.config.dialect == Dialect::Messages {
            call = call.header(messages::VERSION.0, messages::VERSION.1);
        }
        let mut response = match deadline.within(call.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(request, &error)),
            Err(Elapsed) => return Err(self.timed_out(request)),
        };
        self.rates.told(model, &told::left(response.headers()), Instant::now());
        if !response.status().is_success() {
            return Err(self.refused(model, request, response, deadline).await);
        }
        if stream::is_streamed(&response) {
            let read = stream::read(response, self.config.dialect, deadline, heard).await;
            return read.map_err(|unread| self.unread(request, unread)).and_then(|parsed| self.answer(request, parsed));
        }
        let body = match deadline.within(read_body(&mut response, ANSWER_BYTES_MAX)).await {
            Ok(Ok(body)) => body,
            Ok(Err(BodyError::Broken(cause))) => return Err(self.unread(request, Unread::Broken(cause))),
            Ok(Err(BodyError::TooLarge(_))) => return Err(self.unread(request, Unread::TooLarge)),
            Err(Elapsed) => return Err(self.timed_out(request)),
        };
        let parsed = match self.config.dialect {
            Dialect::ChatCompletions => chat::read(&body),
            Dialect::Messages => messages::read(&body),
        };
        self.answer(request, parsed)
    }

    /// What came cannot be read to its end.
    fn unread(&self, request: &ModelRequest, unread: Unread) -> ModelError {
        match unread {
            Unread::Broken(cause) => {
                let cause = Quotation::all(cause).shown(&self.scrubber);
                retryable("model_answer_broken", self.words(request, &format!("answered, but broke off: {cause}")))
            }
            Unread::Truncated => {
                let what = "began to answer, and its stream ended before the answer did";
                retryable("model_answer_broken", self.words(request, what))
            }
            Unread::Silent => self.silent(request),
            Unread::TimedOut => self.timed_out(request),
            Unread::TooLarge => {
                let what = format!(
                    "answered with more than {ANSWER_BYTES_MAX} bytes; lower `max_tokens` (of an agent node `max_answer_tokens`)"
                );
                permanent("model_answer_too_large", self.words(request, &what))
            }
        }
    }

    /// Takes an answer. One without content or calls is retryable: models that sample give another one.
    fn answer(&self, request: &ModelRequest, (said, counted): Parsed) -> Result<ModelAnswer, ModelError> {
        let used = |answer: usize| {
            counted.unwrap_or_else(|| Usage {
                completion_tokens: estimate(answer),
                prompt_tokens: estimate(asked_bytes(request)),
                ..Usage::default()
            })
        };
        let Completed { calls, model, text } = match said {
            Ok(said) => said,
            Err(unsaid) => {
                let asked = !matches!(unsaid, NoAnswer::Foreign(_) | NoAnswer::Told { .. });
                let (finish, usage) = (unsaid.finish(), asked.then(|| used(0)).or(counted));
                return Err(ModelError { finish, usage, ..self.unsaid(request, unsaid) });
            }
        };
        let usage = used(text.len() + calls.iter().map(|call| call.arguments.len()).sum::<usize>());
        let model = model.map_or_else(|| request.model.clone(), |model| format!("{}/{model}", self.config.name));
        let finish = if calls.is_empty() { FinishReason::End } else { FinishReason::Tool };
        Ok(ModelAnswer { calls, finish, model, text, usage })
    }

    fn unsaid(&self, request: &ModelRequest, unsaid: NoAnswer) -> ModelError {
        match unsaid {
            NoAnswer::Foreign(why) | NoAnswer::Unreadable(why) => {
                retryable("model_answer_unreadable", self.words(request, &format!("answered {why}")))
            }
            NoAnswer::Paused => {
                retryable("model_answer_unreadable", self.words(request, "paused its answer instead of ending it"))
            }
            NoAnswer::Told { kind, message } => self.told(request, &kind, message),
            NoAnswer::Cut => {
                let what = "answered up to its limit of tokens and was cut off; raise `max_tokens` (of an agent node \
                            `max_answer_tokens`) or ask for less";
                permanent("model_answer_cut", self.words(request, what))
            }
            NoAnswer::ContextFull => {
                let what = "says that the conversation exceeds its context window; let tools answer less, lower `max_turns`, or \
                            choose a model with a larger window";
                permanent("model_context_full", self.words(request, what))
            }
            NoAnswer::Refused(_, why) => {
                let what = format!("refused to answer: {}", Quotation::all(why).shown(&self.scrubber));
                permanent("model_refused", self.words(request, &what))
            }
        }
    }

    /// An error that stands where an answer should be means what it would mean as a status.
    fn told(&self, request: &ModelRequest, kind: &str, message: String) -> ModelError {
        let said = Quotation::all(if kind.is_empty() { message } else { format!("{kind}: {message}") });
        let words = self.words(request, &format!("answered with an error: {}", said.shown(&self.scrubber)));
        let has = |kinds: &[&str]| kinds.iter().any(|word| kind.split(' ').any(|kind| kind == *word));
        if USED_UP.iter().any(|sign| said.has(sign)) || has(&["402", "billing_error"]) {
            return permanent("quota_exhausted", words);
        }
        if has(&["401", "403", "authentication_error", "invalid_api_key", "permission_error"]) {
            let what = format!("answered with an error ({kind}); {}", self.key_advice());
            return permanent("model_unauthorized", self.words(request, &what));
        }
        if has(&["400", "404", "413", "422", "invalid_request_error", "not_found_error", "request_too_large"]) {
            return permanent("model_request_refused", words);
        }
        let limited = has(&["429", "rate_limit_error", "rate_limit_exceeded"]);
        retryable(if limited { "model_rate_limited" } else { "model_unavailable" }, words)
    }

    /// Others are asked, as many as may be.
    fn no_room(&self, request: &ModelRequest) -> ModelError {
        let most = self.config.max_concurrent.unwrap_or_default();
        let what = format!("was not asked: all {most} requests that `max_concurrent` allows are in use");
        // Those that wait come back one after the other.
        let before = self.crowd.fetch_add(1, Ordering::Relaxed);
        let wait = Duration::from_secs(1) + (Duration::from_millis(100) * before).min(CROWD_WAIT_MAX);
        let held = retryable(MODEL_HELD_BACK, self.words(request, &what));
        ModelError { retry_after: Some(Span::from_std(wait)), ..held }
    }

    async fn refused(
        &self,
        model: &str,
        request: &ModelRequest,
        mut response: Response,
        deadline: Deadline,
    ) -> ModelError {
        let status = response.status();
        let wait = told::asked_to_wait(response.headers());
        let quotation = quote(&mut response, deadline).await;
        // What is used up does not come back by waiting, and is no matter of the key.
        let is_used_up = USED_UP.iter().any(|sign| quotation.has(sign));
        if !is_used_up && matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            // Its words are left out: some endpoints quote the key.
            let what = format!("answered {}; {}", status.as_u16(), self.key_advice());
            return permanent("model_unauthorized", self.words(request, &what));
        }
        let quotation = quotation.shown(&self.scrubber);
        let colon = if quotation.is_empty() { "" } else { ": " };
        let words = self.words(request, &format!("answered {}{colon}{quotation}", status.as_u16()));
        match status.as_u16() {
            400 | 401 | 403 | 429 if is_used_up => permanent("quota_exhausted", words),
            402 => permanent("quota_exhausted", words),
            429 => {
                // Whoever else would ask it now would be refused as well.
                let now = Instant::now();
                let asked = wait.map(|wait| Span::from_std(self.rates.close(model, wait, now)));
                if let Some(wait) = told::until_some(response.headers()).filter(|_| asked.is_none()) {
                    self.rates.close(model, wait, now);
                }
                ModelError { retry_after: asked, ..retryable("model_rate_limited", words) }
            }
            408 | 409 | 425 | 500.. => {
                ModelError { retry_after: wait.map(Span::from_std), ..retryable("model_unavailable", words) }
            }
            _ => permanent("model_request_refused", words),
        }
    }

    fn key_advice(&self) -> String {
        match (&self.config.api_key_env, &self.config.api_key_file, &self.config.api_key) {
            (Some(name), _, Some(_)) => format!("check the key in the environment variable `{name}`"),
            (Some(name), _, None) => format!("the environment variable `{name}`, which names its key, is not set"),
            (None, Some(file), _) => format!("check the key in the file {}", file.display()),
            (None, None, _) => {
                let name = &self.config.name;
                format!("it was sent no key: `models.{name}.api_key_env` or `api_key_file` of {OF_WORKER} names one")
            }
        }
    }

    fn unreachable(&self, request: &ModelRequest, error: &reqwest::Error) -> ModelError {
        if is_out_of_files(error) {
            let what = "was not asked: this process has no open file left (see `ulimit -n`)";
            return retryable(OUT_OF_FILES, self.words(request, what));
        }
        let what = if error.is_connect() { "cannot be reached" } else { "broke the connection off" };
        retryable("model_unreachable", self.words(request, &format!("{what}: {}", cause(error))))
    }

    fn timed_out(&self, request: &ModelRequest) -> ModelError {
        let time = request.timeout.min(self.config.timeout);
        retryable(MODEL_TIMED_OUT, self.words(request, &format!("did not answer within {time:?}")))
    }

    fn silent(&self, request: &ModelRequest) -> ModelError {
        let what = format!("said nothing for {}", Span::from_std(SILENCE_MAX).rounded());
        retryable(MODEL_TIMED_OUT, self.words(request, &what))
    }

    fn words(&self, request: &ModelRequest, what: &str) -> String {
        self.scrubber.text(&format!("model `{}` at {} {what}", request.model, self.url))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

/// Tokens of so many bytes where the endpoint does not count: four bytes each, as a budget is better kept
/// roughly than not at all.
fn estimate(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

/// The bytes of all that a model is asked.
fn asked_bytes(request: &ModelRequest) -> usize {
    let turn = |turn: &PastTurn| {
        let call = |call: &PastCall| call.asked.arguments.len() + call.result.len();
        turn.text.len() + turn.reply.as_ref().map_or(0, String::len) + turn.calls.iter().map(call).sum::<usize>()
    };
    let tools = request.tools.iter().map(told_bytes).sum::<usize>();
    let system = request.system.as_ref().map_or(0, String::len);
    request.prompt.len() + system + tools + request.turns.iter().map(turn).sum::<usize>()
}

fn told_bytes(tool: &ToolOffer) -> usize {
    let schema = tool.input_schema.as_ref().map_or(0, |schema| schema.to_string().len());
    tool.name.len() + tool.description.as_ref().map_or(0, String::len) + schema
}

/// The schema of a tool as providers take it: that of an object which names its properties.
pub(super) fn of_object(schema: Option<&aetheris_core::json::Json>) -> Value {
    let mut object = schema.and_then(|schema| schema.as_object().cloned()).unwrap_or_default();
    object.entry("type").or_insert_with(|| "object".into());
    object.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
    Value::Object(object)
}

/// A name that a model called, as providers take it back. It may be one that the model has made up.
pub(super) fn called_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().take(limits::NAME_BYTES_MAX).map(plain).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// The arguments of a call as an object, whatever the model has written.
pub(super) fn arguments_of(asked: &ToolAsked) -> Value {
    if asked.arguments.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    let input = aetheris_core::json::Json::parse(asked.arguments.as_bytes()).ok().filter(|input| input.is_object());
    input.map_or_else(|| serde_json::json!({ "arguments": asked.arguments }), |input| input.value().clone())
}

/// What stands beside the known fields of a call: it goes back as it came.
pub(super) fn left_over(said: serde_json::Map<String, Value>) -> Option<aetheris_core::json::Json> {
    if said.is_empty() { None } else { aetheris_core::json::Json::checked(Value::Object(said)).ok() }
}
