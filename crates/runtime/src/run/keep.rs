//! What a run keeps with what it drafts: what is known beside the state, names for templates, the memory that they take, and
//! outcomes that are owed.

use aetheris_core::event::{DoubtOutcome, Event, InvocationOutcome, Resolver, Source};
use aetheris_core::id::{JobId, NodeId};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::Step;
use aetheris_core::schedule::{self, Cursor};
use aetheris_core::state::{Child, Output, StepState};
use aetheris_expr::Ended;
use aetheris_store::LedgerWrite;

use super::prepared::Said;
use super::write::{STORE_RETRY, is_permanent};
use super::{Run, Stop, step};
use crate::draft::Fact;
use crate::error::OpError;
use crate::ops::{Deposit, DepositOutcome};
use crate::{memory, names};

impl Run<'_> {
    /// Drafts facts, with what the run keeps beside them for the decisions that follow.
    pub(super) fn take(&mut self, facts: Vec<Fact>) -> Result<(), Stop> {
        for fact in facts {
            self.note(&fact.event);
            if let Some(deposit) = owed_by(self.state().id, &fact) {
                self.answered = true;
                self.owed.push(deposit);
            }
            self.rows.note(&fact);
            if let Event::ToolInvocationStarted(called) = &fact.event {
                self.memory += called.input.as_ref().map_or(0, Json::memory);
            }
            if let Event::ChildStarted(asked) = &fact.event {
                self.ahead += asked.message.memory();
            }
            if let Event::NodeRefining(refining) = &fact.event {
                self.memory += refining.feedback.len();
            }
            if let Event::NodeFinished(finished) = &fact.event {
                self.memory += finished.turn.as_deref().map_or(0, memory::of_turn);
            }
            // What a child has answered moves to the output of its step.
            let of_child = matches!(&fact.event, Event::NodeFinished(_)) && !self.state().children.is_none();
            let moves = fact.event.step().filter(|_| of_child).cloned();
            let before_end = moves.as_ref().map_or(0, |path| self.told_by_child(path));
            let gives = matches!(&fact.event, Event::NodeFinished(finished) if finished.result.is_success());
            let ended = ended_step(&fact.event).cloned();
            if ended.is_some() && aetheris_fault::planted!("end-concluded-twice") {
                self.draft.add(self.rt.system.ids.as_ref(), fact.clone())?;
            }
            let bounded = self.plan.plan().budget.max_tool_calls.is_some();
            let called = fact.event.step().filter(|_| bounded).cloned();
            let before = called.as_ref().map_or(0, |path| self.state().tool_calls_of(path, &self.plan));
            self.draft.add(self.rt.system.ids.as_ref(), fact)?;
            let moved = before_end.saturating_sub(moves.as_ref().map_or(0, |path| self.told_by_child(path)));
            self.memory = self.memory.saturating_sub(moved);
            let after = called.as_ref().map_or(0, |path| self.state().tool_calls_of(path, &self.plan));
            self.calls = self.calls.saturating_add(after).saturating_sub(before);
            let Some(path) = ended else { continue };
            self.held.remove(&path);
            if gives {
                self.note_output(&path);
            }
            // With a round of it, or with what its critic says, the whole may have ended.
            let whole = path.base();
            let fails = |path: &StepPath| self.state().steps.get(path).is_some_and(StepState::fails_job);
            self.failed |= fails(&path) || (path != whole && fails(&whole));
            if !whole.is_whole() || !self.state().step_status(&whole).is_terminal() {
                continue;
            }
            self.forget_list(whole.node());
            if let Some(ended) = names::known(self.draft.state(), &self.rows.effects, &whole) {
                self.name_ended(whole.node(), ended);
            }
        }
        Ok(())
    }

    /// What is logged of a fact before it is drafted.
    fn note(&self, event: &Event) {
        let job = self.state().id;
        if let Event::NodeStarted(e) = event {
            tracing::debug!(%job, node = %e.node, number = e.number, "a step starts");
        } else if let Event::NodeFinished(e) = event {
            match &e.error {
                None => tracing::debug!(%job, node = %e.node, took_us = e.took_us, "a step has completed"),
                Some(error) => {
                    tracing::debug!(%job, node = %e.node, code = %error.code, reason = %error.message, "a step has failed");
                }
            }
        } else if let Event::NodeRetryScheduled(e) = event {
            let tries = self.state().steps.get(&e.node).map_or(0, |step| step.tries);
            tracing::info!(
                %job, node = %e.node, tries, delay_ms = e.after_us / 1_000, code = %e.error.code,
                reason = %e.error.message, "a step is tried again"
            );
        } else if let Event::StepInDoubt(e) = event
            && e.policy == 0
        {
            let call = self.state().steps.get(&e.node).and_then(|step| step.invocation.as_deref());
            let key = call.map(|call| tracing::field::display(call.key));
            tracing::warn!(%job, node = %e.node, key, permit = e.permit, reason = e.reason, "the outcome of a call is in doubt");
        }
    }

    /// Takes in what the draft's state says after the job was read again: with it the effects that the draft
    /// is about to write, which the store cannot know.
    pub(super) fn refresh_names(&mut self) {
        for effect in self.draft.effects() {
            self.rows.record(effect);
        }
        self.names = names::of(self.draft.state(), &self.rows.effects);
        self.calls = self.draft.state().tool_calls(&self.plan);
        self.readings = self.readings.wrapping_add(1);
        // A map may have begun anew, with another list.
        self.lists.clear();
        self.memory = memory::of_run(self.draft.state(), &self.rows, &self.names);
        let mut held = std::mem::take(&mut self.held);
        held.retain(|path, held| self.still_waits(path, held));
        self.held = held;
        self.failed = schedule::fails(self.draft.state());
        if !aetheris_fault::planted!("cursor-kept-over-cut") {
            self.cursor = Cursor::default();
        }
    }

    /// Makes known to templates how a node has ended.
    fn name_ended(&mut self, node: &NodeId, ended: Ended) {
        // The list of a map stands beside its items; any other output is counted with the step that gave it.
        let is_list = self.state().step_of(node).is_some_and(|step| step.output == Some(Output::Items));
        let bytes = ended.output().filter(|_| is_list).map_or(0, Json::memory);
        self.memory += bytes;
        self.ahead += bytes;
        self.names.nodes.insert(node.clone(), ended);
    }

    /// What the child of a step has answered, as long as it is not the step's output.
    fn told_by_child(&self, path: &StepPath) -> usize {
        let child = self.state().steps.get(path).and_then(|step| step.child.as_deref());
        child.and_then(Child::result).map_or(0, Json::memory)
    }

    /// An output is kept with the step that gave it.
    fn note_output(&mut self, path: &StepPath) {
        let output = self.state().steps.get(path).and_then(|step| memory::output(step, &self.rows));
        let bytes = output.map_or(0, Json::memory);
        let of_item = path.item().is_some() && aetheris_fault::planted!("memory-of-items-forgotten");
        let of_node = path.item().is_none() && aetheris_fault::planted!("memory-of-outputs-forgotten");
        if !of_item && !of_node {
            self.memory += bytes;
        }
        self.ahead += bytes;
    }

    /// What a call has come to, to be deposited in the right of its permit.
    pub(super) fn owed_after(&self, step: &Step<'_>, said: Said) -> Vec<Deposit> {
        let facts = step::conclude(&self.view(step), said).map_or_else(|_| Vec::new(), |prepared| prepared.facts);
        facts.iter().filter_map(|fact| owed_by(self.state().id, fact)).collect()
    }

    /// Outcomes that could not be written in this run's right are deposited in the right of their permit.
    pub(super) async fn deposit_owed(&mut self) -> Result<(), OpError> {
        let owed = std::mem::take(&mut self.owed);
        self.deposit(owed).await
    }

    /// A newer state has not taken all that was drafted. An outcome among what is gone is known all the same: it is deposited
    /// before anything is decided on that state, which is then read again.
    pub(super) async fn deposit_dropped(&mut self) -> Result<(), Stop> {
        let job = self.state().id;
        let kept: Vec<Deposit> = self.draft.facts().filter_map(|fact| owed_by(job, fact)).collect();
        let owed = std::mem::take(&mut self.owed);
        let (kept, dropped): (Vec<_>, Vec<_>) = owed.into_iter().partition(|owed| kept.contains(owed));
        self.owed = kept;
        if aetheris_fault::planted!("dropped-outcome-forgotten") {
            return Ok(());
        }
        self.deposit_at_once(dropped).await
    }

    /// Deposits outcomes that the job's state has no place for, and reads the job again.
    pub(super) async fn deposit_at_once(&mut self, outcomes: Vec<Deposit>) -> Result<(), Stop> {
        if outcomes.is_empty() {
            return Ok(());
        }
        aetheris_fault::sometimes!(DroppedOutcomeDeposited);
        self.deposit(outcomes).await?;
        self.look_again().await.map(drop)
    }

    async fn deposit(&self, outcomes: Vec<Deposit>) -> Result<(), OpError> {
        let mut deposited = Ok(());
        for deposit in outcomes {
            aetheris_fault::crash_point!("run.deposit.owed");
            if aetheris_fault::planted!("deposit-dropped") {
                continue;
            }
            let mut tries = 0;
            while let Err(error) = self.rt.deposit(&deposit).await {
                tries += 1;
                let permanent = matches!(&error, OpError::Store(error) if is_permanent(error));
                if permanent || tries >= limits::DEPOSIT_TRIES_MAX || self.lease.abandon.is_cancelled() {
                    // The others are tried all the same.
                    deposited = deposited.and(Err(error));
                    break;
                }
                tracing::warn!(job = %deposit.job, node = %deposit.node, %error, "a late outcome could not be deposited; trying again");
                tokio::time::sleep(STORE_RETRY).await;
            }
        }
        deposited
    }
}

/// What is owed with a fact: an outcome that this run has just learned, from the call's own answer or by asking about it. It
/// is deposited if it cannot be written in this run's right.
pub(super) fn owed_by(job: JobId, fact: &Fact) -> Option<Deposit> {
    let Some(LedgerWrite::Settle(settle)) = fact.ledger.as_deref() else { return None };
    let result = fact.effect.as_ref().map(|effect| effect.result.clone());
    let (node, permit, outcome) = if let Event::ToolInvocationFinished(ended) = &fact.event {
        let learned = ended.source == Source::Executed && ended.outcome != InvocationOutcome::InDoubt;
        let outcome = result.map_or(DepositOutcome::Settled(settle.trigger), DepositOutcome::Done);
        learned.then_some((&ended.node, ended.permit, outcome))?
    } else if let Event::InDoubtResolved(answer) = &fact.event {
        let learned = answer.by == Resolver::Reconcile && answer.outcome == DoubtOutcome::Happened;
        let outcome = DepositOutcome::Found(result.filter(|_| learned)?);
        (&answer.node, answer.permit, outcome)
    } else {
        return None;
    };
    let (key, permit_id) = (settle.key, settle.permit_id);
    let mut node = node.clone();
    if aetheris_fault::planted!("deposit-of-another-step") {
        node = StepPath::from("another");
    }
    Some(Deposit { job, key, node, outcome, permit, permit_id })
}

/// The step that has ended with a fact.
fn ended_step(event: &Event) -> Option<&StepPath> {
    if let Event::NodeFinished(finished) = event {
        Some(&finished.node)
    } else if let Event::NodeSkipped(skipped) = event {
        Some(&skipped.node)
    } else {
        None
    }
}
