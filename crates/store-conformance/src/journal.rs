//! J: the journal.

use aetheris_core::chain::Header;
use aetheris_core::event::{
    EncodedEvent, Event, EventKind, JobCancelled, JobClaimed, JobFailed, PlanGenerated, RequeueReason,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AttemptId, IdempotencyKey, JobId, PermitId, SignalId};
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard, GuardRefusal};
use aetheris_core::ledger::{LedgerRefusal, LedgerTrigger, Settle};
use aetheris_core::plan::EffectClass;
use aetheris_core::projection::{Projection, TimerChange};
use aetheris_core::time::{Due, Span, Timestamp};

use super::fencing::evidence;
use super::fixture::{TTL, instance, invalid, worker};
use super::{Fixture, Message, Run, snapshot};
use aetheris_store::unit::{
    Checkpoint, ClientKey, ExpectedSignals, InboxWrite, LedgerWrite, NewEffect, Purpose, UnitOfWork,
};
use aetheris_store::{CommitError, EventRow, Refusal, Scope::System};

/// A job with units, claims and a release behind it.
async fn worked(f: &Fixture) -> JobId {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    f.advance(super::fixture::TTL);
    f.reclaim(run).await;
    let run = f.take(run.job).await;
    f.ok(f.of(run, Purpose::Finish).await.step("b", Json::null()).complete().done()).await;
    run.job
}

pub async fn j1_places_are_dense_over_units_and_claims(f: Fixture) {
    let job = worked(&f).await;
    let rows = snapshot::events(f.store(), job).await;
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), (1..=rows.len() as u64).collect::<Vec<_>>());
    let kinds: Vec<_> = rows.iter().map(|row| row.kind_name()).collect();
    let expected = "job_created plan_generated job_claimed node_started node_finished job_requeued job_claimed \
                    node_started node_finished job_completed";
    assert_eq!(kinds.join(" "), expected);
    assert_eq!(f.store().job(System, job).await.unwrap().unwrap().seq, rows.len() as u64);
}

pub async fn j1_one_of_sixteen_units_with_one_expectation_is_accepted(f: Fixture) {
    let run = f.running().await;
    let mut units = Vec::new();
    for writer in 0..16 {
        units.push(f.of(run, Purpose::Record).await.step(&format!("n{writer}"), Json::null()).done());
    }
    let write = |unit| {
        let store = f.shared();
        tokio::spawn(async move { store.commit(unit).await })
    };
    let tasks: Vec<_> = units.into_iter().map(write).collect();
    let mut accepted = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => accepted += 1,
            Err(CommitError::Refused(Refusal::Sequence { expected: 3, actual: 5 })) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(accepted, 1);
    assert_eq!(snapshot::events(f.store(), run.job).await.len(), 5);
}

/// The chain as it follows from what is stored.
pub(super) fn verify(job: JobId, rows: &[EventRow]) -> Hash {
    rows.iter().fold(Hash::ZERO, |previous, row| {
        assert_eq!(Hash::of(&row.payload), row.payload_hash, "payload of event {}", row.seq);
        let header = Header {
            job,
            seq: row.seq,
            id: row.id,
            kind: row.kind,
            schema_version: row.schema_version,
            fence: row.fence,
            at: row.at,
            payload_hash: row.payload_hash,
        };
        assert_eq!(header.chain(&previous), row.hash, "chain of event {}", row.seq);
        row.hash
    })
}

pub async fn j3_the_chain_verifies_from_stored_bytes(f: Fixture) {
    let job = worked(&f).await;
    let rows = snapshot::events(f.store(), job).await;
    assert!(rows.iter().any(|row| row.kind == EventKind::JobClaimed.code()));
    let head = verify(job, &rows);
    assert_eq!(f.store().job(System, job).await.unwrap().unwrap().head, head);
}

pub async fn j1_sixteen_jobs_are_written_at_once_each_in_order(f: Fixture) {
    let mut runs = Vec::new();
    for _ in 0..16 {
        runs.push(f.running().await);
    }
    let mut tasks = Vec::new();
    for run in &runs {
        let (mut units, mut draft) = (Vec::new(), f.of(*run, Purpose::Record).await);
        for n in 0..8 {
            let state = draft.state.clone();
            draft = super::Draft::new(f.plain(*run, Purpose::Record), state, f.ids.clone());
            draft.unit.id = f.ids.event();
            draft = draft.step(&format!("n{n}"), Json::null());
            units.push(draft.clone().done());
        }
        let store = f.shared();
        tasks.push(tokio::spawn(async move {
            for unit in units {
                store.commit(unit).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for run in runs {
        let rows = snapshot::events(f.store(), run.job).await;
        assert_eq!(rows.len(), 3 + 16);
        assert_eq!(verify(run.job, &rows), f.store().job(System, run.job).await.unwrap().unwrap().head);
    }
}

pub async fn j1_a_unit_that_has_not_seen_everything_is_refused(f: Fixture) {
    let run = f.running().await;
    let mut unit = f.of(run, Purpose::Record).await.step("a", Json::null()).done();
    for expected in [0, 2, 4, u64::MAX >> 1] {
        unit.expected_seq = Some(expected);
        assert_eq!(f.refused(unit.clone()).await, Refusal::Sequence { expected, actual: 3 });
    }
    unit.expected_seq = Some(3);
    assert_eq!(f.ok(unit).await.seq, 5);
}

/// A unit that changes every table, on a job of [`super::fencing::busy`].
async fn everything(f: &Fixture, run: Run) -> UnitOfWork {
    let mut unit = f.of(run, Purpose::Record).await.committed("c", Json::null()).done();
    unit.checkpoint = Some(Checkpoint::from_bytes(unit.expected_seq.unwrap(), b"{}".to_vec()));
    unit.evidence.push(evidence(PermitId::from_u128(1)));
    unit.inbox.push(InboxWrite::Receive {
        delivered: false,
        key: "k".to_owned(),
        payload: Json::null(),
        signal: SignalId::from_u128(1),
        wait_type: None,
    });
    let due = Due::After(Span::from_secs(1));
    unit.timers.push(TimerChange::Set { due, timer: aetheris_core::event::TimerId::Deadline });
    unit
}

pub async fn j2_a_refused_unit_changes_nothing(f: Fixture) {
    let run = super::fencing::busy(&f).await;
    f.advance(Span::from_secs(1));
    let before = (snapshot::of_job(f.store(), run.job).await, snapshot::overview(f.store(), &[instance()]).await);
    let mut unit = everything(&f, run).await;
    let missing = IdempotencyKey::from_u128(404);
    let settle = Settle { key: missing, permit_id: PermitId::from_u128(1), trigger: LedgerTrigger::Commit };
    unit.ledger.push(LedgerWrite::Settle(settle));
    assert_eq!(f.refused(unit).await, Refusal::Ledger(LedgerRefusal::Missing(missing)));
    let after = (snapshot::of_job(f.store(), run.job).await, snapshot::overview(f.store(), &[instance()]).await);
    assert_eq!(after, before);
}

pub async fn j2_a_failed_unit_changes_nothing(f: Fixture) {
    let run = super::fencing::busy(&f).await;
    f.advance(Span::from_secs(1));
    let before = snapshot::of_job(f.store(), run.job).await;
    let mut unit = everything(&f, run).await;
    unit.inbox.push(InboxWrite::Consume(SignalId::from_u128(404)));
    invalid(f.store().commit(unit).await);
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before);
}

pub async fn j2_an_accepted_unit_changes_everything_at_once(f: Fixture) {
    let run = super::fencing::busy(&f).await;
    f.ok(everything(&f, run).await).await;
    let after = snapshot::of_job(f.store(), run.job).await;
    let history = after.full.unwrap();
    assert_eq!((history.effects.len(), history.kept.len(), after.evidence.len(), after.timers.len()), (1, 2, 1, 1));
    assert!(after.folded.unwrap().checkpoint.is_some());
}

pub async fn j3_the_answer_has_the_head_and_the_place(f: Fixture) {
    let run = f.running().await;
    let committed = f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    let last = snapshot::events(f.store(), run.job).await.pop().unwrap();
    assert_eq!((committed.seq, committed.head, committed.at), (last.seq, last.hash, last.at));
    let eventless = f.ok(f.plain(run, Purpose::Record)).await;
    assert_eq!((eventless.seq, eventless.head), (last.seq, last.hash));
}

pub async fn j5_all_events_of_a_unit_have_its_time(f: Fixture) {
    let run = f.running().await;
    f.advance(Span::from_micros(7));
    let at = f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).step("b", Json::null()).done()).await.at;
    assert_eq!(at, f.now().await);
    let rows = snapshot::events(f.store(), run.job).await;
    assert!(rows[3..].iter().all(|row| row.at == at) && rows[2].at < at);
}

pub async fn j5_the_clock_does_not_run_backwards(f: Fixture) {
    let run = f.running().await;
    let at = f.now().await;
    f.clock.set_wall(Timestamp::from_micros(at.micros() - 3_600_000_000));
    assert_eq!(f.now().await, at);
    let committed = f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    assert_eq!(committed.at, at);
    let job = f.pending().await;
    assert_eq!(f.claim(1).await[0].lease_until, at.after(TTL));
    assert_eq!(f.store().job(System, job).await.unwrap().unwrap().created_at, at);
}

pub async fn j5_a_clock_that_was_set_back_goes_on(f: Fixture) {
    let run = f.running().await;
    let at = f.now().await;
    f.clock.set_wall(Timestamp::from_micros(at.micros() - 3_600_000_000));
    f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    // What waits for a second does not wait for an hour: expiry, timers and delays all ask the same clock.
    f.advance(Span::from_secs(10));
    let now = f.now().await;
    assert_eq!(now, at.after(Span::from_secs(9)));
    let committed = f.ok(f.of(run, Purpose::Record).await.step("b", Json::null()).done()).await;
    assert_eq!(committed.at, now);
    f.advance(Span::from_secs(4 * 3600));
    f.advance(Span::from_secs(20 * 3600));
    assert!(f.now().await < at.after(Span::from_secs(24 * 3600)), "they have met at the wall clock");
    assert_eq!(f.store().expired(None, 8).await.unwrap().len(), 1);
}

pub async fn j5_a_wall_clock_that_was_wrong_for_a_moment_moves_nothing(f: Fixture) {
    let run = f.running().await;
    let at = f.now().await;
    f.clock.set_wall(at.after(Span::from_secs(86_400)));
    let committed = f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    assert_eq!(committed.at, at);
    assert_eq!(f.store().expired(None, 8).await.unwrap().len(), 0);
    f.clock.set_wall(at);
    f.advance(Span::from_secs(1));
    assert_eq!(f.now().await, at.after(Span::from_secs(1)));
}

pub async fn j5_events_have_the_fence_of_the_last_claim(f: Fixture) {
    let run = f.running().await;
    f.advance(TTL);
    f.reclaim(run).await;
    let cancelled = f.draft(run.job, Purpose::Cancel, Guard::Outside).await.event(JobCancelled {}).done();
    f.ok(cancelled).await;
    let fences: Vec<Fence> = snapshot::events(f.store(), run.job).await.iter().map(|row| row.fence).collect();
    let (none, first) = (Fence { generation: 1, epoch: 0 }, Fence { generation: 1, epoch: 1 });
    assert_eq!(fences, [none, none, first, first, first]);
}

/// The unit's events are replaced by these.
fn raw(f: &Fixture, run: Run, events: &[Event]) -> UnitOfWork {
    let mut unit = f.plain(run, Purpose::Record);
    unit.events = events.iter().map(|event| EncodedEvent::new(f.ids.event(), event)).collect();
    unit.id = unit.events[0].id;
    unit
}

pub async fn j7_what_makes_no_sense_fails_as_invalid(f: Fixture) {
    let run = f.running().await;
    let cancelled = Event::from(JobCancelled {});
    let claimed =
        Event::from(JobClaimed { attempt_id: AttemptId::from_u128(1), instance: instance(), worker: worker() });
    let created = f.creation(&f.message());
    let mut wrong = vec![raw(&f, run, std::slice::from_ref(&cancelled))];
    wrong.push(UnitOfWork {
        expected_seq: Some(3),
        id: f.ids.event(),
        ..raw(&f, run, std::slice::from_ref(&cancelled))
    });
    wrong.push(UnitOfWork { expected_seq: Some(3), ..raw(&f, run, &[claimed]) });
    wrong.push(UnitOfWork { create: None, ..created.clone() });
    wrong.push(UnitOfWork { row: None, ..created.clone() });
    wrong.push(UnitOfWork { expected_seq: Some(1), ..created.clone() });
    wrong.push(UnitOfWork { create: created.create.clone(), expected_seq: Some(0), ..raw(&f, run, &[cancelled]) });
    wrong.push(UnitOfWork { row: None, expected_seq: Some(3), ..raw(&f, run, &[Event::from(planned(f.plan))]) });
    let before = snapshot::of_job(f.store(), run.job).await;
    for unit in wrong {
        invalid(f.store().commit(unit).await);
    }
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before);
    assert_eq!(snapshot::jobs(f.store()).await.len(), 1);
}

fn planned(plan_hash: Hash) -> PlanGenerated {
    PlanGenerated { plan_hash, plan_version: 2, planner: "static".to_owned(), planner_version: "1".to_owned() }
}

pub async fn j8_the_checks_have_an_order(f: Fixture) {
    let run = f.running().await;
    let mut early = f.plain(run, Purpose::Signal);
    early.inbox.push(InboxWrite::Receive {
        delivered: false,
        key: "k".to_owned(),
        payload: Json::null(),
        signal: SignalId::from_u128(1),
        wait_type: None,
    });
    f.ok(early).await;
    f.advance(TTL);
    let permit = f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done().ledger;
    // Everything is wrong with this unit; each check that is satisfied shows the next.
    let large = JobFailed {
        error: aetheris_core::event::Failure { code: String::new(), message: "x".repeat(2 << 20) },
        node: None,
    };
    let mut unit = raw(&f, run, &[Event::from(planned(Hash::of(b"unknown"))), Event::from(large)]);
    let mut row = Projection::of(&f.state(run.job).await, true);
    row.plan_hash = Some(Hash::of(b"unknown"));
    let (key, permit_id) = (IdempotencyKey::from_u128(404), PermitId::from_u128(404));
    unit.row = Some(row);
    unit.guard = Guard::Run(Fence { generation: 1, epoch: 9 });
    unit.ledger = permit;
    unit.expected_signals = vec![ExpectedSignals { count: 0, key: "k".to_owned() }];
    unit.effects = vec![NewEffect { key, permit: 1, permit_id, result: Json::null() }];
    unit.inbox = vec![InboxWrite::Consume(SignalId::from_u128(404))];
    invalid(f.store().commit(unit.clone()).await);
    unit.expected_seq = Some(1);
    let elsewhere = UnitOfWork { job: JobId::from_u128(404), ..unit.clone() };
    assert_eq!(f.refused(elsewhere).await, Refusal::UnknownJob);
    assert!(matches!(f.refused(unit.clone()).await, Refusal::Guard(GuardRefusal::Stale { .. })));
    unit.guard = run.guard();
    assert_eq!(f.refused(unit.clone()).await, Refusal::LeaseExpired);
    let settle = Settle { key, permit_id, trigger: LedgerTrigger::Commit };
    unit.ledger = vec![LedgerWrite::Settle(settle)];
    assert_eq!(f.refused(unit.clone()).await, Refusal::Sequence { expected: 1, actual: 3 });
    unit.expected_seq = Some(3);
    assert_eq!(f.refused(unit.clone()).await, Refusal::UnknownPlan);
    unit.row.as_mut().unwrap().plan_hash = Some(f.plan);
    assert_eq!(f.refused(unit.clone()).await, Refusal::SignalKept("k".to_owned()));
    unit.expected_signals.clear();
    assert_eq!(f.refused(unit.clone()).await, Refusal::Ledger(LedgerRefusal::Missing(key)));
    unit.ledger.clear();
    assert_eq!(f.refused(unit.clone()).await, Refusal::Ledger(LedgerRefusal::Missing(key)));
    unit.effects.clear();
    invalid(f.store().commit(unit.clone()).await);
    unit.inbox.clear();
    assert!(matches!(f.refused(unit.clone()).await, Refusal::Bound { what: "payload bytes", .. }));
    unit.events.pop();
    f.ok(unit).await;
}

pub async fn j8_a_creations_checks_have_an_order(f: Fixture) {
    let client_key = Some(ClientKey { body_hash: Hash::ZERO, key: "k".to_owned() });
    let first = Message { client_key: client_key.clone(), ..f.message() };
    f.create(&first).await;
    let unknown = Message { plan: Some(Hash::of(b"unknown")), client_key, ..f.message() };
    let mut unit = f.creation(&unknown);
    unit.events.extend((0..500).map(|_| EncodedEvent::new(f.ids.event(), &Event::from(JobCancelled {}))));
    let taken = UnitOfWork { job: first.job, ..unit.clone() };
    assert_eq!(f.refused(taken).await, Refusal::Sequence { expected: 0, actual: 2 });
    assert_eq!(f.refused(unit.clone()).await, Refusal::UnknownPlan);
    unit.row.as_mut().unwrap().plan_hash = Some(f.plan);
    assert_eq!(f.refused(unit.clone()).await, Refusal::Duplicate(first.job));
    unit.create.as_mut().unwrap().client_key = None;
    assert!(matches!(f.refused(unit).await, Refusal::Bound { .. }));
}

pub async fn j9_the_row_is_the_units_projection(f: Fixture) {
    let run = f.running().await;
    let failed = JobFailed { error: aetheris_core::event::Failure::new("broken", "it is"), node: Some("a".into()) };
    let unit = f.of(run, Purpose::Finish).await.event(failed).done();
    let projection = unit.row.clone().unwrap();
    f.advance(Span::from_secs(1));
    let at = f.ok(unit).await.at;
    let row = f.store().job(System, run.job).await.unwrap().unwrap();
    assert_eq!((row.status, row.error, row.waiting), (projection.status, projection.error, projection.waiting));
    assert_eq!((row.plan_hash, row.end_requested), (projection.plan_hash, projection.end_requested));
    assert_eq!((row.updated_at, row.not_before), (at, None));
}

pub async fn j9_every_row_equals_its_fold(f: Fixture) {
    let jobs = [worked(&f).await, super::fencing::busy(&f).await.job, f.pending().await];
    let run = f.running_among(jobs[2]).await;
    f.ok(f.of(run, Purpose::Requeue).await.requeue(RequeueReason::Retry, Some(Span::from_secs(2))).done()).await;
    for job in jobs {
        let (state, row) = (f.state(job).await, f.store().job(System, job).await.unwrap().unwrap());
        let folded = Projection::of(&state, false);
        assert_eq!((row.status, row.error, row.waiting), (folded.status, folded.error, folded.waiting));
        assert_eq!((row.plan_hash, row.end_requested), (folded.plan_hash, folded.end_requested));
        assert_eq!(row.not_before.map(Due::At), folded.not_before);
        assert_eq!((row.seq, row.fence, row.created_at), (state.seq, state.fence, state.created_at));
        assert_eq!(row.holder.is_some(), state.owner.is_some());
        let timers = f.store().timers(System, job).await.unwrap().into_iter().map(|row| (row.timer, row.due)).collect();
        assert_eq!(aetheris_core::projection::timers(&state), timers);
    }
}

pub async fn j9_a_unit_without_a_row_leaves_it_but_for_its_time(f: Fixture) {
    let run = f.running().await;
    let before = f.store().job(System, run.job).await.unwrap().unwrap();
    f.advance(Span::from_secs(1));
    let at = f.ok(f.plain(run, Purpose::Record)).await.at;
    let after = f.store().job(System, run.job).await.unwrap().unwrap();
    assert_eq!(after, aetheris_store::JobRow { updated_at: at, ..before });
}

pub async fn j9_a_renewal_is_no_write(f: Fixture) {
    let run = f.running().await;
    let before = f.store().job(System, run.job).await.unwrap().unwrap();
    f.advance(Span::from_secs(1));
    assert!(f.renew(run).await);
    let after = f.store().job(System, run.job).await.unwrap().unwrap();
    assert_eq!((after.updated_at, after.seq, after.head), (before.updated_at, before.seq, before.head));
}

pub(super) fn checkpoint(f: &Fixture, run: Run, seq: u64, state: &str) -> UnitOfWork {
    let mut unit = f.plain(run, Purpose::Record);
    unit.checkpoint = Some(Checkpoint::from_bytes(seq, state.as_bytes().to_vec()));
    unit
}

pub async fn j10_a_history_starts_from_the_newest_checkpoint(f: Fixture) {
    let run = f.running().await;
    f.ok(checkpoint(&f, run, 3, "at three \u{0}")).await;
    f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    let history = f.store().history(System, run.job, false).await.unwrap().unwrap();
    assert_eq!(history.checkpoint, Some(Checkpoint::from_bytes(3, b"at three \x00".to_vec())));
    assert_eq!(history.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [4, 5]);
    let full = f.store().history(System, run.job, true).await.unwrap().unwrap();
    assert_eq!((full.checkpoint, full.events.len()), (None, 5));
}

pub async fn j10_an_older_checkpoint_never_replaces_a_newer_one(f: Fixture) {
    let run = f.running().await;
    f.ok(checkpoint(&f, run, 3, "newer")).await;
    f.ok(checkpoint(&f, run, 2, "older")).await;
    let history = f.store().history(System, run.job, false).await.unwrap().unwrap();
    assert_eq!(history.checkpoint.unwrap().state, b"newer");
}

pub async fn j10_a_checkpoint_may_come_with_its_events(f: Fixture) {
    let run = f.running().await;
    let draft = f.of(run, Purpose::Record).await.step("a", Json::null());
    let state = aetheris_core::json::to_canonical(&draft.state);
    let unit = draft.with(|unit| unit.checkpoint = Some(Checkpoint::from_bytes(5, state.clone()))).done();
    f.ok(unit).await;
    let history = f.store().history(System, run.job, false).await.unwrap().unwrap();
    assert_eq!((history.events.len(), history.checkpoint), (0, Some(Checkpoint::from_bytes(5, state))));
}

pub async fn j10_a_checkpoint_of_another_version_is_as_if_absent(f: Fixture) {
    let run = f.running().await;
    let mut unit = checkpoint(&f, run, 3, "of another build");
    unit.checkpoint.as_mut().unwrap().version += 1;
    f.ok(unit).await;
    let history = f.store().history(System, run.job, false).await.unwrap().unwrap();
    assert_eq!((history.checkpoint, history.events[0].seq), (None, 1));
    f.ok(checkpoint(&f, run, 3, "of this build")).await;
    let history = f.store().history(System, run.job, false).await.unwrap().unwrap();
    assert_eq!(history.checkpoint.map(|read| read.state), Some(b"of this build".to_vec()));
}

pub async fn j11_followers_of_a_job_are_woken(f: Fixture) {
    let job = f.pending().await;
    let mut follower = f.store().bus().follow(job);
    let run = f.take(job).await;
    follower.changed().await;
    f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    follower.changed().await;
    f.ok(f.plain(run, Purpose::Record)).await;
    follower.changed().await;
}

pub async fn j12_a_refused_unit_disturbs_nobody_elses(f: Fixture) {
    let mut tasks = Vec::new();
    for place in 0..48 {
        let run = f.running().await;
        let mut unit = f.of(run, Purpose::Record).await.step("a", Json::null()).done();
        match place % 4 {
            0 => unit.expected_seq = Some(1),
            1 => unit.guard = Guard::Run(Fence { generation: 1, epoch: 9 }),
            2 => unit.inbox.push(InboxWrite::Consume(SignalId::from_u128(404))),
            _ => {}
        }
        tasks.push((place % 4, run.job, unit));
    }
    let commit = |unit| {
        let store = f.shared();
        tokio::spawn(async move { store.commit(unit).await })
    };
    let running: Vec<_> = tasks.into_iter().map(|(kind, job, unit)| (kind, job, commit(unit))).collect();
    for (kind, job, task) in running {
        let answer = task.await.unwrap();
        match kind {
            0 => assert!(matches!(answer, Err(CommitError::Refused(Refusal::Sequence { .. })))),
            1 => assert!(matches!(answer, Err(CommitError::Refused(Refusal::Guard(_))))),
            2 => invalid(answer),
            _ => assert_eq!(answer.unwrap().seq, 5),
        }
        assert_eq!(f.state(job).await.seq, if kind == 3 { 5 } else { 3 });
    }
}
