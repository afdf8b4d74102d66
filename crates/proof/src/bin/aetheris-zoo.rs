//! `aetheris-zoo table` plants every bug of the zoo, one at a time, and prints what caught it.
//! `aetheris-zoo --layers [--only WORD] [--seeds N] [--markdown FILE]` asks every layer for every bug, and prints
//! which layer found it after how long; a bug that fewer than two have found is wrong.
//! `aetheris-zoo run SCENARIO` plays one scenario in this process: exit 0 clean, 6 something was found.
//! `aetheris-zoo hunt [SCENARIO]` plays one or all and tells what was found as `zoo::layers` says.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use aetheris_proof::zoo::layers::{Hunt, Layer};
use aetheris_proof::zoo::scenarios::Scenario;
use aetheris_proof::zoo::{BUGS, Bug, Verdict, outside};
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail};
use futures_util::StreamExt;

/// A check found something.
const FOUND: u8 = 6;
/// Bugs that are hunted at once.
const AT_ONCE: usize = 2;
/// How many layers have to find each bug.
const LAYERS_MIN: usize = 2;

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
        ["hunt"] => hunt(Scenario::ALL).await,
        ["hunt", name] => {
            hunt(&[Scenario::parse(name).with_context(|| format!("there is no scenario `{name}`"))?]).await
        }
        ["--layers", options @ ..] => layers(&Options::parse(options)?).await,
        _ => bail!("usage: aetheris-zoo [table | --layers | run SCENARIO | hunt [SCENARIO]]"),
    }
}

/// What the table of layers is made of.
struct Options {
    markdown: Option<String>,
    only: String,
    seeds: u32,
}

impl Options {
    fn parse(given: &[&str]) -> Result<Self> {
        let mut options = Self { markdown: None, only: String::new(), seeds: 2_000 };
        for pair in given.chunks(2) {
            match pair {
                ["--markdown", file] => options.markdown = Some((*file).to_owned()),
                ["--only", word] => options.only = (*word).to_owned(),
                ["--seeds", number] => options.seeds = number.parse().context("--seeds takes a number")?,
                _ => bail!("usage: aetheris-zoo --layers [--only WORD] [--seeds N] [--markdown FILE]"),
            }
        }
        Ok(options)
    }
}

/// Plays scenarios until one finds something, and tells it in one line.
async fn hunt(scenarios: &[Scenario]) -> Result<ExitCode> {
    for scenario in scenarios {
        let verdict = scenario.run().await?;
        if !verdict.caught_by.is_empty() {
            let what = verdict.caught_by.join(", ");
            writeln!(std::io::stdout(), "{}", serde_json::json!({ "failed": true, "what": what }))?;
            return Ok(ExitCode::from(FOUND));
        }
    }
    writeln!(std::io::stdout(), "{}", serde_json::json!({ "failed": false, "scenarios": scenarios.len() }))?;
    Ok(ExitCode::SUCCESS)
}

/// One bug, and what every layer made of it; `None` where it is not one of the bug's layers.
type Row = (&'static Bug, Vec<Option<Hunt>>);

async fn layers(options: &Options) -> Result<ExitCode> {
    let mut out = std::io::stdout();
    let mut wrong = 0u32;
    for layer in Layer::ALL {
        match layer.hunt(None, options.seeds).await? {
            Hunt::Found { what, .. } => {
                wrong += 1;
                writeln!(out, "without a bug, the layer {} found: {what}", layer.as_str())?;
            }
            Hunt::Nothing(took) => {
                writeln!(out, "without a bug, the layer {} found nothing in {}", layer.as_str(), text(took))?;
            }
            Hunt::NotBuilt => writeln!(out, "the layer {} has not been built and is not asked", layer.as_str())?,
        }
    }
    let wanted = BUGS.iter().filter(|bug| bug.name.contains(&options.only));
    let mut rows = futures_util::stream::iter(wanted.map(|bug| every_layer(bug, options.seeds))).buffered(AT_ONCE);
    let mut table = vec![cells_of_head()];
    while let Some(row) = rows.next().await {
        let row = row?;
        wrong += u32::from(found_by(&row) < LAYERS_MIN);
        let cells = cells_of(&row);
        writeln!(out, "{}", cells.join(" | "))?;
        table.push(cells);
    }
    write_aligned(&mut out, &table)?;
    if let Some(file) = &options.markdown {
        std::fs::write(file, markdown(&table))?;
    }
    writeln!(out, "bug zoo: {} bugs; {wrong} wrong", table.len() - 1)?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

async fn every_layer(bug: &'static Bug, seeds: u32) -> Result<Row> {
    let mut hunts = Vec::new();
    for layer in Layer::ALL {
        hunts.push(if bug.layers.contains(&layer) { Some(layer.hunt(Some(bug), seeds).await?) } else { None });
    }
    Ok((bug, hunts))
}

fn found_by((_, hunts): &Row) -> usize {
    hunts.iter().flatten().filter(|hunt| matches!(hunt, Hunt::Found { .. })).count()
}

fn text(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

fn cells_of_head() -> Vec<String> {
    let layers = Layer::ALL.iter().map(|layer| layer.as_str().to_owned());
    std::iter::once("bug".to_owned()).chain(layers).chain(["first finding".to_owned()]).collect()
}

fn cells_of((bug, hunts): &Row) -> Vec<String> {
    let mut cells = vec![bug.name.to_owned()];
    let mut first = String::new();
    for hunt in hunts {
        cells.push(match hunt {
            None => "-".to_owned(),
            Some(Hunt::NotBuilt) => "not built".to_owned(),
            Some(Hunt::Nothing(_)) => "no".to_owned(),
            Some(Hunt::Found { what, took }) => {
                if first.is_empty() {
                    first = what.chars().take(72).collect();
                }
                text(*took)
            }
        });
    }
    cells.push(first);
    cells
}

fn write_aligned(out: &mut impl std::io::Write, table: &[Vec<String>]) -> Result<()> {
    let width = |place: usize| table.iter().filter_map(|row| row.get(place)).map(String::len).max().unwrap_or(0);
    for row in table {
        let cells = row.iter().enumerate().map(|(place, cell)| format!("{cell:<width$}", width = width(place)));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn markdown(table: &[Vec<String>]) -> String {
    let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
    let rule = table.first().map(|head| format!("|{}\n", "---|".repeat(head.len()))).unwrap_or_default();
    let mut lines = table.iter().map(line);
    let head = lines.next().unwrap_or_default();
    head + &rule + &lines.collect::<String>()
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
