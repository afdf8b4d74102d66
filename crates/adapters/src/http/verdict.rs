//! What an answer, or the lack of one, means: the table of the module above, row by row.

use std::io::ErrorKind;

use aetheris_core::json::{Json, JsonError};
use aetheris_core::limits;
use aetheris_core::plan::{EffectClass, HttpTool};
use aetheris_runtime::ports::{OUT_OF_FILES, ToolOutcome};
use reqwest::header::LOCATION;
use reqwest::{Response, StatusCode, Url};

use super::request::Prepared;
use crate::exchange::{BodyError, Deadline, Elapsed, Quotation, cause, find, is_out_of_files, quote, read_body};
use crate::guard::Blocked;
use crate::retry_after::retry_after;

/// Everything that the meaning of an answer depends on beside the answer.
pub(super) struct Verdict<'a> {
    pub(super) class: EffectClass,
    pub(super) deadline: Deadline,
    pub(super) request: &'a Prepared,
    pub(super) tool: &'a HttpTool,
}

/// The answer is elsewhere.
pub(super) struct Redirect(pub(super) Url);

impl Verdict<'_> {
    /// What an answer means, or where to ask instead.
    pub(super) async fn of(&self, mut response: Response) -> Result<ToolOutcome, Redirect> {
        let status = response.status();
        if status.is_success() {
            return Ok(self.output(response).await);
        }
        if status.is_redirection()
            && let Some(location) = self.redirect(&response)
        {
            return Err(Redirect(location));
        }
        let retry_after = retry_after(response.headers());
        let quotation = quote(&mut response, self.deadline).await;
        let what = format!("answered {}{}", status.as_u16(), self.advice(status));
        let error = self.request.quoting(&format!("http_{}", status.as_u16()), &what, &quotation);
        Ok(match self.meaning(status) {
            Meaning::Later => ToolOutcome::RefusedRetryable { error, retry_after },
            Meaning::Never => ToolOutcome::RefusedPermanent(error),
            Meaning::Unknown => ToolOutcome::Unknown { error, retry_after, timeout: false },
        })
    }

    fn meaning(&self, status: StatusCode) -> Meaning {
        let at_most_once = self.class == EffectClass::AtMostOnce;
        match status.as_u16() {
            425 | 429 => Meaning::Later,
            409 if !at_most_once => Meaning::Later,
            409 if self.tool.refused_statuses.contains(&409) => Meaning::Never,
            300..=399 if !at_most_once => Meaning::Never,
            408 | 409 | 300..=399 => Meaning::Unknown,
            400..=499 => Meaning::Never,
            // 5xx, and numbers that mean nothing.
            _ => Meaning::Unknown,
        }
    }

    fn advice(&self, status: StatusCode) -> &'static str {
        if status.is_redirection() && self.class != EffectClass::AtMostOnce {
            return " (a redirect is followed for GET, and only with a Location)";
        }
        ""
    }

    /// Where an answer points to, if that may be followed.
    fn redirect(&self, response: &Response) -> Option<Url> {
        let is_followed = self.class != EffectClass::AtMostOnce
            && self.request.is_get()
            && matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
        let location = response.headers().get(LOCATION).filter(|_| is_followed)?.to_str().ok()?;
        self.request.url.join(location).ok()
    }

    /// The output of a 2xx answer. One that cannot be read does not undo what the other side has done.
    async fn output(&self, mut response: Response) -> ToolOutcome {
        let status = response.status().as_u16();
        let body = match self.deadline.within(read_body(&mut response, limits::PAYLOAD_BYTES_MAX)).await {
            Ok(Ok(body)) => body,
            Ok(Err(BodyError::Broken(cause))) => {
                return self.unreadable(&format!("answered {status}, but its body broke off: {cause}"));
            }
            Ok(Err(BodyError::TooLarge(max))) => {
                return self.unreadable(&format!("answered {status}, but its body is larger than {max} bytes"));
            }
            Err(Elapsed) => return timed_out(self.request),
        };
        if body.trim_ascii().is_empty() {
            return ToolOutcome::Done(Json::null());
        }
        match Json::parse(&body) {
            Ok(output) => ToolOutcome::Done(self.request.scrubber.json(&output)),
            Err(error) => {
                let error = self.without_half_a_secret(error);
                self.unreadable(&format!("answered {status}, but its body cannot be read: {error} (a tool answers with JSON, or with nothing)"))
            }
        }
    }

    /// A key of the body that the error quotes may be cut.
    fn without_half_a_secret(&self, error: JsonError) -> JsonError {
        match error {
            JsonError::Twice(key) => {
                let key = key.strip_suffix('"').unwrap_or(&key).to_owned();
                JsonError::Twice(Quotation::beginning(key).shown(&self.request.scrubber) + "\"")
            }
            JsonError::Depth | JsonError::Number(_) | JsonError::Size(_) | JsonError::Syntax(_) => error,
        }
    }

    fn unreadable(&self, what: &str) -> ToolOutcome {
        let error = self.request.failure("unreadable_answer", what);
        ToolOutcome::Unknown { error, retry_after: None, timeout: false }
    }
}

/// What a status means beyond its number.
enum Meaning {
    Later,
    Never,
    Unknown,
}

/// Our own timeout ended the call. It may have arrived.
pub(super) fn timed_out(request: &Prepared) -> ToolOutcome {
    let error = request.failure("timeout", "did not answer in time");
    ToolOutcome::Unknown { error, retry_after: None, timeout: true }
}

/// What a request's failure means. Only what went wrong in making the connection proves that nothing was
/// sent; an error after that proves nothing, however early it seems.
pub(super) fn of_error(error: &reqwest::Error, request: &Prepared) -> ToolOutcome {
    if let Some(blocked) = find::<Blocked>(error) {
        return ToolOutcome::NotSent { error: request.blocked(blocked), permanent: true };
    }
    let cause = cause(error);
    if error.is_builder() {
        let error = request.failure("invalid_request", &format!("is not a request that can be sent: {cause}"));
        return ToolOutcome::NotSent { error, permanent: true };
    }
    if is_out_of_files(error) {
        return ToolOutcome::NotSent { error: request.failure(OUT_OF_FILES, NO_FILES), permanent: false };
    }
    if error.is_connect() {
        let (code, what) = connect_failure(error);
        // Its cause says the same in other words.
        let cause = if code == REFUSED { String::new() } else { format!(": {cause}") };
        let error = request.failure(code, &format!("was not sent: {what}{cause}"));
        return ToolOutcome::NotSent { error, permanent: false };
    }
    let error = request.failure("connection_broken", &format!("was sent, and no answer came: {cause}"));
    ToolOutcome::Unknown { error, retry_after: None, timeout: false }
}

/// Nobody listens there.
const REFUSED: &str = "connection_refused";

/// What is said where a call could not leave because this process may open no further file.
const NO_FILES: &str = "was not sent: this process has no open file left (see `ulimit -n`); it waits for one";

fn connect_failure(error: &reqwest::Error) -> (&'static str, &'static str) {
    if error.is_timeout() {
        return ("connect_timeout", "no connection was made in time");
    }
    if error.is_dns() {
        return ("dns_failed", "the name cannot be resolved");
    }
    if find::<rustls::Error>(error).is_some() {
        return ("tls_failed", "the TLS handshake failed");
    }
    match find::<std::io::Error>(error).map(std::io::Error::kind) {
        Some(ErrorKind::ConnectionRefused) => (REFUSED, "the connection was refused"),
        _ => ("connect_failed", "no connection could be made"),
    }
}

/// What failed behind a redirect was not the first request: that one was answered. Only GETs of tools
/// that may be called again get there.
pub(super) fn after_hops(hops: usize, outcome: ToolOutcome) -> ToolOutcome {
    match outcome {
        ToolOutcome::NotSent { error, permanent: true } if hops > 0 => ToolOutcome::RefusedPermanent(error),
        ToolOutcome::NotSent { error, permanent: false } if hops > 0 => {
            ToolOutcome::Unknown { error, retry_after: None, timeout: false }
        }
        outcome => outcome,
    }
}
