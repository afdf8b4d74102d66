//! The simulation from a shell.
//!
//! ```text
//! aetheris-sim run --seeds 12000      # a batch; fails on any violation and on any mark never reached
//! aetheris-sim repeat 4711            # one seed, with its story
//! aetheris-sim search                 # every blow at every place of the smallest programs of each kind
//! ```

#![expect(clippy::print_stdout, reason = "a command")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use aetheris_sim::batch::{self, Batch, Summary};
use aetheris_sim::search::{self, Failed, Found, Search};
use aetheris_sim::seed::{self, Backend, Outcome};
use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Deterministic simulation of the production code: the same seed does the same for ever.
#[derive(Debug, Parser)]
#[command(name = "aetheris-sim", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run many seeds, those that once failed first.
    Run {
        /// How many fresh seeds.
        #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// The first of them; without it, the first behind all that recorded batches have run.
        #[arg(long)]
        from: Option<u64>,
        /// On how many threads.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Add the batch to the record if it is clean.
        #[arg(long)]
        record: bool,
        /// What keeps the facts.
        #[arg(long, value_enum, default_value = "memory")]
        store: Store,
        /// Do not fail because a mark was never reached or an invariant had no case: for short batches. What only a store
        /// with a file is asked is still demanded of 500 seeds and more.
        #[arg(long)]
        any_marks: bool,
    },
    /// Run one seed and tell its story.
    Repeat {
        /// The seed.
        seed: u64,
        /// Tell only lines that contain this text.
        #[arg(long)]
        only: Option<String>,
        /// What keeps the facts.
        #[arg(long, value_enum, default_value = "memory")]
        store: Store,
    },
    /// Run seeds until one fails; the last line is JSON.
    Hunt {
        /// At most so many seeds.
        #[arg(long, default_value_t = 2_000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// On how many threads.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// What keeps the facts.
        #[arg(long, value_enum, default_value = "memory")]
        store: Store,
    },
    /// Strike the smallest programs of each kind of work at every place, one blow a run.
    Search {
        /// How many blows strike one run: 2 for every pair, which takes hours.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3))]
        blows: u64,
        /// The last line is JSON, and the first failure ends the search.
        #[arg(long)]
        hunt: bool,
        /// Only this kind of work.
        #[arg(long)]
        kind: Option<String>,
        /// On how many threads.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// What keeps the facts.
        #[arg(long, value_enum, default_value = "memory")]
        store: Store,
    },
    /// Print the hash of each seed's trace, to compare with another process.
    Hashes {
        /// The seeds.
        seeds: Vec<u64>,
        /// What keeps the facts.
        #[arg(long, value_enum, default_value = "memory")]
        store: Store,
    },
}

/// What keeps the facts of a run.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Store {
    /// The store in memory.
    Memory,
    /// SQLite's.
    Sqlite,
}

impl From<Store> for Backend {
    fn from(store: Store) -> Self {
        match store {
            Store::Memory => Self::Memory,
            Store::Sqlite => Self::Sqlite,
        }
    }
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Run { seeds, from, threads, record, store, any_marks } => {
            let from = from.map_or_else(|| recorded().map(|recorded| recorded.last + 1), Ok);
            let batch = |from| Batch { backend: store.into(), from, seeds, stop_at_failure: false, threads };
            from.and_then(|from| run(batch(from), record, any_marks))
        }
        Command::Repeat { seed, only, store } => repeat(seed, only.as_deref(), store.into()),
        Command::Hunt { seeds, from, threads, store } => {
            hunt(Batch { backend: store.into(), from, seeds, stop_at_failure: true, threads })
        }
        Command::Search { blows, hunt, kind, threads, store } => {
            look(usize::try_from(blows).unwrap_or(1), hunt, kind.as_deref(), (threads, store.into()))
        }
        Command::Hashes { seeds, store } => hashes(&seeds, store.into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(6),
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// From so many seeds on, each query of the second checker has cases.
const JUDGED_FROM: u64 = 500;

fn run(batch: Batch, record: bool, any_marks: bool) -> Result<bool> {
    let Batch { backend, from, seeds, .. } = batch;
    let began = now();
    let kept = regressions()?;
    let mut failures = Vec::new();
    seed::watch_panics();
    for seed in &kept {
        let outcome = seed::run(*seed, backend)?;
        if !outcome.tally.violations.is_empty() {
            failures.push(outcome);
        }
    }
    println!("{} seeds that once failed: {} fail now", kept.len(), failures.len());
    let summary = batch::run(batch, |done, failed| {
        if done % 1_000 == 0 {
            println!("  {done} seeds, {failed} failed, {} s", began.elapsed().as_secs());
        }
    })?;
    failures.extend(summary.failures.iter().cloned());
    tell(&summary, from, began.elapsed());
    for failure in &failures {
        story(failure, backend)?;
    }
    let unreached = Summary::unreached();
    if !unreached.is_empty() {
        println!("marks never reached: {unreached:?}");
    }
    let unexamined = summary.unexamined();
    if !unexamined.is_empty() {
        println!("invariants without a case: {unexamined:?}");
    }
    let unread = summary.unexamined_in_the_file(backend);
    if !unread.is_empty() {
        println!("the second checker had no case: {unread:?}");
    }
    let judged = unread.is_empty() || (any_marks && seeds < JUDGED_FROM);
    let clean = failures.is_empty() && judged && (any_marks || (unreached.is_empty() && unexamined.is_empty()));
    if clean && record {
        append(&format!("{from} {} {}\n", from + seeds - 1, began.elapsed().as_secs()))?;
    }
    println!("{} seeds were run clean in recorded batches", recorded()?.total);
    println!("{}", if clean { "clean" } else { "NOT CLEAN" });
    Ok(clean)
}

fn tell(summary: &Summary, from: u64, took: Duration) {
    let seconds = took.as_secs_f64().max(0.001);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = summary.seeds as f64 * 60.0 / seconds;
    println!(
        "{} seeds from {from} in {seconds:.0} s: {rate:.0} a minute, {} virtual hours",
        summary.seeds,
        summary.time.as_secs() / 3_600
    );
    let mishaps = summary.mishaps;
    println!(
        "{} jobs, {} bodies; {} deaths, {} stops, {} drains, {} clock jumps",
        summary.jobs, summary.bodies, mishaps.deaths, mishaps.stops, mishaps.drains, mishaps.jumps
    );
    for (whose, cases) in [("cases", &summary.cases), ("of the checker", &summary.checked)] {
        let cases: Vec<String> = cases.iter().map(|(id, cases)| format!("{id} {cases}")).collect();
        println!("{whose}: {}", cases.join(", "));
    }
    println!("{} of {} seeds failed", summary.failed, summary.seeds);
}

/// The words of a failure, the lines of its story that name what it names, and how to repeat it.
fn story(outcome: &Outcome, backend: Backend) -> Result<()> {
    println!("\nseed {} failed:", outcome.seed);
    for violation in outcome.tally.violations.iter().take(4) {
        println!("  {violation}");
    }
    let file = kept(&outcome.seed.to_string(), outcome)?;
    println!("  its story: {}", file.display());
    let store = match backend {
        Backend::Memory => "",
        Backend::Sqlite => " --store sqlite",
    };
    println!("  repeat it: cargo xtask sim repeat {}{store}", outcome.seed);
    Ok(())
}

/// The file that a story is written to.
fn kept(name: &str, outcome: &Outcome) -> Result<PathBuf> {
    let folder = PathBuf::from("target/sim");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(format!("{name}.txt"));
    std::fs::write(&file, &outcome.trace).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn repeat(seed: u64, only: Option<&str>, backend: Backend) -> Result<bool> {
    seed::watch_panics();
    let outcome = seed::run(seed, backend)?;
    for line in outcome.trace.lines().filter(|line| only.is_none_or(|only| line.contains(only))) {
        println!("{line}");
    }
    println!();
    for violation in &outcome.tally.violations {
        println!("{violation}");
    }
    println!("trace {}: {} violations", outcome.trace_hash, outcome.tally.violations.len());
    Ok(outcome.tally.violations.is_empty())
}

fn hunt(batch: Batch) -> Result<bool> {
    let began = now();
    let summary = batch::run(batch, |_, _| {})?;
    let first = summary.failures.first();
    let what = first.and_then(|outcome| outcome.tally.violations.first()).cloned();
    let told = serde_json::json!({
        "failed": first.is_some(),
        "seed": first.map(|outcome| outcome.seed),
        "seeds": summary.seeds,
        "seconds": began.elapsed().as_secs_f64(),
        "what": what,
    });
    println!("{told}");
    Ok(first.is_none())
}

/// Searches, and tells what was found.
fn look(blows: usize, hunt: bool, kind: Option<&str>, (threads, backend): (usize, Backend)) -> Result<bool> {
    let began = now();
    seed::watch_panics();
    let all = search::worlds()?;
    let missing: Vec<&str> = search::kinds().filter(|kind| all.iter().all(|world| world.kind != *kind)).collect();
    anyhow::ensure!(missing.is_empty(), "no seed draws a program of these kinds: {missing:?}");
    let worlds: Vec<_> = all.into_iter().filter(|world| kind.is_none_or(|kind| world.kind == kind)).collect();
    anyhow::ensure!(!worlds.is_empty(), "there is no such kind; there are {:?}", search::kinds().collect::<Vec<_>>());
    let searched = Search { backend, blows, stop_at_failure: hunt, threads, worlds };
    let found = search::run(&searched, |done, left| {
        if !hunt && done % 5_000 == 0 {
            println!("  {done} runs, {left} known of, {} s", began.elapsed().as_secs());
        }
    })?;
    if hunt {
        let first = found.failures.first();
        let told = serde_json::json!({
            "failed": first.is_some(),
            "runs": found.in_all(),
            "seconds": began.elapsed().as_secs_f64(),
            "what": first.and_then(|failed| failed.outcome.tally.violations.first()),
            "where": first.map(|failed| format!("{}: {:?}", failed.world.kind, failed.plan)),
        });
        println!("{told}");
        return Ok(first.is_none());
    }
    let Found { failures, failed, runs, .. } = &found;
    for (kind, runs) in runs {
        println!("{kind:<20} {runs:>7} runs");
    }
    for failed in failures {
        story_of(failed)?;
    }
    let unstruck = if kind.is_none() { found.unstruck(blows) } else { Vec::new() };
    if !unstruck.is_empty() {
        println!("blows that struck nowhere: {unstruck:?}");
    }
    println!("{} runs in {} s, {failed} failed", found.in_all(), began.elapsed().as_secs());
    let clean = *failed == 0 && unstruck.is_empty();
    println!("{}", if clean { "clean" } else { "NOT CLEAN" });
    Ok(clean)
}

/// The words of a run that failed, and where its story is.
fn story_of(Failed { plan, outcome, world }: &Failed) -> Result<()> {
    let blows: Vec<String> = plan.iter().map(|(place, blow)| format!("{blow:?} at {place}")).collect();
    println!("\n{} (seed {}), {} failed:", world.kind, world.seed, blows.join(", "));
    for violation in outcome.tally.violations.iter().take(4) {
        println!("  {violation}");
    }
    let name: Vec<String> = plan.iter().map(|(place, blow)| format!("{place}-{blow:?}")).collect();
    let file = kept(&format!("{}-{}-{}", world.kind.replace(' ', "-"), world.seed, name.join("-")), outcome)?;
    println!("  its story: {}", file.display());
    Ok(())
}

fn hashes(seeds: &[u64], backend: Backend) -> Result<bool> {
    seed::watch_panics();
    for seed in seeds {
        let outcome = seed::run(*seed, backend)?;
        println!("{seed} {} {}", outcome.trace_hash, outcome.trace.len());
    }
    Ok(true)
}

#[expect(clippy::disallowed_methods, reason = "how long a batch takes is told to people")]
fn now() -> Instant {
    Instant::now()
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Seeds that once failed, one a line, with the reason behind it; never taken away.
fn regressions() -> Result<BTreeSet<u64>> {
    let file = data("regressions.txt");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let seeds = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    seeds
        .map(|line| {
            let seed = line.split_whitespace().next().unwrap_or_default();
            seed.parse().with_context(|| format!("{}: `{seed}` is not a seed", file.display()))
        })
        .collect()
}

/// What recorded batches have run.
struct Recorded {
    /// The highest seed.
    last: u64,
    /// How many seeds.
    total: u64,
}

fn recorded() -> Result<Recorded> {
    let file = data("clean.txt");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut recorded = Recorded { last: 0, total: 0 };
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let wrong = || format!("{}: `{line}` is not two seeds and seconds", file.display());
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(from)), Some(Ok(to))) = (numbers.next(), numbers.next()) else { anyhow::bail!(wrong()) };
        recorded.total += (to + 1).checked_sub(from).with_context(wrong)?;
        recorded.last = recorded.last.max(to);
    }
    Ok(recorded)
}

fn append(line: &str) -> Result<()> {
    use std::io::Write as _;
    let file = data("clean.txt");
    let mut open = std::fs::OpenOptions::new().append(true).open(&file)?;
    open.write_all(line.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
}
