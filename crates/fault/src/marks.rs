//! Marks: what must always hold, what must be reached sometimes, and what is never reached.
//!
//! `always!` and `unreachable!` stay in a release: they end the task that has met the impossible, and
//! with it the run of one job, whose lease then expires; never the process. `sometimes!` is counted in
//! builds with the feature `faults` only: a batch of simulated runs that never met a [`Mark`] has not
//! tested it, and fails.

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rare state that tests must reach. One line each: what happens there.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mark {
            $($(#[$doc])* $name,)*
        }

        impl Mark {
            /// Every mark.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

marks! {
    /// A plan that a model had made could not be read, or was not to be had.
    PlanRejected,
    /// A person did not approve of a plan.
    PlanDeclined,
    /// A run has recorded the plan that was made in it, and followed it.
    PlanMade,
    /// A person had answered the question of a tool.
    QuestionAnswered,
    /// The same of one that the model of a loop had asked.
    QuestionOfModelAnswered,
    /// Nobody had answered the question of a tool in time.
    QuestionOverdue,
    /// A question was withdrawn whose map or loop had failed.
    QuestionDropped,
    /// A model was told that a call of its loop has failed.
    ModelToldOfFailure,
    /// A call of a loop was not made, since its model had made a mistake.
    CallRefused,
    /// A last word did not fit its schema.
    LastWordRejected,
    /// A loop was asked for its last word, as it had used up what it may.
    LastWordAsked,
    /// Two calls of one turn were under way.
    CallsBeside,
    /// An output did not fit the schema of its step.
    SchemaRejects,
    /// A step was given up that was under way when its map or its loop failed with another.
    ItemGivenUp,
    /// A job was blocked on a child of it.
    ChildAwaited,
    /// A child was cancelled because nobody waits for it any more.
    ChildCancelled,
    /// A child was asked for, and its parent had ended before it was created.
    ChildOfEndedParent,
    /// A child ended whose parent, or its step, had ended before.
    ChildToldNobody,
    /// A job was told of a child's end while somebody held it.
    ChildToldWhileRunning,
    /// What was promised had been done by somebody else.
    DeliveredByAnother,
    /// A run heard at once of what a step waited for.
    NewsHeard,
    /// An operator's answer came when another permit was in doubt already.
    AnswerForOldPermit,
    /// Two bodies of one job were under way at once.
    BesideEachOther,
    /// A job was given away blocked on more than one of its steps.
    BlockedOnSeveral,
    /// A job that had been at work for one step went back to waiting for another.
    BlockedStill,
    /// A call was made again under a further permit, with the same key.
    CalledAgain,
    /// A cancel met a job that somebody held.
    CancelOfHeld,
    /// A cancel met a job that nobody held.
    CancelOfIdle,
    /// A step was finished from a recorded effect.
    CaughtUp,
    /// A fold began from a checkpoint.
    CheckpointRead,
    /// A deadline ended a job.
    DeadlineHit,
    /// A critic rejected an output.
    CriticRejects,
    /// A late outcome became the effect.
    DepositTaken,
    /// A late outcome answered the doubt on which its job waited.
    DepositEndedDoubt,
    /// A late outcome became evidence only.
    DepositWasEvidence,
    /// A tool that was asked refuses the permit from now on, and was believed at once.
    DisproofRefuses,
    /// "Did not happen" was told while the call could still arrive, and not believed yet.
    DisproofTooEarly,
    /// A doubt was given up at the end of its policies.
    DoubtGivenUp,
    /// A doubt waits for a person.
    DoubtHuman,
    /// A doubt was put to a tool.
    DoubtReconciled,
    /// A doubt waits for a late outcome.
    DoubtWait,
    /// A run was told to drain and gave its job back.
    DrainedJob,
    /// A run was about to end its job, and something written meanwhile forbade it.
    EndRefused,
    /// The keeper ended a run whose lease was not safe any more.
    LeaseNotSafe,
    /// A renewal was refused.
    LeaseRefused,
    /// A lease had run short between permission and call; nothing was sent.
    LeaseSpentBeforeCall,
    /// A permission took so long to be written that nothing was sent.
    PermitSpentBeforeCall,
    /// A pause met a job that somebody held.
    PauseOfHeld,
    /// A pause met a job that nobody held.
    PauseOfIdle,
    /// A run let its job go, since a pause was asked for.
    PausedByHolder,
    /// A wait ended while its job was paused.
    PausedWaitEnded,
    /// A job was taken back, and is paused since that was asked for.
    PausedByReclaim,
    /// A job ended because its workers died too often.
    PoisonJob,
    /// A run had gone on by the time its unit was written.
    RanAhead,
    /// A unit was refused whose author did not wait for it.
    Recalled,
    /// A draft was laid onto a newer state and kept whole.
    RebasedWhole,
    /// A draft was laid onto a newer state and cut.
    RebasedCut,
    /// A lost job was taken back.
    Reclaimed,
    /// A sweep found that its job was taken back already.
    ReclaimLate,
    /// A paused job was let go on.
    Resumed,
    /// A job was given back because its model's provider could not be asked more.
    RateReleased,
    /// A job was released for a long back-off.
    RetryReleased,
    /// A short back-off was waited for in the slot.
    RetryHeld,
    /// A newer state did not take an outcome that a run had just learned, which was deposited.
    DroppedOutcomeDeposited,
    /// A step had to wait, and others of its job went on.
    HeldBesideOthers,
    /// A run met a ledger that someone else had settled.
    RunMetSettledLedger,
    /// A run that had lost its lease ended.
    RunLost,
    /// An unknown commit was found to be written.
    ResolvedWritten,
    /// An unknown commit was found not to be there, and was sent again.
    ResolvedAbsent,
    /// A step failed while bodies beside it were under way.
    SiblingsHalted,
    /// A signal came before its wait and was kept.
    SignalKept,
    /// A kept signal was consumed by its wait.
    SignalConsumed,
    /// A signal came again after it was delivered.
    SignalRepeated,
    /// A signal was kept beside another of its key.
    SignalKeptBeside,
    /// A kept signal did not fit the wait that was reached.
    SignalMisfit,
    /// A wait was about to begin, and a signal for it had just been kept.
    SignalRacedWait,
    /// A plain step's body took so long that its start was written beside it.
    StartShown,
    /// A stale run was refused by its fence.
    StaleRefused,
    /// A timer fired.
    TimerFired,
    /// A timer was fired by someone else, or is no more.
    TimerLate,
    /// A timer was listed as due, and then the store's clock was set back.
    TimerNotDue,
    /// A deadline of a wait ended it.
    WaitTimedOut,
    /// A job was given back at once, since a step that waits was to begin when it was blocked on those before it.
    WaitsInTurn,
}

/// Numbers that a test build may shrink, so that rare paths are met in small runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knob {
    /// Events between two checkpoints.
    CheckpointEvents,
    /// Rows that one page of a sweep has.
    SweepRows,
}

/// Ends the task if what must hold does not: a fault of this program, told with its context. Stays in
/// a release; builds with the feature `faults` count how often it was asked.
#[macro_export]
macro_rules! always {
    ($holds:expr, $($context:tt)+) => {{
        #[cfg(feature = "faults")]
        $crate::marks::examine();
        assert!($holds, $($context)+);
    }};
}

/// Counts that a rare state was reached, where the condition holds. Nothing in a release.
#[macro_export]
macro_rules! sometimes {
    ($mark:ident) => {
        $crate::sometimes!($mark, true)
    };
    ($mark:ident, $reached:expr) => {{
        #[cfg(feature = "faults")]
        if $reached {
            $crate::marks::reach($crate::marks::Mark::$mark);
        }
        #[cfg(not(feature = "faults"))]
        let _ = || ($crate::marks::Mark::$mark, $reached);
    }};
}

/// Ends the task at a place that cannot be reached. Stays in a release.
#[macro_export]
macro_rules! unreachable {
    ($($context:tt)+) => {
        ::core::panic!("a place that cannot be reached was reached: {}", format_args!($($context)+))
    };
}

/// A number, or what a test build has made of it.
#[macro_export]
macro_rules! tuned {
    ($knob:ident, $value:expr) => {{
        #[cfg(feature = "faults")]
        let tuned = $crate::marks::tuned($crate::marks::Knob::$knob).unwrap_or($value);
        #[cfg(not(feature = "faults"))]
        let tuned = $value;
        tuned
    }};
}

#[cfg(feature = "faults")]
mod counted {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{Knob, Mark};

    static REACHED: [AtomicU64; Mark::ALL.len()] = [const { AtomicU64::new(0) }; Mark::ALL.len()];

    thread_local! {
        static EXAMINED: Cell<u64> = const { Cell::new(0) };
        static KNOBS: [Cell<Option<u64>>; 2] = const { [const { Cell::new(None) }; 2] };
    }

    /// Counts a mark.
    pub fn reach(mark: Mark) {
        REACHED[mark as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often each mark was reached by this process.
    #[must_use]
    pub fn reached() -> Vec<(Mark, u64)> {
        Mark::ALL.iter().map(|mark| (*mark, REACHED[*mark as usize].load(Ordering::Relaxed))).collect()
    }

    /// Counts a look at what must always hold.
    pub fn examine() {
        EXAMINED.set(EXAMINED.get() + 1);
    }

    /// How often this thread has looked at what must always hold.
    #[must_use]
    pub fn examined() -> u64 {
        EXAMINED.get()
    }

    /// What this thread has made of a number.
    #[must_use]
    pub fn tuned(knob: Knob) -> Option<u64> {
        KNOBS.with(|knobs| knobs[knob as usize].get())
    }

    /// Shrinks a number for this thread, or restores it.
    pub fn tune(knob: Knob, value: Option<u64>) {
        KNOBS.with(|knobs| knobs[knob as usize].set(value));
    }
}

#[cfg(feature = "faults")]
pub use counted::{examine, examined, reach, reached, tune, tuned};
