//! Doubts: the policies of a tool, and what its answers are worth.

use aetheris_core::disproof::Grounds;
use aetheris_core::event::{DoubtOutcome, EndCause, Event, Failure};
use aetheris_core::id::{BootId, PermitId};
use aetheris_core::json::Json;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::plan::DoubtPolicy::{Fail, Human, Wait};
use aetheris_core::plan::{DoubtPolicy, EffectClass, Reconcile};
use aetheris_core::time::{BootMoment, Reading, Span, Timestamp};
use aetheris_store::{EffectRow, LedgerWrite};
use serde_json::{Value, json};

use super::bed::{Bed, calls_tool, tool};
use crate::ports::ToolOutcome;
use crate::run::doubt;
use crate::run::prepared::{Body, Clocks, Next, Question, Release, Role, Said};
use crate::run::step;

/// A job whose call is in doubt, with these policies; whom to ask is `look`.
fn doubted(policies: Vec<DoubtPolicy>) -> Bed {
    let mut bed = Bed::of(calls_tool(), EffectClass::AtMostOnce);
    bed.tools[0].1.on_in_doubt = policies;
    bed.tools.push(("look", tool(EffectClass::Pure, Vec::new())));
    bed.begin();
    assert_eq!(bed.prepare().0, ["step_in_doubt"]);
    bed
}

fn ask() -> DoubtPolicy {
    DoubtPolicy::Reconcile(Reconcile { settle: Some(Span::from_secs(1)), tool: "look".into() })
}

fn question(bed: &mut Bed) -> Question {
    match bed.begin() {
        Body::Call(call, Role::Reconcile(question)) => {
            assert_eq!(call.tool_name.as_str(), "look");
            question
        }
        other => panic!("{other:?}"),
    }
}

/// Both clocks at a moment, in seconds; the boot clock began with the permit.
fn clocks(asked: u32, flying: bool) -> Clocks {
    let boot = BootMoment { at: Span::from_secs(asked.into()), of: BootId::from_u128(1) };
    Clocks { answered: boot, asked: Reading { at: Timestamp::from_micros(i64::from(asked) * 1_000_000), boot }, flying }
}

fn said(answer: Value, question: Question, clocks: Clocks) -> Said {
    Said::Reconciled(ToolOutcome::Done(Json::new(answer)), question, clocks)
}

/// The row's deadline is one second and a boot clock has run with it.
fn with_boot(bed: &mut Bed) {
    bed.reload();
    for row in bed.rows.ledger.values_mut() {
        row.boot = Some(BootMoment { at: Span::from_secs(1), of: BootId::from_u128(1) });
    }
}

#[test]
fn the_policies_are_tried_in_their_order_and_the_end_of_the_list_fails_the_step() {
    let mut bed = doubted(vec![Wait(Span::from_secs(2)), Human]);
    let (facts, next) = bed.prepare();
    assert_eq!(facts, ["job_waiting", "timer_set"]);
    assert!(matches!(next, Next::Release(Release::Block { .. })));

    let mut bed = doubted(vec![Human]);
    assert_eq!(bed.prepare().0, ["job_waiting"]);
    assert!(bed.state.blocks.oldest().is_some_and(|blocked| blocked.doubt));

    for policies in [vec![Fail], Vec::new()] {
        let mut bed = doubted(policies);
        let (facts, next) = bed.prepare();
        assert_eq!(facts, ["in_doubt_resolved", "node_finished"]);
        assert!(matches!(next, Next::Go));
        assert_eq!(bed.error().unwrap().code, "in_doubt_unresolved");
    }
}

/// A wait is waited for once. What waits for a person gives its slot's place in lists away, a wait for time does not.
#[test]
fn a_wait_that_is_over_leads_to_the_next_policy_and_only_a_person_is_parked_for() {
    let mut bed = doubted(vec![Wait(Span::from_secs(2)), Human]);
    if let Some(doubt) = bed.state.steps.get_mut(&"n".into()).and_then(|step| step.doubt.as_deref_mut()) {
        doubt.waited = true;
    }
    assert_eq!(bed.prepare().0, ["step_in_doubt"]);
    for (policy, parks) in [(Human, true), (Wait(Span::from_secs(2)), false)] {
        let bed = doubted(vec![policy]);
        let prepared = bed.ask(step::prepare).unwrap();
        let Next::Release(release) = &prepared.next else { panic!("{prepared:?}") };
        let Event::JobWaiting(waiting) = release.facts().remove(0).event else { panic!("{prepared:?}") };
        assert_eq!(waiting.park, parks);
    }
}

/// A question names the permit as the tool has seen it: by the generation that its row has, if this run has that row.
#[test]
fn a_question_names_the_permit_by_the_generation_that_gave_it() {
    let permit_of = |bed: &mut Bed| match bed.begin() {
        Body::Call(call, Role::Reconcile(_)) => call.input.value()["permit"].clone(),
        other => panic!("{other:?}"),
    };
    for (own, expected) in [(true, "4.1"), (false, "0.1")] {
        let mut bed = doubted(vec![ask()]);
        bed.reload();
        for row in bed.rows.ledger.values_mut() {
            row.fence.generation = 4;
            if !own {
                row.permit_id = PermitId::from_u128(99);
            }
        }
        assert_eq!(permit_of(&mut bed), expected, "own {own}");
    }
}

/// An answer about an older permit, or about a doubt that somebody else has answered, counts for nothing.
#[test]
fn an_answer_counts_for_the_doubt_that_was_asked_about() {
    let happened = || json!({ "outcome": "happened", "result": 4 });
    let mut bed = doubted(vec![ask()]);
    let asked = question(&mut bed);
    let older = Question { permit_id: PermitId::from_u128(99), refuses: asked.refuses, whom: asked.whom.clone() };
    assert!(bed.conclude(said(happened(), older, clocks(0, false))).0.is_empty());
    assert_eq!(bed.conclude(said(happened(), asked, clocks(0, false))).0, ["in_doubt_resolved"]);
    let again =
        Question { permit_id: bed.state.steps[&"n".into()].invocation.as_deref().unwrap().permit_id, ..again() };
    assert!(bed.conclude(said(happened(), again, clocks(0, false))).0.is_empty());
}

fn again() -> Question {
    let whom = Reconcile { settle: None, tool: "look".into() };
    Question { permit_id: PermitId::from_u128(0), refuses: false, whom }
}

/// How long a call was given to settle is told where time was what told it.
#[test]
fn a_disproof_tells_how_long_the_call_had_to_settle() {
    let no = || json!({ "outcome": "did_not_happen" });
    for (refuses, settled) in [(false, Some(1_000_000)), (true, None)] {
        let mut bed = doubted(vec![ask()]);
        with_boot(&mut bed);
        bed.state.last_at = Timestamp::from_micros(9_000_000);
        let asked = Question { refuses, ..question(&mut bed) };
        let prepared = bed.ask(|view| step::conclude(view, said(no(), asked, clocks(9, false)))).unwrap();
        let Event::InDoubtResolved(resolved) = &prepared.facts[0].event else { panic!("{:?}", prepared.facts) };
        assert_eq!(resolved.settle_us, settled, "refuses {refuses}");
    }
}

#[test]
fn an_answer_that_is_none_leads_to_the_next_policy_with_both_reasons() {
    let error = || Failure::new("down", "no route");
    let unknown = |timeout| ToolOutcome::Unknown { error: error(), retry_after: None, timeout };
    let not_sent = |permanent| ToolOutcome::NotSent { error: error(), permanent };
    // Where nobody knows, nothing is concluded: also not from "there is no such thing".
    for outcome in [
        unknown(false),
        unknown(true),
        not_sent(false),
        not_sent(true),
        ToolOutcome::RefusedRetryable { error: error(), retry_after: None },
        ToolOutcome::RefusedPermanent(error()),
    ] {
        let mut bed = doubted(vec![ask(), Human]);
        let asked = question(&mut bed);
        let told = format!("{outcome:?}");
        let how = if matches!(outcome, ToolOutcome::NotSent { .. }) { "could not be asked" } else { "did not tell" };
        assert_eq!(bed.conclude(Said::Reconciled(outcome, asked, clocks(9, false))).0, ["step_in_doubt"], "{told}");
        let doubt = bed.state.steps[&"n".into()].doubt.clone().unwrap();
        assert_eq!(doubt.policy, 1, "{told}");
        assert!(doubt.reason.ends_with(&format!("; `look` {how}: no route")), "{told}: {}", doubt.reason);
    }
}

#[test]
fn happened_is_an_effect_and_nothing_is_called() {
    let mut bed = doubted(vec![ask()]);
    let asked = question(&mut bed);
    let said = said(json!({ "outcome": "happened", "result": 4 }), asked, clocks(0, true));
    let prepared = bed.ask(|view| step::conclude(view, said)).unwrap();
    assert_eq!(prepared.facts[0].effect.as_ref().map(|effect| effect.result.clone()), Some(Json::new(json!(4))));
    let (facts, next) = bed.take(prepared);
    assert_eq!(facts, ["in_doubt_resolved"]);
    assert!(matches!(next, Next::Go));
}

/// "Did not happen" of a tool that only looks: believed when both clocks say that the call can no longer arrive and this
/// process does not await it; else it is asked again.
#[test]
fn a_look_that_finds_nothing_counts_once_the_call_can_no_longer_arrive() {
    let no = || json!({ "outcome": "did_not_happen" });
    for (asked_at, flying, believed) in [(1u32, false, false), (2, false, true), (2, true, false)] {
        let mut bed = doubted(vec![ask()]);
        with_boot(&mut bed);
        bed.retry.max_attempts = 1;
        bed.state.last_at = Timestamp::from_micros(i64::from(asked_at) * 1_000_000);
        let asked = question(&mut bed);
        let (facts, _) = bed.conclude(said(no(), asked, clocks(asked_at, flying)));
        let expected: &[&str] =
            if believed { &["in_doubt_resolved", "node_finished"] } else { &["job_waiting", "timer_set"] };
        assert_eq!(facts, expected, "asked at {asked_at} s, flying {flying}");
    }
}

/// Whoever believed more without a look would judge by a row of before the question; who looked for all would ask the store in
/// vain.
#[test]
fn only_a_look_that_found_nothing_is_judged_by_what_is_stored_now() {
    let done = |answer: Value| ToolOutcome::Done(Json::new(answer));
    let unknown = || ToolOutcome::Unknown { error: Failure::new("down", "?"), retry_after: None, timeout: false };
    for refuses in [false, true] {
        let mut bed = doubted(vec![ask()]);
        let asked = Question { refuses, ..question(&mut bed) };
        let looks = |outcome: ToolOutcome| doubt::needs_a_look(&asked, &outcome);
        assert_eq!(looks(done(json!({ "outcome": "did_not_happen" }))), !refuses);
        assert!(!looks(done(json!({ "outcome": "happened", "result": 4 }))));
        assert!(!looks(done(json!("no answer"))) && !looks(unknown()));
    }
}

/// Another boot clock has to run the permit's whole lifetime from its first reading, which is noted with the wait.
#[test]
fn a_boot_clock_that_did_not_give_the_permit_is_noted_before_it_counts() {
    let mut bed = doubted(vec![ask()]);
    let asked = question(&mut bed);
    bed.reload();
    // Also where the job is to end or to be held still, so that it does not block any more.
    for (end, facts) in [(None, &["job_waiting", "timer_set"][..]), (Some(EndCause::Pause), &[])] {
        bed.state.end_requested = end;
        let asked = Question { permit_id: asked.permit_id, refuses: false, whom: asked.whom.clone() };
        let said = said(json!({ "outcome": "did_not_happen" }), asked, clocks(9, false));
        let prepared = bed.ask(|view| step::conclude(view, said)).unwrap();
        assert!(matches!(prepared.see, Some(LedgerWrite::See { .. })), "{end:?}");
        let given_away = if let Next::Release(release) = &prepared.next { release.facts() } else { Vec::new() };
        let told: Vec<&str> = given_away.iter().map(|fact| fact.event.kind().as_str()).collect();
        assert_eq!(told, facts, "{end:?}");
    }
}

#[test]
fn a_tool_that_refuses_the_permit_is_believed_at_once() {
    let mut bed = doubted(vec![ask()]);
    bed.tools[1].1.refuses = true;
    let asked = question(&mut bed);
    let said = said(json!({ "outcome": "did_not_happen" }), asked, clocks(0, false));
    let prepared = bed.ask(|view| step::conclude(view, said)).unwrap();
    let Event::InDoubtResolved(event) = &prepared.facts[0].event else { panic!("{prepared:?}") };
    assert_eq!((event.grounds, event.outcome), (Some(Grounds::Refuses), DoubtOutcome::DidNotHappen));
    assert!(matches!(prepared.next, Next::TryFailed(_)), "it ended the try");
}

/// The store has said when it will believe: until then nobody is asked.
#[test]
fn nobody_is_asked_before_the_moment_that_the_store_has_named() {
    let mut bed = doubted(vec![ask()]);
    bed.accepted_from = Some(Timestamp::from_micros(5));
    assert_eq!(bed.prepare().0, ["job_waiting", "timer_set"]);
}

/// Answered by somebody else while the tool was asked: what it said counts for nothing.
#[test]
fn an_answer_about_a_call_that_is_no_longer_in_doubt_is_dropped() {
    let mut bed = doubted(vec![ask()]);
    let asked = question(&mut bed);
    bed.state.steps.get_mut(&"n".into()).unwrap().status = aetheris_core::step::StepStatus::Running;
    let (facts, next) = bed.conclude(said(json!({ "outcome": "did_not_happen" }), asked, clocks(9, false)));
    assert!(facts.is_empty() && matches!(next, Next::Go));
}

/// A run that has taken over between two permits has the row of the older one until it reads again.
#[test]
fn a_happened_is_caught_up_whichever_permit_the_loaded_row_is_of() {
    let mut bed = Bed::of(calls_tool(), EffectClass::AtMostOnce);
    bed.tools[0].1.on_in_doubt = vec![ask()];
    bed.tools.push(("look", tool(EffectClass::Pure, Vec::new())));
    let Body::Call(_, Role::Permit(first)) = bed.begin() else { panic!("no call") };
    bed.reload();
    let refused = ToolOutcome::RefusedRetryable { error: Failure::new("busy", ""), retry_after: None };
    bed.conclude(Said::Permitted(refused, first));
    bed.rows.ledger.get_mut(&first.key).unwrap().status = LedgerStatus::RefusedRetryable;
    bed.rested();
    let Body::Call(_, Role::Permit(second)) = bed.begin() else { panic!("no second call") };
    let unknown = ToolOutcome::Unknown { error: Failure::new("lost", ""), retry_after: None, timeout: false };
    bed.conclude(Said::Permitted(unknown, second));
    let asked = question(&mut bed);
    bed.conclude(said(json!({ "outcome": "happened", "result": 4 }), asked, clocks(0, false)));
    let effect = EffectRow { at: Timestamp::default(), key: second.key, permit: 2, result: Json::new(json!(4)) };
    bed.rows.effects.insert(second.key, effect);
    let caught_up = bed.ask(step::prepare).unwrap();
    let settles = caught_up.facts.iter().filter(|fact| fact.ledger.is_some()).count();
    assert_eq!(settles, 0, "the first permit is not this call's, and the second is committed");
}
