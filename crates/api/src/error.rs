//! Errors as they are said: RFC 9457 problem details with a stable code.

use std::fmt;

use aetheris_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $title:literal;)*) => {
        /// What went wrong. The names are stable; a name that a client does not know reads as `internal`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
            /// What the job holds cannot be read, or this program is wrong.
            #[serde(other)]
            Internal,
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)* Self::Internal];

            /// Its stable name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* Self::Internal => "internal" }
            }

            /// The HTTP status it comes with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* Self::Internal => 500 }
            }

            /// What it means, in short; the same for every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* Self::Internal => "Internal error" }
            }
        }
    };
}

codes! {
    /// There is no agent of that name.
    AgentNotFound = "agent_not_found", 404, "No such agent";
    /// There is no job of that id.
    JobNotFound = "job_not_found", 404, "No such job";
    /// The job has no invocation of that id.
    InvocationNotFound = "invocation_not_found", 404, "No such invocation";
    /// There is nothing at that path.
    NotFound = "not_found", 404, "Nothing at this path";
    /// The path does not take that method.
    MethodNotAllowed = "method_not_allowed", 405, "Method not allowed";
    /// The agent file has mistakes; `errors` lists them.
    InvalidAgent = "invalid_agent", 422, "The agent file has mistakes";
    /// The request is malformed or out of bounds.
    InvalidRequest = "invalid_request", 400, "Invalid request";
    /// A message or payload does not fit its schema; `errors` lists where.
    InvalidPayload = "invalid_payload", 400, "The payload does not fit the schema";
    /// No rule of the agent holds for the message.
    NoRule = "no_rule", 422, "No rule holds";
    /// The condition of a rule cannot be evaluated for the message.
    RuleFailed = "rule_failed", 422, "A rule cannot be evaluated";
    /// No wait of the job has that correlation key.
    WrongCorrelationKey = "wrong_correlation_key", 400, "Wrong correlation key";
    /// A signal without a correlation key.
    MissingCorrelationKey = "missing_correlation_key", 400, "Missing correlation key";
    /// The job has ended.
    JobFinished = "job_finished", 409, "The job has ended";
    /// The state does not allow it.
    StateConflict = "state_conflict", 409, "The state does not allow this";
    /// "Did not happen" came while the call could still arrive; `accepted_from` says when it is accepted.
    TooEarly = "too_early", 409, "The call can still arrive";
    /// The writer is not the holder any more.
    StaleAttempt = "stale_attempt", 409, "Stale attempt";
    /// The idempotency key was used for a different request before.
    IdempotencyConflict = "idempotency_conflict", 409, "The idempotency key was used for a different request";
    /// The wait ended without a signal.
    WaitOver = "wait_over", 409, "The wait is over";
    /// A call whose outcome is unknown is to be resolved first.
    InDoubtUnresolved = "in_doubt_unresolved", 409, "A call is in doubt";
    /// This build does not have it.
    NotSupportedYet = "not_supported_yet", 501, "Not supported yet";
    /// Versions do not fit.
    VersionMismatch = "version_mismatch", 409, "Version mismatch";
    /// Something is larger than the limits.
    PayloadTooLarge = "payload_too_large", 413, "Too large";
    /// Path and query are longer than the limits.
    UriTooLong = "uri_too_long", 414, "Path too long";
    /// The headers are larger than the limits.
    HeadersTooLarge = "headers_too_large", 431, "Headers too large";
    /// Too many requests.
    RateLimited = "rate_limited", 429, "Too many requests";
    /// Who asks is not known.
    Unauthorized = "unauthorized", 401, "Not authenticated";
    /// Who asks may not.
    Forbidden = "forbidden", 403, "Forbidden";
    /// The store cannot be asked now.
    StoreUnavailable = "store_unavailable", 503, "The store is not available";
    /// The server follows as many jobs, or holds as many bytes, as it can.
    Overloaded = "overloaded", 503, "Too busy";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An error: `application/problem+json` of RFC 9457.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// With `too_early`: from when on the answer is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::schema::Time>)]
    pub accepted_from: Option<Timestamp>,
    /// A URI that names the kind of problem.
    #[serde(rename = "type", default)]
    pub type_uri: String,
    /// What it means, in short.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened this time, and what to do.
    #[serde(default)]
    pub detail: String,
    /// The stable code.
    pub code: ErrorCode,
    /// All mistakes at once, where there can be several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ProblemError>,
}

/// One mistake of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemError {
    /// Where: of a file as keys and positions, of a payload as a JSON pointer.
    pub path: String,
    /// The line of the file, counted from 1; 0 where there is no file.
    pub line: u32,
    /// What kind of mistake.
    pub code: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Problem {
    /// A problem of a kind.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            accepted_from: None,
            type_uri: format!("urn:aetheris:problem:{code}"),
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.into(),
            code,
            errors: Vec::new(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", if self.detail.is_empty() { &self.title } else { &self.detail }, self.code)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the public interface, and those that were added to it. A name is never taken away.
    const STABLE: &[(&str, u16)] = &[
        ("agent_not_found", 404),
        ("job_not_found", 404),
        ("invocation_not_found", 404),
        ("not_found", 404),
        ("method_not_allowed", 405),
        ("invalid_agent", 422),
        ("invalid_request", 400),
        ("invalid_payload", 400),
        ("no_rule", 422),
        ("rule_failed", 422),
        ("wrong_correlation_key", 400),
        ("missing_correlation_key", 400),
        ("job_finished", 409),
        ("state_conflict", 409),
        ("too_early", 409),
        ("stale_attempt", 409),
        ("idempotency_conflict", 409),
        ("wait_over", 409),
        ("in_doubt_unresolved", 409),
        ("not_supported_yet", 501),
        ("version_mismatch", 409),
        ("payload_too_large", 413),
        ("uri_too_long", 414),
        ("headers_too_large", 431),
        ("rate_limited", 429),
        ("unauthorized", 401),
        ("forbidden", 403),
        ("store_unavailable", 503),
        ("overloaded", 503),
        ("internal", 500),
    ];

    #[test]
    fn the_codes_are_the_stable_ones() {
        let found: Vec<_> = ErrorCode::ALL.iter().map(|code| (code.as_str(), code.status())).collect();
        assert_eq!(found, STABLE);
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    #[test]
    fn a_code_of_a_later_server_reads_as_internal() {
        assert_eq!(serde_json::from_str::<ErrorCode>("\"brand_new\"").unwrap(), ErrorCode::Internal);
    }
}
