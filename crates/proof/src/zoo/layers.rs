//! The layers that hunt for a bug, each as a program that says what it has found.
//!
//! Every program keeps one contract. It takes the bug from `AETHERIS_BUG` (the search takes the name of the same
//! mistake in its model), ends with 0 when it has found nothing and with 6 when it has, and its last line of
//! standard output is JSON: `failed`, `what` and, of the simulation, `seeds`. One that has not been built is
//! not asked.

use std::path::PathBuf;
use std::time::Duration;

use aetheris_cli::exit::Exit;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::Bug;

/// A seed over SQLite takes as long as so many in memory.
const SQLITE_SHARE: u32 = 10;
/// The exit code of cargo-nextest when a test has failed.
const NEXTEST_FAILED: i32 = 100;

/// A way to find bugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The smallest story that shows it, and the checker: `aetheris-zoo hunt`.
    Scenario,
    /// Seeds of the simulation: `aetheris-sim hunt`.
    Simulation,
    /// The same seeds over SQLite's store, whose story has to be that of the store in memory: `aetheris-sim hunt`.
    Sqlite,
    /// Every clause of the store's contract, on memory and a file: `aetheris-conformance`.
    Conformance,
    /// The same mistake in the model of the exhaustive search: `aetheris-model hunt`.
    Search,
    /// Lost answers to every write, and processes that are killed: `aetheris-matrix hunt`.
    Matrix,
    /// A test of its own: `cargo nextest`, over what is built.
    Test,
}

/// What came of a hunt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hunt {
    /// It was found.
    Found {
        /// Seeds or states that were looked at, where the layer counts them.
        looked_at: Option<u64>,
        /// How long it took, with the start of the program.
        took: Duration,
        /// By what.
        what: String,
    },
    /// Nothing was found in that time.
    Nothing(Duration),
    /// The program has not been built.
    NotBuilt,
}

/// The last line that a program prints.
#[derive(Debug, Deserialize)]
struct Told {
    failed: bool,
    #[serde(default)]
    seeds: Option<u64>,
    #[serde(default)]
    states: Option<u64>,
    #[serde(default)]
    what: Option<String>,
}

/// Where hunts look, and how long.
#[derive(Debug, Clone)]
pub struct Means {
    /// The most seeds of the simulation.
    pub seeds: u32,
    /// The simulation, where it is not in its usual place.
    pub simulation: Option<PathBuf>,
}

impl Layer {
    /// Every layer, in the order in which they are asked: the slowest last.
    pub const ALL: [Self; 7] =
        [Self::Scenario, Self::Simulation, Self::Sqlite, Self::Conformance, Self::Search, Self::Test, Self::Matrix];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scenario => "scenario",
            Self::Simulation => "simulation",
            Self::Sqlite => "over SQLite",
            Self::Conformance => "conformance",
            Self::Search => "search",
            Self::Matrix => "matrix",
            Self::Test => "test",
        }
    }

    /// Whether it can find the bug at all.
    #[must_use]
    pub fn can_find(self, bug: &Bug) -> bool {
        match self {
            Self::Scenario => bug.scenario.is_some(),
            Self::Simulation | Self::Sqlite | Self::Matrix => true,
            Self::Test => bug.test.is_some(),
            Self::Conformance => bug.in_store,
            Self::Search => super::bugs::mutation(bug.name).is_some(),
        }
    }

    /// The program and its arguments.
    fn call(self, bug: Option<&Bug>, means: &Means) -> Result<(PathBuf, Vec<String>)> {
        let mut arguments = vec!["hunt".to_owned()];
        let program = match self {
            Self::Scenario => {
                arguments.extend(bug.and_then(|bug| bug.scenario).map(|scenario| scenario.as_str().to_owned()));
                beside("aetheris-zoo")?
            }
            Self::Simulation => {
                arguments.extend(["--seeds".to_owned(), means.seeds.to_string()]);
                means.simulation.clone().map_or_else(simulation, Ok)?
            }
            Self::Sqlite => {
                let seeds = (means.seeds / SQLITE_SHARE).max(1).to_string();
                arguments.extend(["--seeds".to_owned(), seeds, "--store".to_owned(), "sqlite".to_owned()]);
                means.simulation.clone().map_or_else(simulation, Ok)?
            }
            Self::Test => {
                let of = |bug: &Bug| bug.test.map(|test| format!("test({test})"));
                let tests = bug.map_or_else(
                    || super::BUGS.iter().filter_map(of).collect(),
                    |bug| of(bug).into_iter().collect::<Vec<_>>(),
                );
                let only = tests.join(" | ");
                arguments =
                    ["nextest", "run", "--workspace", "--locked", "-E", only.as_str()].map(str::to_owned).to_vec();
                PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            }
            Self::Conformance => {
                arguments.clear();
                beside("aetheris-conformance")?
            }
            Self::Search => {
                arguments.extend(bug.and_then(|bug| super::bugs::mutation(bug.name)).map(str::to_owned));
                beside("aetheris-model")?
            }
            Self::Matrix => beside("aetheris-matrix")?,
        };
        Ok((program, arguments))
    }

    /// Hunts for a bug, or runs without one.
    ///
    /// # Errors
    /// The program breaks its contract.
    pub async fn hunt(self, bug: Option<&Bug>, means: &Means) -> Result<Hunt> {
        let (program, arguments) = self.call(bug, means)?;
        if self != Self::Test && !program.exists() {
            return Ok(Hunt::NotBuilt);
        }
        let started = SystemClock.boot();
        let mut command = tokio::process::Command::new(&program);
        command.args(arguments).env_remove("AETHERIS_CRASH").env_remove("AETHERIS_BUG");
        if let Some(bug) = bug {
            command.env("AETHERIS_BUG", bug.name);
        }
        let output = command.kill_on_drop(true).output().await?;
        let took = SystemClock.boot() - started;
        if self == Self::Test {
            return tested(&output, took);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let (name, last) = (self.as_str(), text.lines().last().unwrap_or_default());
        let told: Told = serde_json::from_str(last).with_context(|| {
            format!("{name} has told nothing: {}: {last}\n{}", output.status, String::from_utf8_lossy(&output.stderr))
        })?;
        let exit = if told.failed { Exit::CheckFailed } else { Exit::Done };
        ensure!(output.status.code() == Some(i32::from(exit.code())), "{name} ended with {}: {last}", output.status);
        let looked_at = told.seeds.or(told.states);
        let what = told.what.unwrap_or_default();
        Ok(if told.failed { Hunt::Found { looked_at, took, what } } else { Hunt::Nothing(took) })
    }
}

/// What cargo-nextest says of the tests by themselves.
fn tested(output: &std::process::Output, took: Duration) -> Result<Hunt> {
    let text = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(Hunt::Nothing(took)),
        Some(NEXTEST_FAILED) => {
            let failed = text.lines().find(|line| line.trim_start().starts_with("FAIL"));
            let what = failed.and_then(|line| line.rsplit("::").next()).unwrap_or_default().to_owned();
            Ok(Hunt::Found { looked_at: None, took, what })
        }
        _ => bail!("the tests could not be run: {}\n{text}", output.status),
    }
}

/// The simulation: of the profile that is made for it, or of the same build.
fn simulation() -> Result<PathBuf> {
    let beside = beside("aetheris-sim")?;
    let of_profile = beside.parent().and_then(|folder| folder.parent()).map(|target| target.join("proof/aetheris-sim"));
    Ok(of_profile.filter(|program| program.exists()).unwrap_or(beside))
}

/// A program of the same build.
fn beside(name: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe()?.parent().context("no folder")?.join(name))
}
