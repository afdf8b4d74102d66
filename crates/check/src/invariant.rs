//! The invariants that apply so far, by their numbers in INVARIANTS.md.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! invariants {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)*) => {
        /// An invariant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Invariant {
            $($(#[$doc])* $name,)*
        }

        impl Invariant {
            /// Every invariant, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its number.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// What holds.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }
        }
    };
}

invariants! {
    /// Cases are claims.
    A2 = "epochs grow by one and are never used again";
    /// Cases are events.
    A3 = "no event follows one of a later fence";
    /// Cases are reclaims.
    A9 = "only held jobs are reclaimed, each holder once";
    /// Cases are jobs.
    B1 = "events are numbered without gap or repetition";
    /// Cases are events, and client writes whose outcome was known or unknown.
    B2 = "an unknown commit became one event or none";
    /// Cases are acknowledgements.
    B3 = "what was acknowledged exists";
    /// Cases are events.
    B4 = "the hash chain verifies over the stored bytes";
    /// Cases are ended jobs.
    B5 = "terminal is terminal";
    /// Cases are jobs; rows that no job's history tells of are counted only where something is amiss.
    B7 = "row and timers equal the fold";
    /// Cases are keys that a tool has been called with.
    C1 = "a call comes and a body runs at most once per permission";
    /// Cases are calls that came, whether or not a body ran.
    C2 = "no call without a durable permission before it";
    /// Cases are steps whose calls came.
    C4 = "a call comes with the same key each time";
    /// Cases are ledger rows.
    C5 = "an unknown outcome is in doubt, never a guess";
    /// Cases are bodies of calls with a recorded outcome.
    C6 = "no body after a recorded outcome";
    /// Cases are effects.
    C7 = "one outcome per call, and it was used";
    /// Cases are committed calls.
    C8 = "effect, ledger and events agree";
    /// Cases are events.
    D1 = "only moves of the two tables";
    /// Cases are jobs and repeated submissions.
    D5 = "a job is made whole, and once per client key";
    /// Cases are requested ends.
    D7 = "a requested end ends the job exactly once";
    /// Cases are jobs with steps.
    D8 = "no step before the plan, one plan per version";
    /// Cases are signals, acknowledged or delivered or kept.
    E1 = "an acknowledged signal is consumed or visible";
    /// Cases are waits.
    E2 = "a wait ends exactly once";
    /// Cases are fired timers and ended delays.
    E6 = "timers fire once and not early";
    /// Cases are jobs that nobody runs.
    E7 = "blocked and ended jobs hold no lease";
    /// Cases are jobs with a checkpoint.
    F5 = "checkpoint and suffix equal the full fold";
}

impl Invariant {
    /// Those that need the tools' own log.
    pub const OF_WITNESS: &'static [Self] = &[Self::C1, Self::C2, Self::C4, Self::C6];
    /// Those that need to know what clients were told.
    pub const OF_CLIENTS: &'static [Self] = &[Self::B3];
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

impl Serialize for Invariant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}
