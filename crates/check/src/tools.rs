//! C1, C2, C4, C6 and the witness's part of C7: what tools have seen, against what was permitted and
//! recorded.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::disproof::Grounds;
use aetheris_core::event::{DoubtOutcome, Event, InDoubtResolved, Recorded, Resolver};
use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::lease::Fence;
use aetheris_core::ledger::PermitNumber;
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::time::Timestamp;

use crate::facts::Dossier;
use crate::invariant::Invariant::{C1, C2, C4, C6, C7};
use crate::report::Tally;
use crate::witness::{WitnessKind, WitnessLine};

/// A permission, as the events tell it.
struct Permit {
    at: Timestamp,
    class: EffectClass,
    fence: Fence,
    key: IdempotencyKey,
    number: PermitNumber,
}

/// The calls of one job. `named` says that the log whose lines these are names permits: each call that needs one does then.
pub(crate) fn check(facts: &Dossier, events: &[Recorded], (witness, named): (&[WitnessLine], bool), tally: &mut Tally) {
    let permits = permits(events);
    let mut arrivals: BTreeMap<IdempotencyKey, Vec<&WitnessLine>> = BTreeMap::new();
    for line in witness.iter().filter(|line| line.is_arrival()) {
        arrivals.entry(line.key).or_default().push(line);
    }
    for (key, arrivals) in &arrivals {
        let permits: Vec<&Permit> = permits.iter().filter(|permit| permit.key == *key).collect();
        let bodies: Vec<&WitnessLine> = arrivals.iter().copied().filter(|line| line.is_act()).collect();
        once_per_permit(facts, events, (*key, arrivals, &bodies, &permits), tally);
        permitted(facts, (arrivals, &permits, named), tally);
        silent_after_outcome(facts, events, (*key, &bodies, &permits), tally);
    }
    same_key(facts, witness, tally);
    answered(facts, events, witness, tally);
}

/// A call that names a job which is not there was not permitted by anything that is.
pub(crate) fn known_jobs(seen: &BTreeSet<JobId>, witness: &[WitnessLine], tally: &mut Tally) {
    for line in witness.iter().filter(|line| line.is_arrival() && !seen.contains(&line.job)) {
        tally.case(C2, false, || format!("a call of `{}` came for {}, which is not there", line.tool, line.job));
    }
}

fn permits(events: &[Recorded]) -> Vec<Permit> {
    let permit = |recorded: &Recorded| match &recorded.event {
        Event::ToolInvocationStarted(started) => {
            let number = PermitNumber { generation: recorded.fence.generation, number: started.permit };
            Some(Permit { at: recorded.at, class: started.effect, fence: recorded.fence, key: started.key, number })
        }
        _ => None,
    };
    events.iter().filter_map(permit).collect()
}

fn answers<'e>(events: &'e [Recorded], node: &StepPath) -> impl Iterator<Item = &'e InDoubtResolved> {
    let node = node.clone();
    events.iter().filter_map(move |recorded| match &recorded.event {
        Event::InDoubtResolved(resolved) if resolved.node == node => Some(resolved),
        _ => None,
    })
}

fn once_per_permit(
    facts: &Dossier,
    events: &[Recorded],
    (key, arrivals, bodies, permits): (IdempotencyKey, &[&WitnessLine], &[&WitnessLine], &[&Permit]),
    tally: &mut Tally,
) {
    // Turned away or not: what the tool refused before it acted might have acted.
    let mut named = BTreeSet::new();
    let resent = arrivals.iter().filter_map(|line| line.permit).find(|permit| !named.insert(*permit));
    let under = |fence: Fence| permits.iter().filter(|permit| permit.fence == fence).count();
    let fences: BTreeSet<Fence> = bodies.iter().map(|body| body.fence).collect();
    let over = fences
        .into_iter()
        .find(|fence| bodies.iter().filter(|body| body.fence == *fence).count() > under(*fence).max(1));
    let once = permits.iter().any(|permit| permit.class == EffectClass::AtMostOnce);
    // What a person said of the other side is his word. An answer by the clocks, or of a tool that refuses, is a proof:
    // a body that runs all the same is a second one.
    let person = |answer: &&InDoubtResolved| match answer.grounds {
        None => answer.outcome == DoubtOutcome::DidNotHappen,
        Some(Grounds::OperatorRefused) => true,
        Some(Grounds::Clock) => answer.by == Resolver::Operator,
        Some(Grounds::Refuses) => false,
    };
    let disproved = bodies.first().map_or(0, |body| answers(events, &body.node).filter(person).count());
    let too_often = once && bodies.len() > 1 + disproved;
    tally.case(C1, resent.is_none() && over.is_none() && !too_often, || {
        let (job, node) = (facts.row.id, arrivals.first().map(|call| call.node.to_string()).unwrap_or_default());
        match resent {
            Some(permit) => format!("{job} node `{node}`: the call {key} came twice under permit {permit}"),
            None => format!(
                "{job} node `{node}`: {} bodies ran for {key}, with {} permissions",
                bodies.len(),
                permits.len()
            ),
        }
    });
}

fn permitted(facts: &Dossier, (arrivals, permits, named): (&[&WitnessLine], &[&Permit], bool), tally: &mut Tally) {
    for call in arrivals {
        let permit = permits.iter().any(|permit| {
            let its = call.permit.map_or(!named, |its| its == permit.number);
            its && permit.fence == call.fence && permit.at <= call.at
        });
        tally.case(C2, permit, || {
            let (job, node, fence, at) = (facts.row.id, &call.node, call.fence, call.at);
            format!("{job} node `{node}`: a call came at {at} under fence {fence} without a permission before it")
        });
    }
}

/// A body that began after the outcome was recorded, by a run that had seen it: a later claim, or the
/// same one. What an older run sends late is bounded by its permit, and is another invariant; so is what
/// was on its way to an idempotent tool when someone else said how an earlier call had ended.
fn silent_after_outcome(
    facts: &Dossier,
    events: &[Recorded],
    (key, bodies, permits): (IdempotencyKey, &[&WitnessLine], &[&Permit]),
    tally: &mut Tally,
) {
    let Some(outcome) = facts.effects.iter().filter(|effect| effect.key == key).map(|effect| effect.at).min() else {
        return;
    };
    let claims = events.iter().filter(|event| matches!(event.event, Event::JobClaimed(_)) && event.at <= outcome);
    let holder = claims.map(|event| event.fence).max().unwrap_or_default();
    let idempotent = permits.iter().all(|permit| permit.class == EffectClass::Idempotent);
    for body in bodies {
        let told = answers(events, &body.node).any(|answer| {
            answer.outcome == DoubtOutcome::Happened && matches!(answer.by, Resolver::Operator | Resolver::LateDeposit)
        });
        let on_its_way = permits.iter().any(|permit| permit.fence == body.fence && permit.at <= outcome);
        let unseen = body.fence < holder || (idempotent && told && on_its_way);
        tally.case(C6, body.at <= outcome || unseen, || {
            let (job, node, at) = (facts.row.id, &body.node, body.at);
            format!("{job} node `{node}`: a body began at {at}, after its outcome was recorded at {outcome}")
        });
    }
}

fn same_key(facts: &Dossier, witness: &[WitnessLine], tally: &mut Tally) {
    let mut keys: BTreeMap<&StepPath, BTreeSet<IdempotencyKey>> = BTreeMap::new();
    // Questions about a call, which are no arrivals, have keys of their own.
    for line in witness.iter().filter(|line| line.is_arrival()) {
        keys.entry(&line.node).or_default().insert(line.key);
    }
    for (node, keys) in keys {
        let expected = IdempotencyKey::derive(facts.row.id, node, 0);
        tally.case(C4, keys.len() == 1 && keys.contains(&expected), || {
            format!("{} node `{node}`: its tool saw the keys {keys:?}, the call's is {expected}", facts.row.id)
        });
    }
}

/// What was recorded is what a body has answered, unless someone else brought the answer.
fn answered(facts: &Dossier, events: &[Recorded], witness: &[WitnessLine], tally: &mut Tally) {
    for effect in &facts.effects {
        let ends = witness.iter().filter(|line| line.key == effect.key && line.kind == WitnessKind::BodyEnd);
        let told: BTreeSet<Hash> = ends.clone().filter_map(|line| line.result_hash).collect();
        let Some(node) = ends.map(|line| &line.node).next() else { continue };
        let brought = answers(events, node).any(|answer| matches!(answer.by, Resolver::Operator | Resolver::Reconcile));
        if brought || told.is_empty() {
            continue;
        }
        tally.case(C7, told.contains(&effect.result.hash()), || {
            format!("{} node `{node}`: its effect is none of the answers that its bodies gave", facts.row.id)
        });
    }
}
