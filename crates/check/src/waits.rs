//! E1, E2: signals and waits.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::event::{Event, JobWaiting, Recorded, WaitEnd};
use aetheris_core::hash::Hash;
use aetheris_core::id::SignalId;
use aetheris_core::path::StepPath;

use crate::facts::Dossier;
use crate::history::{ClientHistory, SignalAck};
use crate::invariant::Invariant::{E1, E2};
use crate::report::Tally;

/// A wait of the stream.
struct Wait {
    ends: u32,
    key: Option<String>,
    /// Whether the job was claimed while it was open and nothing of the job could go on.
    left: bool,
    seq: u64,
}

pub(crate) fn check(facts: &Dossier, events: &[Recorded], history: &ClientHistory, tally: &mut Tally) {
    ended_once(facts, events, tally);
    let delivered = delivered(events);
    acknowledged(facts, &delivered, &refused(events), history, tally);
    not_forgotten(facts, events, &delivered, tally);
    told(facts, events, tally);
}

fn ended_once(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let (mut waits, mut of_step): (Vec<Wait>, BTreeMap<&StepPath, usize>) = (Vec::new(), BTreeMap::new());
    // Whether something of the job can go on beside what it waits for.
    let (mut able, mut stray) = (true, None);
    for recorded in events {
        match &recorded.event {
            Event::JobWaiting(waiting) => {
                able = false;
                // A wait that goes on may be told of again.
                let open = of_step.get(&waiting.node).is_some_and(|place| waits[*place].ends == 0);
                if !open {
                    of_step.insert(&waiting.node, waits.len());
                    let key = waiting.correlation_key.clone();
                    waits.push(Wait { ends: 0, key, left: false, seq: recorded.seq });
                }
            }
            Event::WaitCompleted(completed) => {
                able = true;
                match of_step.get(&completed.node) {
                    Some(place) => waits[*place].ends += 1,
                    None => stray = Some(recorded.seq),
                }
            }
            // A step may be told of its child's end before its job waits for that.
            Event::ChildEnded(ended) => {
                if let Some(place) = of_step.get(&ended.node) {
                    able = true;
                    waits[*place].ends += 1;
                }
            }
            // A doubt is ended by its answer.
            Event::InDoubtResolved(resolved) => {
                able = true;
                if let Some(place) = of_step.get(&resolved.node) {
                    waits[*place].ends = waits[*place].ends.max(1);
                }
            }
            Event::JobRequeued(_) => able = true,
            Event::JobClaimed(_) => {
                if !able {
                    waits.iter_mut().filter(|wait| wait.ends == 0).for_each(|wait| wait.left = true);
                }
                able = true;
            }
            _ => {}
        }
    }
    let job = facts.row.id;
    if let Some(seq) = stray {
        tally.case(E2, false, || format!("{job} event {seq}: it ends a wait that never began"));
    }
    for wait in waits {
        tally.case(E2, wait.ends <= 1 && !wait.left, || {
            let left = if wait.left { ", and its job was claimed before it had" } else { "" };
            format!("{job} event {}: the wait for {:?} ended {} times{left}", wait.seq, wait.key, wait.ends)
        });
    }
}

/// Delivered signals and the hashes of their payloads, by the key of their wait.
fn delivered(events: &[Recorded]) -> BTreeMap<String, (SignalId, Hash)> {
    let mut open: BTreeMap<&StepPath, &String> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for recorded in events {
        match &recorded.event {
            Event::JobWaiting(waiting) => {
                if let Some(key) = &waiting.correlation_key {
                    open.insert(&waiting.node, key);
                }
            }
            Event::WaitCompleted(completed) => {
                if let (WaitEnd::Signal { payload, signal }, Some(key)) = (&completed.by, open.remove(&completed.node))
                {
                    found.insert(key.clone(), (*signal, payload.hash()));
                }
            }
            _ => {}
        }
    }
    found
}

/// Kept signals that did not fit their wait: its key, and the hash of the payload.
fn refused(events: &[Recorded]) -> BTreeSet<(&str, Hash)> {
    let refused = events.iter().filter_map(|recorded| match &recorded.event {
        Event::SignalRefused(refused) => Some((refused.correlation_key.as_str(), refused.payload_hash)),
        _ => None,
    });
    refused.collect()
}

fn acknowledged(
    facts: &Dossier,
    delivered: &BTreeMap<String, (SignalId, Hash)>,
    refused: &BTreeSet<(&str, Hash)>,
    history: &ClientHistory,
    tally: &mut Tally,
) {
    let job = facts.row.id;
    for signal in history.signals.iter().filter(|signal| signal.job == job) {
        let mut found: BTreeSet<Hash> = delivered.get(&signal.key).iter().map(|(_, hash)| *hash).collect();
        if signal.ack == SignalAck::Kept {
            // It is where it was kept, or was told to be refused when its wait was reached, or another one came first.
            let kept = facts.kept.iter().filter(|kept| kept.key == signal.key);
            found.extend(kept.map(|kept| kept.payload.hash()));
            found.extend(refused.iter().filter(|(key, _)| *key == signal.key).map(|(_, hash)| *hash));
        }
        let same = signal.payload_hash.is_none_or(|hash| found.contains(&hash));
        tally.case(E1, !found.is_empty() && same, || {
            let what = if found.is_empty() { "it is nowhere" } else { "another payload stands in its place" };
            format!("{job}: the signal `{}` was acknowledged ({:?}), and {what}", signal.key, signal.ack)
        });
    }
}

/// A signal is never kept beside the wait that it is for.
fn not_forgotten(
    facts: &Dossier,
    events: &[Recorded],
    delivered: &BTreeMap<String, (SignalId, Hash)>,
    tally: &mut Tally,
) {
    let job = facts.row.id;
    let open = open_waits(facts, events);
    for (key, (signal, _)) in delivered {
        let twice = facts.kept.iter().any(|kept| kept.signal == *signal);
        tally.case(E1, !twice, || format!("{job}: the signal `{key}` was delivered and is still kept"));
    }
    for kept in &facts.kept {
        let meets = open.values().any(|waiting| {
            waiting.correlation_key.as_deref() == Some(kept.key.as_str())
                && kept.wait_type.is_none_or(|claimed| claimed == waiting.wait_type)
        });
        tally.case(E1, !meets, || format!("{job}: it waits for `{}`, and that signal lies in its inbox", kept.key));
    }
}

/// All that a job waits for, of which its row has the foremost.
fn open_waits<'e>(facts: &Dossier, events: &'e [Recorded]) -> BTreeMap<&'e StepPath, &'e JobWaiting> {
    let mut open = BTreeMap::new();
    for recorded in events.iter().filter(|_| facts.row.waiting.is_some()) {
        match &recorded.event {
            Event::JobWaiting(waiting) => drop(open.insert(&waiting.node, waiting)),
            Event::WaitCompleted(completed) => drop(open.remove(&completed.node)),
            _ => {}
        }
    }
    open
}

/// What is kept no more has an event that says what became of it. Only a violation is counted.
fn told(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let of_event = |recorded: &Recorded| match &recorded.event {
        Event::WaitCompleted(completed) => match &completed.by {
            WaitEnd::Signal { signal, .. } => Some(*signal),
            WaitEnd::Dropped | WaitEnd::Time => None,
        },
        Event::SignalRefused(refused) => Some(refused.signal),
        _ => None,
    };
    let told: BTreeSet<SignalId> = events.iter().filter_map(of_event).collect();
    for signal in facts.consumed.iter().filter(|signal| !told.contains(signal)) {
        tally.case(E1, false, || format!("{}: {signal} is kept no more, and no event tells of it", facts.row.id));
    }
}
