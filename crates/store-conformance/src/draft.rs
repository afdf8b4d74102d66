//! Units of work as a runtime would write them: every event goes through the one reducer, and the row
//! and the timers are derived from its state.

use aetheris_core::disproof::{Disproof, Grounds};
use aetheris_core::event::{
    Answer, CommandCommitted, DoubtOutcome, EncodedEvent, Event, InDoubtResolved, InvocationOutcome, JobCompleted,
    JobPauseRequested, JobPaused, JobRequeued, JobWaiting, NodeFinished, NodeStarted, PauseReason, RequeueReason,
    Resolver, Source, StepInDoubt, StepResult, TimerId, ToolInvocationFinished, ToolInvocationStarted,
};
use aetheris_core::id::{IdempotencyKey, PermitId, ToolName};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerTrigger, PermitRequest, Settle};
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::projection::{Projection, promises, timer_changes};
use aetheris_core::state::{Invocation, JobState};
use aetheris_core::time::Span;

use super::fixture::Ids;
use aetheris_store::unit::{ExpectedSignals, LeaseChange, LedgerWrite, NewEffect, UnitOfWork};

/// How long after its permission a call may still arrive.
pub const LIFETIME: Span = Span::from_secs(10);

/// A unit being written.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The state with the unit's events.
    pub state: JobState,
    /// The unit as far as it is.
    pub unit: UnitOfWork,
    before: Vec<TimerId>,
    events: Vec<Event>,
    ids: Ids,
    seen: u64,
    set: Vec<TimerId>,
}

impl Draft {
    /// A draft on top of a folded state.
    #[must_use]
    pub fn new(unit: UnitOfWork, state: JobState, ids: Ids) -> Self {
        let before = state.timers.keys().cloned().collect();
        Self { before, events: Vec::new(), ids, seen: state.seq, set: Vec::new(), state, unit }
    }

    /// Appends an event that the tables allow.
    #[must_use]
    pub fn event(mut self, event: impl Into<Event>) -> Self {
        let event = event.into();
        self.state.apply(&event).expect("the event follows from the state");
        if let Event::TimerSet(set) = &event {
            self.set.push(set.timer.clone());
        }
        let id = if self.unit.events.is_empty() { self.unit.id } else { self.ids.event() };
        self.unit.events.push(EncodedEvent::new(id, &event));
        self.events.push(event);
        self
    }

    /// Changes the unit by hand.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut UnitOfWork)) -> Self {
        change(&mut self.unit);
        self
    }

    /// The unit, with the row, the promises and the timers that follow from its events.
    #[must_use]
    pub fn done(mut self) -> UnitOfWork {
        if !self.unit.events.is_empty() {
            self.unit.expected_seq = Some(self.seen);
            self.unit.row = Some(Projection::of(&self.state, true));
            self.unit.outbox.extend(promises(self.seen, self.events.iter(), &self.state));
            self.unit.timers.extend(timer_changes(&self.before, &self.state, &self.set));
            if self.state.status != JobStatus::Running {
                self.unit.lease = LeaseChange::Release;
            }
        }
        self.unit
    }

    /// A try of a step begins.
    #[must_use]
    pub fn start(self, node: &str) -> Self {
        let node = StepPath::from(node);
        let number = self.state.steps.get(&node).map_or(0, |step| step.tries) + 1;
        self.event(NodeStarted::new(node, number))
    }

    /// A plain step ends well.
    #[must_use]
    pub fn finish(self, node: &str, output: Option<Json>, result: StepResult) -> Self {
        self.event(NodeFinished { output, ..NodeFinished::new(node, result) })
    }

    /// A plain step begins and ends.
    #[must_use]
    pub fn step(self, node: &str, output: Json) -> Self {
        self.start(node).finish(node, Some(output), StepResult::Pure)
    }

    /// Asks for the next permission of a started step's call.
    #[must_use]
    pub fn permit(self, node: &str, class: EffectClass) -> Self {
        let node = StepPath::from(node);
        let before = self.state.steps.get(&node).and_then(|step| step.invocation.as_deref());
        let input = Json::new(serde_json::json!({ "node": node }));
        let started = ToolInvocationStarted {
            effect: class,
            input: before.is_none().then(|| input.clone()),
            key: IdempotencyKey::derive(self.unit.job, &node, 1),
            lifetime_us: LIFETIME.micros(),
            node: node.clone(),
            permit: before.map_or(0, |invocation| invocation.permit) + 1,
            permit_id: PermitId::from_u128(self.ids.next()),
            tool: ToolName::from("tool"),
            tool_version: None,
        };
        let request = PermitRequest {
            class,
            input_hash: input.hash(),
            key: started.key,
            lifetime: LIFETIME,
            node,
            permit: started.permit,
            permit_id: started.permit_id,
            tool: started.tool.clone(),
        };
        self.event(started).with(|unit| unit.ledger.push(LedgerWrite::Permit(request)))
    }

    /// A step begins and asks for its first permission.
    #[must_use]
    pub fn call(self, node: &str, class: EffectClass) -> Self {
        self.start(node).permit(node, class)
    }

    /// The step's invocation.
    #[must_use]
    pub fn invocation(&self, node: &str) -> Invocation {
        *self.state.steps[&node.into()].invocation.clone().expect("the step has called")
    }

    /// Settles the step's current permit.
    #[must_use]
    pub fn settle(self, node: &str, trigger: LedgerTrigger) -> Self {
        let Invocation { key, permit_id, .. } = self.invocation(node);
        self.with(|unit| unit.ledger.push(settling(key, permit_id, trigger)))
    }

    /// The step's call had its effect, which ends the step.
    #[must_use]
    pub fn committed(self, node: &str, result: Json) -> Self {
        let Invocation { key, permit, permit_id, .. } = self.invocation(node);
        let id = StepPath::from(node);
        let finished = ToolInvocationFinished {
            error: None,
            node: id.clone(),
            outcome: InvocationOutcome::Committed,
            permit,
            source: Source::Executed,
        };
        self.event(finished)
            .event(CommandCommitted { node: id, result_hash: result.hash() })
            .finish(node, None, StepResult::SideEffectCommitted)
            .settle(node, LedgerTrigger::Commit)
            .with(|unit| unit.effects.push(NewEffect { key, permit, permit_id, result }))
    }

    /// The step's call was refused, or did not leave; the step goes on.
    #[must_use]
    pub fn not_done(self, node: &str, outcome: InvocationOutcome) -> Self {
        let (permit, id) = (self.invocation(node).permit, StepPath::from(node));
        let finished = ToolInvocationFinished { error: None, node: id, outcome, permit, source: Source::Executed };
        self.event(finished).settle(node, outcome.settles())
    }

    /// The outcome of the step's call is unknown.
    #[must_use]
    pub fn doubt(self, node: &str) -> Self {
        self.asks(node, 0, "the connection was lost").settle(node, LedgerTrigger::Doubt)
    }

    /// The next policy of a doubt is tried.
    #[must_use]
    pub fn asks(self, node: &str, policy: u32, reason: &str) -> Self {
        let permit = self.invocation(node).permit;
        self.event(StepInDoubt { node: StepPath::from(node), permit, policy, reason: reason.to_owned() })
    }

    /// The doubt has an answer.
    #[must_use]
    pub fn resolve(self, node: &str, outcome: DoubtOutcome) -> Self {
        let permit = self.invocation(node).permit;
        let Invocation { key, permit_id, .. } = self.invocation(node);
        let write = match outcome {
            DoubtOutcome::Happened => settling(key, permit_id, LedgerTrigger::Commit),
            DoubtOutcome::DidNotHappen => settling(key, permit_id, LedgerTrigger::Disprove),
            DoubtOutcome::Unresolved => settling(key, permit_id, LedgerTrigger::GiveUp),
        };
        let by = Resolver::Operator;
        let resolved = InDoubtResolved {
            by,
            node: StepPath::from(node),
            note: None,
            outcome,
            permit,
            grounds: None,
            result: None,
            settle_us: None,
            then: None,
        };
        self.event(resolved).with(|unit| unit.ledger.push(write))
    }

    /// The job blocks on a wait for a signal.
    #[must_use]
    pub fn wait(self, node: &str, key: &str, wait_type: WaitType, park: bool) -> Self {
        let waiting = JobWaiting {
            correlation_key: Some(key.to_owned()),
            doubt: false,
            node: StepPath::from(node),
            park,
            reason: Some("for a reason".to_owned()),
            wait_type,
        };
        self.start(node)
            .event(waiting)
            .with(|unit| unit.expected_signals = vec![ExpectedSignals { count: 0, key: key.to_owned() }])
    }

    /// The job is given back.
    #[must_use]
    pub fn requeue(self, reason: RequeueReason, after: Option<Span>) -> Self {
        self.event(JobRequeued { after_us: after.map(Span::micros), reason })
    }

    /// The job is held still; whoever holds it is asked first.
    #[must_use]
    pub fn pause(self) -> Self {
        let asks = self.state.status == JobStatus::Running && self.state.end_requested.is_none();
        let asked = if asks { self.event(JobPauseRequested {}) } else { self };
        asked.event(JobPaused { reason: PauseReason::Operator })
    }

    /// The job has its answer.
    #[must_use]
    pub fn complete(self) -> Self {
        self.event(JobCompleted { answer: Answer::Value(Json::new(serde_json::json!("done"))) })
    }
}

/// The change of the ledger that a trigger stands for; "did not happen" by the clocks, with nothing to settle.
#[must_use]
pub fn settling(key: IdempotencyKey, permit_id: PermitId, trigger: LedgerTrigger) -> LedgerWrite {
    match trigger {
        LedgerTrigger::Disprove => {
            let (asked, grounds, lifetime, settle) = (None, Grounds::Clock, LIFETIME, Span::ZERO);
            LedgerWrite::Disprove(Disproof { asked, grounds, key, lifetime, permit_id, settle })
        }
        LedgerTrigger::Commit
        | LedgerTrigger::RefuseRetryable
        | LedgerTrigger::RefusePermanent
        | LedgerTrigger::NotSent
        | LedgerTrigger::Doubt
        | LedgerTrigger::GiveUp => LedgerWrite::Settle(Settle { key, permit_id, trigger }),
    }
}
