//! A tool service with a memory of its own: it logs every body before it acts, one fsync a line, and
//! outlives the processes that call it.
//!
//! | path | what it is |
//! |---|---|
//! | `/pure` | reads; may be called as often as one likes |
//! | `/idempotent`, `/once` | act, and are logged as acts |
//! | `/flaky` | acts and answers 503 at the first `fail` calls of a key (default 1) |
//! | `/slow` | acts and answers after `ms` (default 1000) |
//! | `/refuse` | refuses with `status` (default 422) before it acts |
//! | `/lookup/{key}` | says whether a body with that key has ended |
//!
//! Every path takes `ms`, `fail`, `status` and `pure=true`, so that agent files write programs with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_check::witness::{WitnessKind, WitnessLine, parse, parse_fence};
use aetheris_core::hash::Hash;
use aetheris_core::id::IdempotencyKey;
use aetheris_core::json::Json;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as PathOf, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{any, get};
use serde::Deserialize;
use serde_json::{Value, json};

/// A running witness. Dropping it ends the service; its log stays.
#[derive(Debug)]
pub struct Witness {
    /// Where it answers.
    pub addr: SocketAddr,
    log: std::path::PathBuf,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the service remembers.
struct Memory {
    calls: BTreeMap<IdempotencyKey, u32>,
    ended: BTreeMap<IdempotencyKey, Value>,
    file: File,
    started: BTreeMap<IdempotencyKey, u32>,
}

type Shared = Arc<Mutex<Memory>>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Program {
    /// Calls of a key that act and are answered by an error.
    fail: Option<u32>,
    /// How long the answer is held.
    ms: Option<u64>,
    /// Whether the body changes nothing.
    pure: Option<bool>,
    /// The status of errors and refusals.
    status: Option<u16>,
}

impl Witness {
    /// Starts the service on a free port, on a thread of its own.
    ///
    /// # Errors
    /// The log cannot be opened, or no port be had.
    pub fn start(log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log).context("opening the witness log")?;
        let memory = Memory { calls: BTreeMap::new(), ended: BTreeMap::new(), file, started: BTreeMap::new() };
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread =
            std::thread::spawn(move || runtime.block_on(serve(listener, Arc::new(Mutex::new(memory)), stopped)));
        Ok(Self { addr, log: log.to_owned(), stop: Some(stop), thread: Some(thread) })
    }

    /// What it has logged so far.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn lines(&self) -> Result<Vec<WitnessLine>> {
        let text = std::fs::read_to_string(&self.log)?;
        parse(&text).map_err(anyhow::Error::msg)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its end is all that is wanted.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: std::net::TcpListener, memory: Shared, stopped: tokio::sync::oneshot::Receiver<()>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let app = Router::new().route("/lookup/{key}", get(lookup)).route("/{tool}", any(call)).with_state(memory);
    tokio::select! {
        _ = stopped => {}
        _ = axum::serve(listener, app) => {}
    }
}

async fn lookup(State(memory): State<Shared>, PathOf(key): PathOf<String>) -> (StatusCode, String) {
    let Ok(key) = key.parse::<IdempotencyKey>() else {
        return (StatusCode::BAD_REQUEST, json!({"error": "not a key"}).to_string());
    };
    let memory = lock(&memory);
    let answer = match (memory.ended.get(&key), memory.started.get(&key)) {
        (Some(result), _) => json!({"outcome": "happened", "result": result}),
        (None, Some(_)) => json!({"outcome": "unknown"}),
        (None, None) => json!({"outcome": "did_not_happen"}),
    };
    (StatusCode::OK, answer.to_string())
}

/// The body runs on a task of its own: whoever called may be gone before it ends.
async fn call(
    State(memory): State<Shared>,
    PathOf(tool): PathOf<String>,
    Query(program): Query<Program>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let program = preset(&tool, program);
    let refused = program.status.filter(|_| program.fail.is_none());
    let Some(line) = line(&tool, &program, refused.is_some(), &headers, &body) else {
        return (StatusCode::BAD_REQUEST, json!({"error": "the runtime's headers are missing"}).to_string());
    };
    match tokio::spawn(run(memory, program, refused, line, body)).await {
        Ok(answer) => answer,
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
    }
}

fn preset(tool: &str, given: Program) -> Program {
    let base = match tool {
        "pure" => Program { pure: Some(true), ..Program::default() },
        "flaky" => Program { fail: Some(1), ..Program::default() },
        "slow" => Program { ms: Some(1_000), ..Program::default() },
        "refuse" => Program { status: Some(422), ..Program::default() },
        _ => Program::default(),
    };
    Program {
        fail: given.fail.or(base.fail),
        ms: given.ms.or(base.ms),
        pure: given.pure.or(base.pure),
        status: given.status.or(base.status),
    }
}

fn line(tool: &str, program: &Program, refused: bool, headers: &HeaderMap, body: &Bytes) -> Option<WitnessLine> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    Some(WitnessLine {
        kind: if refused { WitnessKind::Refused } else { WitnessKind::BodyStart },
        acts: !refused && program.pure != Some(true),
        at: SystemClock.wall(),
        attempt: header("aetheris-attempt")?.parse().ok()?,
        fence: parse_fence(header("aetheris-fence")?).ok()?,
        input_hash: Hash::of(body),
        job: header("aetheris-job")?.parse().ok()?,
        key: header("idempotency-key")?.parse().ok()?,
        node: header("aetheris-node")?.into(),
        result_hash: None,
        tool: tool.to_owned(),
    })
}

async fn run(
    memory: Shared,
    program: Program,
    refused: Option<u16>,
    start: WitnessLine,
    body: Bytes,
) -> (StatusCode, String) {
    let key = start.key;
    if write(&memory, &start).is_err() {
        return (StatusCode::INSUFFICIENT_STORAGE, String::new());
    }
    if let Some(status) = refused {
        return (code(status), json!({"error": "refused"}).to_string());
    }
    let call = {
        let mut memory = lock(&memory);
        *memory.started.entry(key).or_default() += 1;
        let calls = memory.calls.entry(key).or_default();
        *calls += 1;
        *calls
    };
    tokio::time::sleep(Duration::from_millis(program.ms.unwrap_or(0))).await;
    let input: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let result = json!({"done": start.tool, "input": input});
    let result_hash = Some(Json::new(result.clone()).hash());
    let end = WitnessLine { kind: WitnessKind::BodyEnd, at: SystemClock.wall(), result_hash, ..start };
    if write(&memory, &end).is_err() {
        return (StatusCode::INSUFFICIENT_STORAGE, String::new());
    }
    lock(&memory).ended.insert(key, result.clone());
    if call <= program.fail.unwrap_or(0) {
        return (code(program.status.unwrap_or(503)), json!({"error": "flaky"}).to_string());
    }
    (StatusCode::OK, result.to_string())
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// One line, durable before anything else happens.
fn write(memory: &Shared, line: &WitnessLine) -> Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let mut memory = lock(memory);
    memory.file.write_all(text.as_bytes())?;
    memory.file.sync_data()?;
    Ok(())
}

fn lock(memory: &Shared) -> std::sync::MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}
