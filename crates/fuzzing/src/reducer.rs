//! The reducer over any sequence of events: it refuses, it never panics, and what it accepts keeps the
//! tables.
//!
//! Four bytes are one event: its kind and three choices from small domains, so that sequences often make
//! sense and an input can be written by hand.

use std::collections::BTreeMap;

use aetheris_core::disproof::Grounds;
use aetheris_core::event::*;
use aetheris_core::hash::Hash;
use aetheris_core::id::{AttemptId, EventId, IdempotencyKey, InstanceId, JobId, PermitId, SignalId, TenantId};
use aetheris_core::job::{JobStatus, JobTrigger};
use aetheris_core::json::{Json, to_canonical};
use aetheris_core::lease::Fence;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, OnParentEnd, WaitType};
use aetheris_core::projection::{self, Projection};
use aetheris_core::recovery::{self, Decision, EffectSeen, LedgerSeen, StepEvidence};
use aetheris_core::state::{InvocationPhase, JobState};
use aetheris_core::step::{StepStatus, StepTrigger};
use aetheris_core::time::Timestamp;

/// Most events of one input: the work for each is bounded.
const EVENTS_MAX: usize = 256;

fn of<T: Clone>(choices: &[T], byte: u8) -> T {
    choices[usize::from(byte) % choices.len()].clone()
}

fn node(byte: u8) -> StepPath {
    StepPath::from(of(&["a", "b", "a[1]@2/0.3", "a[0]", "a[1]"], byte))
}

fn value(byte: u8) -> Json {
    let values = [
        serde_json::json!(null),
        serde_json::json!({ "z": 1, "a": [1.5, "é\u{0}"] }),
        serde_json::json!(1e20),
        serde_json::json!(u64::MAX),
    ];
    Json::new(of(&values, byte))
}

fn optional<T>(byte: u8, some: impl FnOnce(u8) -> T) -> Option<T> {
    (byte >= 64).then(|| some(byte))
}

fn timer(byte: u8) -> TimerId {
    of(&[TimerId::Deadline, TimerId::Doubt(node(byte / 3)), TimerId::Wait(node(byte / 3))], byte)
}

fn refused([a, b, c]: [u8; 3]) -> Event {
    SignalRefused {
        correlation_key: of(&["k", "l", "m"], b).to_owned(),
        node: node(a),
        payload_hash: value(c).hash(),
        signal: SignalId::from_u128(c.into()),
        violations: Vec::new(),
    }
    .into()
}

fn waiting([a, b, c]: [u8; 3]) -> Event {
    let wait_types = [WaitType::Human, WaitType::Signal, WaitType::Timer, WaitType::Webhook, WaitType::Child];
    JobWaiting {
        correlation_key: optional(b, |b| of(&["k", "l", "m"], b).to_owned()),
        doubt: c & 1 == 1,
        node: node(a),
        park: c & 2 == 2,
        reason: None,
        wait_type: of(&wait_types, c / 4),
    }
    .into()
}

fn job_event(kind: EventKind, [a, b, c]: [u8; 3]) -> Option<Event> {
    Some(match kind {
        EventKind::JobCreated => JobCreated {
            agent: "agent".into(),
            agent_version: "1".to_owned(),
            execution_version: "0".to_owned(),
            labels: BTreeMap::new(),
            message: value(a),
            parent: None,
            planning: None,
            priority: i32::from(b),
            run_at: optional(c, |c| Timestamp::from_micros(i64::from(c))),
            session: optional(b, |_| "s".into()),
            tenant: TenantId::default(),
        }
        .into(),
        EventKind::PlanGenerated => PlanGenerated {
            plan_hash: Hash::of(&[a]),
            plan_version: u32::from(b % 3) + 1,
            planner: "static".to_owned(),
            planner_version: "0".to_owned(),
        }
        .into(),
        EventKind::JobClaimed => JobClaimed {
            attempt_id: AttemptId::from_u128(a.into()),
            instance: InstanceId::from_u128(b.into()),
            worker: "w".into(),
        }
        .into(),
        EventKind::JobRequeued => {
            JobRequeued { after_us: optional(a, u64::from), reason: of(&RequeueReason::ALL, b) }.into()
        }
        EventKind::JobWaiting => waiting([a, b, c]),
        EventKind::WaitCompleted => {
            let signal = |b| WaitEnd::Signal { payload: value(b), signal: SignalId::from_u128(c.into()) };
            WaitCompleted { by: optional(b, signal).unwrap_or(WaitEnd::Time), node: node(a) }.into()
        }
        EventKind::SignalRefused => refused([a, b, c]),
        EventKind::JobCancelRequested => {
            JobCancelRequested { cause: of(&[EndCause::Cancel, EndCause::Deadline, EndCause::Pause], a) }.into()
        }
        EventKind::JobPauseRequested => JobPauseRequested {}.into(),
        EventKind::JobPaused => JobPaused { reason: of(&PauseReason::ALL, a) }.into(),
        EventKind::JobResumed => JobResumed {}.into(),
        EventKind::JobCompleted => {
            JobCompleted { answer: of(&[Answer::Value(value(b)), Answer::Node(node(b).node().clone())], a) }.into()
        }
        EventKind::JobFailed => JobFailed { error: Failure::new("code", "why"), node: optional(a, node) }.into(),
        EventKind::JobCancelled => JobCancelled {}.into(),
        EventKind::TimerSet => timer_set([a, b, c]),
        EventKind::TimerFired => TimerFired { timer: timer(a) }.into(),
        EventKind::NodeStarted
        | EventKind::NodeFinished
        | EventKind::NodeRetryScheduled
        | EventKind::NodeSkipped
        | EventKind::ValueRecorded
        | EventKind::NodeRefining
        | EventKind::ChildStarted
        | EventKind::ChildEnded
        | EventKind::ToolInvocationStarted
        | EventKind::ToolInvocationFinished
        | EventKind::CommandCommitted
        | EventKind::StepInDoubt
        | EventKind::InDoubtResolved => return None,
    })
}

fn timer_set([a, b, c]: [u8; 3]) -> Event {
    let after_us = if c == 255 { u64::MAX } else { u64::from(b) };
    TimerSet { after_us, timer: timer(a) }.into()
}

fn called(node: StepPath, permit: u32, [b, c]: [u8; 2]) -> Event {
    let outcomes = [
        InvocationOutcome::Committed,
        InvocationOutcome::RefusedRetryable,
        InvocationOutcome::RefusedPermanent,
        InvocationOutcome::NotSent,
        InvocationOutcome::InDoubt,
    ];
    let sources = [Source::Executed, Source::CaughtUp, Source::Reconciled, Source::Resolved];
    let error = optional(c, |_| Failure::new("code", "why"));
    ToolInvocationFinished { error, node, outcome: of(&outcomes, c), permit, source: of(&sources, b / 4) }.into()
}

fn refining(node: &StepPath, round: u32, c: u8) -> Event {
    let (by, feedback) = (of(&Judge::ALL, c), "why".to_owned());
    NodeRefining { by, feedback, node: node.base(), round }.into()
}

fn child_started(node: StepPath, [b, c]: [u8; 2]) -> Event {
    ChildStarted {
        agent: "agent".into(),
        agent_version: "1".to_owned(),
        child: JobId::from_u128(u128::from(c % 4)),
        deadline_us: optional(b, u64::from),
        depth: 1 + u32::from(c > 250),
        message: value(b),
        node,
        on_parent_end: of(&[OnParentEnd::Cancel, OnParentEnd::Leave], b),
        plan_hash: Hash::ZERO,
        planner: "static".to_owned(),
        session: None,
        sessions: Vec::new(),
        parent_deadline: None,
        waits: c & 8 == 0,
    }
    .into()
}

fn child_ended(node: StepPath, [b, c]: [u8; 2]) -> Event {
    let error = Failure::new("code", "why");
    let outcomes =
        [ChildOutcome::Completed { result: value(b) }, ChildOutcome::Failed { error }, ChildOutcome::Cancelled];
    ChildEnded { child: JobId::from_u128(u128::from(c % 4)), node, outcome: of(&outcomes, b) }.into()
}

fn drawn(node: StepPath, [b, c]: [u8; 2]) -> Event {
    let chance = u128::from(b) << 100 | u128::from(c);
    let values = [Drawn::Now, Drawn::random(chance), Drawn::uuid(chance)];
    ValueRecorded { node, values: values[..usize::from(c % 4).min(3)].to_vec() }.into()
}

fn model(tokens: u8) -> ModelRecord {
    let usage = Usage { completion_tokens: u64::MAX - u64::from(tokens), prompt_tokens: 1, ..Usage::default() };
    ModelRecord { finish: None, parameters: None, model: "m".to_owned(), prompt_hash: Hash::ZERO, usage }
}

fn step_event(kind: EventKind, [a, b, c]: [u8; 3]) -> Option<Event> {
    let (node, permit) = (node(a), u32::from(b % 4));
    let failure = || Failure::new("code", "why");
    let results = [
        StepResult::Success,
        StepResult::Pure,
        StepResult::SideEffectCommitted,
        StepResult::PermanentFailure,
        StepResult::RetryableFailure,
    ];
    Some(match kind {
        EventKind::NodeStarted => {
            let items = (c > 127).then(|| Items { collect: c > 200, count: u32::from(c % 4) });
            NodeStarted { items, ..NodeStarted::new(node, permit) }.into()
        }
        EventKind::NodeFinished => NodeFinished {
            given_up: c > 250,
            model: optional(c, model).map(Box::new),
            output: optional(b, value),
            verdict: optional(a / 32, |b| of(&Verdict::ALL, b)),
            ..NodeFinished::new(node, of(&results, c))
        }
        .into(),
        EventKind::NodeRetryScheduled => {
            NodeRetryScheduled { after_us: u64::from(c), error: failure(), model: None, node }.into()
        }
        EventKind::NodeRefining => refining(&node, permit, c),
        EventKind::ChildStarted => child_started(node, [b, c]),
        EventKind::ChildEnded => child_ended(node, [b, c]),
        EventKind::ValueRecorded => drawn(node, [b, c]),
        EventKind::NodeSkipped => {
            NodeSkipped { node, reason: of(&[SkipReason::Condition, SkipReason::Join, SkipReason::Upstream], b) }.into()
        }
        EventKind::ToolInvocationStarted => ToolInvocationStarted {
            effect: of(&[EffectClass::AtMostOnce, EffectClass::Idempotent], c / 128),
            input: optional(b, value),
            key: IdempotencyKey::derive(JobId::from_u128(1), &node, 0),
            lifetime_us: u64::from(c),
            node,
            permit,
            permit_id: PermitId::from_u128(c.into()),
            tool: "t".into(),
            tool_version: None,
        }
        .into(),
        EventKind::ToolInvocationFinished => called(node, permit, [b, c]),
        EventKind::CommandCommitted => CommandCommitted { node, result_hash: Hash::of(&[b]) }.into(),
        EventKind::StepInDoubt => {
            StepInDoubt { node, permit, policy: u32::from(c % 3), reason: "lost".to_owned() }.into()
        }
        EventKind::InDoubtResolved => resolved(node, permit, [b, c]),
        EventKind::JobCreated
        | EventKind::PlanGenerated
        | EventKind::JobClaimed
        | EventKind::JobRequeued
        | EventKind::JobWaiting
        | EventKind::WaitCompleted
        | EventKind::SignalRefused
        | EventKind::JobCancelRequested
        | EventKind::JobCompleted
        | EventKind::JobFailed
        | EventKind::JobCancelled
        | EventKind::JobPauseRequested
        | EventKind::JobPaused
        | EventKind::JobResumed
        | EventKind::TimerSet
        | EventKind::TimerFired => return None,
    })
}

fn resolved(node: StepPath, permit: u32, [b, c]: [u8; 2]) -> Event {
    let by = [Resolver::LateDeposit, Resolver::Reconcile, Resolver::Operator, Resolver::Policy];
    let outcomes = [DoubtOutcome::Happened, DoubtOutcome::DidNotHappen, DoubtOutcome::Unresolved];
    let (by, outcome) = (of(&by, b / 4), of(&outcomes, c));
    let grounds = (outcome == DoubtOutcome::DidNotHappen).then_some(Grounds::Refuses);
    InDoubtResolved { by, grounds, node, note: None, outcome, permit, result: None, settle_us: None, then: None }.into()
}

/// The event of four bytes.
fn event(bytes: &[u8]) -> Option<Event> {
    let [kind, choices @ ..] = <[u8; 4]>::try_from(bytes).ok()?;
    let kind = of(EventKind::ALL, kind);
    job_event(kind, choices).or_else(|| step_event(kind, choices))
}

/// Folds what an input says, leaving out what is refused, and holds every state on the way to the tables.
pub fn reducer(bytes: &[u8]) {
    let mut state = JobState::new(JobId::from_u128(1));
    let mut drafted = state.clone();
    let mut kept: Vec<Recorded> = Vec::new();
    for event in bytes.chunks_exact(4).take(EVENTS_MAX).filter_map(event) {
        let claims = matches!(event, Event::JobClaimed(_));
        let recorded = Recorded {
            seq: state.seq + 1,
            id: EventId::from_u128(u128::from(state.seq)),
            fence: Fence { generation: 1, epoch: state.fence.epoch + u32::from(claims) },
            at: Timestamp::from_micros(i64::try_from(state.seq).unwrap() * 10),
            hash: Hash::ZERO,
            event,
        };
        let mut next = state.clone();
        let mut ahead = drafted.clone();
        let replayed = next.replay(&recorded);
        assert_eq!(ahead.apply(&recorded.event).is_ok(), replayed.is_ok(), "a run and a replay decide differently");
        if replayed.is_err() {
            continue;
        }
        ahead.fence = recorded.fence;
        ahead.stamp(&recorded.event, recorded.at);
        assert_eq!(ahead, next, "applying and stamping later is not replaying");
        moved(&state, &next, &recorded.event);
        coherent(&next);
        state = checkpoint(next);
        drafted = state.clone();
        kept.push(recorded);
    }
    let folded = JobState::fold(JobId::from_u128(1), &kept).expect("what was accepted is accepted again");
    assert_eq!(folded, state, "a fold through checkpoints is not the fold from the beginning");
    assert_eq!(folded.hash(), state.hash());
}

/// The state as a checkpoint gives it back. Doing it after every event means that any cut folds equal.
fn checkpoint(state: JobState) -> JobState {
    let bytes = to_canonical(&state);
    let read: JobState = serde_json::from_slice(&bytes).expect("a checkpoint can be read");
    assert_eq!(read.hash(), Hash::of(&bytes), "a checkpoint changes when it is read");
    read
}

/// Whether one event has moved job and steps only as the tables have it.
fn moved(before: &JobState, after: &JobState, event: &Event) {
    assert_eq!(after.seq, before.seq + 1);
    if before.status != after.status {
        let legal = JobTrigger::ALL.iter().any(|trigger| before.status.next(*trigger) == Ok(after.status));
        assert!(legal, "{:?}: {:?} to {:?}", event.kind(), before.status, after.status);
    }
    for (node, step) in &after.steps {
        let earlier = before.step_status(node);
        if earlier == step.status {
            continue;
        }
        let legal = StepTrigger::ALL.iter().any(|trigger| earlier.next(*trigger) == Ok(step.status));
        assert!(legal, "{:?}: {node} from {earlier:?} to {:?}", event.kind(), step.status);
        let tries = before.steps.get(node).map_or(0, |step| step.tries);
        assert!(step.tries - tries <= 1 && (step.tries > tries) == matches!(event, Event::NodeStarted(_)));
    }
    assert!(before.steps.keys().all(|node| after.steps.contains_key(node)), "a step has gone");
    if let Event::ToolInvocationStarted(e) = event {
        let earlier = before.steps.get(&e.node).and_then(|step| step.invocation.as_deref());
        let repeats = earlier.is_some_and(|call| {
            let known = [
                InvocationPhase::Finished(InvocationOutcome::NotSent),
                InvocationPhase::Finished(InvocationOutcome::RefusedRetryable),
                InvocationPhase::Resolved(DoubtOutcome::DidNotHappen),
            ];
            call.class == EffectClass::AtMostOnce && !known.contains(&call.phase)
        });
        assert!(!repeats, "{}: a call that may have happened is permitted again", e.node);
    }
    if before.status.is_terminal() {
        assert_eq!(before.ending, after.ending, "an ended job has another end");
    }
    for (key, record) in &before.waits {
        let now = &after.waits[key];
        assert_eq!(record.node, now.node);
        assert!(record.phase == now.phase || record.phase == aetheris_core::state::WaitPhase::Open);
    }
}

/// Whether the parts of a state agree with each other.
fn coherent(state: &JobState) {
    assert_eq!(state.owner.is_some(), state.status == JobStatus::Running);
    assert_eq!(state.paused.is_some(), state.status == JobStatus::Paused);
    assert!(!state.blocks.is_empty() || !state.status.is_blocked());
    assert!(state.blocks.is_empty() || !state.status.is_terminal());
    assert_eq!(state.ending.is_some(), state.status.is_terminal());
    let open = state.waits.values().filter(|wait| wait.phase == aetheris_core::state::WaitPhase::Open).count();
    assert_eq!(open, state.blocks.iter().filter(|blocked| blocked.correlation_key.is_some()).count());
    for step in state.steps.values() {
        if let Some(invocation) = &step.invocation {
            assert!(invocation.permit >= 1);
        }
        if step.status == StepStatus::InDoubt {
            assert!(step.doubt.is_some() && step.invocation.is_some());
        }
        recovered(step);
    }
    let row = Projection::of(state, false);
    assert_eq!((row.status, row.waiting.is_some()), (state.status, !state.blocks.is_empty()));
    assert_eq!(row.paused.is_some(), row.status == JobStatus::Paused);
    assert_eq!(projection::timers(state).len(), state.timers.len());
}

/// Whatever effect and ledger say: an open call that must not be repeated is not repeated.
fn recovered(step: &aetheris_core::state::StepState) {
    let told = recovery::told(step);
    let open = step.invocation.as_deref().is_some_and(|invocation| {
        invocation.class == EffectClass::AtMostOnce && invocation.phase == InvocationPhase::Started
    });
    assert!(!open || step.status != StepStatus::Retrying, "a try is scheduled over an open call");
    let permit = step.invocation.as_deref().map_or(1, |invocation| invocation.permit);
    let ledgers = LedgerStatus::ALL.map(|status| Some(LedgerSeen { permit, status }));
    for ledger in ledgers.into_iter().chain([None]) {
        for effect in [None, Some(EffectSeen { permit })] {
            let decision = recovery::decide(told, effect, ledger);
            let runs = matches!(decision, Decision::Run | Decision::NextTry | Decision::CallAgain);
            let alive = !matches!(told, StepEvidence::Succeeded | StepEvidence::Ended);
            assert!(!(open && alive && runs), "{told:?} {ledger:?} {effect:?}: {decision:?}");
        }
    }
}
