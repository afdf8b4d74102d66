//! Properties of the pure core, over arbitrary inputs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod arbitrary;
mod doubts;
mod events;
mod golden;
mod laws;
mod recovery;
mod reducer;

/// Cases of one property.
pub(crate) const CASES: u32 = 20_000;
