//! Bodies that are under way beside each other. They know nothing of the run's draft: it concludes them one by one, in the
//! order in which they end.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;

use aetheris_core::id::{NodeId, PermitId};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::state::JobState;
use aetheris_core::step::StepStatus;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, poll_immediate};
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::body::Interrupts;
use super::prepared::Said;
use super::{Lease, Stop};

/// Where a step stands when its body begins. What the body says counts only as long as it stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Whether it has been told how its child has ended.
    told: bool,
    permit: Option<PermitId>,
    status: StepStatus,
    tries: u32,
}

impl Position {
    pub(super) fn of(state: &JobState, path: &StepPath) -> Self {
        let step = state.steps.get(path);
        Self {
            told: step.and_then(|step| step.child.as_deref()).is_some_and(|child| child.end.is_some()),
            permit: step.and_then(|step| step.invocation.as_deref()).map(|call| call.permit_id),
            status: step.map_or(StepStatus::Pending, |step| step.status),
            tries: step.map_or(0, |step| step.tries),
        }
    }
}

/// A body that has ended.
pub(super) struct Ended {
    pub(super) path: StepPath,
    /// `None` where it was interrupted: it counts for nothing.
    pub(super) said: Result<Option<Said>, Stop>,
}

/// What is known of a body that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnderWay {
    /// Whether somebody outside the process can observe it.
    pub(super) leaves: bool,
    pub(super) position: Position,
}

/// The bodies of a run.
#[derive(Default)]
pub(super) struct Bodies<'r> {
    /// Those that have ended and are not concluded.
    ended: VecDeque<Ended>,
    /// Ends those that may be dropped.
    halt: CancellationToken,
    /// Ends those of the parts of one node, or of one loop, that may be dropped.
    halts: BTreeMap<StepPath, CancellationToken>,
    /// How many there are of each node.
    of_nodes: BTreeMap<NodeId, usize>,
    running: FuturesUnordered<BoxFuture<'r, Ended>>,
    /// When a start is to be shown that is not written by then.
    show_at: Option<Instant>,
    under_way: BTreeMap<StepPath, UnderWay>,
}

impl<'r> Bodies<'r> {
    /// How many there are of each node that has some.
    pub(super) fn of_nodes(&self) -> &BTreeMap<NodeId, usize> {
        &self.of_nodes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn has(&self, path: &StepPath) -> bool {
        if aetheris_fault::planted!("body-forgotten") {
            return false;
        }
        self.under_way.contains_key(path)
    }

    /// What ends a body of a step that begins now before its time.
    pub(super) fn interrupts(&mut self, path: &StepPath, lease: &'r Lease) -> Interrupts<'r> {
        // What is no part of anything ends with all of the run alone.
        if path.is_whole() {
            return Interrupts { halt: self.halt.clone(), lease };
        }
        let of_node = self.halts.entry(StepPath::from(path.node())).or_insert_with(|| self.halt.child_token()).clone();
        if path.is_outside_loop() {
            return Interrupts { halt: of_node, lease };
        }
        let of_loop = self.halts.entry(path.of_loop()).or_insert_with(|| of_node.child_token());
        Interrupts { halt: of_loop.clone(), lease }
    }

    /// A body begins. Where its start is not written, people are to see it in a while all the same.
    pub(super) async fn begin(&mut self, path: &StepPath, under_way: UnderWay, body: BoxFuture<'r, Ended>) {
        self.note_begun(path, under_way);
        let mut body = body;
        // What it sends leaves now, right behind the last look at lease and permit.
        match poll_immediate(body.as_mut()).await {
            Some(ended) => self.ended.push_back(ended),
            None => {
                self.show_at.get_or_insert_with(|| Instant::now() + limits::START_SHOWN_AFTER.to_std());
                self.running.push(body);
            }
        }
    }

    /// A body has ended before it began.
    pub(super) fn end_at_once(&mut self, path: StepPath, under_way: UnderWay, said: Said) {
        self.note_begun(&path, under_way);
        self.ended.push_back(Ended { path, said: Ok(Some(said)) });
    }

    fn note_begun(&mut self, path: &StepPath, under_way: UnderWay) {
        if self.under_way.insert(path.clone(), under_way).is_none() {
            *self.of_nodes.entry(path.node().clone()).or_default() += 1;
        }
    }

    /// The same as [`Bodies::halt`] of the parts of one node, or of one loop. One that begins later is not halted.
    pub(super) fn halt_group(&mut self, of: &StepPath) {
        if let Some(halt) = self.halts.remove(of) {
            halt.cancel();
        }
        if of.is_whole() {
            self.halts.retain(|path, _| path.node() != of.node());
        }
    }

    /// What may be dropped ends; a call that must not be repeated goes on to its own end.
    pub(super) fn halt(&self) {
        self.halt.cancel();
    }

    /// Those that begin from now on are not halted: what halted others holds no more.
    pub(super) fn go_on(&mut self) {
        if self.halt.is_cancelled() {
            self.halt = CancellationToken::new();
            self.halts.clear();
        }
    }

    /// When a start is to be shown.
    pub(super) fn show_at(&self) -> Option<Instant> {
        self.show_at
    }

    /// The starts of all bodies that are under way are written.
    pub(super) fn shown(&mut self) {
        self.show_at = None;
    }

    /// The next body to end, with what is known of it; none where none is under way.
    pub(super) async fn next(&mut self) -> Option<(Ended, UnderWay)> {
        let ended = match self.ended.pop_front() {
            Some(ended) => ended,
            None => self.running.next().await?,
        };
        let under_way = self.under_way.remove(&ended.path)?;
        if let Entry::Occupied(mut of_node) = self.of_nodes.entry(ended.path.node().clone()) {
            *of_node.get_mut() -= 1;
            if *of_node.get() == 0 {
                of_node.remove();
                self.halts.retain(|path, _| path.node() != ended.path.node());
            }
        }
        if self.is_empty() {
            self.show_at = None;
        }
        Some((ended, under_way))
    }

    /// The next one, if it has ended by now.
    pub(super) async fn next_now(&mut self) -> Option<(Ended, UnderWay)> {
        if self.ended.is_empty() && self.running.is_empty() {
            return None;
        }
        poll_immediate(self.next()).await.flatten()
    }

    /// Does something else while the bodies go on.
    pub(super) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = work.as_mut() => return done,
                Some(ended) = self.running.next(), if !self.running.is_empty() => self.ended.push_back(ended),
            }
        }
    }
}
