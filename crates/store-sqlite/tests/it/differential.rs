//! The same random operations on the reference model and on a file: the same answers, the same contents.

use std::sync::Arc;

use aetheris_core::time::Timestamp;
use aetheris_store::conformance::differential;
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::ManualClock;
use aetheris_store_sqlite::SqliteStore;

use crate::folder::{Folder, options};

async fn agree(seed: u64) {
    let clock = ManualClock::at(Timestamp::from_micros(1_780_000_000_000_000));
    let model = MemoryStore::new(Arc::new(clock.clone()));
    let folder = Folder::new();
    let store = SqliteStore::open(options(&folder, Arc::new(clock.clone()))).unwrap();
    let report = differential::run(seed, 1_500, &model, &store, &clock).await;
    assert!(report.missing().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_agree_with_the_model() {
    agree(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_random_operations_agree_with_the_model() {
    agree(20_261_121).await;
}
