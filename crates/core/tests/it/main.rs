//! Properties of the pure core, over arbitrary inputs.

mod arbitrary;
mod events;
mod recovery;
mod reducer;
