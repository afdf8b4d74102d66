//! A client that asks until it is answered, as a careful one would: every request may be sent again.

use std::time::Duration;

use aetheris_check::{AckedSignal, SignalAck, Submission};
use aetheris_core::id::JobId;
use aetheris_core::json::Json;
use aetheris_core::time::Span;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::http::Http;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);
/// The pause before the next try.
const PAUSE: Duration = Duration::from_millis(60);

/// The priority that every message asks for.
pub const ASKED_PRIORITY: i64 = -3;

/// When a job is to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// As soon as somebody is free.
    AtOnce,
    /// When those before it of its agent have ended.
    Conversation,
    /// After a moment.
    Later,
}

/// How much later.
const LATER: Span = Span::from_millis(300);

/// The labels that every message asks for.
#[must_use]
pub fn asked_labels() -> Value {
    json!({"of": "matrix"})
}

/// A client of a server that may be gone for a while.
#[derive(Debug, Clone)]
pub struct Client {
    http: Http,
    url: watch::Receiver<String>,
}

impl Client {
    /// A client that learns from `url` where the server is now.
    ///
    /// # Errors
    /// It cannot be set up.
    pub fn new(url: watch::Receiver<String>) -> Result<Self> {
        Ok(Self { http: Http::new(REQUEST)?, url })
    }

    /// Sends until there is an answer that is not the server's own trouble.
    ///
    /// # Errors
    /// The answer cannot be read.
    pub async fn ask(
        &self,
        method: &Method,
        path: &str,
        body: Option<&str>,
        key: Option<&str>,
    ) -> Result<(StatusCode, Value)> {
        loop {
            let url = format!("{}{path}", *self.url.borrow());
            if let Some((status, text)) = self.http.send(method, &url, body, key).await {
                let value = serde_json::from_str(&text).with_context(|| format!("{method} {path}: {text}"))?;
                return Ok((status, value));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Puts an agent file.
    ///
    /// # Errors
    /// It is refused.
    pub async fn put(&self, agent: &str, file: &str) -> Result<()> {
        let (status, body) = self.ask(&Method::PUT, &format!("/api/agents/{agent}"), Some(file), None).await?;
        anyhow::ensure!(status.is_success(), "PUT {agent}: {status} {body}");
        Ok(())
    }

    /// Sends a message under a key of its own, of a conversation or for later.
    ///
    /// # Errors
    /// It is refused.
    pub async fn send(&self, agent: &str, key: &str, start: Start) -> Result<Submission> {
        let path = format!("/api/agents/{agent}/message");
        let mut asked = json!({"labels": asked_labels(), "message": {"n": 1}, "priority": ASKED_PRIORITY});
        match start {
            Start::AtOnce => {}
            Start::Conversation => asked["session_id"] = json!(agent),
            Start::Later => asked["run_at"] = json!(SystemClock.wall().after(LATER)),
        }
        let body = asked.to_string();
        let (status, answer) = self.ask(&Method::POST, &path, Some(&body), Some(key)).await?;
        let job = answer["job_id"].as_str().with_context(|| format!("{path}: {status} {answer}"))?;
        Ok(Submission { client_key: Some(key.to_owned()), job: job.parse()? })
    }

    /// Sends what does not fit its schema.
    ///
    /// # Errors
    /// It is not refused for that.
    pub async fn refused(&self, path: &str, body: &Value) -> Result<()> {
        let (status, answer) = self.ask(&Method::POST, path, Some(&body.to_string()), None).await?;
        let refused = status == StatusCode::BAD_REQUEST && answer["code"] == "invalid_payload";
        anyhow::ensure!(refused, "{path} with {body}: {status} {answer}");
        Ok(())
    }

    /// A job as the server shows it.
    ///
    /// # Errors
    /// It is not there.
    pub async fn job(&self, job: JobId) -> Result<Value> {
        let (status, answer) = self.ask(&Method::GET, &format!("/api/jobs/{job}"), None, None).await?;
        if status != StatusCode::OK {
            bail!("{job}: {status} {answer}");
        }
        Ok(answer)
    }

    /// Looks at a job until `until` says that it is as wanted.
    ///
    /// # Errors
    /// It is not there.
    pub async fn until(&self, job: JobId, until: impl Fn(&Value) -> bool) -> Result<Value> {
        loop {
            let seen = self.job(job).await?;
            if until(&seen) {
                return Ok(seen);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends a signal; what it was told.
    ///
    /// # Errors
    /// It is refused.
    pub async fn signal(&self, job: JobId, key: &str) -> Result<AckedSignal> {
        let payload = json!({"approved": true});
        let payload_hash = Some(Json::new(payload.clone()).hash());
        let body = json!({"correlation_key": key, "payload": payload}).to_string();
        let (status, answer) = self.ask(&Method::POST, &format!("/api/jobs/{job}/signal"), Some(&body), None).await?;
        let ack = match (status, answer["status"].as_str()) {
            (StatusCode::OK, _) => SignalAck::Delivered,
            (StatusCode::ACCEPTED, _) => SignalAck::Kept,
            _ => bail!("signal to {job}: {status} {answer}"),
        };
        Ok(AckedSignal { ack, job, key: key.to_owned(), payload_hash })
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// It is refused.
    pub async fn cancel(&self, job: JobId) -> Result<()> {
        let (status, answer) = self.ask(&Method::POST, &format!("/api/jobs/{job}/cancel"), None, None).await?;
        anyhow::ensure!(status.is_success(), "cancel of {job}: {status} {answer}");
        Ok(())
    }

    /// Pauses a job and lets it go on again when it is paused. One that has ended meanwhile is left alone.
    ///
    /// # Errors
    /// One of the two is refused.
    pub async fn pause_and_resume(&self, job: JobId) -> Result<()> {
        let (status, answer) = self.ask(&Method::POST, &format!("/api/jobs/{job}/pause"), None, None).await?;
        if status == StatusCode::CONFLICT && answer["code"] == "job_finished" {
            return Ok(());
        }
        anyhow::ensure!(status.is_success(), "pause of {job}: {status} {answer}");
        self.until(job, |seen| seen["status"] == "paused").await?;
        let (status, answer) = self.ask(&Method::POST, &format!("/api/jobs/{job}/resume"), None, None).await?;
        anyhow::ensure!(status.is_success(), "resume of {job}: {status} {answer}");
        Ok(())
    }

    /// Says of the job's call in doubt that it happened. A doubt that was answered meanwhile, by an answer
    /// of ours that we did not see, is as good.
    ///
    /// # Errors
    /// There is none, or the answer is refused.
    pub async fn resolve(&self, job: JobId) -> Result<()> {
        let (_, list) = self.ask(&Method::GET, "/api/in-doubt", None, None).await?;
        let all = list["invocations"].as_array().cloned().unwrap_or_default();
        let wanted = job.to_string();
        let Some(row) = all.iter().find(|row| row["job_id"] == wanted.as_str()) else { return Ok(()) };
        let Some(key) = row["invocation"].as_str() else { return Ok(()) };
        let answer =
            json!({"outcome": "happened", "result": {"by": "operator"}, "note": "seen", "permit": row["permit"]});
        let body = answer.to_string();
        let (status, answer) =
            self.ask(&Method::POST, &format!("/api/jobs/{job}/in-doubt/{key}"), Some(&body), None).await?;
        anyhow::ensure!(status.is_success() || status == StatusCode::CONFLICT, "resolve of {job}: {status} {answer}");
        Ok(())
    }
}
