//! `bench`: what a step, a job, a signal and a restart cost on this machine, beside what its disk can do.
//!
//! Every figure stands beside a bare SQLite transaction of the same size, committed in the same run with
//! the same settings: machines differ, ratios do not. Nothing here weakens durability; the settings in
//! force are printed.

mod bare;
mod child;
mod http;
mod large;
mod memory;
mod place;
mod plans;
mod readers;
mod replay;
mod restart;
mod signals;
mod steps;
mod table;
mod world;

use std::sync::Arc;

use aetheris_store::vital;

use super::Context;
use super::process_control::asked_to_stop;
use crate::args;
use crate::error::Error;
use crate::exit::Exit;

use place::Place;
pub(crate) use table::{Goal, Rows};

/// What is measured and how long.
pub(crate) struct Plan {
    /// Where databases are made.
    pub(crate) place: Arc<Place>,
    parts: Vec<Part>,
    /// Fewer rounds.
    pub(crate) quick: bool,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Steps,
    Plans,
    Http,
    Signals,
    Replay,
    Restart,
    Readers,
    Memory,
    Large,
}

impl Part {
    const ALL: [Self; 9] = [
        Self::Steps,
        Self::Plans,
        Self::Http,
        Self::Signals,
        Self::Replay,
        Self::Restart,
        Self::Readers,
        Self::Memory,
        Self::Large,
    ];

    /// As `--only` names it.
    const fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Plans => "plans",
            Self::Http => "http",
            Self::Signals => "signals",
            Self::Replay => "replay",
            Self::Restart => "restart",
            Self::Readers => "readers",
            Self::Memory => "memory",
            Self::Large => "large",
        }
    }
}

/// The parts whose names contain one of these; without any all but the large store, whose making takes minutes.
fn chosen(only: &[String]) -> Result<Vec<Part>, Error> {
    if let Some(unknown) = only.iter().find(|only| !Part::ALL.iter().any(|part| part.name().contains(only.as_str()))) {
        let names = Part::ALL.map(Part::name).join(", ");
        return Err(Error::Usage(format!("--only: nothing is called `{unknown}`; there are {names}")));
    }
    let wanted = |part: &Part| {
        if only.is_empty() { *part != Part::Large } else { only.iter().any(|only| part.name().contains(only.as_str())) }
    };
    Ok(Part::ALL.into_iter().filter(wanted).collect())
}

impl Plan {
    fn wants(&self, part: Part) -> bool {
        self.parts.contains(&part)
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
    let parts = chosen(&given.only)?;
    let beside = given.data.as_deref().unwrap_or(std::path::Path::new("."));
    let cannot = |error| anyhow::anyhow!("no folder to measure in can be made in {}: {error}", beside.display());
    let place = Arc::new(Place::make(beside).map_err(cannot)?);
    let plan = Plan { place: Arc::clone(&place), parts, quick: given.quick };
    let mut rows = Rows::default();
    // What is measured holds this thread for long: the request to stop is heard by another one, which waits for
    // nothing. Only the folder has to go, and nothing is measured or told from then on.
    let (out, asked) = (context.out.clone(), asked_to_stop());
    tokio::spawn(async move {
        let stop = asked.await;
        let _nothing_more = place.remove();
        vital::end_process(i32::from(stop.exit().code()), || {
            crate::report(&out, &stop);
        })
    });
    let measured = Box::pin(measure(&plan, &mut rows, context)).await;
    let _nothing_more = plan.place.remove();
    measured?;
    if context.out.json {
        context.out.value(&rows)?;
    } else {
        context.out.text(&rows.table().render(context.out.style))?;
    }
    Ok(Exit::Done)
}

async fn measure(plan: &Plan, rows: &mut Rows, context: &Context) -> Result<(), Error> {
    let note = |what: &str| context.out.note(&format!("measuring {what}…"));
    note("bare commits");
    let bare = bare::measure(plan, rows)?;
    if plan.wants(Part::Steps) {
        note("steps");
        steps::measure(plan, rows).await?;
    }
    if plan.wants(Part::Plans) {
        note("steps at once, maps, loops and child jobs");
        plans::measure(plan, rows).await?;
    }
    if plan.wants(Part::Http) {
        note("jobs over HTTP");
        http::measure(plan, bare, rows).await?;
    }
    if plan.wants(Part::Signals) {
        note("signals");
        signals::measure(plan, bare, rows).await?;
    }
    if plan.wants(Part::Replay) {
        note("replay");
        replay::measure(plan, rows).await?;
    }
    if plan.wants(Part::Restart) {
        note("a restart after kill -9");
        restart::measure(plan, rows).await?;
    }
    if plan.wants(Part::Readers) {
        note("readers of a large job");
        readers::measure(plan, rows).await?;
    }
    if plan.wants(Part::Memory) {
        note("memory and idle work");
        memory::measure(plan, rows).await?;
    }
    if plan.wants(Part::Large) {
        note("a store of many jobs");
        large::measure(plan, rows, note).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_part_is_refused_before_anything_is_measured() {
        let only = |names: &[&str]| chosen(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(only(&[]).unwrap(), Part::ALL[..Part::ALL.len() - 1]);
        assert_eq!(only(&["signal", "step"]).unwrap(), [Part::Steps, Part::Signals]);
        let error = only(&["steps", "nope"]).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert_eq!(
            error.to_string(),
            "--only: nothing is called `nope`; there are steps, plans, http, signals, replay, restart, readers, memory, large"
        );
    }
}
