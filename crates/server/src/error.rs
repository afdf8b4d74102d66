//! From errors to problem details: the one table.

use aetheris_api::{ErrorCode, PROBLEM_JSON, Problem, ProblemError};
use aetheris_core::id::AgentName;
use aetheris_core::json::JsonError;
use aetheris_core::schema::Violation;
use aetheris_runtime::OpError;
use aetheris_store::{ErrorKind, StoreError};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Seconds after which a client may ask again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// A request that was not done, with what is said about it.
#[derive(Debug)]
pub struct Failure {
    problem: Box<Problem>,
    /// It follows from the end of the process, which whoever ends it knows.
    shutting_down: bool,
}

impl Failure {
    /// A failure of a kind.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    /// What is said.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, detail)
    }

    pub(crate) fn overloaded() -> Self {
        Self::new(ErrorCode::Overloaded, "too many followers; try again later")
    }

    /// The process drains and begins nothing.
    pub(crate) fn shutting_down() -> Self {
        Self::draining("the server is shutting down; nothing was done. Try again when it is back")
    }

    /// The process drains, and a body has not arrived.
    pub(crate) fn body_cut_off() -> Self {
        Self::draining("the server is shutting down and the body had not arrived; nothing was done, send it again")
    }

    fn draining(detail: &str) -> Self {
        Self { shutting_down: true, ..Self::new(ErrorCode::Overloaded, detail) }
    }

    pub(crate) fn rate_limited(detail: &str) -> Self {
        Self::new(ErrorCode::RateLimited, detail)
    }

    pub(crate) fn no_such_agent(name: &str) -> Self {
        OpError::AgentNotFound(AgentName::from(name)).into()
    }

    pub(crate) fn invalid_agent(detail: impl Into<String>, errors: Vec<ProblemError>) -> Self {
        let mut problem = Problem::new(ErrorCode::InvalidAgent, detail);
        problem.errors = errors;
        problem.into()
    }

    /// A JSON value of a request that is not accepted; `field` is where it stood.
    pub(crate) fn json(field: &str, error: &JsonError) -> Self {
        let code = match error {
            JsonError::Size(_) => ErrorCode::PayloadTooLarge,
            JsonError::Syntax(_) | JsonError::Number(_) | JsonError::Depth | JsonError::Twice(_) => {
                ErrorCode::InvalidRequest
            }
        };
        Self::new(code, format!("{field}: {error}"))
    }
}

/// The table of operations' errors.
#[must_use]
pub fn code_of(error: &OpError) -> ErrorCode {
    match error {
        OpError::AgentNotFound(_) => ErrorCode::AgentNotFound,
        OpError::JobNotFound(_) => ErrorCode::JobNotFound,
        OpError::InvocationNotFound { .. } => ErrorCode::InvocationNotFound,
        OpError::InvalidRequest(_) | OpError::WrongWaitType { .. } => ErrorCode::InvalidRequest,
        OpError::InvalidPayload { .. } => ErrorCode::InvalidPayload,
        OpError::NoRule(_) => ErrorCode::NoRule,
        OpError::RuleFailed(_) => ErrorCode::RuleFailed,
        OpError::WrongCorrelationKey { .. } => ErrorCode::WrongCorrelationKey,
        OpError::JobFinished { .. } => ErrorCode::JobFinished,
        OpError::WaitOver(_) => ErrorCode::WaitOver,
        OpError::CanStillArrive(_) => ErrorCode::TooEarly,
        OpError::StateConflict(_)
        | OpError::KeepsChanging(_)
        | OpError::NotDue(_)
        | OpError::Delivered(_)
        | OpError::Bound(_) => ErrorCode::StateConflict,
        OpError::IdempotencyConflict(_) => ErrorCode::IdempotencyConflict,
        OpError::PayloadTooLarge(_) => ErrorCode::PayloadTooLarge,
        OpError::Store(error) => code_of_store(error),
        OpError::Crowded => ErrorCode::Overloaded,
        OpError::Corrupt(_) => ErrorCode::Internal,
    }
}

/// What may pass by itself is said to be unavailable; what needs someone to look at it is not.
fn code_of_store(error: &StoreError) -> ErrorCode {
    match error.kind {
        ErrorKind::Unavailable | ErrorKind::Full => ErrorCode::StoreUnavailable,
        ErrorKind::Corrupt | ErrorKind::Invalid => ErrorCode::Internal,
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { problem: Box::new(problem), shutting_down: false }
    }
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Self {
        let mut problem = Problem::new(code_of(&error), error.to_string());
        if let OpError::CanStillArrive(accepted_from) = error {
            problem.accepted_from = Some(accepted_from);
        } else if let OpError::InvalidPayload { violations, .. } = error {
            problem.errors = violations.into_iter().map(violation).collect();
        }
        problem.into()
    }
}

fn violation(violation: Violation) -> ProblemError {
    let Violation { message, path } = violation;
    ProblemError { path, line: 0, code: "does_not_fit".to_owned(), message }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(code_of_store(&error), error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self { problem, shutting_down } = self;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
            if shutting_down {
                tracing::debug!(code = problem.code.as_str(), detail = problem.detail, "a request was refused");
            } else {
                tracing::warn!(code = problem.code.as_str(), detail = problem.detail, "a request failed");
            }
        }
        let mut response = Response::new(Body::from(serde_json::to_vec(&problem).unwrap_or_default()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::id::{IdempotencyKey, JobId};
    use aetheris_core::job::JobStatus;
    use aetheris_core::plan::WaitType;
    use aetheris_core::time::Timestamp;

    use super::*;

    #[test]
    fn every_error_of_an_operation_has_its_code() {
        let (job, key, at) = (JobId::from_u128(1), IdempotencyKey::from_u128(2), Timestamp::from_micros(3));
        let text = || "x".to_owned();
        let store = |kind| OpError::Store(StoreError::new(kind, "read", "x"));
        let (expected, given) = (WaitType::Human, WaitType::Signal);
        let table = [
            (OpError::AgentNotFound(AgentName::from("a")), ErrorCode::AgentNotFound),
            (OpError::JobNotFound(job), ErrorCode::JobNotFound),
            (OpError::InvocationNotFound { job, key }, ErrorCode::InvocationNotFound),
            (OpError::InvalidRequest(text()), ErrorCode::InvalidRequest),
            (OpError::WrongWaitType { expected, given, key: text() }, ErrorCode::InvalidRequest),
            (OpError::InvalidPayload { violations: Vec::new(), what: "the message" }, ErrorCode::InvalidPayload),
            (OpError::WrongCorrelationKey { job, key: text(), waiting: None }, ErrorCode::WrongCorrelationKey),
            (OpError::JobFinished { job, status: JobStatus::Failed }, ErrorCode::JobFinished),
            (OpError::WaitOver(text()), ErrorCode::WaitOver),
            (OpError::CanStillArrive(at), ErrorCode::TooEarly),
            (OpError::StateConflict(text()), ErrorCode::StateConflict),
            (OpError::KeepsChanging(job), ErrorCode::StateConflict),
            (OpError::NotDue(at), ErrorCode::StateConflict),
            (OpError::Bound(text()), ErrorCode::StateConflict),
            (OpError::IdempotencyConflict(job), ErrorCode::IdempotencyConflict),
            (OpError::PayloadTooLarge(text()), ErrorCode::PayloadTooLarge),
            (OpError::Corrupt(text()), ErrorCode::Internal),
            // What may pass by itself, and what needs someone to look at it.
            (store(ErrorKind::Unavailable), ErrorCode::StoreUnavailable),
            (store(ErrorKind::Full), ErrorCode::StoreUnavailable),
            (store(ErrorKind::Corrupt), ErrorCode::Internal),
            (store(ErrorKind::Invalid), ErrorCode::Internal),
        ];
        for (error, code) in table {
            assert_eq!(code_of(&error), code, "{error:?}");
        }
    }

    /// The levels of what is logged.
    #[derive(Clone, Default)]
    struct Levels(std::sync::Arc<std::sync::Mutex<Vec<tracing::Level>>>);

    impl tracing::Subscriber for Levels {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// Everybody who asks a server that drains is refused: that is no failure that somebody has to look at.
    #[test]
    fn what_a_draining_server_refuses_is_no_warning() {
        for (failure, levels) in [
            (Failure::shutting_down(), &[tracing::Level::DEBUG][..]),
            (Failure::body_cut_off(), &[tracing::Level::DEBUG]),
            (Failure::overloaded(), &[tracing::Level::WARN]),
            (Failure::new(ErrorCode::NotSupportedYet, "x"), &[]),
            (Failure::invalid("x"), &[]),
        ] {
            let logged = Levels::default();
            tracing::subscriber::with_default(logged.clone(), || drop(failure.into_response()));
            assert_eq!(*logged.0.lock().unwrap(), levels);
        }
    }
}
