//! Jobs that are folded again as a whole: of large ones, one at a time.

use aetheris_api::ErrorCode;
use aetheris_core::event::EventKind;
use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_store::{EventRow, Store, StoreError};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::Failure;
use crate::reading::AnswerSlot;
use crate::state::Shared;

/// A place to fold a job that may be large. A small one needs none.
///
/// # Errors
/// There was none for a while, or the store cannot be asked.
pub(crate) async fn place(app: &Shared, job: JobId) -> Result<Option<OwnedSemaphorePermit>, Failure> {
    let slot = AnswerSlot::begin(app).await?;
    let large = may_be_large(app.store(), job).await?;
    drop(slot);
    if !large {
        return Ok(None);
    }
    let place = app.large_replays.take(1, limits::ANSWER_PATIENCE).await;
    place.map(Some).ok_or_else(busy)
}

/// Room for the answer of a large replay, until it is taken.
///
/// # Errors
/// Clients take others too slowly, and there was no room for a while.
pub(crate) async fn answer(app: &Shared, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
    app.replay_answers.take(bytes, limits::ANSWER_PATIENCE).await.ok_or_else(busy)
}

fn busy() -> Failure {
    let message = "another large job is being replayed or verified, or its answer is not taken yet; try again later";
    Failure::new(ErrorCode::Overloaded, message)
}

/// Whether a job is not small for certain. Its kept signals and its effects are no part of its events, and may be.
async fn may_be_large(store: &dyn Store, job: JobId) -> Result<bool, StoreError> {
    if !store.kept(job).await?.is_empty() {
        return Ok(true);
    }
    let (mut bytes, mut seq) = (0, 0);
    while bytes <= limits::SMALL_JOB_BYTES {
        let rows = store.events(job, seq, limits::PAGE_EVENTS_MAX).await?;
        let Some(newest) = rows.last() else { return Ok(false) };
        seq = newest.seq;
        bytes += rows.iter().map(brought).sum::<usize>();
    }
    Ok(true)
}

/// How many bytes an event has, or stands for.
fn brought(row: &EventRow) -> usize {
    let effect = row.kind == EventKind::CommandCommitted.code();
    row.payload.len() + if effect { limits::PAYLOAD_BYTES_MAX } else { 0 }
}
