//! The outside world of an experiment: a tool service on loopback, in the process of `prove`, which outlives
//! everything that is killed. It logs every call before it acts.
//!
//! | call | what it does |
//! |---|---|
//! | `POST /act` | acts |
//! | `POST /read` | acts not |
//! | `GET /lookup/{key}` | says whether a body with that key has ended |
//!
//! `act` and `read` take `ms` (how long a body lasts), `fail` (the first so many calls of a key act and are
//! answered with 500), `early` (the first so many break the connection before they act), `hold=body` and
//! `hold=answer` (a body does not end, an answer does not leave, while answers are held back).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_check::{WitnessKind, WitnessLine};
use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::json::Json;
use aetheris_store::system::{Clock, SystemClock};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path as PathOf, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::commands::process_control::{Ended, Fault, Tag, Watched, within_of};

/// The service of one experiment. Dropping it ends it.
pub(super) struct Tools {
    lines: watch::Receiver<Vec<WitnessLine>>,
    serving: JoinHandle<()>,
    service: Arc<Service>,
    /// Where it answers.
    pub(super) url: String,
}

struct Service {
    /// How the connection of a job's last call ended.
    ended: watch::Sender<BTreeMap<JobId, Ended>>,
    file: Mutex<File>,
    held: watch::Sender<bool>,
    lines: watch::Sender<Vec<WitnessLine>>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// Calls of a key that were broken off before they acted.
    broken: BTreeMap<IdempotencyKey, u32>,
    calls: BTreeMap<IdempotencyKey, u32>,
    connections: BTreeMap<u64, JobId>,
    results: BTreeMap<IdempotencyKey, Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Program {
    early: u32,
    fail: u32,
    hold: Option<Hold>,
    ms: u64,
}

/// What is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Hold {
    Answer,
    Body,
}

impl Tools {
    /// Starts the service on a free port, with its log in a file.
    ///
    /// # Errors
    /// The log cannot be made, or no port be had.
    pub(super) async fn start(log: &Path) -> Result<Self, Fault> {
        let failed = |error: std::io::Error| Fault::Setup(format!("the tool service cannot be started: {error}"));
        let file = File::create(log).map_err(failed)?;
        let (sender, lines) = watch::channel(Vec::new());
        let service = Arc::new(Service {
            ended: watch::Sender::new(BTreeMap::new()),
            file: Mutex::new(file),
            held: watch::Sender::new(false),
            lines: sender,
            memory: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let url = format!("http://{}", listener.local_addr().map_err(failed)?);
        let app = Router::new()
            .route("/lookup/{key}", get(lookup))
            .route("/{tool}", post(call))
            .with_state(Arc::clone(&service))
            .into_make_service_with_connect_info::<Tag>();
        let told = Arc::clone(&service);
        let watched = Watched::new(listener, move |ended| told.connection_ended(ended));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(watched, app).await {
                tracing::error!(%error, "the tool service has ended");
            }
        });
        Ok(Self { lines, serving, service, url })
    }

    /// From here on bodies and answers that can be held are held, or no longer.
    pub(super) fn hold(&self, held: bool) {
        self.service.held.send_replace(held);
    }

    /// Everything that it has logged.
    pub(super) fn lines(&self) -> Vec<WitnessLine> {
        self.lines.borrow().clone()
    }

    /// Bodies of a job that have begun to act.
    pub(super) fn bodies(&self, job: JobId) -> usize {
        self.lines.borrow().iter().filter(|line| line.job == job && line.is_act()).count()
    }

    /// Waits until every one of these jobs has a line of this kind.
    ///
    /// # Errors
    /// It does not come in `max`.
    pub(super) async fn until(&self, kind: WitnessKind, jobs: &[JobId], max: Duration) -> Result<(), Fault> {
        let mut lines = self.lines.clone();
        let all = |lines: &Vec<WitnessLine>| {
            jobs.iter().all(|job| lines.iter().any(|line| line.job == *job && line.kind == kind))
        };
        let what = match kind {
            WitnessKind::BodyStart => "the tools are called",
            WitnessKind::BodyEnd => "the bodies of the tools end",
            WitnessKind::Refused => "the tools refuse",
            WitnessKind::Dropped => "the tools break the connection",
        };
        within_of(max, what, async { lines.wait_for(all).await.map(|_| ()) })
            .await?
            .map_err(|_| Fault::Setup("the tool service has ended".to_owned()))
    }

    /// Waits until the connections of these jobs' calls are over: their answers are read. Whether every one
    /// was answered and closed by its caller.
    ///
    /// # Errors
    /// They do not end in `max`.
    pub(super) async fn answers_read(&self, jobs: &[JobId], max: Duration) -> Result<bool, Fault> {
        let mut ended = self.service.ended.subscribe();
        let all = |ended: &BTreeMap<JobId, Ended>| jobs.iter().all(|job| ended.contains_key(job));
        within_of(max, "the answers of the tools are read", async { ended.wait_for(all).await.map(|_| ()) })
            .await?
            .map_err(|_| Fault::Setup("the tool service has ended".to_owned()))?;
        let ended = self.service.ended.borrow();
        Ok(jobs.iter().all(|job| ended.get(job).is_some_and(|end| end.answered && end.by_client)))
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Service {
    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection_ended(&self, ended: Ended) {
        let job = self.memory().connections.get(&ended.connection).copied();
        if let Some(job) = job {
            self.ended.send_modify(|all| {
                all.insert(job, ended);
            });
        }
    }

    /// A line of the log, before anything comes of it.
    fn write(&self, line: WitnessLine) -> std::io::Result<()> {
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(text.as_bytes())?;
        self.lines.send_modify(|lines| lines.push(line));
        Ok(())
    }

    /// Whether this call is broken off before it acts.
    fn breaks(&self, key: IdempotencyKey, program: &Program) -> bool {
        let mut memory = self.memory();
        let broken = memory.broken.entry(key).or_default();
        *broken += 1;
        *broken <= program.early
    }

    async fn unless_held(&self, program: &Program, hold: Hold) {
        if program.hold == Some(hold) {
            let mut held = self.held.subscribe();
            // The service has the sender: it cannot be gone.
            let _released = held.wait_for(|held| !*held).await;
        }
    }

    async fn run(self: Arc<Self>, program: Program, start: WitnessLine, body: Bytes) -> Response {
        let key = start.key;
        if self.breaks(key, &program) {
            let came = start.turned_away(WitnessKind::Dropped);
            return self.write(came).map_or(StatusCode::INSUFFICIENT_STORAGE.into_response(), |()| broken());
        }
        if self.write(start.clone()).is_err() {
            return StatusCode::INSUFFICIENT_STORAGE.into_response();
        }
        let call = {
            let mut memory = self.memory();
            let calls = memory.calls.entry(key).or_default();
            *calls += 1;
            *calls
        };
        tokio::time::sleep(Duration::from_millis(program.ms)).await;
        self.unless_held(&program, Hold::Body).await;
        let input: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let result = json!({ "done": start.tool, "input": input });
        let result_hash = Some(Json::new(result.clone()).hash());
        let end = WitnessLine { kind: WitnessKind::BodyEnd, at: SystemClock.wall(), result_hash, ..start };
        self.memory().results.insert(key, result.clone());
        if self.write(end).is_err() {
            return StatusCode::INSUFFICIENT_STORAGE.into_response();
        }
        self.unless_held(&program, Hold::Answer).await;
        let status = if call <= program.fail { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
        (status, result.to_string()).into_response()
    }
}

/// An answer whose body never comes to its end.
fn broken() -> Response {
    let part = [Ok("{"), Err(std::io::Error::other("the tool died"))];
    Response::new(Body::from_stream(futures_util::stream::iter(part)))
}

async fn lookup(State(service): State<Arc<Service>>, PathOf(key): PathOf<String>) -> Response {
    let Ok(key) = key.parse::<IdempotencyKey>() else { return StatusCode::BAD_REQUEST.into_response() };
    let memory = service.memory();
    let answer = match (memory.results.get(&key), memory.calls.contains_key(&key)) {
        (Some(result), _) => json!({ "outcome": "happened", "result": result }),
        (None, true) => json!({ "outcome": "unknown" }),
        (None, false) => json!({ "outcome": "did_not_happen" }),
    };
    answer.to_string().into_response()
}

/// The body runs on a task of its own: whoever called may be gone before it ends.
async fn call(
    State(service): State<Arc<Service>>,
    ConnectInfo(tag): ConnectInfo<Tag>,
    PathOf(tool): PathOf<String>,
    Query(program): Query<Program>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let called = (tool.as_str(), tool != "read");
    let Some(line) = WitnessLine::of_call(called, SystemClock.wall(), Hash::of(&body), header) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    if line.acts {
        service.memory().connections.insert(tag.number(), line.job);
        tag.watched();
    }
    match tokio::spawn(service.run(program, line, body)).await {
        Ok(answer) => answer,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
