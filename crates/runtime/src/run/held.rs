//! Steps that wait: held beside others that go on, and told with the unit that gives the job away once none can.

use std::collections::BTreeMap;

use aetheris_core::event::{Event, JobWaiting, RequeueReason};
use aetheris_core::id::IdempotencyKey;
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::CompiledPlan;
use aetheris_core::schedule::{self, Due, Waits};
use aetheris_core::state::{Blocked, JobState};
use aetheris_core::time::{Span, Timestamp};
use aetheris_store::Purpose;
use tokio::time::Instant;

use super::bodies::{Bodies, Position};
use super::drive::EVENTS_OF_ONE_TURN_MAX;
use super::prepared::Release;
use super::{Run, RunEnd, Stop, kind};
use crate::draft::{Fact, Rebased};
use crate::ops::{FAILED_BESIDE_CALL, open_calls};

/// A step that cannot go on for now, although the job is not blocked on it: others go on.
#[derive(Debug)]
pub(super) struct Held {
    position: Position,
    release: Release,
    /// When a delay is over.
    pub(super) until: Option<Instant>,
}

impl Held {
    /// Whether another item may begin in its place. It would ask the same provider.
    pub(super) const fn waits(&self) -> Waits {
        match self.release {
            Release::Requeue(_, RequeueReason::RateLimited) => Waits::InPlace,
            Release::Requeue(..) | Release::Block { .. } => Waits::Aside,
        }
    }
}

impl<'r> Run<'r> {
    /// A step waits. Others go on; the job is given away once none can.
    pub(super) fn hold(&mut self, path: &StepPath, release: Release) {
        let position = Position::of(self.state(), path);
        self.held.insert(path.clone(), Held { position, release, until: None });
    }

    /// A question to a model waits until its provider may be asked. No try is counted, and nothing says so but the job that is
    /// given back.
    pub(super) fn hold_back(&mut self, path: &StepPath, pause: Span) {
        let position = Position::of(self.state(), path);
        let until = Some(Instant::now() + pause.to_std());
        let release = Release::Requeue(pause, RequeueReason::RateLimited);
        self.held.insert(path.clone(), Held { position, release, until });
    }

    /// Whether what was decided about a step that waits holds on a state that was read again. Kept signals are counted anew.
    pub(super) fn still_waits(&self, path: &StepPath, held: &Held) -> bool {
        let counts = matches!(held.release, Release::Block { expected: Some(_), .. });
        let known = self.rows.effects.contains_key(&IdempotencyKey::derive(self.state().id, path, 0));
        !counts && !known && Position::of(self.state(), path) == held.position
    }

    /// Steps that wait for their next try beside others: their delays count from the moment at which the store has them.
    pub(super) async fn count_delays(&mut self, bodies: &mut Bodies<'r>) -> Result<Rebased, Stop> {
        let uncounted = |held: &Held| held.until.is_none() && matches!(held.release, Release::Requeue(..));
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

    /// Steps whose delay is over go on.
    pub(super) fn end_delays(&mut self) {
        let now = Instant::now();
        let over = |held: &Held| held.until.is_some_and(|until| until <= now);
        let rested: Vec<StepPath> =
            self.held.iter().filter(|(_, held)| over(held)).map(|(path, _)| path.clone()).collect();
        self.held.retain(|_, held| !over(held));
        self.rested.extend(rested);
    }

    /// The shortest delay of those that wait for their next try, and whose it is.
    fn shortest_delay(&self) -> Option<(Span, StepPath)> {
        let now = Instant::now();
        let left = |(path, held): (&StepPath, &Held)| match (held.until, &held.release) {
            (Some(until), _) => Some((Span::from_std(until.saturating_duration_since(now)), path.clone())),
            (None, Release::Requeue(..)) => Some((self.delay_left(path), path.clone())),
            (None, Release::Block { .. }) => None,
        };
        self.held.iter().filter_map(left).min()
    }

    /// Why a step that waits for a time does.
    fn reason_of(&self, path: &StepPath) -> RequeueReason {
        match self.held.get(path).map(|held| &held.release) {
            Some(Release::Requeue(_, reason)) => *reason,
            Some(Release::Block { .. }) | None => RequeueReason::Retry,
        }
    }

    /// Whether a delay is so short that the job is held through it.
    pub(super) fn goes_on_soon(&self) -> bool {
        self.shortest_delay().is_some_and(|(left, _)| left <= limits::BACKOFF_HELD_MAX)
    }

    /// Nothing can go on: the job is given away with all that is drafted. `None` when the newer state does not allow it, or
    /// a delay was all but over.
    pub(super) async fn release(&mut self) -> Result<Option<RunEnd>, Stop> {
        // No step of a job that is to fail is tried again.
        let shortest = self.shortest_delay().filter(|_| !self.failed);
        let mut delay = shortest.as_ref().map(|(left, path)| (*left, self.reason_of(path)));
        if let Some((left, path)) = shortest.filter(|(left, _)| *left <= limits::BACKOFF_HELD_MAX) {
            tokio::select! {
                biased;
                () = self.lease.interrupted() => {}
                () = tokio::time::sleep(left.to_std()) => {
                    self.held.remove(&path);
                    self.rested.insert(path);
                }
            }
            return Ok(None);
        }
        if self.failed && !aetheris_fault::planted!("open-call-beside-a-lost-map") {
            // The job waits for the children of a map that has failed, and calls beside them were dropped: no run looks after
            // those before the job ends.
            let open = open_calls(self.state(), &self.rows.ledger, FAILED_BESIDE_CALL);
            self.take(open)?;
        }
        let (rests, blocks): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|(_, held)| matches!(held.release, Release::Requeue(..)));
        let (blocked, all) = self.block_on(blocks)?;
        if !all {
            // The next run blocks the job on the others.
            delay = Some((Span::ZERO, RequeueReason::Retry));
        }
        // One that waits begins to when the job is blocked on those before it: in the next run, at once.
        if blocked && self.is_due_beside(&rests) {
            aetheris_fault::sometimes!(WaitsInTurn);
            delay = Some((Span::ZERO, RequeueReason::Retry));
        }
        let (purpose, end) = match delay {
            _ if self.state().status == JobStatus::Pending => (Purpose::Block, RunEnd::Blocked),
            Some((delay, reason)) => {
                aetheris_fault::sometimes!(RateReleased, reason == RequeueReason::RateLimited);
                self.take(Release::Requeue(delay, reason).facts())?;
                (Purpose::Requeue, RunEnd::Requeued)
            }
            None => {
                let again = waits_still(self.state(), &self.plan, blocked).map(Fact::of);
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

    /// Blocks the job on what waits, as far as the unit has room for it: whether on any, and whether on all.
    fn block_on(&mut self, blocks: BTreeMap<StepPath, Held>) -> Result<(bool, bool), Stop> {
        let (mut blocked, mut all) = (false, true);
        for (path, Held { release, .. }) in blocks {
            let Release::Block { facts, expected } = release else { continue };
            // Nobody is asked for what a job waits for that is to fail, but for the ends of its lost maps' children.
            if self.failed && !self.is_stopped(&path) {
                continue;
            }
            // A signal that was kept has ended a wait at once: the job is given back as it is.
            if self.state().status == JobStatus::Pending {
                break;
            }
            if blocked && self.draft.len() + facts.len() + EVENTS_OF_ONE_TURN_MAX > limits::UNIT_EVENTS_MAX {
                all = false;
                break;
            }
            // It was decided on without those before it: the next run decides again on a key that one of them has, or with all
            // waits in use.
            if blocked && facts.iter().any(|fact| self.cannot_wait(fact)) {
                all = false;
                continue;
            }
            self.draft.expect_signals(expected);
            self.take(facts)?;
            blocked = true;
        }
        Ok((blocked, all))
    }

    /// Whether the job cannot begin to wait as a fact says.
    fn cannot_wait(&self, fact: &Fact) -> bool {
        let Event::JobWaiting(JobWaiting { correlation_key: Some(key), node, .. }) = &fact.event else { return false };
        let waits = &self.state().waits;
        let own = waits.get(key).is_some_and(|wait| wait.node == *node);
        !own && (waits.contains_key(key) || waits.len() >= limits::JOB_WAITS_MAX)
    }

    /// Whether something could go on, now that the job is blocked on what waits.
    fn is_due_beside(&self, rests: &BTreeMap<StepPath, Held>) -> bool {
        // Of a job that is to fail nothing begins.
        if self.failed {
            return false;
        }
        let due = schedule::due(self.state(), &self.plan, self.bound(), &mut self.cursor.clone(), |path| {
            rests.get(path).map_or(Waits::No, Held::waits)
        });
        !matches!(due, Due::Open(steps) if steps.is_empty())
    }

    /// What is left of the delay before a step's next try.
    fn delay_left(&self, path: &StepPath) -> Span {
        self.state().steps.get(path).map_or(Span::ZERO, |step| step.delay_left(self.state().last_at))
    }

    /// One line for each step that its job waits for: which and for what, without the words of the wait.
    fn note_block(&self) {
        let job = self.state().id;
        for blocked in self.state().blocks.iter() {
            let (node, on) = (&blocked.node, if blocked.doubt { "in_doubt" } else { blocked.wait_type.as_str() });
            tracing::info!(%job, %node, on, status = self.state().status.as_str(), "waiting");
        }
        // A signal that was kept has ended the wait at once.
        if self.state().blocks.is_empty() {
            tracing::info!(%job, "given back: its signal had arrived");
        }
    }
}

/// A wait that goes on, named once more where the job would else not wait for it, or park although it is a short one: it
/// has begun in an earlier run, or beside `others` that begin now.
fn waits_still(state: &JobState, plan: &CompiledPlan, others: bool) -> Option<JobWaiting> {
    let old = |blocked: &&Blocked| blocked.since != Timestamp::default();
    let open: Vec<&Blocked> = state.blocks.iter().filter(old).collect();
    let short = open.iter().find(|blocked| !kind::parks(state, plan, blocked));
    let blocked = if others { short } else { short.or(open.first()) }?;
    aetheris_fault::sometimes!(BlockedStill);
    Some(JobWaiting {
        correlation_key: blocked.correlation_key.clone(),
        doubt: blocked.doubt,
        node: blocked.node.clone(),
        park: kind::parks(state, plan, blocked),
        reason: blocked.reason.clone(),
        wait_type: blocked.wait_type,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aetheris_core::id::JobId;
    use aetheris_core::json::Json;
    use aetheris_core::plan::{Budget, Node, NodeKind, PLAN_SCHEMA_VERSION, Plan, WaitType};
    use aetheris_core::retry::RetryPolicy;

    use super::*;

    fn plan() -> CompiledPlan {
        let node = |id: &str| Node::new(id, NodeKind::Transform(Json::null()));
        let plan = Plan {
            answer: None,
            budget: Budget::default(),
            max_parallel_steps: Some(8),
            nodes: ["a", "b", "c"].map(node).to_vec(),
            retry: RetryPolicy::default(),
            schema_version: PLAN_SCHEMA_VERSION,
            step_timeout: None,
            tools: std::collections::BTreeMap::new(),
        };
        Arc::new(plan).compile().unwrap()
    }

    /// Which wait is named once more, of doubts that began then, and whether the job would park for it.
    fn named(open: &[(&str, i64, WaitType)], others: bool) -> Option<(String, bool)> {
        let mut state = JobState::new(JobId::from_u128(1));
        let blocked = |(node, since, wait_type): &(&str, i64, WaitType)| Blocked {
            correlation_key: None,
            doubt: true,
            node: (*node).into(),
            reason: None,
            seq: u64::try_from(*since).unwrap(),
            since: Timestamp::from_micros(*since),
            wait_type: *wait_type,
        };
        state.blocks = open.iter().map(blocked).collect();
        waits_still(&state, &plan(), others).map(|waiting| (waiting.node.to_string(), waiting.park))
    }

    /// The job waits for what waits still, and parks only if it would for all of it.
    #[test]
    fn a_wait_that_goes_on_is_named_where_the_job_would_forget_it() {
        use WaitType::{Human, Timer};
        let [person, timer, new] = [("a", 3, Human), ("b", 4, Timer), ("c", 0, Human)];
        assert_eq!(named(&[person], false), Some(("a".to_owned(), true)));
        assert_eq!(named(&[person, timer], false), Some(("b".to_owned(), false)));
        // What begins now has the job wait already: only a short one is left to be said.
        assert_eq!(named(&[person, new], true), None);
        assert_eq!(named(&[timer, new], true), Some(("b".to_owned(), false)));
        assert_eq!(named(&[new], true), None);
    }
}
