//! Fake models: they answer by rule, and count.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aetheris_core::event::{Failure, FinishReason, ToolAsked, Usage};
use aetheris_runtime::{Heard, ModelAnswer, ModelError, ModelRequest, Models};
use aetheris_store::Boxed;
use serde_json::Value;

use crate::reply::LATENCY;

type Rule = dyn Fn(&ModelRequest) -> Option<ModelReply> + Send + Sync;

/// What a fake model does with a question.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    after: Duration,
    usage: Option<Usage>,
    what: Said,
}

#[derive(Debug, Clone, PartialEq)]
enum Said {
    Calls(String, Vec<ToolAsked>),
    Never,
    Nothing { retryable: bool, why: String },
    Text(String),
}

impl ModelReply {
    fn of(what: Said) -> Self {
        Self { after: LATENCY, usage: None, what }
    }

    /// It says this. Texts are replies by themselves; so is a JSON value, whose text it says.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(Said::Text(text.into()))
    }

    /// It says this, and asks for these calls: the name that it calls, and the arguments, as a model writes them.
    #[must_use]
    pub fn calls<'c>(text: impl Into<String>, calls: impl IntoIterator<Item = (&'c str, Value)>) -> Self {
        let call = |(place, (name, input)): (usize, (&str, Value))| ToolAsked {
            arguments: input.as_str().map_or_else(|| input.to_string(), str::to_owned),
            id: format!("c{place}"),
            name: name.to_owned(),
            provider: None,
            tool: None,
        };
        Self::of(Said::Calls(text.into(), calls.into_iter().enumerate().map(call).collect()))
    }

    /// It asks for these calls, as they are.
    #[must_use]
    pub fn asking(calls: Vec<ToolAsked>) -> Self {
        Self::of(Said::Calls(String::new(), calls))
    }

    /// It gives no answer now, and may later.
    #[must_use]
    pub fn overloaded(why: &str) -> Self {
        Self::of(Said::Nothing { retryable: true, why: why.to_owned() })
    }

    /// It gives no answer, now or ever.
    #[must_use]
    pub fn refused(why: &str) -> Self {
        Self::of(Said::Nothing { retryable: false, why: why.to_owned() })
    }

    /// It says nothing until the question's timeout.
    #[must_use]
    pub fn never_answers() -> Self {
        Self::of(Said::Never)
    }

    /// Takes so long (a millisecond otherwise), at most the question's timeout.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self { after: duration, ..self }
    }

    /// Used so many tokens of the question and of the answer: for tests of budgets. Words are counted
    /// otherwise.
    #[must_use]
    pub fn using(self, prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self { usage: Some(Usage { completion_tokens, prompt_tokens, ..Usage::default() }), ..self }
    }
}

impl From<&str> for ModelReply {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for ModelReply {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<Value> for ModelReply {
    fn from(value: Value) -> Self {
        Self::text(value.to_string())
    }
}

#[derive(Default)]
struct Book {
    asked: Vec<ModelRequest>,
    in_flight: usize,
    rules: Vec<Arc<Rule>>,
}

/// Models that answer by the first rule that fits, in the order in which rules were given. A question that
/// none fits gets an error that trying again does not help. Clones share their books.
#[derive(Clone, Default)]
pub struct FakeModels(Arc<Mutex<Book>>);

impl fmt::Debug for FakeModels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeModels").field("rules", &self.book().rules.len()).finish_non_exhaustive()
    }
}

impl FakeModels {
    /// No models.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers by a function of the question; `None` leaves it to the next rule.
    #[must_use]
    pub fn rule(self, rule: impl Fn(&ModelRequest) -> Option<ModelReply> + Send + Sync + 'static) -> Self {
        self.book().rules.push(Arc::new(rule));
        self
    }

    /// Answers every question with this.
    #[must_use]
    pub fn always(self, reply: impl Into<ModelReply>) -> Self {
        let reply = reply.into();
        self.rule(move |_| Some(reply.clone()))
    }

    /// Answers questions whose prompt has this text in it.
    #[must_use]
    pub fn when_asked(self, text: &str, reply: impl Into<ModelReply>) -> Self {
        let (text, reply) = (text.to_owned(), reply.into());
        self.rule(move |request| request.prompt.contains(&text).then(|| reply.clone()))
    }

    /// Answers questions to this model (`provider/model`).
    #[must_use]
    pub fn for_model(self, model: &str, reply: impl Into<ModelReply>) -> Self {
        let (model, reply) = (model.to_owned(), reply.into());
        self.rule(move |request| (request.model == model).then(|| reply.clone()))
    }

    /// Answers questions with these in turn; when all are given, leaves it to the next rule.
    #[must_use]
    pub fn in_turn<R: Into<ModelReply>>(self, replies: impl IntoIterator<Item = R>) -> Self {
        let replies: Vec<ModelReply> = replies.into_iter().map(Into::into).collect();
        let left = Mutex::new(replies.into_iter());
        self.rule(move |_| left.lock().unwrap_or_else(PoisonError::into_inner).next())
    }

    /// Every question, oldest first.
    #[must_use]
    pub fn asked(&self) -> Vec<ModelRequest> {
        self.book().asked.clone()
    }

    /// How many questions were asked.
    #[must_use]
    pub fn count(&self) -> usize {
        self.book().asked.len()
    }

    /// How many questions have no answer yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.book().in_flight
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question is in flight until its answer is there, or its asker is gone.
struct InFlight<'m>(&'m FakeModels);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.book().in_flight -= 1;
    }
}

impl Models for FakeModels {
    fn complete<'a>(&'a self, request: ModelRequest, heard: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>> {
        Box::pin(async move {
            let rules = {
                let mut book = self.book();
                book.asked.push(request.clone());
                book.in_flight += 1;
                book.rules.clone()
            };
            let _in_flight = InFlight(self);
            let none = || ModelReply::refused(&format!("the test has no answer for the prompt `{}`", request.prompt));
            let reply = rules.iter().find_map(|rule| rule(&request)).unwrap_or_else(none);
            let said = if reply.after > request.timeout { Said::Never } else { reply.what };
            let wait = if said == Said::Never { request.timeout } else { reply.after };
            tokio::time::sleep(wait).await;
            let failed = |code: &str, why: String, retryable| Err(ModelError::new(Failure::new(code, why), retryable));
            match said {
                Said::Never => failed("timeout", format!("no answer within {} ms", wait.as_millis()), true),
                Said::Nothing { retryable, why } => failed("model_refused", why, retryable),
                said @ (Said::Text(_) | Said::Calls(..)) => {
                    let (text, calls) = match said {
                        Said::Calls(text, calls) => (text, calls),
                        Said::Text(text) => (text, Vec::new()),
                        Said::Never | Said::Nothing { .. } => Default::default(),
                    };
                    let words = |text: &str| u64::try_from(text.split_whitespace().count()).unwrap_or(u64::MAX);
                    let asked = words(&request.prompt) + request.system.as_deref().map_or(0, words);
                    let counted = Usage { completion_tokens: words(&text), prompt_tokens: asked, ..Usage::default() };
                    let usage = reply.usage.unwrap_or(counted);
                    let finish = if calls.is_empty() { FinishReason::End } else { FinishReason::Tool };
                    heard(&text);
                    Ok(ModelAnswer { calls, finish, model: request.model, text, usage })
                }
            }
        })
    }

    fn knows(&self, _model: &str) -> Result<(), String> {
        Ok(())
    }
}
