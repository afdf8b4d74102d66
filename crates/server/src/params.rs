//! Paths and queries. What is in a query is taken by name; what nobody takes is refused by name.

use std::str::FromStr;

use aetheris_api::ErrorCode;
use aetheris_core::id::{AgentName, IdempotencyKey, JobId};
use aetheris_core::limits;
use aetheris_core::time::Span;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::error::Failure;
use crate::state::Shared;

/// The job of a path. A text that is no job id names no job.
pub(crate) struct JobPath(pub(crate) JobId);

/// The agent of a path, whatever it is called.
pub(crate) struct AgentPath(pub(crate) AgentName);

/// The job and the invocation of a path.
pub(crate) struct InvocationPath(pub(crate) JobId, pub(crate) IdempotencyKey);

/// A path as it is written in the routes.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    agent: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    invocation: String,
}

/// What a call takes that begins work, before its body: while the process drains there is none.
pub(crate) struct Begins;

impl FromRequestParts<Shared> for Begins {
    type Rejection = Failure;

    async fn from_request_parts(_parts: &mut Parts, app: &Shared) -> Result<Self, Failure> {
        if app.state.closing.is_cancelled() { Err(Failure::shutting_down()) } else { Ok(Self) }
    }
}

async fn named<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Named, Failure> {
    match Path::<Named>::from_request_parts(parts, state).await {
        Ok(Path(named)) => Ok(named),
        Err(rejection) => Err(Failure::invalid(format!("path: {}", rejection.body_text()))),
    }
}

fn job(text: &str) -> Result<JobId, Failure> {
    text.parse()
        .map_err(|error: aetheris_core::id::ParseIdError| Failure::new(ErrorCode::JobNotFound, error.to_string()))
}

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        job(&named(parts, state).await?.id).map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for AgentPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        named(parts, state).await.map(|named| Self(AgentName::new(named.agent)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InvocationPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let named = named(parts, state).await?;
        let key = named.invocation.parse::<IdempotencyKey>();
        let key = key.map_err(|error| Failure::new(ErrorCode::InvocationNotFound, error.to_string()))?;
        Ok(Self(job(&named.id)?, key))
    }
}

/// The parameters of a query that nobody has taken yet.
pub(crate) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Failure> {
        if parts.uri.query().is_none() {
            return Ok(Self(Vec::new()));
        }
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(pairs)) => Ok(Self(pairs)),
            Err(rejection) => Err(Failure::invalid(format!("query: {}", rejection.body_text()))),
        }
    }
}

impl Params {
    /// All values of a name.
    pub(crate) fn all(&mut self, name: &str) -> Vec<String> {
        let (found, rest) = std::mem::take(&mut self.0).into_iter().partition(|(key, _)| key == name);
        self.0 = rest;
        let found: Vec<(String, String)> = found;
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// The value of a name that stands at most once.
    pub(crate) fn single(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let mut found = self.all(name);
        let value = found.pop();
        if found.is_empty() {
            Ok(value)
        } else {
            Err(Failure::invalid(format!("query: `{name}` is given more than once")))
        }
    }

    /// The text of a name that stands at most once and is not empty: an empty one is rather a variable that is not set, and
    /// would ask for everything.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.single(name)? {
            Some(text) if text.is_empty() => {
                Err(Failure::invalid(format!("query: `{name}` is empty; leave it out to ask for all")))
            }
            text => Ok(text),
        }
    }

    /// The text of a name that stands at most once. An empty one counts as absent.
    pub(crate) fn one(&mut self, name: &str) -> Result<Option<String>, Failure> {
        Ok(self.single(name)?.filter(|value| !value.is_empty()))
    }

    /// The value of a name, read. An empty one is refused like any other that is not as expected.
    pub(crate) fn read<T: FromStr>(&mut self, name: &str, expected: &str) -> Result<Option<T>, Failure> {
        self.single(name)?.map(|text| read(name, &text, expected)).transpose()
    }

    /// The value of a name that is a whole number from `least` on. The document calls it `int64`, so that
    /// what is beyond is refused although it could be read.
    pub(crate) fn number(&mut self, name: &str, least: u64) -> Result<Option<u64>, Failure> {
        let expected = format!("a whole number of at least {least}");
        let number = self.single(name)?.map(|text| read::<u64>(name, &text, &expected)).transpose()?;
        match number.filter(|number| *number < least || i64::try_from(*number).is_err()) {
            Some(number) => Err(Failure::invalid(format!("query: `{name}` is {number}; expected {expected}"))),
            None => Ok(number),
        }
    }

    /// The size of a page: at least one, at most the bound.
    pub(crate) fn limit(&mut self, default: usize, max: usize) -> Result<usize, Failure> {
        self.bounded("limit", default, max)
    }

    /// A number of at least one, at most the bound.
    pub(crate) fn bounded(&mut self, name: &str, default: usize, max: usize) -> Result<usize, Failure> {
        let number = self.number(name, 1)?;
        Ok(number.map_or(default, |number| usize::try_from(number).unwrap_or(max).min(max)))
    }

    /// Whether a name is `true`; absent it is not.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.read::<bool>(name, "true or false")?.unwrap_or(false))
    }

    /// How long to wait, at most the bound of one wait.
    pub(crate) fn wait(&mut self) -> Result<Option<Span>, Failure> {
        let wait = self.read::<Span>("wait", "a duration, as 10s")?;
        Ok(wait.map(|wait| wait.min(limits::LONG_POLL_MAX)))
    }

    /// Nothing else may stand in the query.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self.0.first() {
            Some((name, _)) => Err(Failure::invalid(format!("query: unknown parameter `{name}`"))),
            None => Ok(()),
        }
    }
}

fn read<T: FromStr>(name: &str, text: &str, expected: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::invalid(format!("query: `{name}` is `{text}`; expected {expected}")))
}

/// Ends when the client of a request is gone. Without a connection, never.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gone(pub(crate) CancellationToken);

impl<S: Send + Sync> FromRequestParts<S> for Gone {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
