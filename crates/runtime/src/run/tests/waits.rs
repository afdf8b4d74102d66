//! Waits and sleeps.

use aetheris_core::event::WaitEnd;
use aetheris_core::id::SignalId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{EffectClass, NodeKind, OnDeadline, WaitNode, WaitType};
use aetheris_core::state::{WaitPhase, WaitRecord};
use aetheris_core::step::StepStatus;
use aetheris_core::time::{Span, Timestamp};
use aetheris_store::KeptSignal;
use serde_json::json;

use super::bed::Bed;
use crate::run::prepared::{Arrival, Body, Next, Release, Said};

fn wait(schema: Option<Json>) -> WaitNode {
    WaitNode {
        correlation_key: Some("order-{{ message.to }}".to_owned()),
        deadline: Some(Span::from_secs(5)),
        on_deadline: OnDeadline::Fail,
        park: false,
        reason: None,
        schema,
        wait_type: WaitType::Signal,
    }
}

fn bed(wait: WaitNode) -> Bed {
    Bed::of(NodeKind::Wait(wait), EffectClass::Pure)
}

fn kept(n: u128, wait_type: Option<WaitType>) -> KeptSignal {
    let (key, received_at) = ("order-ann".to_owned(), Timestamp::default());
    KeptSignal { key, payload: Json::new(json!(n.to_string())), received_at, signal: SignalId::from_u128(n), wait_type }
}

#[test]
fn a_wait_blocks_until_its_deadline_and_expects_the_signals_that_are_kept() {
    let mut bed = bed(wait(None));
    bed.rows.kept = vec![kept(1, Some(WaitType::Webhook)), KeptSignal { key: "other".to_owned(), ..kept(2, None) }];
    let (facts, next) = bed.prepare();
    assert_eq!(facts, ["node_started", "job_waiting", "timer_set"]);
    // One claims another type, and still the store has to know of no other.
    let Next::Release(Release::Block { expected: Some(expected), .. }) = next else { panic!("{next:?}") };
    assert_eq!((expected.key.as_str(), expected.count), ("order-ann", 1));
}

#[test]
fn the_first_kept_signal_that_fits_ends_the_wait_in_the_same_unit() {
    let mut bed = bed(wait(None));
    bed.rows.kept = vec![kept(1, Some(WaitType::Human)), kept(2, Some(WaitType::Signal)), kept(3, None)];
    let (facts, next) = bed.prepare();
    assert_eq!(facts, ["node_started", "job_waiting", "wait_completed"]);
    assert!(matches!(next, Next::Release(Release::Block { expected: None, .. })));
    let (facts, _) = bed.prepare_running();
    assert_eq!(facts, ["node_finished"]);
    assert_eq!(crate::names::output(&bed.state, &Default::default(), &"n".into()), Json::new(json!("2")));
}

/// Judging takes as long as a schema does: it is a body, before which the start alone is drafted.
#[test]
fn kept_signals_are_judged_where_the_wait_has_a_schema_and_one_may_end_it() {
    let schema = Some(Json::new(json!({ "type": "string" })));
    let mut none = bed(wait(schema.clone()));
    assert_eq!(none.prepare().0, ["node_started", "job_waiting", "timer_set"]);
    let mut bed = bed(wait(schema));
    bed.rows.kept = vec![kept(1, None), kept(2, Some(WaitType::Timer)), kept(3, None)];
    let (facts, next) = bed.prepare();
    assert_eq!(facts, ["node_started"]);
    let Next::Perform(Body::Judge(reached, _)) = next else { panic!("{next:?}") };
    let judged: Vec<SignalId> = reached.candidates().map(|kept| kept.signal).collect();
    assert_eq!(judged, [SignalId::from_u128(1), SignalId::from_u128(3)]);
    let arrival = Arrival { fits: Some(kept(3, None)), misfits: vec![(kept(1, None), Vec::new())] };
    let (facts, _) = bed.conclude(Said::Judged(reached, arrival));
    assert_eq!(facts, ["job_waiting", "signal_refused", "wait_completed"]);
}

#[test]
fn a_key_names_one_wait_and_has_a_length() {
    let too_long = "x".repeat(aetheris_core::limits::CORRELATION_KEY_CHARS_MAX + 1);
    for (key, code) in [("", "bad_correlation_key"), (too_long.as_str(), "bad_correlation_key")] {
        let mut bed = bed(WaitNode { correlation_key: Some(key.to_owned()), ..wait(None) });
        assert_eq!(bed.prepare().0, ["node_finished"]);
        assert_eq!(bed.error().unwrap().code, code);
    }
    let mut bed = bed(wait(None));
    bed.prepare();
    let waits = bed.state.waits.clone();
    let mut second = self::bed(wait(None));
    second.state.waits = waits;
    assert_eq!(second.prepare().0, ["node_finished"]);
    assert_eq!(second.error().unwrap().code, "correlation_key_used");
}

#[test]
fn a_sleep_blocks_on_time_and_goes_on_with_nothing() {
    let mut bed = Bed::of(NodeKind::Sleep(Span::from_secs(3)), EffectClass::Pure);
    let (facts, next) = bed.prepare();
    assert_eq!(facts, ["node_started", "job_waiting", "timer_set"]);
    assert!(matches!(next, Next::Release(Release::Block { expected: None, .. })));
    assert_eq!(bed.state.steps[&"n".into()].status, StepStatus::Waiting);
}

/// Time ends a wait with its default, or fails it.
#[test]
fn a_wait_that_time_has_ended_goes_on_or_fails_as_it_says() {
    let given = Json::new(json!("nobody"));
    for (on_deadline, output) in [(OnDeadline::ContinueWith(given.clone()), Some(given)), (OnDeadline::Fail, None)] {
        let mut bed = bed(WaitNode { on_deadline, ..wait(None) });
        bed.prepare();
        bed.state.status = JobStatus::Running;
        let step = bed.state.steps.get_mut(&"n".into()).unwrap();
        (step.status, step.wait_end) = (StepStatus::Running, Some(Box::new(WaitEnd::Time)));
        assert_eq!(bed.prepare().0, ["node_finished"]);
        match output {
            Some(output) => assert_eq!(crate::names::output(&bed.state, &bed.rows.effects, &"n".into()), output),
            None => assert_eq!(bed.error().unwrap().code, "wait_timed_out"),
        }
    }
}

#[test]
fn a_gate_passes_and_a_transform_gives_what_its_template_makes() {
    for (kind, output) in [
        (NodeKind::Condition, json!(true)),
        (NodeKind::Transform(Json::new(json!({ "dear": "{{ message.to }}" }))), json!({ "dear": "ann" })),
    ] {
        let mut bed = Bed::of(kind, EffectClass::Pure);
        let (facts, next) = bed.prepare();
        assert_eq!(facts, ["node_started", "node_finished"]);
        assert!(matches!(next, Next::Go));
        assert_eq!(crate::names::output(&bed.state, &bed.rows.effects, &"n".into()).value(), &output);
    }
    let mut bed = Bed::of(NodeKind::Transform(Json::new(json!("{{ message.to.x.y }}"))), EffectClass::Pure);
    assert_eq!(bed.prepare().0, ["node_finished"]);
    assert_eq!(bed.error().unwrap().code, "template_error");
}

/// A job that has opened as many waits as it may fails with the next, and is not refused by the record.
#[test]
fn the_waits_of_a_job_are_bounded() {
    let record = WaitRecord { node: "x".into(), phase: WaitPhase::Over, wait_type: WaitType::Signal };
    let told = |waits: usize| {
        let mut bed = bed(wait(None));
        bed.state.waits.extend((0..waits).map(|n| (n.to_string(), record.clone())));
        bed.prepare().0
    };
    assert_eq!(told(limits::JOB_WAITS_MAX - 1), ["node_started", "job_waiting", "timer_set"]);
    assert_eq!(told(limits::JOB_WAITS_MAX), ["node_finished"]);
}
