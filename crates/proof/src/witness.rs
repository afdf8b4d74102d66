//! A tool service with a memory of its own: it logs every call before it acts, and outlives the processes that
//! call it. It is never killed, so a line that is written is there for every reader.
//!
//! | path | what it is |
//! |---|---|
//! | `/pure` | reads; may be called as often as one likes |
//! | `/idempotent`, `/once` | act, and are logged as acts |
//! | `/flaky` | acts and answers 503 at the first `fail` calls of a key (default 1) |
//! | `/slow` | acts and answers after `ms` (default 1000) |
//! | `/refuse` | refuses with `status` (default 422) before it acts |
//! | `/lookup/{key}` | says whether a body with that key has ended |
//! | `/settle` | says the same of a call in doubt; where it says no, it refuses that permit and those before it from then on |
//! | `/v1/chat/completions` | a model: says `re: ` and the question again |
//!
//! Every path takes `queue`, `ms`, `fail`, `refuse`, `status`, `how`, `bytes` and `pure=true`, so that agent files write
//! programs with it: the first `refuse` calls of a key are refused before they act, the next `fail` calls act
//! and are answered badly: with `status`, by a broken connection (`how=crash`), or by more than can be read
//! (`how=huge`); `how=early` breaks the connection before anything acts. The first call of a key stands in the queue for
//! `queue` milliseconds before anybody knows of it, whether its caller is still there or not. A good answer carries `bytes` of
//! ballast.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_check::witness::{WitnessKind, WitnessLine, names_permits, parse, parse_permit};
use aetheris_core::hash::Hash;
use aetheris_core::id::IdempotencyKey;
use aetheris_core::json::Json;
use aetheris_core::ledger::PermitNumber;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path as PathOf, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
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

/// An address of the loopback network that no other program takes: who calls a witness that has gone finds nobody there. The
/// kept folders name one at 127.99.99.1, where none listens any more.
const ADDRESS: &str = "127.99.99.2:0";
/// More than any reader takes.
const HUGE: usize = 3 * 1024 * 1024;

/// What the service remembers.
struct Memory {
    /// Calls that were refused, broken off early or answered badly.
    bad: BTreeMap<IdempotencyKey, u32>,
    /// Calls that have acted, or begun to.
    calls: BTreeMap<IdempotencyKey, u32>,
    clock: Arc<dyn Clock>,
    ended: BTreeMap<IdempotencyKey, Value>,
    file: File,
    /// Keys whose first call has stood in the queue.
    queued: BTreeSet<IdempotencyKey>,
    /// The highest permit of a key that is refused.
    refused: BTreeMap<IdempotencyKey, PermitNumber>,
}

type Shared = Arc<Mutex<Memory>>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Program {
    /// Ballast of a good answer.
    bytes: Option<usize>,
    /// Calls of a key that act and are answered by an error.
    fail: Option<u32>,
    /// How they are answered badly.
    how: Option<How>,
    /// How long the answer is held.
    ms: Option<u64>,
    /// Whether the body changes nothing.
    pure: Option<bool>,
    /// How long the first call of a key stands in the queue.
    queue: Option<u64>,
    /// Calls of a key that are refused before they act.
    refuse: Option<u32>,
    /// The status of errors and refusals.
    status: Option<u16>,
}

/// How a call is answered badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum How {
    /// By a status.
    Status,
    /// By a connection that breaks, after it has acted.
    Crash,
    /// By a connection that breaks, and nothing has acted.
    Early,
    /// By more than can be read.
    Huge,
}

impl Witness {
    /// Starts the service on a free port, on a thread of its own.
    ///
    /// # Errors
    /// The log cannot be opened, or no port be had.
    pub fn start(log: &Path) -> Result<Self> {
        Self::start_on(log, Arc::new(SystemClock))
    }

    /// The same on a clock that its lines are to be compared with.
    ///
    /// # Errors
    /// The log cannot be opened, or no port be had.
    pub fn start_on(log: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log).context("opening the witness log")?;
        let memory = Memory {
            bad: BTreeMap::new(),
            calls: BTreeMap::new(),
            clock,
            ended: BTreeMap::new(),
            file,
            queued: BTreeSet::new(),
            refused: BTreeMap::new(),
        };
        let listener = std::net::TcpListener::bind(ADDRESS)?;
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
        let lines = parse(&std::fs::read_to_string(&self.log)?).map_err(anyhow::Error::msg)?;
        ensure!(
            names_permits(&lines) || !lines.iter().any(WitnessLine::is_act),
            "tools have acted, and no call named its permit"
        );
        Ok(lines)
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
    let app = Router::new()
        .route("/lookup/{key}", get(lookup))
        .route("/settle", post(settle))
        .route("/v1/chat/completions", post(model))
        .route("/{tool}", any(call))
        .with_state(memory);
    tokio::select! {
        _ = stopped => {}
        _ = axum::serve(listener, app) => {}
    }
}

async fn lookup(State(memory): State<Shared>, PathOf(key): PathOf<String>) -> (StatusCode, String) {
    let Ok(key) = key.parse::<IdempotencyKey>() else {
        return (StatusCode::BAD_REQUEST, json!({"error": "not a key"}).to_string());
    };
    (StatusCode::OK, known(&lock(&memory), key).to_string())
}

#[derive(Debug, Deserialize)]
struct Question {
    idempotency_key: IdempotencyKey,
    permit: String,
}

/// Where nothing has come of a call, nothing will.
async fn settle(State(memory): State<Shared>, body: Bytes) -> (StatusCode, String) {
    let question = serde_json::from_slice::<Question>(&body).ok();
    let Some((key, permit)) =
        question.and_then(|asked| Some((asked.idempotency_key, parse_permit(&asked.permit).ok()?)))
    else {
        return (StatusCode::BAD_REQUEST, json!({"error": "not a question"}).to_string());
    };
    let mut memory = lock(&memory);
    let answer = known(&memory, key);
    if answer["outcome"] == "did_not_happen" {
        let refused = memory.refused.entry(key).or_insert(permit);
        *refused = (*refused).max(permit);
    }
    (StatusCode::OK, answer.to_string())
}

fn known(memory: &Memory, key: IdempotencyKey) -> Value {
    match (memory.ended.get(&key), memory.calls.get(&key)) {
        (Some(result), _) => json!({"outcome": "happened", "result": result}),
        (None, Some(_)) => json!({"outcome": "unknown"}),
        (None, None) => json!({"outcome": "did_not_happen"}),
    }
}

/// A model that answers every question in the same way.
async fn model(body: Bytes) -> (StatusCode, String) {
    let question: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = question["messages"].as_array().and_then(|all| all.last()).and_then(|last| last["content"].as_str());
    let text = format!("re: {}", asked.unwrap_or_default());
    let message = json!({"role": "assistant", "content": text});
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 5});
    let answer = json!({"choices": [{"message": message, "finish_reason": "stop"}], "model": "echo", "usage": usage});
    (StatusCode::OK, answer.to_string())
}

/// The body runs on a task of its own: whoever called may be gone before it ends.
async fn call(
    State(memory): State<Shared>,
    PathOf(tool): PathOf<String>,
    Query(program): Query<Program>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let program = preset(&tool, program);
    let at = lock(&memory).clock.wall();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let acts = program.pure != Some(true);
    let Some(line) = WitnessLine::of_call((&tool, acts), at, Hash::of(&body), header) else {
        return (StatusCode::BAD_REQUEST, json!({"error": "the runtime's headers are missing"}).to_string())
            .into_response();
    };
    match tokio::spawn(run(memory, program, line, body)).await {
        Ok(answer) => answer,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
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
        bytes: given.bytes,
        fail: given.fail.or(base.fail),
        how: given.how,
        ms: given.ms.or(base.ms),
        pure: given.pure.or(base.pure),
        queue: given.queue,
        refuse: given.refuse,
        status: given.status.or(base.status),
    }
}

/// What is done with a call before anything acts.
enum Before {
    /// It acts.
    Act,
    /// The connection breaks.
    Break,
    /// It is refused with a status.
    Refuse(u16),
}

fn before(memory: &Shared, program: &Program, key: IdempotencyKey) -> Before {
    let always = program.fail.is_none() && program.refuse.is_none();
    if let Some(status) = program.status.filter(|_| always) {
        return Before::Refuse(status);
    }
    let early = program.fail.filter(|_| program.how == Some(How::Early)).unwrap_or(0);
    let refused = program.refuse.unwrap_or(0);
    let mut memory = lock(memory);
    let bad = memory.bad.entry(key).or_default();
    if *bad >= refused.saturating_add(early) {
        return Before::Act;
    }
    *bad += 1;
    if *bad <= refused { Before::Refuse(program.status.unwrap_or(429)) } else { Before::Break }
}

/// An answer whose body never comes to its end.
fn broken() -> Response {
    let part = [Ok("{"), Err(std::io::Error::other("the tool died"))];
    Response::new(Body::from_stream(futures_util::stream::iter(part)))
}

async fn run(memory: Shared, program: Program, mut start: WitnessLine, body: Bytes) -> Response {
    let key = start.key;
    if let Some(millis) = program.queue
        && lock(&memory).queued.insert(key)
    {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        start.at = lock(&memory).clock.wall();
    }
    let refused = lock(&memory).refused.get(&key).copied();
    if refused.is_some_and(|refused| start.permit.is_none_or(|permit| permit <= refused)) {
        let answer = (StatusCode::GONE, json!({"error": "this permit is refused"}).to_string());
        return turned_away(&memory, WitnessKind::Refused, start, answer.into_response());
    }
    match before(&memory, &program, key) {
        Before::Act => {}
        Before::Break => return turned_away(&memory, WitnessKind::Dropped, start, broken()),
        Before::Refuse(status) => {
            let answer = (code(status), json!({"error": "refused"}).to_string());
            return turned_away(&memory, WitnessKind::Refused, start, answer.into_response());
        }
    }
    if write(&memory, &start).is_err() {
        return StatusCode::INSUFFICIENT_STORAGE.into_response();
    }
    let call = {
        let mut memory = lock(&memory);
        let calls = memory.calls.entry(key).or_default();
        *calls += 1;
        *calls
    };
    tokio::time::sleep(Duration::from_millis(program.ms.unwrap_or(0))).await;
    let input: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let mut result = json!({"done": start.tool, "input": input});
    if let Some(bytes) = program.bytes {
        result["ballast"] = "b".repeat(bytes).into();
    }
    let result_hash = Some(Json::new(result.clone()).hash());
    let at = lock(&memory).clock.wall();
    let end = WitnessLine { kind: WitnessKind::BodyEnd, at, result_hash, ..start };
    if write(&memory, &end).is_err() {
        return StatusCode::INSUFFICIENT_STORAGE.into_response();
    }
    lock(&memory).ended.insert(key, result.clone());
    if call > program.fail.unwrap_or(0) {
        return (StatusCode::OK, result.to_string()).into_response();
    }
    match program.how.unwrap_or(How::Status) {
        How::Status => (code(program.status.unwrap_or(503)), json!({"error": "flaky"}).to_string()).into_response(),
        How::Crash => broken(),
        How::Huge => (StatusCode::OK, json!({"huge": "h".repeat(HUGE)}).to_string()).into_response(),
        How::Early => (StatusCode::OK, result.to_string()).into_response(),
    }
}

/// A call for which nothing acts; it is logged all the same, because it came.
fn turned_away(memory: &Shared, kind: WitnessKind, call: WitnessLine, answer: Response) -> Response {
    match write(memory, &call.turned_away(kind)) {
        Ok(()) => answer,
        Err(_) => StatusCode::INSUFFICIENT_STORAGE.into_response(),
    }
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// One line, there for every reader before anything else happens.
fn write(memory: &Shared, line: &WitnessLine) -> Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let mut memory = lock(memory);
    memory.file.write_all(text.as_bytes())?;
    Ok(())
}

fn lock(memory: &Shared) -> std::sync::MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}
