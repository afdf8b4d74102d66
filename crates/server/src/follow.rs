//! Following a job: long polls and event streams. Hints wake them at once where this process wrote; a
//! re-look finds what other processes wrote.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::EventKind;
use aetheris_core::id::JobId;
use aetheris_core::time::Span;
use aetheris_store::hints::Follower;
use aetheris_store::{EventRow, JobRow, StoreError};
use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::error::Failure;
use crate::params::Gone;
use crate::state::{App, Shared};
use crate::view;

/// How often a long poll looks without a hint.
const POLL_RELOOK: Duration = Duration::from_millis(500);
/// How often a stream looks without a hint.
const STREAM_RELOOK: Duration = Duration::from_secs(1);
/// How long a stream is silent at most.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events read at a time: their payloads stand in memory together.
const EVENTS_AT_ONCE: usize = 64;

/// Waits until a job has ended or the time is over; its row then. `None` where there is no such job.
pub(crate) async fn until_ended(app: &App, job: JobId, wait: Span, gone: &Gone) -> Result<Option<JobRow>, Failure> {
    let end = Instant::now() + wait.to_std();
    let _place = app.follower()?;
    let mut follower = app.store().hints().follow(job);
    loop {
        let Some(row) = app.store().job(job).await? else {
            return Ok(None);
        };
        let now = Instant::now();
        if row.status.is_terminal() || now >= end || app.state.closing.is_cancelled() || gone.0.is_cancelled() {
            return Ok(Some(row));
        }
        tokio::select! {
            () = follower.changed() => {}
            () = sleep_until(end.min(now + POLL_RELOOK)) => {}
            () = app.state.closing.cancelled() => {}
            () = gone.0.cancelled() => {}
        }
    }
}

/// A job's events as server-sent events from the one after `after` on: what is there, then what comes,
/// until the job has ended. Following begins before the first look, so that nothing is missed between.
pub(crate) fn stream(app: Shared, job: JobId, after: u64) -> Result<Body, Failure> {
    let place = app.follower()?;
    let follower = app.store().hints().follow(job);
    let tail = Tail { after, app, ended: false, follower, job, _place: place };
    Ok(Body::from_stream(stream::unfold(tail, |mut tail| async move {
        let chunk = tail.next().await?;
        Some((Ok::<_, Infallible>(chunk), tail))
    })))
}

/// Where a stream is. Dropping it, as when the client is gone, ends the following.
struct Tail {
    after: u64,
    app: Shared,
    ended: bool,
    follower: Follower,
    job: JobId,
    _place: OwnedSemaphorePermit,
}

enum Look {
    Events(Vec<EventRow>),
    Nothing,
    Over,
}

impl Tail {
    /// The next bytes; `None` at the end. Where the store cannot be asked the stream ends too: its
    /// client comes back with the place it has reached.
    async fn next(&mut self) -> Option<Bytes> {
        let silent_until = Instant::now() + KEEP_ALIVE;
        while !self.ended {
            match self.look().await.ok()? {
                Look::Events(rows) => return Some(self.encode(&rows)),
                Look::Over => return None,
                Look::Nothing => {}
            }
            let now = Instant::now();
            if now >= silent_until {
                return Some(Bytes::from_static(b": still here\n\n"));
            }
            tokio::select! {
                () = self.follower.changed() => {}
                () = sleep_until(silent_until.min(now + STREAM_RELOOK)) => {}
                () = self.app.state.closing.cancelled() => return None,
            }
        }
        None
    }

    /// One look at the store, in a task of its own: a client that goes away does not drop it half-way.
    async fn look(&self) -> Result<Look, StoreError> {
        let (app, job, after) = (Arc::clone(&self.app), self.job, self.after);
        let looking = tokio::spawn(async move {
            let Some(row) = app.store().job(job).await? else {
                return Ok(Look::Over);
            };
            if row.seq > after {
                return app.store().events(job, after, EVENTS_AT_ONCE).await.map(Look::Events);
            }
            Ok(if row.status.is_terminal() { Look::Over } else { Look::Nothing })
        });
        looking.await.unwrap_or(Ok(Look::Over))
    }

    fn encode(&mut self, rows: &[EventRow]) -> Bytes {
        let mut out = Vec::with_capacity(rows.len() * 512);
        for row in rows {
            let event = view::event(row);
            let data = serde_json::to_string(&event).unwrap_or_default();
            let text = [
                "id: ",
                &row.seq.to_string(),
                "\nevent: ",
                &event.kind,
                "\ndata: ",
                &data.replace(['\n', '\r'], " "),
                "\n\n",
            ];
            text.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
            self.after = row.seq;
            self.ended = is_last(row);
            if self.ended {
                break;
            }
        }
        Bytes::from(out)
    }
}

/// Whether an event ends its job.
fn is_last(row: &EventRow) -> bool {
    matches!(
        EventKind::from_code(row.kind),
        Some(EventKind::JobCompleted | EventKind::JobFailed | EventKind::JobCancelled)
    )
}
