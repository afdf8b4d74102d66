//! The file itself: who may open it, and what it is after that.

use std::collections::BTreeMap;
use std::sync::Arc;

use aetheris_core::event::{EncodedEvent, Event, EventKind, JobCreated};
use aetheris_core::id::{AgentName, EventId, JobId, TenantId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::projection::Projection;
use aetheris_core::state::JobState;
use aetheris_store::system::{ManualClock, SystemClock};
use aetheris_store::{ErrorKind, FileHealth, NewJob, Purpose, Store, UnitOfWork};
use aetheris_store_conformance::fixture::agent;
use aetheris_store_sqlite::SqliteStore;
use rusqlite::Connection;

use crate::folder::{Folder, options};

fn open(folder: &Folder) -> Result<SqliteStore, aetheris_store::StoreError> {
    SqliteStore::open(options(folder, Arc::new(SystemClock)))
}

#[test]
fn a_database_of_a_newer_build_is_refused_and_left_alone() {
    let folder = Folder::new();
    drop(open(&folder).unwrap());
    let conn = Connection::open(folder.database()).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    let error = open(&folder).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.to_string().contains("schema version 99"), "{error}");
    assert!(error.to_string().contains("newer aetheris"), "{error}");
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    let folder = Folder::new();
    let conn = Connection::open(folder.database()).unwrap();
    conn.execute_batch("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)").unwrap();
    drop(conn);
    let before = std::fs::read(folder.database()).unwrap();
    let error = open(&folder).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(std::fs::read(folder.database()).unwrap(), before, "not one byte of it is ours to change");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "and no file stands beside it");
}

/// Every file of a folder, with what is in it. SQLite itself notes in a log's index who reads just now.
fn files(folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        let bytes = if name.ends_with("-shm") { vec![] } else { std::fs::read(file.path()).unwrap() };
        (name, bytes)
    });
    files.collect()
}

#[test]
fn a_database_of_another_program_with_its_own_number_or_log_is_left_alone() {
    for (mode, number) in [("delete", 7), ("wal", 0), ("wal", 7)] {
        let folder = Folder::new();
        let conn = Connection::open(folder.database()).unwrap();
        conn.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |_| Ok(())).unwrap();
        conn.pragma_update(None, "application_id", number).unwrap();
        conn.execute_batch("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)").unwrap();
        let before = files(&folder);
        let error = open(&folder).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{mode} {number}");
        assert!(error.to_string().ends_with("the file is a database of another program"), "{error}");
        assert!(
            files(&folder) == before,
            "{mode} {number}: no byte is ours to change, and no file to make: {:?}",
            before.keys()
        );
        let now: String = conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
        assert_eq!(now, mode);
    }
}

#[test]
fn a_file_that_is_no_database_is_named() {
    let folder = Folder::new();
    std::fs::write(folder.database(), "notes of somebody".repeat(100)).unwrap();
    let error = open(&folder).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.to_string().contains("no SQLite database"), "{error}");
}

/// Opens a store that says instead of ending the process.
fn telling(folder: &Folder) -> (SqliteStore, std::sync::mpsc::Receiver<String>) {
    let (tell, told) = std::sync::mpsc::channel();
    let on_fatal = Arc::new(move |error: &aetheris_store::StoreError| drop(tell.send(error.to_string())));
    let options = aetheris_store_sqlite::SqliteOptions { on_fatal, ..options(folder, Arc::new(SystemClock)) };
    (SqliteStore::open(options).unwrap(), told)
}

#[tokio::test]
async fn nothing_is_acknowledged_when_the_file_has_gone_or_is_another() {
    for (name, replaced) in [("aetheris.db", false), ("aetheris.db-wal", false), ("aetheris.db", true)] {
        let folder = Folder::new();
        let (store, told) = telling(&folder);
        store.put_agent(agent("agent", "1")).await.unwrap();
        assert!(told.try_recv().is_err());
        let path = folder.path().join(name);
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        if replaced {
            std::fs::write(&path, "").unwrap();
        }
        let error = store.put_agent(agent("agent", "2")).await.unwrap_err();
        assert!(error.to_string().contains("while it was in use"), "{error}");
        assert!(matches!(store.commit(creation()).await, Err(aetheris_store::CommitError::Unknown(_))));
        assert!(told.recv().unwrap().contains(if replaced { "replaced" } else { "removed or moved away" }));
        let found = if replaced { FileHealth::Replaced } else { FileHealth::Gone };
        assert_eq!(store.health().await.unwrap().file, Some(found));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_link_to_nothing_is_named_and_one_to_a_database_is_followed() {
    let (folder, other) = (Folder::new(), Folder::new());
    std::os::unix::fs::symlink(other.database(), folder.database()).unwrap();
    let error = open(&folder).unwrap_err();
    assert!(error.to_string().contains("leads to nothing"), "{error}");
    drop(open(&other).unwrap());
    drop(open(&folder).unwrap());
    assert!(!folder.path().join("aetheris.db-wal").exists());
}

#[test]
fn a_missing_folder_is_named() {
    let folder = Folder::new();
    let mut options = options(&folder, Arc::new(SystemClock));
    options.path = folder.path().join("absent").join("aetheris.db");
    let error = SqliteStore::open(options).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
}

/// A worker that is started in another folder would wait for jobs in an empty one for ever.
#[test]
fn a_database_is_made_only_by_who_is_to_make_one() {
    let folder = Folder::new();
    let opened = |make| {
        let options = aetheris_store_sqlite::SqliteOptions { make, ..options(&folder, Arc::new(SystemClock)) };
        SqliteStore::open(options)
    };
    for name in ["", "aetheris.db"] {
        if !name.is_empty() {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let error = opened(false).unwrap_err();
        assert!(error.kind == ErrorKind::Invalid && error.to_string().contains("there is no database"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), usize::from(!name.is_empty()));
    }
    drop(opened(true).unwrap());
    drop(opened(false).unwrap());
}

#[test]
fn sixteen_openings_at_once_make_one_schema() {
    let folder = Folder::new();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..16).map(|_| scope.spawn(|| open(&folder).unwrap())).collect();
        for store in all {
            drop(store.join().unwrap());
        }
    });
    let conn = Connection::open(folder.database()).unwrap();
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(number("SELECT count(*) FROM meta"), 1);
    assert_eq!(number("PRAGMA user_version"), 6);
    assert_eq!(number("SELECT count(*) FROM event_kinds"), i64::try_from(EventKind::ALL.len()).unwrap());
}

/// What was acknowledged without an event tells an older copy of the file from the newest as well.
#[tokio::test]
async fn a_write_without_events_is_counted_as_one() {
    let folder = Folder::new();
    let store = open(&folder).unwrap();
    let conn = Connection::open(folder.database()).unwrap();
    let sql = "SELECT writes + (SELECT coalesce(max(num), 0) FROM events) FROM meta";
    let reached = || conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let mut before = reached();
    for version in ["1", "2", "3"] {
        store.put_agent(agent("agent", version)).await.unwrap();
        let now = reached();
        assert!(now > before, "version {version}: {before} and then {now}");
        before = now;
    }
}

#[tokio::test]
async fn the_settings_in_force_are_those_that_are_promised() {
    let folder = Folder::new();
    let store = open(&folder).unwrap();
    store.put_agent(agent("agent", "1")).await.unwrap();
    let conn = Connection::open(folder.database()).unwrap();
    let mode: String = conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    assert!(store.status().await.unwrap().durability.contains("synchronous=FULL"));
}

#[tokio::test]
async fn a_new_database_begins_at_the_wall_clock_however_long_the_machine_has_run() {
    let folder = Folder::new();
    let clock = ManualClock::at("2026-11-21T09:30:00Z".parse().unwrap());
    clock.advance(aetheris_core::time::Span::from_secs(1_000_000));
    let store = SqliteStore::open(options(&folder, Arc::new(clock.clone()))).unwrap();
    assert_eq!(store.status().await.unwrap().now, aetheris_store::system::Clock::wall(&clock));
    let committed = store.commit(creation()).await.unwrap();
    assert_eq!(committed.at, aetheris_store::system::Clock::wall(&clock));
    assert_eq!(store.health().await.unwrap().clock_ahead, aetheris_core::time::Span::ZERO);
}

#[tokio::test]
async fn a_person_with_a_shell_reads_names_and_times() {
    let folder = Folder::new();
    let clock = ManualClock::at("2026-11-21T09:30:00Z".parse().unwrap());
    let store = SqliteStore::open(options(&folder, Arc::new(clock))).unwrap();
    store.commit(creation()).await.unwrap();
    let conn = Connection::open(folder.database()).unwrap();
    let line = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    let event = line("SELECT kind || ' ' || at || ' ' || fence || ' ' || (prev_hash <> hash) FROM job_events");
    assert_eq!(event, "job_created 2026-11-21T09:30:00.000 1.0 1");
    assert_eq!(line("SELECT status || ' ' || agent FROM job_list"), "pending agent");
}

fn creation() -> UnitOfWork {
    let created = JobCreated {
        agent: AgentName::from("agent"),
        agent_version: "1".to_owned(),
        execution_version: "1".to_owned(),
        labels: BTreeMap::new(),
        message: Json::null(),
        parent: None,
        planning: None,
        priority: 0,
        run_at: None,
        session: None,
        tenant: TenantId::default(),
    };
    let new = NewJob {
        agent: AgentName::from("agent"),
        agent_version: "1".to_owned(),
        client_key: None,
        labels: BTreeMap::new(),
        parent: None,
        priority: 0,
        session: None,
        tenant: TenantId::default(),
    };
    let (id, job) = (EventId::from_u128(1), JobId::from_u128(2));
    let mut state = JobState::new(job);
    let created = Event::from(created);
    state.apply(&created).unwrap();
    let mut unit = UnitOfWork::new(id, job, Purpose::Create, Guard::Outside);
    unit.create = Some(new);
    unit.events = vec![EncodedEvent::new(id, &created)];
    unit.expected_seq = Some(0);
    unit.row = Some(Projection::of(&state, true));
    unit
}
