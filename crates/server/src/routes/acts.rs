//! What is done to a job.

use aetheris_api::{
    AfterNo, CancelAnswer, ErrorCode, Outcome, PauseResult, Raw, ResolveAnswer, ResolveRequest, ResumeResult,
    SignalRequest, SignalResult, SignalStatus,
};
use aetheris_core::event::EndCause;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_runtime::OpError;
use aetheris_runtime::ops::{Cancelled, PauseAnswer, Resolution, Resolved, ResumeAnswer, Signal, SignalAnswer, Then};
use aetheris_runtime::room::Held;
use axum::extract::State;
use axum::http::StatusCode;

use super::answers::{Common, Conflict, NoInvocation, NoJob, TooLarge};
use crate::answer::{self, Answer};
use crate::body::{self, Whole};
use crate::error::Failure;
use crate::params::{Begins, InvocationPath, JobPath, Params};
use crate::state::{App, Shared};

/// Signal a job
///
/// Ends the wait whose correlation key it names. May be repeated for ever: the payload that ended the wait counts.
#[utoipa::path(post, path = "/api/jobs/{id}/signal", tag = "people", operation_id = "signal_job",
    params(("id" = String, Path, description = "The job's id")),
    request_body = SignalRequest,
    responses(
        (status = 200, body = SignalResult, description = "Delivered, now or before"),
        (status = 202, body = SignalResult, description = "Kept for a wait that the job has not reached"),
        Common, NoJob, Conflict, TooLarge))]
pub(super) async fn signal(
    State(app): State<Shared>,
    _begins: Begins,
    JobPath(job): JobPath,
    params: Params,
    body: Whole,
) -> Answer {
    params.finish()?;
    let (request, _room) = body.taken::<SignalRequest>()?;
    let payload = match &request.payload {
        Some(payload) => Some(body::value(&app, "payload", payload).await?),
        None => None,
    };
    let correlation_key = request.correlation_key.filter(|key| !key.is_empty()).ok_or_else(|| {
        Failure::new(ErrorCode::MissingCorrelationKey, "correlation_key: a signal names the wait that it ends")
    })?;
    let (payload, _held) = payload.ok_or_else(|| {
        Failure::invalid("payload: a signal must have one; write null if it carries nothing. Nothing was delivered")
    })?;
    let signal = Signal { correlation_key, payload, wait_type: request.wait_type };
    let (code, status, payload_matches) = match app.runtime().signal(job, signal).await? {
        SignalAnswer::Delivered => (StatusCode::OK, SignalStatus::Delivered, true),
        SignalAnswer::AlreadyDelivered { payload_matches } => {
            (StatusCode::OK, SignalStatus::AlreadyDelivered, payload_matches)
        }
        SignalAnswer::Kept { payload_matches } => (StatusCode::ACCEPTED, SignalStatus::Kept, payload_matches),
    };
    answer::json(code, &SignalResult { payload_matches, status })
}

/// Cancel a job
///
/// At once where nobody holds it; else its holder is asked to end it.
#[utoipa::path(post, path = "/api/jobs/{id}/cancel", tag = "jobs", operation_id = "cancel_job",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, body = CancelAnswer, description = "It was cancelled before"),
        (status = 202, body = CancelAnswer, description = "It is cancelled, or its holder is asked to end it"),
        Common, NoJob, Conflict, TooLarge))]
pub(super) async fn cancel(State(app): State<Shared>, JobPath(job): JobPath, params: Params, body: Whole) -> Answer {
    params.finish()?;
    body.nothing()?;
    let (code, status, end_requested) = match app.runtime().cancel(job).await? {
        Cancelled::Already => (StatusCode::OK, JobStatus::Cancelled, None),
        Cancelled::Now => (StatusCode::ACCEPTED, JobStatus::Cancelled, None),
        Cancelled::Requested => (StatusCode::ACCEPTED, JobStatus::Running, Some(EndCause::Cancel)),
    };
    answer::json(code, &CancelAnswer { end_requested, status })
}

/// Pause a job
///
/// At once where nobody holds it; else its holder is asked to let it go: it waits for an `at_most_once` call that is under
/// way and drops every other, which is made again after the resume. A signal, a timer or an answer to a doubt is
/// recorded while it is paused, and its deadline still ends it.
#[utoipa::path(post, path = "/api/jobs/{id}/pause", tag = "jobs", operation_id = "pause_job",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, body = PauseResult, description = "It was paused before"),
        (status = 202, body = PauseResult, description = "It is paused, or its holder is asked to let it go"),
        Common, NoJob, Conflict, TooLarge))]
pub(super) async fn pause(State(app): State<Shared>, JobPath(job): JobPath, params: Params, body: Whole) -> Answer {
    params.finish()?;
    body.nothing()?;
    let (code, status, end_requested) = match app.runtime().pause(job).await? {
        PauseAnswer::Already => (StatusCode::OK, JobStatus::Paused, None),
        PauseAnswer::Now => (StatusCode::ACCEPTED, JobStatus::Paused, None),
        PauseAnswer::Requested => (StatusCode::ACCEPTED, JobStatus::Running, Some(EndCause::Pause)),
    };
    answer::json(code, &PauseResult { end_requested, status })
}

/// Resume a paused job
///
/// It goes back to its wait, or is pending where it has none or its wait ended meanwhile.
#[utoipa::path(post, path = "/api/jobs/{id}/resume", tag = "jobs", operation_id = "resume_job",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, body = ResumeResult, description = "It was not paused"),
        (status = 202, body = ResumeResult, description = "It goes on"),
        Common, NoJob, Conflict, TooLarge))]
pub(super) async fn resume(
    State(app): State<Shared>,
    _begins: Begins,
    JobPath(job): JobPath,
    params: Params,
    body: Whole,
) -> Answer {
    params.finish()?;
    body.nothing()?;
    let (code, status) = match app.runtime().resume(job).await? {
        ResumeAnswer::Already(status) => (StatusCode::OK, status),
        ResumeAnswer::Now(status) => (StatusCode::ACCEPTED, status),
    };
    answer::json(code, &ResumeResult { status })
}

/// Answer a doubt
///
/// An operator says whether a call whose outcome is unknown has happened. That it has not is accepted only when the
/// call can no longer arrive (409 `too_early` with `accepted_from` before), or when the other side refuses it.
#[utoipa::path(post, path = "/api/jobs/{id}/in-doubt/{invocation}", tag = "people", operation_id = "resolve_in_doubt",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("invocation" = String, Path, description = "The invocation, as the in-doubt list has it")),
    request_body = ResolveRequest,
    responses(
        (status = 200, body = ResolveAnswer, description = "The same answer was recorded before"),
        (status = 202, body = ResolveAnswer, description = "Recorded; after the job's end it is kept with the job"),
        Common, NoInvocation, Conflict, TooLarge))]
pub(super) async fn resolve(
    State(app): State<Shared>,
    _begins: Begins,
    InvocationPath(job, invocation): InvocationPath,
    params: Params,
    body: Whole,
) -> Answer {
    params.finish()?;
    let (request, _room) = body.taken::<ResolveRequest>()?;
    let outcome = request.outcome;
    let (happened, _held) = happened(&app, &request).await?.unzip();
    let permit = request.permit;
    if request.refused && outcome == Outcome::Happened {
        return Err(Failure::invalid("refused: belongs to `did_not_happen`"));
    }
    let then = match (outcome, request.then) {
        (Outcome::Happened, Some(_)) => return Err(Failure::invalid("then: what happened is not tried again")),
        (_, None | Some(AfterNo::Retry)) => Then::Retry,
        (_, Some(AfterNo::Fail)) => Then::Fail,
    };
    let resolution = Resolution { happened, note: request.note, permit, refused: request.refused, then };
    let code = match app.runtime().resolve(job, invocation, resolution).await? {
        Resolved::Recorded => StatusCode::ACCEPTED,
        Resolved::Already => StatusCode::OK,
    };
    answer::json(code, &ResolveAnswer { invocation, outcome, status: status(&app, job).await? })
}

/// The result of what happened, with room for it.
async fn happened(app: &App, request: &ResolveRequest) -> Result<Option<(Json, Held)>, Failure> {
    match (request.outcome, &request.result) {
        (Outcome::Happened, None) => Ok(Some(body::value(app, "result", &Raw::default()).await?)),
        (Outcome::Happened, Some(result)) => body::value(app, "result", result).await.map(Some),
        (Outcome::DidNotHappen, None) => Ok(None),
        (Outcome::DidNotHappen, Some(_)) => Err(Failure::invalid("result: what did not happen has no result")),
    }
}

async fn status(app: &App, job: JobId) -> Result<JobStatus, Failure> {
    Ok(app.store().job(app.scope(), job).await?.ok_or(OpError::JobNotFound(job))?.status)
}
