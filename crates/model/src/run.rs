//! What a worker writes next: the run of production, with its decisions made by `schedule::next`,
//! `recovery::decide`, the retry policy and the reducer, on what the run has seen.

use aetheris_core::event::{EndCause, InvocationOutcome, WaitEnd};
use aetheris_core::ledger::{LedgerStatus, LedgerTrigger};
use aetheris_core::plan::{DoubtPolicy, EffectClass, Node, NodeKind};
use aetheris_core::recovery::{self, Decision, EffectSeen, LedgerSeen, StepEvidence};
use aetheris_core::schedule::{self, Next};
use aetheris_core::state::{InvocationPhase, JobState, StepState};
use aetheris_core::step::StepStatus;

use crate::bugs::Mutation;
use crate::config::{Program, STEPS_MAX};
use crate::fact::{Answered, Fact, Outcome, Permit};
use crate::laws::Sight;
use crate::outside::asked_end;
use crate::signal::Arrival;
use crate::state::{Change, Entry, Inbox, Known, Right, Row, Run, Then, Unit, permit_of};
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
    ledger: [Option<Row>; STEPS_MAX],
    place: usize,
    program: &'s Program,
    search: &'s Search,
    state: JobState,
    /// The unit so far.
    pub unit: Unit,
}

/// One turn's result.
enum Turn {
    Go,
    Write,
}

type Done = Result<Turn, Stop>;

impl<'s> Draft<'s> {
    /// A draft on what an author has seen.
    #[must_use]
    pub fn new(search: &'s Search, program: &'s Program, view: &crate::state::View, job: u8, right: Right) -> Self {
        let unit = Unit::new(job, right, Some(&view.fold));
        Self { ledger: view.ledger, place: 0, program, search, state: view.fold.state().clone(), unit }
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

    /// The calls whose outcome is unknown are told as in doubt, before the job ends.
    ///
    /// # Errors
    /// As [`Draft::push`].
    pub fn doubt_open_calls(&mut self) -> Result<(), Stop> {
        if self.search.config.has(Mutation::OpenCallsForgotten) {
            return Ok(());
        }
        for node in 0..self.program.nodes.len() {
            let Some(step) = self.state.steps.get(&self.program.nodes[node]) else {
                continue;
            };
            let row = self.ledger[node];
            let Some(invocation) = step.invocation.as_ref() else {
                continue;
            };
            let permit = permit_of(u8::try_from(node).unwrap_or(0), invocation);
            let unknown = invocation.phase == InvocationPhase::Finished(InvocationOutcome::InDoubt);
            let still = row.is_none_or(|row| row.permit.number < permit.number || row.status == LedgerStatus::InDoubt);
            if matches!(recovery::told(step), StepEvidence::Called { .. }) {
                if row.is_none_or(|row| row.status == LedgerStatus::Started) {
                    self.settling(Fact::Doubt { permit, policy: 0 }, permit, LedgerTrigger::Doubt)?;
                }
            } else if unknown && still && !step.status.is_terminal() {
                let ledger = Some(Change::Settle(permit, LedgerTrigger::GiveUp));
                self.push(Entry { ledger, ..Entry::default() })?;
            }
        }
        Ok(())
    }

    fn end(&mut self, fact: Fact) -> Done {
        self.fact(fact)?;
        self.give_away()
    }

    fn give_away(&mut self) -> Done {
        self.unit.release = true;
        self.unit.then = Then::End;
        Ok(Turn::Write)
    }

    fn step(&self, node: u8) -> Option<&StepState> {
        self.state.steps.get(&self.program.nodes[usize::from(node)])
    }

    fn start(&mut self, node: u8) -> Result<(), Stop> {
        let (status, tries) = self.step(node).map_or((StepStatus::Pending, 0), |step| (step.status, step.tries));
        match status {
            StepStatus::Pending | StepStatus::Retrying => {
                let number = u8::try_from(tries + 1).unwrap_or(u8::MAX);
                self.fact(Fact::Started { node, number })
            }
            StepStatus::Running
            | StepStatus::Waiting
            | StepStatus::InDoubt
            | StepStatus::Completed
            | StepStatus::Failed
            | StepStatus::Skipped => Ok(()),
        }
    }
}

/// What the run writes next. It is to be called on a run that is [`crate::state::Phase::Ready`].
///
/// # Errors
/// [`Stop`]; facts that came before it are lost, as production drops them or as no law lets them be missed.
pub fn next_unit(search: &Search, program: &Program, run: &Run) -> Result<Unit, Stop> {
    let mut draft = Draft::new(search, program, &run.view, run.job, Right::Run(run.epoch));
    if let Some(known) = run.known
        && let Turn::Write = draft.record(known)?
    {
        return Ok(draft.unit);
    }
    loop {
        if draft.state.end_requested == Some(EndCause::Pause) {
            draft.end(Fact::Paused)?;
            return Ok(draft.unit);
        }
        if let Some(cause) = draft.state.end_requested {
            draft.doubt_open_calls()?;
            draft.end(asked_end(cause))?;
            return Ok(draft.unit);
        }
        let mut place = draft.place;
        let turn = match schedule::next(&draft.state, &program.plan, &mut place) {
            Next::Done => draft.end(Fact::Completed)?,
            Next::Failed(_) => draft.end(Fact::Failed)?,
            Next::Skip(..) => return Err(Stop::Corrupt),
            Next::Node(node) => draft.turn(run, node, place)?,
        };
        draft.place = place;
        if let Turn::Write = turn {
            return Ok(draft.unit);
        }
    }
}

impl Draft<'_> {
    /// The facts of an outcome that the run has just learned.
    fn record(&mut self, known: Known) -> Done {
        let Known { outcome, permit } = known;
        let told = Fact::InvocationFinished { outcome, permit };
        let once = self.class(permit.node) == Some(EffectClass::AtMostOnce);
        match outcome {
            Outcome::Done => {
                let ledger = Some(Change::Settle(permit, LedgerTrigger::Commit));
                self.push(Entry { effect: Some(permit), ledger, ..Entry::of(told) })?;
                self.command(permit.node)
            }
            Outcome::Unused => {
                self.settling(told, permit, LedgerTrigger::NotSent)?;
                Ok(Turn::Go)
            }
            Outcome::NotSent => {
                self.settling(told, permit, LedgerTrigger::NotSent)?;
                self.after_failure(permit, true)
            }
            Outcome::Refused => {
                self.settling(told, permit, LedgerTrigger::RefuseRetryable)?;
                self.after_failure(permit, true)
            }
            Outcome::Unknown if once && self.search.config.has(Mutation::TimeoutIsFailure) => {
                self.settling(
                    Fact::InvocationFinished { outcome: Outcome::NotSent, permit },
                    permit,
                    LedgerTrigger::NotSent,
                )?;
                self.after_failure(permit, true)
            }
            Outcome::Unknown if once => {
                self.enter_doubt(permit)?;
                self.follow_doubt(permit)
            }
            Outcome::Unknown => {
                self.settling(told, permit, LedgerTrigger::Doubt)?;
                self.after_failure(permit, true)
            }
        }
    }

    fn class(&self, node: u8) -> Option<EffectClass> {
        self.program.steps[usize::from(node)].class()
    }

    fn command(&mut self, node: u8) -> Done {
        self.fact(Fact::Command(node))?;
        self.fact(Fact::Finished { node, tool: true })?;
        Ok(Turn::Go)
    }

    fn after_failure(&mut self, permit: Permit, retryable: bool) -> Done {
        let node = permit.node;
        let tries = self.step(node).map_or(0, |step| step.tries);
        let plan = &self.program.plan;
        let retries = plan.at(usize::from(node)).is_some_and(|n| plan.retry_of(n).allows_another(tries));
        if retryable && retries {
            self.fact(Fact::Retry(node))?;
            // An idempotent tool's back-off is a long one: the job is given back.
            if self.class(node) == Some(EffectClass::Idempotent) && self.state.end_requested.is_none() {
                self.fact(Fact::Requeued { retry: true })?;
                return self.give_away();
            }
            return Ok(Turn::Write);
        }
        let unknown = self
            .step(node)
            .and_then(|step| step.invocation.as_ref())
            .is_some_and(|invocation| invocation.phase == InvocationPhase::Finished(InvocationOutcome::InDoubt));
        if unknown {
            self.settling(Fact::StepFailed(node), permit, LedgerTrigger::GiveUp)?;
        } else {
            self.fact(Fact::StepFailed(node))?;
        }
        Ok(Turn::Go)
    }

    fn turn(&mut self, run: &Run, node: &Node, place: usize) -> Done {
        let number = u8::try_from(place).unwrap_or(0);
        let told = self.step(number).map_or(StepEvidence::NotStarted, recovery::told);
        let effects = run.view.effects[place];
        let effect = (effects != 0).then(|| EffectSeen { permit: 7 - effects.leading_zeros() });
        let ledger =
            self.ledger[place].map(|row| LedgerSeen { permit: u32::from(row.permit.number), status: row.status });
        match recovery::decide(told, effect, ledger) {
            Decision::Inject | Decision::Nothing => Ok(Turn::Go),
            Decision::Run => {
                let pending = self.step(number).is_none_or(|step| step.status == StepStatus::Pending);
                if pending && self.over_budget(node) { self.too_dear(number) } else { self.work(run, node, number) }
            }
            Decision::NextTry if self.over_budget(node) && !self.search.config.has(Mutation::BudgetOnlyOnce) => {
                self.too_dear(number)
            }
            Decision::CallAgain if self.over_budget(node) => self.give_up(number),
            Decision::NextTry | Decision::CallAgain => self.work(run, node, number),
            Decision::EndTry if self.search.config.has(Mutation::DisproofGivesACall) => self.work(run, node, number),
            Decision::EndTry => {
                let permit = self.permit(number)?;
                self.after_failure(permit, true)
            }
            Decision::CatchUp => {
                self.search.tally.see(Sight::CaughtUp);
                self.catch_up(number)
            }
            Decision::CatchUpOutcome(outcome) => self.catch_up_outcome(number, outcome),
            Decision::EnterDoubt if self.search.config.has(Mutation::CalledAgainAfterCrash) => {
                self.work(run, node, number)
            }
            Decision::EnterDoubt => {
                let permit = self.permit(number)?;
                self.enter_doubt(permit)?;
                self.follow_doubt(permit)
            }
            Decision::ResumeDoubt => {
                let permit = self.permit(number)?;
                self.follow_doubt(permit)
            }
            Decision::Corrupt(_) => Err(Stop::Corrupt),
        }
    }

    /// Whether the job has made all the calls that it may make.
    fn over_budget(&self, node: &Node) -> bool {
        let plan = &self.program.plan;
        let tool = matches!(node.kind, NodeKind::Tool { .. });
        tool && plan.plan().budget.max_tool_calls.is_some_and(|most| self.state.tool_calls(plan) >= most)
    }

    fn too_dear(&mut self, node: u8) -> Done {
        self.search.tally.see(Sight::BudgetUsedUp);
        let row = self.ledger[usize::from(node)];
        let permit = self.step(node).and_then(|step| step.invocation.as_ref()).map(|call| permit_of(node, call));
        match permit {
            // What became of the last call stays unknown.
            Some(permit) if row.is_some_and(|row| row.status == LedgerStatus::InDoubt && !row.disproved) => {
                self.settling(Fact::StepFailed(node), permit, LedgerTrigger::GiveUp)?;
            }
            Some(_) | None => self.fact(Fact::StepFailed(node))?,
        }
        Ok(Turn::Go)
    }

    /// A call that may not be made again stays unknown.
    fn give_up(&mut self, node: u8) -> Done {
        self.search.tally.see(Sight::BudgetUsedUp);
        let permit = self.permit(node)?;
        let told = Fact::InvocationFinished { outcome: Outcome::Unknown, permit };
        match self.ledger[usize::from(node)] {
            Some(row) if row.status == LedgerStatus::InDoubt => self.fact(told)?,
            Some(_) | None => self.settling(told, permit, LedgerTrigger::Doubt)?,
        }
        self.settling(Fact::StepFailed(node), permit, LedgerTrigger::GiveUp)?;
        Ok(Turn::Go)
    }

    fn permit(&self, node: u8) -> Result<Permit, Stop> {
        let invocation = self.step(node).and_then(|step| step.invocation.as_ref());
        invocation.map(|invocation| permit_of(node, invocation)).ok_or(Stop::Corrupt)
    }

    fn work(&mut self, run: &Run, node: &Node, number: u8) -> Done {
        match &node.kind {
            NodeKind::Tool { .. } => self.call_tool(run, number),
            NodeKind::Wait(wait) => self.wait(run, number, wait.deadline.is_some()),
            NodeKind::Condition | NodeKind::Llm(_) | NodeKind::Sleep(_) | NodeKind::Transform(_) => Err(Stop::Corrupt),
        }
    }

    fn call_tool(&mut self, run: &Run, node: u8) -> Done {
        if !run.safe && !self.search.config.has(Mutation::LeaseNotChecked) {
            // What is known is written; nothing new starts.
            return if self.unit.is_empty() { Err(Stop::Unsafe) } else { Ok(Turn::Write) };
        }
        let before = self.step(node).and_then(|step| step.invocation.as_ref()).map_or(0, |i| i.permit);
        let permit = Permit { by: run.epoch, node, number: u8::try_from(before + 1).unwrap_or(u8::MAX) };
        self.start(node)?;
        self.push(Entry { ledger: Some(Change::Ask(permit)), ..Entry::of(Fact::Called(permit)) })?;
        self.unit.then = Then::Call(permit);
        Ok(Turn::Write)
    }

    fn wait(&mut self, run: &Run, node: u8, deadline: bool) -> Done {
        match self.step(node).and_then(|step| step.wait_end.as_ref()) {
            Some(WaitEnd::Signal { .. } | WaitEnd::Time) => {
                self.fact(Fact::Finished { node, tool: false })?;
                return Ok(Turn::Go);
            }
            None => {}
        }
        self.start(node)?;
        self.fact(Fact::Waiting { doubt: false, node })?;
        let arrival = Arrival::of(&self.search.config, &run.view, node);
        for misfit in arrival.misfits {
            self.push(Entry { inbox: Some(Inbox::Consume(misfit)), ..Entry::of(Fact::SignalRefused(misfit)) })?;
        }
        if let Some(signal) = arrival.fits {
            self.search.tally.see(Sight::SignalConsumed);
            let ended = Fact::WaitEnded { node, signal: Some(signal) };
            self.push(Entry { inbox: Some(Inbox::Consume(signal)), ..Entry::of(ended) })?;
        } else {
            if deadline {
                self.fact(Fact::TimerSet { doubt: false, node })?;
            }
            self.unit.expected_signals = arrival.expected.map(|count| (node, count));
        }
        self.give_away()
    }

    fn enter_doubt(&mut self, permit: Permit) -> Result<(), Stop> {
        let row = self.ledger[usize::from(permit.node)];
        let known = row.is_some_and(|row| row.permit.number == permit.number && row.status == LedgerStatus::InDoubt);
        let fact = Fact::Doubt { permit, policy: 0 };
        if known { self.fact(fact) } else { self.settling(fact, permit, LedgerTrigger::Doubt) }
    }

    fn follow_doubt(&mut self, permit: Permit) -> Done {
        let node = permit.node;
        let Some(doubt) = self.step(node).and_then(|step| step.doubt.clone()) else {
            return Err(Stop::Corrupt);
        };
        let plan = &self.program.plan;
        let list = plan.at(usize::from(node)).and_then(|n| plan.tool_of(n)).map(|(_, tool)| &tool.on_in_doubt);
        let place = usize::try_from(doubt.policy).unwrap_or(usize::MAX);
        match list.and_then(|list| list.get(place)) {
            None | Some(DoubtPolicy::Fail) => {
                let unresolved = Fact::Answered { answer: Answered::Unresolved, permit };
                self.settling(unresolved, permit, LedgerTrigger::GiveUp)?;
                self.fact(Fact::StepFailed(node))?;
                Ok(Turn::Go)
            }
            Some(DoubtPolicy::Human) => {
                self.fact(Fact::Waiting { doubt: true, node })?;
                self.give_away()
            }
            Some(DoubtPolicy::Wait(_)) if doubt.waited => {
                let policy = u8::try_from(doubt.policy + 1).unwrap_or(u8::MAX);
                self.fact(Fact::Doubt { permit, policy })?;
                Ok(Turn::Go)
            }
            Some(DoubtPolicy::Wait(_)) => {
                self.fact(Fact::Waiting { doubt: true, node })?;
                self.fact(Fact::TimerSet { doubt: true, node })?;
                self.give_away()
            }
            Some(DoubtPolicy::Reconcile(_)) => {
                self.unit.then = Then::Ask(permit);
                Ok(Turn::Write)
            }
        }
    }

    fn catch_up(&mut self, node: u8) -> Done {
        let permit = self.permit(node)?;
        if self.step(node).is_some_and(|step| step.status == StepStatus::InDoubt) {
            self.fact(Fact::Answered { answer: Answered::Happened, permit })?;
        }
        let told = Fact::InvocationFinished { outcome: Outcome::Done, permit };
        let open = self.ledger[usize::from(node)].filter(|row| row.status != LedgerStatus::Committed);
        match open {
            Some(row) => self.settling(told, row.permit, LedgerTrigger::Commit)?,
            None => self.fact(told)?,
        }
        self.command(node)
    }

    fn catch_up_outcome(&mut self, node: u8, outcome: InvocationOutcome) -> Done {
        let permit = self.permit(node)?;
        let (outcome, retryable) = match outcome {
            InvocationOutcome::NotSent => (Outcome::NotSent, true),
            InvocationOutcome::RefusedRetryable => (Outcome::Refused, true),
            InvocationOutcome::RefusedPermanent | InvocationOutcome::Committed | InvocationOutcome::InDoubt => {
                (Outcome::Refused, false)
            }
        };
        self.fact(Fact::InvocationFinished { outcome, permit })?;
        self.after_failure(permit, retryable)
    }
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
    let mut draft = Draft::new(search, program, &run.view, run.job, Right::Run(run.epoch));
    let node = permit.node;
    let doubt = draft.step(node).and_then(|step| step.doubt.clone()).ok_or(Stop::Corrupt)?;
    let told = Fact::Answered { answer, permit };
    match answer {
        Answered::Happened => {
            let ledger = Some(Change::Settle(permit, LedgerTrigger::Commit));
            draft.push(Entry { effect: Some(permit), ledger, ..Entry::of(told) })?;
            draft.ledger[usize::from(node)] =
                draft.ledger[usize::from(node)].map(|row| Row { status: LedgerStatus::Committed, ..row });
            draft.catch_up(node)?;
        }
        Answered::DidNotHappen if arrivable && !doubt.waited && !search.config.has(Mutation::DisproofBelievedEarly) => {
            draft.fact(Fact::Waiting { doubt: true, node })?;
            draft.fact(Fact::TimerSet { doubt: true, node })?;
            draft.give_away()?;
        }
        Answered::DidNotHappen => {
            draft.settling(told, permit, LedgerTrigger::Disprove)?;
            if !search.config.has(Mutation::DisproofGivesACall) {
                draft.after_failure(permit, true)?;
            }
        }
        Answered::Unresolved => {
            let policy = u8::try_from(doubt.policy + 1).unwrap_or(u8::MAX);
            draft.fact(Fact::Doubt { permit, policy })?;
        }
    }
    Ok(draft.unit)
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
