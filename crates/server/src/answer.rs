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
    serde_json::to_writer(&mut bytes, value).map_err(unwritten)?;
    Ok(bytes)
}

/// A large value as JSON: it is written into no more memory than it takes.
pub(crate) fn encoded_large(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    bytes.reserve_exact(text_bytes(value));
    serde_json::to_writer(&mut bytes, value).map_err(unwritten)?;
    Ok(bytes)
}

/// Bytes of a value's text. What cannot be written counts for nothing.
pub(crate) fn text_bytes(value: &impl Serialize) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    let _written = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[expect(clippy::needless_pass_by_value, reason = "an error is mapped by it")]
fn unwritten(error: serde_json::Error) -> Failure {
    Failure::new(ErrorCode::Internal, format!("the answer cannot be written: {error}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written takes no more memory than it needs, and no less is counted for it.
    #[test]
    fn a_text_is_counted_to_the_byte() {
        for value in [
            serde_json::json!(null),
            serde_json::json!({ "a": ["é", 1.5, "\""] }),
            serde_json::json!("x".repeat(9_000)),
        ] {
            let Ok(text) = encoded_large(&value) else { panic!("{value}") };
            assert_eq!((text_bytes(&value), text.capacity()), (text.len(), text.len()));
        }
    }
}
