//! The server's calls against the store in memory.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

mod acts;
mod agents;
mod audits;
mod bed;
mod between;
mod children;
mod document;
mod events;
mod evidence;
mod fields;
mod jobs;
mod limits;
mod loops;
mod maps;
mod messages;
mod people;
mod planners;
mod rounds;
mod serving;
mod signals;
mod steps;
mod system;
mod tenants;
