//! The layers that hunt for a bug, each as a program beside this one that says what it has found.
//!
//! Every program keeps one contract. It takes the bug from `AETHERIS_BUG`, ends with 0 when it has found
//! nothing and with 6 when it has, and its last line of standard output is JSON: `failed`, `what` and, of the
//! simulation, `seed`. `aetheris-sim hunt --seeds N` is asked only where it has been built.

use std::path::PathBuf;
use std::time::Duration;

use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Bug;

/// A check found something.
const FOUND: i32 = 6;

/// A way to find bugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The smallest story that shows it, and the checker: `aetheris-zoo run`.
    Scenario,
    /// Every clause of the store's contract, on memory and a file: `aetheris-conformance`.
    Conformance,
    /// Lost answers to every write, and processes that are killed: `aetheris-matrix hunt`.
    Matrix,
    /// Seeds of the simulation: `aetheris-sim hunt`.
    Simulation,
}

/// What came of a hunt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hunt {
    /// It was found.
    Found {
        /// By what.
        what: String,
        /// How long it took.
        took: Duration,
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
    seed: Option<u64>,
    #[serde(default)]
    what: Option<String>,
}

impl Layer {
    /// Every layer, in the order in which they are asked.
    pub const ALL: [Self; 4] = [Self::Scenario, Self::Conformance, Self::Matrix, Self::Simulation];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scenario => "scenario",
            Self::Conformance => "conformance",
            Self::Matrix => "matrix",
            Self::Simulation => "simulation",
        }
    }

    /// The program and its arguments.
    fn call(self, bug: Option<&Bug>, seeds: u32) -> (&'static str, Vec<String>) {
        match self {
            Self::Scenario => {
                let story = bug.map(|bug| vec!["hunt".to_owned(), bug.scenario.as_str().to_owned()]);
                ("aetheris-zoo", story.unwrap_or_else(|| vec!["hunt".to_owned()]))
            }
            Self::Conformance => ("aetheris-conformance", Vec::new()),
            Self::Matrix => ("aetheris-matrix", vec!["hunt".to_owned()]),
            Self::Simulation => ("aetheris-sim", vec!["hunt".to_owned(), "--seeds".to_owned(), seeds.to_string()]),
        }
    }

    /// Hunts for a bug, or runs without one.
    ///
    /// # Errors
    /// The program breaks its contract.
    pub async fn hunt(self, bug: Option<&Bug>, seeds: u32) -> Result<Hunt> {
        let (name, arguments) = self.call(bug, seeds);
        let program = beside(name)?;
        if !program.exists() {
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
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().last().unwrap_or_default();
        let told: Told = serde_json::from_str(last).with_context(|| {
            format!("{name} has told nothing: {}: {last}\n{}", output.status, String::from_utf8_lossy(&output.stderr))
        })?;
        let status = output.status.code();
        ensure!(status == Some(if told.failed { FOUND } else { 0 }), "{name} ended with {}: {last}", output.status);
        if !told.failed {
            return Ok(Hunt::Nothing(took));
        }
        let seed = told.seed.map_or_else(String::new, |seed| format!(" (seed {seed})"));
        Ok(Hunt::Found { what: told.what.unwrap_or_default() + &seed, took })
    }
}

/// A program of the same build.
fn beside(name: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe()?.parent().context("no folder")?.join(name))
}
