//! What a process says that ends because it could no longer keep its promises. It is said after the end is decided, and
//! done whether or not anybody hears.

use std::sync::Arc;

use aetheris_store::StoreError;
use aetheris_store::vital::{self, OnDeath};

use crate::logging;

/// Ends a process one of whose vital threads has ended.
pub(crate) fn on_death() -> OnDeath {
    Arc::new(|name| {
        vital::end_process(vital::EXIT_DIED, || {
            logging::say_error(&died(name));
            logging::flush();
        })
    })
}

/// Ends a process whose disk failed, or whose database is gone, with this exit code.
pub(crate) fn disk_failed(error: &StoreError, exit: i32) {
    vital::end_process(exit, || {
        let what = "nothing more can be written; exiting. The next process writes the log again and syncs it before it goes on";
        logging::say_error(&format!("{what}: {error}"));
        logging::flush();
    })
}

/// What is said where a thread or task has ended that must not.
pub(crate) fn died(name: &str) -> String {
    format!(
        "`{name}` stopped unexpectedly; exiting so the process can be restarted. Everything accepted is safe on disk."
    )
}
