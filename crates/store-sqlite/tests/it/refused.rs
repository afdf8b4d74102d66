//! An opening that is refused changes nothing: whoever was refused can still go the way that the refusal names.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use aetheris_store::system::{Clock, SystemClock};
use aetheris_store::{Boxed, Purpose, Store as _};
use aetheris_store_conformance::fixture::agent;
use aetheris_store_conformance::{Fixture, Harness, Opened};
use aetheris_store_sqlite::{Custody, SqliteOptions, SqliteStore, Stop, backup};
use rusqlite::Connection;

use crate::folder::{Folder, options};
use crate::migrate::first_schema;
use aetheris_core::id::TenantId;

fn custody(folder: u128, moved: bool, opening: u128) -> Custody {
    Custody { folder, moved, opening }
}

fn open(folder: &Folder, custody: Custody) -> Result<SqliteStore, aetheris_store::StoreError> {
    SqliteStore::open(SqliteOptions { custody: Some(custody), ..options(folder, Arc::new(SystemClock)) })
}

/// A folder that was used, by two processes one after the other.
async fn used(name: u128) -> Folder {
    let folder = Folder::new();
    for opening in [1, 2] {
        write(&folder, name, opening).await;
    }
    folder
}

async fn write(folder: &Folder, name: u128, opening: u128) {
    let store = open(folder, custody(name, false, name * 10 + opening)).unwrap();
    store.put_agent(agent("agent", &opening.to_string())).await.unwrap();
}

/// What stands in a folder. The log's index is SQLite's own business: readers leave marks in it.
fn bytes(folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    let content = |path: &Path| {
        if path.to_string_lossy().ends_with("-shm") { Vec::new() } else { std::fs::read(path).unwrap() }
    };
    entries.map(|entry| (entry.file_name().into_string().unwrap(), content(&entry.path()))).collect()
}

fn seen(folder: &Folder) -> std::path::PathBuf {
    folder.path().join("aetheris.seen")
}

/// Whether it is refused by these words and names these ways out and no others; nothing is changed either way.
fn refused(folder: &Folder, moved: bool, words: &str, moved_helps: bool) {
    let before = bytes(folder);
    let error = open(folder, custody(9, moved, 99)).unwrap_err().to_string();
    assert!(error.contains(words), "`{error}` does not say `{words}`");
    assert!(error.contains("aetheris restore"), "{error}");
    assert_eq!(error.contains("--moved"), moved_helps, "{error}");
    let after = bytes(folder);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "{words}");
    for (name, bytes) in &before {
        assert!(after[name] == *bytes, "{words}: {name} was changed");
    }
}

#[tokio::test]
async fn an_older_schema_beside_the_file_of_another_database_is_left_as_it_is() {
    let (folder, other) = (Folder::new(), used(2).await);
    first_schema(&folder);
    std::fs::copy(seen(&other), seen(&folder)).unwrap();
    for moved in [false, true] {
        refused(&folder, moved, "has seen another database here", false);
    }
}

#[tokio::test]
async fn a_backup_is_left_as_it_is() {
    for beside in [false, true] {
        let (folder, other) = (Folder::new(), used(2).await);
        backup(&other.database(), &folder.database(), &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
        if beside {
            std::fs::copy(seen(&other), seen(&folder)).unwrap();
        }
        for moved in [false, true] {
            refused(&folder, moved, "it is a backup and not a database in use", false);
        }
    }
}

/// A file that is bound into a container, linked or copied comes without its log: it says whose it is all the same.
#[tokio::test]
async fn the_file_alone_of_a_database_in_use_is_no_new_one() {
    let folder = Folder::new();
    let store = open(&folder, custody(1, false, 11)).unwrap();
    store.put_agent(agent("agent", "1")).await.unwrap();
    let other = Folder::new();
    std::fs::copy(folder.database(), other.database()).unwrap();
    refused(&other, false, "which belongs beside it, is missing", true);
    drop(store);
}

/// As a restore leaves it that was cut short between its renames.
#[tokio::test]
async fn no_database_is_made_where_one_was_lost() {
    let folder = used(1).await;
    std::fs::remove_file(folder.database()).unwrap();
    for moved in [false, true] {
        refused(&folder, moved, "says that there was a database here, and there is none", false);
    }
    std::fs::write(folder.database(), "").unwrap();
    refused(&folder, false, "says that there was a database here, and there is none", false);
}

#[tokio::test]
async fn a_database_that_is_not_its_folders_newest_is_left_as_it_is() {
    let folder = used(1).await;
    let yesterday = std::fs::read(folder.database()).unwrap();
    write(&folder, 1, 3).await;
    std::fs::write(folder.database(), yesterday).unwrap();
    for moved in [false, true] {
        refused(&folder, moved, "older than what", false);
    }
}

#[tokio::test]
async fn a_database_of_another_folder_or_of_none_is_left_as_it_is() {
    let (folder, other) = (used(1).await, used(2).await);
    std::fs::copy(seen(&other), seen(&folder)).unwrap();
    refused(&folder, false, "it comes from another folder", true);
    std::fs::remove_file(seen(&folder)).unwrap();
    refused(&folder, false, "which belongs beside it, is missing", true);
    // What helps is done: said once, it is a folder like any other.
    drop(open(&folder, custody(9, true, 99)).unwrap());
    drop(open(&folder, custody(9, false, 100)).unwrap());
}

/// Whoever says so would take a folder from a process that works in it.
#[tokio::test]
async fn a_folder_is_moved_only_where_nobody_has_it_open_and_is_like_any_other_then() {
    let folder = used(1).await;
    let lives = open(&folder, custody(1, false, 13)).unwrap();
    let error = open(&folder, custody(9, true, 99)).unwrap_err().to_string();
    assert!(error.contains("another process has the database open"), "{error}");
    drop(lives);
    std::fs::remove_file(seen(&folder)).unwrap();
    let moved = open(&folder, custody(9, true, 99)).unwrap();
    drop(open(&folder, custody(9, false, 100)).unwrap());
    drop(moved);
}

/// Stores in one folder that is kept.
struct Kept(Arc<Folder>);

impl Harness for Kept {
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let options = SqliteOptions { custody: Some(custody(1, false, 1)), ..options(&self.0, clock) };
        let store = Arc::new(SqliteStore::open(options).unwrap());
        Box::pin(std::future::ready(Opened { keep: Box::new(Arc::clone(&self.0)), store }))
    }
}

/// With events or without: an older copy of the database would go unnoticed otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_folders_file_is_told_of_every_write() {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::open(&Kept(Arc::clone(&folder))).await;
    let conn = Connection::open(folder.database()).unwrap();
    let sql = "SELECT writes + (SELECT coalesce(max(num), 0) FROM events) FROM meta";
    let mut before = 0;
    let mut told = async |what: &str| {
        // The note comes after the answer, and before that to the next question.
        fixture.store().health().await.unwrap();
        let text = std::fs::read_to_string(seen(&folder)).unwrap();
        let noted = text.lines().find_map(|line| line.strip_prefix("writes  ")).unwrap().parse::<i64>().unwrap();
        assert_eq!(noted, conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), "{what}");
        assert!(noted > before, "{what}: {before} and then {noted}");
        before = noted;
    };
    told("an agent").await;
    fixture.store().put_agent(agent("agent", "2")).await.unwrap();
    told("another version").await;
    let run = fixture.running().await;
    told("a claim").await;
    fixture.advance(aetheris_core::time::Span::from_secs(1));
    assert!(fixture.renew(run).await);
    told("a renewal").await;
    fixture.ok(fixture.plain(run, Purpose::Record)).await;
    told("a unit without events").await;
    assert!(fixture.store().delete_agent(TenantId::default(), "agent".into()).await.unwrap());
    told("an agent that is gone").await;
}

#[tokio::test]
async fn a_database_beside_a_damaged_file_is_left_as_it_is() {
    let folder = used(1).await;
    std::fs::write(seen(&folder), "aetheris.seen 1\nhalf of one").unwrap();
    for moved in [false, true] {
        refused(&folder, moved, "is damaged: it cannot be said", false);
    }
}

/// One that stands in a single file would get a log, and could then not even be copied by hand any more.
#[tokio::test]
async fn a_database_of_a_newer_build_is_left_as_it_is() {
    for mode in ["delete", "wal"] {
        let folder = used(1).await;
        let conn = Connection::open(folder.database()).unwrap();
        let set: String = conn.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0)).unwrap();
        conn.pragma_update(None, "user_version", 99).unwrap();
        drop(conn);
        let before = bytes(&folder);
        for given in [Some(custody(1, false, 99)), None] {
            let options = SqliteOptions { custody: given, ..options(&folder, Arc::new(SystemClock)) };
            let error = SqliteStore::open(options).unwrap_err().to_string();
            assert!(error.contains("schema version 99"), "{error}");
            assert!(bytes(&folder) == before, "{set}: it was changed");
        }
    }
}

/// What a process that was killed has left in its log is read there, with or without the log's index.
#[tokio::test]
async fn a_log_is_read_and_left_as_it_is() {
    for index in [true, false] {
        let (folder, killed, other) = (Folder::new(), used(1).await, used(2).await);
        let store = open(&killed, custody(1, false, 13)).unwrap();
        store.put_agent(agent("agent", "3")).await.unwrap();
        for name in ["aetheris.db", "aetheris.db-wal", "aetheris.db-shm"].into_iter().take(2 + usize::from(index)) {
            std::fs::copy(killed.path().join(name), folder.path().join(name)).unwrap();
        }
        assert!(std::fs::metadata(folder.path().join("aetheris.db-wal")).unwrap().len() > 0);
        refused(&folder, false, "which belongs beside it, is missing", true);
        std::fs::copy(seen(&other), seen(&folder)).unwrap();
        refused(&folder, false, "it comes from another folder", true);
        // With its own file it is the newest: it says so only together with its log.
        std::fs::copy(seen(&killed), seen(&folder)).unwrap();
        drop(store);
        drop(open(&folder, custody(1, false, 14)).unwrap());
    }
}
