//! A doubt is answered once: what is told of an answered doubt, or of none, is refused.

use aetheris_core::event::{
    DoubtOutcome, Event, InDoubtResolved, JobClaimed, JobCreated, NodeStarted, PlanGenerated, Resolver, StepInDoubt,
    ToolInvocationStarted,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::{
    AgentName, AttemptId, IdempotencyKey, InstanceId, JobId, PermitId, TenantId, ToolName, WorkerId,
};
use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::state::JobState;

fn answer(outcome: DoubtOutcome) -> Event {
    InDoubtResolved {
        by: Resolver::Policy,
        node: StepPath::from("n"),
        note: None,
        outcome,
        permit: 1,
        grounds: None,
        result: None,
        settle_us: None,
        then: None,
    }
    .into()
}

/// A job whose only step has called its tool.
fn called() -> JobState {
    let node = StepPath::from("n");
    let events: [Event; 5] = [
        JobCreated {
            agent: AgentName::from("a"),
            agent_version: String::new(),
            execution_version: String::new(),
            labels: std::collections::BTreeMap::new(),
            message: Json::null(),
            parent: None,
            planning: None,
            priority: 0,
            run_at: None,
            session: None,
            tenant: TenantId::default(),
        }
        .into(),
        PlanGenerated {
            plan_hash: Hash::ZERO,
            plan_version: 1,
            planner: String::new(),
            planner_version: String::new(),
        }
        .into(),
        JobClaimed {
            attempt_id: AttemptId::from_u128(1),
            instance: InstanceId::from_u128(1),
            worker: WorkerId::from("w"),
        }
        .into(),
        NodeStarted::new(node.clone(), 1).into(),
        ToolInvocationStarted {
            effect: EffectClass::AtMostOnce,
            input: Some(Json::null()),
            key: IdempotencyKey::from_u128(1),
            lifetime_us: 1,
            node,
            permit: 1,
            permit_id: PermitId::from_u128(1),
            tool: ToolName::from("t"),
            tool_version: None,
        }
        .into(),
    ];
    let mut state = JobState::new(JobId::from_u128(1));
    for event in events {
        state.apply(&event).unwrap();
    }
    state
}

#[test]
fn a_doubt_is_answered_once() {
    let mut doubted = called();
    let doubt = StepInDoubt { node: StepPath::from("n"), permit: 1, policy: 0, reason: String::new() };
    doubted.apply(&doubt.into()).unwrap();
    for first in [DoubtOutcome::Happened, DoubtOutcome::DidNotHappen] {
        let mut answered = doubted.clone();
        answered.apply(&answer(first)).unwrap();
        for second in [DoubtOutcome::Happened, DoubtOutcome::DidNotHappen, DoubtOutcome::Unresolved] {
            assert!(answered.clone().apply(&answer(second)).is_err(), "{second:?} after {first:?}");
        }
    }
}

#[test]
fn a_call_that_is_not_in_doubt_has_no_answer() {
    for outcome in [DoubtOutcome::Happened, DoubtOutcome::DidNotHappen, DoubtOutcome::Unresolved] {
        assert!(called().apply(&answer(outcome)).is_err(), "{outcome:?}");
    }
}
