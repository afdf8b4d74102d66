//! I: signals and timers.

use aetheris_core::event::{TimerFired, TimerId, TimerSet, WaitCompleted, WaitEnd};
use aetheris_core::id::{JobId, SignalId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::{Guard, GuardRefusal};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::WaitType;
use aetheris_core::projection::TimerChange;
use aetheris_core::time::{Due, Span};

use super::fixture::invalid;
use super::{Fixture, snapshot};
use aetheris_store::unit::{ExpectedSignals, InboxWrite, Purpose, UnitOfWork};
use aetheris_store::{KeptHead, KeptSignal, Refusal, Scope, TimerRow};

const TICK: Span = Span::from_micros(1);

fn outside(f: &Fixture, job: JobId, purpose: Purpose) -> UnitOfWork {
    UnitOfWork::new(f.ids.event(), job, purpose, Guard::Outside)
}

/// A unit that receives a signal and keeps it.
fn receive(f: &Fixture, job: JobId, signal: SignalId, key: &str) -> UnitOfWork {
    let mut unit = outside(f, job, Purpose::Signal);
    unit.inbox.push(InboxWrite::Receive {
        delivered: false,
        key: key.to_owned(),
        payload: Json::new(serde_json::json!({ "for": key })),
        signal,
        wait_type: Some(WaitType::Webhook),
    });
    unit
}

async fn kept(f: &Fixture, job: JobId) -> Vec<KeptSignal> {
    let kept = f.store().history(Scope::System, job, false).await.unwrap().unwrap().kept;
    // People are shown them without what they bring.
    let heads: Vec<KeptHead> = kept.iter().map(KeptHead::of).collect();
    assert_eq!(f.store().kept(Scope::System, job).await.unwrap(), heads);
    kept
}

fn signal(n: u128) -> SignalId {
    SignalId::from_u128(n)
}

pub async fn i1_a_signal_is_kept_until_it_is_consumed(f: Fixture) {
    let job = f.pending().await;
    f.advance(Span::from_secs(1));
    let at = f.ok(receive(&f, job, signal(1), "k")).await.at;
    let expected = KeptSignal {
        key: "k".to_owned(),
        payload: Json::new(serde_json::json!({ "for": "k" })),
        received_at: at,
        signal: signal(1),
        wait_type: Some(WaitType::Webhook),
    };
    assert_eq!(kept(&f, job).await, [expected]);
    let run = f.take(job).await;
    let draft = f.of(run, Purpose::Signal).await.step("w", Json::null());
    f.ok(draft.with(|unit| unit.inbox.push(InboxWrite::Consume(signal(1)))).done()).await;
    assert_eq!(kept(&f, job).await, []);
}

pub async fn i1_kept_signals_come_in_the_order_they_came(f: Fixture) {
    let job = f.pending().await;
    for n in [5, 2, 9, 1] {
        f.ok(receive(&f, job, signal(n), &format!("k{n}"))).await;
    }
    let ids: Vec<u128> = kept(&f, job).await.iter().map(|row| row.signal.as_u128()).collect();
    assert_eq!(ids, [5, 2, 9, 1]);
    // Without what they bring the first of them are shown.
    for n in 10..10 + limits::KEPT_SHOWN_MAX as u128 {
        f.ok(receive(&f, job, signal(n), &format!("k{n}"))).await;
    }
    let keys: Vec<String> =
        f.store().kept(Scope::System, job).await.unwrap().into_iter().map(|head| head.key).collect();
    assert_eq!(
        (keys.len(), &keys[..5]),
        (limits::KEPT_SHOWN_MAX, &["k5", "k2", "k9", "k1", "k10"].map(String::from)[..])
    );
}

pub async fn i1_a_signal_that_its_own_unit_delivers_is_not_kept(f: Fixture) {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Block).await.wait("w", "k", WaitType::Signal, false).done()).await;
    let by = WaitEnd::Signal { payload: Json::null(), signal: signal(1) };
    let completed = WaitCompleted { by, node: StepPath::from("w") };
    let draft = f.draft(run.job, Purpose::Signal, Guard::Outside).await.event(completed);
    let unit = draft.with(|unit| {
        unit.inbox.push(InboxWrite::Receive {
            delivered: true,
            key: "k".to_owned(),
            payload: Json::null(),
            signal: signal(1),
            wait_type: None,
        });
    });
    f.ok(unit.done()).await;
    assert_eq!(kept(&f, run.job).await, []);
    let row = f.store().job(Scope::System, run.job).await.unwrap().unwrap();
    assert_eq!((row.status, row.waiting), (JobStatus::Pending, None));
    // The same signal once more, as something to be kept: it was delivered.
    f.ok(receive(&f, run.job, signal(1), "k")).await;
    assert_eq!(kept(&f, run.job).await, []);
}

pub async fn i1_signals_of_other_jobs_are_not_mixed_in(f: Fixture) {
    let (one, two) = (f.pending().await, f.pending().await);
    f.ok(receive(&f, one, signal(1), "k")).await;
    f.ok(receive(&f, two, signal(2), "k")).await;
    assert_eq!(kept(&f, one).await.len(), 1);
    assert_eq!(kept(&f, two).await[0].signal, signal(2));
}

pub async fn i2_a_signal_id_is_received_once(f: Fixture) {
    let job = f.pending().await;
    f.ok(receive(&f, job, signal(1), "first")).await;
    let before = kept(&f, job).await;
    f.advance(Span::from_secs(1));
    f.ok(receive(&f, job, signal(1), "second")).await;
    assert_eq!(kept(&f, job).await, before);
}

pub async fn i2_a_consumed_signal_is_not_received_again(f: Fixture) {
    let job = f.pending().await;
    f.ok(receive(&f, job, signal(1), "k")).await;
    let mut unit = outside(&f, job, Purpose::Signal);
    unit.inbox.push(InboxWrite::Consume(signal(1)));
    f.ok(unit).await;
    f.ok(receive(&f, job, signal(1), "k")).await;
    assert_eq!(kept(&f, job).await, []);
}

pub async fn i3_a_signal_is_consumed_once(f: Fixture) {
    let job = f.pending().await;
    f.ok(receive(&f, job, signal(1), "k")).await;
    let consume = || {
        let mut unit = outside(&f, job, Purpose::Signal);
        unit.inbox.push(InboxWrite::Consume(signal(1)));
        unit
    };
    f.ok(consume()).await;
    let before = snapshot::of_job(f.store(), job).await;
    invalid(f.store().commit(consume()).await);
    assert_eq!(snapshot::of_job(f.store(), job).await, before);
}

pub async fn i3_what_never_came_is_not_consumed(f: Fixture) {
    let run = f.running().await;
    let draft = f.of(run, Purpose::Signal).await.step("w", Json::null());
    let unit = draft.with(|unit| unit.inbox.push(InboxWrite::Consume(signal(1)))).done();
    let before = snapshot::of_job(f.store(), run.job).await;
    invalid(f.store().commit(unit).await);
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before);
}

pub async fn i3_a_unit_may_receive_and_consume(f: Fixture) {
    let job = f.pending().await;
    let mut unit = receive(&f, job, signal(1), "k");
    unit.inbox.push(InboxWrite::Consume(signal(1)));
    f.ok(unit).await;
    assert_eq!(kept(&f, job).await, []);
}

pub async fn i4_a_job_does_not_block_while_its_signal_is_kept(f: Fixture) {
    let run = f.running().await;
    f.ok(receive(&f, run.job, signal(1), "k")).await;
    let unit = f.of(run, Purpose::Block).await.wait("w", "k", WaitType::Signal, false).done();
    let before = snapshot::of_job(f.store(), run.job).await;
    assert_eq!(f.refused(unit).await, Refusal::SignalKept("k".to_owned()));
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before);
}

pub async fn i4_signals_that_are_known_hold_nothing_up_and_one_more_does(f: Fixture) {
    let run = f.running().await;
    for number in 1..=2 {
        f.ok(receive(&f, run.job, signal(number), "k")).await;
    }
    for (count, fits) in [(1, false), (3, false), (2, true)] {
        let mut unit = f.of(run, Purpose::Block).await.wait("w", "k", WaitType::Signal, false).done();
        unit.expected_signals = vec![ExpectedSignals { count, key: "k".to_owned() }];
        if fits {
            f.ok(unit).await;
        } else {
            assert_eq!(f.refused(unit).await, Refusal::SignalKept("k".to_owned()), "{count}");
        }
    }
}

pub async fn i4_other_keys_other_jobs_and_delivered_signals_do_not_matter(f: Fixture) {
    let run = f.running().await;
    let other = f.pending().await;
    f.ok(receive(&f, other, signal(1), "k")).await;
    f.ok(receive(&f, run.job, signal(2), "K")).await;
    f.ok(receive(&f, run.job, signal(3), "k")).await;
    let mut unit = outside(&f, run.job, Purpose::Signal);
    unit.inbox.push(InboxWrite::Consume(signal(3)));
    f.ok(unit).await;
    f.ok(f.of(run, Purpose::Block).await.wait("w", "k", WaitType::Signal, false).done()).await;
    let waiting = f.store().job(Scope::System, run.job).await.unwrap().unwrap().waiting.unwrap();
    assert_eq!((waiting.correlation_key.as_deref(), waiting.node.to_string().as_str()), (Some("k"), "w"));
}

fn wait_timer(node: &str) -> TimerId {
    TimerId::Wait(StepPath::from(node))
}

pub async fn i5_a_timers_length_is_counted_from_now(f: Fixture) {
    let run = f.running().await;
    let set = TimerSet { after_us: 5_000_000, timer: TimerId::Deadline };
    f.advance(Span::from_secs(3));
    let at = f.ok(f.of(run, Purpose::Record).await.event(set).done()).await.at;
    let expected = TimerRow { due: at.after(Span::from_secs(5)), job: run.job, timer: TimerId::Deadline };
    assert_eq!(f.store().timers(Scope::System, run.job).await.unwrap(), [expected]);
}

pub async fn i5_timers_are_set_moved_and_cleared(f: Fixture) {
    let job = f.pending().await;
    let now = f.now().await;
    let set = |timer: TimerId, after: u64| TimerChange::Set { due: Due::At(now.after(Span::from_secs(after))), timer };
    let mut unit = outside(&f, job, Purpose::Timer);
    unit.timers = vec![set(TimerId::Deadline, 9), set(wait_timer("a"), 4), set(TimerId::Doubt(StepPath::from("a")), 5)];
    f.ok(unit).await;
    let mut unit = outside(&f, job, Purpose::Timer);
    unit.timers =
        vec![set(TimerId::Deadline, 1), TimerChange::Cleared(wait_timer("a")), TimerChange::Cleared(wait_timer("b"))];
    f.ok(unit).await;
    let rows = f.store().timers(Scope::System, job).await.unwrap();
    let rows: Vec<_> = rows.into_iter().map(|row| (row.due.since(now).micros() / 1_000_000, row.timer)).collect();
    assert_eq!(rows, [(1, TimerId::Deadline), (5, TimerId::Doubt(StepPath::from("a")))]);
}

pub async fn i5_a_job_that_ends_has_no_timers_left(f: Fixture) {
    let deadline = Some(Span::from_secs(60));
    let job = f.create(&super::Message { deadline, ..f.message() }).await;
    let run = f.take(job).await;
    assert_eq!(f.store().timers(Scope::System, job).await.unwrap().len(), 1);
    f.ok(f.of(run, Purpose::Finish).await.complete().done()).await;
    assert_eq!(f.store().timers(Scope::System, job).await.unwrap(), []);
    assert_eq!(f.store().due_timers(None, 8).await.unwrap().next, None);
}

pub async fn i6_a_timer_is_due_from_its_moment_on(f: Fixture) {
    let deadline = Span::from_secs(60);
    let job = f.create(&super::Message { deadline: Some(deadline), ..f.message() }).await;
    let due = f.now().await.after(deadline);
    f.advance(deadline.minus(TICK));
    let answer = f.store().due_timers(None, 8).await.unwrap();
    assert_eq!((answer.timers, answer.next, answer.now.after(TICK)), (Vec::new(), Some(due), due));
    f.advance(TICK);
    let answer = f.store().due_timers(None, 8).await.unwrap();
    assert_eq!((answer.timers, answer.next), (vec![TimerRow { due, job, timer: TimerId::Deadline }], None));
}

pub async fn i6_due_timers_come_oldest_first_and_bounded(f: Fixture) {
    let (one, two) = (f.pending().await, f.pending().await);
    let now = f.now().await;
    let at = |seconds: u64| now.after(Span::from_secs(seconds));
    let set = |timer, seconds| TimerChange::Set { due: Due::At(at(seconds)), timer };
    let mut unit = outside(&f, two, Purpose::Timer);
    unit.timers = vec![set(TimerId::Deadline, 1), set(wait_timer("z"), 3), set(wait_timer("late"), 10)];
    f.ok(unit).await;
    let mut unit = outside(&f, one, Purpose::Timer);
    unit.timers = vec![set(wait_timer("b"), 3), set(wait_timer("a"), 3), set(wait_timer("later"), 20)];
    f.ok(unit).await;
    f.advance(Span::from_secs(5));
    let row = |job, timer, seconds| TimerRow { due: at(seconds), job, timer };
    let expected = [
        row(two, TimerId::Deadline, 1),
        row(one, wait_timer("a"), 3),
        row(one, wait_timer("b"), 3),
        row(two, wait_timer("z"), 3),
    ];
    let answer = f.store().due_timers(None, 8).await.unwrap();
    assert_eq!((answer.timers.as_slice(), answer.next), (expected.as_slice(), Some(at(10))));
    for limit in [0, 2] {
        let answer = f.store().due_timers(None, limit).await.unwrap();
        assert_eq!((answer.timers.as_slice(), answer.next), (&expected[..limit], Some(at(10))));
    }
    // Page by page, each after the last one of the page before.
    for (place, row) in expected.iter().enumerate() {
        let answer = f.store().due_timers(Some(row.clone()), 8).await.unwrap();
        assert_eq!((answer.timers.as_slice(), answer.next), (&expected[place + 1..], Some(at(10))));
    }
}

pub async fn i5_a_jobs_timers_come_by_moment_and_then_by_name(f: Fixture) {
    let job = f.pending().await;
    let now = f.now().await;
    let mut unit = outside(&f, job, Purpose::Timer);
    let set = |name: &str, seconds| {
        let due = Due::At(now.after(Span::from_secs(seconds)));
        TimerChange::Set { due, timer: wait_timer(name) }
    };
    unit.timers = vec![set("c", 2), set("a", 3), set("d", 1), set("b", 2), set("e", 2)];
    f.ok(unit).await;
    let names: Vec<TimerId> =
        f.store().timers(Scope::System, job).await.unwrap().into_iter().map(|row| row.timer).collect();
    assert_eq!(names, ["d", "b", "c", "e", "a"].map(wait_timer));
}

pub async fn i6_a_page_of_due_timers_is_bounded(f: Fixture) {
    let job = f.pending().await;
    let due = Due::At(f.now().await);
    let mut unit = outside(&f, job, Purpose::Timer);
    unit.timers =
        (0..=limits::SWEEP_ROWS_MAX).map(|n| TimerChange::Set { due, timer: wait_timer(&format!("n{n}")) }).collect();
    f.ok(unit).await;
    let first = f.store().due_timers(None, usize::MAX).await.unwrap().timers;
    assert_eq!(first.len(), limits::SWEEP_ROWS_MAX);
    assert_eq!(f.store().due_timers(first.last().cloned(), usize::MAX).await.unwrap().timers.len(), 1);
}

pub async fn i6_a_fired_timer_is_gone(f: Fixture) {
    let deadline = Some(Span::from_secs(1));
    let job = f.create(&super::Message { deadline, ..f.message() }).await;
    f.advance(Span::from_secs(1));
    let fired = TimerFired { timer: TimerId::Deadline };
    let moment = f.now().await;
    f.ok(f.draft(job, Purpose::Timer, Guard::Due(moment)).await.event(fired).done()).await;
    assert_eq!(f.store().due_timers(None, 8).await.unwrap().timers, []);
    assert_eq!(f.store().timers(Scope::System, job).await.unwrap(), []);
}

pub async fn i7_a_timer_is_not_fired_before_its_moment_whatever_was_listed(f: Fixture) {
    let deadline = Some(Span::from_secs(1));
    let job = f.create(&super::Message { deadline, ..f.message() }).await;
    let stored = f.now().await;
    f.advance(Span::from_secs(1));
    let listed = f.store().due_timers(None, 8).await.unwrap();
    assert_eq!(listed.timers.len(), 1);
    // Nothing was stored at the moment of the list: the clock can be set back behind it.
    f.clock.set_wall(stored);
    let due = listed.timers[0].due;
    let fired = TimerFired { timer: TimerId::Deadline };
    let unit = f.draft(job, Purpose::Timer, Guard::Due(due)).await.event(fired).done();
    assert_eq!(f.refused(unit.clone()).await, Refusal::Guard(GuardRefusal::NotDue(due)));
    f.clock.set_wall(due);
    assert_eq!(f.ok(unit).await.at, due);
}
