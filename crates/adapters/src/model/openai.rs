//! Endpoints that speak OpenAI's chat completions.
//!
//! One request, no stream: an answer is recorded whole or not at all, and half of one is of no use to a
//! step. What fails on the way is retryable, as asking again changes nothing but the bill; what the
//! endpoint refuses for the request's own sake is not.

use std::fmt;

use aetheris_core::event::{ToolAsked, Usage};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::AnswerFormat;
use aetheris_runtime::ports::{
    MODEL_TIMED_OUT, ModelAnswer, ModelError, ModelRequest, OUT_OF_FILES, PastCall, PastTurn, ToolOffer,
};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ModelEndpoint, permanent, retryable};
use crate::exchange::{
    BodyError, Deadline, Elapsed, Quotation, cause, client_builder, is_out_of_files, quote, read_body,
};
use crate::retry_after::retry_after;
use crate::secret::Scrubber;
use crate::{BuildError, OF_WORKER};

/// Largest answer, in bytes: a text of the largest payload, and room for JSON's escapes around it.
const ANSWER_BYTES_MAX: usize = 2 * limits::PAYLOAD_BYTES_MAX;

/// The client that all endpoints share.
pub(super) fn client() -> Result<Client, BuildError> {
    client_builder()?.build().map_err(|error| BuildError::Client(error.to_string()))
}

/// A configured provider.
pub(super) struct Endpoint {
    authorization: Option<HeaderValue>,
    client: Client,
    config: ModelEndpoint,
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
        let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
        url.set_path(&path);
        let key = config.api_key.as_ref().map(|key| key.expose().trim());
        let mut authorization = key
            .map(|key| HeaderValue::try_from(format!("Bearer {key}")))
            .transpose()
            .map_err(|_| problem("its key has characters that HTTP does not allow".to_owned()))?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let scrubber = Scrubber::new(key, None);
        Ok(Self { authorization, client, scrubber, url, config })
    }

    /// Asks once.
    pub(super) async fn complete(&self, model: &str, request: &ModelRequest) -> Result<ModelAnswer, ModelError> {
        let deadline = Deadline::after(request.timeout.min(self.config.timeout));
        let mut call = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body(model, request).to_string());
        if let Some(authorization) = &self.authorization {
            call = call.header(AUTHORIZATION, authorization.clone());
        }
        let mut response = match deadline.within(call.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(request, &error)),
            Err(Elapsed) => return Err(self.timed_out(request)),
        };
        if !response.status().is_success() {
            return Err(self.refused(request, response, deadline).await);
        }
        let body = match deadline.within(read_body(&mut response, ANSWER_BYTES_MAX)).await {
            Ok(Ok(body)) => body,
            Ok(Err(BodyError::Broken(cause))) => {
                return Err(retryable(
                    "model_answer_broken",
                    self.words(request, &format!("answered, but broke off: {cause}")),
                ));
            }
            Ok(Err(BodyError::TooLarge(max))) => {
                let what = format!("answered with more than {max} bytes; lower `max_tokens`");
                return Err(permanent("model_answer_too_large", self.words(request, &what)));
            }
            Err(Elapsed) => return Err(self.timed_out(request)),
        };
        self.answer(request, &body)
    }

    /// Reads an answer. One without content or calls is retryable: models that sample give another one.
    fn answer(&self, request: &ModelRequest, body: &[u8]) -> Result<ModelAnswer, ModelError> {
        let unreadable = |what: &str| retryable("model_answer_unreadable", self.words(request, what));
        let completion: Completion = serde_json::from_slice(body)
            .map_err(|error| unreadable(&format!("answered what is not a chat completion: {error}")))?;
        let counted = completion.usage.and_then(counted);
        let asked = asked_bytes(request);
        let used = |answer: usize| {
            let estimated = || Usage { completion_tokens: estimate(answer), prompt_tokens: estimate(asked) };
            counted.unwrap_or_else(estimated)
        };
        let said = self.said(request, completion.choices);
        let (text, calls) = said.map_err(|error| ModelError { usage: Some(used(0)), ..error })?;
        let usage = used(text.len() + calls.iter().map(|call| call.arguments.len()).sum::<usize>());
        let model =
            completion.model.map_or_else(|| request.model.clone(), |model| format!("{}/{model}", self.config.name));
        Ok(ModelAnswer { calls, model, text, usage })
    }

    /// What it said, if it said all of it, and the calls that it asks for.
    fn said(&self, request: &ModelRequest, choices: Vec<Choice>) -> Result<(String, Vec<ToolAsked>), ModelError> {
        let unreadable = |what: &str| retryable("model_answer_unreadable", self.words(request, what));
        let choice = choices.into_iter().next().ok_or_else(|| unreadable("answered without a choice"))?;
        match choice.finish_reason.as_deref() {
            Some("length") => {
                let what =
                    "answered up to its limit of tokens and was cut off; raise the node's `max_tokens` or ask for less";
                return Err(permanent("model_answer_cut", self.words(request, what)));
            }
            Some("content_filter") => {
                return Err(permanent("model_refused", self.words(request, "refused to answer: content filter")));
            }
            _ => {}
        }
        if let Some(refusal) = choice.message.refusal {
            let what = format!("refused to answer: {}", Quotation::all(refusal).shown(&self.scrubber));
            return Err(permanent("model_refused", self.words(request, &what)));
        }
        let calls = choice.message.tool_calls.unwrap_or_default();
        let calls = calls.into_iter().map(call_asked).collect::<Option<Vec<ToolAsked>>>();
        let calls = calls.ok_or_else(|| unreadable("asked for a call that cannot be read"))?;
        match choice.message.content {
            Some(text) => Ok((text, calls)),
            None if calls.is_empty() => Err(unreadable("answered without content")),
            None => Ok((String::new(), calls)),
        }
    }

    async fn refused(&self, request: &ModelRequest, mut response: Response, deadline: Deadline) -> ModelError {
        let status = response.status();
        let asked = retry_after(response.headers());
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            // Its words are left out: some endpoints quote the key.
            let what = format!("answered {}; {}", status.as_u16(), self.key_advice());
            return permanent("model_unauthorized", self.words(request, &what));
        }
        let quotation = quote(&mut response, deadline).await.shown(&self.scrubber);
        let colon = if quotation.is_empty() { "" } else { ": " };
        let words = self.words(request, &format!("answered {}{colon}{quotation}", status.as_u16()));
        match status.as_u16() {
            429 => ModelError { retry_after: asked, ..retryable("model_rate_limited", words) },
            408 | 409 | 425 | 500.. => ModelError { retry_after: asked, ..retryable("model_unavailable", words) },
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

    fn words(&self, request: &ModelRequest, what: &str) -> String {
        self.scrubber.text(&format!("model `{}` at {} {what}", request.model, self.url))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

fn body(model: &str, request: &ModelRequest) -> Value {
    let mut messages = Vec::new();
    if let Some(system) = &request.system {
        messages.push(json!({ "role": "system", "content": system }));
    }
    messages.push(json!({ "role": "user", "content": request.prompt }));
    for turn in &request.turns {
        messages.push(said_before(turn));
        let result = |call: &PastCall| json!({ "role": "tool", "tool_call_id": call.asked.id, "content": call.result });
        messages.extend(turn.calls.iter().map(result));
        messages.extend(turn.reply.as_ref().map(|reply| json!({ "role": "user", "content": reply })));
    }
    let mut body = json!({ "messages": messages, "model": model, "stream": false });
    if let Some(max_tokens) = request.max_tokens {
        body["max_tokens"] = json!(max_tokens);
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    if request.format == AnswerFormat::Json {
        body["response_format"] = json!({ "type": "json_object" });
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(offer).collect();
        // What it has called before needs to be known to it all the same.
        body["tool_choice"] = json!(if request.may_call { "auto" } else { "none" });
    }
    body
}

fn offer(tool: &ToolOffer) -> Value {
    let parameters =
        tool.input_schema.as_ref().map_or_else(|| json!({ "type": "object" }), |schema| schema.value().clone());
    let mut function = json!({ "name": tool.name, "parameters": parameters });
    if let Some(description) = &tool.description {
        function["description"] = json!(description);
    }
    json!({ "type": "function", "function": function })
}

/// What a model has said before, as it said it.
fn said_before(turn: &PastTurn) -> Value {
    let call = |call: &PastCall| {
        let own = call.asked.provider.as_ref().and_then(|provider| provider.as_object().cloned());
        let mut said = Value::Object(own.unwrap_or_default());
        let (id, name, arguments) = (&call.asked.id, &call.asked.name, &call.asked.arguments);
        said["id"] = json!(id);
        said["type"] = json!("function");
        said["function"] = json!({ "name": name, "arguments": arguments });
        said
    };
    if turn.calls.is_empty() {
        return json!({ "role": "assistant", "content": turn.text });
    }
    let content = Some(&turn.text).filter(|text| !text.is_empty());
    json!({ "role": "assistant", "content": content, "tool_calls": turn.calls.iter().map(call).collect::<Value>() })
}

/// A call that a model asks for. What the provider says beside it goes back as it came: some need it.
fn call_asked(call: Value) -> Option<ToolAsked> {
    let Value::Object(mut said) = call else { return None };
    let Some(Value::Object(mut function)) = said.remove("function") else { return None };
    let Some(Value::String(name)) = function.remove("name") else { return None };
    let arguments = match function.remove("arguments") {
        Some(Value::String(text)) => text,
        None | Some(Value::Null) => String::new(),
        // Some servers write the object itself.
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => other.to_string(),
    };
    let id = match said.remove("id") {
        Some(Value::String(id)) => id,
        _ => String::new(),
    };
    said.remove("type");
    said.remove("index");
    let provider = if said.is_empty() { None } else { Some(Json::checked(Value::Object(said)).ok()?) };
    Some(ToolAsked { arguments, id, name, provider, tool: None })
}

/// The bytes of all that a model is asked.
fn asked_bytes(request: &ModelRequest) -> usize {
    let turn = |turn: &PastTurn| {
        let call = |call: &PastCall| call.asked.arguments.len() + call.result.len();
        turn.text.len() + turn.reply.as_ref().map_or(0, String::len) + turn.calls.iter().map(call).sum::<usize>()
    };
    let tools = request.tools.iter().map(|tool| offer(tool).to_string().len()).sum::<usize>();
    let system = request.system.as_ref().map_or(0, String::len);
    request.prompt.len() + system + tools + request.turns.iter().map(turn).sum::<usize>()
}

/// What the endpoint has counted. None where it cannot be read: an answer that was paid for is not asked again for that.
fn counted(usage: Value) -> Option<Usage> {
    // As everywhere, `5.0` is the integer 5.
    let usage = Json::new(usage);
    let count = |name: &str| usage.as_object()?.get(name).map_or(Some(0), Value::as_u64);
    Some(Usage { completion_tokens: count("completion_tokens")?, prompt_tokens: count("prompt_tokens")? })
}

/// Tokens of so many bytes where the endpoint does not count: four bytes each, as a budget is better kept
/// roughly than not at all.
fn estimate(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Vec<Choice>,
    model: Option<String>,
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    finish_reason: Option<String>,
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Value>>,
}
