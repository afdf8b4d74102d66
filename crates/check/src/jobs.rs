//! D1, D5, D7, D8: the job machine. B3, of a job: its pauses.

use aetheris_core::event::{Event, EventKind, Recorded};
use aetheris_core::path::StepPath;
use aetheris_core::state::JobState;

use crate::facts::Dossier;
use crate::history::ClientHistory;
use crate::invariant::Invariant::{B3, D1, D5, D7, D8};
use crate::report::Tally;

pub(crate) fn check(facts: &Dossier, events: &[Recorded], history: &ClientHistory, tally: &mut Tally) {
    moves(facts, events, tally);
    made_whole(facts, events, tally);
    ended_once(facts, events, history, tally);
    paused(facts, events, history, tally);
    planned(facts, events, tally);
}

fn moves(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let mut state = JobState::new(facts.row.id);
    for recorded in events {
        let result = state.replay(recorded);
        let stopped = result.is_err();
        tally.case(D1, !stopped, || {
            let why = result.err().map(|e| e.to_string()).unwrap_or_default();
            format!("{} event {} ({}): {why}", facts.row.id, recorded.seq, recorded.event.kind().as_str())
        });
        if stopped {
            return;
        }
    }
}

fn made_whole(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let kinds: Vec<EventKind> = events.iter().take(2).map(|event| event.event.kind()).collect();
    let together = events.first().zip(events.get(1)).is_some_and(|(created, planned)| created.at == planned.at);
    let planned = kinds == [EventKind::JobCreated, EventKind::PlanGenerated] && together;
    let planning = |event: &Event| matches!(event, Event::JobCreated(created) if created.planning.is_some());
    let whole = planned || events.first().is_some_and(|first| planning(&first.event));
    tally.case(D5, whole, || format!("{}: it was not created with its plan in one write", facts.row.id));
}

/// From the first event on that asks for the end, or the client's cancel that was answered well.
fn ended_once(facts: &Dossier, events: &[Recorded], history: &ClientHistory, tally: &mut Tally) {
    let job = facts.row.id;
    let ends: Vec<EventKind> = events.iter().map(|event| event.event.kind()).filter(|kind| kind.ends_job()).collect();
    let asked = events.iter().any(|event| matches!(event.event, Event::JobCancelRequested(_)));
    let by_client = history.cancels.contains(&job);
    if !asked && !by_client {
        return;
    }
    let unfinished = ends.is_empty() && !history.quiet;
    let completed = ends.contains(&EventKind::JobCompleted);
    tally.case(D7, unfinished || (ends.len() == 1 && !completed), || {
        let names: Vec<&str> = ends.iter().map(|kind| kind.as_str()).collect();
        format!("{job}: its end was asked for, and it ended with [{}]", names.join(", "))
    });
}

/// A pause that a client was told of stands in the history, whatever became of it.
fn paused(facts: &Dossier, events: &[Recorded], history: &ClientHistory, tally: &mut Tally) {
    let job = facts.row.id;
    if !history.pauses.contains(&job) {
        return;
    }
    let stands =
        |recorded: &Recorded| matches!(recorded.event.kind(), EventKind::JobPauseRequested | EventKind::JobPaused);
    tally.case(B3, events.iter().any(stands), || format!("{job}: its pause was accepted, and no event tells of one"));
}

fn planned(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let first = events.first().map(|first| &first.event);
    let planning = matches!(first, Some(Event::JobCreated(created)) if created.planning.is_some());
    let (mut versions, mut steps) = (0u32, false);
    let mut wrong = None;
    for recorded in events {
        match &recorded.event {
            Event::PlanGenerated(plan) => {
                versions += 1;
                if plan.plan_version != versions {
                    wrong = Some(recorded.seq);
                }
            }
            event @ (Event::NodeStarted(_)
            | Event::NodeFinished(_)
            | Event::NodeSkipped(_)
            | Event::ToolInvocationStarted(_)
            | Event::ValueRecorded(_)
            | Event::NodeRefining(_)
            | Event::ChildStarted(_)
            | Event::ChildEnded(_)
            | Event::JobCompleted(_)) => {
                steps = true;
                // What makes the plan comes before it, and all else behind it.
                let of_planning = event.step().is_some_and(StepPath::is_planning);
                let right = if of_planning { planning && versions == 0 } else { versions > 0 };
                if !right {
                    wrong = wrong.or(Some(recorded.seq));
                }
            }
            _ => {}
        }
    }
    if steps || wrong.is_some() {
        tally.case(D8, wrong.is_none(), || {
            format!("{} event {}: it does not stand behind its plan", facts.row.id, wrong.unwrap_or_default())
        });
    }
}
