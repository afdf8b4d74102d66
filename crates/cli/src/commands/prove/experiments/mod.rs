//! The experiments: what is done to real processes from outside, and what must hold after it.

mod calls;
mod cancels;
mod doubts;
mod durability;
mod leases;
mod records;
mod restarts;
mod signals;
mod store;
mod timers;

use std::pin::Pin;

use super::plan::Plan;
use super::workspace::Workspace;
use crate::commands::guarantee::Guarantee;
use crate::commands::process_control::Fault;

macro_rules! experiments {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $what:literal, [$($proves:ident),*], $run:path;)*) => {
        /// An experiment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Experiment {
            $($(#[$doc])* $name,)*
        }

        impl Experiment {
            /// Every experiment, in the order in which they are told.
            pub(super) const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name, as `--only` takes it.
            pub(super) const fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// What is done.
            pub(super) const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }

            /// The rows of the table that it has cases for.
            pub(super) const fn proves(self) -> &'static [Guarantee] {
                match self { $(Self::$name => &[$(Guarantee::$proves),*],)* }
            }

            /// Runs it.
            pub(super) fn run<'s>(
                self,
                workspace: &'s mut Workspace<'_>,
            ) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + 's>> {
                match self { $(Self::$name => Box::pin($run(workspace)),)* }
            }
        }
    };
}

experiments! {
    /// Kill right after an answer.
    Accepted = "accepted", "kill -9 right after messages and signals were acknowledged",
        [Kept], durability::run;
    /// Kill around a call.
    Calls = "calls", "kill -9 in the body of a call, before its answer is recorded, and after",
        [Permitted, BodyOnce], calls::run;
    /// Kill at any moment.
    Restarts = "restarts", "kill -9 and SIGTERM at any moment of many jobs, and start again",
        [Kept, BodyOnce, Permitted], restarts::run;
    /// What is unknown.
    Doubts = "doubts", "calls whose outcome is unknown: fail, human, reconcile, wait",
        [Told, Reasoned, BodyOnce], doubts::run;
    /// Idempotent tools.
    Idempotent = "idempotent", "an idempotent tool that fails, or dies with its caller, is called again",
        [SameKey], doubts::idempotent;
    /// Signals.
    Signals = "signals", "signals before their wait, after it, twice, and eight at once",
        [EndsOnce, Kept], signals::run;
    /// Timers.
    Timers = "timers", "sleeps and deadlines over a kill -9",
        [EndsOnce], timers::run;
    /// Cancels.
    Cancels = "cancels", "cancel of what waits, sleeps or is in a call, and kill -9 after the answer",
        [Kept, EndsOnce, BodyOnce], cancels::run;
    /// One process on a folder.
    Folder = "folder", "a second `dev` or `serve` on a data folder, and one after a kill -9",
        [Conditions], store::folder;
    /// The database's lock.
    Lock = "lock", "another process holds the database's write lock for seconds",
        [Conditions, Kept], store::lock;
    /// Replay.
    Replay = "replay", "replay of every kind of job, with the tools counting",
        [Silent, Audited], records::replay;
    /// The chain.
    Chain = "chain", "the hash chain verifies, and every flipped byte is named",
        [Audited], records::chain;
    /// A live holder that is slow.
    Slow = "slow", "a call that takes longer than the lease: slow, not dead",
        [Fenced, BodyOnce], leases::slow;
    /// A holder that died without a word.
    Dead = "dead", "a worker killed in a call; another one takes over after the lease",
        [Permitted, SameKey, BodyOnce], leases::dead;
    /// A holder that is stopped and goes on.
    Stopped = "stopped", "a worker stopped past its lease goes on after another one took over",
        [Fenced, Told, BodyOnce], leases::stopped;
}

impl Experiment {
    /// Whether it mostly waits for leases to end: these run beside all others.
    pub(super) const fn waits_for_leases(self) -> bool {
        matches!(self, Self::Slow | Self::Dead | Self::Stopped)
    }

    /// About how many seconds it takes here.
    pub(super) fn seconds(self, plan: &Plan) -> u64 {
        let lease = plan.lease.as_secs();
        let by_rounds = |full, quick| if plan.quick { quick } else { full };
        match self {
            Self::Accepted => by_rounds(9, 3),
            Self::Calls => by_rounds(4, 1),
            Self::Restarts => by_rounds(15, 4),
            Self::Doubts | Self::Timers => 4,
            Self::Idempotent | Self::Folder => 2,
            Self::Signals | Self::Cancels => 1,
            Self::Replay => 2,
            Self::Chain => by_rounds(2, 1),
            Self::Lock => by_rounds(8, 2),
            Self::Slow => lease + plan.heartbeat.as_secs() + 4,
            Self::Dead | Self::Stopped => lease + 6,
        }
    }
}
