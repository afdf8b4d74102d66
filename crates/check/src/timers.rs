//! E6, E7: timers, delays and leases of jobs that nobody runs.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::event::{ChildEnded, Event, InDoubtResolved, Recorded, TimerId, WaitCompleted};
use aetheris_core::job::JobStatus;
use aetheris_core::path::StepPath;
use aetheris_core::time::{Span, Timestamp};

use crate::facts::Dossier;
use crate::invariant::Invariant::{E6, E7};
use crate::report::Tally;

pub(crate) fn check(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    fired(facts, events, tally);
    delayed(facts, events, tally);
    let row = &facts.row;
    if row.status != JobStatus::Running {
        tally.case(E7, row.holder.is_none(), || format!("{}: it is {} and held", row.id, row.status.as_str()));
    }
}

fn fired(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let mut due: BTreeMap<&TimerId, Timestamp> = BTreeMap::new();
    for recorded in events {
        match &recorded.event {
            Event::TimerSet(set) => {
                due.insert(&set.timer, recorded.at.after(Span::from_micros(set.after_us)));
            }
            Event::TimerFired(fired) => {
                let at = due.remove(&fired.timer);
                tally.case(E6, at.is_some_and(|due| recorded.at >= due), || {
                    let why = at.map_or_else(|| "it was not set".to_owned(), |due| format!("it was due at {due}"));
                    format!("{} event {}: {} fired at {}, {why}", facts.row.id, recorded.seq, fired.timer, recorded.at)
                });
            }
            _ => {}
        }
    }
}

/// A job given back with a delay is not claimed before its end.
fn delayed(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let mut not_before: Option<Timestamp> = None;
    let mut waits: BTreeSet<&StepPath> = BTreeSet::new();
    for recorded in events {
        match &recorded.event {
            Event::JobCreated(created) => not_before = created.run_at,
            Event::JobWaiting(waiting) => {
                waits.insert(&waiting.node);
            }
            // The step can go on, whatever another one's next try waits for.
            Event::WaitCompleted(WaitCompleted { node, .. })
            | Event::ChildEnded(ChildEnded { node, .. })
            | Event::InDoubtResolved(InDoubtResolved { node, .. })
                if waits.remove(node) =>
            {
                not_before = None;
            }
            Event::JobRequeued(requeued) => {
                not_before = requeued.after_us.map(|delay| recorded.at.after(Span::from_micros(delay)));
            }
            Event::JobClaimed(_) => {
                if let Some(due) = not_before.take() {
                    tally.case(E6, recorded.at >= due, || {
                        format!("{} event {}: claimed at {}, not before {due}", facts.row.id, recorded.seq, recorded.at)
                    });
                }
            }
            _ => {}
        }
    }
}
