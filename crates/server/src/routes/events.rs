//! A job's events: pages, and a stream.

use aetheris_api::{EventPage, EventView, StreamedEvent};
use aetheris_core::limits;
use aetheris_runtime::OpError;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};

use super::answers::{Common, NoJob};
use crate::answer::{self, Answer};
use crate::error::Failure;
use crate::params::{Begins, JobPath, Params};
use crate::reading::AnswerSlot;
use crate::state::Shared;
use crate::{follow, view};

const PAGE_DEFAULT: usize = 100;
const LAST_EVENT_ID: &str = "last-event-id";

/// A page of a job's events
///
/// In order, from the one after `after` on. A page may be shorter than `limit`; `next_after` says
/// where the next one begins.
#[utoipa::path(get, path = "/api/jobs/{id}/events", tag = "evidence", operation_id = "list_events",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("after" = Option<u64>, Query, minimum = 0, description = "From the event after this place on; 0 by default"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "How many at most; 100 by default, never more than 1000")),
    responses((status = 200, body = EventPage, description = "A page of events"), Common, NoJob))]
pub(super) async fn page(State(app): State<Shared>, JobPath(job): JobPath, mut params: Params) -> Answer {
    let after = after(&mut params)?;
    let limit = params.limit(PAGE_DEFAULT, limits::PAGE_EVENTS_MAX)?;
    params.finish()?;
    let slot = AnswerSlot::begin(&app).await?;
    let last = app.store().job(app.scope(), job).await?.ok_or(OpError::JobNotFound(job))?.seq;
    let rows = app.store().events(app.scope(), job, after, limit).await?;
    let bytes = rows.iter().map(|row| row.payload.len()).sum();
    let make = move || {
        let events: Vec<EventView> = rows.iter().map(view::event).collect();
        let next_after = events.last().map(|event| event.seq).filter(|seq| *seq < last);
        answer::encoded(&EventPage { events, next_after })
    };
    slot.made(bytes, make).await
}

/// A job's events as they come
///
/// Server-sent events: `id` is the event's place, `event` its type, `data` the event. What is there
/// comes first, then what happens, without gap or repetition; the stream ends after the event that
/// ends the job. A client that comes back says in `Last-Event-ID` where it was. While a model answers, `event: delta` brings
/// its text piece by piece, without an `id`: for people who watch, never instead of what is recorded.
#[utoipa::path(get, path = "/api/jobs/{id}/events/stream", tag = "evidence", operation_id = "stream_events",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("after" = Option<u64>, Query, minimum = 0, description = "From the event after this place on; 0 by default"),
        ("Last-Event-ID" = Option<u64>, Header, nullable = false, minimum = 0, description = "The same, and stronger: what was seen last")),
    responses(
        (status = 200, body = StreamedEvent, content_type = "text/event-stream",
            description = "One `EventView` in each `data`; a `DeltaView` where `event` is `delta`"),
        Common, NoJob))]
pub(super) async fn stream(
    State(app): State<Shared>,
    // A stream that ended at once would make its client come back at once.
    _begins: Begins,
    JobPath(job): JobPath,
    mut params: Params,
    headers: HeaderMap,
) -> Answer {
    let asked = after(&mut params)?;
    params.finish()?;
    let after = last_seen(&headers)?.unwrap_or(asked);
    app.store().job(app.scope(), job).await?.ok_or(OpError::JobNotFound(job))?;
    let body = follow::stream(app, job, after)?;
    let mut response = answer::typed(StatusCode::OK, HeaderValue::from_static("text/event-stream"), body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn after(params: &mut Params) -> Result<u64, Failure> {
    Ok(params.number("after", 0)?.unwrap_or(0))
}

fn last_seen(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    let Some(value) = headers.get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let place = value.to_str().ok().and_then(|text| text.parse().ok()).filter(|place| i64::try_from(*place).is_ok());
    place.map(Some).ok_or_else(|| Failure::invalid("Last-Event-ID: expected the place of an event"))
}
