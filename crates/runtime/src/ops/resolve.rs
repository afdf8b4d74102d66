//! An operator answers a doubt.

use std::fmt;

use aetheris_core::disproof::{self, Disproof, Grounds};
use aetheris_core::event::{
    DoubtOutcome, Event, EventKind, Failure, InDoubtResolved, InvocationOutcome, NodeFinished, NodeRetryScheduled,
    Resolver, StepResult, Then,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, JobId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::{LedgerRow, LedgerTrigger, Settle};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::CompiledPlan;
use aetheris_core::schedule;
use aetheris_core::state::{Invocation, InvocationPhase, StepState};
use aetheris_core::time::{Reading, Span, Timestamp};
use aetheris_store::{EventRow, LedgerWrite, NewEffect, Purpose, Refusal, UnitOfWork};

use super::{Decided, is_open_doubt};
use crate::Runtime;
use crate::admission::Caller;
use crate::draft::{self, Draft, Fact, WriteError};
use crate::error::OpError;
use crate::in_flight::IN_FLIGHT_LOOK;
use crate::load::{ForWrite, Loaded};

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// It is recorded.
    Recorded,
    /// The same answer was recorded before.
    Already,
}

/// The answer to a doubt.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// Whether the call had its effect, and with which result.
    pub happened: Option<Json>,
    /// How it is known, in the operator's words: never empty.
    pub note: String,
    /// The permit whose call the operator has looked at: an answer that arrives late is never taken for the next
    /// permit's.
    pub permit: u32,
    /// Whether the other side now refuses the permit, so that the answer counts at once.
    pub refused: bool,
    /// What follows if it did not happen.
    pub then: Then,
}

/// An answer that was recorded.
struct Said {
    outcome: DoubtOutcome,
    refused: bool,
    result: Option<Hash>,
    /// What is to follow it; builds that did not record it said nothing.
    then: Option<Then>,
}

impl Said {
    /// Whether this is the same answer: what follows it and how it is known included.
    fn is(&self, given: &Resolution) -> bool {
        match (self.outcome, &given.happened) {
            (DoubtOutcome::Happened, Some(result)) => self.result == Some(result.hash()),
            (DoubtOutcome::DidNotHappen, None) => {
                self.then.is_none_or(|then| then == given.then) && self.refused == given.refused
            }
            (DoubtOutcome::Happened, None) | (DoubtOutcome::DidNotHappen, Some(_)) | (DoubtOutcome::Unresolved, _) => {
                false
            }
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.outcome {
            DoubtOutcome::Happened if self.result.is_some() => "it happened, with a result that is kept",
            DoubtOutcome::Happened => "it happened",
            DoubtOutcome::DidNotHappen if self.refused => "it did not happen, and the other side refuses it",
            DoubtOutcome::DidNotHappen => "it did not happen",
            DoubtOutcome::Unresolved => "nobody knows",
        })?;
        f.write_str(match self.then {
            Some(Then::Retry) => "; then retry",
            Some(Then::Fail) => "; then fail",
            None => "",
        })
    }
}

/// Why nothing is recorded of an answer.
enum Closed {
    /// The call of this node is not in doubt; whether it was, and has been answered, or is one that may be repeated.
    Call { node: StepPath, answered: bool, repeatable: bool },
    /// Something else is in its way.
    Other(String),
}

impl Closed {
    fn of(node: &StepPath, phase: InvocationPhase) -> Self {
        let answered = match phase {
            InvocationPhase::Resolved(DoubtOutcome::Happened | DoubtOutcome::DidNotHappen) => true,
            InvocationPhase::Resolved(DoubtOutcome::Unresolved)
            | InvocationPhase::Started
            | InvocationPhase::Finished(_) => false,
        };
        let repeatable = phase == InvocationPhase::Finished(InvocationOutcome::InDoubt);
        Self::Call { node: node.clone(), answered, repeatable }
    }

    /// The refusal, with what a person has said before of the permit that is answered.
    fn told(self, (job, key): (JobId, IdempotencyKey), said: Option<(u32, Said)>) -> String {
        let why = match self {
            Self::Call { node, answered, .. } if answered || said.is_some() => {
                format!("invocation {key} (node `{node}`) has been answered: the trace says how (aetheris trace {job})")
            }
            Self::Call { node, repeatable: true, .. } => {
                format!("invocation {key} (node `{node}`) may be repeated with the same key, so no answer is accepted")
            }
            Self::Call { node, .. } => format!("invocation {key} (node `{node}`) is not in doubt"),
            Self::Other(why) => why,
        };
        match said {
            Some((permit, said)) => format!("{why}; recorded of permit {permit}: {said}"),
            None => why,
        }
    }
}

impl Runtime {
    /// Records an operator's answer to the doubt about one invocation. "Did not happen" is accepted
    /// only when the permit's call can no longer arrive, which the store checks by its own clocks, or when the other
    /// side refuses the permit. It ends the try, in the same commit.
    ///
    /// # Errors
    /// [`OpError`]: nothing of that name, no open doubt, too early, or no store.
    pub async fn resolve(&self, job: JobId, key: IdempotencyKey, resolution: Resolution) -> Result<Resolved, OpError> {
        if limits::is_longer(&resolution.note, limits::NOTE_CHARS_MAX) {
            let bound = limits::NOTE_CHARS_MAX;
            return Err(OpError::InvalidRequest(format!("note: at most {bound} characters are accepted")));
        }
        if resolution.note.trim().is_empty() {
            return Err(OpError::InvalidRequest("note: say how it is known; the audit keeps it".to_owned()));
        }
        let row = self.store.job(self.scope.clone(), job).await?.ok_or(OpError::JobNotFound(job))?;
        let plan = match row.plan_hash {
            Some(hash) => Some(self.plans.get(self.store.as_ref(), hash).await?),
            None => None,
        };
        let now = self.store.status().await?.now;
        let decide = |loaded: &Loaded, draft| self.answered(loaded, draft, (plan.as_deref(), now), (key, &resolution));
        let closed = match self.amend((job, Caller::Operator), Purpose::Resolve, Guard::Outside, decide).await {
            Ok(None) => return Ok(Resolved::Recorded),
            Ok(Some(closed)) => closed,
            Err(OpError::StateConflict(why)) => Closed::Other(why),
            Err(error @ OpError::CanStillArrive(_)) => {
                self.note_reading(job, key).await?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        match self.said_before(job, key, resolution.permit).await? {
            Some(said) if said.is(&resolution) => Ok(Resolved::Already),
            said => {
                let said = said.map(|said| (resolution.permit, said));
                Err(OpError::StateConflict(closed.told((job, key), said)))
            }
        }
    }

    /// What a person has said before about a permit of a call, if anybody has: the last word on it. Reads the job's events
    /// page by page.
    async fn said_before(&self, job: JobId, key: IdempotencyKey, permit: u32) -> Result<Option<Said>, OpError> {
        let (mut seq, mut search) = (0, Search { key, node: None, permit, said: None });
        loop {
            let rows = self.store.events(self.scope.clone(), job, seq, limits::PAGE_EVENTS_MAX).await?;
            let Some(last) = rows.last() else { break };
            seq = last.seq;
            rows.iter().try_for_each(|row| search.take(row))?;
        }
        let Some(Answered { answer, followed, .. }) = search.said else { return Ok(None) };
        let effect = self.store.effect(self.scope.clone(), job, key).await?.filter(|effect| effect.permit == permit);
        Ok(Some(Said {
            outcome: answer.outcome,
            refused: answer.grounds == Some(Grounds::OperatorRefused),
            result: answer.result.as_ref().or(effect.as_ref().map(|effect| &effect.result)).map(Json::hash),
            // Earlier builds did not say it. An answer ends its try in the same commit; about a job that has ended it is
            // kept.
            then: answer.then.or(followed),
        }))
    }

    /// What an answer makes of a job: a draft, or why nothing is recorded.
    fn answered(
        &self,
        loaded: &Loaded,
        mut draft: Draft,
        (plan, now): (Option<&CompiledPlan>, Timestamp),
        (key, resolution): (IdempotencyKey, &Resolution),
    ) -> Result<Decided<Option<Closed>>, OpError> {
        let job = loaded.state.id;
        let mut steps = loaded.state.steps.iter();
        let of_key = |step: &StepState| step.invocation.clone().filter(|invocation| invocation.key == key);
        let found = steps.find_map(|(node, step)| Some((node, step, of_key(step)?)));
        let (node, step, invocation) = found.ok_or(OpError::InvocationNotFound { job, key })?;
        let kept = (loaded.state.status.is_terminal() || step.absorbed) && invocation.is_left_unresolved();
        if !is_open_doubt(step) && !kept {
            return Ok(Decided::Answer(Some(Closed::of(node, invocation.phase))));
        }
        if resolution.permit != invocation.permit {
            let asked = resolution.permit;
            aetheris_fault::sometimes!(AnswerForOldPermit);
            return Err(OpError::StateConflict(format!(
                "the answer is about permit {asked} of invocation {key} (node `{node}`); in doubt is permit {} now: look again",
                invocation.permit
            )));
        }
        let event = InDoubtResolved {
            by: Resolver::Operator,
            grounds: None,
            node: node.clone(),
            note: Some(resolution.note.clone()),
            outcome: DoubtOutcome::Happened,
            permit: invocation.permit,
            result: None,
            settle_us: None,
            then: None,
        };
        let tool = plan.and_then(|plan| plan.tool(&invocation.tool));
        let settle = tool.map_or(limits::SETTLE_DEFAULT, |tool| tool.settle());
        if kept {
            self.keep(loaded, &mut draft, (event, &invocation, settle, now), resolution)?;
            return Ok(Decided::Write(Box::new(draft), None));
        }
        match &resolution.happened {
            Some(result) => {
                let (permit, permit_id) = (invocation.permit, invocation.permit_id);
                let effect = NewEffect { key, permit, permit_id, result: result.clone() };
                let commit = LedgerWrite::Settle(Settle { key, permit_id, trigger: LedgerTrigger::Commit });
                draft.add(self.system.ids.as_ref(), Fact::with_effect(event, effect, commit))?;
            }
            None => {
                let step = plan.and_then(|plan| schedule::step_at(&loaded.state, plan, node));
                let absorbed = step.is_some_and(|step| step.absorbs());
                self.not_happened(loaded, &mut draft, (event, &invocation, settle, absorbed), resolution)?;
            }
        }
        Ok(Decided::Write(Box::new(draft), None))
    }

    /// An answer about a call that the job's end left unresolved: it is kept with the job. The ledger's row stays as
    /// it is.
    fn keep(
        &self,
        loaded: &Loaded,
        draft: &mut Draft,
        (event, invocation, settle, now): (InDoubtResolved, &Invocation, Span, Timestamp),
        resolution: &Resolution,
    ) -> Result<(), OpError> {
        let ids = self.system.ids.as_ref();
        let Some(result) = &resolution.happened else {
            let grounds = if resolution.refused { Grounds::OperatorRefused } else { Grounds::Clock };
            let reading = Reading { at: now, boot: self.system.clock.boot_moment() };
            // No row is written, so that no transaction checks it: the call's own is looked at, and has to be there.
            if grounds.needs_time() {
                let missing = OpError::InvocationNotFound { job: loaded.state.id, key: invocation.key };
                let row = loaded.ledger.get(&invocation.key).ok_or(missing)?;
                self.can_still_arrive(row, invocation, settle, reading).map_or(Ok(()), Err)?;
            }
            let settle_us = grounds.needs_time().then_some(settle.micros());
            let outcome = DoubtOutcome::DidNotHappen;
            let then = Some(resolution.then);
            draft.push(ids, InDoubtResolved { grounds: Some(grounds), outcome, settle_us, then, ..event })?;
            return Ok(());
        };
        draft.push(ids, InDoubtResolved { result: Some(result.clone()), ..event })?;
        Ok(())
    }

    /// That a call can still arrive, and from when on an answer is accepted. One that this process has not seen the end
    /// of may take a moment longer than both clocks say.
    fn can_still_arrive(
        &self,
        row: &LedgerRow,
        invocation: &Invocation,
        settle: Span,
        now: Reading,
    ) -> Option<OpError> {
        let left = disproof::left(row, invocation.lifetime, settle, now);
        let flying = self.in_flight.has(invocation.permit_id);
        let left = if flying { left.max(IN_FLIGHT_LOOK) } else { left };
        (left > Span::ZERO).then(|| OpError::CanStillArrive(now.at.after(left)))
    }

    fn not_happened(
        &self,
        loaded: &Loaded,
        draft: &mut Draft,
        (event, invocation, settle, absorbed): (InDoubtResolved, &Invocation, Span, bool),
        resolution: &Resolution,
    ) -> Result<(), OpError> {
        let (ids, node) = (self.system.ids.as_ref(), event.node.clone());
        let (key, permit_id, lifetime) = (invocation.key, invocation.permit_id, invocation.lifetime);
        let grounds = if resolution.refused { Grounds::OperatorRefused } else { Grounds::Clock };
        // The clocks are the transaction's to ask; which calls are in flight is this process's to know.
        if grounds.needs_time()
            && self.in_flight.has(permit_id)
            && let Some(row) = loaded.ledger.get(&key)
        {
            let now = Reading { at: loaded.state.last_at, boot: self.system.clock.boot_moment() };
            self.can_still_arrive(row, invocation, settle, now).map_or(Ok(()), Err)?;
        }
        let event = InDoubtResolved {
            grounds: Some(grounds),
            outcome: DoubtOutcome::DidNotHappen,
            settle_us: grounds.needs_time().then_some(settle.micros()),
            then: Some(resolution.then),
            ..event
        };
        let disproof = Disproof { asked: None, grounds, key, lifetime, permit_id, settle };
        draft.add(ids, Fact::with_ledger(event, LedgerWrite::Disprove(disproof)))?;
        if loaded.state.status.is_terminal() {
            // The answer is kept with the job, which does nothing more.
            return Ok(());
        }
        let error = not_happened(&invocation.tool, "a person said so");
        match resolution.then {
            Then::Retry => draft.push(ids, NodeRetryScheduled { after_us: 0, error, model: None, node })?,
            Then::Fail => {
                let (error, result) = (Some(error), StepResult::PermanentFailure);
                let told = draft.state().may_be_told(&node);
                let absorbed = absorbed || told;
                draft.push(ids, NodeFinished { absorbed, error, told, ..NodeFinished::new(node, result) })?;
            }
        }
        Ok(())
    }

    /// Notes that this boot clock has read the permit: one that did not give it has to run the whole lifetime from then
    /// on before it can say that the call can no longer arrive.
    async fn note_reading(&self, job: JobId, key: IdempotencyKey) -> Result<(), OpError> {
        let loaded = ForWrite::read((self.store.as_ref(), &self.scope), job, &self.loads, Caller::Operator).await?;
        let boot = self.system.clock.boot_moment();
        let Some(row) = loaded.ledger.get(&key).filter(|row| disproof::is_unseen(row, boot)) else {
            return Ok(());
        };
        let mut unit = UnitOfWork::new(self.event_id(), job, Purpose::Resolve, Guard::Outside);
        unit.ledger.push(LedgerWrite::See { key, permit_id: row.permit_id });
        match draft::write(self.store.as_ref(), || unit.clone()).await {
            // Another permit is the current one by now, which has readings of its own.
            Ok(_) | Err(WriteError::Refused(Refusal::Ledger(_))) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The search for what a person has said about a permit of a call.
struct Search {
    key: IdempotencyKey,
    /// The step of the call, once it is known.
    node: Option<StepPath>,
    permit: u32,
    said: Option<Answered>,
}

/// What a person has said, and what followed it at once.
struct Answered {
    answer: InDoubtResolved,
    followed: Option<Then>,
    seq: u64,
}

impl Search {
    /// Looks at the next event.
    fn take(&mut self, row: &EventRow) -> Result<(), OpError> {
        let next = self.said.as_ref().is_some_and(|said| said.seq + 1 == row.seq);
        let tells = [EventKind::ToolInvocationStarted, EventKind::InDoubtResolved].map(EventKind::code);
        if !next && !tells.contains(&row.kind) {
            return Ok(());
        }
        let recorded = row.decode().map_err(|why| OpError::Corrupt(format!("event {}: {why}", row.seq)))?;
        match recorded.event {
            Event::ToolInvocationStarted(started) if started.key == self.key => self.node = Some(started.node),
            Event::InDoubtResolved(answer) if self.is_told_by(&answer) => {
                self.said = Some(Answered { answer, followed: None, seq: row.seq });
            }
            Event::NodeRetryScheduled(next) => self.followed(&next.node, Then::Retry),
            Event::NodeFinished(next) => self.followed(&next.node, Then::Fail),
            _ => {}
        }
        Ok(())
    }

    fn is_told_by(&self, answer: &InDoubtResolved) -> bool {
        self.node.as_ref() == Some(&answer.node) && answer.by == Resolver::Operator && answer.permit == self.permit
    }

    fn followed(&mut self, node: &StepPath, then: Then) {
        if let Some(said) = self.said.as_mut().filter(|said| said.answer.node == *node) {
            said.followed = Some(then);
        }
    }
}

/// Why a try ended whose call is said not to have happened.
pub(crate) fn not_happened(tool: &ToolName, why: &str) -> Failure {
    Failure::new("did_not_happen", format!("the call of `{tool}` did not happen: {why}"))
}

#[cfg(test)]
mod tests {
    use aetheris_core::event::ToolInvocationStarted;
    use aetheris_core::id::{EventId, PermitId};
    use aetheris_core::lease::Fence;
    use aetheris_core::plan::EffectClass;

    use super::*;

    /// Whoever is refused knows which it is: an answer that is recorded, or a call that was never in doubt.
    #[test]
    fn a_call_that_is_not_in_doubt_is_told_from_one_that_was_answered() {
        let (job, key, node) = (JobId::from_u128(1), IdempotencyKey::from_u128(2), StepPath::from("pay"));
        let call = format!("invocation {key} (node `pay`)");
        let not = format!("{call} is not in doubt");
        let repeatable = format!("{call} may be repeated with the same key, so no answer is accepted");
        let answered = format!("{call} has been answered: the trace says how (aetheris trace {job})");
        let recorded = format!("{answered}; recorded of permit 1: it happened");
        for (phase, unsaid) in [
            (InvocationPhase::Started, &not),
            (InvocationPhase::Finished(InvocationOutcome::InDoubt), &repeatable),
            (InvocationPhase::Finished(InvocationOutcome::Committed), &not),
            (InvocationPhase::Resolved(DoubtOutcome::Unresolved), &not),
            (InvocationPhase::Resolved(DoubtOutcome::Happened), &answered),
            (InvocationPhase::Resolved(DoubtOutcome::DidNotHappen), &answered),
        ] {
            let said = Said { outcome: DoubtOutcome::Happened, refused: false, result: None, then: None };
            assert_eq!(&Closed::of(&node, phase).told((job, key), None), unsaid, "{phase:?}");
            assert_eq!(Closed::of(&node, phase).told((job, key), Some((1, said))), recorded, "{phase:?}");
        }
    }

    fn row(seq: u64, event: &Event) -> EventRow {
        let encoded = aetheris_core::event::EncodedEvent::new(EventId::from_u128(u128::from(seq)), event);
        EventRow {
            at: Timestamp::default(),
            fence: Fence::default(),
            hash: Hash::ZERO,
            id: encoded.id,
            kind: encoded.kind.code(),
            payload: encoded.payload,
            payload_hash: encoded.payload_hash,
            schema_version: encoded.schema_version,
            seq,
        }
    }

    fn started(number: u128) -> Event {
        ToolInvocationStarted {
            effect: EffectClass::AtMostOnce,
            input: None,
            key: IdempotencyKey::from_u128(number),
            lifetime_us: 1,
            node: StepPath::from(format!("n{number}").as_str()),
            permit: 1,
            permit_id: PermitId::from_u128(number),
            tool: ToolName::from("t"),
            tool_version: None,
        }
        .into()
    }

    fn resolved(number: u128, outcome: DoubtOutcome) -> Event {
        InDoubtResolved {
            by: Resolver::Operator,
            grounds: None,
            node: StepPath::from(format!("n{number}").as_str()),
            note: None,
            outcome,
            permit: 1,
            result: None,
            settle_us: None,
            then: None,
        }
        .into()
    }

    /// Two calls, answered one after the other.
    fn answers() -> [EventRow; 4] {
        [
            row(1, &started(1)),
            row(2, &started(2)),
            row(3, &resolved(1, DoubtOutcome::Happened)),
            row(4, &resolved(2, DoubtOutcome::DidNotHappen)),
        ]
    }

    /// Each call of a job has its first permit, and a person may have answered for several of them.
    #[test]
    fn what_was_said_of_one_call_is_not_taken_for_another_ones() {
        for (number, said) in [(1, Some(DoubtOutcome::Happened)), (2, Some(DoubtOutcome::DidNotHappen)), (3, None)] {
            let mut search = Search { key: IdempotencyKey::from_u128(number), node: None, permit: 1, said: None };
            answers().iter().for_each(|event| search.take(event).unwrap());
            assert_eq!(search.said.map(|said| said.answer.outcome), said, "call {number}");
        }
    }

    /// What was to come of an answer is what its own step did next.
    #[test]
    fn what_a_person_wanted_is_told_by_what_followed() {
        let retried = |step: &str| NodeRetryScheduled {
            after_us: 0,
            error: Failure::new("did_not_happen", "said so"),
            model: None,
            node: StepPath::from(step),
        };
        let failed = NodeFinished {
            error: Some(Failure::new("did_not_happen", "said so")),
            ..NodeFinished::new("n2", StepResult::PermanentFailure)
        };
        for (seq, next, followed) in [
            (5, Event::from(retried("n2")), Some(Then::Retry)),
            (5, failed.into(), Some(Then::Fail)),
            (5, retried("n1").into(), None),
            (6, retried("n2").into(), None),
        ] {
            let mut search = Search { key: IdempotencyKey::from_u128(2), node: None, permit: 1, said: None };
            answers().iter().chain([&row(seq, &next)]).for_each(|event| search.take(event).unwrap());
            assert_eq!(search.said.and_then(|said| said.followed), followed, "{seq}");
        }
    }

    /// Whoever answers otherwise is told what is recorded, and no more than that.
    #[test]
    fn an_answer_that_was_given_before_is_told_as_it_was_recorded() {
        let result = Some(Hash::of(b"1"));
        for (outcome, refused, result, then, words) in [
            (DoubtOutcome::Happened, false, result, None, "it happened, with a result that is kept"),
            (DoubtOutcome::Happened, false, None, None, "it happened"),
            (DoubtOutcome::DidNotHappen, false, None, None, "it did not happen"),
            (DoubtOutcome::DidNotHappen, false, None, Some(Then::Retry), "it did not happen; then retry"),
            (DoubtOutcome::DidNotHappen, false, None, Some(Then::Fail), "it did not happen; then fail"),
            (DoubtOutcome::DidNotHappen, true, None, None, "it did not happen, and the other side refuses it"),
            (
                DoubtOutcome::DidNotHappen,
                true,
                None,
                Some(Then::Fail),
                "it did not happen, and the other side refuses it; then fail",
            ),
            (DoubtOutcome::Unresolved, false, None, None, "nobody knows"),
        ] {
            assert_eq!(Said { outcome, refused, result, then }.to_string(), words);
        }
    }
}
