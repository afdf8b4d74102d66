//! The dialect of chat completions, as OpenAI has made it and most servers speak it.

use aetheris_core::event::{ToolAsked, Usage};
use aetheris_core::json::Json;
use aetheris_core::plan::AnswerFormat;
use aetheris_runtime::ports::{ModelRequest, PastCall, PastTurn, ToolOffer};
use serde::Deserialize;
use serde_json::{Value, json};

use super::endpoint::{Completed, NoAnswer, Parsed, arguments_of, called_name, left_over, of_object};

/// Reads an answer.
pub(super) fn read(body: &[u8]) -> Parsed {
    let completion: Completion = match serde_json::from_slice(body) {
        Ok(completion) => completion,
        Err(error) => return (Err(NoAnswer::Foreign(format!("what is not a chat completion: {error}"))), None),
    };
    let counted = completion.usage.and_then(counted);
    (said(completion.model, completion.choices), counted)
}

/// What it said, if it said all of it, and the calls that it asks for.
fn said(model: Option<String>, choices: Vec<Choice>) -> Result<Completed, NoAnswer> {
    let unreadable = |what: &str| NoAnswer::Unreadable(what.to_owned());
    let choice = choices.into_iter().next().ok_or_else(|| unreadable("without a choice"))?;
    match choice.finish_reason.as_deref() {
        Some("length") => return Err(NoAnswer::Cut),
        Some("content_filter") => return Err(NoAnswer::Refused("content filter".to_owned())),
        _ => {}
    }
    if let Some(refusal) = choice.message.refusal {
        return Err(NoAnswer::Refused(refusal));
    }
    let calls = choice.message.tool_calls.unwrap_or_default();
    let calls = calls.into_iter().map(call_asked).collect::<Option<Vec<ToolAsked>>>();
    let calls = calls.ok_or_else(|| unreadable("a call of a tool that cannot be read"))?;
    match choice.message.content {
        Some(text) => Ok(Completed { calls, model, text }),
        None if calls.is_empty() => Err(unreadable("without content")),
        None => Ok(Completed { calls, model, text: String::new() }),
    }
}

pub(super) fn body(model: &str, request: &ModelRequest) -> Value {
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
