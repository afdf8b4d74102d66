//! Many units in one transaction.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::RequeueReason;
use aetheris_core::id::{JobId, PermitId, SignalId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::plan::EffectClass;
use aetheris_store::unit::{InboxWrite, UnitOfWork};
use aetheris_store::{ClaimRequest, Claimed, CommitError, ErrorKind, LeaseChange, Purpose, Scope, StoreError};
use aetheris_store_conformance::fencing::evidence;
use aetheris_store_conformance::fixture::stands;
use aetheris_store_conformance::{Fixture, Message, Run};

use crate::folder::{At, Folder, Folders};

async fn runs(fixture: &Fixture, count: usize) -> Vec<Run> {
    for _ in 0..count {
        fixture.pending().await;
    }
    let claimed = fixture.claim(count).await;
    assert_eq!(claimed.len(), count);
    claimed.into_iter().map(|claimed| Run { fence: claimed.fence, job: claimed.job }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_unit_among_many_is_refused_alone() {
    let fixture = Fixture::open(&Folders).await;
    let runs = runs(&fixture, 64).await;
    let mut units = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let mut unit = fixture.of(*run, Purpose::Record).await.step("a", Json::null()).done();
        match number % 8 {
            3 => unit.expected_seq = Some(99),
            // A fault of its author: a running job that nobody would hold.
            5 => unit.lease = LeaseChange::Release,
            _ => {}
        }
        units.push(unit);
    }
    let tasks: Vec<_> = units
        .into_iter()
        .map(|unit| {
            let store = fixture.shared();
            tokio::spawn(async move { store.commit(unit).await })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        let answer = task.await.unwrap();
        match number % 8 {
            3 => assert!(matches!(answer, Err(CommitError::Refused(_))), "{answer:?}"),
            5 => assert!(matches!(&answer, Err(CommitError::Failed(e)) if e.kind == ErrorKind::Invalid), "{answer:?}"),
            _ => assert!(answer.is_ok(), "{answer:?}"),
        }
    }
    for (number, run) in runs.iter().enumerate() {
        let seq = fixture.store().job(Scope::System, run.job).await.unwrap().unwrap().seq;
        assert_eq!(seq, if matches!(number % 8, 3 | 5) { 3 } else { 5 }, "job {number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_claimed_by_a_standing_claim_in_the_commit_that_creates_it() {
    let fixture = Fixture::open(&Folders).await;
    let mut request = fixture.request(1);
    request.linger = aetheris_core::time::Span::from_secs(20);
    let store = fixture.shared();
    let mut claim = store.claim(request);
    stands(&mut claim).await;
    // It has looked once another claim behind it has been answered.
    assert!(fixture.claim(1).await.is_empty());
    let before = fixture.store().status().await.unwrap().writer;
    let job = fixture.pending().await;
    let claimed = claim.await.unwrap();
    assert_eq!(claimed.first().map(|claimed| claimed.job), Some(job));
    let after = fixture.store().status().await.unwrap().writer;
    assert_eq!((after.commits - before.commits, after.units - before.units), (1, 1));
}

/// A claim that would wait for a minute.
fn patient(fixture: &Fixture) -> ClaimRequest {
    ClaimRequest { linger: aetheris_core::time::Span::from_secs(60), ..fixture.request(1) }
}

/// Such a claim gets this job long before.
async fn woken(claim: impl Future<Output = Result<Vec<Claimed>, StoreError>>, job: JobId) {
    let begun = tokio::time::Instant::now();
    let claimed = claim.await.unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.job).collect::<Vec<_>>(), [job]);
    assert!(begun.elapsed() < Duration::from_secs(30), "it was not woken");
}

/// Nobody stood there when it was made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_lingers_gets_a_job_that_was_there_before_at_once() {
    let fixture = Fixture::open(&Folders).await;
    // All have looked in vain, and nobody else has written since.
    for _ in 0..3 {
        assert!(fixture.claim(1).await.is_empty());
    }
    let job = fixture.pending().await;
    woken(fixture.store().claim(patient(&fixture)), job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_lingers_gets_a_delayed_job_at_its_moment_whenever_that_was_made() {
    let moment = aetheris_core::time::Span::from_secs(10);
    for opened_again in [false, true] {
        let mut fixture = Fixture::open(&Folders).await;
        let run_at = Some(fixture.now().await.after(moment));
        let delayed = Message { run_at, ..fixture.message() };
        let creation = fixture.creation(&delayed);
        if opened_again {
            fixture.ok(creation.clone()).await;
            fixture = fixture.reopen(&Folders).await;
        }
        let store = fixture.shared();
        let mut claim = store.claim(patient(&fixture));
        stands(&mut claim).await;
        // Those behind it are answered: it has looked in vain, and nobody else has written since.
        for _ in 0..3 {
            assert!(fixture.claim(1).await.is_empty());
        }
        if !opened_again {
            fixture.ok(creation).await;
        }
        fixture.advance(moment);
        woken(claim, delayed.job).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_requester_has_gone_takes_nothing() {
    let fixture = Fixture::open(&Folders).await;
    let mut request = fixture.request(1);
    request.linger = aetheris_core::time::Span::from_secs(20);
    let store = fixture.shared();
    let mut claim = store.claim(request);
    stands(&mut claim).await;
    assert!(fixture.claim(1).await.is_empty());
    drop(claim);
    let job = fixture.pending().await;
    assert_eq!(fixture.claim_ids(1).await, [job]);
}

/// Each takes a place in the writer's queue and gives it back: else a process stands still for ever after as many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_has_room_for_any_number_of_claims_one_after_the_other() {
    let folder = Arc::new(Folder::in_memory());
    let fixture = Fixture::open(&At(folder)).await;
    for _ in 0..limits::WRITER_QUEUE_MAX + 10 {
        assert!(fixture.claim(1).await.is_empty());
    }
    fixture.pending().await;
    assert_eq!(fixture.claim(1).await.len(), 1);
}

/// What an operator sees of a store's writes: rows, and bytes of about the size of what was given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writer_counts_the_rows_and_the_bytes_that_it_writes() {
    let fixture = Fixture::open(&Folders).await;
    let count = async || fixture.store().status().await.unwrap().writer;
    let written = async |unit| {
        let before = count().await;
        fixture.ok(unit).await;
        let after = count().await;
        (after.rows - before.rows, after.bytes - before.bytes)
    };
    let outside =
        |run, purpose| UnitOfWork { guard: Guard::Outside, expected_seq: None, ..fixture.plain(run, purpose) };
    let text = |bytes| Json::new("x".repeat(bytes).into());
    let [few, many] = [10, 1_010];
    let mut grown = Vec::new();
    for size in [few, many] {
        let message = fixture.message();
        let labels = [("key".to_owned(), "x".repeat(size))].into();
        let created = written(fixture.creation(&Message { labels, ..message })).await.1;
        let before = count().await;
        let run = fixture.claim(1).await.into_iter().map(|c| Run { fence: c.fence, job: c.job }).next().unwrap();
        let claimed = count().await.bytes - before.bytes;
        assert!((200..400).contains(&claimed), "an event and its row: {claimed}");
        let (rows, step) = written(fixture.of(run, Purpose::Record).await.step("a", text(size)).done()).await;
        assert_eq!(rows, 3, "two events and the job's row");
        written(fixture.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
        let (rows, effect) = written(fixture.of(run, Purpose::Record).await.committed("c", text(size)).done()).await;
        assert_eq!(rows, 6, "three events, the ledger's row, the effect and the job's row");
        let mut unit = outside(run, Purpose::Deposit);
        unit.evidence
            .push(aetheris_store::Evidence { outcome: text(size), ..evidence(PermitId::from_u128(size as u128)) });
        let late = written(unit).await.1;
        let mut unit = outside(run, Purpose::Signal);
        let signal = SignalId::from_u128(size as u128);
        unit.inbox.push(InboxWrite::Receive {
            delivered: false,
            key: "k".into(),
            payload: text(size),
            signal,
            wait_type: None,
        });
        let kept = written(unit).await.1;
        grown.push([created, step, effect, late, kept]);
        fixture.ok(fixture.of(run, Purpose::Record).await.complete().done()).await;
    }
    let more = u64::try_from(many - few).unwrap();
    // A label is in an event and in a row of its own.
    for (times, (small, large)) in [2, 1, 1, 1, 1].into_iter().zip(grown[0].iter().zip(grown[1])) {
        assert!((times * more..(times + 1) * more).contains(&(large - small)), "{grown:?}");
    }
}

/// A statement that may change a column opens every index of it first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_leaves_a_jobs_row_as_it_was_touches_no_index_of_it() {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&folder))).await;
    let run = fixture.running().await;
    let hand = rusqlite::Connection::open(folder.database()).unwrap();
    hand.busy_timeout(Duration::from_secs(5)).unwrap();
    let trigger = "CREATE TABLE touched (num); CREATE TRIGGER touched AFTER UPDATE OF status ON jobs
        BEGIN INSERT INTO touched VALUES (new.num); END";
    hand.execute_batch(trigger).unwrap();
    let touched = || hand.query_row("SELECT count(*) FROM touched", [], |row| row.get::<_, u32>(0)).unwrap();
    fixture.ok(fixture.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    assert_eq!(touched(), 0);
    fixture.ok(fixture.of(run, Purpose::Requeue).await.requeue(RequeueReason::Draining, None).done()).await;
    assert_eq!(touched(), 1, "it was given back");
}
