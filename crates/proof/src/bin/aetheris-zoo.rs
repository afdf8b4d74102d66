//! `aetheris-zoo table` plants every bug of the zoo, one at a time, and prints what caught it.
//! `aetheris-zoo --layers [--only WORD] [--seeds N] [--sim PATH] [--markdown FILE] [--all]` asks the layers for every
//! bug, and prints which found it after how long; a bug that fewer than two have found (one, where it has no scenario) is wrong. The crash matrix,
//! the slowest, is asked for a bug only if others have not found it, and the simulation not for one that has a test of its own, but
//! by `--all`.
//! `aetheris-zoo run SCENARIO` plays one scenario in this process: exit 0 clean, 6 something was found.
//! `aetheris-zoo hunt [SCENARIO]` plays one or all and tells what was found as `zoo::layers` says.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use aetheris_proof::verdict;
use aetheris_proof::zoo::layers::{Hunt, Layer, Means};
use aetheris_proof::zoo::scenarios::Scenario;
use aetheris_proof::zoo::{BUGS, Bug, Verdict, outside};
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail, ensure};
use futures_util::StreamExt;

/// Bugs that are hunted at once.
const AT_ONCE: usize = 2;
/// Between these lines of a file stands the table; everything around it is written by people.
const BEGIN: &str = "<!-- the zoo: written by aetheris-zoo --layers --markdown -->\n";
const END: &str = "<!-- the end of the zoo -->\n";
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
    /// Ask every layer for every bug.
    all: bool,
    markdown: Option<String>,
    means: Means,
    only: String,
}

impl Options {
    fn parse(given: &[&str]) -> Result<Self> {
        let means = Means { seeds: 2_000, simulation: None };
        let mut options = Self { all: false, markdown: None, means, only: String::new() };
        let mut rest = given.iter();
        while let Some(option) = rest.next() {
            if *option == "--all" {
                options.all = true;
                continue;
            }
            let value = *rest.next().with_context(|| format!("{option} takes a value"))?;
            match *option {
                "--markdown" => options.markdown = Some(value.to_owned()),
                "--only" => options.only = value.to_owned(),
                "--seeds" => options.means.seeds = value.parse().context("--seeds takes a number")?,
                "--sim" => options.means.simulation = Some(PathBuf::from(value)),
                _ => bail!(
                    "usage: aetheris-zoo --layers [--only WORD] [--seeds N] [--sim PATH] [--markdown FILE] [--all]"
                ),
            }
        }
        Ok(options)
    }
}

/// Plays scenarios until one finds something, and tells it in one line.
async fn hunt(scenarios: &[Scenario]) -> Result<ExitCode> {
    for scenario in scenarios {
        let caught_by = scenario.run().await?.caught_by;
        if !caught_by.is_empty() {
            let what = caught_by.join(", ");
            writeln!(std::io::stdout(), "{}", serde_json::json!({ "failed": true, "what": what }))?;
            return Ok(verdict(false));
        }
    }
    writeln!(std::io::stdout(), "{}", serde_json::json!({ "failed": false, "scenarios": scenarios.len() }))?;
    Ok(verdict(true))
}

/// One bug, and what every layer made of it; `None` where it was not asked.
type Row = (&'static Bug, Vec<Option<Hunt>>);

async fn layers(options: &Options) -> Result<ExitCode> {
    let wanted: Vec<&Bug> = BUGS.iter().filter(|bug| bug.name.contains(&options.only)).collect();
    ensure!(!wanted.is_empty(), "no bug's name contains `{}`", options.only);
    let mut out = std::io::stdout();
    if let Some(file) = &options.markdown {
        // Before the hunt, which takes minutes.
        written(file, "")?;
    }
    let (mut wrong, mut clean) = (0u32, Vec::new());
    for layer in Layer::ALL {
        clean.push(match layer.hunt(None, &options.means).await? {
            Hunt::Found { what, .. } => {
                wrong += 1;
                format!("the {} FOUND {what}", layer.as_str())
            }
            Hunt::Nothing(took) => format!("the {} found nothing in {}", layer.as_str(), text(took)),
            Hunt::NotBuilt => format!("the {} has not been built and is not asked", layer.as_str()),
        });
    }
    let clean = format!("Without a bug: {}.", clean.join("; "));
    writeln!(out, "{clean}")?;
    let began = SystemClock.boot();
    let mut rows =
        futures_util::stream::iter(wanted.into_iter().map(|bug| every_layer(bug, options))).buffered(AT_ONCE);
    let mut table = vec![cells_of_head()];
    let mut by_layer = [0u32; Layer::ALL.len()];
    while let Some(row) = rows.next().await {
        let row = row?;
        wrong += u32::from(found_by(&row) < wanted_by(row.0));
        for (count, hunt) in by_layer.iter_mut().zip(&row.1) {
            *count += u32::from(matches!(hunt, Some(Hunt::Found { .. })));
        }
        let cells = cells_of(&row);
        writeln!(out, "{}", cells.join(" | "))?;
        table.push(cells);
    }
    let counted = Layer::ALL.iter().zip(by_layer).map(|(layer, count)| format!("{} {count}", layer.as_str()));
    let (bugs, took) = (table.len() - 1, text(SystemClock.boot() - began));
    let summary =
        format!("{bugs} bugs in {took}; found by: {}; {wrong} wrong.", counted.collect::<Vec<_>>().join(", "));
    writeln!(out, "{summary}")?;
    if let Some(file) = &options.markdown {
        std::fs::write(file, written(file, &markdown(&clean, &summary, options.means.seeds, &table))?)?;
    }
    Ok(verdict(wrong == 0))
}

async fn every_layer(bug: &'static Bug, options: &Options) -> Result<Row> {
    let mut row = (bug, Vec::new());
    for layer in Layer::ALL {
        let found = layer == Layer::Matrix && found_by(&row) >= wanted_by(bug);
        // What has a test of its own has it because these had found nothing.
        let known = bug.test.is_some() && matches!(layer, Layer::Simulation | Layer::Sqlite);
        let spared = (found || known) && !options.all;
        let asked = layer.can_find(bug) && !spared;
        row.1.push(if asked { Some(layer.hunt(Some(bug), &options.means).await?) } else { None });
    }
    Ok(row)
}

/// How many layers have to find it: one beside its own scenario.
fn wanted_by(bug: &Bug) -> usize {
    if bug.scenario.is_some() { LAYERS_MIN } else { 1 }
}

fn found_by((_, hunts): &Row) -> usize {
    hunts.iter().flatten().filter(|hunt| matches!(hunt, Hunt::Found { .. })).count()
}

fn text(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

fn cells_of_head() -> Vec<String> {
    let layers = Layer::ALL.iter().map(|layer| layer.as_str().to_owned());
    ["bug", "what it is"].map(str::to_owned).into_iter().chain(layers).collect()
}

fn cells_of((bug, hunts): &Row) -> Vec<String> {
    let mut cells = vec![format!("`{}`", bug.name), bug.what.to_owned()];
    for (layer, hunt) in Layer::ALL.iter().zip(hunts) {
        cells.push(match hunt {
            None => String::new(),
            Some(Hunt::NotBuilt) => "not built".to_owned(),
            Some(Hunt::Nothing(took)) => format!("nothing in {}", text(*took)),
            Some(Hunt::Found { looked_at, took, what }) => {
                let counted = match (layer, looked_at) {
                    (Layer::Simulation | Layer::Sqlite, Some(seeds)) => format!("{seeds} seeds, "),
                    (Layer::Search, Some(states)) => format!("{states} states, "),
                    _ => String::new(),
                };
                format!("{counted}{}: {}", text(*took), short(*layer, what))
            }
        });
    }
    cells
}

/// What was found, in the words of a cell: the invariant, the case of the contract, the law, the crash.
fn short(layer: Layer, what: &str) -> String {
    let word = what.split([' ', ':', ',']).next().unwrap_or_default();
    let told = match layer {
        Layer::Scenario => what.split(": ").next().unwrap_or_default(),
        Layer::Simulation | Layer::Sqlite => word,
        Layer::Test => return format!("`{}`", what.trim()),
        Layer::Conformance if word == "comparison" => word,
        Layer::Conformance => return format!("`{word}`"),
        Layer::Search | Layer::Matrix => what,
    };
    // Names of jobs and keys are of no use in a table.
    let words = told.split_whitespace().filter(|word| !word.starts_with("job_") && !word.starts_with("key_"));
    words.collect::<Vec<_>>().join(" ").replace('|', "/").chars().take(80).collect()
}

/// What a file is to hold: its text, with something else between its two lines.
fn written(file: &str, what: &str) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        parts.with_context(|| format!("there are no lines `{}` and `{}`", BEGIN.trim(), END.trim()))?;
    Ok(format!("{before}{BEGIN}{what}{END}{after}"))
}

fn markdown(clean: &str, summary: &str, seeds: u32, table: &[Vec<String>]) -> String {
    let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
    let rule = table.first().map(|head| format!("|{}\n", "---|".repeat(head.len()))).unwrap_or_default();
    let mut lines = table.iter().map(line);
    let head = lines.next().unwrap_or_default();
    let rows: String = lines.collect();
    format!(
        "* **scenario**: the smallest story that shows the bug, and the invariant that it breaks.\n\
         * **simulation**: seeds until the first that fails, of at most {seeds}, and the invariant.\n\
         * **over SQLite**: the same over SQLite's store, a tenth of the seeds; `STORES` is a story that differs from memory's.\n\
         * **conformance**: the case of the store's contract; only for bugs in a store.\n\
         * **search**: the same mistake in the model of the exhaustive search, and the law that it breaks; only where the\n  \
           model has a place for it.\n\
         * **test**: a test of its own, named where nothing that looks for everything has found the bug.\n\
         * **matrix**: real processes, lost answers and kills; asked only where others have not found the bug.\n\n\
         Those without a scenario survived all proofs when somebody who had not written them planted them.\n\n\
         {clean}\n\n{summary}\n\n{head}{rule}{rows}"
    )
}

async fn run(scenario: Scenario) -> Result<ExitCode> {
    let shown = scenario.run().await?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&shown)?)?;
    Ok(verdict(shown.caught_by.is_empty()))
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
    let shown = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("`{}` with {bug:?} could not be played: {}", scenario.as_str(), String::from_utf8_lossy(&output.stderr))
    })?;
    Ok((shown, (SystemClock.boot() - started).as_millis()))
}

async fn table() -> Result<ExitCode> {
    let mut out = std::io::stdout();
    let (mut wrong, mut clean) = (0u32, 0u32);
    for scenario in Scenario::ALL {
        let (Verdict { caught_by }, _) = play(*scenario, None).await?;
        if caught_by.is_empty() {
            clean += 1;
        } else {
            wrong += 1;
            writeln!(out, "without a bug, `{}` found: {}", scenario.as_str(), caught_by.join(", "))?;
        }
    }
    let width = |of: fn(&Bug) -> usize| BUGS.iter().map(of).max().unwrap_or(0);
    let staged = || BUGS.iter().filter_map(|bug| Some((bug, bug.scenario?)));
    let names = width(|bug| bug.name.len());
    let scenarios = staged().map(|(_, scenario)| scenario.as_str().len()).max().unwrap_or(0);
    writeln!(out, "{:<names$}  {:<scenarios$}  {:>7}  caught by", "bug", "scenario", "time")?;
    for (bug, scenario) in staged() {
        let (Verdict { caught_by }, millis) = play(scenario, Some(bug.name)).await?;
        let by = if caught_by.is_empty() { "NOT CAUGHT".to_owned() } else { caught_by.join(", ") };
        wrong += u32::from(caught_by.is_empty());
        writeln!(out, "{:<names$}  {:<scenarios$}  {millis:>4} ms  {by}", bug.name, scenario.as_str())?;
    }
    let (bugs, scenarios) = (staged().count(), Scenario::ALL.len());
    writeln!(out, "bug zoo: {bugs} bugs; {clean} of {scenarios} scenarios clean without them; {wrong} wrong")?;
    Ok(verdict(wrong == 0))
}
