//! A person is asked about a plan before anything of it runs. What the signal brings is the verdict.

use std::sync::LazyLock;

use aetheris_core::event::{JobWaiting, NodeFinished, StepResult, Verdict, WaitEnd};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::WaitType;
use serde_json::{Value, json};

use super::wait;
use crate::draft::Fact;
use crate::run::judge::CriticAnswer;
use crate::run::prepared::Prepared;
use crate::run::view::View;

/// What is said where a person has rejected a plan and not said why.
const NO_NOTE: &str = "a person rejected the plan and did not say why";

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
    match view.step().and_then(|step| step.wait_end.as_ref()) {
        Some(WaitEnd::Signal { payload, .. }) => concluded(view, payload),
        // Nothing but a signal ends it.
        Some(WaitEnd::Time | WaitEnd::Dropped) => concluded(view, &Json::null()),
        None => {
            let attempt = view.path.round() + 1;
            let waiting = JobWaiting {
                correlation_key: Some(format!("plan-{}-{attempt}", view.state.id)),
                doubt: false,
                node: view.path.clone(),
                park: true,
                reason: Some(reason(view.judged.as_ref())),
                wait_type: WaitType::Human,
            };
            wait::reach(view, waiting, None, Some(schema()))
        }
    }
}

/// The plan in a few words, for those who are asked.
fn reason(plan: Option<&Json>) -> String {
    let nodes = plan.and_then(|plan| plan.get("nodes")?.as_array()).map_or(&[][..], Vec::as_slice);
    let word = |node: &Value, key: &str| node.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let node = |node: &Value| {
        let tool = word(node, "tool");
        let calls = if tool.is_empty() { String::new() } else { format!(" {tool}") };
        format!("{} ({}{calls})", word(node, "id"), word(node, "kind"))
    };
    let listed = nodes.iter().map(node).collect::<Vec<_>>().join(", ");
    let count = if nodes.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", nodes.len()) };
    limits::cut(format!("Approve the plan of {count}: {listed}"), limits::WAIT_REASON_BYTES_MAX)
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
