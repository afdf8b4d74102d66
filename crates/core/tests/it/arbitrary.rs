//! Events drawn from small domains, so that sequences of them often make sense.

use std::collections::BTreeMap;

use aetheris_core::event::*;
use aetheris_core::hash::Hash;
use aetheris_core::id::{AttemptId, EventId, IdempotencyKey, InstanceId, JobId, PermitId, SignalId, TenantId};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, OnParentEnd, WaitType};
use aetheris_core::state::{JobState, StepState};
use aetheris_core::step::StepStatus;
use aetheris_core::time::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

fn node() -> impl Strategy<Value = StepPath> {
    select(vec!["a", "b", "b[2]@1/0.3"]).prop_map(StepPath::from)
}

fn value() -> impl Strategy<Value = Json> {
    select(vec![json!(null), json!({ "z": 1, "a": [1.5, "é\u{0}"] }), json!("text"), json!(u64::MAX)])
        .prop_map(Json::new)
}

fn failure() -> impl Strategy<Value = Failure> {
    Just(Failure::new("code", "message"))
}

fn timer() -> impl Strategy<Value = TimerId> {
    prop_oneof![Just(TimerId::Deadline), node().prop_map(TimerId::Doubt), node().prop_map(TimerId::Wait)]
}

fn wait_type() -> impl Strategy<Value = WaitType> {
    select(vec![WaitType::Human, WaitType::Signal, WaitType::Timer, WaitType::Webhook, WaitType::Child])
}

fn created() -> impl Strategy<Value = Event> {
    (value(), proptest::option::of(Just("s"))).prop_map(|(message, session)| {
        JobCreated {
            agent: "agent".into(),
            agent_version: "1".to_owned(),
            execution_version: "0".to_owned(),
            labels: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            message,
            parent: None,
            planning: None,
            priority: 3,
            run_at: Some(Timestamp::from_micros(7)),
            session: session.map(Into::into),
            tenant: TenantId::default(),
        }
        .into()
    })
}

fn job_events() -> impl Strategy<Value = Event> {
    let requeue = select(vec![RequeueReason::Retry, RequeueReason::LeaseExpired, RequeueReason::Draining]);
    prop_oneof![
        1 => Just(
            PlanGenerated {
                plan_hash: Hash::of(b"plan"),
                plan_version: 1,
                planner: "static".to_owned(),
                planner_version: "0".to_owned()
            }
            .into()
        ),
        16 => Just(
            JobClaimed { attempt_id: AttemptId::from_u128(1), instance: InstanceId::from_u128(2), worker: "w".into() }
                .into()
        ),
        3 => (proptest::option::of(0u64..9), requeue).prop_map(|(after_us, reason)| JobRequeued { after_us, reason }.into()),
        6 => (proptest::option::of(select(vec!["k", "l"])), any::<bool>(), node(), any::<bool>(), wait_type()).prop_map(
            |(key, doubt, node, park, wait_type)| {
                JobWaiting { correlation_key: key.map(str::to_owned), doubt, node, park, reason: None, wait_type }
                    .into()
            }
        ),
        6 => (node(), proptest::option::of(value())).prop_map(|(node, payload)| {
            let by =
                payload.map_or(WaitEnd::Time, |payload| WaitEnd::Signal { payload, signal: SignalId::from_u128(1) });
            WaitCompleted { by, node }.into()
        }),
        1 => select(vec![EndCause::Cancel, EndCause::Deadline]).prop_map(|cause| JobCancelRequested { cause }.into()),
        1 => Just(JobPauseRequested {}.into()),
        1 => select(PauseReason::ALL.to_vec()).prop_map(|reason| JobPaused { reason }.into()),
        1 => Just(JobResumed {}.into()),
        1 => value().prop_map(|value| JobCompleted { answer: Answer::Value(value) }.into()),
        1 => (failure(), proptest::option::of(node())).prop_map(|(error, node)| JobFailed { error, node }.into()),
        1 => Just(JobCancelled {}.into()),
        5 => (select(vec!["k", "l"]), node(), value()).prop_map(|(key, node, value)| {
            SignalRefused {
                correlation_key: key.to_owned(),
                node,
                payload_hash: value.hash(),
                signal: SignalId::from_u128(1),
                violations: Vec::new(),
            }
            .into()
        }),
        3 => (0u64..9, timer()).prop_map(|(after_us, timer)| TimerSet { after_us, timer }.into()),
        3 => timer().prop_map(|timer| TimerFired { timer }.into()),
    ]
}

fn child_events() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (node(), any::<bool>(), any::<bool>(), value()).prop_map(|(node, waits, leave, message)| {
            ChildStarted {
                agent: "other".into(),
                agent_version: "1".to_owned(),
                child: JobId::from_u128(6),
                deadline_us: waits.then_some(7),
                depth: 1,
                message,
                node,
                on_parent_end: if leave { OnParentEnd::Leave } else { OnParentEnd::Cancel },
                plan_hash: Hash::of(b"plan"),
                planner: "static".to_owned(),
                session: leave.then(|| "s".into()),
                sessions: vec![Hash::of(b"above")],
                parent_deadline: waits.then_some(Timestamp::from_micros(9)),
                waits,
            }
            .into()
        }),
        9 => (node(), proptest::option::of(value())).prop_map(|(node, result)| {
            let outcome = result.map_or(ChildOutcome::Cancelled, |result| ChildOutcome::Completed { result });
            ChildEnded { child: JobId::from_u128(6), node, outcome }.into()
        }),
    ]
}

fn step_events() -> impl Strategy<Value = Event> {
    let result = select(vec![
        StepResult::Success,
        StepResult::Pure,
        StepResult::SideEffectCommitted,
        StepResult::PermanentFailure,
    ]);
    let verdict = select(vec![None, None, Some(Verdict::Pass), Some(Verdict::Pending), Some(Verdict::Reject)]);
    let outcome = select(vec![
        InvocationOutcome::Committed,
        InvocationOutcome::Committed,
        InvocationOutcome::RefusedRetryable,
        InvocationOutcome::NotSent,
        InvocationOutcome::InDoubt,
    ]);
    let doubt = select(vec![DoubtOutcome::Happened, DoubtOutcome::DidNotHappen, DoubtOutcome::Unresolved]);
    let by = select(vec![Resolver::LateDeposit, Resolver::Reconcile, Resolver::Operator, Resolver::Policy]);
    prop_oneof![
        8 => (node(), 1u32..4).prop_map(|(node, number)| NodeStarted::new(node, number).into()),
        3 => (node(), proptest::option::of(value()), result, verdict).prop_map(|(node, output, result, verdict)| {
            NodeFinished { output, verdict, ..NodeFinished::new(node, result) }.into()
        }),
        4 => (node(), failure(), 0u64..9)
            .prop_map(|(node, error, after_us)| NodeRetryScheduled { after_us, error, model: None, node }.into()),
        14 => (node(), 1u32..4).prop_map(|(node, round)| {
            NodeRefining { by: Judge::Schema, feedback: "no".to_owned(), node: node.base(), round }.into()
        }),
        12 => child_events(),
        1 => node().prop_map(|node| NodeSkipped { node, reason: SkipReason::Condition }.into()),
        1 => (node(), any::<u64>(), 1usize..4).prop_map(|(node, chance, count)| {
            let values = [Drawn::random(chance.into()), Drawn::uuid(chance.into()), Drawn::Now];
            ValueRecorded { node, values: values[3 - count..].to_vec() }.into()
        }),
        12 => (node(), 1u32..4, proptest::option::of(value())).prop_map(|(node, permit, input)| {
            ToolInvocationStarted {
                effect: EffectClass::AtMostOnce,
                input,
                key: IdempotencyKey::from_u128(5),
                lifetime_us: 9,
                node,
                permit,
                permit_id: PermitId::from_u128(u128::from(permit)),
                tool: "t".into(),
                tool_version: None,
            }
            .into()
        }),
        16 => (node(), 1u32..4, outcome).prop_map(|(node, permit, outcome)| {
            ToolInvocationFinished { error: None, node, outcome, permit, source: Source::CaughtUp }.into()
        }),
        16 => node().prop_map(|node| CommandCommitted { node, result_hash: Hash::of(b"r") }.into()),
        8 => (node(), 1u32..4, 0u32..3).prop_map(|(node, permit, policy)| StepInDoubt {
            node,
            permit,
            policy,
            reason: "r".to_owned()
        }
        .into()),
        16 => (node(), 1u32..4, doubt, by).prop_map(|(node, permit, outcome, by)| InDoubtResolved {
            by,
            node,
            note: None,
            outcome,
            permit,
            grounds: None,
            result: None,
            settle_us: None, then: None,
        }
        .into()),
    ]
}

/// Any event.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    prop_oneof![1 => created(), 8 => job_events(), 8 => step_events()]
}

/// Events in the order of a stream that begins as every stream does. Those that are told so get the numbers that
/// the state asks for ([`fitted`]): drawn alone, hardly any call or doubt would ever be legal.
pub(crate) fn stream() -> impl Strategy<Value = Vec<(Event, bool)>> {
    (created(), proptest::collection::vec((event(), proptest::bool::weighted(0.8)), 0..100)).prop_map(
        |(first, rest)| {
            let plan = PlanGenerated {
                plan_hash: Hash::of(b"plan"),
                plan_version: 1,
                planner: "static".to_owned(),
                planner_version: "0".to_owned(),
            };
            [(first, false), (plan.into(), false)].into_iter().chain(rest).collect()
        },
    )
}

/// The event with the try, permit, policy and node that come next.
pub(crate) fn fitted(event: Event, state: &JobState) -> Event {
    let step = |node: &StepPath| state.steps.get(node).cloned().unwrap_or_default();
    let permit = |node: &StepPath| step(node).invocation.map_or(0, |invocation| invocation.permit);
    match event {
        Event::NodeStarted(mut started) => {
            // What is next of a step whose output is judged.
            let part = |(path, step): (&StepPath, &StepState)| match step.status {
                StepStatus::Pending => Some(path.clone()),
                StepStatus::Validating if step.waits_for_critic() => Some(path.critic()),
                _ => None,
            };
            started.node = state.steps.iter().find_map(part).unwrap_or(started.node);
            started.number = step(&started.node).tries + 1;
            started.into()
        }
        Event::ToolInvocationStarted(mut started) => {
            started.permit = permit(&started.node) + 1;
            started.permit_id = PermitId::from_u128(u128::from(started.permit));
            started.input = (started.permit == 1).then(Json::null);
            started.into()
        }
        Event::ToolInvocationFinished(mut finished) => {
            finished.permit = permit(&finished.node);
            finished.into()
        }
        Event::StepInDoubt(mut doubted) => {
            doubted.permit = permit(&doubted.node);
            doubted.policy = step(&doubted.node).doubt.map_or(0, |doubt| doubt.policy + 1);
            doubted.into()
        }
        Event::InDoubtResolved(mut resolved) => {
            resolved.permit = permit(&resolved.node);
            resolved.into()
        }
        Event::SignalRefused(mut refused) => {
            if let Some(blocked) = state.blocks.oldest() {
                refused.node = blocked.node.clone();
                refused.correlation_key = blocked.correlation_key.clone().unwrap_or_default();
            }
            refused.into()
        }
        Event::WaitCompleted(mut completed) => {
            completed.node = state.blocks.oldest().map_or(completed.node, |blocked| blocked.node.clone());
            completed.into()
        }
        Event::NodeFinished(mut finished) => {
            let mut running = state.steps.iter().filter(|(_, step)| step.status == StepStatus::Running);
            finished.node = running.next().map_or(finished.node, |(path, _)| path.clone());
            finished.into()
        }
        Event::JobWaiting(mut waiting) if waiting.wait_type == WaitType::Child => {
            let mut awaited = state.steps.iter().filter(|(_, step)| step.awaited_child().is_some());
            waiting.node = awaited.next().map_or(waiting.node, |(path, _)| path.clone());
            waiting.into()
        }
        Event::ChildEnded(mut ended) => {
            let mut awaited = state.steps.iter().filter(|(_, step)| step.awaited_child().is_some());
            ended.node = awaited.next().map_or(ended.node, |(path, _)| path.clone());
            ended.into()
        }
        Event::NodeRefining(mut refining) => {
            let mut judged = state.steps.iter().filter(|(_, step)| step.status == StepStatus::Validating);
            refining.node = judged.next().map_or(refining.node, |(path, _)| path.base());
            refining.round = step(&refining.node).round + 1;
            refining.into()
        }
        other => other,
    }
}

/// The event as a store would give it back.
pub(crate) fn recorded(seq: u64, epoch: u32, event: Event) -> Recorded {
    let at = Timestamp::from_micros(i64::try_from(seq).unwrap() * 10);
    Recorded {
        seq,
        id: EventId::from_u128(u128::from(seq)),
        fence: Fence { generation: 1, epoch },
        at,
        hash: Hash::ZERO,
        event,
    }
}
