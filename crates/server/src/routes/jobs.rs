//! Jobs, one and many.

use aetheris_api::{ChildList, ErrorCode, JobList, JobView, Raw};
use aetheris_core::id::{AgentName, JobId, SessionId};
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::time::Timestamp;
use aetheris_runtime::OpError;
use aetheris_store::{JobFilter, JobRow};
use axum::extract::State;
use serde::Serialize;

use super::answers::{Common, NoJob};
use crate::answer::{self, Answer};
use crate::error::Failure;
use crate::params::{Gone, JobPath, Params};
use crate::reading::AnswerSlot;
use crate::state::{App, Shared};
use crate::{follow, outline, view};

const PAGE_DEFAULT: usize = 50;
/// About what one step takes in an answer.
const STEP_BYTES: usize = 128;

/// A page of jobs
///
/// Newest first.
#[utoipa::path(get, path = "/api/jobs", tag = "jobs", operation_id = "list_jobs",
    params(
        ("status" = Option<String>, Query,
            pattern = "^ *(pending|running|waiting|parked|completed|failed|cancelled|paused)?( *, *(pending|running|waiting|parked|completed|failed|cancelled|paused)?)* *$",
            description = "In one of these states, separated by commas: pending, running, waiting, parked, \
                           completed, failed, cancelled, paused. May be repeated"),
        ("agent" = Option<String>, Query, min_length = 1, description = "Of this agent"),
        ("session_id" = Option<String>, Query, min_length = 1, description = "Of this conversation"),
        ("label" = Option<String>, Query, pattern = "^$|^[^:=]+[:=]", description = "With this label: `key:value` or `key=value`"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most; 50 by default, never more than 500"),
        ("cursor" = Option<String>, Query, pattern = "^job_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$", description = "`next_cursor` of the page before")),
    responses((status = 200, body = JobList, description = "A page of jobs"), Common))]
pub(super) async fn list(State(app): State<Shared>, mut params: Params) -> Answer {
    let filter = JobFilter {
        agent: params.text("agent")?.map(AgentName::new),
        before: cursor(&mut params)?,
        blocked_on: None,
        label: params.one("label")?.map(|text| label(&text)).transpose()?,
        limit: params.limit(PAGE_DEFAULT, limits::PAGE_JOBS_MAX)?,
        scope: app.scope(),
        session: params.text("session_id")?.map(SessionId::new),
        statuses: statuses(&params.all("status"))?,
    };
    params.finish()?;
    let slot = AnswerSlot::begin(&app).await?;
    let page = app.store().jobs(filter).await?;
    let generation = generation(&app, page.jobs.iter()).await?;
    let jobs = page.jobs.iter().map(|row| view::job_row(row, generation)).collect();
    slot.ok(&JobList { jobs, next_cursor: page.next.map(|job| job.to_string()) }).await
}

/// One job
///
/// With its message, its steps and, when it has ended, its result or error.
#[utoipa::path(get, path = "/api/jobs/{id}", tag = "jobs", operation_id = "get_job",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("wait" = Option<String>, Query, pattern = "^[0-9]{1,9}(us|ms|s|m|h|d)$",
            description = "Answer when the job has ended, or when this time is over; at most 60s")),
    responses((status = 200, body = JobView, description = "The job"), Common, NoJob))]
pub(super) async fn get(State(app): State<Shared>, JobPath(job): JobPath, mut params: Params, gone: Gone) -> Answer {
    let wait = params.wait()?;
    params.finish()?;
    if let Some(wait) = wait {
        let place = app.follower()?;
        follow::until_ended(&app, place, job, wait, &gone).await?.ok_or(OpError::JobNotFound(job))?;
    }
    let (mut outlined, slot) = outline::read(&app, job).await?;
    let plan = app.plan(outlined.state().followed_plan()).await?;
    let result = outlined.result(app.store()).await?;
    let steps = outlined.state().steps.len() * STEP_BYTES;
    let bytes = outlined.message().text().len() + result.text().len() + steps;
    let generation = generation(&app, std::iter::once(&outlined.row)).await?;
    let kept = app.store().kept(app.scope(), job).await?;
    let make = move || {
        let view = view::job(&outlined, plan.as_deref(), (generation, &kept));
        let ended_at = outlined.state().ended_at;
        answer::encoded(&Shown { ended_at, message: outlined.message(), result: &result, view: &view })
    };
    slot.made(bytes, make).await
}

/// The children of a job
///
/// The jobs that its steps have asked for, in the order in which they were created. A child that has not been created yet appears
/// only at its step (`steps.*.child`).
#[utoipa::path(get, path = "/api/jobs/{id}/children", tag = "jobs", operation_id = "list_children",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most; 50 by default, never more than 500"),
        ("cursor" = Option<String>, Query, pattern = "^job_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$", description = "`next_cursor` of the page before")),
    responses((status = 200, body = ChildList, description = "A page of children"), Common, NoJob))]
pub(super) async fn children(State(app): State<Shared>, JobPath(job): JobPath, mut params: Params) -> Answer {
    let (after, limit) = (cursor(&mut params)?, params.limit(PAGE_DEFAULT, limits::PAGE_JOBS_MAX)?);
    params.finish()?;
    let slot = AnswerSlot::begin(&app).await?;
    let store = app.store();
    store.job(app.scope(), job).await?.ok_or(OpError::JobNotFound(job))?;
    let page = store.children(app.scope(), job, after, limit).await?;
    let generation = generation(&app, page.children.iter().map(|child| &child.row)).await?;
    let children = page.children.iter().map(|child| view::child(child, generation)).collect();
    slot.ok(&ChildList { children, next_cursor: page.next.map(|job| job.to_string()) }).await
}

/// The number of the store's life, which only paused jobs are compared with: nobody else pays for the question.
pub(super) async fn generation(app: &App, mut rows: impl Iterator<Item = &JobRow>) -> Result<u32, Failure> {
    if rows.any(|row| row.paused.is_some()) { Ok(app.store().status().await?.generation) } else { Ok(0) }
}

/// A job with what lists leave out: when it ended, its message and its result, these as their text.
#[derive(Serialize)]
struct Shown<'a> {
    ended_at: Option<Timestamp>,
    message: &'a Raw,
    result: &'a Raw,
    #[serde(flatten)]
    view: &'a JobView,
}

/// The place where a page begins.
pub(super) fn cursor(params: &mut Params) -> Result<Option<JobId>, Failure> {
    params.read("cursor", "the `next_cursor` of an earlier page")
}

fn label(text: &str) -> Result<(String, String), Failure> {
    let split = text.find(limits::LABEL_SEPARATORS).filter(|at| *at > 0);
    let (key, value) = split.map(|at| (&text[..at], &text[at + 1..])).ok_or_else(|| {
        Failure::new(
            ErrorCode::InvalidRequest,
            format!("query: `label` is `{text}`; expected `key:value` or `key=value`"),
        )
    })?;
    Ok((key.to_owned(), value.to_owned()))
}

fn statuses(texts: &[String]) -> Result<Vec<JobStatus>, Failure> {
    let names = texts
        .iter()
        .flat_map(|text| text.split(','))
        .map(|name| name.trim_matches(' '))
        .filter(|name| !name.is_empty());
    let status = |name| {
        JobStatus::parse(name).ok_or_else(|| {
            let known = JobStatus::ALL.map(JobStatus::as_str).join(", ");
            Failure::invalid(format!("query: `status` names `{name}`; expected one of {known}"))
        })
    };
    names.map(status).collect()
}
