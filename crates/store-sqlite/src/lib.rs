//! The embedded store: one SQLite file behind the port of `aetheris_store`.
//!
//! # Who writes
//!
//! Each process has one thread that writes, with the only connection that can (`writer`). What waits for
//! it goes into one `BEGIN IMMEDIATE … COMMIT`: units of many jobs, renewals, agents. Each is decided on its
//! own before its first write (`commit`: looks up the facts, and `store::decide` checks them; `write`: the statements, each
//! of which repeats in its `WHERE` what the checks have found). A refused one has written nothing and the
//! transaction goes on. An SQL error rolls the transaction back, and each request is tried in one of its own.
//! Nobody is answered before `COMMIT` has returned.
//!
//! Several processes may share the file: SQLite's write lock keeps their transactions apart, and everything
//! is read again inside each. `fairness` keeps a busy one from starving the others. All are on one host; network
//! file systems are refused.
//!
//! # What is durable, and what it costs
//!
//! WAL with `synchronous=FULL`: a `COMMIT` is one fsync of the log. A step that is recorded is one, a batch
//! of any number of units is one. A claim that finds work waiting is part of the transaction that it arrives
//! in; one that stands is served in the transaction that makes jobs claimable, so that accepting a message
//! and handing it to a worker is one fsync. A checkpoint (`writer`, after everybody has been answered) is one
//! fsync of the log and one of the file, about once in a thousand pages.
//!
//! # What is known after an error
//!
//! An error before `COMMIT`, a lock that was not to be had, and a full disk have written nothing:
//! `CommitError::Failed`. Any other error of `COMMIT` itself leaves the outcome unknown, and `resolve_unknown` finds
//! it in a later write transaction, behind everything that could still bring the unit. A failed fsync ends
//! the process (`SqliteOptions::on_fatal`): what is on the disk then is known only by reading it again.
//!
//! # Time
//!
//! `aetheris_store::clock` makes the store's clock of the host's: never below the highest value stored, by whichever
//! process, without writing it with every transaction. `clock_guard` keeps processes with other clocks away.
//!
//! # What can be claimed
//!
//! `jobs.ready` marks what can be claimed now: pending, not before a moment that has not come, and the first
//! unfinished job of its session. `jobs.delayed_until` marks what only time is missing for; due jobs are
//! turned into ready ones in pieces. So a claim reads its jobs off the front of one index, however many others
//! are delayed, blocked or behind in their session.
//!
//! # Copies
//!
//! `seen` keeps a file beside the database that tells the newest state of it from an older copy; `copy` makes backups
//! and puts them back.
//!
//! Reading order: `migrations/0001_init.sql`, `store`, `writer`, `commit`, `write`, `claim`, `unknown`,
//! `read`, `rows`. Every statement is a file under `queries`, registered in `queries.rs`.

mod agents;
mod amiss;
mod claim;
mod clock_guard;
mod clock_steps;
mod codes;
mod commit;
mod copy;
mod documents;
mod dossier;
mod error;
mod fairness;
mod file;
mod folder;
mod heartbeat;
mod history;
mod hold;
mod list;
mod migrate;
mod network;
mod open;
mod part;
mod pieces;
mod pool;
mod promises;
mod queries;
mod read;
mod request;
mod rewrite;
mod rows;
mod seen;
mod stats;
mod store;
mod tx;
mod unknown;
mod unreadable;
mod vitals;
mod wait;
mod wal;
mod write;
mod writer;

pub use copy::{Backed, Progress, Staged, backup, recognise, stage};
pub use file::{ENDINGS, LIVE, LOCK, PID, in_folder_of};
pub use hold::HeldRest;
pub use open::{EXIT_IO, Fatal, SqliteOptions};
pub use part::Stop;
pub use seen::Custody;
pub use store::SqliteStore;
