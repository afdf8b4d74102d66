//! J4 and J6: what is stored comes back, up to the bounds and not beyond.

use std::collections::BTreeMap;

use aetheris_core::event::{EncodedEvent, Event, JobCancelled, NodeSkipped, NodeStarted, SkipReason, StepResult};
use aetheris_core::id::{AgentName, JobId, PermitId, SessionId, SignalId, WorkerId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use serde_json::json;

use super::fencing::evidence;
use super::{Fixture, Message, Run, snapshot};
use aetheris_store::unit::{ClientKey, InboxWrite, Purpose, UnitOfWork};
use aetheris_store::{Evidence, JobFilter, Refusal, Scope, rules};

/// Sends a value through every place that takes one, and reads it back.
async fn survives(f: Fixture, value: serde_json::Value) {
    let value = Json::new(value);
    let job = f.create(&Message { message: value.clone(), ..f.message() }).await;
    let mut unit = UnitOfWork::new(f.ids.event(), job, Purpose::Signal, Guard::Outside);
    unit.inbox.push(receive(1, value.clone()));
    unit.evidence.push(Evidence { outcome: value.clone(), ..evidence(PermitId::from_u128(1)) });
    f.ok(unit).await;
    let run = f.take(job).await;
    f.ok(f.of(run, Purpose::Record).await.step("a", value.clone()).done()).await;
    f.ok(f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
    f.ok(f.of(run, Purpose::Record).await.committed("c", value.clone()).done()).await;
    let bytes = value.canonical();
    let history = f.store().history(Scope::System, job, true).await.unwrap().unwrap();
    assert_eq!(history.kept[0].payload.canonical(), bytes, "signal");
    assert_eq!(history.effects[0].result.canonical(), bytes, "effect");
    assert_eq!(f.store().evidence(Scope::System, job).await.unwrap()[0].outcome.canonical(), bytes, "evidence");
    let state = f.state(job).await;
    assert_eq!(state.message.canonical(), bytes, "message");
    let rows = snapshot::events(f.store(), job).await;
    assert_eq!(super::journal::verify(job, &rows), history.row.head);
    assert_eq!(rows[0].payload, history.events[0].event.canonical());
}

fn receive(signal: u128, payload: Json) -> InboxWrite {
    let (key, signal) = (format!("k{signal}"), SignalId::from_u128(signal));
    InboxWrite::Receive { delivered: false, key, payload, signal, wait_type: None }
}

macro_rules! survive {
    ($($case:ident: $value:expr;)*) => {$(
        pub async fn $case(f: Fixture) {
            survives(f, $value).await;
        }
    )*};
}

survive! {
    j4_null_survives: json!(null);
    j4_an_empty_text_survives: json!("");
    j4_empty_collections_survive: json!([{}, [], [[]], {"": {}}]);
    j4_u0000_survives: json!({"\u{0}": "a\u{0}b\u{0}"});
    j4_control_characters_survive: json!("\u{1}\u{8}\t\n\u{b}\r\u{1b}\u{7f}\u{80}\u{9f}\u{2028}\u{feff}");
    j4_all_of_unicode_survives: json!({"ключ": "値 🦀 e\u{301} \u{202e}rtl\u{202c} \u{10ffff} ß\u{fffd}", "🦀": "é"});
    j4_quotes_and_sql_survive: json!("'; DROP TABLE jobs; -- \" \\ % _ ? :a $1 @b {{x}}");
    j4_exact_numbers_survive: json!([i64::MIN, i64::MAX, u64::MAX, 0, -1, 0.1, 1e300, 5e-324, 1.5e-7]);
    j4_deep_nesting_survives: deep(limits::JSON_DEPTH_MAX - 8);
    j4_a_large_value_survives: json!("x".repeat(limits::PAYLOAD_BYTES_MAX / 2));
}

fn deep(levels: usize) -> serde_json::Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

pub async fn j4_odd_names_survive(f: Fixture) {
    for odd in ["", "\u{0}", "a\u{0}b", "🦀 é", "'; --", " x ", "%_", "wait:a:b"] {
        let labels = BTreeMap::from([(odd.to_owned(), odd.to_owned())]);
        let client_key = Some(ClientKey { body_hash: aetheris_core::hash::Hash::ZERO, key: odd.to_owned() });
        let (agent, session) = (AgentName::from(odd), Some(SessionId::from(odd)));
        let message = Message { agent, client_key, labels: labels.clone(), session, ..f.message() };
        let job = f.create(&message).await;
        let mut request = f.request(1);
        request.worker = WorkerId::from(odd);
        let claimed = f.store().claim(request).await.unwrap().pop().unwrap();
        let run = Run { fence: claimed.fence, job };
        let draft = f.of(run, Purpose::Block).await;
        f.ok(draft.wait(odd, odd, aetheris_core::plan::WaitType::Signal, false).done()).await;
        let row = f.store().job(Scope::System, job).await.unwrap().unwrap();
        assert_eq!((row.agent.as_str(), row.session.unwrap().as_str()), (odd, odd));
        assert_eq!(row.labels, labels);
        let waiting = row.waiting.unwrap();
        assert_eq!((waiting.correlation_key.as_deref(), waiting.node.to_string().as_str()), (Some(odd), odd));
        let filter = JobFilter { label: Some((odd.to_owned(), odd.to_owned())), limit: 9, ..JobFilter::default() };
        let found = f.store().jobs(filter).await.unwrap().jobs;
        assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [job]);
        let again = Message { job: JobId::from_u128(f.ids.next()), ..message };
        assert_eq!(f.refused(f.creation(&again)).await, Refusal::Duplicate(job));
    }
}

/// A text whose canonical form has that many bytes.
fn sized(bytes: usize) -> Json {
    Json::new(json!("x".repeat(bytes - 2)))
}

async fn too_large(f: &Fixture, unit: UnitOfWork) {
    let before = snapshot::of_job(f.store(), unit.job).await;
    let bound = limits::PAYLOAD_BYTES_MAX as u64;
    let job = unit.job;
    assert_eq!(f.refused(unit).await, Refusal::Bound { bound, what: "payload bytes" });
    assert_eq!(snapshot::of_job(f.store(), job).await, before);
}

pub async fn j6_an_events_payload_is_bounded(f: Fixture) {
    let run = f.running().await;
    let unit = f.of(run, Purpose::Record).await.step("a", sized(limits::PAYLOAD_BYTES_MAX + 8_192)).done();
    too_large(&f, unit).await;
    f.ok(f.of(run, Purpose::Record).await.step("a", sized(limits::PAYLOAD_BYTES_MAX)).done()).await;
}

pub async fn j6_an_effects_result_is_bounded(f: Fixture) {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
    let unit = f.of(run, Purpose::Record).await.committed("c", sized(limits::PAYLOAD_BYTES_MAX + 1)).done();
    too_large(&f, unit).await;
    f.ok(f.of(run, Purpose::Record).await.committed("c", sized(limits::PAYLOAD_BYTES_MAX)).done()).await;
}

pub async fn j6_a_signals_payload_is_bounded(f: Fixture) {
    let job = f.pending().await;
    for (bytes, fits) in [(limits::PAYLOAD_BYTES_MAX + 1, false), (limits::PAYLOAD_BYTES_MAX, true)] {
        let mut unit = UnitOfWork::new(f.ids.event(), job, Purpose::Signal, Guard::Outside);
        unit.inbox.push(receive(1, sized(bytes)));
        if fits {
            f.ok(unit).await;
        } else {
            too_large(&f, unit).await;
        }
    }
}

pub async fn j6_evidence_is_bounded(f: Fixture) {
    let job = f.pending().await;
    let max = limits::PAYLOAD_BYTES_MAX + rules::ENVELOPE_BYTES_MAX;
    for (bytes, fits) in [(max + 1, false), (max, true)] {
        let mut unit = UnitOfWork::new(f.ids.event(), job, Purpose::Deposit, Guard::Outside);
        unit.evidence.push(Evidence { outcome: sized(bytes), ..evidence(PermitId::from_u128(1)) });
        if fits {
            f.ok(unit).await;
        } else {
            too_large(&f, unit).await;
        }
    }
}

pub async fn j6_the_events_of_a_unit_are_bounded(f: Fixture) {
    let run = f.running().await;
    let skip = |n: usize| NodeSkipped { node: StepPath::from(format!("n{n}").as_str()), reason: SkipReason::Condition };
    let mut draft = f.of(run, Purpose::Record).await;
    for n in 0..limits::UNIT_EVENTS_MAX {
        draft = draft.event(skip(n));
    }
    let fits = draft.clone();
    let bound = limits::UNIT_EVENTS_MAX as u64;
    let refused = f.refused(draft.event(skip(limits::UNIT_EVENTS_MAX)).done()).await;
    assert_eq!(refused, Refusal::Bound { bound, what: "events in one unit" });
    f.ok(fits.done()).await;
    assert_eq!(snapshot::events(f.store(), run.job).await.len(), 3 + limits::UNIT_EVENTS_MAX);
}

pub async fn j6_the_events_of_a_job_are_bounded(f: Fixture) {
    let job = f.pending().await;
    let event = Event::from(NodeStarted::new("n", 1));
    let mut seq = 2;
    // The store does not look into events: these fill a job without being folded.
    let fill = |seq: u64, count: u64| {
        let id = f.ids.event();
        let mut unit = UnitOfWork::new(id, job, Purpose::Record, Guard::Outside);
        unit.events.push(EncodedEvent::new(id, &event));
        unit.events.extend((1..count).map(|_| EncodedEvent::new(f.ids.event(), &event)));
        unit.expected_seq = Some(seq);
        unit
    };
    while seq < limits::JOB_EVENTS_MAX {
        let count = (limits::JOB_EVENTS_MAX - seq).min(limits::UNIT_EVENTS_MAX as u64);
        if count < limits::UNIT_EVENTS_MAX as u64 {
            let refused = f.refused(fill(seq, count + 1)).await;
            assert_eq!(refused, Refusal::Bound { bound: limits::JOB_EVENTS_MAX, what: "events of one job" });
        }
        seq = f.ok(fill(seq, count)).await.seq;
    }
    assert!(matches!(f.refused(fill(seq, 1)).await, Refusal::Bound { .. }));
    // What ends a job is never refused for its length.
    let id = f.ids.event();
    let mut unit = UnitOfWork::new(id, job, Purpose::Cancel, Guard::Outside);
    unit.events.push(EncodedEvent::new(id, &Event::from(JobCancelled {})));
    unit.expected_seq = Some(seq);
    f.ok(unit).await;
}

pub async fn j6_kept_signals_are_bounded(f: Fixture) {
    let job = f.pending().await;
    let max = limits::KEPT_SIGNALS_MAX as u128;
    let outside = |write: Vec<InboxWrite>| {
        let mut unit = UnitOfWork::new(f.ids.event(), job, Purpose::Signal, Guard::Outside);
        unit.inbox = write;
        unit
    };
    f.ok(outside((1..=max).map(|n| receive(n, Json::null())).collect())).await;
    let refused = f.refused(outside(vec![receive(max + 1, Json::null())])).await;
    assert_eq!(refused, Refusal::Bound { bound: limits::KEPT_SIGNALS_MAX as u64, what: "kept signals" });
    // What ends its wait at once is kept for nobody, and needs no room.
    let (key, signal) = ("k".to_owned(), SignalId::from_u128(max + 2));
    let at_once = InboxWrite::Receive { delivered: true, key, payload: Json::null(), signal, wait_type: None };
    f.ok(outside(vec![at_once])).await;
    // One that is there already, and one in the place of another, are not more.
    f.ok(outside(vec![receive(1, Json::null())])).await;
    let swap = vec![InboxWrite::Consume(SignalId::from_u128(1)), receive(max + 1, Json::null())];
    f.ok(outside(swap)).await;
    assert_eq!(
        f.store().history(Scope::System, job, false).await.unwrap().unwrap().kept.len(),
        limits::KEPT_SIGNALS_MAX
    );
}

/// In one unit and in many: whoever sends at once has seen nothing kept.
pub async fn j6_the_memory_of_kept_signals_is_bounded(f: Fixture) {
    let job = f.pending().await;
    let heavy = || Json::new(json!(vec![json!({ "a": 1 }); 60_000]));
    let most = (limits::KEPT_SIGNAL_MEMORY_MAX / heavy().memory()) as u128;
    let outside = |write: Vec<InboxWrite>| {
        let mut unit = UnitOfWork::new(f.ids.event(), job, Purpose::Signal, Guard::Outside);
        unit.inbox = write;
        unit
    };
    let bound = limits::KEPT_SIGNAL_MEMORY_MAX as u64;
    let refusal = Refusal::Bound { bound, what: "bytes of memory of kept signals" };
    assert_eq!(f.refused(outside((0..=most).map(|n| receive(n, heavy())).collect())).await, refusal);
    for n in 1..=most {
        f.ok(outside(vec![receive(n, heavy())])).await;
    }
    assert_eq!(f.refused(outside(vec![receive(most + 1, heavy())])).await, refusal);
    f.ok(outside(vec![receive(most + 1, json!("small").into())])).await;
    f.ok(outside(vec![InboxWrite::Consume(SignalId::from_u128(1)), receive(most + 2, heavy())])).await;
}

pub async fn j6_kept_bytes_are_bounded(f: Fixture) {
    let job = f.pending().await;
    let large = || Json::new(serde_json::Value::String("x".repeat(limits::PAYLOAD_BYTES_MAX - 2)));
    let most = (limits::KEPT_SIGNAL_BYTES_MAX / limits::PAYLOAD_BYTES_MAX) as u128;
    let outside = |write: Vec<InboxWrite>| {
        let mut unit = UnitOfWork::new(f.ids.event(), job, Purpose::Signal, Guard::Outside);
        unit.inbox = write;
        unit
    };
    for n in 1..=most {
        f.ok(outside(vec![receive(n, large())])).await;
    }
    let refused = f.refused(outside(vec![receive(most + 1, Json::null())])).await;
    let bound = limits::KEPT_SIGNAL_BYTES_MAX as u64;
    assert_eq!(refused, Refusal::Bound { bound, what: "bytes of kept signals" });
    f.ok(outside(vec![receive(1, large())])).await;
    let swap = vec![InboxWrite::Consume(SignalId::from_u128(1)), receive(most + 1, large())];
    f.ok(outside(swap)).await;
    let both = vec![InboxWrite::Consume(SignalId::from_u128(2)), InboxWrite::Consume(SignalId::from_u128(3))];
    f.ok(outside(both)).await;
    f.ok(outside(vec![receive(most + 2, Json::null())])).await;
    let kept = f.store().history(Scope::System, job, false).await.unwrap().unwrap().kept;
    assert_eq!(kept.len() as u128, most - 1);
}

pub async fn j6_a_result_of_nothing_is_a_result(f: Fixture) {
    let run = f.running().await;
    let draft = f.of(run, Purpose::Record).await.start("a").finish("a", Some(Json::null()), StepResult::Pure);
    f.ok(draft.done()).await;
    let state = f.state(run.job).await;
    assert_eq!(state.steps[&"a".into()].output, Some(aetheris_core::state::Output::Inline(Json::null())));
}
