//! What joins and absorbed failures must come to, decided anew from the places of events and not by the code that is looked
//! at.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::event::{BranchStatus, Drawn, Event, Recorded, Resolver, SkipReason, ValueRecorded};
use aetheris_core::id::JobId;

use crate::program::{Join, Program};
use crate::rounds::end_of;
use crate::tally::Tally;

/// How a node stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Stand {
    #[default]
    Open,
    Completed,
    /// With this code.
    Failed(String),
    Skipped,
}

impl Stand {
    /// How it is told in events.
    fn told(&self) -> BranchStatus {
        match self {
            Self::Completed => BranchStatus::Completed,
            Self::Failed(_) => BranchStatus::Failed,
            Self::Open => BranchStatus::Open,
            Self::Skipped => BranchStatus::Skipped,
        }
    }
}

/// What was drawn for a step: a value of chance, and its moment.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    chance: Vec<String>,
    now: String,
}

impl Drawing {
    /// As its input has it.
    pub(crate) fn text(&self) -> String {
        format!("~{}~{}", self.chance.first().map_or("", String::as_str), self.now)
    }
}

/// Error codes of calls, by turn and call.
type Codes = BTreeMap<(u32, u32), String>;

/// What the events of a job say of how its nodes stood: at the end, and when each began.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// At the end.
    pub(crate) ends: BTreeMap<usize, Stand>,
    /// What was drawn for a step, as its input has it: by node, item and round.
    pub(crate) drawn: BTreeMap<(usize, Option<u32>, u32), Drawing>,
    /// The items of maps, at the end: by node and place.
    pub(crate) items: BTreeMap<(usize, u32), Stand>,
    /// The calls of loops whose models were told that they have failed, with their codes: by node, item and round of the loop,
    /// then by turn and call.
    pub(crate) told: BTreeMap<(usize, Option<u32>, u32), Codes>,
    /// When a node began: all others.
    began: BTreeMap<usize, BTreeMap<usize, Stand>>,
}

impl Course {
    /// What was drawn for a step, as its input has it; nothing where nothing was.
    pub(crate) fn drawn(&self, place: usize, item: Option<u32>, round: u32) -> String {
        self.drawn.get(&(place, item, round)).map(Drawing::text).unwrap_or_default()
    }

    /// Values were drawn for a step: one of chance at most, and for a step that asks for some.
    fn draw(&mut self, (job, program): (JobId, &Program), e: &ValueRecorded, recorded: &Recorded, tally: &mut Tally) {
        let Some(at) = place(e.node.node().as_str()) else { return };
        let drawing = self.drawn.entry((at, e.node.item(), e.node.round())).or_default();
        for value in &e.values {
            match value {
                Drawn::Uuid(text) => drawing.chance.push(text.clone()),
                Drawn::Random(number) => drawing.chance.push(number.to_string()),
                Drawn::Now => drawing.now = recorded.at.to_string(),
            }
        }
        let right = drawing.chance.len() <= 1 && program.drawing.contains(&at);
        tally.case("V1", right, || format!("{job} {}: {:?} were drawn for it", e.node, drawing.chance));
    }

    /// How a node stood when another began.
    pub(crate) fn seen(&self, by: usize, node: usize) -> Stand {
        self.began.get(&by).and_then(|all| all.get(&node)).cloned().unwrap_or_default()
    }
}

/// Whether a failure with this code fails the job, whatever is said of the node.
pub(crate) fn is_of_the_job(code: &str) -> bool {
    code == "budget_exceeded" || code == "job_too_large"
}

fn place(node: &str) -> Option<usize> {
    node.strip_prefix('n')?.parse().ok()
}

/// Follows a job's events, and looks at each beginning and each skip.
pub(crate) fn follow(job: JobId, program: &Program, events: &[Recorded], tally: &mut Tally) -> Course {
    let mut course = Course::default();
    let mut answered = BTreeSet::new();
    for recorded in events {
        match &recorded.event {
            Event::InDoubtResolved(said) if said.by == Resolver::Operator => answered.extend(place(&said.node.text())),
            Event::NodeStarted(started) if started.number == 1 => {
                let Some(at) = place(&started.node.text()) else { continue };
                course.began.insert(at, course.ends.clone());
                let why = joined(program, &course.ends, at);
                tally.case("J1", why == Some(true), || format!("{job} n{at}: it begins, and its join is {why:?}"));
                let mut wrong = Vec::new();
                for (node, need) in &started.needs {
                    let Some(of) = place(node.as_str()) else { continue };
                    if course.seen(at, of).told() == *need {
                        continue;
                    }
                    // A person's answer ended it while this was being written.
                    if *need == BranchStatus::Open && answered.contains(&of) {
                        course.began.entry(at).or_default().remove(&of);
                    } else {
                        wrong.push(format!("{node} is {need:?}"));
                    }
                }
                let told: BTreeSet<usize> = started.needs.keys().filter_map(|node| place(node.as_str())).collect();
                let whole = told == expected(program, &course, at);
                tally.case("J2", wrong.is_empty() && whole, || {
                    format!("{job} n{at}: it tells {:?}, and that is wrong: {wrong:?}", started.needs)
                });
            }
            Event::ValueRecorded(e) => course.draw((job, program), e, recorded, tally),
            Event::NodeSkipped(skipped) => {
                let Some(at) = place(&skipped.node.text()) else { continue };
                let met = joined(program, &course.ends, at);
                let right = match skipped.reason {
                    SkipReason::Condition => {
                        met == Some(true) && program.steps.get(at).is_some_and(|step| step.skipped)
                    }
                    SkipReason::Join => met == Some(false) && program.rule(at).join != Join::All,
                    SkipReason::Upstream => met == Some(false) && program.rule(at).join == Join::All,
                };
                tally.case("J1", right, || {
                    format!("{job} n{at}: skipped for {:?}, its join is {met:?}", skipped.reason)
                });
                course.ends.insert(at, Stand::Skipped);
            }
            Event::NodeFinished(finished) if finished.told => {
                let (of, path) = (place(finished.node.node().as_str()), &finished.node);
                let call = path.turn().zip(path.call());
                let code = finished.error.as_ref().map(|error| error.code.clone());
                if let (Some(of), Some(call), Some(code)) = (of, call, code) {
                    course.told.entry((of, path.item(), path.round())).or_default().insert(call, code);
                }
            }
            Event::NodeFinished(finished) => {
                let Some((path, stand)) = end_of(finished) else { continue };
                let of_node = place(path.node().as_str());
                if let Some(item) = of_node.zip(path.item()) {
                    course.items.insert(item, stand);
                } else if let Some(at) = of_node {
                    course.ends.insert(at, stand);
                }
            }
            _ => {}
        }
    }
    course
}

/// Which nodes one that may start early has to tell of: those that it needs, and those that its input names and that are open.
fn expected(program: &Program, course: &Course, at: usize) -> BTreeSet<usize> {
    if !program.is_eager(at) {
        return BTreeSet::new();
    }
    let needs = program.steps.get(at).map_or(&[][..], |step| &step.needs).iter().copied();
    let open = program.sources(at).filter(|node| program.names_sources(at) && course.seen(at, *node) == Stand::Open);
    needs.chain(open).collect()
}

/// Whether what a node needs lets it run; nothing while that is open.
fn joined(program: &Program, ends: &BTreeMap<usize, Stand>, at: usize) -> Option<bool> {
    let needs = program.steps.get(at).map_or(&[][..], |step| &step.needs);
    let count = |stand: fn(&Stand) -> bool| needs.iter().filter(|need| ends.get(need).is_some_and(stand)).count();
    let (completed, skipped) = (count(|stand| *stand == Stand::Completed), count(|stand| *stand == Stand::Skipped));
    let ended = count(|stand| *stand != Stand::Open);
    let least = match program.rule(at).join {
        Join::All if ended < needs.len() => return None,
        Join::All => return Some(needs.is_empty() || skipped < needs.len()),
        Join::Any => 1,
        Join::Quorum(least) => least,
    };
    if completed >= least {
        return Some(true);
    }
    (needs.len() - ended + completed < least).then_some(false)
}

/// A job fails with the first of its steps that have failed and may not, in the order of their names.
pub(crate) fn first_failure(job: JobId, program: &Program, events: &[Recorded], tally: &mut Tally) {
    let failed = events.iter().filter_map(|recorded| match &recorded.event {
        Event::NodeFinished(finished) if !finished.result.is_success() => {
            let at = place(finished.node.node().as_str());
            let item = finished.node.item().is_some();
            let collected = at.and_then(|at| program.maps.get(&at)).is_some_and(|map| item && map.collect);
            let may = collected || at.is_some_and(|at| program.rule(at).may_fail);
            let code = finished.error.as_ref().map_or("", |error| error.code.as_str());
            let absorbed = finished.told || (may && !is_of_the_job(code));
            tally.case("D15", finished.absorbed == absorbed, || {
                format!("{job} {}: absorbed: {}, with {code}", finished.node, finished.absorbed)
            });
            (!absorbed && !item && finished.node.is_outside_loop()).then(|| finished.node.base())
        }
        _ => None,
    });
    let first = failed.min_by(|one, other| one.text().cmp(&other.text()));
    let ended = events.iter().find_map(|recorded| match &recorded.event {
        Event::JobFailed(ended) => ended.node.as_ref(),
        _ => None,
    });
    if let Some(ended) = ended {
        tally.case("D15", first.as_ref() == Some(ended), || {
            format!("{job}: it failed with {ended}, and {first:?} was the first")
        });
    }
    let completed = events.iter().any(|recorded| matches!(recorded.event, Event::JobCompleted(_)));
    if completed {
        tally.case("D15", first.is_none(), || format!("{job}: it completed, and {first:?} failed"));
    }
}
