//! Answers that may be large: so many are made at once, and so many bytes of them wait for their clients. Whoever
//! finds no place waits a while, without holding anything, and is then told to come again.

use std::sync::Arc;

use aetheris_api::ErrorCode;
use aetheris_core::limits;
use aetheris_core::time::Span;
use axum::body::Bytes;
use axum::http::StatusCode;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::answer::{self, Answer};
use crate::error::Failure;
use crate::state::Shared;

/// Bytes that count against a bound until the last piece of them is gone.
struct Counted<R> {
    bytes: Vec<u8>,
    _room: R,
}

impl<R> AsRef<[u8]> for Counted<R> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes for as long as they hold room.
pub(crate) fn counted(bytes: Vec<u8>, room: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Counted { bytes, _room: room })
}

/// A place among the answers that are being made.
pub(crate) struct AnswerSlot {
    app: Shared,
    _place: OwnedSemaphorePermit,
}

impl AnswerSlot {
    /// Waits for a place.
    ///
    /// # Errors
    /// There was none for a while.
    pub(crate) async fn begin(app: &Shared) -> Result<Self, Failure> {
        Self::within(app, limits::ANSWER_PATIENCE).await
    }

    /// Waits for a place for so long.
    ///
    /// # Errors
    /// There was none.
    pub(crate) async fn within(app: &Shared, patience: Span) -> Result<Self, Failure> {
        let place = app.reads.take(1, patience).await.ok_or_else(busy)?;
        Ok(Self { app: Arc::clone(app), _place: place })
    }

    /// A place that is free now.
    pub(crate) fn free(app: &Shared) -> Option<Self> {
        app.reads.try_one().map(|place| Self { app: Arc::clone(app), _place: place })
    }

    /// Bytes to be sent, counted as long as they are held.
    ///
    /// # Errors
    /// Clients take what they have asked for too slowly, and there was no room for more.
    pub(crate) async fn hold(self, bytes: Vec<u8>) -> Result<Bytes, Failure> {
        if bytes.len() <= limits::ANSWER_BYTES_FREE {
            return Ok(Bytes::from(bytes));
        }
        let size = bytes.len().min(limits::ANSWERS_BYTES_MAX);
        if let Some(room) = self.app.answers.try_take(size) {
            return Ok(counted(bytes, room));
        }
        // Whoever waits for slow clients keeps nobody from asking for what needs no room.
        let Self { app, _place: place } = self;
        let _seat = app.answers_waiting.try_one().ok_or_else(busy)?;
        drop(place);
        let room = app.answers.take(size, limits::ANSWER_PATIENCE).await.ok_or_else(busy)?;
        Ok(counted(bytes, room))
    }

    /// A JSON answer that all went well, made of about so many bytes.
    ///
    /// # Errors
    /// It cannot be made, or as [`AnswerSlot::hold`].
    pub(crate) async fn made(
        self,
        of: usize,
        make: impl FnOnce() -> Result<Vec<u8>, Failure> + Send + 'static,
    ) -> Answer {
        let bytes = if of > limits::QUICK_BYTES_MAX { aside(make).await?? } else { make()? };
        Ok(answer::typed(StatusCode::OK, answer::JSON, self.hold(bytes).await?))
    }

    /// A JSON answer that all went well, of a value that is not large.
    ///
    /// # Errors
    /// As [`AnswerSlot::hold`].
    pub(crate) async fn ok(self, value: &impl Serialize) -> Answer {
        let bytes = answer::encoded(value)?;
        Ok(answer::typed(StatusCode::OK, answer::JSON, self.hold(bytes).await?))
    }
}

fn busy() -> Failure {
    Failure::new(ErrorCode::Overloaded, "too many large answers in progress; try again later")
}

/// Work that keeps a processor busy for long, on a thread of its own.
///
/// # Errors
/// It broke off.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Failure::new(ErrorCode::Internal, "the request could not be worked on"))
}
