//! Plain steps: pure tools and models. No permission is asked; the result is recorded once, and after a
//! crash before that the body runs again.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::{Failure, ModelRecord, StepResult};
use aetheris_core::id::{IdempotencyKey, ToolName};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{AnswerFormat, LlmNode, Node};
use aetheris_core::retry::OnTimeout;
use aetheris_store::Purpose;

use super::step::TryFailed;
use super::{Lease, Run, Stop, Turn};
use crate::Runtime;
use crate::aside::rendered;
use crate::draft::Rebased;
use crate::passing::pass;
use crate::ports::{MODEL_TIMED_OUT, ModelRequest, ToolCall, ToolOutcome, is_own_want};

impl Run<'_> {
    pub(super) async fn call_pure(&mut self, node: &Node, name: &ToolName, input: &Json) -> Result<Turn, Stop> {
        let input = match rendered(&self.names, |texts| texts.value(input)) {
            Ok(input) => input,
            Err(error) => return self.fail_template(node, "its input", &error),
        };
        self.start(node)?;
        if self.write_before(name).await? == Rebased::Cut {
            return Ok(Turn::Go);
        }
        let Some(call) = self.tool_call(node, name, input) else {
            return Err(Stop::Fault(Failure::new("unknown_tool", format!("the plan has no tool `{name}`"))));
        };
        self.require_safe_lease().await?;
        aetheris_fault::crash_point!("run.pure.before_call");
        let began = self.rt.system.clock.boot();
        let Some(outcome) = self.perform_shown(call).await? else {
            return Ok(Turn::Go);
        };
        aetheris_fault::crash_point!("run.pure.after_call");
        self.answered |= self.leaves(name);
        let took = self.took_since(began);
        let on_timeout = self.plan.retry_of(node).on_timeout;
        let failed = match outcome {
            ToolOutcome::Done(output) => return self.succeed_within_bounds(node, output, took),
            ToolOutcome::NotSent { error, .. } if is_own_want(&error) => {
                self.wait_to_leave(node, &error).await;
                return Ok(Turn::Go);
            }
            ToolOutcome::NotSent { error, permanent } => failed(error, None, !permanent),
            ToolOutcome::RefusedRetryable { error, retry_after } => failed(error, retry_after, true),
            ToolOutcome::RefusedPermanent(error) => failed(error, None, false),
            ToolOutcome::Unknown { error, retry_after, timeout } => {
                failed(error, retry_after, !(timeout && on_timeout == OnTimeout::Fail))
            }
        };
        self.after_failure(node, TryFailed { took_us: Some(took), ..failed }).await
    }

    /// Calls a pure tool. If it takes longer than [`limits::START_SHOWN_AFTER`] and the step's start is not written
    /// yet, that is written while it runs, so that people see what the job is doing. `None` when the run was
    /// interrupted, or the start could not be kept: the body then counts for nothing, and is run again.
    async fn perform_shown(&mut self, call: ToolCall) -> Result<Option<ToolOutcome>, Stop> {
        let limit = awaited(call.timeout);
        let mut body = std::pin::pin!(call_cancellable(self.rt, self.lease, call, limit));
        tokio::select! {
            biased;
            outcome = body.as_mut() => return Ok(outcome),
            () = tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()) => {}
        }
        if self.draft.is_empty() {
            return Ok(body.await);
        }
        aetheris_fault::sometimes!(StartShown);
        // A write that ends the run ends the body with it.
        let (written, outcome) = tokio::try_join!(self.flush(Purpose::Record), async { Ok::<_, Stop>(body.await) })?;
        Ok(outcome.filter(|_| written == Rebased::Whole))
    }

    fn took_since(&self, began: Duration) -> u64 {
        u64::try_from(self.rt.system.clock.boot().saturating_sub(began).as_micros()).unwrap_or(u64::MAX)
    }

    /// This process alone lacks something that the call needs: nobody's failure, and no try. Waits before the step is
    /// looked at again, each time longer up to a bound.
    pub(super) async fn wait_to_leave(&mut self, node: &Node, error: &Failure) {
        let before = self.wanting.take().filter(|(wanting, _)| *wanting == node.id).map_or(0, |(_, times)| times);
        self.wanting = Some((node.id.clone(), before.saturating_add(1)));
        let pause = limits::OWN_WANT_PAUSE.to_std() * 2u32.pow(before.min(limits::OWN_WANT_DOUBLINGS_MAX));
        tracing::warn!(job = %self.state().id, node = %node.id, error = %error.message, "a call could not leave; trying again");
        tokio::select! {
            biased;
            () = self.lease.interrupted() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    fn succeed_within_bounds(&mut self, node: &Node, output: Json, took: u64) -> Result<Turn, Stop> {
        match Json::checked(output.value().clone()) {
            Ok(output) => self.succeed_after(node, StepResult::Pure, output, None, Some(took)),
            Err(error) => {
                let failure = Failure::new("result_refused", format!("the tool's result cannot be recorded: {error}"));
                self.fail_step(node, failure, StepResult::PermanentFailure, None)?;
                Ok(Turn::Go)
            }
        }
    }

    /// A call with everything that travels with it.
    pub(super) fn tool_call(&self, node: &Node, name: &ToolName, input: Json) -> Option<ToolCall> {
        let tool = self.plan.tool(name)?;
        let state = self.state();
        Some(ToolCall {
            agent: state.agent.clone(),
            fence: self.lease.fence,
            input,
            job: state.id,
            key: self.key_sent(node),
            node: node.id.clone(),
            permit: None,
            session: state.session.clone(),
            timeout: self.timeout_of(node),
            tool: Arc::new(tool.clone()),
            tool_name: name.clone(),
            try_number: state.steps.get(&node.id).map_or(1, |step| step.tries),
        })
    }

    /// The key that the tool is sent: the ledger's.
    fn key_sent(&self, node: &Node) -> IdempotencyKey {
        if aetheris_fault::planted!("recall-with-new-key") {
            let tries = self.state().steps.get(&node.id).map_or(1, |step| step.tries);
            return IdempotencyKey::derive(self.state().id, &node.id, tries.saturating_sub(1));
        }
        self.key_of(node)
    }

    pub(super) async fn ask_model(&mut self, node: &Node, llm: &LlmNode) -> Result<Turn, Stop> {
        let request = match self.model_request(node, llm) {
            Ok(request) => request,
            Err(error) => return self.fail_template(node, "its prompt", &error),
        };
        self.start(node)?;
        // A model takes seconds: the start is written even where it comes first, so that people see it.
        if self.flush(Purpose::Record).await? == Rebased::Cut {
            return Ok(Turn::Go);
        }
        self.require_safe_lease().await?;
        let (prompt_hash, began) = (prompt_hash(&request), self.rt.system.clock.boot());
        let again_after_timeout = self.plan.retry_of(node).on_timeout == OnTimeout::Retry;
        let limit = awaited(request.timeout);
        aetheris_fault::crash_point!("run.model.before_call");
        let answer = tokio::select! {
            biased;
            answer = self.rt.models.complete(request) => answer,
            () = self.lease.interrupted() => return Ok(Turn::Go),
            () = pass(self.rt.system.clock.as_ref(), limit) => {
                return self.after_failure(node, failed(overdue_failure(limit), None, again_after_timeout)).await;
            }
        };
        aetheris_fault::crash_point!("run.model.after_call");
        self.answered = true;
        let took = self.took_since(began);
        match answer {
            Err(e) if is_own_want(&e.error) => {
                self.wait_to_leave(node, &e.error).await;
                Ok(Turn::Go)
            }
            Err(e) => {
                let model = e.usage.map(|usage| ModelRecord { model: llm.model.clone(), prompt_hash, usage });
                let retryable = e.retryable && (again_after_timeout || e.error.code != MODEL_TIMED_OUT);
                let failed = failed(e.error, e.retry_after, retryable);
                self.after_failure(node, TryFailed { model, took_us: Some(took), ..failed }).await
            }
            Ok(answer) => {
                let record = Some(ModelRecord { model: answer.model, prompt_hash, usage: answer.usage });
                match model_output(llm.format, &answer.text) {
                    Ok(output) => self.succeed_after(node, StepResult::Pure, output, record, Some(took)),
                    Err(error) => {
                        let failed = TryFailed { model: record, took_us: Some(took), ..failed(error, None, true) };
                        self.after_failure(node, failed).await
                    }
                }
            }
        }
    }

    fn model_request(&self, node: &Node, llm: &LlmNode) -> Result<ModelRequest, aetheris_expr::ExprError> {
        let render = |text: &String| rendered(&self.names, |texts| texts.render(text));
        Ok(ModelRequest {
            format: llm.format,
            max_tokens: llm.max_tokens,
            model: llm.model.clone(),
            prompt: render(&llm.prompt)?,
            system: llm.system.as_ref().map(render).transpose()?,
            temperature: llm.temperature,
            timeout: self.timeout_of(node),
        })
    }
}

pub(super) fn failed(error: Failure, retry_after: Option<aetheris_core::time::Span>, retryable: bool) -> TryFailed {
    TryFailed { error, model: None, on_exhaustion: None, retry_after, retryable, took_us: None }
}

/// What is known when an adapter has not kept its own timeout.
pub(super) fn overdue(limit: Duration) -> ToolOutcome {
    ToolOutcome::Unknown { error: overdue_failure(limit), retry_after: None, timeout: true }
}

fn overdue_failure(limit: Duration) -> Failure {
    Failure::new("timeout", format!("no answer within {} ms", limit.as_millis()))
}

fn model_output(format: AnswerFormat, text: &str) -> Result<Json, Failure> {
    match format {
        AnswerFormat::Text if text.len() > limits::PAYLOAD_BYTES_MAX => {
            Err(Failure::new("result_refused", format!("the model's answer has {} bytes", text.len())))
        }
        AnswerFormat::Text => Ok(Json::new(text.into())),
        AnswerFormat::Json => Json::parse(unfenced(text).as_bytes()).map_err(|error| {
            let message =
                format!("the model was asked for JSON, and its answer is not: {error}. It said: {}", quoted(text));
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

fn prompt_hash(request: &ModelRequest) -> aetheris_core::hash::Hash {
    let canonical = serde_json::json!({
        "format": request.format,
        "max_tokens": request.max_tokens,
        "model": request.model,
        "prompt": request.prompt,
        "system": request.system,
        "temperature": request.temperature,
    });
    Json::new(canonical).hash()
}

/// Calls a tool whose call may be dropped, and awaits it for at most so long; `None` when the run was interrupted.
pub(super) async fn call_cancellable(
    rt: &Runtime,
    lease: &Lease,
    call: ToolCall,
    limit: Duration,
) -> Option<ToolOutcome> {
    tokio::select! {
        biased;
        outcome = rt.tools.call(call) => Some(outcome),
        () = lease.interrupted() => None,
        () = pass(rt.system.clock.as_ref(), limit) => Some(overdue(limit)),
    }
}

/// How long a call is awaited that no permission bounds.
pub(super) fn awaited(timeout: Duration) -> Duration {
    timeout + limits::ADAPTER_GRACE.to_std()
}

#[cfg(test)]
mod tests {
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
            let output = model_output(AnswerFormat::Json, text).unwrap();
            assert_eq!(output.to_string(), "{\"a\":1}", "{text}");
        }
        for text in
            ["Here it is:\n```json\n1\n```", "```python\n1\n```", "```json\n1\n``` and more", "```", "```json 1```", ""]
        {
            assert!(model_output(AnswerFormat::Json, text).is_err(), "{text}");
        }
        assert_eq!(model_output(AnswerFormat::Text, "```\n1\n```").unwrap().as_str(), Some("```\n1\n```"));
    }

    #[test]
    fn a_text_is_recorded_up_to_the_bound_of_a_payload() {
        let answer = |bytes: usize| model_output(AnswerFormat::Text, &"x".repeat(bytes));
        assert!(answer(limits::PAYLOAD_BYTES_MAX).is_ok());
        assert_eq!(answer(limits::PAYLOAD_BYTES_MAX + 1).unwrap_err().code, "result_refused");
    }

    /// Two questions have one hash only if a model is asked the same in every part.
    #[test]
    fn whatever_a_model_is_asked_is_in_the_hash_of_the_question() {
        let asked = ModelRequest {
            format: AnswerFormat::Text,
            max_tokens: Some(1),
            model: "m".to_owned(),
            prompt: "p".to_owned(),
            system: Some("s".to_owned()),
            temperature: Some(0.5),
            timeout: Duration::from_secs(1),
        };
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
        ];
        let hashes: std::collections::BTreeSet<_> = others.iter().chain([&asked]).map(prompt_hash).collect();
        assert_eq!(hashes.len(), others.len() + 1);
    }

    #[test]
    fn an_answer_that_is_not_json_is_shown() {
        let said = |text: &str| model_output(AnswerFormat::Json, text).unwrap_err().message;
        assert!(said("I cannot\n\tdo that").ends_with("It said: I cannot do that"), "{}", said("I cannot\n\tdo that"));
        assert!(said(" ").ends_with("It said: nothing"));
        for long in ["é".repeat(1_000_000), "word ".repeat(100_000)] {
            let said = said(&long);
            assert!(said.ends_with('…') && said.chars().count() < limits::MODEL_WORDS_QUOTED_MAX + 200, "{said:.80}");
        }
    }
}
