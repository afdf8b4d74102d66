//! Functions that every process has, for first steps and for trying out policies.

use aetheris_core::event::Failure;
use aetheris_core::json::Json;
use aetheris_runtime::ports::ToolOutcome;
use serde_json::{Value, json};

use crate::toolbox::FunctionCall;

type Builtin = fn(&FunctionCall) -> ToolOutcome;

/// The built-ins by name.
pub(crate) const NAMES: &[(&str, Builtin)] = &[
    ("builtin.echo", |call| ToolOutcome::Done(call.input.clone())),
    ("builtin.fail", fail),
    ("builtin.hash", |call| ToolOutcome::Done(json!({ "sha256": call.input.hash().to_string() }).into())),
    ("builtin.noop", |_| ToolOutcome::Done(Json::null())),
];

/// Refuses as its input says: `{code?, message?, retryable?}`.
fn fail(call: &FunctionCall) -> ToolOutcome {
    let text = |name, otherwise| call.input.get(name).and_then(Value::as_str).unwrap_or(otherwise);
    let error = Failure::new(text("code", "failed"), text("message", "builtin.fail was asked to fail"));
    match call.input.get("retryable").and_then(Value::as_bool) {
        Some(true) => ToolOutcome::RefusedRetryable { error, retry_after: None },
        Some(false) | None => ToolOutcome::RefusedPermanent(error),
    }
}
