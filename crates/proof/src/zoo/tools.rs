//! Tools of a scenario: by name, with a log of every body.

use std::sync::{Arc, Mutex, PoisonError};

use aetheris_check::witness::{WitnessKind, WitnessLine};
use aetheris_core::event::{Failure, Usage};
use aetheris_core::json::Json;
use aetheris_core::plan::ToolKind;
use aetheris_core::time::Span;
use aetheris_runtime::ports::{Heard, ModelAnswer, ModelError, ModelRequest, Models, ToolCall, ToolOutcome, Tools};
use aetheris_store::Boxed;
use aetheris_store::system::{Clock, ManualClock};
use serde_json::json;
use tokio::sync::Semaphore;

/// How much time passes before and after a body.
const MOMENT: Span = Span::from_millis(1);

/// | function | what it does |
/// |---|---|
/// | `act` | acts and answers |
/// | `lost` | acts, and its answer is lost |
/// | `refuse` | refuses at the first call, then acts |
/// | `unsent` | does nothing and never answers in the first claim, then acts |
/// | `busy` | refuses, and may accept later |
/// | `broken` | cannot say: a question that fails |
/// | `stale` | in the first claim it answers when it is let go without having acted, then as `held` |
/// | `held` | acts, and answers when it is let go |
/// | `look` | tells a reconciler what the log says |
pub(super) struct Workbench {
    clock: ManualClock,
    /// Bodies that have begun and wait.
    pub(super) begun: Semaphore,
    /// Lets them go on.
    pub(super) gate: Semaphore,
    lines: Mutex<Vec<WitnessLine>>,
}

impl Workbench {
    pub(super) fn new(clock: ManualClock) -> Arc<Self> {
        let (begun, gate) = (Semaphore::new(0), Semaphore::new(0));
        Arc::new(Self { clock, begun, gate, lines: Mutex::default() })
    }

    /// The log so far.
    pub(super) fn lines(&self) -> Vec<WitnessLine> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn log(&self, kind: WitnessKind, call: &ToolCall, acts: bool, result: Option<&Json>) {
        self.clock.advance(MOMENT);
        let line = WitnessLine {
            kind,
            acts,
            at: self.clock.wall(),
            attempt: call.try_number,
            fence: call.fence,
            input_hash: call.input.hash(),
            job: call.job,
            key: call.key,
            node: call.node.clone(),
            permit: call.permit,
            result_hash: result.map(Json::hash),
            tool: call.tool_name.to_string(),
        };
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        self.clock.advance(MOMENT);
    }

    /// Tells that a body has begun, and waits until it is let go.
    async fn hold(&self) {
        self.begun.add_permits(1);
        if let Ok(go) = self.gate.acquire().await {
            go.forget();
        }
    }

    /// Whether the call has acted that a question is about.
    fn has_acted(&self, question: &ToolCall) -> bool {
        let asked = question.input.get("idempotency_key").and_then(serde_json::Value::as_str);
        let key = asked.and_then(|key| key.parse().ok());
        self.lines().iter().any(|line| Some(line.key) == key && line.is_act())
    }

    async fn body(&self, function: &str, call: ToolCall) -> ToolOutcome {
        let result = Json::new(json!({"done": call.node, "input": call.input.value()}));
        match function {
            "look" if self.has_acted(&call) => {
                ToolOutcome::Done(Json::new(json!({"outcome": "happened", "result": result.value()})))
            }
            "look" => ToolOutcome::Done(Json::new(json!({"outcome": "did_not_happen"}))),
            // Killed before anything left; whoever comes later acts.
            "unsent" if call.fence.epoch == 1 => {
                self.begun.add_permits(1);
                std::future::pending().await
            }
            "refuse" if call.try_number == 1 => {
                self.log(WitnessKind::Refused, &call, false, None);
                ToolOutcome::RefusedRetryable { error: Failure::new("busy", "come back"), retry_after: None }
            }
            "busy" => {
                self.log(WitnessKind::Refused, &call, false, None);
                ToolOutcome::RefusedRetryable { error: Failure::new("busy", "come back"), retry_after: None }
            }
            "broken" => ToolOutcome::RefusedPermanent(Failure::new("broken", "no answer")),
            "stale" if call.fence.epoch == 1 => {
                self.hold().await;
                ToolOutcome::Done(Json::new(json!({"stale": true})))
            }
            "lost" => {
                self.log(WitnessKind::BodyStart, &call, true, None);
                let error = Failure::new("timeout", "no answer came");
                ToolOutcome::Unknown { error, retry_after: None, timeout: true }
            }
            other => {
                self.log(WitnessKind::BodyStart, &call, true, None);
                if other == "held" || other == "stale" {
                    self.hold().await;
                }
                self.log(WitnessKind::BodyEnd, &call, true, Some(&result));
                ToolOutcome::Done(result)
            }
        }
    }
}

impl Tools for Workbench {
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome> {
        let function = match &call.tool.kind {
            ToolKind::Function(name) => name.clone(),
            ToolKind::Http(_) | ToolKind::Human(_) => "act".to_owned(),
        };
        Box::pin(async move { self.body(&function, call).await })
    }
}

impl Models for Workbench {
    fn complete<'a>(&'a self, request: ModelRequest, _heard: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>> {
        let answer = ModelAnswer::text(request.model, request.prompt, Usage::default());
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn knows(&self, _model: &str) -> Result<(), String> {
        Ok(())
    }
}
