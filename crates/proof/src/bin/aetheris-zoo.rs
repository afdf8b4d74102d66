//! `aetheris-zoo table` plants every bug of the zoo, one at a time, and prints what caught it.
//! `aetheris-zoo run SCENARIO` plays one scenario in this process: exit 0 clean, 6 something was found.

use std::io::Write as _;
use std::process::ExitCode;

use aetheris_proof::zoo::scenarios::Scenario;
use aetheris_proof::zoo::{BUGS, Bug, Verdict, outside};
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail};

/// A check found something.
const FOUND: u8 = 6;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] | ["table"] => table().await,
        ["run", name] => run(Scenario::parse(name).with_context(|| format!("there is no scenario `{name}`"))?).await,
        ["accept", folder] => {
            outside::accept(folder.as_ref()).await?;
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("usage: aetheris-zoo [table | run SCENARIO]"),
    }
}

async fn run(scenario: Scenario) -> Result<ExitCode> {
    let verdict = scenario.run().await?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&verdict)?)?;
    Ok(if verdict.caught_by.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

/// Plays a scenario in a process of its own, with a bug or without.
async fn play(scenario: Scenario, bug: Option<&str>) -> Result<(Verdict, u128)> {
    let started = SystemClock.boot();
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.arg("run").arg(scenario.as_str()).env_remove("AETHERIS_CRASH").env_remove("AETHERIS_BUG");
    if let Some(bug) = bug {
        command.env("AETHERIS_BUG", bug);
    }
    let output = command.output().await?;
    let verdict = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("`{}` with {bug:?} could not be played: {}", scenario.as_str(), String::from_utf8_lossy(&output.stderr))
    })?;
    Ok((verdict, (SystemClock.boot() - started).as_millis()))
}

async fn table() -> Result<ExitCode> {
    let mut out = std::io::stdout();
    let (mut wrong, mut clean) = (0u32, 0u32);
    for scenario in Scenario::ALL {
        let (verdict, _) = play(*scenario, None).await?;
        if verdict.caught_by.is_empty() {
            clean += 1;
        } else {
            wrong += 1;
            writeln!(out, "without a bug, `{}` found: {}", scenario.as_str(), verdict.caught_by.join(", "))?;
        }
    }
    let width = |of: fn(&Bug) -> usize| BUGS.iter().map(of).max().unwrap_or(0);
    let (names, scenarios) = (width(|bug| bug.name.len()), width(|bug| bug.scenario.as_str().len()));
    writeln!(out, "{:<names$}  {:<scenarios$}  {:>7}  caught by", "bug", "scenario", "time")?;
    for bug in BUGS {
        let (verdict, millis) = play(bug.scenario, Some(bug.name)).await?;
        let by = if verdict.caught_by.is_empty() { "NOT CAUGHT".to_owned() } else { verdict.caught_by.join(", ") };
        wrong += u32::from(verdict.caught_by.is_empty());
        writeln!(out, "{:<names$}  {:<scenarios$}  {millis:>4} ms  {by}", bug.name, bug.scenario.as_str())?;
    }
    let (bugs, scenarios) = (BUGS.len(), Scenario::ALL.len());
    writeln!(out, "bug zoo: {bugs} bugs; {clean} of {scenarios} scenarios clean without them; {wrong} wrong")?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}
