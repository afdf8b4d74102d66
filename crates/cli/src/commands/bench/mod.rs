//! `bench`: what a step, a job, a signal and a restart cost on this machine, beside what its disk can do.
//!
//! Every figure stands beside a bare SQLite transaction of the same size, committed in the same run with
//! the same settings: machines differ, ratios do not. Nothing here weakens durability; the settings in
//! force are printed.

mod bare;
mod child;
mod http;
mod memory;
mod readers;
mod replay;
mod restart;
mod signals;
mod steps;
mod table;
mod world;

use std::path::PathBuf;

use super::Context;
use crate::args;
use crate::error::Error;
use crate::exit::Exit;

pub(crate) use table::{Goal, Rows};

/// What is measured and how long.
pub(crate) struct Plan {
    /// Where databases are made.
    pub(crate) folder: PathBuf,
    only: Vec<String>,
    /// Fewer rounds.
    pub(crate) quick: bool,
}

impl Plan {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.contains(only.as_str()))
    }

    /// A count of rounds: a fifth where it is to be quick.
    pub(crate) fn rounds(&self, full: usize) -> usize {
        if self.quick { (full / 5).max(1) } else { full }
    }
}

/// Measures and prints a table.
///
/// # Errors
/// A store or a process of the benchmark cannot be started.
pub async fn run(given: &args::Bench, context: &Context) -> Result<Exit, Error> {
    if cfg!(debug_assertions) {
        context.out.note("this is a debug build: its figures say nothing. Build with --release");
    }
    let folder = match &given.data {
        Some(folder) => folder.clone(),
        None => PathBuf::from(format!("aetheris-bench-{}", std::process::id())),
    };
    std::fs::create_dir_all(&folder).map_err(|e| anyhow::anyhow!("{} cannot be made: {e}", folder.display()))?;
    let plan = Plan { folder, only: given.only.clone(), quick: given.quick };
    let mut rows = Rows::default();
    let measured = Box::pin(measure(&plan, &mut rows, context)).await;
    if given.data.is_none() {
        std::fs::remove_dir_all(&plan.folder).map_err(|e| anyhow::anyhow!("{} is left: {e}", plan.folder.display()))?;
    }
    measured?;
    if context.out.json {
        context.out.value(&rows)?;
    } else {
        context.out.text(&rows.to_string())?;
    }
    Ok(Exit::Done)
}

async fn measure(plan: &Plan, rows: &mut Rows, context: &Context) -> Result<(), Error> {
    let note = |what: &str| context.out.note(&format!("measuring {what}…"));
    note("bare commits");
    let bare = bare::measure(plan, rows)?;
    if plan.wants("steps") {
        note("steps");
        steps::measure(plan, rows).await?;
    }
    if plan.wants("http") {
        note("jobs over HTTP");
        http::measure(plan, bare, rows).await?;
    }
    if plan.wants("signal") {
        note("signals");
        signals::measure(plan, bare, rows).await?;
    }
    if plan.wants("replay") {
        note("replay");
        replay::measure(plan, rows).await?;
    }
    if plan.wants("restart") {
        note("a restart after kill -9");
        restart::measure(plan, rows).await?;
    }
    if plan.wants("readers") {
        note("readers of a large job");
        readers::measure(plan, rows).await?;
    }
    if plan.wants("memory") {
        note("memory and idle work");
        memory::measure(plan, rows).await?;
    }
    Ok(())
}
