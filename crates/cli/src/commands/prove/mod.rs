//! `prove`: the guarantee table, run against the user's own configuration on the user's own disk.
//!
//! Real processes of this program are killed, stopped and locked out from outside; their tools are fake and
//! keep a log of their own. Nothing in the runtime knows of it. Everything happens in a new folder beside the
//! user's data, never in it.
//!
//! Reading order: `guarantee` (the table), `plan` (settings), `workspace` (where an experiment happens), `tools`
//! (the outside world), `experiments`, `report`.

mod agents;
mod args;
mod cases;
mod experiments;
mod machine;
mod plan;
mod report;
mod report_file;
mod tools;
mod workspace;

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aetheris_check::Line;
use aetheris_store::system::System;
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;

pub use self::args::ProveArgs;
use self::cases::Cases;
use self::experiments::Experiment;
use self::machine::Machine;
pub(in crate::commands) use self::machine::percentile;
use self::plan::Plan;
use self::report::{Done, Report, Verdict};
use self::report_file::ReportFile;
use self::workspace::Workspace;
use super::Context;
use super::guarantee::Guarantee;
use super::process_control::{Fault, Folder, ParentFolder, asked_to_stop};
use crate::config::{Config, Override};
use crate::error::{Error, counted};
use crate::exit::Exit;
use crate::out::Out;
use crate::render::Style;

/// Columns of an experiment's name.
const NAME_COLUMNS: usize = 11;
/// The whole is promised to take less.
const SECONDS_MAX: u64 = 15 * 60;

/// What the arguments set in the configuration.
pub(super) fn flags(given: &ProveArgs) -> Vec<Override> {
    let Some(data) = &given.data else { return Vec::new() };
    let path = data.join("aetheris.db");
    vec![
        Override { key: "jobstore.type", value: json!("sqlite"), flag: "--data" },
        Override { key: "jobstore.sqlite.path", value: json!(path), flag: "--data" },
    ]
}

/// Runs the experiments and says what they proved. Exit 6 where something does not hold.
///
/// # Errors
/// The configuration cannot be proved, nothing can be written beside the data, or someone asks to stop. What
/// was started is killed either way.
pub async fn run(given: &ProveArgs, config: &Config, context: &Context) -> Result<Exit, Error> {
    let chosen = chosen(&given.only)?;
    let plan = Plan::new(given, config)?;
    if let Some(report) = &given.report {
        ReportFile(report).check()?;
    }
    let made = |error| anyhow::anyhow!("no folder can be made in {}: {error}", plan.beside.display());
    let parent = ParentFolder::make(&plan.beside).map_err(made)?;
    let mut folder = Folder::make_in(&plan.beside, "aetheris-prove").map_err(made)?;
    let teller = Teller { out: context.out.clone(), running: Mutex::default() };
    let ran = tokio::select! {
        ran = perform(&plan, &chosen, folder.path(), &teller) => ran,
        stopped = asked_to_stop() => Err(stopped),
    };
    teller.out.progress("");
    let mut report = ran?;
    if given.keep || !report.proved {
        folder.keep();
        report.evidence = Some(folder.path().display().to_string());
    }
    drop(folder);
    drop(parent);
    if context.out.json {
        context.out.value(&report)?;
    } else {
        context.out.text(&report.page(context.out.style))?;
    }
    let written = given.report.as_ref().map_or(Ok(()), |file| ReportFile(file).write(&report.markdown()));
    match written {
        // What does not hold outweighs it.
        Err(error) if !report.proved => context.out.note(&error.to_string()),
        written => written?,
    }
    Ok(if report.proved { Exit::Done } else { Exit::CheckFailed })
}

/// The experiments whose names contain one of these; all without any.
fn chosen(only: &[String]) -> Result<Vec<Experiment>, Error> {
    let wanted = |one: &&Experiment| only.is_empty() || only.iter().any(|name| one.id().contains(name.as_str()));
    let chosen: Vec<Experiment> = Experiment::ALL.iter().filter(wanted).copied().collect();
    let unknown = only.iter().find(|name| !chosen.iter().any(|one| one.id().contains(name.as_str())));
    match unknown {
        None => Ok(chosen),
        Some(name) => {
            let names: Vec<&str> = Experiment::ALL.iter().map(|one| one.id()).collect();
            Err(Error::Usage(format!("--only: no experiment is called `{name}`; there are {}", names.join(", "))))
        }
    }
}

/// Tells how it goes. With `--json`, stdout is for the one value.
struct Teller {
    out: Out,
    running: Mutex<Vec<&'static str>>,
}

impl Teller {
    /// Shows what runs, each second. Ends with whatever it is raced against.
    async fn show(&self, estimate: u64) -> Infallible {
        let began = Instant::now();
        loop {
            let line = format!("{} … {} s of about {estimate}", self.running().join(", "), began.elapsed().as_secs());
            self.out.progress(&line);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn running(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, line: &str) {
        if self.out.json {
            self.out.note(line);
        } else {
            // If nobody reads, the proof goes on: its end says so.
            let _unread = self.out.line(line);
        }
    }

    fn style(&self) -> Style {
        if self.out.json { Style::default() } else { self.out.style }
    }

    fn done(&self, done: &Done) {
        self.running().retain(|name| *name != done.name);
        self.out.progress("");
        // Padded before it is painted: colours have no width.
        let verdict = self.style().paint(done.verdict.tone(), &format!("{:<13}", done.verdict.words()));
        let (name, cases, seconds) = (done.name, done.examined, done.seconds);
        self.line(format!("{name:<NAME_COLUMNS$}{cases:>7}  {seconds:>6.1} s  {verdict}  {}", done.what).trim_end());
    }
}

async fn perform(plan: &Plan, chosen: &[Experiment], folder: &Path, teller: &Teller) -> Result<Report, Error> {
    let began = Instant::now();
    let estimate = estimate(plan, chosen);
    teller.line(&format!(
        "{} in {}, about {estimate} s. Processes of this program are killed and stopped; your data is not touched.",
        counted(chosen.len(), "experiment"),
        folder.display()
    ));
    if estimate > SECONDS_MAX {
        teller.line(&format!(
            "a lease of {} s makes this longer than {} minutes: --lease-ttl 30s shortens it, and the report says so",
            plan.lease.as_secs(),
            SECONDS_MAX / 60
        ));
    }
    for note in &plan.notes {
        teller.line(&format!("note: {note}"));
    }
    teller.line("");
    teller.line(&format!(
        "{:<NAME_COLUMNS$}{:>7}  {:>8}  {:<13}  WHAT IS DONE",
        "EXPERIMENT", "CASES", "TIME", "VERDICT"
    ));
    let mut machine = Machine::measure(plan, folder)?;
    let durability = durability(folder).await?;
    let (waiting, busy): (Vec<Experiment>, Vec<Experiment>) =
        chosen.iter().partition(|experiment| experiment.waits_for_leases());
    // Those that mostly wait do so beside the others.
    let waiting = join_all(waiting.into_iter().map(|experiment| conduct(experiment, plan, folder, teller)));
    let busy = async {
        let mut done = Vec::new();
        for experiment in busy {
            done.push(conduct(experiment, plan, folder, teller).await);
        }
        done
    };
    let (waited, mut done) = tokio::select! {
        // What runs is known once it has begun.
        biased;
        done = async { tokio::join!(waiting, busy) } => done,
        never = teller.show(estimate) => match never {},
    };
    done.extend(waited);
    machine.look_at_clocks();
    let report = report(plan, (machine, durability), done, began.elapsed().as_secs_f64());
    Ok(report)
}

/// What the store says of the settings in force.
async fn durability(folder: &Path) -> Result<String, Error> {
    let store = crate::wiring::open_sqlite(&folder.join("settings.db"), &System::machine())?;
    Ok(store.status().await.map_err(anyhow::Error::from)?.durability)
}

/// About how many seconds it will take.
fn estimate(plan: &Plan, chosen: &[Experiment]) -> u64 {
    let seconds = |waits: bool| {
        let of_kind = chosen.iter().filter(move |one| one.waits_for_leases() == waits);
        of_kind.map(|one| one.seconds(plan)).collect::<Vec<u64>>()
    };
    let longest = seconds(true).into_iter().max().unwrap_or(0);
    longest.max(seconds(false).into_iter().sum()) + 2
}

/// Runs one experiment in a folder of its own, checks every invariant after it, and tells of it.
async fn conduct(experiment: Experiment, plan: &Plan, folder: &Path, teller: &Teller) -> Done {
    let began = Instant::now();
    teller.running().push(experiment.id());
    let (cases, invariants) = match Workspace::new(plan, folder.join(experiment.id())).await {
        Ok(mut workspace) => {
            let ran = experiment.run(&mut workspace).await;
            workspace.history.quiet = ran.is_ok();
            if let Err(fault) = ran {
                broke_off(experiment, &fault, &mut workspace.cases);
            }
            let lines = checked(&mut workspace).await;
            (std::mem::take(&mut workspace.cases), lines)
        }
        Err(fault) => {
            let mut cases = Cases::default();
            broke_off(experiment, &fault, &mut cases);
            (cases, Vec::new())
        }
    };
    let done = Done {
        examined: cases.examined(),
        folder: experiment.id(),
        invariants,
        name: experiment.id(),
        notes: cases.notes.clone(),
        seconds: began.elapsed().as_secs_f64(),
        verdict: verdict(experiment, &cases),
        what: experiment.what(),
        cases,
    };
    teller.done(&done);
    done
}

/// Every guarantee that the experiment is for has cases, and nothing contradicts any.
fn verdict(experiment: Experiment, cases: &Cases) -> Verdict {
    let unexamined = experiment.proves().iter().any(|guarantee| cases.of(*guarantee).examined == 0);
    match Verdict::of(cases.examined(), cases.failed(), true) {
        Verdict::Holds if unexamined => Verdict::NotExamined,
        verdict => verdict,
    }
}

/// An experiment that did not come to its end has shown nothing of what it is for.
fn broke_off(experiment: Experiment, fault: &Fault, cases: &mut Cases) {
    for guarantee in experiment.proves() {
        cases.contradicted(*guarantee, format!("experiment `{}` broke off: {fault}", experiment.id()));
    }
}

/// Every invariant over what an experiment has left.
async fn checked(workspace: &mut Workspace<'_>) -> Vec<Line> {
    if !workspace.database().exists() {
        return Vec::new();
    }
    match workspace.check().await {
        Ok(report) => {
            for line in report.lines.iter().filter(|line| line.violated > 0) {
                for violation in &line.violations {
                    let what = format!("invariant {} ({}): {violation}", line.id, line.what);
                    workspace.cases.contradicted(Guarantee::of(line.id), what);
                }
            }
            report.lines
        }
        Err(fault) => {
            workspace.cases.contradicted(Guarantee::Audited, fault.to_string());
            Vec::new()
        }
    }
}

fn report(plan: &Plan, (machine, durability): (Machine, String), mut done: Vec<Done>, seconds: f64) -> Report {
    let place = |done: &Done| Experiment::ALL.iter().position(|one| one.id() == done.name);
    done.sort_by_key(place);
    let whole = done.len() == Experiment::ALL.len();
    let guarantees = report::rows(&done, whole);
    let invariants = report::invariants(&done, whole);
    let settings = vec![
        format!("worker.lease_ttl {:.1} s", plan.lease.as_secs_f64()),
        format!("worker.heartbeat {:.1} s", plan.heartbeat.as_secs_f64()),
        format!("worker.slots {}", plan.slots),
        if plan.quick { "quick".to_owned() } else { "full".to_owned() },
    ];
    Report {
        proved: Report::is_proof(&guarantees, &done, &invariants),
        version: env!("CARGO_PKG_VERSION"),
        at: System::machine().clock.wall().to_string(),
        seconds,
        beside: plan.beside.display().to_string(),
        durability,
        whole,
        settings,
        machine,
        guarantees,
        experiments: done,
        invariants,
        notes: plan.notes.clone(),
        evidence: None,
    }
}

#[cfg(test)]
mod tests;
