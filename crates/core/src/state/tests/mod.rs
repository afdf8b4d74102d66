//! The reducer, event by event: what each sets, and what it is refused after.

mod calls;
mod children;
mod items;
mod jobs;
mod pauses;
mod rounds;
mod steps;
mod turns;

use super::{Illegal, Invocation, JobState, StepState};
use crate::event::{
    DoubtOutcome, EndCause, Event, Failure, InDoubtResolved, InvocationOutcome, JobCancelRequested, JobClaimed,
    JobCreated, JobRequeued, JobWaiting, NodeFinished, NodeRetryScheduled, NodeStarted, PlanGenerated, Recorded,
    RequeueReason, Resolver, Source, StepInDoubt, StepResult, TimerId, TimerSet, ToolInvocationFinished,
    ToolInvocationStarted, WaitCompleted, WaitEnd,
};
use crate::hash::Hash;
use crate::id::{AttemptId, EventId, IdempotencyKey, InstanceId, JobId, PermitId, SignalId, TenantId};
use crate::json::Json;
use crate::lease::Fence;
use crate::path::StepPath;
use crate::plan::{EffectClass, WaitType};
use crate::time::Timestamp;

/// A job told event by event. The event at place n is written at 10·n microseconds.
#[derive(Clone)]
struct Story(JobState);

impl Story {
    /// Nothing has happened yet.
    fn blank() -> Self {
        Self(JobState::new(JobId::from_u128(1)))
    }

    /// Accepted, and its plan is recorded.
    fn accepted() -> Self {
        Self::blank().then(created()).then(planned(1))
    }

    /// Claimed: its place is 3.
    fn running() -> Self {
        Self::accepted().then(claimed())
    }

    /// Node `a` has started: place 4.
    fn started() -> Self {
        Self::running().then(node_started("a", 1))
    }

    /// Node `a` has its first permit: place 5.
    fn called() -> Self {
        Self::started().then(permit(1))
    }

    /// The call of node `a` is in doubt: place 6.
    fn in_doubt() -> Self {
        Self::called().then(doubt(1, 0))
    }

    fn recorded(&self, event: impl Into<Event>) -> Recorded {
        let event = event.into();
        let seq = self.0.seq + 1;
        let epoch = self.0.fence.epoch + u32::from(matches!(event, Event::JobClaimed(_)));
        Recorded {
            seq,
            id: EventId::from_u128(u128::from(seq)),
            fence: Fence { generation: 1, epoch },
            at: Timestamp::from_micros(i64::try_from(seq).unwrap() * 10),
            hash: Hash::ZERO,
            event,
        }
    }

    /// Goes on with an event that the tables have.
    fn then(mut self, event: impl Into<Event>) -> Self {
        let recorded = self.recorded(event);
        self.0.replay(&recorded).unwrap();
        self
    }

    /// What the reducer says against an event.
    fn refuses(&self, event: impl Into<Event>) -> Illegal {
        let recorded = self.recorded(event);
        self.0.clone().replay(&recorded).unwrap_err()
    }

    fn step(&self, node: &str) -> &StepState {
        &self.0.steps[&node.into()]
    }

    /// What is known of the call of node `a`, where the job's end has left it in doubt.
    fn left(&self) -> Option<DoubtOutcome> {
        self.step("a").left_in_doubt(self.0.status)
    }

    fn invocation(&self) -> &Invocation {
        self.step("a").invocation.as_deref().unwrap()
    }
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn json(value: impl Into<serde_json::Value>) -> Json {
    Json::new(value.into())
}

fn created() -> JobCreated {
    JobCreated {
        agent: "agent".into(),
        agent_version: "3".to_owned(),
        execution_version: "0".to_owned(),
        labels: [("k".to_owned(), "v".to_owned())].into(),
        message: json("hello"),
        parent: None,
        planning: None,
        priority: 7,
        run_at: Some(at(99)),
        session: Some("s".into()),
        tenant: TenantId::default(),
    }
}

fn planned(version: u32) -> PlanGenerated {
    PlanGenerated {
        plan_hash: Hash::of(b"plan"),
        plan_version: version,
        planner: "static".to_owned(),
        planner_version: "0".to_owned(),
    }
}

fn claimed() -> JobClaimed {
    JobClaimed { attempt_id: AttemptId::from_u128(4), instance: InstanceId::from_u128(5), worker: "w".into() }
}

fn requeued(reason: RequeueReason) -> JobRequeued {
    JobRequeued { after_us: Some(1_000), reason }
}

fn waiting(node: &str, key: Option<&str>) -> JobWaiting {
    JobWaiting {
        correlation_key: key.map(str::to_owned),
        doubt: false,
        node: node.into(),
        park: false,
        reason: Some("because".to_owned()),
        wait_type: WaitType::Human,
    }
}

/// The job waits on a timer for the answer to the doubt of node `a`.
fn doubt_waits() -> JobWaiting {
    JobWaiting { doubt: true, wait_type: WaitType::Timer, ..waiting("a", None) }
}

fn signalled(node: &str) -> WaitCompleted {
    WaitCompleted { by: WaitEnd::Signal { payload: json("yes"), signal: SignalId::from_u128(8) }, node: node.into() }
}

fn timed_out(node: &str) -> WaitCompleted {
    WaitCompleted { by: WaitEnd::Time, node: node.into() }
}

fn end_requested() -> JobCancelRequested {
    JobCancelRequested { cause: EndCause::Cancel }
}

fn node_started(node: &str, number: u32) -> NodeStarted {
    NodeStarted::new(node, number)
}

fn finished(node: &str, result: StepResult) -> NodeFinished {
    NodeFinished::new(node, result)
}

fn retry_scheduled(node: &str) -> NodeRetryScheduled {
    NodeRetryScheduled { after_us: 500, error: Failure::new("code", "message"), model: None, node: node.into() }
}

fn permit(number: u32) -> ToolInvocationStarted {
    ToolInvocationStarted {
        effect: EffectClass::AtMostOnce,
        input: (number == 1).then(|| json("input")),
        key: IdempotencyKey::from_u128(6),
        lifetime_us: 300,
        node: "a".into(),
        permit: number,
        permit_id: PermitId::from_u128(u128::from(number)),
        tool: "tool".into(),
        tool_version: Some("2".to_owned()),
    }
}

fn outcome(number: u32, outcome: InvocationOutcome) -> ToolInvocationFinished {
    ToolInvocationFinished { error: None, node: "a".into(), outcome, permit: number, source: Source::CaughtUp }
}

fn doubt(number: u32, policy: u32) -> StepInDoubt {
    StepInDoubt { node: "a".into(), permit: number, policy, reason: format!("reason {policy}") }
}

fn resolved(number: u32, by: Resolver, outcome: DoubtOutcome) -> InDoubtResolved {
    InDoubtResolved {
        by,
        node: "a".into(),
        note: None,
        outcome,
        permit: number,
        grounds: None,
        result: None,
        settle_us: None,
        then: None,
    }
}

fn timer_set(timer: TimerId) -> TimerSet {
    TimerSet { after_us: 70, timer }
}

fn node(name: &str) -> StepPath {
    StepPath::from(name)
}

fn says(illegal: &Illegal, words: &str) {
    assert!(matches!(illegal, Illegal::Contradiction(_)), "{illegal:?}");
    assert!(illegal.to_string().contains(words), "`{illegal}` does not say `{words}`");
}
