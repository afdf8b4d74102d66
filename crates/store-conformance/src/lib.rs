//! The shared proof that a store keeps its contract.
//!
//! A backend gives a [`Harness`]: fresh isolated stores on a clock that the cases move. Nothing else.
//! It instantiates [`conformance_suite!`](crate::conformance_suite) once, and a durable one
//! [`durable_suite!`](crate::durable_suite) too; every case becomes a named test, and there is no way to
//! leave one out. [`differential`] compares two stores under random operations.
//!
//! Each case is named after the clause of CONTRACT.md that it proves.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "these are tests, compiled for whoever has a store to prove; they fail by panicking"
)]

#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod creation;
pub mod differential;
pub mod draft;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod durable;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod fencing;
pub mod fixture;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod glance;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod inbox;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod invocations;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod journal;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod lease;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod ledger;
mod list;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod outbox;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod payloads;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod queries;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod reclaim;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod sessions;
pub mod snapshot;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod tenants;
#[expect(missing_docs, reason = "the name of a case says what it proves")]
pub mod unknown;
pub mod waiting;

use std::any::Any;
use std::sync::Arc;

pub use draft::Draft;
pub use fixture::{Fixture, Message, Run};
pub use list::{CASES, Case, cases};

use aetheris_store::system::Clock;
use aetheris_store::{Boxed, Store};

/// What a backend supplies.
pub trait Harness: Send + Sync {
    /// Opens a fresh, isolated store that takes its time from this clock.
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened>;
}

/// What the harness of a store supplies whose facts outlive its process.
pub trait Durable: Harness {
    /// Closes the store and opens what it has left.
    fn reopen(&self, opened: Opened, clock: Arc<dyn Clock>) -> Boxed<'_, Opened>;
}

/// An open store. It is closed before what it stands on goes.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// What has to live as long as the store: its folder, its database.
    pub keep: Box<dyn Any + Send + Sync>,
}
