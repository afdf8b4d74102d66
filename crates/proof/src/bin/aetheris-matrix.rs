//! The crash matrix from a shell. It needs `aetheris-faulted` beside it.
//!
//! `aetheris-matrix [WORD]` runs every cell whose name contains the word, and prints what became of each.
//! `aetheris-matrix --pairs N [--seed S]` runs so many crashes during recovery, drawn from the seed; `--pairs all`
//! runs them all.
//! `aetheris-matrix replies [WORD]` runs the cells in which answers are lost.
//! `aetheris-matrix hunt` looks for a planted bug, `AETHERIS_BUG`, with lost answers, a run without a crash and a
//! few cells, and tells what it has found as `zoo::layers` says.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use aetheris_harness::SplitMix64;
use aetheris_proof::drive::cells::{self, Cell};
use aetheris_proof::drive::matrix;
use aetheris_proof::verdict;
use aetheris_proof::zoo::replies;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail, ensure};
use futures_util::StreamExt;

/// Cells that run at once: most of their time they wait.
const AT_ONCE: usize = 5;
/// The cells of a hunt.
const HUNTED: [&str; 10] = [
    "store.permit.after_commit@1@kill",
    "run.tool.after_call@1@kill",
    "store.record.before_commit@1@kill",
    "ops.timer.decided@1@kill",
    "run.end.giving_back@1@kill",
    "store.create.before_commit@1@kill",
    "run.tool.before_call@1@stop",
    "run.tool.permitted@1@stop",
    "store.heartbeat.before_commit@1@stop",
    "store.finish.before_commit@1@stop",
];

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["hunt"] => hunt().await,
        ["replies"] => lost_answers("").await,
        ["replies", word] => lost_answers(word).await,
        ["--pairs", "all"] => pairs(usize::MAX, 0).await,
        ["--pairs", number] => pairs(number.parse()?, 0).await,
        ["--pairs", number, "--seed", seed] => pairs(number.parse()?, seed.parse()?).await,
        [] => single("").await,
        [word] => single(word).await,
        _ => bail!("usage: aetheris-matrix [WORD | replies [WORD] | --pairs N|all [--seed S] | hunt]"),
    }
}

fn program() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.parent().context("no folder")?.join("aetheris-faulted"))
}

async fn single(word: &str) -> Result<ExitCode> {
    let program = program()?;
    let cells: Vec<_> = cells::all().into_iter().filter(|cell| cell.order().contains(word)).collect();
    ensure!(!cells.is_empty(), "no cell's name contains `{word}`");
    let (total, began) = (cells.len(), SystemClock.boot());
    let runs = cells.into_iter().map(|cell| {
        let program = program.clone();
        async move {
            let began = SystemClock.boot();
            let done = tokio::spawn(async move { (matrix::run(program, &cell).await, cell) }).await;
            (done, SystemClock.boot() - began)
        }
    });
    let mut runs = futures_util::stream::iter(runs).buffered(AT_ONCE);
    let (mut out, mut green) = (std::io::stdout(), 0);
    while let Some((done, took)) = runs.next().await {
        let (result, cell) = done?;
        let shown = result.as_ref().map_or_else(|error| format!("FAILED\n{error:#}\n"), |()| "green".to_owned());
        green += usize::from(result.is_ok());
        writeln!(out, "{:<44} {:>6} ms  {shown}", cell.order(), took.as_millis())?;
    }
    let seconds = (SystemClock.boot() - began).as_secs();
    writeln!(out, "crash matrix: {total} cells, {green} green, {seconds} s")?;
    Ok(verdict(green == total))
}

async fn pairs(number: usize, seed: u64) -> Result<ExitCode> {
    let program = program()?;
    let all = cells::all_pairs();
    let possible = all.len();
    let mut drawn: Vec<_> =
        (0u64..).zip(all).map(|(place, pair)| (SplitMix64::seeded(seed).skip(place).next(), pair)).collect();
    if number < possible {
        drawn.sort_by_key(|(key, _)| *key);
        drawn.truncate(number);
    }
    ensure!(!drawn.is_empty(), "no pair is to be run");
    let (total, began) = (drawn.len(), SystemClock.boot());
    let runs = drawn.into_iter().map(|(_, pair)| {
        let program = program.clone();
        async move { tokio::spawn(async move { (matrix::run_pair(program, &pair).await, pair) }).await }
    });
    let mut runs = futures_util::stream::iter(runs).buffered(AT_ONCE);
    let (mut out, mut green, mut twice) = (std::io::stdout(), 0, 0);
    while let Some(done) = runs.next().await {
        let (result, (first, second)) = done?;
        green += usize::from(result.is_ok());
        twice += usize::from(matches!(result, Ok(true)));
        if let Err(error) = result {
            writeln!(out, "{first} then {second}: FAILED\n{error:#}\n")?;
        }
    }
    let seconds = (SystemClock.boot() - began).as_secs();
    writeln!(
        out,
        "crash during recovery: {total} of {possible} pairs (seed {seed}), {green} green, {twice} crashed twice, {seconds} s"
    )?;
    Ok(verdict(green == total))
}

/// Runs the cells of lost answers; what the failed ones say, and how many there were.
async fn replies_of(word: &str, first_only: bool) -> Result<(Vec<String>, usize)> {
    let cells: Vec<_> = replies::all().into_iter().filter(|cell| cell.to_string().contains(word)).collect();
    ensure!(!cells.is_empty(), "no cell's name contains `{word}`");
    let runs = cells.iter().map(|cell| tokio::spawn(replies::run(*cell)));
    let mut runs = futures_util::stream::iter(runs).buffered(AT_ONCE);
    let (mut failed, mut done) = (Vec::new(), 0);
    while let Some(result) = runs.next().await {
        done += 1;
        if let Err(error) = result? {
            failed.push(format!("{error:#}"));
        }
        if first_only && !failed.is_empty() {
            break;
        }
    }
    Ok((failed, done))
}

async fn lost_answers(word: &str) -> Result<ExitCode> {
    let began = SystemClock.boot();
    let (failed, done) = replies_of(word, false).await?;
    let mut out = std::io::stdout();
    for error in &failed {
        writeln!(out, "FAILED {error}")?;
    }
    let (green, seconds) = (done - failed.len(), (SystemClock.boot() - began).as_secs());
    writeln!(out, "lost answers: {done} cells, {green} green, {seconds} s")?;
    Ok(verdict(failed.is_empty()))
}

async fn hunt() -> Result<ExitCode> {
    let began = SystemClock.boot();
    let found = find().await?;
    let seconds = (SystemClock.boot() - began).as_secs_f64();
    let failed = found.is_some();
    let line = serde_json::json!({ "failed": failed, "seconds": seconds, "what": found });
    writeln!(std::io::stdout(), "{line}")?;
    Ok(verdict(!failed))
}

async fn find() -> Result<Option<String>> {
    let cells: Vec<Cell> = cells::all().into_iter().filter(|cell| HUNTED.contains(&cell.order().as_str())).collect();
    ensure!(cells.len() == HUNTED.len(), "{} of {} cells of a hunt exist", cells.len(), HUNTED.len());
    if let Some(found) = replies_of("", true).await?.0.pop() {
        return Ok(Some(format!("lost answer: {}", first_line(&found))));
    }
    let program = program()?;
    if let Err(error) = matrix::crash_free(program.clone()).await {
        return Ok(Some(format!("no crash: {}", first_line(&error.root_cause().to_string()))));
    }
    let runs = cells.into_iter().map(|cell| {
        let program = program.clone();
        async move { tokio::spawn(async move { (matrix::run(program, &cell).await, cell) }).await }
    });
    let mut runs = futures_util::stream::iter(runs).buffer_unordered(AT_ONCE);
    while let Some(done) = runs.next().await {
        if let (Err(error), cell) = done? {
            return Ok(Some(format!("{cell}: {}", first_line(&error.root_cause().to_string()))));
        }
    }
    Ok(None)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(160).collect()
}
