//! C5, C7, C8: what became of every permission, in ledger, effects and events.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::disproof::Grounds;
use aetheris_core::event::{
    DoubtOutcome, Event, InvocationOutcome, JobFailed, Recorded, SUCCEEDED_BEFORE, StepResult, ToolInvocationStarted,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::IdempotencyKey;
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::{LedgerRow, LedgerStatus};
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::time::{Span, Timestamp};
use aetheris_store::EffectRow;

use crate::facts::Dossier;
use crate::invariant::Invariant::{C5, C7, C8};
use crate::report::Tally;

/// An answer to a doubt, and when it was written.
struct Said {
    at: Timestamp,
    grounds: Option<Grounds>,
    outcome: DoubtOutcome,
    permit: u32,
    settle: Span,
}

/// What the events say of one key.
#[derive(Default)]
struct Told {
    answers: Vec<Said>,
    committed: Option<Hash>,
    doubts: BTreeSet<u32>,
    /// Whether its node has finished.
    ended: bool,
    finished: BTreeMap<u32, InvocationOutcome>,
    /// Whether `node_finished` came in the same write as `command_committed`.
    ended_with_it: bool,
    permits: Vec<(Timestamp, ToolInvocationStarted)>,
}

pub(crate) fn check(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let told = told(events);
    for row in &facts.ledger {
        let nothing = Told::default();
        let said = told.get(&row.key).unwrap_or(&nothing);
        let wrong = in_order(facts, row, said);
        tally.case(C5, wrong.is_none(), || {
            format!("{} node `{}`: {}", facts.row.id, row.node, wrong.unwrap_or_default())
        });
    }
    for (key, said) in &told {
        let row = facts.ledger.iter().find(|row| row.key == *key);
        if row.is_none() {
            tally.case(C5, false, || format!("{}: {key} was permitted and the ledger has no row", facts.row.id));
        }
        again_with_reason(facts, *key, said, tally);
        agree(facts, (*key, said, row), tally);
    }
    one_outcome(facts, &told, tally);
    for recorded in events {
        // A tool's own word fails a node, not the job alone.
        if let Event::JobFailed(JobFailed { error, node: None }) = &recorded.event
            && error.code == SUCCEEDED_BEFORE
        {
            with_its_success(facts, &told, recorded.at, tally);
        }
    }
}

/// The list of doubts that operators see is the ledger's.
pub(crate) fn listed(doubts: &BTreeSet<IdempotencyKey>, listed: &BTreeSet<IdempotencyKey>, tally: &mut Tally) {
    for key in doubts.union(listed) {
        let both = doubts.contains(key) && listed.contains(key);
        tally.case(C5, both, || format!("{key} is in doubt in the ledger or in the list of doubts, and not in both"));
    }
}

fn told(events: &[Recorded]) -> BTreeMap<IdempotencyKey, Told> {
    let mut keys: BTreeMap<&StepPath, IdempotencyKey> = BTreeMap::new();
    let mut told: BTreeMap<IdempotencyKey, Told> = BTreeMap::new();
    let mut committed_at: BTreeMap<&StepPath, Timestamp> = BTreeMap::new();
    for recorded in events {
        let at = recorded.at;
        if let Event::ToolInvocationStarted(started) = &recorded.event {
            keys.insert(&started.node, started.key);
            told.entry(started.key).or_default().permits.push((at, started.clone()));
            continue;
        }
        let Some(said) = node_of(&recorded.event).and_then(|node| keys.get(node)).and_then(|key| told.get_mut(key))
        else {
            continue;
        };
        match &recorded.event {
            Event::ToolInvocationFinished(e) => {
                said.finished.insert(e.permit, e.outcome);
            }
            Event::StepInDoubt(e) => {
                said.doubts.insert(e.permit);
            }
            Event::InDoubtResolved(e) => {
                let settle = Span::from_micros(e.settle_us.unwrap_or(0));
                said.answers.push(Said { at, grounds: e.grounds, outcome: e.outcome, permit: e.permit, settle });
            }
            Event::CommandCommitted(e) => {
                said.committed = Some(e.result_hash);
                committed_at.insert(&e.node, at);
            }
            Event::NodeFinished(e) => {
                said.ended = true;
                if e.result == StepResult::SideEffectCommitted {
                    said.ended_with_it = committed_at.get(&e.node) == Some(&at);
                }
            }
            _ => {}
        }
    }
    told
}

fn node_of(event: &Event) -> Option<&StepPath> {
    match event {
        Event::ToolInvocationFinished(e) => Some(&e.node),
        Event::StepInDoubt(e) => Some(&e.node),
        Event::InDoubtResolved(e) => Some(&e.node),
        Event::CommandCommitted(e) => Some(&e.node),
        Event::NodeFinished(e) => Some(&e.node),
        _ => None,
    }
}

fn answered(said: &Told, permit: u32, outcome: DoubtOutcome) -> bool {
    said.answers.iter().any(|answer| (answer.permit, answer.outcome) == (permit, outcome))
}

/// What is wrong with a ledger row, given what the events say of its key.
fn in_order(facts: &Dossier, row: &LedgerRow, said: &Told) -> Option<String> {
    let (permit, status) = (row.permit, facts.row.status);
    let is_of_row = |(_, started): &&(Timestamp, ToolInvocationStarted)| {
        started.permit == permit && started.permit_id == row.permit_id
    };
    let Some((at, started)) = said.permits.last().filter(is_of_row) else {
        return Some(format!("the ledger is at permit {permit}, its events are not"));
    };
    if let Some(wrong) = in_time(row, *at, Span::from_micros(started.lifetime_us)) {
        return Some(wrong);
    }
    let told = said.finished.get(&permit).copied();
    let unknown = told == Some(InvocationOutcome::InDoubt);
    let doubted = said.doubts.contains(&permit) || unknown;
    // A deposit comes before the events: where they say nothing of the permit, the ledger may have any outcome of it.
    let other = |outcome| told.is_some_and(|told| told != outcome);
    let wrong = match row.status {
        LedgerStatus::Started if status.is_terminal() || status.is_blocked() => {
            "its call was started, nothing is known of it, and the job has gone on"
        }
        LedgerStatus::InDoubt if row.disproved && !answered(said, permit, DoubtOutcome::DidNotHappen) => {
            "the ledger says that it did not happen, and no event does"
        }
        LedgerStatus::InDoubt if !doubted => "the ledger has it in doubt, and no event does",
        LedgerStatus::FailedUnresolved if !unknown && !answered(said, permit, DoubtOutcome::Unresolved) => {
            "the ledger has given it up, and no event does"
        }
        LedgerStatus::FailedUnresolved
            if !answered(said, permit, DoubtOutcome::Unresolved) && !said.ended && !status.is_terminal() =>
        {
            "the ledger has given it up, and its step goes on"
        }
        LedgerStatus::Committed if !unknown && other(InvocationOutcome::Committed) => {
            "the ledger has it committed, and its events tell another outcome"
        }
        LedgerStatus::NotSent if doubted || other(InvocationOutcome::NotSent) => {
            "the ledger has it not sent, and its events say otherwise"
        }
        LedgerStatus::RefusedRetryable if doubted || other(InvocationOutcome::RefusedRetryable) => {
            "the ledger has it refused for now, and its events say otherwise"
        }
        LedgerStatus::RefusedPermanent if doubted || other(InvocationOutcome::RefusedPermanent) => {
            "the ledger has it refused for good, and its events say otherwise"
        }
        LedgerStatus::Started
        | LedgerStatus::InDoubt
        | LedgerStatus::FailedUnresolved
        | LedgerStatus::Committed
        | LedgerStatus::RefusedRetryable
        | LedgerStatus::RefusedPermanent
        | LedgerStatus::NotSent => return None,
    };
    Some(wrong.to_owned())
}

/// What is wrong with how long a permit's call can arrive, of a permit that was given then and for so long.
fn in_time(row: &LedgerRow, given: Timestamp, lifetime: Span) -> Option<String> {
    let over = given.after(lifetime);
    if row.deadline != over {
        return Some(format!("its permit's deadline is {}, and its events say {over}", row.deadline));
    }
    let own = row.lifetime.filter(|own| *own != lifetime)?;
    Some(format!("its permit's lifetime is {own}, and its events say {lifetime}"))
}

/// Every further permission of an `at_most_once` call has a recorded reason, and "did not happen" was not
/// believed while the call could still arrive.
fn again_with_reason(facts: &Dossier, key: IdempotencyKey, said: &Told, tally: &mut Tally) {
    let job = facts.row.id;
    for (place, (_, started)) in said.permits.iter().enumerate() {
        let ordered = usize::try_from(started.permit).is_ok_and(|permit| permit == place + 1);
        let before = started.permit.saturating_sub(1);
        let reason = before == 0
            || started.effect != EffectClass::AtMostOnce
            || matches!(
                said.finished.get(&before),
                Some(InvocationOutcome::RefusedRetryable | InvocationOutcome::NotSent)
            )
            || answered(said, before, DoubtOutcome::DidNotHappen);
        tally.case(C5, ordered && reason, || {
            format!("{job} node `{}`: permit {} of {key} was given without a reason", started.node, started.permit)
        });
    }
    for Said { at, grounds, outcome, permit, settle } in &said.answers {
        let given = said.permits.iter().find(|(_, started)| started.permit == *permit);
        // Who refuses the permit needs no clock; builds that recorded no grounds knew only this one.
        let by_clock = grounds.is_none_or(Grounds::needs_time);
        if let (DoubtOutcome::DidNotHappen, Some((since, started)), true) = (outcome, given, by_clock) {
            let deadline = since.after(Span::from_micros(started.lifetime_us)).after(*settle);
            tally.case(C5, *at >= deadline, || {
                format!("{job} node `{}`: \"did not happen\" at {at}, while it could until {deadline}", started.node)
            });
        }
    }
}

fn agree(facts: &Dossier, (key, said, row): (IdempotencyKey, &Told, Option<&LedgerRow>), tally: &mut Tally) {
    let committed = row.is_some_and(|row| row.status == LedgerStatus::Committed);
    let disproved = row.is_some_and(|row| answered(said, row.permit, DoubtOutcome::DidNotHappen));
    if !committed && said.committed.is_none() {
        return;
    }
    let permit = row.map_or(0, |row| row.permit);
    let effect = facts.effects.iter().any(|effect| effect.key == key && effect.permit == permit);
    // A job that ended in another way, or goes on, may not have taken the effect in yet.
    // So may one whose step had ended by "did not happen" when the call's own success came.
    let owed = said.committed.is_none() && facts.row.status == JobStatus::Completed && !disproved;
    let finished = said.finished.get(&permit) == Some(&InvocationOutcome::Committed);
    let told = said.committed.is_none() || (finished && said.ended_with_it);
    tally.case(C8, committed && effect && told && !owed, || {
        format!(
            "{} {key}: ledger committed: {committed}, effect: {effect}, its events whole: {}",
            facts.row.id,
            told && !owed
        )
    });
}

/// A job that fails as a call of it has succeeded before has that success as late evidence, which contradicted it; with a
/// recorded effect it had only to take that in. What an operator says after the end of a later call is no effect yet.
fn with_its_success(facts: &Dossier, told: &BTreeMap<IdempotencyKey, Told>, ended: Timestamp, tally: &mut Tally) {
    let kept = facts.evidence.iter().any(|evidence| {
        let before = |effect: &EffectRow| effect.key == evidence.key && effect.at <= ended;
        let recorded = facts.effects.iter().any(before);
        let success = evidence.conflict && evidence.outcome.value()["outcome"] == "success";
        success && !recorded && told.contains_key(&evidence.key)
    });
    tally.case(C8, kept, || {
        format!("{} failed as a call had succeeded before, and no success is kept that was not taken in", facts.row.id)
    });
}

fn one_outcome(facts: &Dossier, told: &BTreeMap<IdempotencyKey, Told>, tally: &mut Tally) {
    let job = facts.row.id;
    for effect in &facts.effects {
        let key = effect.key;
        let count = facts.effects.iter().filter(|other| other.key == key).count();
        let used = told.get(&key).and_then(|said| said.committed);
        let same = used.is_none_or(|hash| hash == effect.result.hash());
        let row = facts.ledger.iter().find(|row| row.key == key);
        let current = row.is_some_and(|row| row.permit == effect.permit && row.status == LedgerStatus::Committed);
        tally.case(C7, count == 1 && same && current, || {
            format!("{job} {key}: {count} effects, the one that was used: {same}, of the ledger's permit: {current}")
        });
    }
}
