//! Bounds on the memory of replays and verifications: of large jobs, one is folded at a time, and the answers of
//! their replays share one room.

use aetheris_api::ErrorCode;
use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_runtime::OpError;
use aetheris_store::{ErrorKind, Glance, StoreError};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::Failure;
use crate::state::Shared;

/// A place to fold a job whose history is long. Any other needs none.
///
/// # Errors
/// There was none for a while, no such job, or the store cannot be asked.
pub(crate) async fn place(app: &Shared, job: JobId) -> Result<Option<OwnedSemaphorePermit>, Failure> {
    match app.store().glance(app.scope(), job).await {
        Ok(Some(Glance::Short(_))) => Ok(None),
        Ok(None) => Err(OpError::JobNotFound(job).into()),
        // What cannot be read is a finding, and may be long.
        Ok(Some(Glance::Long)) | Err(StoreError { kind: ErrorKind::Corrupt, .. }) => {
            let place = app.large_replays.take(1, limits::ANSWER_PATIENCE).await;
            place.map(Some).ok_or_else(busy)
        }
        Err(error) => Err(OpError::Store(error).into()),
    }
}

/// Room for the answer of a large replay, which its client gives back by taking the answer.
///
/// # Errors
/// Clients take others too slowly, and there was no room for a while.
pub(crate) async fn answer_room(app: &Shared, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
    app.replay_answers.take(bytes, limits::ANSWER_PATIENCE).await.ok_or_else(busy)
}

fn busy() -> Failure {
    let message = "another large job is being replayed or verified, or its answer is not taken yet; try again later";
    Failure::new(ErrorCode::Overloaded, message)
}
