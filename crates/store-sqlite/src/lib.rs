//! The embedded store: SQLite behind the port of `aetheris_store`.

mod agents;
mod claim;
mod clock;
mod codes;
mod commit;
mod error;
mod heartbeat;
mod list;
mod migrate;
mod open;
mod pool;
mod queries;
mod read;
mod rows;
mod settle;
mod stats;
mod store;
mod turn;
mod tx;
mod write;
mod writer;

pub use open::{Fatal, SqliteOptions};
pub use store::SqliteStore;
