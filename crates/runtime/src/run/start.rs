//! In front of a body, in one place for all of them: what is written before it, whether the lease is safe, and whether anything
//! may leave at all.

use std::time::Duration;

use aetheris_core::event::Failure;
use aetheris_core::limits;
use aetheris_core::plan::Step;
use aetheris_core::schedule;
use aetheris_store::Purpose;

use super::bodies::{Bodies, Position, UnderWay};
use super::body::{self, Begun, LeaseNeed, Written};
use super::prepared::{Body, Next, Permit, Role, Said};
use super::{Run, Stop, permit};

/// Whether a body may begin.
enum Begin {
    Now,
    /// The job is looked at again.
    LookAgain,
    /// Its permit, or the lease, has too little left for the call to leave.
    TooLate(Permit, Failure),
}

/// A body that is next, and its facts are drafted.
pub(super) struct Ready<'p> {
    pub(super) body: Body,
    /// The boot clock before its facts were drafted.
    pub(super) drafted_at: Duration,
    pub(super) position: Position,
    pub(super) step: Step<'p>,
}

impl<'r> Run<'r> {
    /// Before the facts of what is next are drafted: no permission is asked for that could not be used.
    pub(super) async fn may_draft(&mut self, next: &Next, bodies: &mut Bodies<'r>) -> Result<(), Stop> {
        match next {
            Next::Perform(body) if body.needs().lease == LeaseNeed::BeforeAndAfter => {
                self.require_safe_lease(bodies).await
            }
            Next::Perform(_)
            | Next::Go
            | Next::Again
            | Next::Record
            | Next::TryFailed(_)
            | Next::Release(_)
            | Next::Check(_)
            | Next::Rejected(..) => Ok(()),
        }
    }

    /// Writes once what these bodies need written, and begins them. One whose step stands elsewhere since does not begin.
    pub(super) async fn begin(&mut self, ready: Vec<Ready<'_>>, bodies: &mut Bodies<'r>) -> Result<(), Stop> {
        let needs = ready.iter().map(|ready| ready.body.needs().written);
        self.write_for(needs.fold(Written::Nothing, Written::stricter), bodies).await?;
        let mut stops = self.stops();
        if aetheris_fault::planted!("call-beside-a-failure") {
            stops = None;
        }
        if aetheris_fault::planted!("others-go-on-beside-a-lost-map") {
            stops = stops.filter(|_| schedule::failed(self.state(), &self.plan).is_some());
        }
        if stops.is_none() {
            bodies.go_on();
        }
        for Ready { body, drafted_at, position, step } in ready {
            let path = step.path.clone();
            if Position::of(self.state(), &path) != position {
                continue;
            }
            let given_up = || Failure::new("not_begun", "an item beside it has failed; nothing was sent");
            let stops = stops.clone().or_else(|| self.is_stopped(&path).then(given_up));
            let under_way = UnderWay { leaves: body.leaves_process(), position };
            let begin = match &stops {
                Some(why) => instead(&body, why),
                None => self.may_begin(&step, &body, drafted_at, bodies).await?,
            };
            match begin {
                Begin::Now => {
                    let state = self.state();
                    let attempt = state.owner.as_ref().map(|owner| owner.attempt_id);
                    let begun = Begun { at: state.last_at, attempt, job: state.id, sent_at: drafted_at };
                    let until = bodies.interrupts(&path, self.lease);
                    aetheris_fault::sometimes!(BesideEachOther, !bodies.is_empty());
                    let performed = Box::pin(body::perform(self.rt, until, path.clone(), body, begun));
                    bodies.begin(&path, under_way, performed).await;
                }
                Begin::LookAgain => {}
                Begin::TooLate(permit, why) => bodies.end_at_once(path, under_way, Said::Unsent(permit, why)),
            }
        }
        Ok(())
    }

    /// Why nothing leaves any more, where that is so.
    fn stops(&self) -> Option<Failure> {
        if self.failed {
            return Some(Failure::new("not_begun", "a step beside it has failed; nothing was sent"));
        }
        // Of a lost lease it is asked right before each body.
        let stops = self.is_to_stop() && !self.lease.lost.is_cancelled();
        stops.then(|| Failure::new("not_begun", "the run is to stop; nothing was sent"))
    }

    async fn write_for(&mut self, need: Written, bodies: &mut Bodies<'r>) -> Result<(), Stop> {
        let answered = self.answered && !aetheris_fault::planted!("answer-left-unwritten");
        let all_of = match need {
            Written::Nothing => return Ok(()),
            Written::All(Purpose::Permit) if aetheris_fault::planted!("call-before-permission") => return Ok(()),
            Written::All(purpose) => Some(purpose),
            Written::Results | Written::Sent if !self.draft.has_results() => return Ok(()),
            Written::Results if !aetheris_fault::planted!("pure-call-before-durable") => Some(Purpose::Record),
            // A function that takes the process down would lose the answer: a known outcome would be a doubt, and a model
            // asked and paid again.
            Written::Results | Written::Sent => answered.then_some(Purpose::Record),
        };
        match all_of {
            Some(purpose) => bodies.beside(self.flush(purpose)).await?,
            None => bodies.beside(self.send()).await?,
        };
        Ok(())
    }

    /// Whether a body may begin, now that what it needs is written.
    async fn may_begin(
        &mut self,
        step: &Step<'_>,
        body: &Body,
        drafted_at: Duration,
        bodies: &mut Bodies<'r>,
    ) -> Result<Begin, Stop> {
        match body {
            Body::CheckInput(..)
            | Body::FindAgent(_)
            | Body::Judge(..)
            | Body::Rest(_)
            | Body::Ask(..)
            | Body::Call(_, Role::Pure) => {}
            Body::Call(_, Role::Reconcile(_)) => {
                if self.state().end_requested.is_some() {
                    return Ok(Begin::LookAgain);
                }
                self.questions += 1;
            }
            Body::Call(call, Role::Permit(permit)) => {
                aetheris_fault::crash_point!("run.tool.permitted");
                if let Some(why) = self.too_late(drafted_at) {
                    // The write that was slow is the pause between two permissions.
                    tracing::warn!(job = %self.state().id, node = %step.path, error = %why.message, "a call did not leave; asking for another permission");
                    return Ok(Begin::TooLate(*permit, why));
                }
                permit::examine(&self.view(step), permit, call, self.draft.is_empty());
            }
        }
        if body.needs().lease == LeaseNeed::Before {
            self.require_safe_lease(bodies).await?;
        }
        Ok(Begin::Now)
    }

    /// With too little left of the lease nothing new starts: what is known is written, and the run ends as
    /// one that has lost it.
    async fn require_safe_lease(&mut self, bodies: &mut Bodies<'r>) -> Result<(), Stop> {
        let unchecked = aetheris_fault::planted!("lease-not-checked-before-call");
        if unchecked || self.lease.is_safe(self.rt.system.clock.as_ref()) {
            return Ok(());
        }
        bodies.beside(self.flush(Purpose::Record)).await?;
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
}

/// What comes of a body that does not begin: a permission that was drafted is one of a call that has not left.
fn instead(body: &Body, why: &Failure) -> Begin {
    match body {
        Body::Call(_, Role::Permit(permit)) => Begin::TooLate(*permit, why.clone()),
        Body::Call(_, Role::Pure | Role::Reconcile(_))
        | Body::Ask(..)
        | Body::CheckInput(..)
        | Body::FindAgent(_)
        | Body::Judge(..)
        | Body::Rest(_) => Begin::LookAgain,
    }
}
