//! The server itself.

use aetheris_api::{CheckView, LiveView, ReadyView};
use aetheris_core::limits;
use aetheris_store::{FailedWrite, FileHealth, Health, WriterHealth};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use super::answers::Plain;
use crate::answer::{self, Answer};
use crate::state::Shared;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether the process answers
#[utoipa::path(get, path = "/livez", tag = "system", operation_id = "live",
    responses((status = 200, body = LiveView, description = "It does"), Plain))]
pub(super) async fn live() -> Answer {
    answer::ok(&LiveView { live: true, version: VERSION.to_owned() })
}

/// Whether the server can do its work
#[utoipa::path(get, path = "/readyz", tag = "system", operation_id = "ready",
    responses(
        (status = 200, body = ReadyView, description = "It can"),
        (status = 503, body = ReadyView, description = "It cannot; the checks that are not `ok` say why"), Plain))]
pub(super) async fn ready(State(app): State<Shared>) -> Answer {
    let store = match app.store().status().await {
        Ok(status) => Ok(format!("{}: {}", status.backend, status.durability)),
        Err(error) => Err(error.to_string()),
    };
    let mut checks = vec![check("store", store)];
    let mut degraded = Vec::new();
    match app.store().health().await {
        Ok(_) if aetheris_fault::planted!("ready-if-readable") => {}
        Ok(health) => {
            checks.extend(of_store(&health));
            degraded.extend(clock_ahead(&health));
        }
        Err(error) => checks.push(check("writer", Err(error.to_string()))),
    }
    checks.extend(app.state.ready.iter().map(|ready| check(&ready.name, (ready.look)())));
    if app.state.closing.is_cancelled() {
        checks.push(check("server", Err("it is shutting down".to_owned())));
    }
    let ready = checks.iter().all(|check| check.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer::json(status, &ReadyView { checks, degraded, ready })
}

/// The store's parts, one check each.
fn of_store(health: &Health) -> Vec<CheckView> {
    let writer = match health.writer {
        WriterHealth::Answers => Ok("it answers".to_owned()),
        WriterHealth::Silent(patience) => {
            Err(format!("no answer within {patience}: it waits for another process, or hangs"))
        }
        WriterHealth::Gone => Err("it has ended; restart the process".to_owned()),
    };
    let last = |what: &str, failed: &Option<FailedWrite>| match failed {
        None => Ok("no failures since the last success".to_owned()),
        Some(failed) => Err(format!("the last {what} failed {} ago: {}", failed.age.rounded(), failed.error)),
    };
    let mut checks = vec![
        check("writer", writer),
        check("writes", last("write", &health.last_write)),
        check("claims", last("claim", &health.last_claim)),
    ];
    let file = health.file.as_ref().map(|file| match file {
        FileHealth::AsOpened => Ok("the one that was opened".to_owned()),
        FileHealth::Gone => Err("the database file was removed or moved away; put it back and restart".to_owned()),
        FileHealth::Replaced => Err("another file stands where the database was opened; restart".to_owned()),
        FileHealth::Unknown(why) => Err(format!("the database file cannot be looked at: {why}")),
    });
    checks.extend(file.map(|file| check("file", file)));
    checks
}

/// The store's clock goes on from its mark more slowly until the wall clock has caught up: nothing is wrong, but
/// what is due comes late by this much.
fn clock_ahead(health: &Health) -> Option<String> {
    let ahead = health.clock_ahead;
    (ahead > limits::CLOCK_AHEAD_TOLD)
        .then(|| format!("clock_ahead: the store's clock is {} ahead of the wall clock", ahead.rounded()))
}

fn check(name: &str, found: Result<String, String>) -> CheckView {
    let ok = found.is_ok();
    let detail = found.unwrap_or_else(|problem| problem);
    CheckView { detail, name: name.to_owned(), ok }
}

/// This document
#[utoipa::path(get, path = "/api/openapi.json", tag = "system", operation_id = "openapi",
    responses((status = 200, body = Object, content_type = "application/json", description = "OpenAPI 3.1"), Plain))]
pub(super) async fn openapi() -> Response {
    answer::ready_json(Bytes::from_static(include_bytes!("../../openapi.json")))
}

/// The JSON Schema of agent files
#[utoipa::path(get, path = "/api/schema/agent", tag = "agents", operation_id = "agent_schema",
    responses((status = 200, body = Object, content_type = "application/json", description = "JSON Schema 2020-12"), Plain))]
pub(super) async fn agent_schema() -> Answer {
    answer::ok(&aetheris_agentfile::json_schema())
}

/// The JSON Schema of plans
///
/// The form of `plan` in an agent file, and of what a planning model must answer.
#[utoipa::path(get, path = "/api/schema/plan", tag = "agents", operation_id = "plan_schema",
    responses((status = 200, body = Object, content_type = "application/json", description = "JSON Schema 2020-12"), Plain))]
pub(super) async fn plan_schema() -> Answer {
    answer::ok(&aetheris_agentfile::plan_schema(None))
}

/// A page for people who find the server in a browser.
pub(super) async fn front() -> Response {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Aetheris</title>\n<h1>Aetheris {VERSION}</h1>\n\
         <p>A durable execution runtime for AI agents.</p>\n<ul>\n\
         <li><a href=\"/api/openapi.json\">/api/openapi.json</a>: every call</li>\n\
         <li><a href=\"/api/schema/agent\">/api/schema/agent</a>: the form of agent files</li>\n\
         <li><a href=\"/api/schema/plan\">/api/schema/plan</a>: the form of plans</li>\n\
         <li><a href=\"/api/agents\">/api/agents</a>, <a href=\"/api/jobs\">/api/jobs</a>, \
         <a href=\"/api/waits\">/api/waits</a>, <a href=\"/api/in-doubt\">/api/in-doubt</a></li>\n\
         <li><a href=\"/readyz\">/readyz</a>: whether the server can do its work</li>\n</ul>\n</html>\n"
    );
    answer::typed(StatusCode::OK, HeaderValue::from_static("text/html; charset=utf-8"), page)
}
