//! A full disk.

use std::sync::Arc;

use aetheris_core::json::Json;
use aetheris_store::system::Clock;
use aetheris_store::{Boxed, CommitError, ErrorKind, Scope};
use aetheris_store_conformance::{Fixture, Harness, Opened};
use aetheris_store_sqlite::{SqliteOptions, SqliteStore};

use crate::folder::{Folder, options};

/// Stores in files that may have few pages.
struct Small;

impl Harness for Small {
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let folder = Folder::new();
        let options = SqliteOptions { pages_max: Some(90), ..options(&folder, clock) };
        let store = SqliteStore::open(options).unwrap();
        Box::pin(std::future::ready(Opened { keep: Box::new(folder), store: Arc::new(store) }))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_and_loses_nothing() {
    let fixture = Fixture::open(&Small).await;
    let (mut accepted, mut full) = (Vec::new(), 0);
    for number in 0..200 {
        let size = if number % 2 == 0 { 6_000 } else { 10 };
        let mut message = fixture.message();
        message.message = Json::new(serde_json::json!("x".repeat(size)));
        match fixture.shared().commit(fixture.creation(&message)).await {
            Ok(committed) => {
                accepted.push((message.job, committed));
                // What has just worked is not remembered as failing.
                assert_eq!(fixture.store().health().await.unwrap().last_write, None);
            }
            Err(CommitError::Failed(error)) => {
                assert_eq!(error.kind, ErrorKind::Full, "{error}");
                full += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(full > 0 && accepted.len() > 10, "{full} full, {} accepted", accepted.len());
    for (job, committed) in accepted {
        let history = fixture.store().history(Scope::System, job, true).await.unwrap().unwrap();
        assert_eq!((history.row.seq, history.row.head), (committed.seq, committed.head));
        assert_eq!(history.events.len(), usize::try_from(committed.seq).unwrap());
    }
}
