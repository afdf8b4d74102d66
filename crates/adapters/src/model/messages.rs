//! The dialect of messages, as Anthropic has made it.

use std::collections::BTreeMap;

use aetheris_core::event::{FinishReason, ToolAsked, Usage};
use aetheris_core::json::Json;
use aetheris_core::plan::AnswerFormat;
use aetheris_runtime::ports::{Heard, ModelRequest, PastCall, PastTurn, ToolOffer};
use reqwest::header::HeaderName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::endpoint::{Completed, NoAnswer, Parsed, arguments_of, called_name, left_over, of_object};
use super::stream::Step;

/// The header that the key travels in.
pub(super) const KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The form that is spoken here, which each request has to name.
pub(super) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");
/// What is said of the form of an answer that is to be JSON.
const ONLY_JSON: &str = "Answer with one JSON value and nothing else.";
/// Most tokens of an answer where the node does not say, since a request has to.
pub(super) const MAX_TOKENS: u32 = 4_096;
/// The counts that are kept of a stream.
const COUNTS: [&str; 4] = ["cache_creation_input_tokens", "cache_read_input_tokens", "input_tokens", "output_tokens"];
/// Blocks that one answer may have.
const BLOCKS_MAX: usize = 4_096;

/// What is asked.
pub(super) fn body(model: &str, request: &ModelRequest, stream: bool) -> Value {
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
    let mut body = json!({ "max_tokens": max_tokens, "messages": messages, "model": model, "stream": stream });
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
        return (Err(NoAnswer::Told { kind: error.kind, message: error.message }), None);
    }
    let counted = message.usage.and_then(counted);
    (said(message.model, message.stop_reason.as_deref(), message.content), counted)
}

/// A streamed answer, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    blocks: BTreeMap<u64, Value>,
    error: Option<ApiError>,
    model: Option<String>,
    /// About how many bytes it has.
    pub(super) size: usize,
    stop_reason: Option<String>,
    usage: serde_json::Map<String, Value>,
}

impl Pieces {
    /// Takes in the data of one event.
    pub(super) fn take(&mut self, data: &str, heard: Heard<'_>) -> Result<Step, String> {
        let event: Event =
            serde_json::from_str(data).map_err(|error| format!("an event of its stream cannot be read: {error}"))?;
        match event {
            Event::Start { message } => {
                self.model = message.model;
                self.count(message.usage);
            }
            Event::BlockStart { index, content_block } => {
                let mut block = content_block;
                self.size += block.to_string().len();
                // Its input comes in pieces of text, and is read when all are there.
                if block.get("type").and_then(Value::as_str) == Some("tool_use") {
                    let begun =
                        block.get("input").filter(|input| input.as_object().is_some_and(|input| !input.is_empty()));
                    block["input"] = Value::String(begun.map(Value::to_string).unwrap_or_default());
                }
                if let Some(text) = block.get("text").and_then(Value::as_str).filter(|text| !text.is_empty()) {
                    heard(text);
                }
                self.blocks.insert(index, block);
                if self.blocks.len() > BLOCKS_MAX {
                    return Err(format!("its answer has more than {BLOCKS_MAX} parts"));
                }
            }
            Event::BlockDelta { index, delta } => self.grow(index, delta, heard)?,
            Event::Delta { delta, usage } => {
                self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
                self.count(usage);
            }
            Event::Stop => return Ok(Step::Last),
            Event::Error { error } => {
                self.error = Some(error);
                return Ok(Step::Last);
            }
            Event::Other => {}
        }
        Ok(Step::More)
    }

    fn grow(&mut self, index: u64, delta: BlockDelta, heard: Heard<'_>) -> Result<(), String> {
        let (field, more) = match delta {
            BlockDelta::Text { text } => {
                heard(&text);
                ("text", text)
            }
            BlockDelta::Input { partial_json } => ("input", partial_json),
            // Thoughts, their signatures and citations are no part of the answer.
            BlockDelta::Other => return Ok(()),
        };
        self.size += more.len();
        let known = self.blocks.get_mut(&index).and_then(|block| block.get_mut(field));
        match known {
            Some(Value::String(known)) => known.push_str(&more),
            Some(_) | None => return Err("a piece in its stream belongs to no part of the answer".to_owned()),
        }
        Ok(())
    }

    /// The counts of later events stand for those of earlier ones.
    fn count(&mut self, usage: Option<Value>) {
        if let Some(Value::Object(usage)) = usage {
            let counts = usage.into_iter().filter(|(name, count)| COUNTS.contains(&name.as_str()) && count.is_number());
            self.usage.extend(counts);
        }
    }

    /// The answer, when its last event has come.
    pub(super) fn whole(self) -> Parsed {
        if let Some(error) = self.error {
            return (Err(NoAnswer::Told { kind: error.kind, message: error.message }), None);
        }
        let usage = Some(Value::Object(self.usage)).filter(|usage| usage != &json!({}));
        let content = self.blocks.into_values().collect();
        (said(self.model, self.stop_reason.as_deref(), content), usage.and_then(counted))
    }
}

fn said(model: Option<String>, stopped: Option<&str>, content: Vec<Value>) -> Result<Completed, NoAnswer> {
    let unreadable = |what: String| Err(NoAnswer::Unreadable(what));
    match stopped {
        Some("end_turn" | "stop_sequence" | "tool_use") => {}
        Some("max_tokens") => return Err(NoAnswer::Cut),
        Some("model_context_window_exceeded") => return Err(NoAnswer::ContextFull),
        Some("refusal") => {
            return Err(NoAnswer::Refused(FinishReason::Refusal, "the model declined".to_owned()));
        }
        Some("pause_turn") => return Err(NoAnswer::Paused),
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
    let arguments = match said.remove("input") {
        // As it was streamed.
        Some(Value::String(text)) => text,
        Some(Value::Null) | None => String::new(),
        Some(input) => input.to_string(),
    };
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

/// An event of a stream.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Event {
    #[serde(rename = "message_start")]
    Start { message: Begun },
    #[serde(rename = "content_block_start")]
    BlockStart { content_block: Value, index: u64 },
    #[serde(rename = "content_block_delta")]
    BlockDelta { delta: BlockDelta, index: u64 },
    #[serde(rename = "message_delta")]
    Delta { delta: Stopped, usage: Option<Value> },
    #[serde(rename = "message_stop")]
    Stop,
    #[serde(rename = "error")]
    Error { error: ApiError },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Begun {
    model: Option<String>,
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct Stopped {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum BlockDelta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Input { partial_json: String },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct ApiError {
    #[serde(default)]
    message: String,
    #[serde(rename = "type")]
    kind: String,
}
