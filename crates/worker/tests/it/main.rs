//! Runs, end to end, on the memory store and on virtual time: real worker, real keeper, real sweeps;
//! tools and models that count.

mod commits;
mod doubt;
mod ending;
mod steps;
mod waits;
mod world;
