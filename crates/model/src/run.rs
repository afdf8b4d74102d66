//! What a worker writes next. The decisions are those of production's run, asked on what the run has seen
//! ([`step::prepare`] and [`step::conclude`]); what it does with them is modelled: facts gather until a body needs them
//! written, or the job is given away.

use std::collections::BTreeMap;

use aetheris_core::event::{Answer, DoubtOutcome, Event, Failure, JobCompleted, JobFailed, PauseReason};
use aetheris_core::id::{IdSource, IdempotencyKey, PermitId};
use aetheris_core::json::Json;
use aetheris_core::ledger::{LedgerRow, LedgerTrigger};
use aetheris_core::plan::EffectClass;
use aetheris_core::schedule::{self, Next as Due};
use aetheris_core::state::{InvocationPhase, JobState, StepState};
use aetheris_core::step::StepStatus;
use aetheris_core::time::{BootMoment, Reading, Span};
use aetheris_runtime::ToolOutcome;
use aetheris_runtime::ops::{self, Amendment};
use aetheris_runtime::run::prepared::{
    Body, Clocks, Next, Permit as FullPermit, Prepared, Question, Release, Role, Said,
};
use aetheris_runtime::run::rows::Rows;
use aetheris_runtime::run::step;
use aetheris_runtime::run::view::View;
use aetheris_store::EffectRow;

use crate::bugs::Mutation;
use crate::config::{Program, asks_at_once};
use crate::fact::{Answered, Fact, Known, LIFETIME, NOW, Outcome, Permit, READING, fence, key_of};
use crate::short::named;
use crate::signal::{self, Signal};
use crate::state::{Change, Entry, Right, Run, Then, Unit};
use crate::system::Search;

/// Why a run writes nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Too little is left of the lease.
    Unsafe,
    /// What is stored contradicts itself.
    Corrupt,
    /// The reducer refuses a fact of the run's own.
    Illegal,
}

/// Facts that are to be written, on the state with them.
pub struct Draft<'s> {
    pub(crate) program: &'s Program,
    pub(crate) search: &'s Search,
    state: JobState,
    /// The unit so far.
    pub unit: Unit,
}

impl<'s> Draft<'s> {
    /// A draft on what an author has seen.
    #[must_use]
    pub fn new(search: &'s Search, program: &'s Program, view: &crate::state::View, job: u8, right: Right) -> Self {
        let unit = Unit::new(job, right, Some(&view.fold));
        Self { program, search, state: view.fold.state().clone(), unit }
    }

    /// Adds a fact with what is written because of it.
    ///
    /// # Errors
    /// The reducer refuses it.
    pub fn push(&mut self, entry: Entry) -> Result<(), Stop> {
        if let Some(fact) = entry.fact {
            self.state.apply(&fact.event(self.unit.job, self.program)).map_err(|_| Stop::Illegal)?;
        }
        self.unit.entries.push(entry);
        Ok(())
    }

    /// Adds a fact alone.
    ///
    /// # Errors
    /// As [`Draft::push`].
    pub fn fact(&mut self, fact: Fact) -> Result<(), Stop> {
        self.push(Entry::of(fact))
    }

    /// Adds a fact with a settlement of its permit.
    ///
    /// # Errors
    /// As [`Draft::push`].
    pub fn settling(&mut self, fact: Fact, permit: Permit, trigger: LedgerTrigger) -> Result<(), Stop> {
        self.push(Entry { ledger: Some(Change::Settle(permit, trigger)), ..Entry::of(fact) })
    }

    /// Adds what production amends a job by.
    ///
    /// # Errors
    /// As [`Draft::push`].
    pub fn amend(&mut self, amendment: Amendment) -> Result<(), Stop> {
        let Amendment { facts, settles, release } = amendment;
        let config = &self.search.config;
        let held = facts.iter().any(|fact| matches!(fact.event, Event::JobPaused(_)));
        let forgotten = config.has(Mutation::OpenCallsForgotten) || (held && config.has(Mutation::HeldCallForgotten));
        for fact in facts {
            if !(forgotten && matches!(fact.event, Event::StepInDoubt(_))) {
                let entry = self.entry(fact, None)?;
                self.push(entry)?;
            }
        }
        for settle in settles.into_iter().filter(|_| !forgotten) {
            let ledger = Some(Change::Settle(named(settle.permit_id), settle.trigger));
            self.push(Entry { ledger, ..Entry::default() })?;
        }
        self.unit.release |= release;
        Ok(())
    }

    /// The job's state with all facts so far.
    #[must_use]
    pub fn state(&self) -> &JobState {
        &self.state
    }
}

/// The ledger's rows as production reads them.
pub(crate) fn ledger_of(program: &Program, view: &crate::state::View, job: u8) -> BTreeMap<IdempotencyKey, LedgerRow> {
    let rows = (0u8..).zip(view.ledger).zip(&program.steps);
    rows.filter_map(|((node, row), step)| {
        let class = step.class().unwrap_or(EffectClass::Pure);
        Some((key_of(job, node), row?.full(job, class)))
    })
    .collect()
}

/// A run's draft with what production's decisions read.
pub(crate) struct Deciding<'s> {
    pub(crate) draft: Draft<'s>,
    pub(crate) rows: Rows,
    place: usize,
    pub(crate) run: &'s Run,
}

/// The one random value that a decision may draw: the next permit's name.
struct Name(PermitId);

impl IdSource for Name {
    fn ordered(&self) -> u128 {
        self.0.as_u128()
    }

    fn secret(&self) -> u128 {
        self.0.as_u128()
    }
}

/// What the run writes next. It is to be called on a run that is [`crate::state::Phase::Ready`].
///
/// # Errors
/// [`Stop`]; facts that came before it are lost, as production drops them or as no law lets them be missed.
pub fn next_unit(search: &Search, program: &Program, run: &Run) -> Result<Unit, Stop> {
    let deciding = Deciding::new(search, program, run);
    let said = run.known.map(|known| (known.permit.node, deciding.learned(known)));
    deciding.drive(said)
}

/// The unit that fails a job which cannot go on, or ends it as it was asked to.
///
/// # Errors
/// [`Stop::Illegal`].
pub fn failed(search: &Search, program: &Program, run: &Run) -> Result<Unit, Stop> {
    let deciding = Deciding::new(search, program, run);
    let (state, ledger) = (&deciding.draft.state, &deciding.rows.ledger);
    let event = JobFailed { error: Failure::new("modelled", ""), node: None };
    let end =
        ops::asked_end(state.end_requested, state, ledger).unwrap_or_else(|| ops::failed(state, ledger, event, ""));
    deciding.end(end)
}

/// The unit that follows the answer of the tool that was asked about a call.
///
/// # Errors
/// As [`next_unit`].
pub fn after_asking(
    search: &Search,
    program: &Program,
    run: &Run,
    permit: Permit,
    answer: Answered,
    arrivable: bool,
) -> Result<Unit, Stop> {
    let deciding = Deciding::new(search, program, run);
    let waited = deciding.step(permit.node).and_then(|step| step.doubt.as_deref()).is_some_and(|doubt| doubt.waited);
    let early = search.config.has(Mutation::DisproofBelievedEarly);
    // The time that was waited for is over by the clocks of whoever asks; the store has its own.
    let passes = if arrivable && !waited && !early { Span::ZERO } else { LIFETIME };
    let boot = BootMoment { at: READING.boot.at.plus(passes), ..READING.boot };
    let asked = Reading { at: READING.at.after(passes), boot };
    let clocks = Clocks { answered: READING.boot, asked, flying: false };
    let outcome = match answer {
        Answered::Happened => "happened",
        Answered::DidNotHappen => "did_not_happen",
        Answered::Unresolved => "unknown",
    };
    let outcome = ToolOutcome::Done(Json::new(serde_json::json!({ "outcome": outcome })));
    let question = Question { permit_id: permit.id(), refuses: false, whom: asks_at_once() };
    deciding.drive(Some((permit.node, Said::Reconciled(outcome, question, clocks))))
}

impl<'s> Deciding<'s> {
    fn new(search: &'s Search, program: &'s Program, run: &'s Run) -> Self {
        let draft = Draft::new(search, program, &run.view, run.job, Right::Run(run.epoch));
        let mut rows = Rows { ledger: ledger_of(program, &run.view, run.job), ..Rows::default() };
        for (place, node) in (0u8..).zip(&program.paths).map(|(place, _)| (usize::from(place), place)) {
            let key = key_of(run.job, node);
            if let Some(permit) = run.view.effects[place].checked_ilog2() {
                rows.effects.insert(key, EffectRow { at: NOW, key, permit, result: Json::null() });
            }
        }
        let unused = search.config.has(Mutation::SignalNotUsed);
        rows.kept = run.view.kept.iter().filter(|_| !unused).copied().map(Signal::kept).collect();
        Self { draft, rows, place: 0, run }
    }

    pub(crate) fn step(&self, node: u8) -> Option<&StepState> {
        self.draft.state.steps.get(&self.draft.program.paths[usize::from(node)])
    }

    /// An outcome that the run has just learned, as its body would say it.
    fn learned(&self, Known { outcome, permit }: Known) -> Said {
        let class = self.draft.program.steps[usize::from(permit.node)].class().unwrap_or(EffectClass::Pure);
        let key = key_of(self.run.job, permit.node);
        let full = FullPermit { class, id: permit.id(), key, number: u32::from(permit.number) };
        let error = Failure::new("modelled", "");
        let once = class == EffectClass::AtMostOnce;
        let outcome = match outcome {
            Outcome::Done => ToolOutcome::Done(Json::null()),
            Outcome::Unused => return Said::Unsent(full, error),
            Outcome::Unknown if once && self.has(Mutation::TimeoutIsFailure) => {
                ToolOutcome::NotSent { error, permanent: false }
            }
            Outcome::NotSent => ToolOutcome::NotSent { error, permanent: false },
            Outcome::Refused => ToolOutcome::RefusedRetryable { error, retry_after: None },
            Outcome::Unknown => ToolOutcome::Unknown { error, retry_after: None, timeout: false },
        };
        Said::Permitted(outcome, full)
    }

    fn has(&self, mutation: Mutation) -> bool {
        self.draft.search.config.has(mutation)
    }

    /// Decides until something has to be written.
    fn drive(mut self, said: Option<(u8, Said)>) -> Result<Unit, Stop> {
        if let Some((node, said)) = said {
            let concluded = self.ask(node, |view| step::conclude(view, said)).map_err(|_| Stop::Corrupt)?;
            if self.follow(node, concluded)? {
                return Ok(self.draft.unit);
            }
        }
        loop {
            if let Some(cause) = self.draft.state.end_requested {
                let asked = ops::asked_end(Some(cause), &self.draft.state, &self.rows.ledger);
                let held = || ops::held(&self.draft.state, &self.rows.ledger, PauseReason::Operator);
                let end = asked.unwrap_or_else(held);
                return self.end(end);
            }
            let program = self.draft.program;
            let mut place = self.place;
            let due = schedule::next(&self.draft.state, &program.plan, &mut place);
            self.place = place;
            match due {
                Due::Done => {
                    return self.end(Amendment::of([JobCompleted { answer: Answer::Value(Json::null()) }.into()]));
                }
                Due::Failed(_) => {
                    return self
                        .end(Amendment::of([JobFailed { error: Failure::new("modelled", ""), node: None }.into()]));
                }
                Due::Skip(..) => return Err(Stop::Corrupt),
                Due::Node(_) => {
                    let node = u8::try_from(place).map_err(|_| Stop::Corrupt)?;
                    let prepared = self.prepare(node).map_err(|_| Stop::Corrupt)?;
                    if self.follow(node, prepared)? {
                        return Ok(self.draft.unit);
                    }
                }
            }
        }
    }

    fn end(mut self, end: Amendment) -> Result<Unit, Stop> {
        self.draft.amend(end)?;
        self.draft.unit.release = true;
        self.draft.unit.then = Then::End;
        Ok(self.draft.unit)
    }

    fn prepare(&self, node: u8) -> Result<Prepared, Failure> {
        let mut step = self.step(node).cloned();
        if let Some(step) = &mut step {
            if self.has(Mutation::CalledAgainAfterCrash)
                && step.status == StepStatus::Running
                && let Some(invocation) = &mut step.invocation
            {
                invocation.class = EffectClass::Idempotent;
            }
            if self.has(Mutation::DisproofGivesACall) && step.status == StepStatus::Running {
                step.doubt = None;
            }
        }
        match step {
            Some(step) if self.step(node) != Some(&step) => {
                let mut state = self.draft.state.clone();
                state.steps.insert(self.draft.program.paths[usize::from(node)].clone(), step);
                self.ask_on(&state, node, step::prepare)
            }
            Some(_) | None => self.ask(node, step::prepare),
        }
    }

    fn ask<T>(&self, node: u8, decide: impl FnOnce(&View<'_>) -> T) -> T {
        self.ask_on(&self.draft.state, node, decide)
    }

    fn ask_on<T>(&self, state: &JobState, node: u8, decide: impl FnOnce(&View<'_>) -> T) -> T {
        let program = self.draft.program;
        let step = self.step(node);
        let number = step.and_then(|step| step.invocation.as_deref()).map_or(0, |call| call.permit) + 1;
        let permit = Permit { by: self.run.epoch, node, number: u8::try_from(number).unwrap_or(u8::MAX) };
        let unasked = step.is_some() && (self.has(Mutation::BudgetOnlyOnce) || self.has(Mutation::DisproofGivesACall));
        let plan = if unasked { &program.unbounded } else { &program.plan };
        decide(&View {
            accepted_from: None,
            calls: state.tool_calls(plan),
            drawing: Default::default(),
            fence: fence(self.run.epoch),
            ids: &Name(permit.id()),
            rows: &self.rows,
            memory: 0,
            judged: None,
            names: (&program.names).into(),
            node: &plan.plan().nodes[usize::from(node)],
            path: program.paths[usize::from(node)].clone(),
            plan,
            questions: 0,
            rested: false,
            state,
            step_timeout: LIFETIME,
            work: &plan.plan().nodes[usize::from(node)].work,
        })
    }

    /// Takes what was decided into the unit. Whether it is to be written now.
    fn follow(&mut self, node: u8, prepared: Prepared) -> Result<bool, Stop> {
        let Prepared { facts, next, .. } = prepared;
        let calls = matches!(&next, Next::Perform(Body::Call(_, Role::Permit(_))));
        if calls && !self.run.safe && !self.has(Mutation::LeaseNotChecked) {
            // What is known is written; nothing new starts.
            return if self.draft.unit.is_empty() { Err(Stop::Unsafe) } else { Ok(true) };
        }
        for fact in facts {
            self.take(fact)?;
        }
        match next {
            Next::Go | Next::Again => Ok(false),
            Next::Record => Ok(true),
            Next::TryFailed(_) if self.is_disproved(node) && self.has(Mutation::DisproofGivesACall) => Ok(false),
            Next::TryFailed(failed) => {
                let later = self.ask(node, |view| step::after_failure(view, failed));
                self.follow(node, later)
            }
            Next::Release(release) => {
                for fact in release.facts() {
                    self.take(fact)?;
                }
                let expected = match release {
                    Release::Block { expected, .. } => expected.filter(|_| !self.overlooks(node)),
                    Release::Requeue(..) => None,
                };
                let count = expected.and_then(|expected| u8::try_from(expected.count).ok());
                self.draft.unit.expected_signals = count.map(|count| (node, count));
                self.draft.unit.release = true;
                self.draft.unit.then = Then::End;
                Ok(true)
            }
            Next::Perform(Body::Judge(reached, _)) => {
                let said = Said::Judged(reached, signal::arrival(&self.draft.search.config, &self.run.view, node));
                let concluded = self.ask(node, |view| step::conclude(view, said)).map_err(|_| Stop::Corrupt)?;
                self.follow(node, concluded)
            }
            Next::Perform(Body::Call(_, Role::Permit(permit))) => {
                self.draft.unit.then = Then::Call(named(permit.id));
                Ok(true)
            }
            Next::Perform(Body::Call(_, Role::Reconcile(question))) => {
                self.draft.unit.then = Then::Ask(named(question.permit_id));
                Ok(true)
            }
            // No program has such a step, and time stands still.
            Next::Perform(
                Body::Call(_, Role::Pure) | Body::Ask(..) | Body::CheckInput(..) | Body::FindAgent(_) | Body::Rest(_),
            )
            | Next::Check(_)
            | Next::Rejected(..) => Err(Stop::Corrupt),
        }
    }

    fn is_disproved(&self, node: u8) -> bool {
        let invocation = self.step(node).and_then(|step| step.invocation.as_deref());
        invocation.is_some_and(|call| call.phase == InvocationPhase::Resolved(DoubtOutcome::DidNotHappen))
    }

    /// Whether the run does not see signals that are kept for its wait.
    fn overlooks(&self, node: u8) -> bool {
        self.has(Mutation::SignalNotUsed) && self.run.view.kept_for(node).next().is_some()
    }
}

/// A unit's facts as far as a newer state allows them. Whether all of them hold.
#[must_use]
pub fn rebase(search: &Search, program: &Program, run: &Run, unit: &Unit, until_block: bool) -> (Unit, bool) {
    let mut draft = Draft::new(search, program, &run.view, run.job, Right::Run(run.epoch));
    let blocks = |entry: &Entry| until_block && matches!(entry.fact, Some(Fact::Waiting { .. }));
    let facts = unit.entries.iter().take_while(|entry| !blocks(entry));
    for entry in facts {
        let before = draft.state.clone();
        if draft.push(*entry).is_err() {
            draft.state = before;
            break;
        }
    }
    let whole = draft.unit.entries.len() == unit.entries.len();
    if whole {
        draft.unit.expected_signals = unit.expected_signals;
        draft.unit.release = unit.release;
        draft.unit.then = unit.then;
    }
    (draft.unit, whole)
}
