//! The reference model against the contract.

use std::sync::Arc;

use crate::conformance::{Harness, Opened};
use crate::memory::MemoryStore;
use crate::system::Clock;
use crate::{Boxed, Store};

struct Memory;

impl Harness for Memory {
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock));
        Box::pin(std::future::ready(Opened { keep: Box::new(()), store }))
    }
}

mod conformance {
    use super::Memory;

    crate::conformance_suite!(Memory);
}
