//! Behind a body: what is looked at before its end is judged, what becomes of an end that has no place any more, and the
//! bodies of a run that gives up.

use std::sync::Arc;

use aetheris_core::event::Failure;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::Step;
use aetheris_core::schedule;
use aetheris_core::time::Span;
use aetheris_store::Purpose;

use super::bodies::{Bodies, Ended, Position, UnderWay};
use super::prepared::Said;
use super::{Run, Stop, doubt, permit, step};
use crate::error::OpError;
use crate::ports::{MODEL_HELD_BACK, ModelError};

impl<'r> Run<'r> {
    /// Takes in what a body has said, and what follows from it.
    pub(super) async fn conclude(
        &mut self,
        (ended, under_way): (Ended, UnderWay),
        bodies: &mut Bodies<'r>,
    ) -> Result<(), Stop> {
        let Ended { path, said } = ended;
        let plan = Arc::clone(&self.plan);
        let (Some(said), Some(step)) = (said?, schedule::step_at(self.state(), &plan, &path)) else { return Ok(()) };
        let stops = self.failed || self.is_to_stop() || self.is_stopped(&path);
        if stops && matches!(said, Said::Rested | Said::Judged(..) | Said::AgentFound(..) | Said::InputChecked(..)) {
            return Ok(());
        }
        // The turn that has asked for the call may have gone with what was drafted, and another may have come.
        if let Said::InputChecked(asked, _) = &said
            && self.state().asked_of(&path) != Some(asked.as_ref())
        {
            return Ok(());
        }
        self.answered |= under_way.leaves;
        if let Some(error) = said.own_want() {
            let error = error.clone();
            if let Said::Permitted(_, permit) = &said {
                let unused = permit::discard_unused(&self.view(&step), permit, error.clone());
                self.take(unused.facts)?;
                // Known before the wait: whoever comes after a crash finds no permit that may have been used.
                bodies.beside(self.flush(Purpose::Record)).await?;
            }
            match said {
                Said::Model(Err(ModelError { retry_after, .. }), ..) if error.code == MODEL_HELD_BACK => {
                    self.hold_question(&path, &error, retry_after);
                }
                _ => self.wait_to_leave(&path, &error, bodies).await,
            }
            return Ok(());
        }
        self.wanting.remove(&path);
        if let Said::Reconciled(outcome, question, _) = &said
            && doubt::needs_a_look(question, outcome)
        {
            // The row as the store has it now: what this run has written of it is not in what it has loaded.
            bodies.beside(self.settle_sent()).await?;
            bodies.beside(self.look_again()).await?;
        }
        let elsewhere = Position::of(self.state(), &path) != under_way.position;
        if elsewhere && !aetheris_fault::planted!("result-of-a-cut-start") {
            let owed = self.owed_after(&step, said);
            bodies.beside(self.settle_sent()).await?;
            return Box::pin(bodies.beside(self.deposit_at_once(owed))).await;
        }
        // Since the body began the job may have been read anew, and with it what is known of its maps.
        if !aetheris_fault::planted!("item-forgotten-after-a-look") {
            self.know_list(&step)?;
        }
        let first = plan.at(0).filter(|_| aetheris_fault::planted!("first-step-concludes")).map(Step::from);
        let prepared = step::conclude(&self.view(first.as_ref().unwrap_or(&step)), said).map_err(Stop::Fault)?;
        match self.advance(&step, prepared, bodies).await? {
            Some(next) => self.begin(vec![next], bodies).await,
            None => Ok(()),
        }
    }

    /// The run gives up: its bodies end as they do when it is interrupted, and what calls have come to is deposited, each as
    /// soon as it is known.
    pub(super) async fn wind_down(&mut self, mut bodies: Bodies<'r>) -> Result<(), OpError> {
        bodies.halt();
        bodies.beside(self.await_sent()).await;
        let mut deposited = bodies.beside(self.deposit_owed()).await;
        if aetheris_fault::planted!("bodies-dropped-with-their-run") {
            return deposited;
        }
        let plan = Arc::clone(&self.plan);
        while let Some((Ended { path, said }, _)) = bodies.next().await {
            if let (Ok(Some(said)), Some(step)) = (said, schedule::step_at(self.state(), &plan, &path)) {
                self.owed = self.owed_after(&step, said);
                deposited = deposited.and(bodies.beside(self.deposit_owed()).await);
            }
        }
        deposited
    }

    /// A question that could not leave holds no slot: where nothing else of the job can go on, the job is given back.
    fn hold_question(&mut self, path: &StepPath, error: &Failure, asked: Option<Span>) {
        let pause =
            asked.unwrap_or_else(|| self.next_pause(path)).min(limits::RATE_WAIT_MAX).max(self.least_pause(path));
        tracing::info!(job = %self.state().id, node = %path, error = %error.message, "a question was held back");
        self.hold_back(path, pause);
    }

    /// How long a question waits at least, reckoned from the begin of its step: each time that its job is given back takes two of
    /// the events that a job may have.
    fn least_pause(&self, path: &StepPath) -> Span {
        // By the store's clock, up to the claim or whatever else was written last.
        let begun = self.state().steps.get(path).and_then(|step| step.started_at);
        let waited = begun.map_or(Span::ZERO, |begun| self.state().last_at.since(begun));
        Span::from_micros(waited.micros() / limits::RATE_WAITED_SHARE).min(limits::RATE_PAUSE_MAX)
    }

    /// How long a call that could not leave waits: each time longer, up to a bound.
    fn next_pause(&mut self, path: &StepPath) -> Span {
        let times = self.wanting.entry(path.clone()).or_default();
        let before = *times;
        *times = before.saturating_add(1);
        Span::from_std(limits::OWN_WANT_PAUSE.to_std() * 2u32.pow(before.min(limits::OWN_WANT_DOUBLINGS_MAX)))
    }

    /// This process alone lacks something that the call needs: nobody's failure, and no try. A while passes before the step
    /// is looked at again, each time a longer one up to a bound.
    async fn wait_to_leave(&mut self, path: &StepPath, error: &Failure, bodies: &mut Bodies<'r>) {
        let pause = self.next_pause(path).to_std();
        tracing::warn!(job = %self.state().id, node = %path, error = %error.message, "a call could not leave; trying again");
        let under_way = UnderWay { leaves: false, position: Position::of(self.state(), path) };
        let until = bodies.interrupts(path, self.lease);
        let waits = path.clone();
        let passes = Box::pin(async move {
            until.rest(pause).await;
            Ended { path: waits, said: Ok(None) }
        });
        bodies.begin(path, under_way, passes).await;
    }
}
