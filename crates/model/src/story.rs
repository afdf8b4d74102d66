//! A path as a numbered story: who did what, and what the job looks like then.

use std::fmt::Write as _;

use stateright::Path;

use crate::fact::{Answered, Outcome};
use crate::laws::Law;
use crate::outside::Op;
use crate::signal::Signal;
use crate::state::{Job, Run};
use crate::system::{Action, Fate, Search, System};

/// Tells a path, and how many steps it has.
#[must_use]
pub fn tell(search: &Search, path: Path<System, Action>) -> (String, usize) {
    let mut text = String::new();
    let steps = path.into_vec();
    let count = steps.len().saturating_sub(1);
    if let Some((first, _)) = steps.first() {
        for (number, job) in first.jobs.iter().enumerate() {
            let later = if job.later { ", for later" } else { "" };
            let _ = writeln!(text, "    job {number}{later}: {:?}", search.program(job).steps);
        }
    }
    for (number, (system, action)) in steps.iter().enumerate() {
        if let Some(action) = action {
            let _ = write!(text, "{:>3}. {:<62}", number + 1, said(system, *action));
            if let Some((after, _)) = steps.get(number + 1) {
                let jobs: Vec<String> = after.jobs.iter().map(|job| shown(search, job)).collect();
                let _ = writeln!(text, " → {}", jobs.join(" | "));
            }
        }
    }
    if let Some((last, _)) = steps.last() {
        for law in Law::ALL.iter().filter(|law| last.broken & (1 << (**law as u64)) != 0) {
            let _ = writeln!(text, "     broken: {}", law.as_str());
        }
    }
    (text, count)
}

fn shown(search: &Search, job: &Job) -> String {
    let mut text = job.status().as_str().to_owned();
    let lease = if job.live { "" } else { ", expired" };
    if job.held {
        let _ = write!(text, " by run {}{lease}", job.view.fold.epoch());
    }
    for node in 0..search.program(job).steps.len() {
        if let Some(row) = job.view.ledger[node] {
            let passed = if row.passed { ", past its deadline" } else { "" };
            let began = if job.bodies[node] & row.permit.bit() != 0 { ", body began" } else { "" };
            let _ = write!(text, "; n{node} permit {} {}{passed}{began}", row.permit.number, row.status.as_str());
        }
    }
    for Signal { id, node, word } in &job.view.kept {
        let _ = write!(text, "; signal {id} ({word:?}) kept for n{node}");
    }
    text
}

fn said(system: &System, action: Action) -> String {
    let name =
        |worker: usize| system.workers.get(worker).and_then(Option::as_ref).map_or_else(|| "nobody".to_owned(), named);
    match action {
        Action::Arrive { job, node, number } => {
            format!("the call of job {job}, n{node}, permit {number} arrives: its body begins")
        }
        Action::Answer(worker, answer) => {
            let said = match answer {
                Answered::Happened => "it happened",
                Answered::DidNotHappen => "it did not happen",
                Answered::Unresolved => "unknown",
            };
            format!("{}: the tool that was asked says: {said}", name(worker))
        }
        Action::Call(worker) => format!("{} checks its lease and calls, if it may", name(worker)),
        Action::Claim(job) => format!("a worker claims job {job}"),
        Action::Crash(worker) => format!("the process of {} dies", name(worker)),
        Action::Deposit(worker) => format!("{} deposits what it knows", name(worker)),
        Action::Drop(worker) => format!("{} is told to stop and drops its call", name(worker)),
        Action::Due { job, node, .. } => format!("the timer of job {job}, n{node} is due"),
        Action::Expire(job) => format!("the lease of job {job} expires"),
        Action::Land(_) => "a late commit arrives".to_owned(),
        Action::LandPending => "the operation that has looked writes".to_owned(),
        Action::Lose(_) => "a late commit never arrives".to_owned(),
        Action::Moment(job) => format!("the moment of job {job} comes"),
        Action::Outside(job, op) => format!("job {job}: {}", operation(op)),
        Action::Pass { job, node } => format!("the permit's deadline of job {job}, n{node} passes"),
        Action::Pend(job, op) => format!("job {job}: {}; it has looked and not written", operation(op)),
        Action::Renew(worker) => format!("{} renews its lease", name(worker)),
        Action::Return(worker, outcome) => {
            let said = match outcome {
                Outcome::Done => "an answer",
                Outcome::Refused => "a refusal",
                Outcome::NotSent | Outcome::Unused => "that nothing left",
                Outcome::Unknown => "nothing: the outcome is unknown",
            };
            format!("{} gets {said}", name(worker))
        }
        Action::Settle(worker) => format!("{} asks what became of its commit", name(worker)),
        Action::Short(worker) => format!("{} is slow: too little is left of its lease", name(worker)),
        Action::Write(worker) => format!("{} decides and writes", name(worker)),
        Action::WriteUnknown(worker, fate) => {
            let what = match fate {
                Fate::Executed => "written, and the reply is lost",
                Fate::Lost => "not written, and the reply is lost",
                Fate::Late => "on its way for long",
            };
            format!("{} decides; its commit is {what}", name(worker))
        }
    }
}

fn named(run: &Run) -> String {
    format!("run {} of job {}", run.epoch, run.job)
}

fn operation(op: Op) -> String {
    match op {
        Op::Cancel => "someone cancels".to_owned(),
        Op::Deadline => "its deadline comes".to_owned(),
        Op::Pause => "someone pauses it".to_owned(),
        Op::Resume => "someone resumes it".to_owned(),
        Op::Fire { node, .. } => format!("the timer of n{node} fires"),
        Op::Reclaim => "the reclaimer takes it back: its lease is over".to_owned(),
        Op::ReclaimDead => "the reclaimer takes it back: its holder is dead".to_owned(),
        Op::Resolve { happened, node } => {
            format!("an operator answers the doubt of n{node}: it {}", if happened { "happened" } else { "did not" })
        }
        Op::Signal { node, word } => format!("a client sends a signal for n{node}: {word:?}"),
    }
}
