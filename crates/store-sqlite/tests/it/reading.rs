//! A database that is opened for reading: nothing is made and nothing changed, wherever it stands.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use aetheris_store::system::{Clock, SystemClock};
use aetheris_store::{CommitError, ErrorKind, Purpose, Scope, Store, StoreError, UnitOfWork};
use aetheris_store_conformance::Fixture;
use aetheris_store_sqlite::SqliteStore;

use crate::folder::{At, Folder};

fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    SqliteStore::open_read_only(path, &clock, 2)
}

/// Names and contents.
fn contents(folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder.path()).unwrap();
    let read = |file: std::fs::DirEntry| {
        (file.file_name().to_string_lossy().into_owned(), std::fs::read(file.path()).unwrap())
    };
    files.map(|file| read(file.unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_left_is_one_file_and_is_read_without_a_trace() {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&folder))).await;
    let job = fixture.pending().await;
    drop(fixture);
    let before = contents(&folder);
    assert!(!before.contains_key("aetheris.db-wal") && !before.contains_key("aetheris.db-shm"), "{:?}", before.keys());
    let store = open(&folder.database()).unwrap();
    assert_eq!(store.job(Scope::System, job).await.unwrap().unwrap().id, job);
    let found = store.dossiers(0, 64).await.unwrap();
    assert_eq!(found.jobs.iter().map(|job| job.as_ref().unwrap().events.len()).collect::<Vec<_>>(), [2]);
    let unit = UnitOfWork::new(
        aetheris_core::id::EventId::from_u128(1),
        job,
        Purpose::Record,
        aetheris_core::lease::Guard::Outside,
    );
    assert!(matches!(store.commit(unit).await, Err(CommitError::Failed(_))));
    store.was_left_alone().unwrap();
    drop(store);
    assert_eq!(contents(&folder), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_in_use_is_read_beside_its_writer() {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&folder))).await;
    let first = fixture.pending().await;
    let store = open(&folder.database()).unwrap();
    let second = fixture.pending().await;
    for job in [first, second] {
        assert_eq!(store.job(Scope::System, job).await.unwrap().unwrap().id, job);
    }
    store.was_left_alone().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_opens_it_meanwhile_is_noticed() {
    let folder = Arc::new(Folder::new());
    drop(Fixture::open(&At(Arc::clone(&folder))).await);
    let store = open(&folder.database()).unwrap();
    let writer = Fixture::open(&At(Arc::clone(&folder))).await;
    assert!(store.was_left_alone().unwrap_err().to_string().contains("run it again"));
    writer.pending().await;
    drop(writer);
    assert!(store.was_left_alone().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_without_the_right_to_write_is_read() {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&folder))).await;
    let job = fixture.pending().await;
    drop(fixture);
    let copy = Folder::new();
    std::fs::copy(folder.database(), copy.database()).unwrap();
    let may = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(copy.database(), may(0o400)).unwrap();
    std::fs::set_permissions(copy.path(), may(0o500)).unwrap();
    let store = open(&copy.database()).unwrap();
    assert!(store.job(Scope::System, job).await.unwrap().is_some());
    drop(store);
    assert_eq!(contents(&copy).len(), 1);
    std::fs::set_permissions(copy.path(), may(0o700)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_another_schema_is_refused_with_what_helps() {
    for (version, copied, words) in [
        (99, 0, "a newer aetheris has to read it"),
        (1, 0, "open it once with this aetheris"),
        (4, 0, "open it once with this aetheris"),
        (4, 1, "it is a backup, which `aetheris restore FILE --data DIR` brings up to date"),
    ] {
        let folder = Arc::new(Folder::new());
        drop(Fixture::open(&At(Arc::clone(&folder))).await);
        let conn = rusqlite::Connection::open(folder.database()).unwrap();
        conn.pragma_update(None, "user_version", version).unwrap();
        conn.execute("UPDATE meta SET copied = ?1", [copied]).unwrap();
        drop(conn);
        let error = open(&folder.database()).unwrap_err();
        assert!(error.kind == ErrorKind::Invalid && error.to_string().contains(words), "{error}");
    }
}

#[test]
fn nothing_and_what_is_not_ours_is_refused_and_left_as_it_is() {
    for (bytes, words) in [("", "it is empty"), ("notes of somebody, in a file of that name", "no SQLite database")] {
        let folder = Folder::new();
        std::fs::write(folder.database(), bytes).unwrap();
        let error = open(&folder.database()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.kind == ErrorKind::Corrupt, !bytes.is_empty());
        assert_eq!(contents(&folder), BTreeMap::from([("aetheris.db".to_owned(), bytes.as_bytes().to_vec())]));
    }
}
