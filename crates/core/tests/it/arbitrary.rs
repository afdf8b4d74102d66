//! Events drawn from small domains, so that sequences of them often make sense.

use std::collections::BTreeMap;

use aetheris_core::event::*;
use aetheris_core::hash::Hash;
use aetheris_core::id::{AttemptId, EventId, IdempotencyKey, InstanceId, NodeId, PermitId, SignalId};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::time::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

fn node() -> impl Strategy<Value = NodeId> {
    select(vec!["a", "b"]).prop_map(NodeId::from)
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
    select(vec![WaitType::Human, WaitType::Signal, WaitType::Timer, WaitType::Webhook])
}

fn created() -> impl Strategy<Value = Event> {
    (value(), proptest::option::of(Just("s"))).prop_map(|(message, session)| {
        JobCreated {
            agent: "agent".into(),
            agent_version: "1".to_owned(),
            execution_version: "0".to_owned(),
            labels: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            message,
            priority: 3,
            run_at: Some(Timestamp::from_micros(7)),
            session: session.map(Into::into),
        }
        .into()
    })
}

fn job_events() -> impl Strategy<Value = Event> {
    let requeue = select(vec![RequeueReason::Retry, RequeueReason::LeaseExpired, RequeueReason::Draining]);
    prop_oneof![
        Just(
            PlanGenerated {
                plan_hash: Hash::of(b"plan"),
                plan_version: 1,
                planner: "static".to_owned(),
                planner_version: "0".to_owned()
            }
            .into()
        ),
        Just(
            JobClaimed { attempt_id: AttemptId::from_u128(1), instance: InstanceId::from_u128(2), worker: "w".into() }
                .into()
        ),
        (proptest::option::of(0u64..9), requeue).prop_map(|(after_us, reason)| JobRequeued { after_us, reason }.into()),
        (proptest::option::of(select(vec!["k", "l"])), any::<bool>(), node(), any::<bool>(), wait_type()).prop_map(
            |(key, doubt, node, park, wait_type)| {
                JobWaiting { correlation_key: key.map(str::to_owned), doubt, node, park, reason: None, wait_type }
                    .into()
            }
        ),
        (node(), proptest::option::of(value())).prop_map(|(node, payload)| {
            let by =
                payload.map_or(WaitEnd::Time, |payload| WaitEnd::Signal { payload, signal: SignalId::from_u128(1) });
            WaitCompleted { by, node }.into()
        }),
        select(vec![EndCause::Cancel, EndCause::Deadline]).prop_map(|cause| JobCancelRequested { cause }.into()),
        value().prop_map(|value| JobCompleted { answer: Answer::Value(value) }.into()),
        (failure(), proptest::option::of(node())).prop_map(|(error, node)| JobFailed { error, node }.into()),
        Just(JobCancelled {}.into()),
        (0u64..9, timer()).prop_map(|(after_us, timer)| TimerSet { after_us, timer }.into()),
        timer().prop_map(|timer| TimerFired { timer }.into()),
    ]
}

fn step_events() -> impl Strategy<Value = Event> {
    let result = select(vec![
        StepResult::Success,
        StepResult::Pure,
        StepResult::SideEffectCommitted,
        StepResult::PermanentFailure,
    ]);
    let outcome = select(vec![
        InvocationOutcome::Committed,
        InvocationOutcome::RefusedRetryable,
        InvocationOutcome::NotSent,
        InvocationOutcome::InDoubt,
    ]);
    let doubt = select(vec![DoubtOutcome::Happened, DoubtOutcome::DidNotHappen, DoubtOutcome::Unresolved]);
    let by = select(vec![Resolver::LateDeposit, Resolver::Reconcile, Resolver::Operator, Resolver::Policy]);
    prop_oneof![
        (node(), 1u32..4).prop_map(|(node, number)| NodeStarted { node, number }.into()),
        (node(), proptest::option::of(value()), result).prop_map(|(node, output, result)| {
            NodeFinished { error: None, model: None, node, output, result }.into()
        }),
        (node(), failure(), 0u64..9)
            .prop_map(|(node, error, after_us)| NodeRetryScheduled { after_us, error, node }.into()),
        node().prop_map(|node| NodeSkipped { node, reason: SkipReason::Condition }.into()),
        (node(), 1u32..4, proptest::option::of(value())).prop_map(|(node, permit, input)| {
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
        (node(), 1u32..4, outcome).prop_map(|(node, permit, outcome)| {
            ToolInvocationFinished { error: None, node, outcome, permit, source: Source::CaughtUp }.into()
        }),
        node().prop_map(|node| CommandCommitted { node, result_hash: Hash::of(b"r") }.into()),
        (node(), 1u32..4, 0u32..3).prop_map(|(node, permit, policy)| StepInDoubt {
            node,
            permit,
            policy,
            reason: "r".to_owned()
        }
        .into()),
        (node(), 1u32..4, doubt, by).prop_map(|(node, permit, outcome, by)| InDoubtResolved {
            by,
            node,
            note: None,
            outcome,
            permit
        }
        .into()),
    ]
}

/// Any event.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    prop_oneof![1 => created(), 8 => job_events(), 8 => step_events()]
}

/// A stream that begins as every stream does.
pub(crate) fn stream() -> impl Strategy<Value = Vec<Event>> {
    (created(), proptest::collection::vec(event(), 0..60)).prop_map(|(first, rest)| {
        let plan = PlanGenerated {
            plan_hash: Hash::of(b"plan"),
            plan_version: 1,
            planner: "static".to_owned(),
            planner_version: "0".to_owned(),
        };
        [first, plan.into()].into_iter().chain(rest).collect()
    })
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
