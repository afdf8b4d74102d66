//! Exhaustive search (layer L1): every interleaving of a few workers, the reclaimer, a sender of signals, timers, an
//! operator and somebody who cancels over one store, within small bounds.
//!
//! The decisions are those of production: what a run does next is asked of its own functions
//! ([`prepare`](aetheris_runtime::run::step::prepare), [`conclude`](aetheris_runtime::run::step::conclude)), what an operation
//! makes of a job of [`ops`](aetheris_runtime::ops), whether a unit is accepted of the stores'
//! [`decide`](aetheris_store::decide::decide), and the reducer [`JobState`](aetheris_core::state::JobState),
//! [`route`](aetheris_core::signal::route), [`next`](aetheris_core::schedule::next) and
//! [`Projection`](aetheris_core::projection::Projection) are called, not copied. What is modelled is what surrounds them:
//! the driver that drafts facts and writes them, processes that crash or are slow, leases that end, calls in the air, commits
//! whose outcome is unknown.
//!
//! Three rules that production has in queries or in async code are written a second time: which job of a session comes
//! first ([`claims::is_claimable`]), which signals are worth keeping ([`signal::send`]), and in which order the kept ones
//! are judged ([`signal::arrival`]). Whether a payload fits a schema is given.
//!
//! Time is not counted: a lease, a timer or a permit's deadline ends whenever it may, and the moment that a job was
//! sent for comes whenever it may. A cancel or a job's deadline is no way out for a job that is stuck: they happen
//! only where something else can.
//!
//! Reading order: [`state`] what there is, [`fact`] events in short form, [`store`] the one door, [`run`] what
//! a worker writes next (`short` its facts), [`outside`] the writers without a fence, [`mod@signal`] signals and what a wait finds,
//! [`system`] the whole (`moves` who may act, `act` what comes of it, `calls` what comes of a call), [`laws`] what must hold, [`bugs`] planted
//! mistakes that the search has to find.

/// Names with their texts, and the list of them.
macro_rules! listed {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal;)* }) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name in reports.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

mod act;
pub mod bugs;
mod calls;
pub mod claims;
pub mod config;
pub mod fact;
pub mod laws;
mod moves;
pub mod outside;
pub mod run;
pub mod search;
mod short;
pub mod signal;
pub mod state;
pub mod store;
pub mod story;
pub mod system;
