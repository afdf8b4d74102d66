//! `aetheris-model gate` exhausts the configuration of the gate; `campaign` searches a larger one for a while;
//! `bugs` plants each mistake and prints what found it. Exit 6: something was found, or something was missed.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use aetheris_model::bugs::Mutation;
use aetheris_model::config::Config;
use aetheris_model::search::{Bound, Report, run, verdicts};
use clap::{Parser, Subcommand};

/// A check found something.
const FOUND: u8 = 6;

#[derive(Parser)]
#[command(about = "Exhaustive search of the protocol, with the guards of production")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Threads that search.
    #[arg(long, global = true, default_value_t = 2)]
    threads: usize,
}

#[derive(Subcommand)]
enum Command {
    /// Plants each mistake and prints the law that found it.
    Bugs {
        /// Only this one, with its story.
        name: Option<String>,
    },
    /// 3 workers, 2 jobs, 3 steps, 3 crashes: as far as the time allows.
    Campaign {
        /// How long.
        #[arg(long, default_value_t = 30)]
        minutes: u64,
    },
    /// 2 workers, 1 job, 2 steps, 2 crashes, 1 signal, 1 unknown commit; signals that do not fit, jobs for later,
    /// two jobs of a session: exhausted.
    Gate,
    /// Plants one mistake, or none into the small configuration; the last line is JSON.
    Hunt {
        /// The mistake.
        name: Option<String>,
    },
    /// One step per job, everything once: exhausted in seconds.
    Small,
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { command, threads } = Arguments::parse();
    let whole = Bound { deep: false, first: false, limit: None, threads };
    let good = match command {
        Command::Bugs { name } => bugs(name.as_deref())?,
        Command::Campaign { minutes } => {
            let limit = Some(Duration::from_secs(minutes * 60));
            search(vec![("campaign", None, Config::campaign())], Bound { deep: true, limit, ..whole })?
        }
        Command::Gate => {
            let pinned = Config::gate().into_iter().map(|(name, states, config)| (name, Some(states), config));
            search(pinned.collect(), whole)?
        }
        Command::Hunt { name } => hunt(name.as_deref())?,
        Command::Small => search(vec![("small", None, Config::small())], whole)?,
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

/// Searches each configuration; whether all is as it should be: nothing broken, every sight seen, and all
/// exhausted unless there was a limit, with the pinned number of states where there is one.
fn search(configs: Vec<(&str, Option<usize>, Config)>, bound: Bound) -> anyhow::Result<bool> {
    let mut out = std::io::stdout();
    let tally = Arc::default();
    let mut reports = Vec::new();
    let mut as_known = true;
    for (name, states, config) in configs {
        let report = run(config, bound, &tally);
        writeln!(out, "{name}: {}", report.text())?;
        if let Some(known) = states.filter(|known| *known != report.unique) {
            as_known = false;
            writeln!(
                out,
                "{name}: NOT AS KNOWN: it had {known} states. A guard was lost or added, or the search changed."
            )?;
            writeln!(out, "If that is intended, write the new number into crates/model/src/config.rs.")?;
        }
        reports.push(report);
    }
    let (text, good) = verdicts(&reports, &tally);
    let unique: usize = reports.iter().map(|report| report.unique).sum();
    let made: usize = reports.iter().map(|report| report.states).sum();
    let seconds: f64 = reports.iter().map(|report| report.took.as_secs_f64()).sum();
    writeln!(out, "\n{text}\n{unique} unique states of {made} made, {seconds:.1} s")?;
    let whole = good && as_known && reports.iter().all(Report::proves);
    let sound = reports.iter().all(|report| report.breaches.is_empty());
    Ok(if bound.limit.is_some() { sound } else { whole })
}

fn hunt(name: Option<&str>) -> anyhow::Result<bool> {
    let report = match name {
        None => run(Config::small(), Bound { deep: false, first: true, limit: None, threads: 1 }, &Arc::default()),
        Some(name) => {
            let mutation = Mutation::ALL.iter().find(|mutation| mutation.as_str() == name);
            mutation.ok_or_else(|| anyhow::anyhow!("there is no mistake `{name}`"))?.hunt()
        }
    };
    let what = report.breaches.first().map(|breach| breach.law);
    let told = serde_json::json!({ "failed": what.is_some(), "states": report.unique, "what": what });
    writeln!(std::io::stdout(), "{told}")?;
    Ok(what.is_none())
}

fn bugs(name: Option<&str>) -> anyhow::Result<bool> {
    let mut out = std::io::stdout();
    writeln!(out, "{:<30}{:>10}{:>10}{:>7}  found by", "mistake", "states", "time", "steps")?;
    let mut missed = 0;
    let chosen = || Mutation::ALL.iter().filter(|mutation| name.is_none_or(|name| mutation.as_str() == name));
    anyhow::ensure!(chosen().count() > 0, "there is no such mistake");
    for mutation in chosen() {
        let report = mutation.hunt();
        let laws: Vec<&str> = report.breaches.iter().map(|breach| breach.law).collect();
        let steps = report.breaches.iter().map(|breach| breach.steps).min().unwrap_or(0);
        missed += usize::from(laws.is_empty());
        let by = if laws.is_empty() { "NOTHING".to_owned() } else { laws.join("; ") };
        let millis = report.took.as_millis();
        writeln!(out, "{:<30}{:>10}{millis:>7} ms{steps:>7}  {by}", mutation.as_str(), report.unique)?;
        for breach in report.breaches.iter().filter(|_| name.is_some()) {
            writeln!(out, "\n{}\n{}", breach.law, breach.story)?;
        }
    }
    let all = chosen().count();
    writeln!(out, "{all} mistakes, {} found", all - missed)?;
    Ok(missed == 0)
}
