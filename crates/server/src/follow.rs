//! Following a job: long polls and event streams. Hints wake them at once where this process wrote; a
//! re-look finds what other processes wrote.

use std::convert::Infallible;
use std::sync::Arc;

use aetheris_api::DeltaView;
use aetheris_core::event::EventKind;
use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_store::bus::{Delta, Follower, Heard};
use aetheris_store::{EventRow, JobRow, StoreError};
use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::error::Failure;
use crate::params::Gone;
use crate::reading::{AnswerSlot, aside};
use crate::state::{App, Shared};
use crate::view;

/// Waits until a job has ended or the time is over; its row then. `None` where there is no such job.
pub(crate) async fn until_ended(
    app: &App,
    _place: OwnedSemaphorePermit,
    job: JobId,
    wait: Span,
    gone: &Gone,
) -> Result<Option<JobRow>, StoreError> {
    let mut end = Instant::now() + wait.to_std();
    let mut follower = app.store().bus().follow(job);
    // Who asks a server that ends would else ask again at once, and again.
    let late = app.state.closing.is_cancelled();
    if late {
        end = end.min(Instant::now() + limits::DRAIN_POLL_MAX.to_std());
    }
    loop {
        let Some(row) = app.store().job(app.scope(), job).await? else {
            return Ok(None);
        };
        let now = Instant::now();
        let closing = !late && app.state.closing.is_cancelled();
        if row.status.is_terminal() || now >= end || closing || gone.0.is_cancelled() {
            return Ok(Some(row));
        }
        tokio::select! {
            () = follower.changed() => {}
            () = sleep_until(end.min(now + limits::POLL_RELOOK.to_std())) => {}
            () = app.state.closing.cancelled(), if !late => {}
            () = gone.0.cancelled() => {}
        }
    }
}

/// A job's events as server-sent events from the one after `after` on: what is there, then what comes,
/// until the job has ended. Following begins before the first look, so that nothing is missed between.
pub(crate) fn stream(app: Shared, job: JobId, after: u64) -> Result<Body, Failure> {
    let place = app.follower()?;
    let follower = app.store().bus().listen(job);
    let tail = Tail { after, app, ended: false, follower, job, looks: false, _place: place };
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
    /// What models have said was told last: facts come before more of it.
    looks: bool,
    _place: OwnedSemaphorePermit,
}

enum Look {
    Events(Chunk),
    Nothing,
    Over,
}

/// Events as they are sent.
struct Chunk {
    bytes: Bytes,
    ended: bool,
    last: u64,
}

impl Tail {
    /// The next bytes; `None` at the end. Where the store cannot be asked the stream ends too: its
    /// client comes back with the place it has reached.
    async fn next(&mut self) -> Option<Bytes> {
        let silent_until = Instant::now() + limits::STREAM_SILENCE_MAX.to_std();
        while !self.ended {
            // Before the facts, as what was said of a step comes before its end; and after each of them, however much is said.
            let delta = if std::mem::take(&mut self.looks) { None } else { self.follower.ready_delta() };
            if let Some(delta) = delta {
                return Some(self.said(delta));
            }
            match self.look().await.ok()? {
                Look::Events(chunk) => {
                    self.after = chunk.last;
                    self.ended = chunk.ended;
                    return Some(chunk.bytes);
                }
                Look::Over => return None,
                Look::Nothing => {}
            }
            let now = Instant::now();
            if now >= silent_until {
                return Some(Bytes::from_static(b": still here\n\n"));
            }
            tokio::select! {
                heard = self.follower.heard() => match heard {
                    Heard::Delta(delta) => return Some(self.said(delta)),
                    Heard::Written => {}
                },
                () = sleep_until(silent_until.min(now + limits::STREAM_RELOOK.to_std())) => {}
                () = self.app.state.closing.cancelled() => return None,
            }
        }
        None
    }

    /// Pieces of answers as they are sent: the one that has come, and all that follow it by now, those of one step in one.
    fn said(&mut self, first: Delta) -> Bytes {
        self.looks = true;
        let mut out = Vec::new();
        let mut piece = first;
        while out.len() < limits::DELTAS_SENT_BYTES_MAX
            && let Some(next) = self.follower.ready_delta()
        {
            let characters = u64::try_from(piece.text.chars().count()).unwrap_or(u64::MAX);
            let goes_on =
                next.attempt == piece.attempt && next.path == piece.path && next.from == piece.from + characters;
            if goes_on && piece.text.len() < limits::DELTA_BYTES_MAX {
                piece.text.push_str(&next.text);
            } else {
                tell(&std::mem::replace(&mut piece, next), &mut out);
            }
        }
        tell(&piece, &mut out);
        Bytes::from(out)
    }

    /// One look at the store, in a task of its own: a client that goes away does not drop it half-way.
    async fn look(&self) -> Result<Look, StoreError> {
        let (app, job, after) = (Arc::clone(&self.app), self.job, self.after);
        let looking = tokio::spawn(async move {
            let Some(row) = app.store().job(app.scope(), job).await? else {
                return Ok(Look::Over);
            };
            if row.seq > after {
                return chunk(&app, job, after).await;
            }
            Ok(if row.status.is_terminal() { Look::Over } else { Look::Nothing })
        });
        looking.await.unwrap_or(Ok(Look::Over))
    }
}

/// The next events as bytes. Where there is no room for them, nothing: the stream looks again.
async fn chunk(app: &Shared, job: JobId, after: u64) -> Result<Look, StoreError> {
    let Ok(slot) = AnswerSlot::begin(app).await else {
        return Ok(Look::Nothing);
    };
    let rows = app.store().events(app.scope(), job, after, limits::STREAM_EVENTS_MAX).await?;
    let Some(newest) = rows.last().map(|row| row.seq) else {
        return Ok(Look::Over);
    };
    let ending = rows.iter().find(|row| is_last(row)).map(|row| row.seq);
    let last = ending.unwrap_or(newest);
    let large = rows.iter().map(|row| row.payload.len()).sum::<usize>() > limits::QUICK_BYTES_MAX;
    let make = move || {
        let mut out = Vec::new();
        for row in rows.into_iter().take_while(|row| row.seq <= last) {
            encode(&row, &mut out);
        }
        out
    };
    let Ok(out) = (if large { aside(make).await } else { Ok(make()) }) else {
        return Ok(Look::Nothing);
    };
    Ok(match slot.hold(out).await {
        Ok(bytes) => Look::Events(Chunk { bytes, ended: ending.is_some(), last }),
        Err(_) => Look::Nothing,
    })
}

fn encode(row: &EventRow, out: &mut Vec<u8>) {
    let event = view::event(row);
    out.extend_from_slice(format!("id: {}\nevent: {}\ndata: ", row.seq, event.kind).as_bytes());
    let data = out.len();
    if serde_json::to_writer(&mut *out, &event).is_err() {
        out.truncate(data);
    }
    // A line's end would end the field.
    out[data..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    out.extend_from_slice(b"\n\n");
}

/// A piece of an answer has no place among the events: it is no fact.
fn tell(delta: &Delta, out: &mut Vec<u8>) {
    let Delta { attempt, from, path, text } = delta;
    let view = DeltaView { attempt: *attempt, from: *from, path: path.clone(), text: text.clone() };
    // Writing to memory does not fail, and the text has no line's end of its own in JSON.
    if let Ok(data) = serde_json::to_string(&view) {
        out.extend_from_slice(format!("event: delta\ndata: {data}\n\n").as_bytes());
    }
}

/// Whether an event ends its job.
fn is_last(row: &EventRow) -> bool {
    EventKind::from_code(row.kind).is_some_and(EventKind::ends_job)
}
