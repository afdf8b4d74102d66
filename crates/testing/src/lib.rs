//! Tests of durable agents in virtual time: processes that crash where they are told to, fake tools and
//! models that count, and clocks that pass weeks in microseconds.
//!
//! * [`crash_everywhere`] runs an agent once per crossing between its process and the world, with a crash
//!   exactly there, and checks every invariant after each run; [`stop_everywhere`] does so with a process
//!   that is slow and not dead. A [`Script`] has the agent's surroundings.
//! * [`TestWorld`] is for tests that tell one story: put an agent, start and kill processes, send signals,
//!   answer doubts, wait, look, [`TestWorld::check`].
//!
//! `docs/testing-your-agent.md` shows both with an agent that refunds orders; `tests/it/refund.rs` is that
//! page's code.
//!
//! Reading order: [`time`], [`random`], [`gate`] (where a process can die), [`link`] (what goes through the
//! gate), [`process`] (the production worker, keeper and sweeps behind one gate); then [`reply`], [`tools`]
//! and [`models`] (the fakes), [`world`], [`script`], [`crash`], [`report`].

pub mod crash;
pub mod doubts;
mod failed;
mod fleet;
pub mod gate;
pub mod link;
pub mod models;
pub mod process;
pub mod random;
pub mod reply;
pub mod report;
pub mod script;
mod story;
pub mod time;
pub mod tools;
pub mod world;

pub use aetheris_core::id::JobId;
pub use aetheris_core::job::JobStatus;
pub use crash::{crash_everywhere, stop_everywhere};
pub use doubts::{Doubt, Verdict};
pub use failed::Failed;
pub use models::{FakeModels, ModelReply};
pub use reply::{FakeCall, Reply, in_turn};
pub use report::{CrashReport, Tally};
pub use script::{Outcome, Script, Waiting};
pub use tools::{FakeTools, Happened, Seen};
pub use world::{TestWorld, run};
