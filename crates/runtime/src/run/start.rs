//! Around a body, in one place for all of them: what is written before it, whether the lease is safe, and what is looked at
//! before its answer is judged.

use std::time::Duration;

use aetheris_core::event::Failure;
use aetheris_core::limits;
use aetheris_core::plan::Node;
use aetheris_store::Purpose;

use super::body::{self, Begun, LeaseNeed, Written};
use super::prepared::{Body, Next, Permit, Role, Said};
use super::{Run, Stop, doubt, permit};
use crate::draft::Rebased;

/// Whether a body may begin.
enum Begin {
    Now,
    /// The job is looked at again.
    LookAgain,
    /// Its permit, or the lease, has too little left for the call to leave.
    TooLate(Permit, Failure),
}

impl Run<'_> {
    /// Before the facts of what is next are drafted: no permission is asked for that could not be used.
    pub(super) async fn may_draft(&mut self, next: &Next) -> Result<(), Stop> {
        match next {
            Next::Perform(body) if body.needs().lease == LeaseNeed::BeforeAndAfter => self.require_safe_lease().await,
            Next::Perform(_) | Next::Go | Next::Again | Next::Record | Next::TryFailed(_) | Next::Release(_) => Ok(()),
        }
    }

    /// Writes what a body needs written, and has it performed. `None` when the job is to be looked at again: the body has not
    /// begun, or it counts for nothing.
    pub(super) async fn perform(&mut self, node: &Node, body: Body) -> Result<Option<Said>, Stop> {
        let sent_at = self.rt.system.clock.boot();
        if self.write_for(&body).await? == Rebased::Cut {
            return Ok(None);
        }
        match self.may_begin(node, &body, sent_at).await? {
            Begin::Now => {}
            Begin::LookAgain => return Ok(None),
            Begin::TooLate(permit, why) => return Ok(Some(Said::Unsent(permit, why))),
        }
        let (leaves, begun) = (body.leaves_process(), Begun { at: self.state().last_at, sent_at });
        let said = match body {
            Body::Call(_, Role::Pure) => self.perform_shown(body, begun).await?,
            Body::Call(_, Role::Permit(_) | Role::Reconcile(_)) | Body::Ask(..) | Body::Judge(..) | Body::Rest(_) => {
                body::perform(self.rt, self.lease, body, begun).await?
            }
        };
        let Some(said) = said else { return Ok(None) };
        self.answered |= leaves;
        if let Some(error) = said.own_want() {
            let error = error.clone();
            if let Said::Permitted(_, permit) = &said {
                let unused = permit::discard_unused(&self.view(node), permit, error.clone());
                self.take(unused.facts)?;
                // Known before the wait: whoever comes after a crash finds no permit that may have been used.
                self.flush(Purpose::Record).await?;
            }
            self.wait_to_leave(node, &error).await;
            return Ok(None);
        }
        if let Said::Reconciled(outcome, question, _) = &said
            && doubt::needs_a_look(question, outcome)
        {
            // The row as the store has it now: what this run has written of it is not in what it has loaded.
            self.look_again().await?;
        }
        Ok(Some(said))
    }

    async fn write_for(&mut self, body: &Body) -> Result<Rebased, Stop> {
        let answered = self.answered && !aetheris_fault::planted!("answer-left-unwritten");
        match body.needs().written {
            Written::Nothing => Ok(Rebased::Whole),
            Written::All(Purpose::Permit) if aetheris_fault::planted!("call-before-permission") => Ok(Rebased::Whole),
            Written::All(purpose) => self.flush(purpose).await,
            Written::Results | Written::Sent if !self.draft.has_results() => Ok(Rebased::Whole),
            Written::Results if !aetheris_fault::planted!("pure-call-before-durable") => {
                self.flush(Purpose::Record).await
            }
            // A function that takes the process down would lose the answer: a known outcome would be a doubt, and a model
            // asked and paid again.
            Written::Results | Written::Sent if answered => self.flush(Purpose::Record).await,
            Written::Results | Written::Sent => self.send().await,
        }
    }

    /// Whether a body may begin, now that what it needs is written.
    async fn may_begin(&mut self, node: &Node, body: &Body, sent_at: Duration) -> Result<Begin, Stop> {
        match body {
            Body::Judge(..) | Body::Rest(_) | Body::Ask(..) | Body::Call(_, Role::Pure) => {}
            Body::Call(_, Role::Reconcile(_)) => {
                if self.state().end_requested.is_some() {
                    return Ok(Begin::LookAgain);
                }
                self.questions += 1;
            }
            Body::Call(call, Role::Permit(permit)) => {
                aetheris_fault::crash_point!("run.tool.permitted");
                if let Some(why) = self.too_late(sent_at) {
                    // The write that was slow is the pause between two permissions.
                    tracing::warn!(job = %self.state().id, node = %node.id, error = %why.message, "a call did not leave; asking for another permission");
                    return Ok(Begin::TooLate(*permit, why));
                }
                permit::examine(&self.view(node), permit, call, self.draft.is_empty());
            }
        }
        if body.needs().lease == LeaseNeed::Before {
            self.require_safe_lease().await?;
        }
        Ok(Begin::Now)
    }

    /// Calls a pure tool. If it takes longer than [`limits::START_SHOWN_AFTER`] and the step's start is not written
    /// yet, that is written while it runs, so that people see what the job is doing. `None` when the run was
    /// interrupted, or the start could not be kept: the body then counts for nothing, and is run again.
    async fn perform_shown(&mut self, body: Body, begun: Begun) -> Result<Option<Said>, Stop> {
        let mut body = std::pin::pin!(body::perform(self.rt, self.lease, body, begun));
        tokio::select! {
            biased;
            said = body.as_mut() => return said,
            () = tokio::time::sleep(limits::START_SHOWN_AFTER.to_std()) => {}
        }
        if self.draft.is_empty() {
            return body.await;
        }
        aetheris_fault::sometimes!(StartShown);
        // A write that ends the run ends the body with it.
        let (written, said) = tokio::try_join!(self.flush(Purpose::Record), body)?;
        let kept = written == Rebased::Whole || aetheris_fault::planted!("result-of-a-cut-start");
        Ok(said.filter(|_| kept))
    }

    /// With too little left of the lease nothing new starts: what is known is written, and the run ends as
    /// one that has lost it.
    async fn require_safe_lease(&mut self) -> Result<(), Stop> {
        let unchecked = aetheris_fault::planted!("lease-not-checked-before-call");
        if unchecked || self.lease.is_safe(self.rt.system.clock.as_ref()) {
            return Ok(());
        }
        self.flush(Purpose::Record).await?;
        Err(Stop::Lost)
    }

    /// Right before a permitted call leaves: what is left of the lease and of the permit, by this process's
    /// boot clock from the moment commit A was sent.
    fn too_late(&self, sent_at: Duration) -> Option<Failure> {
        if aetheris_fault::planted!("lease-not-checked-before-call") {
            return None;
        }
        let spent = self.rt.system.clock.boot().saturating_sub(sent_at);
        if !self.lease.is_safe(self.rt.system.clock.as_ref()) {
            aetheris_fault::sometimes!(LeaseSpentBeforeCall);
            return Some(Failure::new("lease_spent", "too little was left of the lease; nothing was sent"));
        }
        let spent_in_vain = spent >= limits::PERMIT_MARGIN.to_std() && !aetheris_fault::planted!("margin-not-checked");
        spent_in_vain.then(|| {
            aetheris_fault::sometimes!(PermitSpentBeforeCall);
            let message = format!("writing the permission took {} ms; nothing was sent", spent.as_millis());
            Failure::new("permit_spent", message)
        })
    }

    /// This process alone lacks something that the call needs: nobody's failure, and no try. Waits before the step is
    /// looked at again, each time longer up to a bound.
    async fn wait_to_leave(&mut self, node: &Node, error: &Failure) {
        let path = self.view(node).path;
        let before = self.wanting.take().filter(|(wanting, _)| *wanting == path).map_or(0, |(_, times)| times);
        self.wanting = Some((path, before.saturating_add(1)));
        let pause = limits::OWN_WANT_PAUSE.to_std() * 2u32.pow(before.min(limits::OWN_WANT_DOUBLINGS_MAX));
        tracing::warn!(job = %self.state().id, node = %node.id, error = %error.message, "a call could not leave; trying again");
        tokio::select! {
            biased;
            () = self.lease.interrupted() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}
