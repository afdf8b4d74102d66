//! Production's facts in their short form.

use aetheris_core::event::{DoubtOutcome, EndCause, Event, InvocationOutcome, Source, StepResult, TimerId, WaitEnd};
use aetheris_core::id::{PermitId, SignalId};
use aetheris_core::ledger::LedgerTrigger;
use aetheris_core::path::StepPath;
use aetheris_runtime::draft::Fact as FullFact;
use aetheris_store::{InboxWrite, LedgerWrite};

use crate::config::wait_key;
use crate::fact::{Answered, Fact, Outcome, Permit};
use crate::laws::Sight;
use crate::run::{Deciding, Draft, Stop};
use crate::signal::Signal;
use crate::state::{Change, Entry, Inbox, Run, permit_of};

impl Deciding<'_> {
    /// A fact of production's in its short form, with all that is written because of it.
    pub(crate) fn take(&mut self, fact: FullFact) -> Result<(), Stop> {
        self.rows.note(&fact);
        self.see(&fact.event);
        let entry = self.draft.entry(fact, Some(self.run))?;
        self.draft.push(entry)
    }

    fn see(&self, event: &Event) {
        let tally = &self.draft.search.tally;
        if let Event::ToolInvocationFinished(told) = event
            && told.source == Source::CaughtUp
            && told.outcome == InvocationOutcome::Committed
        {
            tally.see(Sight::CaughtUp);
        }
        if let Event::NodeFinished(ended) = event
            && ended.error.as_ref().is_some_and(|error| error.code == "budget_exceeded")
        {
            tally.see(Sight::BudgetUsedUp);
        }
        if let Event::WaitCompleted(_) = event {
            tally.see(Sight::SignalConsumed);
        }
    }
}

impl Draft<'_> {
    /// A fact of production's in its short form, with all that is written because of it. What only a run can record is
    /// told by the run.
    pub(crate) fn entry(&self, fact: FullFact, run: Option<&Run>) -> Result<Entry, Stop> {
        let FullFact { effect, event, inbox, ledger, plan: _ } = fact;
        let short = self.short(&event, run).ok_or(Stop::Corrupt)?;
        let mut entry = Entry::of(short);
        if let Some(effect) = effect {
            entry.effect = Some(named(effect.permit_id));
        }
        entry.ledger = match ledger.map(|ledger| *ledger) {
            Some(LedgerWrite::Permit(request)) => Some(Change::Ask(named(request.permit_id))),
            Some(LedgerWrite::Settle(settle)) => Some(Change::Settle(named(settle.permit_id), settle.trigger)),
            Some(LedgerWrite::Disprove(disproof)) => {
                Some(Change::Settle(named(disproof.permit_id), LedgerTrigger::Disprove))
            }
            Some(LedgerWrite::See { .. }) | None => None,
        };
        entry.inbox = match inbox.map(|inbox| *inbox) {
            Some(InboxWrite::Consume(id)) => Some(Inbox::Consume(signal(run, id).ok_or(Stop::Corrupt)?)),
            Some(InboxWrite::Receive { .. }) => return Err(Stop::Corrupt),
            None => None,
        };
        Ok(entry)
    }

    fn place(&self, node: &StepPath) -> Option<u8> {
        let place = self.program.paths.iter().position(|id| id == node)?;
        u8::try_from(place).ok()
    }

    /// The permit that the events speak of.
    fn current(&self, node: u8) -> Option<Permit> {
        let step = self.state().steps.get(&self.program.paths[usize::from(node)])?;
        Some(permit_of(node, step.invocation.as_deref()?))
    }

    /// The short form of an event that a run or an operation can record; `None` of any other.
    fn short(&self, event: &Event, run: Option<&Run>) -> Option<Fact> {
        Some(match event {
            Event::NodeStarted(e) => Fact::Started { node: self.place(&e.node)?, number: u8::try_from(e.number).ok()? },
            Event::NodeFinished(e) if e.error.is_some() => Fact::StepFailed(self.place(&e.node)?),
            Event::NodeFinished(e) => {
                Fact::Finished { node: self.place(&e.node)?, tool: e.result == StepResult::SideEffectCommitted }
            }
            Event::NodeRetryScheduled(e) => Fact::Retry(self.place(&e.node)?),
            Event::ToolInvocationStarted(e) => Fact::Called(named(e.permit_id)),
            Event::ToolInvocationFinished(e) => {
                let unused = run.and_then(|run| run.known).is_some_and(|known| known.outcome == Outcome::Unused);
                let outcome = match e.outcome {
                    InvocationOutcome::Committed => Outcome::Done,
                    InvocationOutcome::NotSent if unused => Outcome::Unused,
                    InvocationOutcome::NotSent => Outcome::NotSent,
                    InvocationOutcome::RefusedRetryable | InvocationOutcome::RefusedPermanent => Outcome::Refused,
                    InvocationOutcome::InDoubt => Outcome::Unknown,
                };
                Fact::InvocationFinished { outcome, permit: self.current(self.place(&e.node)?)? }
            }
            Event::CommandCommitted(e) => Fact::Command(self.place(&e.node)?),
            Event::StepInDoubt(e) => {
                Fact::Doubt { permit: self.current(self.place(&e.node)?)?, policy: u8::try_from(e.policy).ok()? }
            }
            Event::InDoubtResolved(e) => {
                let answer = match e.outcome {
                    DoubtOutcome::Happened => Answered::Happened,
                    DoubtOutcome::DidNotHappen => Answered::DidNotHappen,
                    DoubtOutcome::Unresolved => Answered::Unresolved,
                };
                Fact::Answered { answer, permit: self.current(self.place(&e.node)?)? }
            }
            Event::JobWaiting(e) => {
                let node = self.place(&e.node)?;
                // The key that production renders is the one that signals name.
                let fits = e.doubt || e.correlation_key.as_deref() == Some(wait_key(node).as_str());
                fits.then_some(Fact::Waiting { doubt: e.doubt, node })?
            }
            Event::TimerSet(e) => match &e.timer {
                TimerId::Wait(node) => Fact::TimerSet { doubt: false, node: self.place(node)? },
                TimerId::Doubt(node) => Fact::TimerSet { doubt: true, node: self.place(node)? },
                TimerId::Deadline => return None,
            },
            Event::SignalRefused(e) => Fact::SignalRefused(signal(run, e.signal)?),
            Event::WaitCompleted(e) => {
                let signal = match &e.by {
                    WaitEnd::Signal { signal: id, .. } => Some(signal(run, *id)?),
                    WaitEnd::Dropped | WaitEnd::Time => None,
                };
                Fact::WaitEnded { node: self.place(&e.node)?, signal }
            }
            Event::TimerFired(e) => match &e.timer {
                TimerId::Wait(node) => Fact::TimerFired { doubt: false, node: self.place(node)? },
                TimerId::Doubt(node) => Fact::TimerFired { doubt: true, node: self.place(node)? },
                TimerId::Deadline => Fact::DeadlineFired,
            },
            Event::JobCancelRequested(e) => match e.cause {
                EndCause::Cancel => Fact::EndRequested,
                EndCause::Deadline => Fact::DeadlineRequested,
                EndCause::Pause => return None,
            },
            Event::JobPauseRequested(_) => Fact::PauseRequested,
            Event::JobPaused(_) => Fact::Paused,
            Event::JobResumed(_) => Fact::Resumed,
            Event::JobCompleted(_) => Fact::Completed,
            Event::JobFailed(_) => Fact::Failed,
            Event::JobCancelled(_) => Fact::Cancelled,
            Event::JobRequeued(e) => Fact::Requeued { retry: e.reason.waits() },
            _ => return None,
        })
    }
}

/// A signal that is kept for the run.
fn signal(run: Option<&Run>, id: SignalId) -> Option<Signal> {
    run?.view.kept.iter().copied().find(|kept| kept.name() == id)
}

/// The permit of a name that [`Permit::id`] has made.
pub(crate) fn named(id: PermitId) -> Permit {
    let byte = |shift: u32| u8::try_from((id.as_u128() >> shift) & 0xff).unwrap_or(u8::MAX);
    Permit { by: byte(16), node: byte(8), number: byte(0) }
}
