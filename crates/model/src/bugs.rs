//! Planted mistakes of the protocol. Each is found by the search, in the smallest configuration that shows it.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Doubts, Step};
use crate::search::{Bound, Report, run};
use crate::signal::Word;

listed! {
    /// A mistake in the protocol.
    Mutation {
        /// Neither the transaction that writes nor the run that reads again looks at the fence. (With one of the two
        /// in place no stale write gets through: every reclaim and claim moves the log.)
        FenceNotChecked = "fence-not-checked";
        /// A claim keeps the epoch.
        EpochNotRaised = "epoch-not-raised";
        /// A renewal revives an expired lease.
        RenewalRevives = "renewal-revives";
        /// A renewal names no fence.
        RenewalOfAnyFence = "renewal-of-any-fence";
        /// A reclaim does not look at the lease.
        ReclaimIgnoresLease = "reclaim-ignores-lease";
        /// A permission is given without a live lease.
        PermissionWithoutLease = "permission-without-lease";
        /// A call leaves without a look at what is left of the lease.
        LeaseNotChecked = "lease-not-checked-before-call";
        /// A call that was refused leaves again under the same permission.
        ResentAfterRefusal = "resent-after-refusal";
        /// A call leaves before its permission is written.
        CallBeforePermission = "call-before-permission";
        /// The ledger gives any permission that is asked for.
        LedgerNotArbitrated = "ledger-not-arbitrated";
        /// An open `at_most_once` call is made again after a crash.
        CalledAgainAfterCrash = "called-again-after-crash";
        /// A timeout counts as a call that did not happen.
        TimeoutIsFailure = "timeout-is-failure";
        /// "Did not happen" is believed while the call can still arrive.
        DisproofBelievedEarly = "disproof-believed-early";
        /// A job ends without a word on its open calls.
        OpenCallsForgotten = "open-calls-forgotten";
        /// A job is paused without a word on its open calls.
        HeldCallForgotten = "held-call-forgotten";
        /// A late outcome is dropped.
        OutcomeDropped = "outcome-dropped";
        /// A deposit is taken for whatever permit is current.
        DepositOfAnyPermit = "deposit-of-any-permit";
        /// A success that came too late does not keep the next call from being permitted.
        SuccessForgotten = "success-forgotten";
        /// An unknown commit counts as written.
        UnknownIsWritten = "unknown-is-written";
        /// An unknown commit counts as not written.
        UnknownIsAbsent = "unknown-is-absent";
        /// A write is taken although the log has moved.
        SequenceNotChecked = "sequence-not-checked";
        /// A timer's write is taken although the log has moved.
        TimerWithoutSequence = "timer-without-sequence";
        /// A timer fires before it is due.
        TimerFiresEarly = "timer-fires-early";
        /// A kept signal is never used.
        SignalNotUsed = "signal-not-used";
        /// A wait begins without a look at kept signals.
        WaitWithoutLooking = "wait-without-looking";
        /// A signal that does not fit ends the wait that is open.
        DoorTakesAll = "door-takes-all";
        /// A kept signal that does not fit ends its wait.
        KeptMisfitTaken = "kept-misfit-taken";
        /// A wait that is reached looks at the first signal that is kept for it, and at no other.
        OnlyFirstLookedAt = "only-first-kept-looked-at";
        /// A wait that finds a kept signal that does not fit refuses all that are kept for it.
        FitRefusedToo = "fit-refused-too";
        /// Of kept signals that fit, the last one ends the wait.
        LastSignalWins = "last-signal-wins";
        /// A signal that is kept takes the place of those before it.
        KeptReplaced = "kept-replaced";
        /// A signal is asked whether the job has ended before whether it was delivered.
        EndBeforeDuplicate = "end-before-duplicate";
        /// A cancel of a held job is accepted and not written.
        CancelLost = "cancel-lost";
        /// A claim does not look at the moment that a job was sent for.
        DelayIgnored = "delay-ignored";
        /// Claims never see that a job's moment has come.
        MomentNotSeen = "moment-not-seen";
        /// A job that was paused may be claimed before its moment.
        PauseForgetsMoment = "pause-forgets-moment";
        /// Only a job that is held holds up those behind it in its session.
        SessionHeldUpByHeld = "session-held-up-by-held-only";
        /// A paused job does not hold up those behind it in its session.
        SessionPassesPaused = "session-passes-paused";
        /// Only a job that completes lets the next one of its session go.
        SessionNeedsAnswer = "session-needs-answer";
        /// A deadline ends only jobs that run.
        DeadlineIgnoredWhileBlocked = "deadline-ignored-while-blocked";
        /// The budget is asked before the first try alone.
        BudgetOnlyOnce = "budget-only-once";
        /// "Did not happen" gives one more call in the same try.
        DisproofGivesACall = "disproof-gives-a-call";
    }
}

impl Mutation {
    /// The smallest configuration that shows it.
    #[must_use]
    pub fn config(self) -> Config {
        const ONCE: &[&[Step]] = &[&[Step::Once(&[Doubts::Human])]];
        const WAIT: &[&[Step]] = &[&[Step::Wait { deadline: true, late: false }]];
        const LATE: Step = Step::Wait { deadline: true, late: true };
        const IDEMPOTENT: &[&[Step]] = &[&[Step::Idempotent]];
        let slow = |programs| Config { slow: 1, ..Config::calm(programs) };
        let crash = |programs| Config { crashes: 1, ..Config::calm(programs) };
        let signals = |signals| Config { signals, slow_outside: true, ..Config::calm(WAIT) };
        let config = match self {
            Self::PermissionWithoutLease => Config { unknown: 1, ..slow(ONCE) },
            Self::FenceNotChecked | Self::RenewalRevives | Self::LeaseNotChecked | Self::OutcomeDropped => slow(ONCE),
            Self::EpochNotRaised | Self::CalledAgainAfterCrash => crash(ONCE),
            Self::RenewalOfAnyFence => Config { slow: 2, ..slow(ONCE) },
            Self::ReclaimIgnoresLease
            | Self::CallBeforePermission
            | Self::ResentAfterRefusal
            | Self::TimeoutIsFailure
            | Self::DisproofBelievedEarly => Config::calm(ONCE),
            Self::LedgerNotArbitrated | Self::DepositOfAnyPermit => slow(IDEMPOTENT),
            Self::SuccessForgotten => Config { crashes: 1, ..slow(IDEMPOTENT) },
            Self::OpenCallsForgotten => Config { cancels: true, ..crash(ONCE) },
            Self::HeldCallForgotten => Config { pauses: 1, ..crash(ONCE) },
            Self::UnknownIsWritten | Self::UnknownIsAbsent => Config { unknown: 1, ..Config::calm(ONCE) },
            Self::SequenceNotChecked | Self::TimerWithoutSequence => signals(1),
            Self::TimerFiresEarly => Config::calm(WAIT),
            Self::SignalNotUsed | Self::WaitWithoutLooking => signals(1),
            Self::EndBeforeDuplicate => signals(2),
            Self::DoorTakesAll => Config { words: &[Word::Misfit], ..signals(1) },
            Self::KeptMisfitTaken
            | Self::OnlyFirstLookedAt
            | Self::FitRefusedToo
            | Self::LastSignalWins
            | Self::KeptReplaced => Config::unfit(2).with(&[&[Step::Idempotent, LATE]]),
            Self::MomentNotSeen => Config::delayed().with(ONCE),
            Self::DelayIgnored => Config { later: true, ..Config::calm(ONCE) },
            Self::PauseForgetsMoment => Config { later: true, pauses: 1, ..Config::calm(ONCE) },
            Self::SessionHeldUpByHeld => Config { jobs: 2, session: true, ..Config::calm(ONCE) },
            Self::SessionPassesPaused => Config { jobs: 2, pauses: 1, session: true, ..Config::calm(ONCE) },
            Self::SessionNeedsAnswer => Config::session().with(ONCE),
            Self::CancelLost => Config { cancels: true, ..Config::calm(WAIT) },
            Self::DeadlineIgnoredWhileBlocked => Config { deadlines: true, ..Config::calm(WAIT) },
            Self::BudgetOnlyOnce => Config { budget: Some(1), ..Config::calm(&[]) }.with(IDEMPOTENT),
            Self::DisproofGivesACall => {
                Config { budget: Some(1), ..Config::calm(&[]) }.with(&[&[Step::Once(&[Doubts::Reconcile])]])
            }
        };
        Config { mutation: Some(self), ..config }
    }

    /// Searches until it is found.
    #[must_use]
    pub fn hunt(self) -> Report {
        let bound = Bound { deep: false, first: true, threads: 1, limit: Some(Duration::from_secs(60)) };
        run(self.config(), bound, &Arc::default())
    }
}
