//! Rows that cannot be read hold up no others, and no transaction is longer for the number of rows that wait for it.

use std::sync::Arc;

use aetheris_core::event::{TimerId, TimerSet};
use aetheris_core::limits;
use aetheris_core::plan::WaitType;
use aetheris_core::time::Span;
use aetheris_store::conformance::{Fixture, Message};
use aetheris_store::{JobFilter, Purpose};

use crate::folder::{At, Folder};

/// A store, and a hand that writes past it.
async fn opened() -> (Fixture, rusqlite::Connection) {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&folder))).await;
    let hand = rusqlite::Connection::open(folder.database()).unwrap();
    hand.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    (fixture, hand)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_that_cannot_be_read_hold_up_no_other() {
    let (fixture, hand) = opened().await;
    for _ in 0..3 {
        let run = fixture.running().await;
        let timer = TimerSet { after_us: 1_000_000, timer: TimerId::Wait("w".into()) };
        let unit = fixture.of(run, Purpose::Block).await.wait("w", "key", WaitType::Human, true).event(timer).done();
        fixture.ok(unit).await;
    }
    fixture.advance(Span::from_secs(2));
    let first = "UPDATE timers SET timer = 'later:w' WHERE job IN (SELECT job FROM timers ORDER BY due, job LIMIT 2)";
    assert_eq!(hand.execute(first, []).unwrap(), 2);
    for limit in [1, 2, 8] {
        let due = fixture.store().due_timers(None, limit).await.unwrap();
        assert_eq!(due.timers.len(), 1, "{limit}");
        let last = due.timers.last().cloned();
        assert_eq!(fixture.store().due_timers(last, limit).await.unwrap().timers, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_cannot_be_read_costs_nobody_a_claim_or_a_list() {
    let (fixture, hand) = opened().await;
    let broken = fixture.pending().await;
    let other = fixture.pending().await;
    hand.execute("UPDATE jobs SET labels = 'nonsense' WHERE id = ?1", [&broken.to_bytes()[..]]).unwrap();
    let listed = fixture.store().jobs(JobFilter { limit: 9, ..JobFilter::default() }).await.unwrap();
    assert_eq!(listed.jobs.iter().map(|row| row.id).collect::<Vec<_>>(), [other]);
    assert_eq!(fixture.claim_ids(1).await, []);
    assert_eq!(fixture.claim_ids(1).await, [other]);
    // It is tried again, and found when it can be read.
    hand.execute("UPDATE jobs SET labels = NULL WHERE id = ?1", [&broken.to_bytes()[..]]).unwrap();
    assert_eq!(fixture.claim_ids(1).await, []);
    fixture.advance(limits::SWEEP_BACKOFF_MAX);
    assert_eq!(fixture.claim_ids(1).await, [broken]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_due_at_one_moment_come_in_bounded_transactions() {
    const JOBS: usize = 1_300;
    let (fixture, _hand) = opened().await;
    let at = fixture.now().await.after(Span::from_secs(10));
    for _ in 0..JOBS {
        fixture.create(&Message { run_at: Some(at), ..fixture.message() }).await;
    }
    fixture.advance(Span::from_secs(20));
    let rows = async || fixture.store().status().await.unwrap().writer.rows;
    let before = rows().await;
    assert_eq!(fixture.claim_ids(1).await.len(), 1);
    let changed = usize::try_from(rows().await - before).unwrap();
    assert!(changed <= limits::WRITER_BATCH_MAX + 8, "{changed} rows in one transaction");
    let mut claimed = 1;
    while claimed < JOBS {
        let found = fixture.claim_ids(100).await.len();
        assert!(found > 0, "{claimed}");
        claimed += found;
    }
}
