//! B1, B2, B4, B5, B7: the event log and what is derived from it. C5, as far as the fold is asked.

use std::collections::BTreeMap;

use aetheris_core::event::{DecodeError, EventKind, Recorded};
use aetheris_core::id::EventId;
use aetheris_core::state::JobState;
use aetheris_store::differences;

use crate::calls;
use crate::facts::Dossier;
use crate::history::ClientHistory;
use crate::invariant::Invariant::{B1, B2, B4, B5, B7, C5};
use crate::report::Tally;
use crate::stream::{Flaw, Stream};

/// An event as it is understood, or why it is not.
type Decoded = Result<Recorded, DecodeError>;

pub(crate) fn check(facts: &Dossier, decoded: &[Decoded], history: &ClientHistory, tally: &mut Tally) {
    chain(facts, decoded, tally);
    named_once(facts, history, tally);
    terminal(facts, tally);
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

/// The places of the events, and what each is.
fn chain(facts: &Dossier, decoded: &[Decoded], tally: &mut Tally) {
    let job = facts.row.id;
    let (mut stream, mut gap) = (Stream::new(job), None);
    for (event, decoded) in facts.events.iter().zip(decoded) {
        let (places, others): (Vec<Flaw>, Vec<Flaw>) =
            stream.take(event, decoded).into_iter().partition(|flaw| matches!(flaw, Flaw::Gap(_)));
        gap = gap.or_else(|| Some((event.seq, places.into_iter().next()?)));
        tally.case(B4, others.is_empty(), || {
            let others: Vec<String> = others.iter().map(Flaw::to_string).collect();
            format!("{job} event {}: {}", event.seq, others.join("; "))
        });
    }
    tally.case(B4, facts.row.head == stream.head, || format!("{job}: the row's head is not the last event's hash"));
    let complete = stream.seq == facts.row.seq && stream.seq > 0;
    tally.case(B1, gap.is_none() && complete, || match gap {
        Some((seq, gap)) => format!("{job} event {seq}: {gap}"),
        None => format!("{job}: its row has {} events, its log {}", facts.row.seq, stream.seq),
    });
}

/// Answers to doubts may follow an end: they change no state of the job.
fn terminal(facts: &Dossier, tally: &mut Tally) {
    let kinds = || facts.events.iter().map(|event| (event.seq, EventKind::from_code(event.kind)));
    let Some((end, _)) = kinds().find(|(_, kind)| kind.is_some_and(EventKind::ends_job)) else {
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
    called(facts, &state, tally);
}

/// What `verify` asks of the calls in the ledger holds in every job. `outcomes` counts the rows as cases, and judges the effects
/// by the events themselves; here only a violation is counted.
fn called(facts: &Dossier, state: &JobState, tally: &mut Tally) {
    for difference in calls::differences(state, &facts.ledger) {
        tally.case(C5, false, || format!("{}: {difference}", facts.row.id));
    }
}
