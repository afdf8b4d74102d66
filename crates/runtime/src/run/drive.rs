//! The driver: what is next in the job, again and again. What it does with a step is decided elsewhere.

use std::sync::Arc;

use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::Node;
use aetheris_core::schedule::{self, Next as Due};
use aetheris_store::Purpose;

use super::prepared::{Next, Prepared, Release};
use super::view::View;
use super::{Run, RunEnd, Stop, facts, step};
use crate::draft::Rebased;
use crate::error::OpError;

impl<'r> Run<'r> {
    pub(super) async fn drive(&mut self) -> Result<RunEnd, Stop> {
        let plan = Arc::clone(&self.plan);
        let mut turn = 0_usize;
        loop {
            turn = turn.wrapping_add(1);
            let written = self.writes;
            if let Some(end) = self.check_interrupts().await? {
                return Ok(end);
            }
            let mut cursor = self.cursor;
            let due = schedule::next(self.draft.state(), &plan, &mut cursor);
            self.cursor = cursor;
            let ended = match due {
                Due::Done => self.complete().await?,
                Due::Failed(node) => self.fail(node).await?,
                Due::Skip(node, reason) => {
                    let skipped = facts::skip(&self.view(node), reason);
                    self.take(skipped.facts)?;
                    None
                }
                Due::Node(node) => self.step(node).await?,
            };
            if let Some(end) = ended {
                return Ok(end);
            }
            let far = self.draft.len() + EVENTS_OF_ONE_TURN_MAX > limits::UNIT_EVENTS_MAX
                || (self.sent.is_some() && self.ahead > limits::UNWRITTEN_BYTES_MAX);
            if far && !aetheris_fault::planted!("overlap-without-bound") {
                self.flush(Purpose::Record).await?;
            }
            // A turn may have computed for as long as its templates are allowed to, and who writes may have been answered
            // without waiting.
            if self.writes == written || turn.is_multiple_of(limits::TURNS_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// One step's turn. `None` when the job is to be looked at again.
    async fn step(&mut self, node: &Node) -> Result<Option<RunEnd>, Stop> {
        let mut prepared = step::prepare(&self.view(node)).map_err(Stop::Fault)?;
        self.accepted_from = None;
        loop {
            let Prepared { facts, next, see } = prepared;
            self.may_draft(&next).await?;
            self.take(facts)?;
            if let Some(see) = see {
                self.draft.also_settle(see);
            }
            prepared = match next {
                Next::Go => return Ok(None),
                Next::Again => step::prepare(&self.view(node)).map_err(Stop::Fault)?,
                Next::Record => {
                    self.flush(Purpose::Record).await?;
                    return Ok(None);
                }
                Next::TryFailed(failed) => step::after_failure(&self.view(node), failed),
                Next::Release(release) => return self.release(release).await,
                Next::Perform(body) => match self.perform(node, body).await? {
                    Some(said) => {
                        let other = self.plan.at(0).filter(|_| aetheris_fault::planted!("first-step-concludes"));
                        step::conclude(&self.view(other.unwrap_or(node)), said).map_err(Stop::Fault)?
                    }
                    None => return Ok(None),
                },
            };
        }
    }

    pub(super) fn view<'v>(&'v self, node: &'v Node) -> View<'v> {
        View {
            accepted_from: self.accepted_from,
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

    /// Gives the job away with all that is drafted. `None` when the newer state does not allow it.
    async fn release(&mut self, release: Release) -> Result<Option<RunEnd>, Stop> {
        let (purpose, end) = match release {
            Release::Block { expected } => {
                self.draft.expect_signals(expected);
                (Purpose::Block, RunEnd::Blocked)
            }
            Release::Requeue => (Purpose::Requeue, RunEnd::Requeued),
        };
        if end != RunEnd::Blocked || !aetheris_fault::planted!("lease-kept-while-waiting") {
            self.draft.release();
        }
        if self.flush(purpose).await? == Rebased::Cut {
            return Ok(None);
        }
        if end == RunEnd::Blocked {
            self.note_block();
        } else {
            aetheris_fault::sometimes!(RetryReleased);
        }
        Ok(Some(end))
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

/// The most facts that one turn adds to a draft before it writes: those of a wait tell of each kept signal that does not fit.
const EVENTS_OF_ONE_TURN_MAX: usize = 16 + limits::KEPT_SIGNALS_OF_KEY_MAX;
