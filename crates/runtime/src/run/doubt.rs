//! In doubt: the outcome of an `at_most_once` call is unknown, and the tool's policies are tried in order
//! (SPEC §5). Nothing here ever calls the tool again without an answer that it has not happened.

use aetheris_core::disproof::{self, Disproof, Grounds};
use aetheris_core::event::{
    DoubtOutcome, Event, Failure, InDoubtResolved, JobWaiting, Resolver, StepInDoubt, StepResult, TimerId, TimerSet,
};
use aetheris_core::id::{IdempotencyKey, NodeId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerStatus, LedgerTrigger, PermitNumber, Settle};
use aetheris_core::plan::{DoubtPolicy, Node, Reconcile, WaitType};
use aetheris_core::state::{Doubt, Invocation, StepState};
use aetheris_core::time::{Reading, Span};
use aetheris_store::{LedgerWrite, NewEffect, Purpose};

use super::plain::{awaited, call_cancellable};
use super::{Run, RunEnd, Stop, Turn, unwritten};
use crate::draft::Rebased;
use crate::in_flight::IN_FLIGHT_LOOK;
use crate::ops::{Known, is_open_doubt, known_outcome, not_happened};
use crate::ports::{ToolOutcome, is_own_want};

/// What a reconcile tool said.
enum Reconciled {
    Happened(Json),
    DidNotHappen,
    /// It could not say, or could not be asked.
    Unknown(String),
}

impl Run<'_> {
    /// Records that the outcome is unknown, and begins the tool's policies.
    pub(super) async fn enter_doubt(&mut self, node: &Node, reason: &str) -> Result<Turn, Stop> {
        let invocation = self.open_invocation(node)?;
        let event = StepInDoubt {
            node: node.id.clone(),
            permit: invocation.permit,
            policy: 0,
            reason: Failure::new("", reason).message,
        };
        tracing::warn!(
            job = %self.state().id, node = %node.id, key = %invocation.key, permit = invocation.permit, reason,
            "the outcome of a call is in doubt"
        );
        self.push_unknown(&invocation, event)?;
        aetheris_fault::crash_point!("run.doubt.entered");
        self.follow_doubt(node).await
    }

    /// An event that says that a call's outcome is unknown, in the ledger as well unless that knows.
    pub(super) fn push_unknown(&mut self, invocation: &Invocation, event: impl Into<Event>) -> Result<(), Stop> {
        match known_outcome(&self.ledger, invocation) {
            Known::Doubt => self.draft.push(self.ids(), event)?,
            Known::Nothing | Known::Outcome => {
                self.draft.push_with_ledger(self.ids(), event, settle(invocation, LedgerTrigger::Doubt))?;
            }
        }
        Ok(())
    }

    fn open_invocation(&self, node: &Node) -> Result<Invocation, Stop> {
        let invocation = self.state().steps.get(&node.id).and_then(|step| step.invocation.clone());
        invocation
            .ok_or_else(|| Stop::Fault(Failure::new("corrupt_history", format!("node `{}` was never called", node.id))))
    }

    /// Tries the policy where the doubt stands.
    pub(super) async fn follow_doubt(&mut self, node: &Node) -> Result<Turn, Stop> {
        let invocation = self.open_invocation(node)?;
        let Some(doubt) = self.state().steps.get(&node.id).and_then(|step| step.doubt.clone()) else {
            return Err(Stop::Fault(Failure::new("corrupt_history", format!("node `{}` has no doubt", node.id))));
        };
        let place = usize::try_from(doubt.policy).unwrap_or(usize::MAX);
        let policy = self.plan.tool_of(node).and_then(|(_, tool)| tool.on_in_doubt.get(place)).cloned();
        match policy {
            None | Some(DoubtPolicy::Fail) => self.give_up(node, &invocation, &doubt),
            Some(DoubtPolicy::Human) => {
                aetheris_fault::sometimes!(DoubtHuman);
                let reason = format!("did the call of `{}` happen? {}", invocation.tool, doubt.reason);
                self.block_on_doubt(node, WaitType::Human, reason, None).await
            }
            Some(DoubtPolicy::Wait(_)) if doubt.waited => self.next_policy(node, &invocation, &doubt, &doubt.reason),
            Some(DoubtPolicy::Wait(span)) => {
                aetheris_fault::sometimes!(DoubtWait);
                let reason = format!("waiting for a late answer of `{}`", invocation.tool);
                self.block_on_doubt(node, WaitType::Timer, reason, Some(span)).await
            }
            Some(DoubtPolicy::Reconcile(whom)) => self.reconcile(node, &whom, &invocation, &doubt).await,
        }
    }

    fn next_policy(&mut self, node: &Node, invocation: &Invocation, doubt: &Doubt, reason: &str) -> Result<Turn, Stop> {
        let event = StepInDoubt {
            node: node.id.clone(),
            permit: invocation.permit,
            policy: doubt.policy + 1,
            reason: Failure::new("", reason).message,
        };
        self.draft.push(self.ids(), event)?;
        Ok(Turn::Go)
    }

    /// The list is at its end: the step fails, the call stays on record as unresolved.
    fn give_up(&mut self, node: &Node, invocation: &Invocation, doubt: &Doubt) -> Result<Turn, Stop> {
        aetheris_fault::sometimes!(DoubtGivenUp);
        let event = self.resolved(node, invocation, Resolver::Policy, DoubtOutcome::Unresolved);
        self.draft.push_with_ledger(self.ids(), event, settle(invocation, LedgerTrigger::GiveUp))?;
        let message = format!("it is not known whether the call of `{}` happened: {}", invocation.tool, doubt.reason);
        self.fail_step(node, Failure::new("in_doubt_unresolved", message), StepResult::PermanentFailure, None)?;
        Ok(Turn::Go)
    }

    fn resolved(&self, node: &Node, invocation: &Invocation, by: Resolver, outcome: DoubtOutcome) -> InDoubtResolved {
        let (grounds, note, result, settle_us) = (None, None, None, None);
        InDoubtResolved {
            by,
            grounds,
            node: node.id.clone(),
            note,
            outcome,
            permit: invocation.permit,
            result,
            settle_us,
            then: None,
        }
    }

    async fn block_on_doubt(
        &mut self,
        node: &Node,
        wait_type: WaitType,
        reason: String,
        span: Option<Span>,
    ) -> Result<Turn, Stop> {
        // Asked for while the tool was asked: the job does not block any more, it is held still or ends.
        if self.state().end_requested.is_some() {
            return Ok(Turn::Go);
        }
        let park = wait_type == WaitType::Human;
        let (correlation_key, doubt) = (None, true);
        let event = JobWaiting { correlation_key, doubt, node: node.id.clone(), park, reason: Some(reason), wait_type };
        self.draft.push(self.ids(), event)?;
        if let Some(span) = span {
            let timer = TimerId::Doubt(node.id.clone());
            self.draft.push(self.ids(), TimerSet { after_us: span.micros(), timer })?;
        }
        self.draft.release();
        match self.flush(Purpose::Block).await? {
            Rebased::Whole => {
                self.note_block();
                Ok(Turn::End(RunEnd::Blocked))
            }
            Rebased::Cut => Ok(Turn::Go),
        }
    }

    /// Asks a pure tool. "Happened" is believed at once, and "did not happen" of one that refuses the permit from then
    /// on. Of one that only looks it counts only if it was asked when the permit's call could no longer arrive, for
    /// which the job waits and asks again.
    async fn reconcile(
        &mut self,
        node: &Node,
        whom: &Reconcile,
        invocation: &Invocation,
        doubt: &Doubt,
    ) -> Result<Turn, Stop> {
        if self.flush(Purpose::Doubt).await? == Rebased::Cut {
            return Ok(Turn::Go);
        }
        if self.state().end_requested.is_some() {
            return Ok(Turn::Go);
        }
        let early = self.accepted_from.take().map_or(Span::ZERO, |from| from.since(self.state().last_at));
        if early > Span::ZERO {
            return self.ask_later(node, &whom.tool, early).await;
        }
        self.require_safe_lease().await?;
        let asked = self.reading();
        let Some(answer) = self.ask(node, &whom.tool, invocation).await? else {
            return Ok(Turn::Go);
        };
        aetheris_fault::sometimes!(DoubtReconciled);
        match answer {
            Reconciled::Happened(result) => self.reconciled(node, invocation, result),
            Reconciled::DidNotHappen if self.plan.tool(&whom.tool).is_some_and(|tool| tool.refuses) => {
                aetheris_fault::sometimes!(DisproofRefuses);
                self.disprove(node, invocation, doubt, (Grounds::Refuses, Span::ZERO, asked)).await
            }
            Reconciled::DidNotHappen => self.looked(node, whom, invocation, doubt, asked).await,
            // Who is asked next is told both: what happened, and that this did not tell.
            Reconciled::Unknown(why) => self.next_policy(node, invocation, doubt, &format!("{}; {why}", doubt.reason)),
        }
    }

    /// A tool that only looks has not found the call.
    async fn looked(
        &mut self,
        node: &Node,
        whom: &Reconcile,
        invocation: &Invocation,
        doubt: &Doubt,
        asked: Reading,
    ) -> Result<Turn, Stop> {
        // The row as the store has it now: what this run has written of it is not in what it has loaded.
        self.look_again().await?;
        let step = self.state().steps.get(&node.id);
        let still = |step: &StepState| {
            is_open_doubt(step) && step.invocation.as_ref().is_some_and(|now| now.permit_id == invocation.permit_id)
        };
        if !step.is_some_and(still) {
            return Ok(Turn::Go);
        }
        let settle = if aetheris_fault::planted!("settle-not-waited") { Span::ZERO } else { whom.settle() };
        let (lifetime, permit) = (invocation.lifetime, invocation.permit_id);
        let Some(row) = self.ledger.get(&invocation.key).filter(|row| row.permit_id == permit) else {
            return Ok(Turn::Go);
        };
        let flying = self.rt.in_flight.has(permit) && !aetheris_fault::planted!("own-call-not-asked");
        let open = disproof::left(row, lifetime, settle, asked) > Span::ZERO;
        if (open || flying) && !aetheris_fault::planted!("disproof-believed-early") {
            aetheris_fault::sometimes!(DisproofTooEarly);
            let now = self.reading();
            let left = disproof::left(row, lifetime, settle, now);
            if disproof::is_unseen(row, now.boot) {
                self.draft.also_settle(LedgerWrite::See { key: invocation.key, permit_id: permit });
            }
            return self.ask_later(node, &whom.tool, if flying { left.max(IN_FLIGHT_LOOK) } else { left }).await;
        }
        self.disprove(node, invocation, doubt, (Grounds::Clock, settle, asked)).await
    }

    /// What both clocks are known to show: the store's at the last event that this run knows, and this process's boot
    /// clock.
    fn reading(&self) -> Reading {
        Reading { at: self.state().last_at, boot: self.rt.system.clock.boot_moment() }
    }

    async fn ask_later(&mut self, node: &Node, name: &ToolName, left: Span) -> Result<Turn, Stop> {
        if left == Span::ZERO {
            return Ok(Turn::Go);
        }
        let reason =
            format!("`{name}` says that it did not happen; it is asked again when the call can no longer arrive");
        self.block_on_doubt(node, WaitType::Timer, reason, Some(left)).await
    }

    async fn disprove(
        &mut self,
        node: &Node,
        invocation: &Invocation,
        doubt: &Doubt,
        (grounds, settle, asked): (Grounds, Span, Reading),
    ) -> Result<Turn, Stop> {
        let event = InDoubtResolved {
            grounds: Some(grounds),
            settle_us: grounds.needs_time().then_some(settle.micros()),
            ..self.resolved(node, invocation, Resolver::Reconcile, DoubtOutcome::DidNotHappen)
        };
        let (key, permit_id, lifetime) = (invocation.key, invocation.permit_id, invocation.lifetime);
        let disproof = Disproof { asked: Some(asked), grounds, key, lifetime, permit_id, settle };
        self.draft.push_with_ledger(self.ids(), event, LedgerWrite::Disprove(disproof))?;
        self.end_disproved_try(node, invocation, &doubt.reason).await
    }

    /// "Did not happen" ends the try: whether another follows is the retry policy's to say, in the same unit.
    async fn end_disproved_try(&mut self, node: &Node, invocation: &Invocation, why: &str) -> Result<Turn, Stop> {
        if aetheris_fault::planted!("disproof-gives-a-call") {
            return Box::pin(self.call_tool(node)).await;
        }
        let error = not_happened(&invocation.tool, why);
        self.after_failure(node, super::plain::failed(error, None, true)).await
    }

    /// Ends the try of a history whose build did not end it with the answer.
    pub(super) async fn end_answered_try(&mut self, node: &Node) -> Result<Turn, Stop> {
        let invocation = self.open_invocation(node)?;
        self.end_disproved_try(node, &invocation, "an earlier version of this program recorded the answer").await
    }

    fn reconciled(&mut self, node: &Node, invocation: &Invocation, result: Json) -> Result<Turn, Stop> {
        let (key, permit, permit_id) = (invocation.key, invocation.permit, invocation.permit_id);
        let effect = NewEffect { key, permit, permit_id, result };
        self.effects.insert(key, unwritten(&effect));
        let event = self.resolved(node, invocation, Resolver::Reconcile, DoubtOutcome::Happened);
        self.draft.push_with_effect(self.ids(), event, effect, settle(invocation, LedgerTrigger::Commit))?;
        if let Some(row) = self.ledger.get_mut(&key) {
            row.status = LedgerStatus::Committed;
        }
        Ok(Turn::Go)
    }

    /// `None` when the run was interrupted.
    async fn ask(&mut self, node: &Node, name: &ToolName, invocation: &Invocation) -> Result<Option<Reconciled>, Stop> {
        // A permit that this run does not find in what it has loaded is its own.
        let row = self.ledger.get(&invocation.key).filter(|row| row.permit_id == invocation.permit_id);
        let generation = row.map_or(self.lease.fence.generation, |row| row.fence.generation);
        let permit = PermitNumber { generation, number: invocation.permit };
        let input = serde_json::json!({
            "idempotency_key": invocation.key,
            "input": invocation.input.value(),
            "permit": permit.to_string(),
            "tool": invocation.tool,
        });
        let Some(mut call) = self.tool_call(node, name, Json::new(input)) else {
            return Ok(Some(Reconciled::Unknown(format!("the plan has no tool `{name}`"))));
        };
        call.timeout = call.tool.timeout.map_or(call.timeout, Span::to_std);
        // Each question has a key of its own, so that a tool which caches answers by key never repeats an old one. The
        // sequence number tells runs apart; within one run, questions are counted, as nothing may be written in between.
        self.questions += 1;
        let question = NodeId::from(format!("{}?{}", node.id, self.state().seq).as_str());
        call.key = IdempotencyKey::derive(self.state().id, &question, self.questions);
        aetheris_fault::crash_point!("run.reconcile.before_call");
        let limit = awaited(call.timeout);
        let Some(outcome) = call_cancellable(self.rt, self.lease, call, limit).await else {
            return Ok(None);
        };
        aetheris_fault::crash_point!("run.reconcile.after_call");
        self.answered = true;
        Ok(Some(match outcome {
            ToolOutcome::Done(answer) => read_answer(name, &answer),
            // It was not asked: nobody has said that he does not know.
            ToolOutcome::NotSent { error, .. } if is_own_want(&error) => {
                self.wait_to_leave(node, &error).await;
                return Ok(None);
            }
            ToolOutcome::NotSent { .. }
            | ToolOutcome::RefusedRetryable { .. }
            | ToolOutcome::RefusedPermanent(_)
            | ToolOutcome::Unknown { .. }
                if aetheris_fault::planted!("reconcile-error-is-disproof") =>
            {
                Reconciled::DidNotHappen
            }
            ToolOutcome::NotSent { error, .. }
            | ToolOutcome::RefusedRetryable { error, .. }
            | ToolOutcome::RefusedPermanent(error)
            | ToolOutcome::Unknown { error, .. } => {
                Reconciled::Unknown(format!("`{name}` could not be asked: {}", error.message))
            }
        }))
    }
}

pub(super) fn settle(invocation: &Invocation, trigger: LedgerTrigger) -> LedgerWrite {
    LedgerWrite::Settle(Settle { key: invocation.key, permit_id: invocation.permit_id, trigger })
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
