//! Scenarios by name.

use anyhow::Result;

use super::world::{Backend, Verdict, World};
use super::{failures, outside, runs, shared, workers};

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
    /// The other side refuses every try.
    AlwaysBusy = "always-busy", failures::always_busy;
    /// A job that can run stands behind one that is delayed.
    BehindDelayed = "behind-delayed", shared::behind_delayed;
    /// A running job is cancelled.
    Cancel = "cancel", runs::cancel;
    /// A job is cancelled after its worker died in a call.
    CancelAfterCrash = "cancel-after-crash", runs::cancel_after_crash;
    /// The agent is replaced while a job of its first version waits to run.
    ChangedAgent = "changed-agent", failures::changed_agent;
    /// A job with so many events that a checkpoint is written.
    Checkpoint = "checkpoint", runs::checkpoint;
    /// The machine's clock is set back by an hour.
    ClockSetBack = "clock-set-back", shared::clock_set_back;
    /// Two messages of one session.
    Conversation = "conversation", shared::conversation;
    /// The worker dies in the call of an `at_most_once` tool.
    CrashInBody = "crash-in-body", runs::crash_in_body;
    /// Two waits, and the signal of the second comes first.
    CrossedSignals = "crossed-signals", failures::crossed_signals;
    /// The job's deadline passes while it waits.
    Deadline = "deadline", failures::deadline;
    /// A message for later.
    Delayed = "delayed", shared::delayed;
    /// A worker is told to stop.
    Drained = "drained", failures::drained;
    /// A signal comes before its wait is reached.
    EarlySignal = "early-signal", runs::early_signal;
    /// A timer is looked at before it is due.
    EarlyTimer = "early-timer", runs::early_timer;
    /// A worker renews a lease that has expired.
    ExpiredHeartbeat = "expired-heartbeat", outside::expired_heartbeat;
    /// The second write of a firing fails, where there is one.
    FailedFiring = "failed-firing", failures::failed_firing;
    /// Writes fail, and say so.
    FailedWrites = "failed-writes", failures::failed_writes;
    /// A refusal and a short back-off.
    HeldBack = "held-back", workers::held_back;
    /// The answer comes after the lease was lost.
    LateAnswer = "late-answer", runs::late_answer;
    /// A signal comes again after its job has ended.
    LateDuplicate = "late-duplicate", shared::late_duplicate;
    /// A chain of ledger steps.
    Ledger = "ledger", runs::ledger;
    /// A sweep takes a job whose lease was renewed meanwhile.
    LiveReclaim = "live-reclaim", runs::live_reclaim;
    /// The tool acts and its answer is lost.
    LostAnswer = "lost-answer", runs::lost_answer;
    /// The tool acts, its answer is lost, and there is no further try.
    LostOnlyAnswer = "lost-only-answer", failures::lost_only_answer;
    /// Writes are made and their answers are lost.
    LostReplies = "lost-replies", failures::lost_replies;
    /// Writes are lost with their answers.
    LostWrites = "lost-writes", failures::lost_writes;
    /// The first permission's call answers while the second's is under way.
    OlderAnswer = "older-answer", failures::older_answer;
    /// A worker renews the lease of an older claim of its own.
    OlderRenewal = "older-renewal", shared::older_renewal;
    /// A job's end is asked for between its answer and the write of it.
    OvertakenAnswer = "overtaken-answer", shared::overtaken_answer;
    /// A running job is paused and goes on later.
    Pause = "pause", runs::pause;
    /// A job waits, and is told what it waits for.
    PlainWait = "plain-wait", failures::plain_wait;
    /// A job kills every worker that takes it.
    Poison = "poison", failures::poison;
    /// A signal comes while the run that will wait for it is under way.
    RacedSignal = "raced-signal", runs::raced_signal;
    /// A reconcile tool is asked about a call that never left.
    Reconcile = "reconcile", runs::reconcile;
    /// The tool that is asked about a lost answer cannot say.
    ReconcileFails = "reconcile-fails", failures::reconcile_fails;
    /// A client sends the same message again.
    Resend = "resend", runs::resend;
    /// Two workers ask for the same permission.
    SecondPermit = "second-permit", outside::second_permit;
    /// The lease is spent by the time the permission is written.
    SpentLease = "spent-lease", runs::spent_lease;
    /// A permission is asked for under an expired lease.
    SpentPermit = "spent-permit", shared::spent_permit;
    /// A worker that has lost its job writes to it.
    StaleWrite = "stale-write", outside::stale_write;
    /// Clients send the signal of one wait at once, before it is reached.
    TwoEarlySignals = "two-early-signals", runs::two_early_signals;
    /// Two signals of one wait differ.
    TwoPayloads = "two-payloads", shared::two_payloads;
    /// Two clients send the signal of one wait at once.
    TwoSignals = "two-signals", runs::two_signals;
    /// The wait's own deadline passes.
    WaitDeadline = "wait-deadline", failures::wait_deadline;
}

impl Scenario {
    /// The scenario of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|scenario| scenario.as_str() == name)
    }

    /// What its world keeps its jobs in: a file, but where a bug is the memory store's own, or the file's
    /// tables refuse what the bug does.
    const fn backend(self) -> Backend {
        if matches!(self, Self::BehindDelayed | Self::PlainWait) { Backend::Memory } else { Backend::Sqlite }
    }

    /// Plays it in a fresh world.
    ///
    /// # Errors
    /// It could not be played.
    pub async fn run(self) -> Result<Verdict> {
        let world = World::on(self.backend())?;
        if let Err(error) = self.play(&world).await {
            world.found(&format!("an operation failed: {error:#}"));
        }
        world.verdict().await
    }
}
