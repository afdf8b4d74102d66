//! Two stores on one file, as two processes have it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aetheris_core::id::{InstanceId, JobId, WorkerId};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_store::system::{Clock, SystemClock};
use aetheris_store::{
    Boxed, ClaimRequest, FileHealth, Health, Heartbeat, LeaseRenewal, Purpose, Renewal, Scope, Store, WriterHealth,
};
use aetheris_store_conformance::fixture::stands;
use aetheris_store_conformance::{Fixture, Harness, Opened, Run};
use aetheris_store_sqlite::SqliteStore;

use crate::folder::{At, Folder, options};

/// A store on a folder that others have open as well.
struct Shared(Arc<Folder>);

impl Harness for Shared {
    fn open(&self, _: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let store = SqliteStore::open(options(&self.0, Arc::new(SystemClock))).unwrap();
        Box::pin(std::future::ready(Opened { keep: Box::new(Arc::clone(&self.0)), store: Arc::new(store) }))
    }
}

async fn work(fixture: Arc<Fixture>, store: Arc<dyn Store>, number: u128, jobs: usize) -> Vec<JobId> {
    let mut done = Vec::new();
    while done.len() < jobs {
        let mut request = fixture.request(7);
        request.instance = InstanceId::from_u128(number);
        request.worker = WorkerId::new(format!("worker {number}"));
        request.linger = Span::from_millis(200);
        let claimed = store.claim(request).await.unwrap();
        if claimed.is_empty() {
            return done;
        }
        for claimed in claimed {
            let run = Run { fence: claimed.fence, job: claimed.job };
            let unit = fixture.of(run, Purpose::Finish).await.step("a", Json::null()).complete().done();
            store.commit(unit).await.unwrap();
            done.push(run.job);
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stores_share_a_file_without_a_double_claim_or_a_gap() {
    let folder = Arc::new(Folder::new());
    let fixture = Arc::new(Fixture::open(&Shared(Arc::clone(&folder))).await);
    let second = Shared(folder).open(Arc::new(SystemClock)).await;
    let mut jobs = Vec::new();
    for _ in 0..120 {
        jobs.push(fixture.pending().await);
    }
    let tasks: Vec<_> = [fixture.shared(), Arc::clone(&second.store), fixture.shared(), Arc::clone(&second.store)]
        .into_iter()
        .zip(1u128..)
        .map(|(store, number)| tokio::spawn(work(Arc::clone(&fixture), store, number, jobs.len())))
        .collect();
    let mut claims: BTreeMap<JobId, usize> = BTreeMap::new();
    for task in tasks {
        for job in task.await.unwrap() {
            *claims.entry(job).or_insert(0) += 1;
        }
    }
    assert!(claims.values().all(|count| *count == 1), "a job was claimed twice");
    assert_eq!(claims.len(), jobs.len());
    for job in jobs {
        let history = second.store.history(Scope::System, job, true).await.unwrap().unwrap();
        let places: Vec<u64> = history.events.iter().map(|event| event.seq).collect();
        assert_eq!(places, (1..=history.row.seq).collect::<Vec<_>>());
        assert_eq!(history.row.fence.epoch, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standing_claim_sees_what_another_store_has_written() {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::open(&Shared(Arc::clone(&folder))).await;
    let second = Shared(folder).open(Arc::new(SystemClock)).await;
    let mut request = fixture.request(1);
    request.linger = Span::from_secs(20);
    let behind = ClaimRequest { linger: Span::ZERO, ..fixture.request(1) };
    let mut claim = second.store.claim(request);
    stands(&mut claim).await;
    assert!(second.store.claim(behind).await.unwrap().is_empty());
    let job = fixture.pending().await;
    assert_eq!(claim.await.unwrap().first().map(|claimed| claimed.job), Some(job));
}

/// Comes back when a writer waits for its turn on this file. One that only looks whether others wait has the lock for an
/// instant too, once before its transaction: so the lock is refused twice, and free of such a look in between.
async fn waits(turn: &std::fs::File) {
    loop {
        let refused = turn.try_lock().is_err();
        let waits = refused && turn.try_lock_shared().is_ok() && turn.try_lock().is_err();
        turn.unlock().unwrap();
        if waits {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// A lease is counted from when it was asked for, however long the answer took.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_had_to_wait_for_another_process_counts_from_before_it_waited() {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&folder))).await;
    let job = fixture.pending().await;
    let other = rusqlite::Connection::open(folder.database()).unwrap();
    let turn = std::fs::File::options().read(true).write(true).open(folder.path().join("aetheris.db-turn")).unwrap();
    let held_up = async || {
        waits(&turn).await;
        fixture.advance(Span::from_secs(5));
        other.execute_batch("ROLLBACK").unwrap();
    };
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (store, request) = (fixture.shared(), fixture.request(1));
    let claim = tokio::spawn(async move { store.claim(request).await.unwrap() });
    held_up().await;
    let claimed = claim.await.unwrap().pop().unwrap();
    assert_eq!((claimed.job, claimed.sent_at), (job, Duration::ZERO));
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = fixture.shared();
    let leases = vec![LeaseRenewal { fence: claimed.fence, job }];
    let request = Heartbeat { leases, ttl: Span::from_secs(30), worker: aetheris_store_conformance::fixture::worker() };
    let renewal = tokio::spawn(async move { store.heartbeat(request).await.unwrap() });
    held_up().await;
    let sent_at = Duration::from_secs(5);
    assert_eq!(renewal.await.unwrap(), [Renewal::Renewed { end_requested: false, job, sent_at }]);
}

#[tokio::test]
async fn a_writer_that_waits_for_another_process_is_silent_and_then_answers_again() {
    let folder = Folder::new();
    let store = SqliteStore::open(options(&folder, Arc::new(SystemClock))).unwrap();
    assert_eq!(store.health().await.unwrap().writer, WriterHealth::Answers);
    let other = rusqlite::Connection::open(folder.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(store.health().await.unwrap().writer, WriterHealth::Silent(limits::HEALTH_PATIENCE));
    other.execute_batch("ROLLBACK").unwrap();
    let health = store.health().await.unwrap();
    let clock_ahead = health.clock_ahead;
    assert_eq!(health, Health { clock_ahead, file: Some(FileHealth::AsOpened), ..Health::good() });
}
