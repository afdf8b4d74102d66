//! What happened, and whether it still adds up.

use aetheris_api::{ReplayView, TraceView, VerifyView};
use aetheris_core::hash::Hash;
use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_runtime::OpError;
use aetheris_runtime::ops::Replay;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use tokio::runtime::Handle;

use super::answers::{Common, Conflict, NoJob, TooMany};
use crate::answer::{self, Answer};
use crate::error::Failure;
use crate::params::{JobPath, Params};
use crate::reading::{AnswerSlot, aside, counted};
use crate::state::Shared;
use crate::{large, trace, verify};

/// Replay a job
///
/// Folds its events from the first one again and compares the result with what is live. A difference
/// is reported, never repaired. Two jobs are replayed at once; a third request is refused.
#[utoipa::path(get, path = "/api/jobs/{id}/replay", tag = "evidence", operation_id = "replay_job",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = ReplayView, description = "What the fold gives, and whether it is what is live"), Common, NoJob, Conflict, TooMany))]
pub(super) async fn replay(State(app): State<Shared>, JobPath(job): JobPath, params: Params) -> Answer {
    params.finish()?;
    let busy = || Failure::rate_limited("too many replays in progress; try again later");
    // The rarer place first: whoever waits for it keeps nobody from a small job.
    let large = large::place(&app, job).await?;
    let place = app.replays.try_one().ok_or_else(busy)?;
    let (runtime, handle) = (app.runtime().clone(), Handle::current());
    // Folded and written on a thread of its own: a long history is many megabytes.
    let bytes = aside(move || {
        let replay = handle.block_on(runtime.replay(job))?;
        answer::encoded_large(&Replayed::of(&replay))
    });
    let bytes = bytes.await??;
    let room = match large {
        Some(_) => Some(large::answer_room(&app, bytes.len()).await?),
        None => None,
    };
    drop(large);
    let body = counted(bytes, (place, room));
    Ok(answer::typed(StatusCode::OK, answer::JSON, body))
}

/// A [`ReplayView`] whose state is written from where it is.
#[derive(Serialize)]
struct Replayed<'a> {
    differences: &'a [String],
    events: u64,
    live_state_hash: Hash,
    matches: bool,
    state: &'a JobState,
    state_hash: Hash,
}

impl<'a> Replayed<'a> {
    fn of(replay: &'a Replay) -> Self {
        Self {
            differences: &replay.differences,
            events: replay.events,
            live_state_hash: replay.live_state_hash,
            matches: replay.differences.is_empty() && replay.state_hash == replay.live_state_hash,
            state: &replay.state,
            state_hash: replay.state_hash,
        }
    }
}

/// Verify a job
///
/// Recomputes hashes, chain, state, row, timers, ledger and effects from what is stored. Never changes
/// anything.
#[utoipa::path(get, path = "/api/jobs/{id}/verify", tag = "evidence", operation_id = "verify_job",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = VerifyView, description = "What was checked, and what was found"), Common, NoJob, Conflict, TooMany))]
pub(super) async fn verify(State(app): State<Shared>, JobPath(job): JobPath, params: Params) -> Answer {
    params.finish()?;
    let busy = || Failure::rate_limited("too many verifications in progress; try again later");
    let _large = large::place(&app, job).await?;
    let _place = app.replays.take(1, limits::ANSWER_PATIENCE).await.ok_or_else(busy)?;
    let (runtime, handle) = (app.runtime().clone(), Handle::current());
    let checks = aside(move || handle.block_on(verify::job(&runtime, job))).await??;
    answer::ok(&VerifyView { valid: checks.iter().all(|check| check.ok), checks })
}

/// Trace a job
///
/// Its runs, and its steps in the order of the plan with their tries, tools, models and where each
/// result came from.
#[utoipa::path(get, path = "/api/jobs/{id}/trace", tag = "evidence", operation_id = "trace_job",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("bytes" = Option<u64>, Query, minimum = 1, description = "Bytes of the result of a doubt that are given; 2048 by default, never more than 1 MiB")),
    responses((status = 200, body = TraceView, description = "The trace"), Common, NoJob))]
pub(super) async fn trace(State(app): State<Shared>, JobPath(job): JobPath, mut params: Params) -> Answer {
    let bytes = params.bounded("bytes", limits::VALUE_SHOWN_BYTES, limits::PAYLOAD_BYTES_MAX)?;
    params.finish()?;
    let slot = AnswerSlot::begin(&app).await?;
    let row = app.store().job(app.scope(), job).await?.ok_or(OpError::JobNotFound(job))?;
    let mut tracing = trace::Tracing::new(job, bytes);
    while tracing.seq() < row.seq {
        let rows = app.store().events(app.scope(), job, tracing.seq(), limits::PAGE_EVENTS_MAX).await?;
        if rows.is_empty() {
            return Err(OpError::Corrupt(format!("event {} is missing", tracing.seq() + 1)).into());
        }
        let last = row.seq;
        let told = aside(move || {
            let mut page = rows.iter().filter(|event| event.seq <= last);
            page.try_for_each(|event| tracing.push(event)).map(|()| tracing)
        });
        tracing = told.await??;
    }
    let mut effects = Vec::new();
    for (node, key) in tracing.answered_late() {
        effects.extend(app.store().effect(app.scope(), job, key).await?.map(|effect| (node, effect)));
    }
    let (evidence, kept) = (app.store().evidence(app.scope(), job).await?, app.store().kept(app.scope(), job).await?);
    let plan = app.runtime().plans.of_job(app.store(), tracing.state()).await?;
    let view = move || {
        effects.iter().for_each(|(node, effect)| tracing.returned(node, effect));
        answer::encoded(&tracing.view(&row, plan.as_deref(), &evidence, &kept))
    };
    let bytes = aside(view).await??;
    Ok(answer::typed(StatusCode::OK, answer::JSON, slot.hold(bytes).await?))
}

#[cfg(test)]
mod tests {
    use aetheris_core::id::JobId;

    use super::*;

    #[test]
    fn a_replay_matches_where_neither_hash_nor_anything_else_differs() {
        let [one, other] = [Hash::ZERO, Hash::of(b"x")];
        for (live_state_hash, differences, matches) in [
            (one, vec![], true),
            (other, vec![], false),
            (one, vec!["a timer"], false),
            (other, vec!["a timer"], false),
        ] {
            let differences = differences.into_iter().map(str::to_owned).collect();
            let state = JobState::new(JobId::from_u128(1));
            let replay = Replay { differences, events: 7, live_state_hash, state, state_hash: one };
            let view = Replayed::of(&replay);
            assert_eq!((view.matches, view.events), (matches, 7), "{:?}", view.differences);
            assert_eq!((view.state_hash, view.live_state_hash), (one, live_state_hash));
        }
    }
}
