//! In doubt: the outcome of an `at_most_once` call is unknown, and the tool's policies are tried in order
//! (SPEC §5). Nothing here ever calls the tool again without an answer that it has not happened.

use aetheris_core::disproof::{self, Disproof, Grounds};
use aetheris_core::event::{
    DoubtOutcome, Failure, InDoubtResolved, JobWaiting, Resolver, StepResult, TimerId, TimerSet,
};
use aetheris_core::id::{IdempotencyKey, ToolName};
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerTrigger, PermitNumber};
use aetheris_core::path::StepPath;
use aetheris_core::plan::{DoubtPolicy, Reconcile, WaitType};
use aetheris_core::state::{Doubt, Invocation};
use aetheris_core::time::{Reading, Span};
use aetheris_store::{LedgerWrite, NewEffect};

use super::facts::{self, settle};
use super::prepared::{Body, Clocks, Next, Prepared, Question, Release, Role, TryFailed};
use super::view::View;
use crate::draft::Fact;
use crate::in_flight::IN_FLIGHT_LOOK;
use crate::ops::{is_open_doubt, not_happened};
use crate::ports::ToolOutcome;

/// What a reconcile tool said.
enum Reconciled {
    Happened(Json),
    DidNotHappen,
    /// It could not say, or could not be asked.
    Unknown(String),
}

/// The outcome is unknown, and the tool's policies begin.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn enter(view: &View<'_>, reason: &str) -> Result<Prepared, Failure> {
    let invocation = view.called()?;
    let event = facts::in_doubt(view, invocation, 0, reason);
    aetheris_fault::crash_point!("run.doubt.entered");
    Ok(Prepared::of([facts::unknown(view, invocation, event)]).next(Next::Again))
}

/// Tries the policy where the doubt stands.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn follow(view: &View<'_>) -> Result<Prepared, Failure> {
    let (invocation, doubt) = (view.called()?, doubt_of(view)?);
    let place = usize::try_from(doubt.policy).unwrap_or(usize::MAX);
    let policy = view.plan.tool_of(view.work).and_then(|(_, tool)| tool.on_in_doubt.get(place));
    Ok(match policy {
        None | Some(DoubtPolicy::Fail) => give_up(view, invocation, doubt),
        Some(DoubtPolicy::Human) => {
            aetheris_fault::sometimes!(DoubtHuman);
            let reason = format!("did the call of `{}` happen? {}", invocation.tool, doubt.reason);
            block(view, WaitType::Human, reason, None)
        }
        Some(DoubtPolicy::Wait(_)) if doubt.waited => next_policy(view, invocation, doubt, &doubt.reason),
        Some(DoubtPolicy::Wait(span)) => {
            aetheris_fault::sometimes!(DoubtWait);
            let reason = format!("waiting for a late answer of `{}`", invocation.tool);
            block(view, WaitType::Timer, reason, Some(*span))
        }
        Some(DoubtPolicy::Reconcile(whom)) => reconcile(view, whom, invocation, doubt),
    })
}

fn doubt_of<'v>(view: &'v View<'_>) -> Result<&'v Doubt, Failure> {
    view.step().and_then(|step| step.doubt.as_deref()).ok_or_else(|| view.corrupt("it has no doubt"))
}

fn next_policy(view: &View<'_>, invocation: &Invocation, doubt: &Doubt, reason: &str) -> Prepared {
    Prepared::of([Fact::of(facts::in_doubt(view, invocation, doubt.policy + 1, reason))])
}

/// The list is at its end: the step fails, the call stays on record as unresolved.
fn give_up(view: &View<'_>, invocation: &Invocation, doubt: &Doubt) -> Prepared {
    aetheris_fault::sometimes!(DoubtGivenUp);
    let message = format!("it is not known whether the call of `{}` happened: {}", invocation.tool, doubt.reason);
    let failure = Failure::new("in_doubt_unresolved", message);
    unresolved(view, invocation, TryFailed::new(failure, None, false))
}

/// The step is given up although its call is in doubt: that stays on record as unresolved.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn abandon(view: &View<'_>, failed: TryFailed) -> Result<Prepared, Failure> {
    Ok(unresolved(view, view.called()?, failed))
}

fn unresolved(view: &View<'_>, invocation: &Invocation, failed: TryFailed) -> Prepared {
    let event = facts::resolved(view, invocation, Resolver::Policy, DoubtOutcome::Unresolved);
    let unresolved = Fact::with_ledger(event, settle(invocation, LedgerTrigger::GiveUp));
    Prepared::of([unresolved]).then(facts::fail_after(view, StepResult::PermanentFailure, failed))
}

/// Whether a job parks for the answer to a doubt: a person's, who may take long.
pub(super) fn parks(wait_type: WaitType) -> bool {
    wait_type == WaitType::Human
}

fn block(view: &View<'_>, wait_type: WaitType, reason: String, span: Option<Span>) -> Prepared {
    // Asked for while the tool was asked: the job does not block any more, it is held still or ends.
    if view.state.end_requested.is_some() {
        return Prepared::default();
    }
    let node = &view.path;
    let waiting = JobWaiting {
        correlation_key: None,
        doubt: true,
        node: node.clone(),
        park: parks(wait_type),
        reason: Some(reason),
        wait_type,
    };
    let mut facts = vec![Fact::of(waiting)];
    if let Some(span) = span {
        let timer = TimerId::Doubt(node.clone());
        facts.push(Fact::of(TimerSet { after_us: span.micros(), timer }));
    }
    Prepared::default().next(Next::Release(Release::Block { facts, expected: None }))
}

/// Asks a pure tool. "Happened" is believed at once, and "did not happen" of one that refuses the permit from then
/// on. Of one that only looks it counts only if it was asked when the permit's call could no longer arrive, for
/// which the job waits and asks again.
fn reconcile(view: &View<'_>, whom: &Reconcile, invocation: &Invocation, doubt: &Doubt) -> Prepared {
    let early = view.accepted_from.map_or(Span::ZERO, |from| from.since(view.state.last_at));
    if early > Span::ZERO {
        return ask_later(view, &whom.tool, early);
    }
    match question(view, whom, invocation) {
        Ok(body) => Prepared::default().perform(body),
        Err(error) => next_policy(view, invocation, doubt, &format!("{}; {}", doubt.reason, error.message)),
    }
}

fn question(view: &View<'_>, whom: &Reconcile, invocation: &Invocation) -> Result<Body, Failure> {
    // A permit that this run does not find in what it has loaded is its own.
    let row = view.rows.ledger.get(&invocation.key).filter(|row| row.permit_id == invocation.permit_id);
    let generation = row.map_or(view.fence.generation, |row| row.fence.generation);
    let permit = PermitNumber { generation, number: invocation.permit };
    let input = serde_json::json!({
        "idempotency_key": invocation.key,
        "input": invocation.input.value(),
        "permit": permit.to_string(),
        "tool": invocation.tool,
    });
    let mut call = view.tool_call(&whom.tool, Json::new(input))?;
    call.timeout = call.tool.timeout.map_or(call.timeout, Span::to_std);
    // Each question has a key of its own, so that a tool which caches answers by key never repeats an old one. The
    // sequence number tells runs apart; within one run, questions are counted, as nothing may be written in between.
    let name = StepPath::from(format!("{}?{}", view.path, view.state.seq).as_str());
    call.key = IdempotencyKey::derive(view.state.id, &name, view.questions.saturating_add(1));
    let question = Question { permit_id: invocation.permit_id, refuses: call.tool.refuses, whom: whom.clone() };
    Ok(Body::Call(Box::new(call), Role::Reconcile(question)))
}

/// Whether what a reconcile tool said counts only by what is stored of the call now: it has looked, and has not found it.
pub(super) fn needs_a_look(question: &Question, outcome: &ToolOutcome) -> bool {
    !question.refuses && matches!(heard(&question.whom.tool, outcome), Reconciled::DidNotHappen)
}

/// Decides what the answer means.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn conclude(
    view: &View<'_>,
    question: &Question,
    clocks: Clocks,
    outcome: &ToolOutcome,
) -> Result<Prepared, Failure> {
    aetheris_fault::sometimes!(DoubtReconciled);
    // Answered otherwise while it was asked.
    let open = view.step().is_some_and(is_open_doubt);
    let Some(invocation) = view.invocation().filter(|now| open && now.permit_id == question.permit_id) else {
        return Ok(Prepared::default());
    };
    let doubt = doubt_of(view)?;
    Ok(match heard(&question.whom.tool, outcome) {
        Reconciled::Happened(result) => happened(view, invocation, result),
        Reconciled::DidNotHappen if question.refuses => {
            aetheris_fault::sometimes!(DisproofRefuses);
            disprove(view, invocation, doubt, (Grounds::Refuses, Span::ZERO, clocks.asked))
        }
        Reconciled::DidNotHappen => looked(view, &question.whom, clocks, (invocation, doubt)),
        // Who is asked next is told both: what happened, and that this did not tell.
        Reconciled::Unknown(why) => next_policy(view, invocation, doubt, &format!("{}; {why}", doubt.reason)),
    })
}

/// A tool that only looks has not found the call.
fn looked(view: &View<'_>, whom: &Reconcile, clocks: Clocks, (invocation, doubt): (&Invocation, &Doubt)) -> Prepared {
    let Clocks { asked, answered, flying } = clocks;
    let settled = if aetheris_fault::planted!("settle-not-waited") { Span::ZERO } else { whom.settle() };
    let (lifetime, permit_id) = (invocation.lifetime, invocation.permit_id);
    let Some(row) = view.rows.ledger.get(&invocation.key).filter(|row| row.permit_id == permit_id) else {
        return Prepared::default();
    };
    let open = disproof::left(row, lifetime, settled, asked) > Span::ZERO;
    if (open || flying) && !aetheris_fault::planted!("disproof-believed-early") {
        aetheris_fault::sometimes!(DisproofTooEarly);
        let left = disproof::left(row, lifetime, settled, Reading { at: view.state.last_at, boot: answered });
        let later = ask_later(view, &whom.tool, if flying { left.max(IN_FLIGHT_LOOK) } else { left });
        let see = disproof::is_unseen(row, answered).then_some(LedgerWrite::See { key: invocation.key, permit_id });
        return Prepared { see, ..later };
    }
    disprove(view, invocation, doubt, (Grounds::Clock, settled, asked))
}

fn ask_later(view: &View<'_>, name: &ToolName, left: Span) -> Prepared {
    if left == Span::ZERO {
        return Prepared::default();
    }
    let reason =
        format!("`{name}` reports that it did not happen; it is asked again once the call can no longer arrive");
    block(view, WaitType::Timer, reason, Some(left))
}

fn disprove(
    view: &View<'_>,
    invocation: &Invocation,
    doubt: &Doubt,
    (grounds, settle, asked): (Grounds, Span, Reading),
) -> Prepared {
    let event = InDoubtResolved {
        grounds: Some(grounds),
        settle_us: grounds.needs_time().then_some(settle.micros()),
        ..facts::resolved(view, invocation, Resolver::Reconcile, DoubtOutcome::DidNotHappen)
    };
    let (key, permit_id, lifetime) = (invocation.key, invocation.permit_id, invocation.lifetime);
    let disproof = Disproof { asked: Some(asked), grounds, key, lifetime, permit_id, settle };
    let disproved = Prepared::of([Fact::with_ledger(event, LedgerWrite::Disprove(disproof))]);
    if aetheris_fault::planted!("disproof-gives-a-call") {
        return disproved;
    }
    disproved.then(end_disproved_try(invocation, &doubt.reason))
}

/// "Did not happen" ends the try: whether another follows is the retry policy's to say, in the same unit.
fn end_disproved_try(invocation: &Invocation, why: &str) -> Prepared {
    let error = not_happened(&invocation.tool, why);
    Prepared::default().next(Next::TryFailed(TryFailed::new(error, None, true)))
}

/// Ends the try of a history whose build did not end it with the answer.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn end_answered_try(view: &View<'_>) -> Result<Prepared, Failure> {
    Ok(end_disproved_try(view.called()?, "an earlier version of this program recorded the answer"))
}

fn happened(view: &View<'_>, invocation: &Invocation, result: Json) -> Prepared {
    let (key, permit, permit_id) = (invocation.key, invocation.permit, invocation.permit_id);
    let effect = NewEffect { key, permit, permit_id, result };
    let event = facts::resolved(view, invocation, Resolver::Reconcile, DoubtOutcome::Happened);
    Prepared::of([Fact::with_effect(event, effect, settle(invocation, LedgerTrigger::Commit))])
}

/// What a reconcile tool's outcome says about the call.
fn heard(name: &ToolName, outcome: &ToolOutcome) -> Reconciled {
    match outcome {
        ToolOutcome::Done(answer) => read_answer(name, answer),
        ToolOutcome::NotSent { .. }
        | ToolOutcome::RefusedRetryable { .. }
        | ToolOutcome::RefusedPermanent(_)
        | ToolOutcome::Unknown { .. }
            if aetheris_fault::planted!("reconcile-error-is-disproof") =>
        {
            Reconciled::DidNotHappen
        }
        ToolOutcome::NotSent { error, .. } => {
            Reconciled::Unknown(format!("`{name}` could not be asked: {}", error.message))
        }
        ToolOutcome::RefusedRetryable { error, .. }
        | ToolOutcome::RefusedPermanent(error)
        | ToolOutcome::Unknown { error, .. } => {
            Reconciled::Unknown(format!("`{name}` did not tell: {}", error.message))
        }
    }
}

/// `{"outcome": "happened" | "did_not_happen" | "unknown", "result"?}`; anything else is no answer.
fn read_answer(name: &ToolName, answer: &Json) -> Reconciled {
    match answer.get("outcome").and_then(serde_json::Value::as_str) {
        Some("happened") => match Json::checked(answer.get("result").cloned().unwrap_or_default()) {
            Ok(result) => Reconciled::Happened(result),
            Err(error) => Reconciled::Unknown(format!("what `{name}` answered cannot be recorded: {error}")),
        },
        Some("did_not_happen") => Reconciled::DidNotHappen,
        Some("unknown") => Reconciled::Unknown(format!("`{name}` does not know")),
        Some(other) => Reconciled::Unknown(format!(
            "`{name}` answered the outcome `{other}`, which is none of happened, did_not_happen, unknown"
        )),
        None => Reconciled::Unknown(format!("`{name}` answered without an outcome")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// "Did not happen" lets the call be made again: nothing but these very words is taken for it.
    #[test]
    fn only_the_words_of_an_answer_are_one() {
        let told = |answer: Value| match read_answer(&"look".into(), &Json::new(answer)) {
            Reconciled::Happened(result) => format!("happened {result}"),
            Reconciled::DidNotHappen => "did not happen".to_owned(),
            Reconciled::Unknown(why) => why,
        };
        assert_eq!(told(json!({ "outcome": "happened", "result": { "id": 9 } })), "happened {\"id\":9}");
        assert_eq!(told(json!({ "outcome": "happened" })), "happened null");
        assert_eq!(told(json!({ "outcome": "did_not_happen", "result": 1 })), "did not happen");
        assert_eq!(told(json!({ "outcome": "unknown" })), "`look` does not know");
        for other in ["", "no", "Did_not_happen", "did not happen", "not_happened", "failed"] {
            let why = told(json!({ "outcome": other }));
            assert!(why.starts_with(&format!("`look` answered the outcome `{other}`")), "{why}");
        }
        for other in [
            json!(null),
            json!("did_not_happen"),
            json!(["did_not_happen"]),
            json!({}),
            json!({ "outcome": null }),
            json!({ "outcome": false }),
            json!({ "Outcome": "did_not_happen" }),
            json!({ "result": { "outcome": "did_not_happen" } }),
        ] {
            assert_eq!(told(other.clone()), "`look` answered without an outcome", "{other}");
        }
        let deep = (0..100).fold(json!(1), |inside, _| json!([inside]));
        let why = told(json!({ "outcome": "happened", "result": deep }));
        assert!(why.starts_with("what `look` answered cannot be recorded"), "{why}");
    }
}
