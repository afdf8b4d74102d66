//! The bug zoo: bugs that others have shipped, planted one at a time behind a test feature.
//!
//! [`bugs`] is the list. Each bug has the smallest [`scenarios`] that shows it, which runs in a process of
//! its own, once without the bug (clean) and once with it (caught). [`world`] is what a scenario runs in:
//! a store, clocks that move when they are told to, tools that keep a log.

pub mod bugs;
mod failures;
pub mod layers;
pub mod outside;
pub mod replies;
mod runs;
pub mod scenarios;
mod shared;
mod tools;
mod workers;
pub mod world;

pub use bugs::{BUGS, Bug};
pub use world::{Verdict, World};
