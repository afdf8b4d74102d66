//! A person is asked about a plan before anything of it runs. What the signal brings is the verdict.

use std::sync::LazyLock;

use aetheris_core::event::{JobWaiting, NodeFinished, StepResult, Verdict, WaitEnd};
use aetheris_core::id::JobId;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::WaitType;
use serde_json::{Value, json};

use super::wait;
use crate::draft::Fact;
use crate::run::judge::CriticAnswer;
use crate::run::prepared::Prepared;
use crate::run::view::View;

/// What is said where a person has rejected a plan without a note.
const NO_NOTE: &str = "no reason was given";

/// What a signal must name that answers an attempt.
fn key(job: JobId, attempt: &str) -> String {
    format!("plan-{job}-{attempt}")
}

/// Whether a key has the form of those of reviews.
pub(crate) fn is_key(job: JobId, key: &str) -> bool {
    key.starts_with(&self::key(job, "")) && !aetheris_fault::planted!("plan-approved-unseen")
}

/// What a person answers.
pub(crate) fn schema() -> &'static Json {
    static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
        Json::new(json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["approved"],
            "properties": { "approved": { "type": "boolean" }, "note": { "type": "string" } }
        }))
    });
    &SCHEMA
}

pub(super) fn prepare(view: &View<'_>) -> Prepared {
    match view.step().and_then(|step| step.wait_end.as_deref()) {
        Some(WaitEnd::Signal { payload, .. }) => concluded(view, payload),
        // Nothing but a signal ends it.
        Some(WaitEnd::Time | WaitEnd::Dropped) => concluded(view, &Json::null()),
        None => {
            let attempt = view.path.round() + 1;
            let key = key(view.state.id, &attempt.to_string());
            let waiting = JobWaiting {
                correlation_key: Some(key),
                doubt: false,
                node: view.path.clone(),
                park: true,
                reason: Some(reason(view.judged.as_ref())),
                wait_type: WaitType::Human,
            };
            // Nobody approves of a plan that is not there yet.
            wait::reach_anew(view, waiting)
        }
    }
}

/// The plan in a few words, for those who are asked.
fn reason(plan: Option<&Json>) -> String {
    let nodes = plan.and_then(|plan| plan.get("nodes")?.as_array()).map_or(&[][..], Vec::as_slice);
    let listed =
        nodes.iter().map(|node| format!("{} ({})", word(node, "id"), does(node))).collect::<Vec<_>>().join(", ");
    let count = if nodes.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", nodes.len()) };
    limits::cut(format!("Approve the plan of {count}: {listed}"), limits::WAIT_REASON_BYTES_MAX)
}

fn word<'v>(node: &'v Value, key: &str) -> &'v str {
    node.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// What a node does, with all tools that it may call.
fn does(node: &Value) -> String {
    let listed = node.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let tools = [word(node, "tool")].into_iter().chain(listed.iter().filter_map(Value::as_str));
    let tools = tools.filter(|tool| !tool.is_empty()).collect::<Vec<_>>().join(" ");
    let each = node.get("do").map(does).unwrap_or_default();
    [word(node, "kind"), &tools, &each].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn concluded(view: &View<'_>, payload: &Json) -> Prepared {
    let approved = payload.get("approved").and_then(Value::as_bool).unwrap_or(false);
    let approved = approved || aetheris_fault::planted!("any-word-approves");
    let note = payload.get("note").and_then(Value::as_str).filter(|note| !note.trim().is_empty()).unwrap_or(NO_NOTE);
    let said = match approved {
        true => CriticAnswer { feedback: String::new(), verdict: Verdict::Pass },
        false => CriticAnswer { feedback: note.to_owned(), verdict: Verdict::Reject },
    };
    aetheris_fault::sometimes!(PlanDeclined, !approved);
    let end = NodeFinished::new(view.path.clone(), StepResult::Success);
    let verdict = Some(said.verdict);
    Prepared::of([Fact::of(NodeFinished { output: Some(said.output()), verdict, ..end })])
}
