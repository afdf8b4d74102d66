//! What a run does with a step that it finds on its way: nothing is called whose outcome is recorded anywhere.

use aetheris_core::event::{DoubtOutcome, Event, InvocationOutcome, Source};
use aetheris_core::id::IdempotencyKey;
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerStatus, LedgerTrigger};
use aetheris_core::plan::EffectClass::{AtMostOnce, Idempotent};
use aetheris_core::state::InvocationPhase;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Timestamp;
use aetheris_store::{EffectRow, LedgerWrite};
use serde_json::json;

use super::bed::{Bed, calls_tool};
use crate::run::prepared::{Body, Next, Prepared};
use crate::run::step;

/// A run finds a call of the first permit, and the row at this status.
fn found(class: aetheris_core::plan::EffectClass, status: LedgerStatus) -> (Bed, IdempotencyKey) {
    let mut bed = Bed::of(calls_tool(), class);
    let Body::Call(call, _) = bed.begin() else { panic!("no call") };
    bed.reload();
    bed.rows.ledger.get_mut(&call.key).unwrap().status = status;
    (bed, call.key)
}

fn with_effect(bed: &mut Bed, key: IdempotencyKey, permit: u32) {
    let effect = EffectRow { at: Timestamp::default(), key, permit, result: Json::new(json!(7)) };
    bed.rows.effects.insert(key, effect);
}

fn settled(prepared: &Prepared) -> Vec<LedgerTrigger> {
    let trigger = |write: &LedgerWrite| match write {
        LedgerWrite::Settle(settle) => Some(settle.trigger),
        LedgerWrite::Permit(_) | LedgerWrite::Disprove(_) | LedgerWrite::See { .. } => None,
    };
    prepared.facts.iter().filter_map(|fact| fact.ledger.as_deref().and_then(trigger)).collect()
}

const COMMAND: [&str; 3] = ["tool_invocation_finished", "command_committed", "node_finished"];

#[test]
fn a_recorded_effect_becomes_the_steps_result_and_the_ledger_learns_of_it_once() {
    for class in [AtMostOnce, Idempotent] {
        for (status, settles) in
            [(LedgerStatus::Committed, vec![]), (LedgerStatus::Started, vec![LedgerTrigger::Commit])]
        {
            let (mut bed, key) = found(class, status);
            with_effect(&mut bed, key, 1);
            let prepared = bed.ask(step::prepare).unwrap();
            assert_eq!(settled(&prepared), settles, "{class:?} {status:?}");
            let Event::ToolInvocationFinished(ended) = &prepared.facts[0].event else { panic!("{:?}", prepared.facts) };
            assert_eq!(ended.source, Source::CaughtUp, "this run has not executed it");
            let (facts, next) = bed.take(prepared);
            assert_eq!(facts, COMMAND);
            assert!(matches!(next, Next::Go));
            assert_eq!(crate::names::output(&bed.state, &bed.rows.effects, &"n".into()), Json::new(json!(7)));
        }
    }
}

/// A success that came late answers the doubt first, and takes a "did not happen" back.
#[test]
fn a_late_effect_ends_the_doubt_it_answers() {
    let (mut bed, key) = found(AtMostOnce, LedgerStatus::InDoubt);
    assert_eq!(bed.prepare().0, ["step_in_doubt"]);
    with_effect(&mut bed, key, 1);
    assert_eq!(bed.prepare().0, ["in_doubt_resolved", COMMAND[0], COMMAND[1], COMMAND[2]]);

    let (mut bed, key) = found(AtMostOnce, LedgerStatus::InDoubt);
    let step = bed.state.steps.get_mut(&"n".into()).unwrap();
    step.status = StepStatus::Retrying;
    step.invocation.as_deref_mut().unwrap().phase = InvocationPhase::Resolved(DoubtOutcome::DidNotHappen);
    with_effect(&mut bed, key, 1);
    assert_eq!(bed.prepare().0, ["in_doubt_resolved", COMMAND[0], COMMAND[1], COMMAND[2]]);
}

#[test]
fn an_outcome_that_only_the_ledger_knows_is_told_and_the_policy_asked() {
    for (status, outcome, again) in [
        (LedgerStatus::NotSent, InvocationOutcome::NotSent, true),
        (LedgerStatus::RefusedRetryable, InvocationOutcome::RefusedRetryable, true),
        (LedgerStatus::RefusedPermanent, InvocationOutcome::RefusedPermanent, false),
    ] {
        let (mut bed, _) = found(AtMostOnce, status);
        let prepared = bed.ask(step::prepare).unwrap();
        assert!(settled(&prepared).is_empty(), "the ledger knows");
        let (facts, Next::TryFailed(failed)) = bed.take(prepared) else { panic!("{status:?}") };
        assert_eq!((facts.as_slice(), failed.retryable), (&["tool_invocation_finished"][..], again), "{status:?}");
        let phase = bed.state.steps[&"n".into()].invocation.as_deref().unwrap().phase;
        assert_eq!(phase, InvocationPhase::Finished(outcome));
    }
}

/// A build of before did not end the try with the answer.
#[test]
fn a_disproved_call_ends_its_try() {
    let (mut bed, _) = found(AtMostOnce, LedgerStatus::InDoubt);
    bed.prepare();
    let step = bed.state.steps.get_mut(&"n".into()).unwrap();
    step.status = StepStatus::Running;
    step.invocation.as_deref_mut().unwrap().phase = InvocationPhase::Resolved(DoubtOutcome::DidNotHappen);
    let prepared = bed.ask(step::prepare).unwrap();
    let Next::TryFailed(failed) = prepared.next else { panic!("{prepared:?}") };
    assert_eq!((failed.error.code.as_str(), failed.retryable), ("did_not_happen", true));
}

#[test]
fn a_step_that_has_ended_is_left_alone() {
    for status in [StepStatus::Completed, StepStatus::Failed, StepStatus::Skipped] {
        let (mut bed, key) = found(AtMostOnce, LedgerStatus::Committed);
        with_effect(&mut bed, key, 1);
        bed.state.steps.get_mut(&"n".into()).unwrap().status = status;
        let (facts, next) = bed.prepare();
        assert!(facts.is_empty() && matches!(next, Next::Go), "{status:?}");
    }
}

/// Nothing is run on a history that contradicts itself.
#[test]
fn a_permit_that_no_event_speaks_of_is_corruption() {
    let (mut bed, key) = found(AtMostOnce, LedgerStatus::Started);
    bed.rows.ledger.get_mut(&key).unwrap().permit = 2;
    assert_eq!(bed.ask(step::prepare).unwrap_err().code, "corrupt_history");
    let (bed, _) = found(AtMostOnce, LedgerStatus::Committed);
    let missing = bed.ask(step::prepare).unwrap_err();
    assert!(missing.message.contains("its effect is missing"), "{}", missing.message);
}
