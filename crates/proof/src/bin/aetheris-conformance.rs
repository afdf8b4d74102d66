//! `aetheris-conformance [WORD]` runs the cases of the store's contract whose name contains the word, on the
//! memory store and on files, and then random operations on both side by side. It stops at the first
//! failure, and its last line says what failed: the contract of `aetheris_proof::zoo::layers`.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use aetheris_cli::exit::Exit;
use aetheris_core::time::Timestamp;
use aetheris_harness::Folder;
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::{Clock, ManualClock, SystemClock};
use aetheris_store::{Boxed, Store};
use aetheris_store_conformance::{Case, Fixture, Harness, Opened, cases, differential};
use aetheris_store_sqlite::{SqliteOptions, SqliteStore};
use anyhow::{Result, ensure};
use futures_util::FutureExt;

/// How long a case may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// Operations of the comparison, and of how many seeds.
const COMPARED: (u64, usize) = (8, 300);

struct Memory;
struct Files;

impl Harness for Memory {
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock));
        Box::pin(std::future::ready(Opened { keep: Box::new(()), store }))
    }
}

impl Harness for Files {
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let opened = file(clock);
        Box::pin(async move {
            let (scratch, store) = opened.unwrap_or_else(|error| unusable(&error));
            Opened { keep: Box::new(scratch), store: Arc::new(store) }
        })
    }
}

#[expect(clippy::panic, reason = "a harness has no other way to say that there is no store")]
fn unusable(error: &anyhow::Error) -> ! {
    panic!("no store can be opened: {error:#}")
}

fn file(clock: Arc<dyn Clock>) -> Result<(Folder, SqliteStore)> {
    let scratch = Folder::new("conformance");
    let store = SqliteStore::open(SqliteOptions { clock, ..SqliteOptions::new(scratch.path().join("aetheris.db")) })?;
    Ok((scratch, store))
}

/// Runs something on a thread of its own; what it failed with, if it did.
fn failure(body: impl FnOnce() -> Result<()> + Send + 'static) -> Option<String> {
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || {
        let done = body();
        // Whoever waits may have given up.
        let _ = tell.send(());
        done
    });
    match told.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => Some("never ends".to_owned()),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(panic) => Some(text_of(panic.as_ref())),
        },
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic").lines().next().unwrap_or_default().chars().take(120).collect()
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn run_case(case: Case, on_files: bool) -> Result<()> {
    runtime()?.block_on(async {
        let harness: &dyn Harness = if on_files { &Files } else { &Memory };
        let fixture = Fixture::open(harness).await;
        case(fixture).await;
    });
    Ok(())
}

fn compare(seed: u64) -> Result<()> {
    runtime()?.block_on(async {
        let clock = ManualClock::at(Timestamp::from_micros(1_780_000_000_000_000));
        let model = MemoryStore::new(Arc::new(clock.clone()));
        let (_scratch, store) = file(Arc::new(clock.clone()))?;
        let mut report = differential::Report::default();
        let run = differential::batch(seed, COMPARED.1, &mut report, (&model, &store), &clock);
        std::panic::AssertUnwindSafe(run).catch_unwind().await.map_err(|panic| anyhow::anyhow!(text_of(panic.as_ref())))
    })
}

fn first_failure(word: &str) -> (usize, Option<String>) {
    let mut count = 0;
    for (backend, on_files) in [("memory", false), ("sqlite", true)] {
        for (name, case) in cases().into_iter().filter(|(name, _)| name.contains(word)) {
            count += 1;
            if let Some(why) = failure(move || run_case(case, on_files)) {
                return (count, Some(format!("{name} on {backend}: {why}")));
            }
        }
    }
    if word.is_empty() {
        for seed in 1..=COMPARED.0 {
            count += 1;
            if let Some(why) = failure(move || compare(seed)) {
                return (count, Some(format!("comparison, seed {seed}: {why}")));
            }
        }
    }
    (count, None)
}

fn main() -> Result<ExitCode> {
    let word = std::env::args().nth(1).unwrap_or_default();
    // What fails is told in one line at the end.
    std::panic::set_hook(Box::new(|_| {}));
    let began = SystemClock.boot();
    let (cases, found) = first_failure(&word);
    let seconds = (SystemClock.boot() - began).as_secs_f64();
    ensure!(cases > 0, "no case's name contains `{word}`");
    let failed = found.is_some();
    let line = serde_json::json!({ "cases": cases, "failed": failed, "seconds": seconds, "what": found });
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    out.flush()?;
    // A case that never ends must not keep the process.
    std::process::exit(i32::from(if failed { Exit::CheckFailed } else { Exit::Done }.code()))
}
