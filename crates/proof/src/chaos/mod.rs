//! Chaos: real processes under faults, and two checkers that must agree.
//!
//! A run is one seed. Programs are drawn from it ([`programs`]), clients send their jobs and drive them
//! ([`client`]), and three hands hurt the run ([`faults`]): processes ([`nodes`]), wires ([`proxy`]) and the world
//! around them (disk, clock, tools, agents). Then everything is healed, and every job must end or wait for a
//! human within a bound ([`run`]). What happened is judged from the store, from what the tools logged themselves,
//! from what clients were told and from what was done ([`judge`]), by the checker that is shipped and by one of
//! plain SQL ([`aetheris_plain`]). What is told of it, by streams, lists, the API and the command line, is compared with what is
//! stored ([`beside`]). A store takes part by a [`backend`].
//!
//! The seed decides what is drawn, not how the processes interleave: a run is repeated by its seed, and what it
//! finds is read from the evidence that a failed run leaves.

pub mod asked;
pub mod backend;
pub mod backups;
pub mod beside;
pub mod client;
pub mod clock;
pub mod commands;
pub mod dice;
pub mod faults;
pub mod holds;
pub mod judge;
pub mod nemesis;
pub mod nodes;
pub mod oracle;
pub mod poison;
pub mod programs;
pub mod proxy;
pub mod readers;
pub mod ready;
pub mod report;
pub mod run;
pub mod starts;
pub mod stored;
pub mod streams;
pub mod tampered;
pub mod told;
