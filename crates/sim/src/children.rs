//! Child jobs of programs: which nodes ask for one, and what must hold of all of them at the end of a run.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::event::{ChildOutcome, ChildStarted, Event, Recorded};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::plan::OnParentEnd;
use aetheris_store::{JobRow, PromiseRow};
use aetheris_testing::random::Random;

use crate::draw::drawn;
use crate::program::{Kind, Step};
use crate::tally::Tally;

/// The agent of every child: it makes of its message what a transform of the program would make of it, takes its time for
/// some, and fails over some items of maps.
pub(crate) const FILE: &str = "agent: child\nversion: \"1\"\nplanner: static\nplan:\n  nodes:\n    \
    - { id: nap, kind: sleep, duration: 700ms, when: \"(message | length) % 3 == 0\" }\n    \
    - { id: doomed, kind: transform, when: \"'#1' in message and (message | length) % 2 == 0\", output: \"{{ message.no.way }}\" }\n    \
    - { id: made, kind: transform, output: \"x{{ message }}\" }\n  answer: \"{{ nodes.made.output }}\"\n";

/// What stands before the message to the child of an item: nothing, and for one item of some jobs no message can be made.
pub(crate) const OF_ITEM: &str = "{% if item == 1 and message in 'm1 m3 m5' %}{{ message.no.way }}{% endif %}";

/// Whether a job of this message has an item that asks no child.
pub(crate) fn has_unasked(message: &str) -> bool {
    ["m1", "m3", "m5"].contains(&message)
}

/// Whether a child of this message fails.
fn is_doomed(message: &str) -> bool {
    message.contains("#1") && message.chars().count().is_multiple_of(2)
}

/// In some programs nodes ask a child for what they would make themselves. What is drawn of the others is not touched by it.
pub(crate) fn children(steps: &mut [Step]) -> BTreeSet<usize> {
    let mut random = Random::new(drawn(steps).rotate_left(29));
    if !random.chance(200) {
        return BTreeSet::new();
    }
    let mut children = BTreeSet::new();
    for (place, step) in steps.iter_mut().enumerate() {
        let asks = match step.kind {
            Kind::Transform => random.chance(800),
            Kind::Sleep(_) | Kind::Timer(_) => random.chance(600),
            Kind::Tool { .. } | Kind::Model | Kind::Wait { .. } | Kind::Condition => false,
        };
        if asks {
            step.kind = Kind::Transform;
            children.insert(place);
        }
    }
    children
}

/// A job with its events.
type Told = (JobRow, Vec<Recorded>);

/// A child is created once, for the step that asked for it (K1); who waits is told how it has ended (K2); and once everything is at
/// rest nothing is left to be done (K3).
pub(crate) fn examine(jobs: &[Told], outbox: &[PromiseRow], tally: &mut Tally) {
    let rows: BTreeMap<JobId, &Told> = jobs.iter().map(|told| (told.0.id, told)).collect();
    let mut asked: BTreeSet<JobId> = BTreeSet::new();
    for (row, events) in jobs {
        for recorded in events {
            let Event::ChildStarted(started) = &recorded.event else { continue };
            let first = asked.insert(started.child);
            tally.case("K1", first, || format!("{}: {} was asked for twice", row.id, started.child));
            created((row, events), started, rows.get(&started.child).copied(), tally);
            told(row, events, started, rows.get(&started.child).copied(), tally);
        }
    }
    for (row, events) in jobs {
        let Some(Event::JobCreated(created)) = events.first().map(|first| &first.event) else { continue };
        let Some(parent) = &created.parent else { continue };
        tally.case("K1", asked.contains(&row.id), || {
            format!("{}: it says that {} asked for it, which did not", row.id, parent.job)
        });
    }
    tally.case("K3", outbox.is_empty(), || format!("everything is at rest, and this is still to be done: {outbox:?}"));
}

fn created((row, of_parent): (&JobRow, &[Recorded]), started: &ChildStarted, child: Option<&Told>, tally: &mut Tally) {
    let ends_with_it = started.on_parent_end == OnParentEnd::Cancel;
    let Some((child, events)) = child else {
        let ended = row.status.is_terminal() && ends_with_it;
        tally.case("K1", ended || is_given_up(of_parent, started), || {
            format!("{}: {} was asked for and is not there", row.id, started.child)
        });
        return;
    };
    let same = events.first().is_some_and(|first| {
        let Event::JobCreated(created) = &first.event else { return false };
        created.parent.as_ref() == Some(&started.parent(row.id)) && created.message == started.message
    });
    tally.case("K1", same && child.tenant == row.tenant, || {
        format!("{}: {} is not what was asked for", row.id, started.child)
    });
    let asks = of_parent.first().is_none_or(|first| {
        let Event::JobCreated(created) = &first.event else { return true };
        started.node.item() != Some(1) || !created.message.value().as_str().is_some_and(has_unasked)
    });
    tally.case("K1", asks, || format!("{}: a message was made for {}, where none can be", row.id, started.node));
    let over = of_parent.iter().find(|recorded| recorded.event.kind().ends_job()).map(|recorded| recorded.at);
    if let Some((over, first)) = over.zip(events.first()).filter(|_| ends_with_it) {
        tally.case("K1", first.at <= over, || {
            format!("{}: {} was created after the end of its parent", row.id, started.child)
        });
    }
    if ends_with_it && row.status.is_terminal() {
        tally.case("K3", child.status.is_terminal(), || {
            format!("{} has ended, and its child {} is {}", row.id, child.id, child.status.as_str())
        });
    }
}

/// Whether it was cancelled before it was created, as its map had failed.
fn is_given_up(of_parent: &[Recorded], started: &ChildStarted) -> bool {
    let cancelled = |recorded: &Recorded| match &recorded.event {
        Event::ChildEnded(ended) => ended.child == started.child && ended.outcome == ChildOutcome::Cancelled,
        _ => false,
    };
    started.node.item().is_some() && of_parent.iter().any(cancelled)
}

fn told(row: &JobRow, events: &[Recorded], started: &ChildStarted, child: Option<&Told>, tally: &mut Tally) {
    let ends = events.iter().filter_map(|recorded| match &recorded.event {
        Event::ChildEnded(ended) if ended.child == started.child => Some(&ended.outcome),
        _ => None,
    });
    let ends: Vec<&ChildOutcome> = ends.collect();
    let status = child.map(|(child, _)| child.status);
    let waits = started.waits && !row.status.is_terminal();
    let due = waits && status.is_some_and(JobStatus::is_terminal);
    tally.case("K2", ends.len() <= 1 && !(due && ends.is_empty()), || {
        format!("{}: it was told of the end of {} {} times", row.id, started.child, ends.len())
    });
    let Some(end) = ends.first() else { return };
    let message = started.message.value().as_str().unwrap_or_default();
    let (made, doomed) = (format!("x{message}"), is_doomed(message));
    let true_to_it = match (end, status) {
        (ChildOutcome::Completed { result }, Some(JobStatus::Completed)) => {
            !doomed && result.value().as_str() == Some(&made)
        }
        (ChildOutcome::Failed { error }, Some(JobStatus::Failed)) => match error.code.as_str() {
            // Its runs were lost again and again.
            "attempts_exhausted" => true,
            "deadline_exceeded" => started.deadline_us.is_some() || started.parent_deadline.is_some(),
            "template_error" => doomed,
            _ => false,
        },
        (ChildOutcome::Cancelled, Some(JobStatus::Cancelled)) => true,
        // It was never created.
        (ChildOutcome::Cancelled, None) => is_given_up(events, started),
        _ => false,
    };
    tally.case("K2", true_to_it, || {
        format!("{}: it was told {end:?} of {}, which is {status:?}", row.id, started.child)
    });
}
