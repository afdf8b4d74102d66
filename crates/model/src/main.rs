//! `aetheris-model gate` exhausts the configuration of the gate; `campaign` searches a larger one for a while;
//! `bugs` plants each mistake and prints what found it. Exit 6: something was found, or something was missed.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use aetheris_model::bugs::{Bound, Mutation};
use aetheris_model::config::Config;
use aetheris_model::search::run;
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
    /// 2 workers, 1 job, 2 steps, 2 crashes, 1 signal, 1 unknown commit: exhausted.
    Gate,
    /// One step per job, everything once: exhausted in seconds.
    Small,
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { command, threads } = Arguments::parse();
    let mut out = std::io::stdout();
    let whole = Bound { first: false, limit: None, threads };
    let good = match command {
        Command::Bugs { name } => bugs(name.as_deref())?,
        Command::Gate | Command::Small => {
            let small = matches!(command, Command::Small);
            let report = run(if small { Config::small() } else { Config::gate() }, whole);
            writeln!(out, "{}", report.text())?;
            report.proves()
        }
        Command::Campaign { minutes } => {
            let limit = Some(Duration::from_secs(minutes * 60));
            let report = run(Config::campaign(), Bound { limit, ..whole });
            writeln!(out, "{}", report.text())?;
            report.breaches.is_empty()
        }
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
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
