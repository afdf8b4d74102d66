//! Any requests to the server's router: each gets an answer that the OpenAPI document has, errors are
//! problem details with something to read, and afterwards every job still adds up.
//!
//! An input of [`router`] is a text. A line `%%` stands between requests; a request is a line
//! `METHOD PATH`, lines `# Header: value`, then its body. `RUN` runs what can be claimed, `PASS 90s` lets
//! time pass. `{job}` is the last job, `{key}` its invocation.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use aetheris_api::{ErrorCode, MessageRequest, Problem, ResolveRequest, SignalRequest};
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::path::StepPath;
use aetheris_core::time::Span;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use futures_util::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt;

use crate::world::{AGENTS, World};

/// Requests of one input: the work for each is bounded.
const REQUESTS_MAX: usize = 24;
/// Pieces of an event stream that are read: one of a job that never ends has no end.
const PIECES_MAX: usize = 8;

fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_json::from_str(&aetheris_server::openapi()).unwrap())
}

/// The statuses that the document has for a call; `None` where it has no such path.
fn documented(method: &Method, path: &str) -> Option<BTreeSet<String>> {
    let parts: Vec<&str> = path.split('/').collect();
    let paths = document()["paths"].as_object().unwrap();
    let matches = |template: &str| {
        let wanted: Vec<&str> = template.split('/').collect();
        wanted.len() == parts.len()
            && wanted.iter().zip(&parts).all(|(want, part)| want == part || (want.starts_with('{') && !part.is_empty()))
    };
    let (_, item) = paths.iter().find(|(template, _)| matches(template))?;
    let name = if *method == Method::HEAD { "get".to_owned() } else { method.as_str().to_lowercase() };
    let Some(operation) = item.get(&name) else { return Some(BTreeSet::from(["405".to_owned()])) };
    Some(operation["responses"].as_object().unwrap().keys().cloned().collect())
}

/// A conversation with one server.
struct Talk {
    job: String,
    world: World,
}

impl Talk {
    async fn new() -> Self {
        let mut talk = Self { job: "job_00000000000000000000000000".to_owned(), world: World::new() };
        for (name, file) in AGENTS {
            let (status, _) = talk.ask("PUT", &format!("/api/agents/{name}"), &[], file.as_bytes()).await.unwrap();
            assert_eq!(status, StatusCode::CREATED);
        }
        talk
    }

    fn key(&self) -> String {
        let job = self.job.parse::<JobId>().unwrap_or(JobId::from_u128(0));
        IdempotencyKey::derive(job, &StepPath::from("send"), 0).to_string()
    }

    /// Sends a message whose job then runs as far as it can.
    async fn begin(&mut self, agent: &str, message: &str) {
        let body = format!("{{\"message\":{message}}}");
        self.ask("POST", &format!("/api/agents/{agent}/message"), &[], body.as_bytes()).await;
        self.world.work().await;
    }

    /// Asks, and holds the answer to the document. `None` where the words are no request at all.
    async fn ask(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Option<(StatusCode, Value)> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers.iter().filter_map(|line| line.split_once(':')) {
            request = request.header(name.trim(), value.trim());
        }
        let request = request.body(Body::from(body.to_vec())).ok()?;
        if !request.uri().path().starts_with('/') {
            return None;
        }
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.world.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let mut pieces = body.into_data_stream();
        let mut bytes = Vec::new();
        for _ in 0..PIECES_MAX {
            let Some(piece) = pieces.next().await else { break };
            bytes.extend_from_slice(&piece.unwrap());
        }
        let kind = parts.headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap().to_owned());
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let shown = format!("{method} {path}: {} {}", parts.status, String::from_utf8_lossy(&bytes));
        if let Some(allowed) = documented(&method, &path) {
            assert!(allowed.contains(parts.status.as_str()) || parts.status.as_u16() == 405, "undocumented: {shown}");
        }
        assert!(!parts.status.is_server_error() || parts.status.as_u16() == 501, "{shown}");
        if !parts.status.is_success() && method != Method::HEAD {
            assert_eq!(kind.as_deref(), Some("application/problem+json"), "{shown}");
            let problem: Problem = serde_json::from_slice(&bytes).expect(&shown);
            assert_eq!(
                (problem.status, problem.code.status()),
                (parts.status.as_u16(), parts.status.as_u16()),
                "{shown}"
            );
            assert!(problem.code != ErrorCode::Internal && !problem.detail.is_empty(), "{shown}");
        }
        if let Some(job) = value["job_id"].as_str() {
            job.clone_into(&mut self.job);
        }
        Some((parts.status, value))
    }

    /// Whatever was asked: every job can be read, and what is stored of it adds up.
    async fn settle(&mut self) {
        self.world.work().await;
        let (_, page) = self.ask("GET", "/api/jobs?limit=500", &[], b"").await.unwrap();
        let jobs: Vec<String> =
            page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect();
        for job in jobs {
            for call in ["", "/trace", "/replay", "/events"] {
                let (status, _) = self.ask("GET", &format!("/api/jobs/{job}{call}"), &[], b"").await.unwrap();
                assert_eq!(status, StatusCode::OK, "{job}{call}");
            }
            let (status, verdict) = self.ask("GET", &format!("/api/jobs/{job}/verify"), &[], b"").await.unwrap();
            assert!(status == StatusCode::OK && verdict["valid"] == true, "{verdict}");
        }
        for list in ["/api/waits", "/api/in-doubt", "/api/agents"] {
            assert_eq!(self.ask("GET", list, &[], b"").await.unwrap().0, StatusCode::OK, "{list}");
        }
    }

    async fn turn(&mut self, turn: &str) {
        let (line, rest) = turn.split_once('\n').unwrap_or((turn, ""));
        let fill = |text: &str| text.replace("{job}", &self.job).replace("{key}", &self.key());
        let line = fill(line);
        if line == "RUN" {
            return self.world.work().await;
        }
        if let Some(span) = line.strip_prefix("PASS ").and_then(|span| span.parse::<Span>().ok()) {
            // Half a year at most: the clocks of an input do not reach the end of time.
            return self.world.pass(span.min(Span::from_secs(15_552_000))).await;
        }
        let Some((method, path)) = line.split_once(' ') else { return };
        let mut headers = Vec::new();
        let mut body = rest;
        while let Some(header) = body.strip_prefix("# ") {
            let (header, after) = header.split_once('\n').unwrap_or((header, ""));
            headers.push(header);
            body = after;
        }
        let body = fill(body);
        self.ask(method, path, &headers, body.as_bytes()).await;
    }
}

/// Runs a future on a thread of its own time: waits end when nothing else can happen.
fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future);
}

/// Any requests, in any order, on a server with agents.
pub fn router(bytes: &[u8]) {
    let Ok(script) = std::str::from_utf8(bytes) else { return };
    block_on(async {
        let mut talk = Talk::new().await;
        for turn in script.split("\n%%\n").take(REQUESTS_MAX) {
            talk.turn(turn).await;
        }
        talk.settle().await;
    });
}

/// Any bytes as the body of every call that takes one, to jobs that wait for a person, are in doubt or
/// have ended; and as each type of request: what is read is written and read as the same.
pub fn http_body(bytes: &[u8]) {
    same::<MessageRequest>(bytes);
    same::<SignalRequest>(bytes);
    same::<ResolveRequest>(bytes);
    block_on(async {
        let mut talk = Talk::new().await;
        for agent in ["chain", "approve", "new"] {
            talk.ask("PUT", &format!("/api/agents/{agent}"), &[], bytes).await;
        }
        for (agent, file) in AGENTS {
            talk.ask("PUT", &format!("/api/agents/{agent}"), &[], file.as_bytes()).await;
            talk.begin(agent, r#"{"order":7}"#).await;
            for call in ["signal", "cancel", "in-doubt/{key}", "signal", "cancel"] {
                let call = call.replace("{key}", &talk.key());
                let path = format!("/api/jobs/{}/{call}", talk.job);
                talk.ask("POST", &path, &[], bytes).await;
            }
            talk.ask("POST", &format!("/api/agents/{agent}/message?wait=1s"), &[], bytes).await;
        }
        talk.settle().await;
    });
}

fn same<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(request) = serde_json::from_slice::<T>(bytes) else { return };
    let written = serde_json::to_vec(&request).expect("a request can be written");
    assert_eq!(serde_json::from_slice::<T>(&written).expect("and read"), request);
}
