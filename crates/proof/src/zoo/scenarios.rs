//! Scenarios by name.

use anyhow::Result;

use super::world::{Verdict, World};
use super::{outside, runs};

macro_rules! scenarios {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $module:ident :: $run:ident;)*) => {
        /// The smallest stories that show a bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Scenario {
            $($(#[$doc])* $name,)*
        }

        impl Scenario {
            /// Every scenario.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            async fn play(self, world: &World) -> Result<()> {
                match self { $(Self::$name => $module::$run(world).await,)* }
            }
        }
    };
}

scenarios! {
    /// A message is acknowledged and the process is killed before the write.
    Acknowledged = "acknowledged", outside::acknowledged;
    /// A running job is cancelled.
    Cancel = "cancel", runs::cancel;
    /// A job is cancelled after its worker died in a call.
    CancelAfterCrash = "cancel-after-crash", runs::cancel_after_crash;
    /// A job with so many events that a checkpoint is written.
    Checkpoint = "checkpoint", runs::checkpoint;
    /// The worker dies in the call of an `at_most_once` tool.
    CrashInBody = "crash-in-body", runs::crash_in_body;
    /// A signal comes before its wait is reached.
    EarlySignal = "early-signal", runs::early_signal;
    /// A timer is looked at before it is due.
    EarlyTimer = "early-timer", runs::early_timer;
    /// A worker renews a lease that has expired.
    ExpiredHeartbeat = "expired-heartbeat", outside::expired_heartbeat;
    /// The answer comes after the lease was lost.
    LateAnswer = "late-answer", runs::late_answer;
    /// A chain of ledger steps.
    Ledger = "ledger", runs::ledger;
    /// A sweep takes a job whose lease was renewed meanwhile.
    LiveReclaim = "live-reclaim", runs::live_reclaim;
    /// The tool acts and its answer is lost.
    LostAnswer = "lost-answer", runs::lost_answer;
    /// A signal comes while the run that will wait for it is under way.
    RacedSignal = "raced-signal", runs::raced_signal;
    /// A reconcile tool is asked about a call that never left.
    Reconcile = "reconcile", runs::reconcile;
    /// A client sends the same message again.
    Resend = "resend", runs::resend;
    /// Two workers ask for the same permission.
    SecondPermit = "second-permit", outside::second_permit;
    /// The lease is spent by the time the permission is written.
    SpentLease = "spent-lease", runs::spent_lease;
    /// A worker that has lost its job writes to it.
    StaleWrite = "stale-write", outside::stale_write;
    /// Clients send the signal of one wait at once, before it is reached.
    TwoEarlySignals = "two-early-signals", runs::two_early_signals;
    /// Two clients send the signal of one wait at once.
    TwoSignals = "two-signals", runs::two_signals;
}

impl Scenario {
    /// The scenario of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|scenario| scenario.as_str() == name)
    }

    /// Plays it in a fresh world.
    ///
    /// # Errors
    /// It could not be played.
    pub async fn run(self) -> Result<Verdict> {
        let world = World::new()?;
        if self.play(&world).await.is_err() {
            world.found("an operation failed");
        }
        world.verdict().await
    }
}
