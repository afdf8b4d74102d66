//! Models that answer by rule: for tests, first steps and the demonstration, without a network.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aetheris_core::event::{FinishReason, ToolAsked, Usage};
use aetheris_core::json::Json;
use aetheris_core::plan::AnswerFormat;
use aetheris_runtime::ports::{Heard, ModelAnswer, ModelError, ModelRequest};
use serde_json::{Value, json};

/// The provider's name.
pub(super) const SCRIPTED: &str = "scripted";

/// What a prompt says that asks for a decision.
const QUESTION: &str = "approve or reject";

/// The built-in scripts: `echo` answers with the prompt; `approve` and `reject` with their names;
/// `refund` with `approve` where the prompt asks to "approve or reject", else with the prompt; `tools` calls each tool that it is
/// told of, one after the other, with the prompt where that is a JSON object, and then answers with the last result.
const BUILT_IN: [&str; 5] = ["approve", "echo", "refund", "reject", "tools"];

/// What a scripted model says: a text, and the calls that it asks for.
type ScriptedAnswer = (String, Vec<ToolAsked>);
type Rule = dyn Fn(&ModelRequest) -> Result<ScriptedAnswer, ModelError> + Send + Sync;

/// How a scripted model answers. The answer to a request for JSON is made JSON: a text that is none is
/// quoted. Usage counts words.
#[derive(Clone)]
pub struct Script(Arc<Rule>);

impl Script {
    /// Answers by a function of the request.
    pub fn rule(rule: impl Fn(&ModelRequest) -> Result<String, ModelError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |request| rule(request).map(|text| (text, Vec::new()))))
    }

    /// Answers by a function of the request, with calls of tools by their names and arguments.
    pub fn calling(
        rule: impl Fn(&ModelRequest) -> Result<(String, Vec<(String, Json)>), ModelError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |request| {
            let (text, calls) = rule(request)?;
            Ok((text, calls.into_iter().map(|(name, input)| asked(&name, &input)).collect()))
        }))
    }

    /// Gives these answers in turn, over all jobs together, and the last of them for ever.
    pub fn replies(replies: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let replies: Vec<String> = replies.into_iter().map(Into::into).collect();
        let next = AtomicUsize::new(0);
        Self::rule(move |_| {
            let turn = next.fetch_add(1, Ordering::Relaxed).min(replies.len().saturating_sub(1));
            Ok(replies.get(turn).cloned().unwrap_or_default())
        })
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

/// The scripts by name, beside the built-in ones.
#[derive(Debug, Default)]
pub(super) struct Scripts(BTreeMap<String, Script>);

impl Scripts {
    pub(super) fn insert(&mut self, name: String, script: Script) {
        self.0.insert(name, script);
    }

    pub(super) fn knows(&self, name: &str) -> Result<(), String> {
        if self.0.contains_key(name) || BUILT_IN.contains(&name) {
            return Ok(());
        }
        let names = super::listed(self.0.keys().map(String::as_str).chain(BUILT_IN));
        Err(format!("there is no scripted model `{name}`; there are: {names}"))
    }

    pub(super) fn complete(
        &self,
        name: &str,
        request: &ModelRequest,
        heard: Heard<'_>,
    ) -> Result<ModelAnswer, ModelError> {
        let (text, calls) = match self.0.get(name) {
            Some(Script(rule)) => rule(request)?,
            None => built_in(name, request),
        };
        let text = match request.format {
            AnswerFormat::Json if Json::parse(text.as_bytes()).is_err() => Value::String(text).to_string(),
            AnswerFormat::Json | AnswerFormat::Text => text,
        };
        let turns =
            request.turns.iter().flat_map(|turn| turn.calls.iter().map(|call| &call.result).chain([&turn.text]));
        let asked = request.system.as_deref().map_or(0, words) + words(&request.prompt);
        let asked = turns.map(|text| words(text)).fold(asked, u64::saturating_add);
        let usage = Usage { completion_tokens: words(&text), prompt_tokens: asked, ..Usage::default() };
        heard(&text);
        let finish = if calls.is_empty() { FinishReason::End } else { FinishReason::Tool };
        Ok(ModelAnswer { calls, finish, model: request.model.clone(), text, usage })
    }
}

fn built_in(name: &str, request: &ModelRequest) -> ScriptedAnswer {
    let prompt = &request.prompt;
    let text = match name {
        "approve" | "reject" => name.to_owned(),
        "refund" if prompt.to_lowercase().contains(QUESTION) => "approve".to_owned(),
        "tools" => return each_tool(request),
        _ => prompt.to_owned(),
    };
    (text, Vec::new())
}

/// Calls the next tool, as long as there is one.
fn each_tool(request: &ModelRequest) -> ScriptedAnswer {
    let next = request.tools.get(request.turns.len()).filter(|_| request.may_call);
    let input = Json::parse(request.prompt.as_bytes()).ok().filter(|input| input.is_object());
    match next {
        Some(tool) => (String::new(), vec![asked(&tool.name, &input.unwrap_or_else(|| Json::new(json!({}))))]),
        None => {
            let last = request.turns.iter().rev().find_map(|turn| turn.calls.last());
            (last.map_or_else(|| request.prompt.clone(), |call| call.result.clone()), Vec::new())
        }
    }
}

fn asked(name: &str, input: &Json) -> ToolAsked {
    ToolAsked { arguments: input.to_string(), id: String::new(), name: name.to_owned(), provider: None, tool: None }
}

pub(super) fn words(text: &str) -> u64 {
    u64::try_from(text.split_whitespace().count()).unwrap_or(u64::MAX)
}
