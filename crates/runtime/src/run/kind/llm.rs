//! A question to a model. No permission is asked; the answer is recorded once, and after a crash before that the model is
//! asked again.

use aetheris_core::event::{Failure, ModelParameters, ModelRecord};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{AnswerFormat, LlmNode};
use aetheris_core::retry::OnTimeout;
use aetheris_expr::{ExprError, Scope, Texts};
use serde_json::{Map, Value};

use crate::ports::{MODEL_TIMED_OUT, ModelAnswer, ModelError, ModelRequest, PastCall, PastTurn, ToolOffer};
use crate::run::prepared::{Asked, Body, Next, Prepared, TryFailed};
use crate::run::view::View;
use crate::run::{facts, judge};

pub(super) fn prepare(view: &View<'_>, llm: &LlmNode) -> Prepared {
    match request(view, llm) {
        Ok(request) => facts::start(view).perform(ask(request, llm.format)),
        Err(error) => facts::fail_template(view, "its prompt", &error),
    }
}

/// The question, and what its record will say of it. `format` is how the answer is read.
pub(super) fn ask(request: ModelRequest, format: AnswerFormat) -> Body {
    let (max_tokens, model, temperature) = (request.max_tokens, request.model.clone(), request.temperature);
    let parameters = ModelParameters { format, max_tokens, model, temperature };
    let asked = Asked { parameters, prompt_hash: prompt_hash(&request) };
    Body::Ask(Box::new(request), asked)
}

pub(in crate::run) fn conclude(
    view: &View<'_>,
    schema: Option<&Json>,
    answer: Result<ModelAnswer, ModelError>,
    asked: Asked,
    took: u64,
) -> Prepared {
    let answer = match answer {
        Ok(answer) => answer,
        Err(failed) => return self::failed(view, failed, asked, took),
    };
    let used = Some(used(&answer, &asked));
    match (output(asked.parameters.format, &answer.text), schema) {
        (Ok(output), Some(schema)) => judge::model_said(view, output, used, took, schema),
        (Ok(output), None) => facts::succeed_after(view, output, used, took),
        (Err(error), _) => try_failed(TryFailed::new(error, None, true), used, took),
    }
}

/// What a model is told of the form of its answer.
pub(super) fn form_of(schema: &Json) -> String {
    format!("When you are done, answer with one JSON value that fits this JSON Schema, and with nothing else: {schema}")
}

/// How a provider is asked for an answer with a schema: all of them mean an object by JSON.
pub(super) fn format_for(schema: &Json) -> AnswerFormat {
    let of_objects = schema.get("type").and_then(Value::as_str) == Some("object");
    if of_objects { AnswerFormat::Json } else { AnswerFormat::Text }
}

/// A system text, and behind it the form of the answer.
pub(super) fn with_form(system: Option<String>, schema: Option<&Json>) -> Option<String> {
    match (system, schema.map(form_of)) {
        (Some(own), Some(form)) => Some(format!("{own}\n\n{form}")),
        (own, form) => own.or(form),
    }
}

/// What an answer has used, for the record.
pub(super) fn used(answer: &ModelAnswer, asked: &Asked) -> Box<ModelRecord> {
    let Asked { parameters, prompt_hash } = asked.clone();
    let (finish, model) = (Some(answer.finish), answer.model.clone());
    Box::new(ModelRecord { finish, model, parameters: Some(parameters), prompt_hash, usage: answer.usage })
}

/// There is no answer.
pub(super) fn failed(view: &View<'_>, failed: ModelError, asked: Asked, took: u64) -> Prepared {
    let Asked { parameters, prompt_hash } = asked;
    let again_after_timeout = view.retry().on_timeout == OnTimeout::Retry;
    let retryable = failed.retryable && (again_after_timeout || failed.error.code != MODEL_TIMED_OUT);
    let (finish, model) = (failed.finish, parameters.model.clone());
    let record = |usage| Box::new(ModelRecord { finish, model, parameters: Some(parameters), prompt_hash, usage });
    let used = failed.usage.map(record);
    try_failed(TryFailed::new(failed.error, failed.retry_after, retryable), used, took)
}

pub(super) fn try_failed(failed: TryFailed, used: Option<Box<ModelRecord>>, took: u64) -> Prepared {
    Prepared::default().next(Next::TryFailed(TryFailed { model: used, took_us: Some(took), ..failed }))
}

/// What a model is asked, for people.
///
/// # Errors
/// A text cannot be rendered.
pub(super) fn question(prompt: &str, system: Option<&String>, names: Scope<'_>) -> Result<Json, ExprError> {
    let mut input = Map::new();
    // In the order of the request: what is drawn is given out in it.
    let mut texts = Texts::new(names);
    let prompt = texts.render(prompt)?;
    if let Some(system) = system {
        input.insert("system".to_owned(), Value::from(texts.render(system)?));
    }
    input.insert("prompt".to_owned(), Value::from(prompt));
    Ok(Json::new(Value::Object(input)))
}

fn request(view: &View<'_>, llm: &LlmNode) -> Result<ModelRequest, ExprError> {
    let prompt = view.text(&llm.prompt)?;
    let system = llm.system.as_ref().map(|system| view.text(system)).transpose()?;
    let system = with_form(system, llm.schema.as_ref());
    let format = llm.schema.as_ref().map_or(llm.format, format_for);
    let (max_tokens, temperature) = (llm.max_tokens, llm.temperature);
    let request = ModelRequest::new(&llm.model, prompt, view.timeout());
    Ok(ModelRequest { format, max_tokens, system, temperature, ..request })
}

pub(super) fn output(format: AnswerFormat, text: &str) -> Result<Json, Failure> {
    match format {
        AnswerFormat::Text if text.len() > limits::PAYLOAD_BYTES_MAX => {
            Err(Failure::new("result_refused", format!("the model's answer has {} bytes", text.len())))
        }
        AnswerFormat::Text => Ok(Json::new(text.into())),
        AnswerFormat::Json => Json::parse(unfenced(text).as_bytes()).map_err(|error| {
            let message = format!(
                "the answer must be JSON alone, with no text before or after it: {error}. It said: {}",
                quoted(text)
            );
            Failure::new("model_answer_not_json", message)
        }),
    }
}

/// What stands in the one fenced block that an answer is, as models write it however they are asked; else the
/// answer.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let block = inside.and_then(|inside| inside.split_once('\n')).filter(|(word, _)| {
        let word = word.trim();
        word.is_empty() || word.eq_ignore_ascii_case("json")
    });
    block.map_or(text, |(_, body)| body.trim())
}

/// The beginning of what a model said, on one line.
fn quoted(text: &str) -> String {
    let mut words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let mut shown = String::new();
    for word in words.by_ref() {
        if !shown.is_empty() {
            shown.push(' ');
        }
        shown.push_str(word);
        if let Some((end, _)) = shown.char_indices().nth(limits::MODEL_WORDS_QUOTED_MAX) {
            shown.truncate(end);
            shown.push('…');
            break;
        }
    }
    if shown.is_empty() { "nothing".to_owned() } else { shown }
}

/// Whatever a model is asked is in it; what only conversations have is left out of a message alone.
pub(super) fn prompt_hash(request: &ModelRequest) -> aetheris_core::hash::Hash {
    let mut canonical = serde_json::json!({
        "format": request.format,
        "max_tokens": request.max_tokens,
        "model": request.model,
        "prompt": request.prompt,
        "system": request.system,
        "temperature": request.temperature,
    });
    if !request.tools.is_empty() {
        let tool = |tool: &ToolOffer| serde_json::json!([tool.name, tool.description, tool.input_schema]);
        canonical["tools"] = request.tools.iter().map(tool).collect();
        canonical["may_call"] = request.may_call.into();
    }
    if !request.turns.is_empty() {
        let call = |call: &PastCall| serde_json::json!([call.asked, call.failed, call.result]);
        let calls = |turn: &PastTurn| turn.calls.iter().map(call).collect::<Value>();
        let turn = |turn: &PastTurn| serde_json::json!([turn.text, calls(turn), turn.reply]);
        canonical["turns"] = request.turns.iter().map(turn).collect();
    }
    Json::new(canonical).hash()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aetheris_core::event::ToolAsked;

    use super::*;

    #[test]
    fn a_fenced_answer_is_what_stands_in_the_fence() {
        for text in [
            "{\"a\":1}",
            " {\"a\":1}\n",
            "```json\n{\"a\":1}\n```",
            "```\n{\"a\": 1}```\n",
            "\n```JSON \r\n{\"a\":1}\r\n```",
        ] {
            let output = output(AnswerFormat::Json, text).unwrap();
            assert_eq!(output.to_string(), "{\"a\":1}", "{text}");
        }
        for text in
            ["Here it is:\n```json\n1\n```", "```python\n1\n```", "```json\n1\n``` and more", "```", "```json 1```", ""]
        {
            assert!(output(AnswerFormat::Json, text).is_err(), "{text}");
        }
        assert_eq!(output(AnswerFormat::Text, "```\n1\n```").unwrap().as_str(), Some("```\n1\n```"));
    }

    #[test]
    fn a_text_is_recorded_up_to_the_bound_of_a_payload() {
        let answer = |bytes: usize| output(AnswerFormat::Text, &"x".repeat(bytes));
        assert!(answer(limits::PAYLOAD_BYTES_MAX).is_ok());
        assert_eq!(answer(limits::PAYLOAD_BYTES_MAX + 1).unwrap_err().code, "result_refused");
    }

    /// Two questions have one hash only if a model is asked the same in every part.
    #[test]
    fn whatever_a_model_is_asked_is_in_the_hash_of_the_question() {
        let asked = ModelRequest {
            max_tokens: Some(1),
            system: Some("s".to_owned()),
            temperature: Some(0.5),
            ..ModelRequest::new("m", "p", Duration::from_secs(1))
        };
        let (description, input_schema, name) = (Some("d".to_owned()), Some(Json::new(true.into())), "t".to_owned());
        let tool = ToolOffer { description, input_schema, name };
        let offers = |tool: ToolOffer| ModelRequest { tools: vec![tool], ..asked.clone() };
        let (arguments, id, name) = ("{}".to_owned(), "i".to_owned(), "t".to_owned());
        let wanted = ToolAsked { arguments, id, name, provider: None, tool: None };
        let call = PastCall { asked: wanted.clone(), failed: false, result: "r".to_owned() };
        let turn = PastTurn { calls: vec![call.clone()], reply: Some("no".to_owned()), text: "x".to_owned() };
        let after = |turn: PastTurn| ModelRequest { turns: vec![turn], ..asked.clone() };
        let called = |call: PastCall| after(PastTurn { calls: vec![call], ..turn.clone() });
        let later = ModelRequest { timeout: Duration::from_secs(2), ..asked.clone() };
        assert_eq!(prompt_hash(&later), prompt_hash(&asked), "how long it may take is no part of the question");
        let others = [
            ModelRequest { format: AnswerFormat::Json, ..asked.clone() },
            ModelRequest { max_tokens: Some(2), ..asked.clone() },
            ModelRequest { max_tokens: None, ..asked.clone() },
            ModelRequest { model: "n".to_owned(), ..asked.clone() },
            ModelRequest { prompt: "q".to_owned(), ..asked.clone() },
            ModelRequest { system: Some("t".to_owned()), ..asked.clone() },
            ModelRequest { system: None, ..asked.clone() },
            ModelRequest { temperature: Some(0.6), ..asked.clone() },
            ModelRequest { temperature: None, ..asked.clone() },
            offers(tool.clone()),
            ModelRequest { may_call: true, ..offers(tool.clone()) },
            offers(ToolOffer { description: None, ..tool.clone() }),
            offers(ToolOffer { input_schema: None, ..tool.clone() }),
            offers(ToolOffer { name: "u".to_owned(), ..tool }),
            after(turn.clone()),
            after(PastTurn { calls: Vec::new(), ..turn.clone() }),
            after(PastTurn { reply: None, ..turn.clone() }),
            after(PastTurn { text: "y".to_owned(), ..turn.clone() }),
            called(PastCall { failed: true, ..call.clone() }),
            called(PastCall { result: "s".to_owned(), ..call.clone() }),
            called(PastCall { asked: ToolAsked { arguments: "[]".to_owned(), ..wanted.clone() }, ..call.clone() }),
            called(PastCall { asked: ToolAsked { id: "j".to_owned(), ..wanted.clone() }, ..call.clone() }),
            called(PastCall { asked: ToolAsked { name: "u".to_owned(), ..wanted }, ..call }),
        ];
        let hashes: std::collections::BTreeSet<_> = others.iter().chain([&asked]).map(prompt_hash).collect();
        assert_eq!(hashes.len(), others.len() + 1);
    }

    #[test]
    fn an_answer_that_is_not_json_is_shown() {
        let said = |text: &str| output(AnswerFormat::Json, text).unwrap_err().message;
        assert!(said("I cannot\n\tdo that").ends_with("It said: I cannot do that"), "{}", said("I cannot\n\tdo that"));
        assert!(said(" ").ends_with("It said: nothing"));
        for long in ["é".repeat(1_000_000), "word ".repeat(100_000)] {
            let said = said(&long);
            assert!(said.ends_with('…') && said.chars().count() < limits::MODEL_WORDS_QUOTED_MAX + 200, "{said:.80}");
        }
    }
}
