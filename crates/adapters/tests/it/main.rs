//! The adapters against servers of this process that answer, refuse, break off and stall to order.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod functions;
mod models;
mod peer;
mod reach;
mod streams;
mod table;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aetheris_adapters::Toolbox;
use aetheris_core::event::Failure;
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::ledger::PermitNumber;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, HttpTool, Tool, ToolKind};
use aetheris_runtime::ports::{ToolCall, ToolOutcome, Tools};
use serde_json::{Value, json};

/// Long enough never to be reached.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a test that wants a timeout waits for.
const SHORT: Duration = Duration::from_millis(250);

const CLASSES: [EffectClass; 3] = [EffectClass::Pure, EffectClass::Idempotent, EffectClass::AtMostOnce];

fn http(method: &str, url: impl Into<String>) -> HttpTool {
    HttpTool {
        body: None,
        headers: BTreeMap::new(),
        method: method.to_owned(),
        refused_statuses: BTreeSet::new(),
        url: url.into(),
    }
}

fn call_of(effect: EffectClass, kind: ToolKind, input: Value) -> ToolCall {
    let (job, node) = (JobId::from_u128(7), StepPath::from("send"));
    ToolCall {
        agent: "refund".into(),
        fence: Fence { generation: 3, epoch: 11 },
        input: Json::new(input),
        job,
        key: IdempotencyKey::derive(job, &node, 0),
        node,
        permit: Some(PermitNumber { generation: 3, number: 2 }),
        session: None,
        timeout: PATIENCE,
        tool: Arc::new(Tool::new(effect, kind)),
        tool_name: "shop.send".into(),
        try_number: 2,
    }
}

fn http_call(effect: EffectClass, tool: HttpTool) -> ToolCall {
    call_of(effect, ToolKind::Http(tool), json!({ "id": "o-1", "cents": 1250 }))
}

/// Tools that may reach this machine.
fn dev() -> Toolbox {
    Toolbox::builder().allow_loopback().build().unwrap()
}

async fn ask(effect: EffectClass, tool: HttpTool) -> ToolOutcome {
    dev().call(http_call(effect, tool)).await
}

/// The kind of an outcome, in the words of the ledger.
fn kind(outcome: &ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Done(_) => "done",
        ToolOutcome::NotSent { permanent: true, .. } => "not sent, permanent",
        ToolOutcome::NotSent { permanent: false, .. } => "not sent",
        ToolOutcome::RefusedRetryable { .. } => "refused for now",
        ToolOutcome::RefusedPermanent(_) => "refused",
        ToolOutcome::Unknown { timeout: true, .. } => "unknown, timeout",
        ToolOutcome::Unknown { timeout: false, .. } => "unknown",
    }
}

fn failure(outcome: &ToolOutcome) -> &Failure {
    match outcome {
        ToolOutcome::Done(output) => panic!("it succeeded with {output}"),
        ToolOutcome::NotSent { error, .. }
        | ToolOutcome::RefusedRetryable { error, .. }
        | ToolOutcome::RefusedPermanent(error)
        | ToolOutcome::Unknown { error, .. } => error,
    }
}
