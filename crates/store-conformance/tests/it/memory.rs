//! The reference model against the contract.

use std::sync::Arc;

use aetheris_core::time::Timestamp;

use aetheris_store::memory::MemoryStore;
use aetheris_store::system::{Clock, ManualClock};
use aetheris_store::{Boxed, Store};
use aetheris_store_conformance::{Durable, Harness, Opened, differential};

struct Memory;

impl Harness for Memory {
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock));
        Box::pin(std::future::ready(Opened { keep: Box::new(()), store }))
    }
}

/// What this store has does not outlive its process; here it only goes on, which is enough to prove the
/// cases themselves.
impl Durable for Memory {
    fn reopen(&self, opened: Opened, _clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        Box::pin(std::future::ready(opened))
    }
}

mod conformance {
    use super::Memory;

    aetheris_store_conformance::conformance_suite!(Memory);
    aetheris_store_conformance::durable_suite!(Memory);
}

#[tokio::test]
async fn two_of_them_agree_under_random_operations() {
    for seed in [1, 2] {
        let clock = ManualClock::at(Timestamp::from_micros(1_780_000_000_000_000));
        let a = MemoryStore::new(Arc::new(clock.clone()));
        let b = MemoryStore::new(Arc::new(clock.clone()));
        let report = differential::run(seed, 1_000, &a, &b, &clock).await;
        assert!(report.missing().is_empty());
    }
}
