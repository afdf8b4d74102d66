//! Runs, end to end, on the memory store and on virtual time: real worker, real keeper, real sweeps;
//! tools and models that count.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod answers;
mod beside;
mod children;
mod commits;
mod disproof;
mod doubt;
mod ending;
mod joins;
mod life;
mod loops;
mod maps;
mod outcomes;
mod overlap;
mod parallel;
mod patience;
mod pauses;
mod people;
mod planners;
mod refine;
mod refused;
mod steps;
mod sweeps;
mod told;
mod values;
mod waits;
mod world;
