//! Answers as bytes.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use crate::error::Failure;
use aetheris_api::ErrorCode;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What a handler answers.
pub(crate) type Answer = Result<Response, Failure>;

/// A JSON answer.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    Ok(typed(status, JSON, Bytes::from(encoded(value)?)))
}

/// A value as JSON.
pub(crate) fn encoded(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::with_capacity(512);
    serde_json::to_writer(&mut bytes, value)
        .map_err(|error| Failure::new(ErrorCode::Internal, format!("the answer cannot be written: {error}")))?;
    Ok(bytes)
}

/// A JSON answer that all went well.
pub(crate) fn ok(value: &impl Serialize) -> Answer {
    json(StatusCode::OK, value)
}

/// JSON that stands ready.
pub(crate) fn ready_json(bytes: Bytes) -> Response {
    typed(StatusCode::OK, JSON, bytes)
}

/// Bytes of a type.
pub(crate) fn typed(status: StatusCode, media: HeaderValue, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}
