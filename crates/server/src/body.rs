//! Requests' bodies, within their bounds of size and time. Any content type is taken for what the call
//! asks for: people who type a request by hand forget the header.

use std::time::Duration;

use aetheris_api::ErrorCode;
use aetheris_core::json::without_mark;
use aetheris_core::limits;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;

use crate::error::Failure;
use crate::state::Shared;

/// What may stand around a payload: labels, keys, whitespace.
const ENVELOPE_BYTES_MAX: usize = 64 * 1024;
/// The time a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// The time that a body under way has when the server ends.
const LAST_BODY_TIME_MAX: Duration = Duration::from_secs(1);

/// The bound of a body, for the router.
pub(crate) fn limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(limits::PAYLOAD_BYTES_MAX.max(limits::AGENT_FILE_BYTES_MAX) + ENVELOPE_BYTES_MAX)
}

/// A request's whole body.
pub(crate) struct Whole(pub(crate) Bytes);

impl FromRequest<Shared> for Whole {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Failure> {
        refuse_other_sites(request.headers())?;
        let last_call = async {
            app.state.closing.cancelled().await;
            tokio::time::sleep(LAST_BODY_TIME_MAX).await;
        };
        let body = tokio::select! {
            biased;
            body = Bytes::from_request(request, app) => body,
            () = tokio::time::sleep(BODY_TIME_MAX) => {
                return Err(Failure::invalid("the body took too long to arrive"));
            }
            () = last_call => {
                let message = "the server ends and the body had not arrived; nothing was done, send it again";
                return Err(Failure::new(ErrorCode::Overloaded, message));
            }
        };
        match body {
            Ok(bytes) => Ok(Self(bytes)),
            Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(Failure::new(ErrorCode::PayloadTooLarge, "the body is larger than this server accepts"))
            }
            Err(rejection) => Err(Failure::invalid(format!("the body cannot be read: {}", rejection.body_text()))),
        }
    }
}

/// Any content type is taken, so that a page of any site could make a person's browser send what this
/// server would do. A browser says where the page is from; programs say nothing.
fn refuse_other_sites(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    let own = headers.get(header::HOST).and_then(|host: &HeaderValue| host.to_str().ok());
    match (authority, own) {
        (Some(authority), Some(own)) if authority.eq_ignore_ascii_case(own) => Ok(()),
        _ => {
            Err(Failure::invalid("the request comes from a page of another site, which may not ask for anything here"))
        }
    }
}

impl Whole {
    /// Reads a request. Unknown fields, wrong types and broken JSON are told by what the parser says.
    pub(crate) fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, Failure> {
        let text = without_mark(&self.0);
        // The parser would take an array for an object whose fields it lists in order.
        match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') | None => serde_json::from_slice(text).map_err(|error| Failure::invalid(said(&error))),
            Some(_) => Err(Failure::invalid("the body is not accepted: a request is a JSON object")),
        }
    }

    /// For calls that take nothing: no body, or an empty object.
    pub(crate) fn nothing(&self) -> Result<(), Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        if self.0.is_empty() { Ok(()) } else { self.read::<Nothing>().map(|Nothing {}| ()) }
    }
}

fn said(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Data => format!("the request is not accepted: {error}"),
        serde_json::error::Category::Syntax | serde_json::error::Category::Eof | serde_json::error::Category::Io => {
            format!("the body is not valid JSON: {error}")
        }
    }
}
