//! The writers that hold no fence: signals, timers, cancels, reclaims, answers to doubts, deposits. Each looks
//! at the job and drafts one unit, which holds only while the job is as it was seen.

use aetheris_core::event::TimerId;
use aetheris_core::id::InstanceId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::ledger::LedgerTrigger;
use aetheris_core::limits;
use aetheris_runtime::ops::{self, Amendment, DepositOutcome, Proof};

use crate::bugs::Mutation;
use crate::config::Program;
use crate::fact::{Answered, Fact, Known, Late, Outcome, Permit};
use crate::laws::{Law, Sight, judge};
use crate::run::{Draft, Stop, ledger_of};
use crate::signal::{self, Word};
use crate::state::{Change, Entry, Job, Right, Unit};
use crate::system::{Search, System};

/// An operation from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Somebody cancels.
    Cancel,
    /// The job's deadline comes.
    Deadline,
    /// A timer that is due fires.
    Fire {
        /// Whether it belongs to a doubt.
        doubt: bool,
        /// The step.
        node: u8,
    },
    /// Somebody holds the job still.
    Pause,
    /// A job whose lease has expired is taken back.
    Reclaim,
    /// A job whose holder is proved dead is taken back.
    ReclaimDead,
    /// An operator answers a doubt, truthfully.
    Resolve {
        /// Whether it happened.
        happened: bool,
        /// The step.
        node: u8,
    },
    /// Somebody lets a paused job go on.
    Resume,
    /// A client sends a signal, again if it was sent before.
    Signal {
        /// The step whose wait it names.
        node: u8,
        /// What it brings.
        word: Word,
    },
}

/// What an operation makes of a job.
#[derive(Debug, Clone)]
pub enum Look {
    /// Nothing is to be done.
    Nothing,
    /// It is answered at once; the state may have learned of it.
    Answered,
    /// This is to be written.
    Write(Box<Unit>),
}

/// Looks at the job and drafts what is to be written.
pub fn look(search: &Search, system: &mut System, number: u8, op: Op) -> Look {
    let job = system.jobs[usize::from(number)].clone();
    let program = search.program(&job);
    let drafted = match op {
        Op::Signal { node, word } => return signal::send(search, system, (number, &job), program, (node, word)),
        Op::Cancel if search.config.has(Mutation::CancelLost) && job.status() == JobStatus::Running => {
            system.jobs[usize::from(number)].cancelled = true;
            return Look::Answered;
        }
        Op::Cancel => cancel(search, program, &job, number),
        Op::Deadline => deadline(search, program, &job, number),
        Op::Pause => pause(search, program, &job, number),
        Op::Resume => resume(search, program, &job, number),
        Op::Fire { doubt, node } => fire(search, program, &job, number, (doubt, node)),
        Op::Reclaim => reclaim(search, program, &job, number, Right::Expired(job.view.fold.epoch())),
        Op::ReclaimDead => reclaim(search, program, &job, number, Right::Dead(job.view.fold.epoch())),
        Op::Resolve { happened, node } => resolve(search, program, &job, number, (happened, node)),
    };
    match drafted {
        Ok(Some(unit)) => Look::Write(Box::new(unit)),
        Ok(None) => Look::Nothing,
        Err(_) => {
            judge(search, system, Law::MovesAreLegal, false);
            Look::Answered
        }
    }
}

/// Takes note of what an operation's unit means once it is written.
pub fn wrote(search: &Search, system: &mut System, number: u8, op: Op, idle: bool) {
    let job = &mut system.jobs[usize::from(number)];
    match op {
        Op::Cancel => {
            job.cancelled = true;
            if job.later && !job.moment {
                search.tally.see(Sight::CancelledEarly);
            }
            if idle {
                search.tally.see(Sight::CancelOfIdle);
            }
        }
        Op::Resolve { happened, .. } => {
            search.tally.see(if happened { Sight::DoubtHappened } else { Sight::DoubtDisproved });
        }
        Op::Deadline => {
            job.expired = true;
            search.tally.see(if idle { Sight::DeadlineOfIdle } else { Sight::DeadlineOfHeld });
        }
        Op::Pause => {
            job.pauses += 1;
            if job.later && !job.moment {
                search.tally.see(Sight::PausedEarly);
            }
        }
        Op::Fire { .. } | Op::Reclaim | Op::ReclaimDead | Op::Resume | Op::Signal { .. } => {}
    }
}

fn draft<'s>(search: &'s Search, program: &'s Program, job: &Job, number: u8, right: Right) -> Draft<'s> {
    Draft::new(search, program, &job.view, number, right)
}

type Drafted = Result<Option<Unit>, Stop>;

/// The unit of an amendment, if there is one.
fn amended(mut draft: Draft<'_>, amendment: Option<Amendment>) -> Drafted {
    let Some(amendment) = amendment else { return Ok(None) };
    draft.amend(amendment)?;
    Ok(Some(draft.unit))
}

fn cancel(search: &Search, program: &Program, job: &Job, number: u8) -> Drafted {
    let draft = draft(search, program, job, number, Right::Outside);
    let found = ops::cancelling(draft.state(), &ledger_of(program, &job.view, number));
    amended(draft, found.ok().and_then(|(amendment, _)| amendment))
}

/// Whether its deadline can still come.
pub(crate) fn has_deadline(job: &Job) -> bool {
    !job.status().is_terminal() && job.view.fold.state().timers.contains_key(&TimerId::Deadline)
}

fn deadline(search: &Search, program: &Program, job: &Job, number: u8) -> Drafted {
    if !has_deadline(job) {
        return Ok(None);
    }
    let draft = draft(search, program, job, number, Right::Due);
    let mut fired = ops::fired(draft.state(), &ledger_of(program, &job.view, number), &TimerId::Deadline);
    let blocked = matches!(job.status(), JobStatus::Waiting | JobStatus::Parked);
    if blocked && search.config.has(Mutation::DeadlineIgnoredWhileBlocked) {
        fired.facts.truncate(1);
        fired.settles.clear();
    }
    amended(draft, Some(fired))
}

fn pause(search: &Search, program: &Program, job: &Job, number: u8) -> Drafted {
    let draft = draft(search, program, job, number, Right::Outside);
    let found = ops::pausing(draft.state(), &ledger_of(program, &job.view, number));
    amended(draft, found.ok().and_then(|(amendment, _)| amendment))
}

fn resume(search: &Search, program: &Program, job: &Job, number: u8) -> Drafted {
    let draft = draft(search, program, job, number, Right::Outside);
    let found = ops::resuming(draft.state());
    amended(draft, found.ok().flatten())
}

fn fire(search: &Search, program: &Program, job: &Job, number: u8, (doubt, node): (bool, u8)) -> Drafted {
    let due = job.due[usize::from(node)] & (1 << u8::from(doubt)) != 0;
    let timer = crate::fact::timer(doubt, program.paths[usize::from(node)].clone());
    let set = job.view.fold.state().timers.contains_key(&timer);
    if !set || !(due || search.config.has(Mutation::TimerFiresEarly)) {
        return Ok(None);
    }
    let right = if due { Right::Due } else { Right::Outside };
    let draft = draft(search, program, job, number, right);
    let fired = ops::fired(draft.state(), &ledger_of(program, &job.view, number), &timer);
    amended(draft, Some(fired))
}

fn reclaim(search: &Search, program: &Program, job: &Job, number: u8, right: Right) -> Drafted {
    if job.status() != JobStatus::Running {
        return Ok(None);
    }
    let draft = draft(search, program, job, number, right);
    let proof = match right {
        Right::Dead(_) => Proof::Dead(InstanceId::from_u128(0)),
        Right::Expired(_) | Right::Due | Right::Outside | Right::Run(_) => Proof::Expired,
    };
    let (ledger, max) = (ledger_of(program, &job.view, number), limits::RECLAIMS_WITHOUT_PROGRESS_MAX);
    let freed = ops::taken_back(draft.state(), &ledger, proof, max);
    amended(draft, Some(freed))
}

fn resolve(search: &Search, program: &Program, job: &Job, number: u8, (happened, node): (bool, u8)) -> Drafted {
    let Some(permit) = job.open_doubt(program, node) else {
        return Ok(None);
    };
    let mut draft = draft(search, program, job, number, Right::Outside);
    if happened {
        let fact = Fact::Answered { answer: Answered::Happened, permit };
        let ledger = Some(Change::Settle(permit, LedgerTrigger::Commit));
        draft.push(Entry { effect: Some(permit), ledger, ..Entry::of(fact) })?;
    } else {
        let fact = Fact::Answered { answer: Answered::DidNotHappen, permit };
        draft.settling(fact, permit, LedgerTrigger::Disprove)?;
        // It ends the try; a job that has ended does nothing more.
        if !job.status().is_terminal() {
            draft.fact(Fact::Retry(node))?;
        }
    }
    Ok(Some(draft.unit))
}

/// The unit that deposits a known outcome in the right of its permit.
#[must_use]
pub fn deposit(search: &Search, job: &Job, number: u8, known: Known) -> Option<Unit> {
    let program = search.program(job);
    let Known { outcome, permit } = known;
    let place = usize::from(permit.node);
    let any = search.config.has(Mutation::DepositOfAnyPermit);
    let row = job.view.ledger[place].filter(|row| row.permit == permit || any);
    let trigger = match outcome {
        Outcome::Done => LedgerTrigger::Commit,
        Outcome::Refused => LedgerTrigger::RefuseRetryable,
        Outcome::NotSent | Outcome::Unused => LedgerTrigger::NotSent,
        Outcome::Unknown => return None,
    };
    let done = outcome == Outcome::Done;
    let open = row.is_some_and(|row| ops::is_open(row.status, done && !row.disproved));
    if !open {
        search.tally.see(Sight::DepositEvidence);
        let mut unit = Unit::new(number, Right::Outside, None);
        let recorded = (job.view.effects[place] & permit.bit() != 0).then(Json::null);
        let outcome = if done { DepositOutcome::Done(Json::null()) } else { DepositOutcome::Settled(trigger) };
        let contradicts = ops::contradicts(&outcome, recorded.as_ref(), row.is_some());
        unit.evidence = Some(Late { contradicts, permit });
        return Some(unit);
    }
    search.tally.see(Sight::DepositTaken);
    let mut unit = Unit::new(number, Right::Outside, Some(&job.view.fold));
    let doubted: Option<Permit> = job.open_doubt(program, permit.node).filter(|_| done);
    let fact = doubted.map(|permit| Fact::Answered { answer: Answered::Happened, permit });
    if fact.is_some() {
        search.tally.see(Sight::DepositEndsDoubt);
    }
    let ledger = Some(Change::Settle(permit, trigger));
    unit.entries.push(Entry { effect: done.then_some(permit), fact, ledger, ..Entry::default() });
    Some(unit)
}
