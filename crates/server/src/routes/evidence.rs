//! What happened, and whether it still adds up.

use aetheris_api::{ReplayView, TraceView, VerifyView};
use aetheris_core::json::Json;
use aetheris_runtime::OpError;
use axum::extract::State;

use super::answers::{Common, Conflict, NoJob};
use crate::answer::{self, Answer};
use crate::error::Failure;
use crate::params::{JobPath, Params};
use crate::state::Shared;
use crate::{trace, verify};

/// Replay a job
///
/// Folds its events from the first one again and compares the result with what is live. A difference
/// is reported, never repaired.
#[utoipa::path(get, path = "/api/jobs/{id}/replay", tag = "evidence", operation_id = "replay_job",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = ReplayView), Common, NoJob, Conflict))]
pub(super) async fn replay(State(app): State<Shared>, JobPath(job): JobPath, params: Params) -> Answer {
    params.finish()?;
    let replay = app.runtime().replay(job).await?;
    let state =
        serde_json::to_value(&replay.state).map_err(|error| Failure::from(OpError::Corrupt(error.to_string())))?;
    answer::ok(&ReplayView {
        matches: replay.differences.is_empty() && replay.state_hash == replay.live_state_hash,
        differences: replay.differences,
        events: replay.events,
        live_state_hash: replay.live_state_hash,
        state: Json::new(state),
        state_hash: replay.state_hash,
    })
}

/// Verify a job
///
/// Recomputes hashes, chain, state, row, timers, ledger and effects from what is stored. Never changes
/// anything.
#[utoipa::path(get, path = "/api/jobs/{id}/verify", tag = "evidence", operation_id = "verify_job",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = VerifyView), Common, NoJob, Conflict))]
pub(super) async fn verify(State(app): State<Shared>, JobPath(job): JobPath, params: Params) -> Answer {
    params.finish()?;
    let checks = verify::job(app.runtime(), job).await?;
    answer::ok(&VerifyView { valid: checks.iter().all(|check| check.ok), checks })
}

/// Trace a job
///
/// Its runs, and its steps in the order of the plan with their tries, tools, models and where each
/// result came from.
#[utoipa::path(get, path = "/api/jobs/{id}/trace", tag = "evidence", operation_id = "trace_job",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = TraceView), Common, NoJob))]
pub(super) async fn trace(State(app): State<Shared>, JobPath(job): JobPath, params: Params) -> Answer {
    params.finish()?;
    let history = app.store().history(job, true).await?.ok_or(OpError::JobNotFound(job))?;
    let evidence = app.store().evidence(job).await?;
    let plan = match history.row.plan_hash {
        Some(hash) => Some(app.runtime().plans.get(app.store(), hash).await?),
        None => None,
    };
    answer::ok(&trace::job(&history, plan.as_deref(), &evidence)?)
}
