//! The dialect of chat completions, as OpenAI has made it and most servers speak it.

use std::collections::BTreeMap;

use aetheris_core::event::{FinishReason, ToolAsked, Usage};
use aetheris_core::json::Json;
use aetheris_core::plan::AnswerFormat;
use aetheris_runtime::ports::{Heard, ModelRequest, PastCall, PastTurn, ToolOffer};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::endpoint::{Completed, NoAnswer, Parsed, arguments_of, called_name, left_over, of_object};
use super::stream::Step;

/// The data of the last event of a stream.
const DONE: &str = "[DONE]";
/// Calls that one answer may ask for, whatever the runtime takes of them.
const CALLS_MAX: usize = 1_024;

/// Reads an answer.
pub(super) fn read(body: &[u8]) -> Parsed {
    let completion: Completion = match serde_json::from_slice(body) {
        Ok(completion) => completion,
        Err(error) => return (Err(NoAnswer::Foreign(format!("what is not a chat completion: {error}"))), None),
    };
    if let Some(error) = completion.error {
        return (Err(told(error)), None);
    }
    let counted = completion.usage.and_then(counted);
    (said(completion.model, completion.choices), counted)
}

/// An error that stands in an answer whose status says that all is well.
fn told(error: Value) -> NoAnswer {
    let text = |name: &str| match error.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let kinds = ["type", "code"].map(text);
    let kind = kinds.into_iter().filter(|kind| !kind.is_empty()).collect::<Vec<_>>().join(" ");
    let message = error.as_str().map_or_else(|| text("message"), str::to_owned);
    NoAnswer::Told { kind, message }
}

/// A streamed answer, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    calls: Vec<Map<String, Value>>,
    /// Which call the pieces of an index belong to.
    places: BTreeMap<u64, usize>,
    content: Option<String>,
    error: Option<Value>,
    finish_reason: Option<String>,
    model: Option<String>,
    refusal: Option<String>,
    /// About how many bytes it has.
    pub(super) size: usize,
    usage: Option<Value>,
}

impl Pieces {
    /// Takes in the data of one event.
    pub(super) fn take(&mut self, data: &str, heard: Heard<'_>) -> Result<Step, String> {
        if data.trim() == DONE {
            // Without a reason it was cut off, whatever ends the stream.
            let whole = self.finish_reason.is_some() || self.error.is_some();
            return if whole { Ok(Step::Last) } else { Err("the stream ended without a finish reason".to_owned()) };
        }
        let chunk: Chunk =
            serde_json::from_str(data).map_err(|error| format!("a chunk of its stream cannot be read: {error}"))?;
        if chunk.error.is_some() {
            self.error = chunk.error;
            return Ok(Step::Last);
        }
        self.model = chunk.model.filter(|model| !model.is_empty()).or(self.model.take());
        self.usage = chunk.usage.filter(|usage| !usage.is_null()).or(self.usage.take());
        // One choice is asked for.
        if let Some(choice) = chunk.choices.into_iter().find(|choice| choice.index.unwrap_or(0) == 0) {
            let reason = choice.finish_reason.filter(|reason| !reason.is_empty());
            self.finish_reason = reason.or(self.finish_reason.take());
            self.grow(choice.delta.unwrap_or_default(), heard)?;
        }
        Ok(Step::More)
    }

    fn grow(&mut self, delta: Delta, heard: Heard<'_>) -> Result<(), String> {
        if let Some(text) = delta.content.filter(|text| !text.is_empty()) {
            heard(&text);
            self.size += text.len();
            self.content.get_or_insert_default().push_str(&text);
        }
        if let Some(text) = delta.refusal {
            self.size += text.len();
            self.refusal.get_or_insert_default().push_str(&text);
        }
        for call in delta.tool_calls.unwrap_or_default() {
            let Value::Object(call) = call else { return Err("a call in its stream cannot be read".to_owned()) };
            self.grow_call(call);
            if self.calls.len() > CALLS_MAX {
                return Err(format!("it asks for more than {CALLS_MAX} calls"));
            }
        }
        Ok(())
    }

    /// A piece of a call: its arguments grow, all else is said once. A function's name with an id of its own begins a call, also
    /// where servers say no index, or the same one for each.
    fn grow_call(&mut self, mut piece: Map<String, Value>) {
        let index = piece.remove("index").as_ref().and_then(Value::as_u64).unwrap_or(0);
        let id = piece.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let names = piece.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
        // Some servers give every piece an id of its own.
        let id = id.filter(|_| names.is_some_and(|name| !name.is_empty()));
        let known = self.places.get(&index).copied().filter(|place| {
            let own = self.calls.get(*place).and_then(|call| call.get("id")).and_then(Value::as_str);
            id.is_none() || own.is_none() || own == id
        });
        let place = known.unwrap_or(self.calls.len());
        if known.is_none() {
            self.calls.push(Map::new());
            self.places.insert(index, place);
        }
        let Some(call) = self.calls.get_mut(place) else { return };
        let function = match piece.remove("function") {
            Some(Value::Object(function)) => function,
            Some(_) | None => Map::new(),
        };
        let known = call.entry("function").or_insert_with(|| Value::Object(Map::new()));
        for (name, value) in function {
            let is_text = value.as_str().is_some_and(|text| !text.is_empty()) || name == "arguments";
            match (name.as_str(), &mut known[name.as_str()], value) {
                ("arguments", Value::String(known), Value::String(more)) => {
                    self.size += more.len();
                    known.push_str(&more);
                }
                (_, place @ Value::Null, value) if is_text || !value.is_string() => {
                    self.size += name.len() + value.to_string().len();
                    *place = value;
                }
                _ => {}
            }
        }
        for (name, value) in piece.into_iter().filter(|(_, value)| !value.is_null() && value.as_str() != Some("")) {
            if !call.contains_key(&name) {
                self.size += name.len() + value.to_string().len();
                call.insert(name, value);
            }
        }
    }

    /// The answer, when its last event has come.
    pub(super) fn whole(self) -> Parsed {
        if let Some(error) = self.error {
            return (Err(told(error)), None);
        }
        let calls: Vec<Value> = self.calls.into_iter().map(Value::Object).collect();
        let tool_calls = Some(calls).filter(|calls| !calls.is_empty());
        let message = Message { content: self.content, refusal: self.refusal, tool_calls };
        let choice = Choice { finish_reason: self.finish_reason, message };
        (said(self.model, vec![choice]), self.usage.and_then(counted))
    }
}

/// What it said, if it said all of it, and the calls that it asks for.
fn said(model: Option<String>, choices: Vec<Choice>) -> Result<Completed, NoAnswer> {
    let unreadable = |what: &str| NoAnswer::Unreadable(what.to_owned());
    let choice = choices.into_iter().next().ok_or_else(|| unreadable("without a choice"))?;
    match choice.finish_reason.map(|reason| reason.to_ascii_lowercase()).as_deref() {
        // Some servers say nothing of a whole answer, and some name what ended it.
        None
        | Some("" | "stop" | "tool_calls" | "function_call" | "stop_sequence" | "eos" | "eos_token" | "end_turn") => {}
        Some("length" | "model_length") => return Err(NoAnswer::Cut),
        Some("content_filter") => return Err(NoAnswer::Refused(FinishReason::Filtered, "content filter".to_owned())),
        Some(other) => {
            return Err(NoAnswer::Unreadable(format!("and stopped for an unsupported reason: `{other}`")));
        }
    }
    if let Some(refusal) = choice.message.refusal.filter(|refusal| !refusal.is_empty()) {
        return Err(NoAnswer::Refused(FinishReason::Refusal, refusal));
    }
    let calls = choice.message.tool_calls.unwrap_or_default();
    let calls = calls.into_iter().map(call_asked).collect::<Option<Vec<ToolAsked>>>();
    let calls = calls.ok_or_else(|| unreadable("a call of a tool that cannot be read"))?;
    let text = choice.message.content.unwrap_or_default();
    if text.is_empty() && calls.is_empty() {
        return Err(unreadable("without content"));
    }
    Ok(Completed { calls, model, text })
}

pub(super) fn body(model: &str, request: &ModelRequest, stream: bool) -> Value {
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
    let mut body = json!({ "messages": messages, "model": model, "stream": stream });
    if stream {
        body["stream_options"] = json!({ "include_usage": true });
    }
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
    let parameters = of_object(tool.input_schema.as_ref());
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
        let (id, name, arguments) =
            (&call.asked.id, called_name(&call.asked.name), arguments_of(&call.asked).to_string());
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
    Some(ToolAsked { arguments, id, name, provider: left_over(said), tool: None })
}

/// What the endpoint has counted. None where it cannot be read: an answer that was paid for is not asked again for that.
fn counted(usage: Value) -> Option<Usage> {
    // As everywhere, `5.0` is the integer 5.
    let usage = Json::new(usage);
    let count = |name: &str| usage.as_object()?.get(name).map_or(Some(0), Value::as_u64);
    // Both stand inside the counts beside them; whoever does not tell them is not asked again for that.
    let detail = |of: &str, name: &str| usage.get(of).and_then(|of| of.get(name)).and_then(Value::as_u64).unwrap_or(0);
    Some(Usage {
        cached_tokens: detail("prompt_tokens_details", "cached_tokens"),
        completion_tokens: count("completion_tokens")?,
        prompt_tokens: count("prompt_tokens")?,
        reasoning_tokens: detail("completion_tokens_details", "reasoning_tokens"),
    })
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Vec<Choice>,
    error: Option<Value>,
    model: Option<String>,
    usage: Option<Value>,
}

/// A piece of a completion.
#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<ChoicePiece>,
    error: Option<Value>,
    model: Option<String>,
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct ChoicePiece {
    delta: Option<Delta>,
    finish_reason: Option<String>,
    index: Option<u64>,
}

#[derive(Deserialize, Default)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Value>>,
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
