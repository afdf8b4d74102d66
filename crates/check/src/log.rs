//! B1, B2, B4, B5, B7: the event log and what is derived from it. C5, as far as the fold is asked.

use std::collections::BTreeMap;

use aetheris_core::chain::Header;
use aetheris_core::event::{DecodeError, EventKind, Recorded};
use aetheris_core::hash::Hash;
use aetheris_core::id::EventId;
use aetheris_core::state::{JobState, StepState};
use aetheris_store::{EventRow, differences};

use crate::facts::Dossier;
use crate::history::ClientHistory;
use crate::invariant::Invariant::{B1, B2, B4, B5, B7, C5};
use crate::report::Tally;

/// An event as it is understood, or why it is not.
type Decoded = Result<Recorded, DecodeError>;

pub(crate) fn check(facts: &Dossier, decoded: &[Decoded], history: &ClientHistory, tally: &mut Tally) {
    dense(facts, tally);
    named_once(facts, history, tally);
    chain(facts, decoded, tally);
    terminal(facts, tally);
}

fn dense(facts: &Dossier, tally: &mut Tally) {
    let job = facts.row.id;
    let gap = facts.events.iter().zip(1u64..).find(|(event, expected)| event.seq != *expected);
    let last = facts.events.last().map_or(0, |event| event.seq);
    let complete = last == facts.row.seq && last > 0;
    tally.case(B1, gap.is_none() && complete, || match gap {
        Some((event, expected)) => format!("{job}: event {} stands at place {expected}", event.seq),
        None => format!("{job}: its row has {} events, its log {last}", facts.row.seq),
    });
}

fn named_once(facts: &Dossier, history: &ClientHistory, tally: &mut Tally) {
    let job = facts.row.id;
    let mut times: BTreeMap<EventId, u32> = BTreeMap::new();
    for event in &facts.events {
        *times.entry(event.id).or_default() += 1;
    }
    for (id, count) in &times {
        tally.case(B2, *count == 1, || format!("{job}: {id} is there {count} times"));
    }
    for write in history.writes.iter().filter(|write| write.job == job) {
        let count = times.get(&write.event).copied().unwrap_or(0);
        let expected = if write.unknown { count <= 1 } else { count == 1 };
        tally.case(B2, expected, || format!("{job}: {} was acknowledged and is there {count} times", write.event));
    }
}

fn chain(facts: &Dossier, decoded: &[Decoded], tally: &mut Tally) {
    let job = facts.row.id;
    let mut previous = Hash::ZERO;
    for (event, decoded) in facts.events.iter().zip(decoded) {
        let wrong = broken(facts, event, decoded, &previous);
        tally.case(B4, wrong.is_none(), || format!("{job} event {}: {}", event.seq, wrong.unwrap_or_default()));
        previous = event.hash;
    }
    tally.case(B4, facts.row.head == previous, || format!("{job}: the row's head is not the last event's hash"));
}

fn broken(facts: &Dossier, event: &EventRow, decoded: &Decoded, previous: &Hash) -> Option<String> {
    if Hash::of(&event.payload) != event.payload_hash {
        return Some("its payload does not have its hash".to_owned());
    }
    let header = Header {
        job: facts.row.id,
        seq: event.seq,
        id: event.id,
        kind: event.kind,
        schema_version: event.schema_version,
        fence: event.fence,
        at: event.at,
        payload_hash: event.payload_hash,
    };
    if header.chain(previous) != event.hash {
        return Some("its hash does not follow from its header and the event before".to_owned());
    }
    match decoded {
        Err(error) => Some(error.to_string()),
        Ok(recorded) if recorded.event.canonical() != event.payload => {
            Some("its payload is not in canonical form".to_owned())
        }
        Ok(_) => None,
    }
}

const fn is_terminal(kind: EventKind) -> bool {
    matches!(kind, EventKind::JobCompleted | EventKind::JobFailed | EventKind::JobCancelled)
}

/// Answers to doubts may follow an end: they change no state of the job.
fn terminal(facts: &Dossier, tally: &mut Tally) {
    let kinds = || facts.events.iter().map(|event| (event.seq, EventKind::from_code(event.kind)));
    let Some((end, _)) = kinds().find(|(_, kind)| kind.is_some_and(is_terminal)) else {
        return;
    };
    let after = kinds().find(|(seq, kind)| *seq > end && *kind != Some(EventKind::InDoubtResolved));
    tally.case(B5, after.is_none() && facts.row.status.is_terminal(), || {
        let then = after.map_or_else(
            || format!("its row is {}", facts.row.status.as_str()),
            |(seq, kind)| format!("event {seq} is {}", kind.map_or("unknown", EventKind::as_str)),
        );
        format!("{}: event {end} has ended it, and {then}", facts.row.id)
    });
}

/// B7 and the rows of the ledger, of events that are all understood.
pub(crate) fn projected(facts: &Dossier, generation: u32, events: &[Recorded], tally: &mut Tally) {
    let Ok(state) = JobState::fold(facts.row.id, events) else {
        return;
    };
    // A restore holds by its row what it cannot hold by an event; that follows when the job is next written to.
    let held = facts.row.holds_alone(&state, generation);
    let found = differences(&state, &facts.row, held, &facts.timers);
    tally.case(B7, found.is_empty(), || {
        let found: Vec<String> = found.iter().map(|differs| format!("its {differs}")).collect();
        format!("{}: {}", facts.row.id, found.join("; "))
    });
    ledger(facts, &state, tally);
}

/// What `verify` asks of a ledger row holds of every one. `outcomes` counts the rows as cases; here only a violation is
/// counted.
fn ledger(facts: &Dossier, state: &JobState, tally: &mut Tally) {
    for row in &facts.ledger {
        let of_row = |step: &&StepState| step.invocation.as_ref().is_some_and(|call| call.key == row.key);
        let step = state.steps.get(&row.node).filter(of_row);
        if step.is_some_and(|step| step.fits(row.status, row.disproved, state.status)) {
            continue;
        }
        tally.case(C5, false, || {
            let (job, node, disproved) = (facts.row.id, &row.node, row.disproved);
            let told = step.map(|step| (step.status, step.invocation.as_ref().map(|call| call.phase)));
            let has = format!("{}, disproved: {disproved}", row.status.as_str());
            format!("{job} node `{node}`: the ledger has its call as {has}, which does not fit the fold: {told:?}")
        });
    }
}
