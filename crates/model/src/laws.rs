//! What must hold. Laws about a step are judged where the step is made, from the truth and not from the
//! guards; laws about a state are judged on every state. The names are those of the invariants.

use std::sync::atomic::{AtomicU64, Ordering};

use aetheris_core::event::InvocationOutcome;
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::plan::EffectClass;
use aetheris_core::state::{InvocationPhase, Output, WaitPhase};
use aetheris_core::step::StepStatus;
use stateright::Property;

use crate::config::{Program, STEPS_MAX, wait_key};
use crate::signal::Signal;
use crate::state::{Job, Phase, Run};
use crate::system::{Search, System};

/// The laws, and each of them as a property of every state.
macro_rules! laws {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal;)* }) => {
        listed! { $(#[$outer])* $name { $($(#[$doc])* $variant = $text;)* } }

        fn always() -> Vec<Property<Search>> {
            vec![$(Property::always($text, |_: &Search, system: &System| {
                system.broken & (1 << ($name::$variant as u64)) == 0
            })),*]
        }
    };
}

laws! {
    /// What always holds.
    Law {
        /// Fences decide who believes in a lease.
        OneHolder = "A1 at most one run believes its lease safe, and it is the holder";
        /// Claims count.
        EpochGrows = "A2 each claim raises the epoch by one";
        /// Fences in order.
        NoStaleWrite = "A3 no write in the right of a fence that is not the newest and held";
        /// A permission is asked for under a lease that lives.
        PermitNeedsLease = "A4 a permission is given only to the holder of a live lease";
        /// Renewals.
        RenewsOnlyLive = "A5 a renewal extends only a live lease of the same fence";
        /// The worker stops by itself.
        CallsOnlySafe = "A7 a call leaves only under a live lease";
        /// Reclaims.
        ReclaimsOnlyLost = "A9 only an expired or dead holder's running job is taken back";
        /// Facts follow what their author has seen.
        LogIsDense = "B1 facts are appended only to the log their author has seen";
        /// Unknown commits.
        UnknownIsSettled = "B2 a run goes on from an unknown commit knowing the truth";
        /// Terminal.
        TerminalStays = "B5 an ended job changes its status no more";
        /// At most once.
        BodyOnce = "C1 the body of an at_most_once step begins at most once";
        /// Once per permission.
        BodyOncePerPermit = "C1 a body begins at most once per permission, whatever its class";
        /// Once per permission, whatever the other side said.
        CallOncePerPermit = "C1 a call leaves at most once per permission, whether or not a body begins";
        /// Permission first.
        PermitBeforeCall = "C2 no call leaves without its recorded, current permission";
        /// Open calls.
        DoubtIsListed = "C5 an ended job has no open call that is not listed as in doubt";
        /// Open calls of a job that nobody runs.
        HeldDoubtIsListed = "C5 a paused job has no call of unknown outcome that must not be repeated and is not in doubt";
        /// No needless doubt.
        NoIdleDoubt = "C5 a run never doubts a call of its own that has not left";
        /// A failed step is no guess.
        NoSilentFailure = "C5 a step fails over a body that began only as unresolved";
        /// Outcome durable.
        NoCallAfterOutcome = "C6 no call leaves once the outcome is recorded";
        /// A success that came too late.
        NothingAfterSuccess = "C6 no call is permitted once another one of its key is known to have succeeded";
        /// One outcome.
        OneOutcome = "C7 an at_most_once step has at most one effect";
        /// What goes on is what is recorded.
        OutcomeIsUsed = "C7 a completed tool step stands on the effect of its permit";
        /// Three records of one thing.
        RecordsAgree = "C8 events, ledger and effects agree";
        /// Proof of not having happened.
        RefusalIsProved = "C10 a permit settled as refused, unused or disproved had no body";
        /// The tables.
        MovesAreLegal = "D1 the reducer accepts every event that the store accepted";
        /// Terminal jobs.
        NoClaimAfterEnd = "D2 an ended job is never claimed";
        /// Delayed jobs.
        NotBeforeItsMoment = "D2 nobody works on a job before the moment that it was sent for";
        /// Sessions.
        SessionInOrder = "L8 nobody works on a job of a session before every earlier one has ended";
        /// Cancel.
        CancelOrAnswer = "D7 a job whose cancel was accepted does not complete";
        /// Deadline.
        DeadlineEnds = "D7 a job whose deadline has come does not complete";
        /// Budget.
        BudgetHolds = "D14 no call leaves beyond the job's budget";
        /// Kept signals are not lost.
        KeptStaysKnown = "E1 a signal that was acknowledged has ended its wait, was refused by it, or is kept still";
        /// Signals.
        NoWaitOverKept = "E1 a job never waits, or has waited in vain, for a signal that is kept";
        /// Acknowledged deposits.
        OutcomeNotDropped = "E1 a known outcome that came too late is an effect or evidence";
        /// Waits.
        DeliveredOnce = "E2 one signal ends one wait once";
        /// The order of signals.
        FirstFitEnds = "E3 of the signals that were acknowledged for a wait the first that fits is the one that ends it";
        /// Schemas.
        FitDecides = "E5 a wait ends only by a signal of its own that fits, and refuses only what does not";
        /// Duplicates.
        DuplicateIsKnown = "E4 a signal that was delivered is known as such for ever";
        /// Timers.
        TimerNotEarly = "E6 a timer fires when it is due, and not before";
        /// Blocked jobs.
        LeaseMeansRunning = "E7 exactly running jobs are held";
        /// The ledger as the last wall.
        RefusalIsRace = "C5 the ledger refuses a run only what was settled since the run has looked";
        /// Recovery.
        NeverCorrupt = "R1 recovery never finds a contradiction";
    }
}

listed! {
    /// What is seen at least once, or the search has shown nothing.
    Sight {
        /// A lease was taken back.
        Reclaimed = "a job is taken back because its lease is over";
        /// No lease has to end where the holder is known to be dead.
        ReclaimedDead = "a job is taken back because its holder is dead";
        /// Zombies.
        StaleRefused = "a write of a stale run is refused";
        /// The lease ended between claim and permission.
        LeaseRefused = "a permission is refused because the lease has expired";
        /// Optimism.
        SequenceRefused = "a write is refused because the log moved";
        /// A draft is laid onto a newer state.
        Rebased = "a run lays its facts onto a newer state";
        /// The race of wait and signal.
        WaitRaced = "a wait is refused because a signal was kept meanwhile";
        /// The race of two signals.
        KeepRaced = "a signal is not kept because another one was kept meanwhile";
        /// Kept signals.
        SignalKept = "a signal is kept";
        /// Kept signals are used.
        SignalConsumed = "a kept signal ends the wait it was kept for";
        /// Several of one key.
        SignalKeptBeside = "a signal is kept beside another one of its key";
        /// Before anyone can say what fits.
        MisfitKept = "a signal that does not fit is kept for a wait whose key is not known yet";
        /// Where it is known what fits.
        MisfitAtTheDoor = "a signal that does not fit its wait is refused when it comes";
        /// Where it becomes known.
        MisfitRefused = "a wait that is reached refuses a kept signal that does not fit";
        /// A misfit uses up nothing.
        FitAfterMisfit = "a signal ends a wait for which one was kept that does not fit";
        /// Signals.
        SignalDelivered = "a signal ends a wait";
        /// Late signals.
        SignalTooLate = "a signal comes after its wait or job is over";
        /// Timers.
        TimerFired = "a timer fires";
        /// Doubts.
        DoubtEntered = "a call's outcome is in doubt";
        /// Answers.
        DoubtHappened = "a doubt is answered: it happened";
        /// Answers.
        DoubtDisproved = "a doubt is answered: it did not happen";
        /// Answers.
        DisprovedTooEarly = "the answer that it did not happen is refused as too early";
        /// A second permit.
        SecondPermit = "a second permission is given";
        /// Late bodies.
        LateBody = "a body begins after its run is gone";
        /// Deposits.
        DepositTaken = "a late outcome becomes the effect";
        /// Deposits.
        DepositEndsDoubt = "a late outcome answers the doubt";
        /// Deposits.
        DepositEvidence = "a late outcome is kept as evidence";
        /// A success that came too late.
        SuccessBefore = "a job fails because another call of its key is known to have succeeded";
        /// Catch up.
        CaughtUp = "a run catches up from a recorded effect";
        /// Unknown commits.
        UnknownWritten = "an unknown commit was written";
        /// Unknown commits.
        UnknownAbsent = "an unknown commit was not written and is sent again";
        /// Late commits.
        LateCommit = "a commit arrives after its author is gone";
        /// Cancel.
        CancelOfHeld = "a held job is cancelled";
        /// Cancel.
        CancelOfIdle = "a job that nobody holds is cancelled";
        /// Deadline.
        DeadlineOfHeld = "the deadline of a held job comes";
        /// Deadline.
        DeadlineOfIdle = "the deadline of a job that nobody holds comes";
        /// Budget.
        BudgetUsedUp = "a job has made all the calls that it may make";
        /// Pause.
        PauseOfHeld = "a held job is asked to pause";
        /// Pause.
        Paused = "a job is paused";
        /// Resume.
        Resumed = "a paused job goes on";
        /// Delayed jobs.
        TooEarly = "a job is not claimed because its moment has not come";
        /// Delayed jobs.
        MomentCame = "the moment comes that a job was sent for";
        /// Delayed jobs.
        CancelledEarly = "a job is cancelled before its moment";
        /// Delayed jobs.
        PausedEarly = "a job is paused before its moment";
        /// Sessions.
        HeldUp = "a job is not claimed because an earlier one of its session has not ended";
        /// Sessions.
        SessionGoesOn = "a job is claimed because every earlier one of its session has ended";
        /// Renewal.
        Renewed = "a lease that ran short is renewed";
        /// Ends.
        Completed = "a job completes";
        /// Unused permits.
        PermitUnused = "a permission is given back unused";
    }
}

impl Law {
    /// Whether it is judged where it holds, too; the other one is judged only where it is broken.
    #[must_use]
    pub fn is_counted(self) -> bool {
        self != Self::NeverCorrupt
    }
}

/// How often each law was judged and each sight seen, over all threads.
#[derive(Debug)]
pub struct Tally {
    examined: Vec<AtomicU64>,
    seen: Vec<AtomicU64>,
}

impl Default for Tally {
    fn default() -> Self {
        let zeroes = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
        Self { examined: zeroes(Law::ALL.len()), seen: zeroes(Sight::ALL.len()) }
    }
}

impl Tally {
    /// How often the law was judged on something it speaks of.
    #[must_use]
    pub fn examined(&self, law: Law) -> u64 {
        self.examined[law as usize].load(Ordering::Relaxed)
    }

    /// How often it was seen.
    #[must_use]
    pub fn seen(&self, sight: Sight) -> u64 {
        self.seen[sight as usize].load(Ordering::Relaxed)
    }

    /// Sees it.
    pub fn see(&self, sight: Sight) {
        self.seen[sight as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, law: Law) {
        self.examined[law as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Judges a law about a step; a breach marks the state.
pub fn judge(search: &Search, system: &mut System, law: Law, holds: bool) {
    search.tally.count(law);
    if !holds {
        system.broken |= 1 << (law as u64);
    }
}

/// Judges the laws about states, and marks what is broken.
pub fn judge_state(search: &Search, system: &mut System) {
    let mut verdicts: Vec<(Law, bool)> = Vec::with_capacity(16);
    for (place, job) in system.jobs.iter().enumerate() {
        let program = search.program(job);
        let status = job.status();
        // A run that does not know whether it has given the job away does nothing until it knows.
        let acts = |run: &Run| !matches!(run.phase, Phase::Settling { .. });
        let safe = system.runs().filter(|run| usize::from(run.job) == place && run.safe && acts(run));
        let believed = safe.clone().count();
        if believed > 0 {
            let epoch = job.view.fold.epoch();
            let holder = safe.clone().all(|run| run.epoch == epoch) && job.held && job.live;
            verdicts.push((Law::OneHolder, believed == 1 && holder));
        }
        verdicts.push((Law::LeaseMeansRunning, job.held == (status == JobStatus::Running)));
        if job.has_begun() && job.later {
            verdicts.push((Law::NotBeforeItsMoment, job.moment));
        }
        if job.has_begun() && search.config.session && place > 0 {
            let ended = |earlier: &Job| earlier.status().is_terminal();
            verdicts.push((Law::SessionInOrder, system.jobs[..place].iter().all(ended)));
        }
        if job.cancelled && status.is_terminal() {
            verdicts.push((Law::CancelOrAnswer, status != JobStatus::Completed));
        }
        if job.expired && status.is_terminal() {
            verdicts.push((Law::DeadlineEnds, status != JobStatus::Completed));
        }
        if !job.acknowledged.is_empty() {
            verdicts.push((Law::KeptStaysKnown, job.acknowledged.iter().all(|signal| places(job, signal) == 1)));
        }
        for (node, step) in (0u8..).zip(&program.steps) {
            match step.class() {
                Some(class) => tool_laws(job, program, node, class, &mut verdicts),
                None => wait_laws(job, node, &mut verdicts),
            }
        }
    }
    for (law, holds) in verdicts {
        judge(search, system, law, holds);
    }
}

fn tool_laws(job: &Job, program: &Program, node: u8, class: EffectClass, verdicts: &mut Vec<(Law, bool)>) {
    let at = usize::from(node);
    let (bodies, effects) = (job.bodies[at], job.view.effects[at]);
    if class == EffectClass::AtMostOnce {
        verdicts.push((Law::BodyOnce, bodies.count_ones() <= 1));
        verdicts.push((Law::OneOutcome, effects.count_ones() <= 1));
    }
    let Some(row) = job.view.ledger[at] else {
        return;
    };
    let began = bodies & row.permit.bit() != 0;
    let recorded = effects & row.permit.bit() != 0;
    let proved = match row.status {
        LedgerStatus::RefusedRetryable | LedgerStatus::RefusedPermanent | LedgerStatus::NotSent => true,
        LedgerStatus::InDoubt => row.disproved,
        LedgerStatus::Started | LedgerStatus::Committed | LedgerStatus::FailedUnresolved => false,
    };
    if proved {
        verdicts.push((Law::RefusalIsProved, !began));
    }
    verdicts.push((Law::RecordsAgree, recorded == (row.status == LedgerStatus::Committed)));
    if job.status().is_terminal() {
        verdicts.push((Law::DoubtIsListed, row.status != LedgerStatus::Started));
    }
    if job.status() == JobStatus::Paused && class == EffectClass::AtMostOnce {
        verdicts.push((Law::HeldDoubtIsListed, row.status != LedgerStatus::Started));
    }
    let Some(step) = job.view.fold.step(program, node) else {
        return;
    };
    let told = step.invocation.as_deref();
    if told.is_some_and(|i| i.phase == InvocationPhase::Finished(InvocationOutcome::Committed)) {
        verdicts.push((Law::RecordsAgree, row.status == LedgerStatus::Committed));
    }
    match step.status {
        StepStatus::Completed => {
            let same = told.is_some_and(|i| i.permit_id == row.permit.id());
            let used = matches!(step.output, Some(Output::Effect(_))) && same && recorded && began;
            verdicts.push((Law::OutcomeIsUsed, used));
        }
        StepStatus::Failed if began => {
            let open = match row.status {
                LedgerStatus::FailedUnresolved => true,
                LedgerStatus::Started
                | LedgerStatus::Committed
                | LedgerStatus::RefusedRetryable
                | LedgerStatus::RefusedPermanent
                | LedgerStatus::NotSent
                | LedgerStatus::InDoubt => false,
            };
            verdicts.push((Law::NoSilentFailure, open));
        }
        StepStatus::Pending
        | StepStatus::Running
        | StepStatus::Retrying
        | StepStatus::Waiting
        | StepStatus::InDoubt
        | StepStatus::Validating
        | StepStatus::Refining
        | StepStatus::Failed
        | StepStatus::Skipped
        | StepStatus::Rejected => {}
    }
}

/// In how many places a signal stands that can stand in one only.
fn places(job: &Job, signal: &Signal) -> usize {
    [&job.delivered, &job.refused, &job.view.kept].into_iter().filter(|list| list.contains(signal)).count()
}

fn wait_laws(job: &Job, node: u8, verdicts: &mut Vec<(Law, bool)>) {
    if let Some(record) = job.view.fold.state().waits.get(&wait_key(node)) {
        let idle = match record.phase {
            WaitPhase::Open | WaitPhase::Over => true,
            WaitPhase::Delivered { .. } => false,
        };
        if idle {
            verdicts.push((Law::NoWaitOverKept, job.view.kept_for(node).next().is_none()));
        }
    }
    let delivered = job.delivered.iter().filter(|delivered| delivered.node == node).count();
    verdicts.push((Law::DeliveredOnce, delivered <= 1));
}

/// What always holds, and what comes about in the end.
#[must_use]
pub fn properties() -> Vec<Property<Search>> {
    let mut list = always();
    list.extend(eventually());
    list
}

/// Each is true of the end of every path and of nothing before it, so that no path is judged by a state that
/// it only passes.
#[must_use]
pub fn eventually() -> Vec<Property<Search>> {
    let at_rest = Property::<Search>::eventually;
    vec![
        at_rest("H1 nothing gets stuck: everything comes to rest with every job ended", |_, system: &System| {
            system.ends_with(|job| job.status().is_terminal())
        }),
        at_rest("D7 an accepted cancel ends the job", |_, system: &System| {
            system.ends_with(|job| !job.cancelled || job.status().is_terminal())
        }),
        at_rest("E1 an acknowledged signal is delivered or refused, or its job has ended", |_, system: &System| {
            let met = |job: &Job| job.acknowledged.iter().all(|signal| !job.view.kept.contains(signal));
            system.ends_with(|job| met(job) || job.status().is_terminal())
        }),
        at_rest("C5 every doubt is answered in the end", |_, system: &System| {
            let open = |job: &Job| {
                (0..STEPS_MAX).any(|at| {
                    let open = |row: crate::state::Row| {
                        row.status == LedgerStatus::Started || (row.status == LedgerStatus::InDoubt && !row.disproved)
                    };
                    job.view.ledger[at].is_some_and(open)
                })
            };
            system.ends_with(|job| !open(job))
        }),
        at_rest("E7 no lease is left behind", |_, system: &System| system.ends_with(|job| !job.held)),
    ]
}
