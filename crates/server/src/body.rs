//! Requests' bodies, within their bounds of size and time. Any content type is taken for what the call
//! asks for: people who type a request by hand forget the header.

use aetheris_api::{ErrorCode, Raw};
use aetheris_core::json::{Json, without_mark};
use aetheris_core::limits;
use aetheris_runtime::room::{Held, made_within};
use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, header};
use futures_util::StreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::Failure;
use crate::state::{App, Shared};

/// A request's whole body. While it is held its bytes count.
pub(crate) struct Whole {
    bytes: Vec<u8>,
    room: Vec<OwnedSemaphorePermit>,
}

impl FromRequest<Shared> for Whole {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Failure> {
        refuse_other_sites(request.headers())?;
        let declared = request.body().size_hint().exact();
        let declared = declared.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if declared.is_some_and(|bytes| bytes > limits::BODY_BYTES_MAX) {
            return Err(too_large());
        }
        let last_call = async {
            app.state.closing.cancelled().await;
            tokio::time::sleep(limits::LAST_BODY_TIME_MAX.to_std()).await;
        };
        tokio::select! {
            biased;
            whole = collect(app, request.into_body(), declared) => whole,
            () = tokio::time::sleep(limits::BODY_TIME_MAX.to_std()) => Err(Failure::invalid("the body took too long to arrive")),
            () = last_call => Err(Failure::body_cut_off()),
        }
    }
}

/// Takes a body in. Its first bytes are free; for all that it has said to come, room is made at once, so that bodies do
/// not wait for each other half-way.
async fn collect(app: &Shared, body: Body, declared: Option<usize>) -> Result<Whole, Failure> {
    let (mut bytes, mut held) = (Vec::new(), Vec::new());
    let mut room = limits::BODY_BYTES_FREE;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Failure::invalid(format!("the body cannot be read: {error}")))?;
        let arrived = bytes.len() + chunk.len();
        if arrived > limits::BODY_BYTES_MAX {
            return Err(too_large());
        }
        if arrived > room {
            let wanted = declared.unwrap_or(arrived).max(arrived);
            held.push(app.bodies.take(wanted - room, limits::BODY_ROOM_PATIENCE).await.ok_or_else(crowded)?);
            room = wanted;
            bytes.reserve_exact(wanted - bytes.len());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Whole { bytes, room: held })
}

fn too_large() -> Failure {
    let bound = limits::BODY_BYTES_MAX;
    Failure::new(ErrorCode::PayloadTooLarge, format!("the body is larger than the {bound} bytes that are accepted"))
}

fn crowded() -> Failure {
    let message = "too many large bodies are arriving; nothing was done, send it again";
    Failure::new(ErrorCode::Overloaded, message)
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
    /// Its bytes, and what is to be held as long as they are: they count until then.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Vec<OwnedSemaphorePermit>) {
        (self.bytes, self.room)
    }

    /// Reads a request and lets go of its bytes: whoever then waits has it once. What is to be held as long as the request
    /// is: it counts until then.
    pub(crate) fn taken<T: DeserializeOwned>(self) -> Result<(T, Vec<OwnedSemaphorePermit>), Failure> {
        Ok((self.read()?, self.room))
    }

    /// Unknown fields, wrong types and broken JSON are told by what the parser says.
    fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, Failure> {
        let text = without_mark(&self.bytes);
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
        if self.bytes.is_empty() { Ok(()) } else { self.read::<Nothing>().map(|Nothing {}| ()) }
    }
}

/// A value of a request, with room for what it takes in memory, which counts until the write of it has been answered.
///
/// # Errors
/// It breaks a limit, or what waits for the store takes too much.
pub(crate) async fn value(app: &App, field: &str, raw: &Raw) -> Result<(Json, Held), Failure> {
    let parse = || std::future::ready(raw.parse());
    let made = made_within(&app.values, limits::ANSWER_PATIENCE, parse, Json::memory).await;
    let made = made.map_err(|error| Failure::json(field, &error))?;
    made.ok_or_else(|| {
        let message = "too many large values wait for the store; nothing was done, send it again";
        Failure::new(ErrorCode::Overloaded, message)
    })
}

fn said(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Data => format!("the request is not accepted: {error}"),
        serde_json::error::Category::Syntax | serde_json::error::Category::Eof | serde_json::error::Category::Io => {
            format!("the body is not valid JSON: {error}")
        }
    }
}
