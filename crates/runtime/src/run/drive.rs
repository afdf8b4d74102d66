//! The driver: what may go on in the job, again and again. What it does with a step is decided elsewhere.
//!
//! ```text
//! due ─► prepare up to the bound ─► one write ─► bodies begin ─► the next one ends ─► conclude ─┐
//!  ▲                                                                                            │
//!  └────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! One step at a time is a bound of one.

use std::sync::Arc;

use aetheris_core::event::JobWaiting;
use aetheris_core::id::IdempotencyKey;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{CompiledPlan, Node, NodeKind, WaitType};
use aetheris_core::schedule::{self, Due};
use aetheris_core::state::Blocked;
use aetheris_core::time::Span;
use aetheris_store::Purpose;
use tokio::time::Instant;

use super::bodies::{Bodies, Ended, Standpoint, UnderWay};
use super::prepared::{Next, Prepared, Release};
use super::start::Ready;
use super::view::View;
use super::{Run, RunEnd, Stop, facts, step};
use crate::draft::{Fact, Rebased};
use crate::error::OpError;

/// A step that cannot go on for now, although the job is not blocked on it: others go on.
#[derive(Debug)]
pub(super) struct Held {
    release: Release,
    /// When a delay is over.
    until: Option<Instant>,
}

impl<'r> Run<'r> {
    pub(super) async fn drive(&mut self, bodies: &mut Bodies<'r>) -> Result<RunEnd, Stop> {
        let plan = Arc::clone(&self.plan);
        let mut turn = 0_usize;
        loop {
            turn = turn.wrapping_add(1);
            let written = self.writes;
            if let Some(end) = self.turn(&plan, bodies).await? {
                return Ok(end);
            }
            if self.is_far() {
                bodies.beside(self.flush(Purpose::Record)).await?;
            }
            // A turn may have computed for as long as its templates are allowed to, and who writes may have been answered
            // without waiting.
            if self.writes == written || turn.is_multiple_of(limits::TURNS_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn turn(&mut self, plan: &CompiledPlan, bodies: &mut Bodies<'r>) -> Result<Option<RunEnd>, Stop> {
        if self.is_to_stop() {
            bodies.halt();
            if !bodies.is_empty() {
                self.listen(bodies).await?;
                return Ok(None);
            }
            let ended = if self.only_waits(plan) { None } else { self.check_interrupts().await? };
            if ended.is_some() {
                return Ok(ended);
            }
        }
        match self.due(plan) {
            Due::Done => self.complete().await,
            Due::Failed(node) => {
                bodies.halt();
                if bodies.is_empty() {
                    return self.fail(node).await;
                }
                aetheris_fault::sometimes!(SiblingsHalted);
                self.listen(bodies).await?;
                Ok(None)
            }
            Due::Skip(node, reason) => {
                let skipped = facts::skip(&self.view(node), reason);
                self.take(skipped.facts)?;
                Ok(None)
            }
            Due::Open(nodes) => self.work(&nodes, bodies).await,
        }
    }

    fn bound(&self) -> usize {
        let bound = self.plan.parallel_steps(self.rt.settings.max_parallel_steps);
        if aetheris_fault::planted!("bound-not-kept") { bound * 2 - 1 } else { bound }
    }

    fn due<'p>(&mut self, plan: &'p CompiledPlan) -> Due<'p> {
        let (bound, held) = (self.bound(), &self.held);
        schedule::due(self.draft.state(), plan, bound, &mut self.cursor, |path| held.contains_key(path))
    }

    /// Something from outside the run wants it to stop.
    pub(super) fn is_to_stop(&self) -> bool {
        self.state().end_requested.is_some() || self.lease.is_interrupted()
    }

    /// Its worker stops, and nothing of the job could go on anyway: it is given away for what it waits for.
    fn only_waits(&mut self, plan: &CompiledPlan) -> bool {
        let drained = self.lease.drain.is_cancelled()
            && !self.lease.lost.is_cancelled()
            && !self.lease.ending.is_cancelled()
            && self.state().end_requested.is_none();
        drained && !self.held.is_empty() && matches!(self.due(plan), Due::Open(nodes) if nodes.is_empty())
    }

    /// So much is drafted that it is written before more is.
    fn is_far(&self) -> bool {
        let far = self.draft.len() + EVENTS_OF_ONE_TURN_MAX > limits::UNIT_EVENTS_MAX
            || (self.sent.is_some() && self.ahead > limits::UNWRITTEN_BYTES_MAX);
        far && !aetheris_fault::planted!("overlap-without-bound")
    }

    /// Begins what may begin, and takes in what ends next.
    async fn work(&mut self, nodes: &[&Node], bodies: &mut Bodies<'r>) -> Result<Option<RunEnd>, Stop> {
        let room = self.bound().saturating_sub(bodies.len());
        let (mut ready, mut decided) = (Vec::new(), false);
        for node in nodes {
            if ready.len() >= room || self.is_far() {
                break;
            }
            if bodies.has(&StepPath::from(&node.id)) {
                continue;
            }
            let view = self.view(node);
            let prepared = step::prepare(&view).map_err(Stop::Fault)?;
            let key = view.key();
            self.accepted_from.remove(&key);
            decided = true;
            ready.extend(self.advance(node, prepared, bodies).await?);
            // A write may have brought the news.
            if self.failed || self.is_to_stop() {
                break;
            }
        }
        if !ready.is_empty() {
            self.begin(ready, bodies).await?;
        } else if decided {
            return Ok(None);
        } else if nodes.is_empty() && bodies.is_empty() {
            return self.release().await;
        }
        if !bodies.is_empty() {
            self.listen(bodies).await?;
        }
        Ok(None)
    }

    /// Drafts what a decision came to, and all that is decided on it at once. The body that is next, if one is.
    pub(super) async fn advance<'p>(
        &mut self,
        node: &'p Node,
        prepared: Prepared,
        bodies: &mut Bodies<'r>,
    ) -> Result<Option<Ready<'p>>, Stop> {
        let mut prepared = prepared;
        loop {
            let Prepared { facts, next, see } = prepared;
            bodies.beside(self.may_draft(&next)).await?;
            let drafted_at = self.rt.system.clock.boot();
            self.take(facts)?;
            if let Some(see) = see {
                self.draft.also_settle(see);
            }
            prepared = match next {
                Next::Go => return Ok(None),
                Next::Again => step::prepare(&self.view(node)).map_err(Stop::Fault)?,
                Next::Record => {
                    bodies.beside(self.flush(Purpose::Record)).await?;
                    return Ok(None);
                }
                Next::TryFailed(failed) => step::after_failure(&self.view(node), failed),
                Next::Release(release) => {
                    aetheris_fault::sometimes!(HeldBesideOthers, !bodies.is_empty());
                    self.hold(node, release);
                    return Ok(None);
                }
                Next::Perform(body) => {
                    let stands = Standpoint::of(self.state(), &StepPath::from(&node.id));
                    return Ok(Some(Ready { body, drafted_at, node, stands }));
                }
            };
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
            ended = if self.is_far() { None } else { bodies.next_now().await };
        }
        Ok(())
    }

    /// The next body to end; none when something else has happened first.
    async fn next_to_end(&mut self, bodies: &mut Bodies<'r>) -> Result<Option<(Ended, UnderWay)>, Stop> {
        let show = bodies.show_at().filter(|_| !self.draft.is_empty());
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
            () = at(due) => self.held.retain(|_, held| held.until.is_none_or(|until| until > Instant::now())),
        }
        Ok(None)
    }

    pub(super) fn view<'v>(&'v self, node: &'v Node) -> View<'v> {
        View {
            accepted_from: self
                .accepted_from
                .get(&IdempotencyKey::derive(self.state().id, &StepPath::from(&node.id), 0))
                .copied(),
            fence: self.lease.fence,
            ids: self.ids(),
            rows: &self.rows,
            memory: self.memory,
            names: &self.names,
            node,
            path: StepPath::from(&node.id),
            plan: &self.plan,
            questions: self.questions,
            state: self.draft.state(),
            step_timeout: self.rt.settings.step_timeout,
        }
    }

    /// A step waits. Others go on; the job is given away once none can.
    fn hold(&mut self, node: &Node, release: Release) {
        self.held.insert(StepPath::from(&node.id), Held { release, until: None });
    }

    /// Steps that wait for their next try beside others: their delays count from the moment at which the store has them.
    async fn count_delays(&mut self, bodies: &mut Bodies<'r>) -> Result<Rebased, Stop> {
        let uncounted = |held: &Held| held.until.is_none() && matches!(held.release, Release::Requeue(_));
        if !self.held.values().any(uncounted) {
            return Ok(Rebased::Whole);
        }
        let written = bodies.beside(self.flush(Purpose::Record)).await?;
        let mut all = std::mem::take(&mut self.held);
        for (path, held) in all.iter_mut().filter(|(_, held)| uncounted(held)) {
            held.until = Some(Instant::now() + self.delay_left(path).to_std());
        }
        self.held = all;
        Ok(written)
    }

    /// Nothing can go on: the job is given away with all that is drafted. `None` when the newer state does not allow it, or
    /// a delay is all but over.
    async fn release(&mut self) -> Result<Option<RunEnd>, Stop> {
        let held = std::mem::take(&mut self.held);
        let delayed = held.iter().filter(|(_, held)| matches!(held.release, Release::Requeue(_)));
        let delay = delayed.map(|(path, _)| self.delay_left(path)).min();
        if delay.is_some_and(|left| left <= limits::BACKOFF_HELD_MAX) {
            return Ok(None);
        }
        let mut blocked = false;
        for Held { release, .. } in held.into_values() {
            let Release::Block { facts, expected } = release else { continue };
            // What does not fit is blocked on when the job is looked at again.
            if self.draft.len() + facts.len() + EVENTS_OF_ONE_TURN_MAX <= limits::UNIT_EVENTS_MAX || !blocked {
                self.draft.expect_signals(expected);
                self.take(facts)?;
                blocked = true;
            }
        }
        let (purpose, end) = match delay {
            Some(delay) => {
                self.take(Release::Requeue(delay).facts())?;
                (Purpose::Requeue, RunEnd::Requeued)
            }
            None => {
                let again = self.blocked_still(blocked).map(Fact::of);
                self.take(again.into_iter().collect())?;
                (Purpose::Block, RunEnd::Blocked)
            }
        };
        if end != RunEnd::Blocked || !aetheris_fault::planted!("lease-kept-while-waiting") {
            self.draft.release();
        }
        if self.flush(purpose).await? == Rebased::Cut {
            return Ok(None);
        }
        aetheris_fault::sometimes!(BlockedOnSeveral, self.state().blocks.iter().nth(1).is_some());
        if end == RunEnd::Blocked {
            self.note_block();
        } else {
            aetheris_fault::sometimes!(RetryReleased);
        }
        Ok(Some(end))
    }

    /// What is left of the delay before a step's next try.
    fn delay_left(&self, path: &StepPath) -> Span {
        self.state().steps.get(path).map_or(Span::ZERO, |step| step.delay_left(self.state().last_at))
    }

    /// A wait that goes on, named once more where the job would else not wait for it, or park although it is a short one:
    /// it has begun in an earlier run, or beside others that have begun now.
    fn blocked_still(&self, others: bool) -> Option<JobWaiting> {
        let parks = |blocked: &Blocked| match self.plan.node(blocked.node.node()).map(|node| &node.kind) {
            Some(NodeKind::Wait(wait)) if !blocked.doubt => wait.park,
            Some(_) | None => blocked.wait_type == WaitType::Human,
        };
        let old = |blocked: &&Blocked| blocked.since != aetheris_core::time::Timestamp::default();
        let open: Vec<&Blocked> = self.state().blocks.iter().filter(old).collect();
        let short = open.iter().find(|blocked| !parks(blocked));
        let blocked = if others { short } else { short.or(open.first()) }?;
        aetheris_fault::sometimes!(BlockedStill);
        Some(JobWaiting {
            correlation_key: blocked.correlation_key.clone(),
            doubt: blocked.doubt,
            node: blocked.node.clone(),
            park: parks(blocked),
            reason: blocked.reason.clone(),
            wait_type: blocked.wait_type,
        })
    }

    /// One line per job that begins to wait: where and for what, without the words of the wait.
    fn note_block(&self) {
        let job = self.state().id;
        match self.state().blocks.oldest() {
            Some(blocked) => {
                let (node, on) = (&blocked.node, if blocked.doubt { "in_doubt" } else { blocked.wait_type.as_str() });
                tracing::info!(%job, %node, on, status = self.state().status.as_str(), "waiting");
            }
            // A signal that was kept has ended the wait at once.
            None => tracing::info!(%job, "given back: its signal had arrived"),
        }
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

/// Resolves at a moment; never where there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The most facts that one turn adds to a draft before it writes: those of a wait tell of each kept signal that does not fit.
const EVENTS_OF_ONE_TURN_MAX: usize = 16 + limits::KEPT_SIGNALS_OF_KEY_MAX;
