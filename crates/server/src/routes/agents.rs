//! Agents.

use std::sync::Arc;

use aetheris_agentfile::FileError;
use aetheris_api::{AgentList, AgentPut, AgentView, ErrorCode, ProblemError, schema};
use aetheris_core::agent::Agent;
use aetheris_core::id::AgentName;
use aetheris_core::limits;
use aetheris_store::NewAgent;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::answers::{BadAgent, Common, NoAgent, TooLarge};
use crate::answer::{self, Answer};
use crate::body::Whole;
use crate::error::Failure;
use crate::params::{AgentPath, Params};
use crate::reading::AnswerSlot;
use crate::state::{AgentProblem, Shared};
use crate::view;

/// A page of agents
///
/// By name, without their files.
#[utoipa::path(get, path = "/api/agents", tag = "agents", operation_id = "list_agents",
    params(
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most; 500 by default, and never more"),
        ("cursor" = Option<String>, Query, min_length = 1, description = "`next_cursor` of the page before")),
    responses((status = 200, body = AgentList, description = "The agents"), Common))]
pub(super) async fn list(State(app): State<Shared>, mut params: Params) -> Answer {
    let limit = params.limit(limits::PAGE_JOBS_MAX, limits::PAGE_JOBS_MAX)?;
    let after = params.text("cursor")?.map(AgentName::new);
    params.finish()?;
    let slot = AnswerSlot::begin(&app).await?;
    let page = app.store().agents(app.tenant(), after, limit).await?;
    let agents = page.agents.iter().map(|row| view::agent(row, false)).collect();
    slot.ok(&AgentList { agents, next_cursor: page.next.map(|name| name.to_string()) }).await
}

/// One agent
///
/// With its file as it was put.
#[utoipa::path(get, path = "/api/agents/{agent}", tag = "agents", operation_id = "get_agent",
    params(("agent" = String, Path, description = "The agent's name")),
    responses((status = 200, body = AgentView, description = "The agent"), Common, NoAgent))]
pub(super) async fn get(State(app): State<Shared>, AgentPath(name): AgentPath, params: Params) -> Answer {
    params.finish()?;
    let slot = AnswerSlot::begin(&app).await?;
    let row =
        app.store().agent(app.tenant(), name.clone()).await?.ok_or_else(|| Failure::no_such_agent(name.as_str()))?;
    slot.ok(&view::agent(&row, true)).await
}

/// Put an agent
///
/// The body is the agent's file, YAML or JSON, of any content type. Its name must be the path's. Jobs
/// that exist keep the version they were planned with.
#[utoipa::path(put, path = "/api/agents/{agent}", tag = "agents", operation_id = "put_agent",
    params(("agent" = String, Path, description = "The agent's name")),
    request_body(
        content((schema::AgentFile = "application/json"), (schema::AgentFile = "application/yaml")),
        description = "The agent's file"),
    responses(
        (status = 200, body = AgentPut, description = "It is in place of the earlier one"),
        (status = 201, body = AgentPut, description = "It is there; there was none of that name"),
        Common, TooLarge, BadAgent))]
pub(super) async fn put(State(app): State<Shared>, AgentPath(name): AgentPath, params: Params, body: Whole) -> Answer {
    params.finish()?;
    let (file, room) = body.into_parts();
    if file.len() > limits::AGENT_FILE_BYTES_MAX {
        let bound = limits::AGENT_FILE_BYTES_MAX;
        let message = format!("the file is larger than the {bound} bytes that are accepted");
        return Err(Failure::new(ErrorCode::PayloadTooLarge, message));
    }
    let source = String::from_utf8(file).map_err(|_| mistake("syntax", "", "the file is not UTF-8 text"))?;
    let busy = || Failure::new(ErrorCode::Overloaded, "too many agent files are being read; try again later");
    let place = app.agent_files.take(1, limits::ANSWER_PATIENCE).await.ok_or_else(busy)?;
    // Reading a large file takes a while; other requests go on meanwhile.
    let read = tokio::task::spawn_blocking(move || {
        // Also when nobody waits for the answer any more.
        let _held = (place, room);
        (aetheris_agentfile::parse(&source), source)
    });
    let (agent, source) = read.await.map_err(|_| Failure::new(ErrorCode::Internal, "the file cannot be read"))?;
    let agent = agent.map_err(|errors| mistakes(&errors))?;
    check(&app, &name, &agent, &source)?;
    let agent = Arc::new(agent);
    let put = app.store().put_agent(NewAgent { agent: Arc::clone(&agent), source, tenant: app.tenant() }).await?;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    answer::json(status, &AgentPut { agent: agent.agent.clone(), hash: put.hash, version: agent.version.clone() })
}

/// Delete an agent
///
/// Its jobs go on with the plans they have.
#[utoipa::path(delete, path = "/api/agents/{agent}", tag = "agents", operation_id = "delete_agent",
    params(("agent" = String, Path, description = "The agent's name")),
    responses((status = 204, description = "It is gone"), Common, NoAgent))]
pub(super) async fn delete(
    State(app): State<Shared>,
    AgentPath(name): AgentPath,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    if app.store().delete_agent(app.tenant(), name.clone()).await? {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(Failure::no_such_agent(name.as_str()))
    }
}

/// What the file's own checks cannot know: the path, and what this server has.
fn check(app: &Shared, name: &AgentName, agent: &Agent, source: &str) -> Result<(), Failure> {
    if agent.agent != *name {
        let text = format!("the file's agent is `{}`, the path's is `{name}`; they must be the same", agent.agent);
        let (path, line) = aetheris_agentfile::locate(source, &["/agent"]);
        return Err(mistake_at("name_mismatch", (path, line), &text));
    }
    let problems = (app.state.check_agent)(agent);
    if problems.is_empty() {
        return Ok(());
    }
    let error = |problem: AgentProblem| {
        let (path, line) = problem.place(source);
        ProblemError { path, line, code: "not_on_this_server".to_owned(), message: problem.message }
    };
    let mut errors: Vec<_> = problems.into_iter().map(error).collect();
    errors.sort_by_key(|error| error.line);
    Err(Failure::invalid_agent("this server cannot execute the agent", errors))
}

fn mistake(code: &str, path: &str, message: &str) -> Failure {
    mistake_at(code, (path.to_owned(), 1), message)
}

fn mistake_at(code: &str, (path, line): (String, u32), message: &str) -> Failure {
    let error = ProblemError { path, line, code: code.to_owned(), message: message.to_owned() };
    Failure::invalid_agent(message, vec![error])
}

fn mistakes(errors: &[FileError]) -> Failure {
    let error = |error: &FileError| ProblemError {
        path: error.path.clone(),
        line: error.line,
        code: error.code.as_str().to_owned(),
        message: error.message.clone(),
    };
    let count = errors.len();
    let detail = format!("the file has {count} mistake{}", if count == 1 { "" } else { "s" });
    Failure::invalid_agent(detail, errors.iter().map(error).collect())
}
