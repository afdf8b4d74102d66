//! What no test notices is shown to the simulation.

use std::process::Command;

use anyhow::{Context as _, bail};

use crate::tree::{CHOSEN, Tree};
use crate::weave::Id;

/// Who has noticed, where it is the simulation.
pub(crate) const NAME: &str = "the simulation";
const PROGRAM: &str = "aetheris-sim";
/// It stops at the first seed that fails.
const SEEDS: &str = "2000";
/// On SQLite a seed takes ten times as long.
const SEEDS_ON_SQLITE: &str = "300";
/// Seconds. Beyond them nothing is known.
const TIME: &str = "300";

/// Builds it and sees that it finds nothing without a mutant.
pub(crate) fn built(tree: &Tree, store: &str) -> anyhow::Result<()> {
    let output = tree.cargo().args(["build", "--locked", "--package", PROGRAM]).output()?;
    if !output.status.success() {
        bail!("the simulation does not build: {}", String::from_utf8_lossy(&output.stderr));
    }
    if finds(tree, store, 0)? {
        bail!("the simulation fails without a mutant");
    }
    Ok(())
}

/// Whether it finds the mutant.
pub(crate) fn finds(tree: &Tree, store: &str, id: Id) -> anyhow::Result<bool> {
    let mut command = Command::new("timeout");
    command.arg(TIME).arg(tree.target.join("debug").join(PROGRAM));
    let seeds = if store == "sqlite" { SEEDS_ON_SQLITE } else { SEEDS };
    command.args(["hunt", "--from", "100001", "--seeds", seeds, "--store", store]);
    command.env(CHOSEN, id.to_string()).current_dir(&tree.path);
    let output = command.output().context("start the simulation")?;
    match output.status.code() {
        Some(0) => Ok(false),
        Some(6) => Ok(true),
        Some(124) => {
            crate::say("the simulation did not end in its time; it has not noticed");
            Ok(false)
        }
        // It panicked or was killed where no seed of the tree as it is does.
        Some(101) | None => Ok(true),
        Some(code) => bail!("the simulation ended with {code}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}
