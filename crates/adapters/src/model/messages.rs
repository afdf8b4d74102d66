//! The dialect of messages, as Anthropic has made it.

use aetheris_core::event::{ToolAsked, Usage};
use aetheris_core::json::Json;
use aetheris_core::plan::AnswerFormat;
use aetheris_runtime::ports::{ModelRequest, PastCall, PastTurn, ToolOffer};
use reqwest::header::HeaderName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::endpoint::{Completed, NoAnswer, Parsed, arguments_of, called_name, left_over, of_object};

/// The header that the key travels in.
pub(super) const KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The form that is spoken here, which each request has to name.
pub(super) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");
/// What is said of the form of an answer that is to be JSON.
const ONLY_JSON: &str = "Answer with one JSON value and nothing else.";
/// Most tokens of an answer where the node does not say, since a request has to.
const MAX_TOKENS: u32 = 4_096;

/// What is asked.
pub(super) fn body(model: &str, request: &ModelRequest) -> Value {
    let mut messages = vec![json!({ "role": "user", "content": request.prompt })];
    for turn in &request.turns {
        let said = said_before(turn);
        // An empty message is refused.
        if !said.is_empty() {
            messages.push(json!({ "role": "assistant", "content": said }));
        }
        let told = told(turn);
        if !told.is_empty() {
            messages.push(json!({ "role": "user", "content": told }));
        }
    }
    let max_tokens = request.max_tokens.unwrap_or(MAX_TOKENS);
    let mut body = json!({ "max_tokens": max_tokens, "messages": messages, "model": model, "stream": false });
    // There is no other way to ask for JSON.
    let json = (request.format == AnswerFormat::Json).then_some(ONLY_JSON);
    let parts: Vec<&str> = request.system.as_deref().into_iter().chain(json).filter(|part| !part.is_empty()).collect();
    if !parts.is_empty() {
        body["system"] = json!(parts.join("\n\n"));
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(offer).collect();
        // What it has called before needs to be known to it all the same.
        body["tool_choice"] = json!({ "type": if request.may_call { "auto" } else { "none" } });
    }
    body
}

fn offer(tool: &ToolOffer) -> Value {
    let schema = of_object(tool.input_schema.as_ref());
    let mut offer = json!({ "name": tool.name, "input_schema": schema });
    if let Some(description) = &tool.description {
        offer["description"] = json!(description);
    }
    offer
}

/// What a model has said before, as it said it.
fn said_before(turn: &PastTurn) -> Vec<Value> {
    let call = |call: &PastCall| {
        let own = call.asked.provider.as_ref().and_then(|provider| provider.as_object().cloned());
        let mut said = Value::Object(own.unwrap_or_default());
        said["type"] = json!("tool_use");
        said["id"] = json!(call.asked.id);
        said["name"] = json!(called_name(&call.asked.name));
        said["input"] = arguments_of(&call.asked);
        said
    };
    let text = Some(&turn.text).filter(|text| !text.trim().is_empty());
    let text = text.map(|text| json!({ "type": "text", "text": text }));
    text.into_iter().chain(turn.calls.iter().map(call)).collect()
}

/// What it is told then.
fn told(turn: &PastTurn) -> Vec<Value> {
    let result = |call: &PastCall| {
        let (id, result) = (&call.asked.id, &call.result);
        json!({ "type": "tool_result", "tool_use_id": id, "content": result, "is_error": call.failed })
    };
    let reply = turn.reply.as_ref().map(|reply| json!({ "type": "text", "text": reply }));
    turn.calls.iter().map(result).chain(reply).collect()
}

/// Reads an answer.
pub(super) fn read(body: &[u8]) -> Parsed {
    let message: Message = match serde_json::from_slice(body) {
        Ok(message) => message,
        Err(error) => return (Err(NoAnswer::Foreign(format!("what is not a message: {error}"))), None),
    };
    // An error may stand in an answer that says that all is well.
    if let Some(error) = message.error {
        let why = format!("{}: {}", error.kind, error.message);
        return (Err(NoAnswer::Unavailable(why)), None);
    }
    let counted = message.usage.and_then(counted);
    (said(message.model, message.stop_reason.as_deref(), message.content), counted)
}

fn said(model: Option<String>, stopped: Option<&str>, content: Vec<Value>) -> Result<Completed, NoAnswer> {
    let unreadable = |what: String| Err(NoAnswer::Unreadable(what));
    match stopped {
        Some("end_turn" | "stop_sequence" | "tool_use") => {}
        Some("max_tokens") => return Err(NoAnswer::Cut),
        Some("model_context_window_exceeded") => return Err(NoAnswer::ContextFull),
        Some("refusal") => return Err(NoAnswer::Refused("the model declined".to_owned())),
        Some(other) => return unreadable(format!("and stopped for an unsupported reason: `{other}`")),
        None => return unreadable("without saying why it stopped".to_owned()),
    }
    let (mut text, mut calls) = (String::new(), Vec::new());
    for block in content {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => text.push_str(block.get("text").and_then(Value::as_str).unwrap_or_default()),
            Some("tool_use") => match call_asked(block) {
                Some(call) => calls.push(call),
                None => return unreadable("a call of a tool that cannot be read".to_owned()),
            },
            // Thoughts and the like are no part of it.
            Some(_) | None => {}
        }
    }
    // Thoughts alone are no answer.
    if text.is_empty() && calls.is_empty() {
        return unreadable("without content".to_owned());
    }
    Ok(Completed { calls, model, text })
}

/// A call that a model asks for. What the provider says beside it goes back as it came.
fn call_asked(block: Value) -> Option<ToolAsked> {
    let Value::Object(mut said) = block else { return None };
    let (Some(Value::String(id)), Some(Value::String(name))) = (said.remove("id"), said.remove("name")) else {
        return None;
    };
    let arguments =
        said.remove("input").filter(|input| !input.is_null()).map_or_else(String::new, |input| input.to_string());
    said.remove("type");
    Some(ToolAsked { arguments, id, name, provider: left_over(said), tool: None })
}

/// What the endpoint has counted. What it has read from its cache stands beside the input here, and in it with us.
fn counted(usage: Value) -> Option<Usage> {
    // As everywhere, `5.0` is the integer 5.
    let usage = Json::new(usage);
    let count = |name: &str| {
        usage.as_object()?.get(name).map_or(Some(0), |count| if count.is_null() { Some(0) } else { count.as_u64() })
    };
    let cached_tokens = count("cache_read_input_tokens")?;
    let written = count("cache_creation_input_tokens")?;
    let prompt_tokens = count("input_tokens")?.saturating_add(cached_tokens).saturating_add(written);
    Some(Usage { cached_tokens, completion_tokens: count("output_tokens")?, prompt_tokens, ..Usage::default() })
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Vec<Value>,
    error: Option<ApiError>,
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    message: String,
    #[serde(rename = "type")]
    kind: String,
}
