//! Whether ledger and effects say the same as the events. The check of whole stores and `verify` of one job ask the same.

use std::collections::BTreeMap;

use aetheris_core::hash::Hash;
use aetheris_core::id::IdempotencyKey;
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::{LedgerRow, LedgerStatus};
use aetheris_core::path::StepPath;
use aetheris_core::state::{Invocation, JobState, StepState};

/// What calls brought, by permit: the hashes of it.
pub type Effects = BTreeMap<(IdempotencyKey, u32), Hash>;

/// That the result of a step's call was recorded: the place of the event, the step, and the hash of the result.
pub type RecordedResult<'r> = (u64, &'r StepPath, Hash);

/// What the ledger says otherwise of calls than the events, which fold to this state.
#[must_use]
pub fn differences(state: &JobState, ledger: &[LedgerRow]) -> Vec<String> {
    let mut found = Vec::new();
    let rows = by_key(ledger);
    let called = state.steps.iter().filter_map(|(path, step)| Some((path, step, step.invocation.as_deref()?)));
    let called: BTreeMap<IdempotencyKey, (&StepPath, &StepState, &Invocation)> =
        called.map(|(path, step, call)| (call.key, (path, step, call))).collect();
    for (path, step, call) in called.values() {
        match rows.get(&call.key) {
            Some(row) => found.extend(of_call((path, step, call), row, state.status)),
            None => found.push(format!("invocation {} is in the events and not in the ledger", call.key)),
        }
    }
    let strange = rows.keys().filter(|key| !called.contains_key(key));
    found.extend(strange.map(|key| format!("invocation {key} is in the ledger and not in the events")));
    found
}

/// What the effects say otherwise than the ledger, and than the results that the events record.
#[must_use]
pub fn of_effects<'r>(
    state: &JobState,
    ledger: &[LedgerRow],
    effects: &Effects,
    results: impl IntoIterator<Item = RecordedResult<'r>>,
) -> Vec<String> {
    let mut found = Vec::new();
    let rows = by_key(ledger);
    for row in rows.values() {
        let effect = effects.contains_key(&(row.key, row.permit));
        if effect != (row.status == LedgerStatus::Committed) {
            let has = if effect { "has an effect" } else { "has no effect" };
            found.push(format!("invocation {} is {} and {has}", row.key, row.status.as_str()));
        }
    }
    let stray = effects.keys().filter(|(key, _)| !rows.contains_key(key));
    found.extend(stray.map(|(key, _)| format!("the effect of {key} has no row in the ledger")));
    found.extend(results.into_iter().filter_map(|recorded| other_result(state, effects, recorded)));
    found
}

fn by_key(ledger: &[LedgerRow]) -> BTreeMap<IdempotencyKey, &LedgerRow> {
    ledger.iter().map(|row| (row.key, row)).collect()
}

/// A recorded command whose effect is not the one that was recorded.
fn other_result(state: &JobState, effects: &Effects, (seq, path, hash): RecordedResult<'_>) -> Option<String> {
    let call = state.steps.get(path)?.invocation.as_deref()?;
    let same = effects.get(&(call.key, call.permit)) == Some(&hash);
    (!same).then(|| format!("event {seq} records another result than the effect of {} has", call.key))
}

/// What the ledger says otherwise than the events of one invocation, in a job of this status.
fn of_call((path, step, call): (&StepPath, &StepState, &Invocation), row: &LedgerRow, job: JobStatus) -> Vec<String> {
    let mut found = Vec::new();
    if row.node != *path || row.tool != call.tool {
        let (node, tool) = (&row.node, &row.tool);
        let of = format!("`{}` at node `{path}`", call.tool);
        found.push(format!("the ledger has {} as a call of `{tool}` at node `{node}`, the events of {of}", call.key));
    }
    if (row.permit, row.permit_id) != (call.permit, call.permit_id) {
        found.push(format!("the ledger is at permit {} of {}, the events at {}", row.permit, call.key, call.permit));
    }
    if row.input_hash != call.input.hash() {
        found.push(format!("the ledger has other arguments of {} than the events", call.key));
    }
    if row.class != call.class || row.deadline != call.deadline {
        found.push(format!("the ledger has another class or deadline of {} than the events", call.key));
    }
    if !step.fits(row.status, row.disproved, job) {
        let disproved = if row.disproved { " and disproved" } else { "" };
        found.push(format!(
            "the ledger has {} as {}{disproved}, the events as {:?} in a step that is {}",
            call.key,
            row.status.as_str(),
            call.phase,
            step.status.as_str()
        ));
    }
    found
}
