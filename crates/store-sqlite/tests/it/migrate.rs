//! Databases of earlier builds: they open, and say what they said.

use std::sync::Arc;

use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_store::system::SystemClock;
use aetheris_store::{DoubtFilter, JobFilter, Scope, Store};
use aetheris_store_sqlite::SqliteStore;
use rusqlite::{Connection, params};

use crate::folder::{Folder, options};

/// A database as the first schema leaves it, with one job of each of its statuses, the second of a session.
pub(crate) fn first_schema(folder: &Folder) {
    let conn = Connection::open(folder.database()).unwrap();
    conn.execute_batch(include_str!("../../migrations/0001_init.sql")).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA user_version = 1; PRAGMA application_id = 1634038888;
         INSERT INTO meta (id, generation, clock, clock_offset, clock_boot, pending, running, waiting, parked, completed,
                           failed, cancelled) VALUES (1, 1, 50, 0, 0, 1, 1, 1, 1, 1, 1, 1);
         INSERT INTO event_kinds (code, name) VALUES (1, 'job_created');",
    )
    .unwrap();
    for status in 0i64..7 {
        let held = (status == 1).then_some(status);
        conn.execute(
            "INSERT INTO jobs (num, seq, generation, epoch, status, head, updated_at, ready, lease_until, attempt,
                               instance, worker, end_requested, id, agent, agent_version, priority, session, created_at)
             VALUES (?1, 2, 1, ?2, ?2, zeroblob(32), 50, ?3, ?4, iif(?4 IS NULL, NULL, zeroblob(16)),
                     iif(?4 IS NULL, NULL, zeroblob(16)), iif(?4 IS NULL, NULL, 'w'), ?4, ?5, 'agent', '1', 0, 's', 40)",
            params![status + 3, status, i64::from(status == 0), held, JobId::from_u128(job(status)).to_bytes()],
        )
        .unwrap();
    }
    // Labels, and what cannot be read as such.
    conn.execute("UPDATE jobs SET labels = '{\"team\":\"a\"}' WHERE status = 4", []).unwrap();
    conn.execute("UPDATE jobs SET labels = 'nonsense' WHERE status = 5", []).unwrap();
}

fn job(status: i64) -> u128 {
    u128::from(status.unsigned_abs()) + 1
}

#[tokio::test]
async fn a_database_of_the_first_schema_opens_and_says_what_it_said() {
    let folder = Folder::new();
    first_schema(&folder);
    let store = SqliteStore::open(options(&folder, Arc::new(SystemClock))).unwrap();
    let old = [
        JobStatus::Pending,
        JobStatus::Running,
        JobStatus::Waiting,
        JobStatus::Parked,
        JobStatus::Completed,
        JobStatus::Failed,
        JobStatus::Cancelled,
    ];
    assert_eq!(store.status().await.unwrap().jobs, old.into_iter().map(|status| (status, 1)).collect());
    let label = Some(("team".to_owned(), "a".to_owned()));
    let labelled = store.jobs(JobFilter { label, limit: 9, ..JobFilter::default() }).await.unwrap().jobs;
    assert_eq!(labelled.iter().map(|row| row.status).collect::<Vec<_>>(), [JobStatus::Completed]);
    for (number, status) in (0i64..).zip(old).filter(|(_, status)| *status != JobStatus::Failed) {
        let row = store.job(Scope::System, JobId::from_u128(job(number))).await.unwrap().unwrap();
        assert_eq!((row.status, row.seq, row.paused, row.holder.is_some()), (status, 2, None, number == 1));
        let filter = JobFilter { statuses: vec![status], limit: 9, ..JobFilter::default() };
        let listed: Vec<JobId> = store.jobs(filter).await.unwrap().jobs.iter().map(|row| row.id).collect();
        assert_eq!(listed, [row.id]);
    }
    drop(store);
    let conn = Connection::open(folder.database()).unwrap();
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(number("PRAGMA user_version"), 6);
    // What other tables call a job by is what it was.
    assert_eq!(number("SELECT num FROM jobs WHERE status = 6"), 9);
    assert_eq!(number("SELECT count(*) FROM job_list"), 7);
    assert_eq!(number("SELECT count(*) FROM event_kinds WHERE name = 'job_paused'"), 1);
    assert_eq!(number("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
}

/// A process of the build before does not know the kinds of events that this one writes.
#[test]
fn a_database_that_is_open_elsewhere_is_not_brought_up_to_date() {
    let folder = Folder::new();
    first_schema(&folder);
    let other = Connection::open(folder.database()).unwrap();
    let version = || other.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(version(), 1);
    let refused = SqliteStore::open(options(&folder, Arc::new(SystemClock))).unwrap_err().to_string();
    assert!(refused.contains("another process has it open"), "{refused}");
    assert_eq!(version(), 1);
    drop(other);
    drop(SqliteStore::open(options(&folder, Arc::new(SystemClock))).unwrap());
}

#[test]
fn processes_that_start_together_on_an_earlier_database_all_open_it() {
    let folder = Folder::new();
    first_schema(&folder);
    std::thread::scope(|scope| {
        let opening: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| SqliteStore::open(options(&folder, Arc::new(SystemClock))).map(drop)))
            .collect();
        for opened in opening {
            opened.join().unwrap().unwrap();
        }
    });
}

/// What rows of before do not have is no reason not to list them.
#[tokio::test]
async fn labels_and_calls_of_the_first_schema_are_found() {
    let folder = Folder::new();
    first_schema(&folder);
    let conn = Connection::open(folder.database()).unwrap();
    conn.execute("UPDATE jobs SET labels = '{\"team\":\"a\"}'", []).unwrap();
    for (key, status) in [(1u8, 3i64), (2, 5)] {
        conn.execute(
            "INSERT INTO ledger (key, job, permit, permit_id, status, disproved, class, generation, epoch, deadline,
                                 updated_at, input_hash, node, tool)
             VALUES (?1, ?2, 1, zeroblob(16), 5, 0, 0, 1, 1, 50, 50, zeroblob(32), 'n', 't')",
            params![&[key; 16][..], status + 3],
        )
        .unwrap();
    }
    drop(conn);
    let store = SqliteStore::open(options(&folder, Arc::new(SystemClock))).unwrap();
    let label = Some(("team".to_owned(), "a".to_owned()));
    let page = store.jobs(JobFilter { label, limit: 9, ..JobFilter::default() }).await.unwrap();
    assert_eq!(page.jobs.len(), 7);
    let of = |status| JobId::from_u128(job(status));
    let asked = [
        (DoubtFilter { unresolved: Some(false), ..DoubtFilter::default() }, 3),
        (DoubtFilter { unresolved: Some(true), ..DoubtFilter::default() }, 5),
        (DoubtFilter { job: Some(of(3)), ..DoubtFilter::default() }, 3),
    ];
    for (filter, status) in asked {
        let page = store.doubts(DoubtFilter { limit: 9, ..filter.clone() }).await.unwrap();
        let found: Vec<JobId> = page.doubts.iter().map(|doubt| doubt.call.job).collect();
        assert_eq!(found, [of(status)], "{filter:?}");
    }
}
