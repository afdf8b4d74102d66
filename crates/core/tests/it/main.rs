//! Properties of the pure core, over arbitrary inputs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod arbitrary;
mod events;
mod recovery;
mod reducer;
