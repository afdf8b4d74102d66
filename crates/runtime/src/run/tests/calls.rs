//! Calls: what asks for them, and what each outcome means.

use aetheris_core::event::{
    DoubtOutcome, Event, Failure, InDoubtResolved, InvocationOutcome, Resolver, Source, ToolInvocationFinished,
};
use aetheris_core::json::Json;
use aetheris_core::ledger::LedgerTrigger;
use aetheris_core::plan::EffectClass::{AtMostOnce, Idempotent, Pure};
use aetheris_core::plan::{EffectClass, NodeKind, ToolKind};
use aetheris_core::retry::OnTimeout;
use aetheris_core::time::Span;
use aetheris_store::{LedgerWrite, Purpose};
use serde_json::json;

use super::bed::{Bed, calls_tool};
use crate::draft::Fact;
use crate::ops::DepositOutcome;
use crate::ports::{OUT_OF_FILES, ToolCall, ToolOutcome};
use crate::run::body::{LeaseNeed, Needs, Written};
use crate::run::keep::owed_by;
use crate::run::prepared::{Body, Next, Permit, Prepared, Role, Said};
use crate::run::step;

fn failure() -> Failure {
    Failure::new("e", "it failed")
}

fn unknown(timeout: bool) -> ToolOutcome {
    ToolOutcome::Unknown { error: failure(), retry_after: None, timeout }
}

fn called(class: EffectClass) -> (Bed, ToolCall, Permit) {
    let mut bed = Bed::of(calls_tool(), class);
    match bed.begin() {
        Body::Call(call, Role::Permit(permit)) => (bed, *call, permit),
        other => panic!("{other:?}"),
    }
}

fn trigger(prepared: &Prepared) -> Vec<LedgerTrigger> {
    let settled = |write: &LedgerWrite| match write {
        LedgerWrite::Settle(settle) => Some(settle.trigger),
        LedgerWrite::Permit(_) | LedgerWrite::Disprove(_) | LedgerWrite::See { .. } => None,
    };
    prepared.facts.iter().filter_map(|fact| fact.ledger.as_deref().and_then(settled)).collect()
}

#[test]
fn a_pure_tool_is_called_without_a_permit_with_what_its_templates_give() {
    let mut bed = Bed::of(calls_tool(), Pure);
    let (facts, next) = bed.prepare();
    assert_eq!(facts, ["node_started"]);
    let Next::Perform(Body::Call(call, Role::Pure)) = next else { panic!("{next:?}") };
    assert_eq!((call.input.value(), call.permit, call.try_number), (&json!({ "to": "ann" }), None, 1));
    let (facts, next) = bed.conclude(Said::Called(ToolOutcome::Done(Json::new(json!(5))), 9));
    assert!(matches!(next, Next::Go));
    assert_eq!(facts, ["node_finished"]);
}

/// A call is bound to its permission by three things: key, number and id. The input is rendered once.
#[test]
fn each_permit_carries_the_key_and_the_input_of_the_first() {
    let (mut bed, first, permit) = called(Idempotent);
    assert_eq!((first.key, permit.key, permit.number, permit.class), (permit.key, first.key, 1, Idempotent));
    assert_eq!(first.permit.map(|permit| permit.number), Some(1));
    bed.state.message = Json::new(json!({ "to": "bob" }));
    let named = permit.id;
    let (facts, next) = bed.conclude(Said::Permitted(unknown(false), permit));
    assert_eq!(facts, ["tool_invocation_finished", "node_retry_scheduled"]);
    assert!(matches!(next, Next::Record), "{next:?}");
    bed.rested();
    let prepared = bed.ask(step::prepare).unwrap();
    let asked = prepared.facts.iter().find_map(|fact| match &fact.event {
        Event::ToolInvocationStarted(asked) => {
            Some((asked.permit, asked.input.clone(), asked.key, asked.tool_version.clone()))
        }
        _ => None,
    });
    let version = first.tool.version.clone();
    assert!(version.is_some(), "the tool of the bed has one");
    assert_eq!(asked, Some((2, None, first.key, version)), "the input is recorded with the first permit alone");
    let Next::Perform(Body::Call(second, Role::Permit(permit))) = prepared.next else { panic!("no call") };
    assert_eq!((second.input, second.key, second.try_number), (first.input, first.key, 2));
    assert_eq!((permit.number, second.permit.map(|permit| permit.number)), (2, Some(2)));
    assert_ne!(permit.id, named, "each has a name of its own");
}

/// What a call came to, in the events, in the ledger, and as what is owed if the lease is lost first.
#[test]
fn every_outcome_of_a_permitted_call_is_told_to_events_and_ledger_alike() {
    let done = ToolOutcome::Done(Json::new(json!(1)));
    let not_sent = ToolOutcome::NotSent { error: failure(), permanent: false };
    let later = ToolOutcome::RefusedRetryable { error: failure(), retry_after: None };
    let never = ToolOutcome::RefusedPermanent(failure());
    use InvocationOutcome as Told;
    use LedgerTrigger as L;
    for class in [Idempotent, AtMostOnce] {
        for (outcome, told, settled) in [
            (&done, Told::Committed, L::Commit),
            (&not_sent, Told::NotSent, L::NotSent),
            (&later, Told::RefusedRetryable, L::RefuseRetryable),
            (&never, Told::RefusedPermanent, L::RefusePermanent),
        ] {
            let (bed, _, permit) = called(class);
            let said = Said::Permitted(outcome.clone(), permit);
            let prepared = bed.ask(|view| step::conclude(view, said)).unwrap();
            let Event::ToolInvocationFinished(event) = &prepared.facts[0].event else { panic!("{prepared:?}") };
            assert_eq!((event.outcome, event.permit), (told, permit.number), "{class:?}");
            assert_eq!(trigger(&prepared), [settled], "{class:?}");
            let owed = owed_by(bed.state.id, &prepared.facts[0]).expect("a known outcome is owed");
            assert_eq!((owed.key, owed.permit, owed.permit_id), (permit.key, permit.number, permit.id));
            let as_owed = match &owed.outcome {
                DepositOutcome::Done(_) | DepositOutcome::Found(_) => L::Commit,
                DepositOutcome::Settled(trigger) => *trigger,
            };
            assert_eq!(as_owed, settled);
            // What is known from elsewhere, or not known, is nothing that this run owes.
            for (source, outcome) in [(Source::CaughtUp, told), (Source::Executed, Told::InDoubt)] {
                let event = Event::from(ToolInvocationFinished { source, outcome, ..event.clone() });
                assert_eq!(owed_by(bed.state.id, &Fact { event, ..prepared.facts[0].clone() }), None, "{source:?}");
            }
            for (by, outcome, learned) in [
                (Resolver::Reconcile, DoubtOutcome::Happened, settled == L::Commit),
                (Resolver::Reconcile, DoubtOutcome::DidNotHappen, false),
                (Resolver::Operator, DoubtOutcome::Happened, false),
            ] {
                let event = Event::from(InDoubtResolved {
                    by,
                    grounds: None,
                    node: event.node.clone(),
                    note: None,
                    outcome,
                    permit: event.permit,
                    result: None,
                    settle_us: None,
                    then: None,
                });
                let owed = owed_by(bed.state.id, &Fact { event, ..prepared.facts[0].clone() });
                assert_eq!(owed.is_some(), learned, "{by:?} {outcome:?}");
            }
        }
    }
}

/// The line that the promise stands on: only an idempotent call may follow one whose outcome is unknown.
#[test]
fn an_unknown_outcome_is_a_doubt_where_a_call_may_act_twice_and_another_try_where_not() {
    let (mut bed, _, permit) = called(AtMostOnce);
    let prepared = bed.ask(|view| step::conclude(view, Said::Permitted(unknown(true), permit))).unwrap();
    assert_eq!(trigger(&prepared), [LedgerTrigger::Doubt]);
    assert!(prepared.facts.iter().all(|fact| owed_by(bed.state.id, fact).is_none()), "nothing is known");
    let (facts, next) = bed.take(prepared);
    assert_eq!(facts, ["step_in_doubt"]);
    assert!(matches!(next, Next::Again), "its policies begin in the same turn: {next:?}");

    let (mut bed, _, permit) = called(Idempotent);
    let (facts, _) = bed.conclude(Said::Permitted(unknown(true), permit));
    assert_eq!(facts, ["tool_invocation_finished", "node_retry_scheduled"]);
}

/// Where no further try is allowed, the call is given up in the ledger with the step's end.
#[test]
fn the_last_try_of_an_unknown_outcome_gives_the_call_up() {
    for (tries, on_timeout) in [(1, OnTimeout::Retry), (9, OnTimeout::Fail)] {
        let (mut bed, _, permit) = called(Idempotent);
        bed.retry.max_attempts = tries;
        bed.retry.on_timeout = on_timeout;
        let prepared = bed.ask(|view| step::conclude(view, Said::Permitted(unknown(true), permit))).unwrap();
        let (_, next) = bed.take(prepared);
        let Next::TryFailed(failed) = next else { panic!("{next:?}") };
        let ended = bed.ask(|view| step::after_failure(view, failed));
        assert_eq!(trigger(&ended), [LedgerTrigger::GiveUp], "{on_timeout:?}");
        assert_eq!(bed.take(ended).0, ["node_finished"]);
    }
}

#[test]
fn a_result_that_cannot_be_recorded_is_a_doubt_and_of_a_pure_tool_a_failure() {
    let deep = Json::new((0..200).fold(json!(1), |inside, _| json!([inside])));
    let (mut bed, _, permit) = called(AtMostOnce);
    assert_eq!(bed.conclude(Said::Permitted(ToolOutcome::Done(deep.clone()), permit)).0, ["step_in_doubt"]);
    let mut bed = Bed::of(calls_tool(), Pure);
    bed.begin();
    assert_eq!(bed.conclude(Said::Called(ToolOutcome::Done(deep), 1)).0, ["node_finished"]);
    assert_eq!(bed.error().unwrap().code, "result_refused");
}

/// After a crash: nothing that may have acted is called again.
#[test]
fn a_run_that_finds_an_open_call_doubts_it_or_repeats_it() {
    let (mut bed, ..) = called(AtMostOnce);
    bed.reload();
    assert_eq!(bed.prepare().0, ["step_in_doubt"]);
    let (mut bed, first, _) = called(Idempotent);
    bed.reload();
    let Body::Call(again, Role::Permit(permit)) = bed.begin() else { panic!("no call") };
    assert_eq!((again.key, again.input, permit.number, again.try_number), (first.key, first.input, 2, 1));
    // Where the budget is used up the call stays unknown.
    let (mut bed, ..) = called(Idempotent);
    bed.budget.max_tool_calls = Some(1);
    bed.reload();
    let prepared = bed.ask(step::prepare).unwrap();
    assert_eq!(trigger(&prepared), [LedgerTrigger::Doubt]);
    let (facts, Next::TryFailed(failed)) = bed.take(prepared) else { panic!("it goes on") };
    assert_eq!(facts, ["tool_invocation_finished"]);
    let ended = bed.ask(|view| step::after_failure(view, failed));
    assert_eq!(trigger(&ended), [LedgerTrigger::GiveUp]);
    assert_eq!(bed.take(ended).0, ["node_finished"]);
    assert!(bed.error().unwrap().message.contains("what became of the last one is unknown"));
}

/// Within its try it asks for another permit, and by then other steps may have made the calls that were left.
#[test]
fn a_call_that_did_not_leave_asks_the_budget_again() {
    for (calls, goes_on) in [(1, true), (0, false)] {
        let (mut bed, _, permit) = called(AtMostOnce);
        let not_begun = Failure::new("not_begun", "the run is to stop; nothing was sent");
        assert_eq!(bed.conclude(Said::Unsent(permit, not_begun)).0, ["tool_invocation_finished"]);
        bed.budget.max_tool_calls = Some(calls);
        bed.reload();
        let facts = if goes_on { ["tool_invocation_started"] } else { ["node_finished"] };
        assert_eq!(bed.prepare().0, facts);
        assert_eq!(bed.error().map(|error| error.code), (!goes_on).then(|| "budget_exceeded".to_owned()));
    }
}

#[test]
fn a_call_that_did_not_leave_for_want_of_this_process_is_nobodys_failure() {
    let want = Failure::new(OUT_OF_FILES, "no file is left");
    let not_sent = ToolOutcome::NotSent { error: want.clone(), permanent: false };
    assert_eq!(Said::Called(not_sent, 1).own_want(), Some(&want));
    let (_, _, permit) = called(AtMostOnce);
    for outcome in [
        ToolOutcome::NotSent { error: failure(), permanent: false },
        ToolOutcome::RefusedPermanent(want),
        ToolOutcome::Done(Json::null()),
        unknown(false),
    ] {
        assert_eq!(Said::Permitted(outcome, permit).own_want(), None);
    }
}

/// What stands before a body: a permission, and whatever somebody outside can observe, is durable first.
#[test]
fn only_functions_of_the_process_begin_before_what_precedes_them_is_durable() {
    let needs = |bed: &mut Bed| {
        let body = bed.begin();
        let Needs { lease, written } = body.needs();
        (written, lease, body.leaves_process())
    };
    let permitted = needs(&mut Bed::of(calls_tool(), AtMostOnce));
    assert_eq!(permitted, (Written::All(Purpose::Permit), LeaseNeed::BeforeAndAfter, true));
    let mut bed = Bed::of(calls_tool(), Pure);
    assert_eq!(needs(&mut bed), (Written::Sent, LeaseNeed::Before, false));
    bed.state.steps.clear();
    bed.tools[0].1.kind =
        ToolKind::Http(serde_json::from_value(json!({ "method": "GET", "url": "http://h/" })).unwrap());
    assert_eq!(needs(&mut bed), (Written::Results, LeaseNeed::Before, true));
}

/// A permit of which nothing left is recorded as unused, and the next one follows in the same try.
#[test]
fn a_permit_that_was_not_used_is_given_back_and_no_try_is_lost() {
    let (mut bed, _, permit) = called(AtMostOnce);
    let prepared = bed.ask(|view| step::conclude(view, Said::Unsent(permit, failure()))).unwrap();
    assert_eq!(trigger(&prepared), [LedgerTrigger::NotSent]);
    assert_eq!(bed.take(prepared).0, ["tool_invocation_finished"]);
    bed.reload();
    assert_eq!(bed.prepare().0, ["tool_invocation_started"]);
    let step = &bed.state.steps[&"n".into()];
    assert_eq!((step.tries, step.invocation.as_deref().map(|call| (call.permit, call.unsent))), (1, Some((2, 1))));
}

/// What people are shown of a step's input is what its body was given.
#[test]
fn the_input_of_a_step_is_shown_as_it_was_rendered() {
    let bed = Bed::of(calls_tool(), Pure);
    let shown = bed.ask(|view| crate::run::input(&view.work.kind, view.names));
    assert_eq!(shown.unwrap().unwrap(), Json::new(json!({ "to": "ann" })));
    let rests = NodeKind::Sleep(Span::from_secs(1));
    assert!(bed.ask(|view| crate::run::input(&rests, view.names)).is_none());
}
