//! The driver: what may go on in the job, again and again. What it does with a step is decided elsewhere.
//!
//! ```text
//! due ─► prepare up to the bound ─► one write ─► bodies begin ─► the next one ends ─► conclude ─┐
//!  ▲                                                                                            │
//!  └────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! One step at a time is a bound of one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aetheris_core::id::IdempotencyKey;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{CompiledPlan, Step};
use aetheris_core::recovery::{self, StepEvidence};
use aetheris_core::schedule::{self, Due, Waits};
use aetheris_core::state::StoppedBy;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Timestamp;
use aetheris_expr::Scope;
use aetheris_store::{LedgerWrite, Purpose};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bodies::{Bodies, Ended, Position, UnderWay};
use super::held::Held;
use super::places::Places;
use super::prepared::{Check, Next, Prepared};
use super::start::Ready;
use super::values::Drawing;
use super::view::View;
use super::{Run, RunEnd, Stop, facts, judge, step};
use crate::draft::{Fact, Rebased};
use crate::error::OpError;
use crate::names;

impl<'r> Run<'r> {
    pub(super) async fn drive(&mut self, bodies: &mut Bodies<'r>) -> Result<RunEnd, Stop> {
        let mut turn = 0_usize;
        loop {
            // Where it is made on the way, another one is followed then.
            let plan = Arc::clone(&self.plan);
            turn = turn.wrapping_add(1);
            let written = self.writes;
            if let Some(end) = self.take_turn(&plan, bodies).await? {
                return Ok(end);
            }
            if self.draft_is_full() {
                bodies.beside(self.flush(Purpose::Record)).await?;
            }
            // A turn may have computed for as long as its templates are allowed to, and who writes may have been answered
            // without waiting.
            if self.writes == written || turn.is_multiple_of(limits::TURNS_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn take_turn(&mut self, plan: &CompiledPlan, bodies: &mut Bodies<'r>) -> Result<Option<RunEnd>, Stop> {
        if self.is_to_stop() {
            bodies.halt();
            if !bodies.is_empty() {
                self.listen(bodies).await?;
                return Ok(None);
            }
            let ended = if self.goes_anyway(plan) { None } else { self.check_interrupts().await? };
            if ended.is_some() {
                return Ok(ended);
            }
        }
        if self.failed {
            bodies.halt();
        }
        match self.due(plan) {
            Due::Done
                if plan.plan().planning_node().is_some() && !aetheris_fault::planted!("planning-is-the-answer") =>
            {
                self.adopt().await?;
                Ok(None)
            }
            Due::Done => self.complete().await,
            Due::Failed(node) => {
                if bodies.is_empty() {
                    return self.fail(node).await;
                }
                aetheris_fault::sometimes!(SiblingsHalted);
                self.listen(bodies).await?;
                Ok(None)
            }
            Due::Skip(node, reason) => {
                let skipped = facts::skip(&self.view(&Step::from(node)), reason);
                self.take(skipped.facts)?;
                Ok(None)
            }
            Due::Open(steps) if steps.is_empty() && bodies.is_empty() => {
                let left = self.left_calls(plan);
                self.work(&left, bodies).await
            }
            Due::Open(steps) => self.work(&steps, bodies).await,
        }
    }

    /// Steps with calls that a run before this one has left, wherever they stand in the plan: that one may have run another number
    /// of steps at once. Before a job is given away something is known of each.
    fn left_calls<'p>(&self, plan: &'p CompiledPlan) -> Vec<Step<'p>> {
        if self.failed || aetheris_fault::planted!("left-call-out-of-turn") {
            return Vec::new();
        }
        let open = self.state().steps.keys().filter(|path| self.has_open_call(path));
        open.filter_map(|path| schedule::step_at(self.state(), plan, path)).collect()
    }

    pub(super) fn bound(&self) -> usize {
        let bound = self.plan.parallel_steps(self.rt.settings.max_parallel_steps);
        if aetheris_fault::planted!("bound-not-kept") {
            return bound * 2 - 1;
        }
        bound
    }

    fn due<'p>(&mut self, plan: &'p CompiledPlan) -> Due<'p> {
        // Whatever else could go on: a run before this one may have run another number of steps at once.
        if self.failed && !aetheris_fault::planted!("others-go-on-beside-a-lost-map") {
            // Maps with which the job fails end first: of all that have failed the smallest name counts.
            let state = self.draft.state();
            let ending = schedule::ending(state, plan, |path| self.held.contains_key(path));
            return match schedule::failed(state, plan) {
                Some(node) if ending.is_empty() => Due::Failed(node),
                Some(_) | None => Due::Open(ending),
            };
        }
        let (bound, held) = (self.bound(), &self.held);
        let waits = |path: &StepPath| held.get(path).map_or(Waits::No, Held::waits);
        schedule::due(self.draft.state(), plan, bound, &mut self.cursor, waits)
    }

    /// Something from outside the run wants it to stop.
    pub(super) fn is_to_stop(&self) -> bool {
        self.state().end_requested.is_some() || self.lease.is_interrupted()
    }

    /// Its worker stops, and nothing of the job could go on anyway: it fails, or is given away for what it waits for.
    fn goes_anyway(&mut self, plan: &CompiledPlan) -> bool {
        let other = self.lease.lost.is_cancelled() || self.lease.ending.is_cancelled();
        if other || self.state().end_requested.is_some() {
            return false;
        }
        let waits = !self.held.is_empty() && matches!(self.due(plan), Due::Open(steps) if steps.is_empty());
        self.failed || (waits && !self.goes_on_soon() && self.left_calls(plan).is_empty())
    }

    /// So much is drafted that it is written before more is.
    fn draft_is_full(&self) -> bool {
        // What was drafted may be gone, refused with its unit.
        if self.draft.is_empty() {
            return false;
        }
        let far = self.draft.len() + EVENTS_OF_ONE_TURN_MAX > limits::UNWRITTEN_EVENTS_MAX
            || self.ahead > limits::UNWRITTEN_BYTES_MAX;
        far && !aetheris_fault::planted!("overlap-without-bound")
    }

    /// Begins what may begin, and takes in what ends next.
    async fn work(&mut self, steps: &[Step<'_>], bodies: &mut Bodies<'r>) -> Result<Option<RunEnd>, Stop> {
        let mut room = Places::new(self.bound(), bodies.of_nodes());
        // Steps that are to be performed; whether one was decided that is not; whether there is more than the draft has room for.
        let (mut ready, mut decided, mut more) = (Vec::new(), false, false);
        // Calls that a run before this one has left take their places first: however often a job is taken over, not more of its
        // calls are open than a unit can tell of.
        let (left, others): (Vec<_>, Vec<_>) = steps.iter().partition(|step| self.has_open_call(&step.path));
        let (readings, mut overtaken) = (self.readings, BTreeSet::new());
        let left_count = if aetheris_fault::planted!("left-calls-wait-for-places") { 0 } else { left.len() };
        for (place, step) in left.into_iter().chain(others).enumerate() {
            more = self.draft_is_full();
            if more {
                break;
            }
            // Items begin in their order: one whose start was dropped with the draft holds those behind it up until its body ends.
            if overtaken.contains(&step.node.id) {
                continue;
            }
            if bodies.has(&step.path) {
                if step.path.item().is_some() && self.state().step_status(&step.path.base()) == StepStatus::Pending {
                    overtaken.insert(step.node.id.clone());
                }
                match self.state().stopped_by(&step.path) {
                    Some(StoppedBy::Item(_)) => bodies.halt_group(&StepPath::from(&step.node.id)),
                    // An item beside it is not to hear of the end of its loop.
                    Some(StoppedBy::Part(_)) => bodies.halt_group(&step.path.of_loop()),
                    None => {}
                }
                continue;
            }
            let (has_place, stopped) = (room.has_one_for(step), self.is_stopped(&step.path));
            // That its outcome is unknown needs no place to be told.
            if !has_place && place >= left_count {
                continue;
            }
            self.know_list(step)?;
            let view = self.view(step);
            let prepared = step::prepare(&view).map_err(Stop::Fault)?;
            if !has_place && matches!(prepared.next, Next::Perform(_)) {
                continue;
            }
            let refused = (!self.accepted_from.is_empty()).then(|| view.key());
            if let Some(key) = refused {
                self.accepted_from.remove(&key);
            }
            self.rested.remove(&step.path);
            match self.advance(step, prepared, bodies).await? {
                Some(next) => {
                    room.take(step);
                    ready.push(next);
                }
                None => decided = true,
            }
            // What was due on another state is looked for anew.
            if self.readings != readings {
                decided = true;
                break;
            }
            // A write may have brought the news; and once an item has ended its map, no other of it begins.
            if self.failed || self.is_to_stop() || self.is_stopped(&step.path) != stopped {
                break;
            }
        }
        let begun = !ready.is_empty();
        if begun {
            self.begin(ready, bodies).await?;
        }
        // What was decided may have made room for others, and what is more did not fit: neither waits for the end of a body.
        if decided || (begun && more) {
            return Ok(None);
        }
        if !begun && steps.is_empty() && bodies.is_empty() {
            return self.release().await;
        }
        if !bodies.is_empty() {
            self.listen(bodies).await?;
        }
        Ok(None)
    }

    /// Whether a call of a step was made of which nothing is told yet.
    fn has_open_call(&self, path: &StepPath) -> bool {
        let step = self.state().steps.get(path);
        step.is_some_and(|step| matches!(recovery::told(step), StepEvidence::Called { .. }))
    }

    /// Drafts what a decision came to, and all that is decided on it at once. The body that is next, if one is.
    pub(super) async fn advance<'p>(
        &mut self,
        step: &Step<'p>,
        prepared: Prepared,
        bodies: &mut Bodies<'r>,
    ) -> Result<Option<Ready<'p>>, Stop> {
        let mut prepared = prepared;
        loop {
            if let Prepared { facts, next: Next::Check(check), see } = prepared {
                let checked = self.check(step, *check, bodies).await;
                prepared = self.with_facts(facts, see, checked)?;
                // One schema may be asked after another.
                continue;
            }
            let Prepared { facts, next, see } = prepared;
            self.may_draft(&next, bodies).await?;
            let drafted_at = self.rt.system.clock.boot();
            self.take(facts)?;
            if let Some(see) = see {
                self.draft.also_settle(see);
            }
            prepared = match next {
                // A check has been made above.
                Next::Go | Next::Check(_) => return Ok(None),
                Next::Again => {
                    self.know_list(step)?;
                    step::prepare(&self.view(step)).map_err(Stop::Fault)?
                }
                Next::Record => {
                    bodies.beside(self.flush(Purpose::Record)).await?;
                    return Ok(None);
                }
                Next::TryFailed(failed) => step::after_failure(&self.view(step), failed),
                Next::Rejected(by, feedback) => judge::rejected(&self.view(step), by, &feedback),
                Next::Release(release) => {
                    aetheris_fault::sometimes!(HeldBesideOthers, !bodies.is_empty());
                    self.hold(&step.path, release);
                    return Ok(None);
                }
                Next::Perform(body) => {
                    let position = Position::of(self.state(), &step.path);
                    return Ok(Some(Ready { body, drafted_at, position, step: step.clone() }));
                }
            };
        }
    }

    /// Asks the schema of a step about its output.
    async fn check(&mut self, step: &Step<'_>, check: Check, bodies: &mut Bodies<'r>) -> Result<Prepared, Stop> {
        let (lost, gone) = (self.lease.lost.clone(), self.lease.abandon.clone());
        // Schemas are judged one after the other in a process: what is known of a call does not wait for its turn when the run
        // is over.
        let found = tokio::select! {
            biased;
            found = bodies.beside(self.rt.plans.violations(&check.schema, &check.output)) => found?,
            () = lost.cancelled() => return Err(Stop::Lost),
            () = gone.cancelled() => return Err(Stop::Lost),
        };
        judge::checked(&self.view(step), check, &found).map_err(Stop::Fault)
    }

    /// Facts and what is known of the output that they brought. Where that could not be asked about, what they say of a call
    /// is kept all the same.
    fn with_facts(
        &mut self,
        facts: Vec<Fact>,
        see: Option<LedgerWrite>,
        checked: Result<Prepared, Stop>,
    ) -> Result<Prepared, Stop> {
        match checked {
            Ok(checked) => Ok(Prepared { facts, see, ..Prepared::default() }.then(checked)),
            Err(stop) => {
                self.take(facts)?;
                Err(stop)
            }
        }
    }

    /// Waits until a body ends, and concludes all that have. What is known is sent meanwhile, and starts are shown.
    async fn listen(&mut self, bodies: &mut Bodies<'r>) -> Result<(), Stop> {
        let mut ended = bodies.next_now().await;
        if ended.is_none() {
            let counted = self.count_delays(bodies).await?;
            if counted == Rebased::Cut || bodies.beside(self.send()).await? == Rebased::Cut {
                return Ok(());
            }
            ended = self.next_to_end(bodies).await?;
        }
        while let Some(body) = ended {
            self.conclude(body, bodies).await?;
            ended = if self.draft_is_full() { None } else { bodies.next_now().await };
        }
        Ok(())
    }

    /// The next body to end; none when something else has happened first.
    async fn next_to_end(&mut self, bodies: &mut Bodies<'r>) -> Result<Option<(Ended, UnderWay)>, Stop> {
        // While a unit is on its way, what is shown next would have to wait for it, and so would whatever ends meanwhile.
        let show = bodies.show_at().filter(|_| !self.draft.is_empty() && self.sent.is_none());
        let (news, from) = (Arc::clone(&self.lease.news), self.news_from);
        let due = self.held.values().filter_map(|held| held.until).min();
        tokio::select! {
            biased;
            ended = bodies.next() => return Ok(ended),
            answer = self.arrival() => {
                bodies.beside(self.take_arrival(answer)).await?;
            }
            () = at(show) => {
                aetheris_fault::sometimes!(StartShown);
                bodies.shown();
                bodies.beside(self.flush(Purpose::Record)).await?;
            }
            () = at(due) => self.end_delays(),
            () = news_from(&news, from) => {
                aetheris_fault::sometimes!(NewsHeard);
                bodies.beside(self.settle_sent()).await?;
                bodies.beside(self.look_again()).await?;
                // Each look reads the whole job: of much news at once one look is enough.
                self.news_from = Some(Instant::now() + NEWS_APART);
            }
        }
        Ok(None)
    }

    /// From when on the store accepts that a call has not happened, where it has just refused to.
    fn accepted_from(&self, path: &StepPath) -> Option<Timestamp> {
        // Few runs have any, and a key is a hash.
        let refused = !self.accepted_from.is_empty();
        refused
            .then(|| IdempotencyKey::derive(self.state().id, path, 0))
            .and_then(|key| self.accepted_from.get(&key))
            .copied()
    }

    pub(super) fn view<'v>(&'v self, step: &Step<'v>) -> View<'v> {
        let Step { node, path, work } = step;
        let of_node = self.state().step_of(&node.id).map(|step| &step.open);
        let seen = names::seen_by(&self.names, of_node, self.item(step));
        let view = View {
            accepted_from: self.accepted_from(path),
            calls: self.calls,
            drawing: Drawing::default(),
            fence: self.lease.fence,
            ids: self.ids(),
            rows: &self.rows,
            memory: self.memory,
            judged: None,
            names: Scope { round: names::round(self.draft.state(), step), ..seen },
            node,
            path: path.clone(),
            plan: &self.plan,
            questions: self.questions,
            rested: self.rested.contains(path),
            state: self.draft.state(),
            step_timeout: self.rt.settings.step_timeout,
            work,
        };
        View { judged: view.judged_output(), ..view }
    }

    /// Acts on what came from outside the run: a lost lease, a requested end or pause, a drain.
    async fn check_interrupts(&mut self) -> Result<Option<RunEnd>, Stop> {
        if self.lease.lost.is_cancelled() {
            // What is known is written if the fence still holds; else it is deposited.
            self.flush(Purpose::Record).await?;
            return Err(Stop::Lost);
        }
        if self.lease.ending.is_cancelled() && self.state().end_requested.is_none() {
            self.flush(Purpose::Record).await?;
            self.look_again().await?;
        }
        for _ in 0..limits::CONFLICT_RETRIES_MAX {
            let ended = match self.state().end_requested {
                Some(cause) => self.end_as_asked(cause).await?,
                None if self.lease.drain.is_cancelled() => self.give_back().await?,
                None => return Ok(None),
            };
            // Where a newer state refused it, that is looked at before anything else.
            if ended.is_some() {
                return Ok(ended);
            }
        }
        Err(self.too_busy())
    }

    /// Others write the job faster than its own run can.
    pub(super) fn too_busy(&self) -> Stop {
        let job = self.state().id;
        Stop::Op(OpError::StateConflict(format!("job {job} keeps changing while its run writes it")))
    }
}

/// Between two looks at a job because of news.
const NEWS_APART: Duration = Duration::from_millis(50);

/// Waits for news, and not before a moment.
async fn news_from(news: &Notify, moment: Option<Instant>) {
    if let Some(moment) = moment {
        tokio::time::sleep_until(moment).await;
    }
    news.notified().await;
}

/// Resolves at a moment; never where there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The most facts that one turn adds to a draft before it writes: those of a wait tell of each kept signal that does not fit.
pub(super) const EVENTS_OF_ONE_TURN_MAX: usize = 16 + limits::KEPT_SIGNALS_OF_KEY_MAX;
