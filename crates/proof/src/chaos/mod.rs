//! Chaos: real processes under faults, and two checkers that must agree.
//!
//! A run is one seed. Programs are drawn from it ([`programs`]), clients send their jobs and drive them
//! ([`client`]), and three hands hurt the run ([`faults`]): processes ([`nodes`]), wires ([`proxy`]) and the world
//! around them (disk, clock, tools, agents). Then everything is healed, and every job must end or wait for a
//! human within a bound ([`run`]). What happened is judged from the store, from what the tools logged themselves,
//! from what clients were told and from what was done ([`judge`]), by the checker that is shipped and by one of
//! plain SQL ([`plain`]). A store takes part by a [`backend`].
//!
//! The seed decides what is drawn, not how the processes interleave: a run is repeated by its seed, and what it
//! finds is read from the evidence that a failed run leaves.

pub mod asked;
pub mod backend;
pub mod client;
pub mod clock;
pub mod dice;
pub mod faults;
pub mod judge;
pub mod nemesis;
pub mod nodes;
pub mod plain;
pub mod programs;
pub mod proxy;
pub mod report;
pub mod run;
#[cfg(test)]
mod tests;
