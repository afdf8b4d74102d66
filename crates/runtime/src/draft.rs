//! Facts that are to be written: accepted by the reducer, not yet by the store.
//!
//! A draft applies each event to its state at once, so that an illegal one is refused before it is
//! sent. After the commit the same events are stamped with the store's time. If the store says that
//! something else was written meanwhile, the draft is laid onto the newer state ([`Draft::rebase`]).
//!
//! Facts may be added while those before them are being written ([`Draft::send`]): they are the next unit's. If the
//! store refuses the first, the others are dropped with it ([`Draft::recall`]).

mod checkpoint;
mod fact;

pub use checkpoint::LastCheckpoint;
pub use fact::Fact;

use std::time::Duration;

use aetheris_core::event::{EncodedEvent, Event, EventKind, TimerId};
use aetheris_core::hash::Hash;
use aetheris_core::id::{EventId, IdSource};
use aetheris_core::lease::Guard;
use aetheris_core::projection::{self, Projection};
use aetheris_core::state::{Illegal, JobState};
use aetheris_core::time::Timestamp;
use aetheris_core::{json, limits};
use aetheris_store::{
    Checkpoint, CommitError, Committed, ExpectedSignals, LeaseChange, LedgerWrite, NewEffect, Purpose, Store,
    StoreError, UnitOfWork,
};

/// A fact with the name of its event.
#[derive(Debug, Clone)]
struct Entry {
    fact: Fact,
    id: EventId,
}

/// A state and the facts that are to follow it.
#[derive(Debug, Clone)]
pub struct Draft {
    entries: Vec<Entry>,
    guard: Guard,
    /// Promises that are kept with it.
    delivers: Vec<u64>,
    lease: LeaseChange,
    expected_signals: Vec<ExpectedSignals>,
    /// Changes of the ledger beside those of the facts.
    settles: Vec<LedgerWrite>,
    /// The last checkpoint that was written.
    last: LastCheckpoint,
    /// The state before the first entry, if it is to be kept as a checkpoint.
    checkpoint: Option<Checkpoint>,
    /// How many of the entries, from the first on, are in a unit that is being written, and the timers that it leaves.
    sent: (usize, Vec<TimerId>),
    /// The place of the last event that is written.
    seq: u64,
    state: JobState,
    /// The timers that are written.
    timers: Vec<TimerId>,
    /// The place at which the state was found too large for a checkpoint; 0 if it was not.
    too_large_at: u64,
}

/// What became of a draft that was laid onto a newer state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebased {
    /// Every fact still holds.
    Whole,
    /// From some fact on, the newer state does not allow them; those were dropped.
    Cut,
}

impl Draft {
    /// A draft on a state that is as the store has it.
    #[must_use]
    pub fn new(state: JobState, guard: Guard, last: LastCheckpoint) -> Self {
        let timers = timers_of(&state);
        Self {
            entries: Vec::new(),
            guard,
            delivers: Vec::new(),
            lease: LeaseChange::Keep,
            expected_signals: Vec::new(),
            settles: Vec::new(),
            last,
            checkpoint: None,
            sent: (0, Vec::new()),
            seq: state.seq,
            state,
            timers,
            too_large_at: 0,
        }
    }

    /// The state with all facts of the draft.
    #[must_use]
    pub fn state(&self) -> &JobState {
        &self.state
    }

    /// The last checkpoint that was written.
    #[must_use]
    pub fn last_checkpoint(&self) -> LastCheckpoint {
        self.last
    }

    /// How many facts are to be written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it holds anything that must be durable before a call leaves, or on its way before a function runs: more than
    /// the start of the step itself.
    #[must_use]
    pub fn has_results(&self) -> bool {
        self.entries.iter().any(|entry| entry.fact.event.kind() != EventKind::NodeStarted)
    }

    /// The facts that are to be written, in order.
    pub fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.entries.iter().map(|entry| &entry.fact)
    }

    /// The effects that are to be written.
    pub fn effects(&self) -> impl Iterator<Item = &NewEffect> {
        self.entries.iter().filter_map(|entry| entry.fact.effect.as_deref())
    }

    /// Whether it sets a timer.
    #[must_use]
    pub fn sets_timer(&self) -> bool {
        self.entries.iter().any(|entry| entry.fact.event.kind() == EventKind::TimerSet)
    }

    /// Adds a fact that changes nothing beside the job's state.
    ///
    /// # Errors
    /// As [`Draft::add`].
    pub fn push(&mut self, ids: &dyn IdSource, event: impl Into<Event>) -> Result<(), Illegal> {
        self.add(ids, Fact::of(event))
    }

    /// Adds a fact.
    ///
    /// # Errors
    /// The reducer refuses it; the draft is then not to be used any more.
    pub fn add(&mut self, ids: &dyn IdSource, fact: Fact) -> Result<(), Illegal> {
        self.push_entry(Entry { fact, id: event_id(ids) })
    }

    fn push_entry(&mut self, entry: Entry) -> Result<(), Illegal> {
        if self.entries.is_empty() && self.wants_checkpoint() {
            self.make_checkpoint(limits::CHECKPOINT_BYTES_MAX);
        }
        let applied = self.state.apply(&entry.fact.event);
        if !aetheris_fault::planted!("reducer-not-asked") {
            applied?;
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Whether the state after all its entries is to be kept as a checkpoint.
    fn wants_checkpoint(&self) -> bool {
        self.state.seq >= self.last.due().max(self.too_large_at + checkpoint::every())
    }

    /// Keeps the state as a checkpoint if it is within its bound. If not, the job is folded from further back, and
    /// it is looked at again when as many events have come as lie between two checkpoints.
    fn make_checkpoint(&mut self, bytes_max: usize) {
        let mut state = std::borrow::Cow::Borrowed(&self.state);
        if aetheris_fault::planted!("checkpoint-without-tokens") {
            state.to_mut().tokens = 0;
        }
        match json::to_canonical_within(state.as_ref(), bytes_max) {
            Some(state) => {
                let seq = self.seq + u64::from(aetheris_fault::planted!("checkpoint-ahead"));
                self.checkpoint = Some(Checkpoint::from_bytes(seq, state));
            }
            None => {
                let (job, seq) = (self.state.id, self.seq);
                tracing::warn!(%job, seq, bytes_max, "the job's state is too large for a checkpoint; none is written");
                self.too_large_at = self.seq;
            }
        }
    }

    /// Its state is too large for a checkpoint: none is tried.
    pub(crate) fn make_no_checkpoint(&mut self) {
        self.too_large_at = self.seq;
    }

    /// The writer gives the job away with this draft.
    pub fn release(&mut self) {
        self.lease = LeaseChange::Release;
    }

    /// Settles a permit that no fact of the draft speaks of, with the facts.
    pub fn also_settle(&mut self, settle: LedgerWrite) {
        self.settles.push(settle);
    }

    /// A promise is kept with the draft; it is refused where that does not stand any more.
    pub fn deliver(&mut self, promise: u64) {
        self.delivers.push(promise);
    }

    /// The draft is to be refused unless these signals are kept and no other of their key.
    pub fn expect_signals(&mut self, expected: Option<ExpectedSignals>) {
        if aetheris_fault::planted!("expected-signals-overwritten") {
            self.expected_signals.clear();
        }
        self.expected_signals.extend(expected);
    }

    /// The unit of work that writes the draft. It can be made again as often as it has to be sent.
    #[must_use]
    pub fn unit(&self, purpose: Purpose, fallback: EventId) -> UnitOfWork {
        let id = self.entries.first().map_or(fallback, |entry| entry.id);
        let mut unit = UnitOfWork::new(id, self.state.id, purpose, self.guard);
        unit.expected_seq = Some(self.seq);
        unit.lease = self.lease;
        unit.expected_signals.clone_from(&self.expected_signals);
        unit.checkpoint.clone_from(&self.checkpoint);
        unit.delivers.clone_from(&self.delivers);
        if !aetheris_fault::planted!("promise-unwritten") {
            let events = self.entries.iter().map(|entry| &entry.fact.event);
            unit.outbox = projection::promises(self.seq, events, &self.state);
        }
        let mut set = Vec::new();
        for entry in &self.entries {
            unit.events.push(EncodedEvent::new(entry.id, &entry.fact.event));
            unit.effects.extend(entry.fact.effect.as_deref().cloned());
            unit.inbox.extend(entry.fact.inbox.as_deref().cloned());
            unit.ledger.extend(entry.fact.ledger.as_deref().cloned());
            unit.plan = unit.plan.or_else(|| entry.fact.plan.as_deref().cloned());
            if let Event::TimerSet(timer) = &entry.fact.event {
                set.push(timer.timer.clone());
            }
        }
        unit.ledger.extend(self.settles.iter().cloned());
        unit.timers = projection::timer_changes(&self.timers, &self.state, &set);
        let requeued = self.entries.iter().any(|entry| entry.fact.event.kind() == EventKind::JobRequeued);
        unit.row = Some(Projection::of(&self.state, requeued));
        unit
    }

    /// The unit of all its facts, for an author who goes on while it is written; none where that has to be awaited: one is
    /// on its way already, it gives the job away or holds more than facts, or a checkpoint is due, which is made of a state
    /// that is written. [`Draft::sent_written`] or [`Draft::recall`] follows.
    pub(crate) fn send(&mut self, purpose: Purpose, fallback: EventId) -> Option<UnitOfWork> {
        let more = self.lease != LeaseChange::Keep || !self.expected_signals.is_empty() || !self.settles.is_empty();
        if self.sent.0 > 0 || more || self.wants_checkpoint() {
            return None;
        }
        let unit = UnitOfWork { overlaps: true, ..self.unit(purpose, fallback) };
        self.sent = (self.entries.len(), timers_of(&self.state));
        Some(unit)
    }

    /// The facts that were sent are written. Those that came since are still to be.
    pub(crate) fn sent_written(&mut self, committed: &Committed) {
        let (sent, timers) = std::mem::take(&mut self.sent);
        self.stamp(sent, committed);
        self.timers =
            if aetheris_fault::planted!("timers-of-what-ran-ahead") { timers_of(&self.state) } else { timers };
    }

    /// What was sent is not written and is to be decided anew, and what came since stands on it. The facts that were sent
    /// alone are left, for [`Draft::rebase`]: the state is none that they led to.
    pub(crate) fn recall(&mut self) {
        let (sent, _) = std::mem::take(&mut self.sent);
        self.entries.truncate(sent);
        // All else that a unit can have came after it was sent.
        if !aetheris_fault::planted!("recall-keeps-release") {
            self.lease = LeaseChange::Keep;
        }
        self.expected_signals.clear();
        self.settles.clear();
    }

    /// Takes in what the store says: the facts get their time and the draft is empty again.
    ///
    /// # Panics
    /// The store has written the facts at another place than the draft's.
    pub fn written(&mut self, committed: &Committed) {
        self.stamp(self.entries.len(), committed);
        self.timers = timers_of(&self.state);
        self.lease = LeaseChange::Keep;
        self.expected_signals.clear();
        self.settles.clear();
    }

    /// So many of the facts, from the first on, are written.
    fn stamp(&mut self, count: usize, committed: &Committed) {
        let unknown = aetheris_fault::planted!("unknown-is-committed");
        let unchecked = aetheris_fault::planted!("sequence-not-checked");
        let left = self.entries.len() - count;
        let seq = self.state.seq - u64::try_from(left).unwrap_or(u64::MAX);
        aetheris_fault::always!(
            committed.seq == seq || unknown || unchecked,
            "job {}: a draft up to event {seq} was written up to event {}",
            self.state.id,
            committed.seq
        );
        for entry in self.entries.drain(..count) {
            self.state.stamp(&entry.fact.event, committed.at);
        }
        if let Some(checkpoint) = self.checkpoint.take() {
            self.last = LastCheckpoint::of(&checkpoint);
        }
        self.seq = seq;
    }

    /// Lays the facts onto a newer state up to the one that blocks the job, which is to be decided anew.
    pub fn rebase_unblocked(&mut self, state: JobState) {
        let blocks = self.entries.iter().position(|entry| entry.fact.event.kind() == EventKind::JobWaiting);
        self.entries.truncate(blocks.unwrap_or(self.entries.len()));
        self.rebase(state);
        self.lease = LeaseChange::Keep;
        self.expected_signals.clear();
    }

    /// Begins anew on a state that is as the store has it.
    fn restart(&mut self, state: JobState) {
        *self = Self { too_large_at: self.too_large_at, ..Self::new(state, self.guard, self.last) };
    }

    /// Lays the facts onto a newer state, as far as it allows them, and none that decide how the
    /// whole job goes on. An outcome that is cut off is to be deposited: it is known all the same.
    pub fn rebase(&mut self, state: JobState) -> Rebased {
        let mut entries = std::mem::take(&mut self.entries);
        let (lease, expected_signals) = (self.lease, std::mem::take(&mut self.expected_signals));
        let settles = std::mem::take(&mut self.settles);
        let (total, base) = (entries.len(), state.clone());
        // Whether the job is given away, or fails and with which step, is decided on the newer state: a wait that it counts on
        // may have ended, or another step have failed.
        if !aetheris_fault::planted!("given-away-unseen") {
            entries.truncate(entries.iter().position(decides_for_job).unwrap_or(total));
        }
        self.restart(state);
        if entries.into_iter().try_for_each(|entry| self.push_entry(entry)).is_err() {
            // What is refused may have left its traces: those before it, which are not, are laid anew.
            let kept = std::mem::take(&mut self.entries);
            self.restart(base);
            let again = kept.into_iter().try_for_each(|entry| self.push_entry(entry));
            let job = self.state.id;
            aetheris_fault::always!(
                again.is_ok(),
                "job {job}: facts that were allowed are refused when they are laid again"
            );
        }
        if self.entries.len() < total {
            aetheris_fault::sometimes!(RebasedCut);
            return Rebased::Cut;
        }
        self.lease = lease;
        self.expected_signals = expected_signals;
        if !aetheris_fault::planted!("settles-lost-by-rebase") {
            self.settles = settles;
        }
        aetheris_fault::sometimes!(RebasedWhole, total > 0);
        Rebased::Whole
    }
}

/// Whether a fact says of the whole job how it goes on, by what all its steps had come to.
fn decides_for_job(entry: &Entry) -> bool {
    matches!(entry.fact.event.kind(), EventKind::JobWaiting | EventKind::JobRequeued | EventKind::JobFailed)
}

fn timers_of(state: &JobState) -> Vec<TimerId> {
    state.timers.keys().cloned().collect()
}

fn event_id(ids: &dyn IdSource) -> EventId {
    EventId::from_u128(ids.secret())
}

/// Why a draft was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The store refused it; nothing of it is written.
    #[error(transparent)]
    Refused(aetheris_store::Refusal),
    /// It failed; nothing of it is written.
    #[error(transparent)]
    Failed(aetheris_store::StoreError),
    /// It may have been written, and the store could not be asked.
    #[error("the outcome of a write is unknown: {0}")]
    Unknown(aetheris_store::StoreError),
}

/// Sends one unit until its outcome is known: an unknown commit is read back, and sent again only if it
/// is not there. Bounded by [`RESOLVE_TRIES_MAX`].
///
/// # Errors
/// [`WriteError`] says what is known.
pub async fn write(store: &dyn Store, mut unit: impl FnMut() -> UnitOfWork) -> Result<Committed, WriteError> {
    match known(store.commit(unit()).await) {
        Ok(answer) => answer,
        // Rare, and no part of what every writer carries about.
        Err(error) => Box::pin(write_unknown(store, unit, error)).await,
    }
}

/// What a commit's answer says; an error where it says nothing of what is there.
fn known(answer: Result<Committed, CommitError>) -> Result<Result<Committed, WriteError>, StoreError> {
    match answer {
        Ok(committed) => Ok(Ok(committed)),
        Err(CommitError::Refused(refusal)) => Ok(Err(WriteError::Refused(refusal))),
        Err(CommitError::Failed(error)) => Ok(Err(WriteError::Failed(error))),
        Err(CommitError::Unknown(_)) if aetheris_fault::planted!("unknown-is-committed") => {
            Ok(Ok(Committed { at: Timestamp::default(), head: Hash::ZERO, seq: 0 }))
        }
        Err(CommitError::Unknown(error)) if aetheris_fault::planted!("unknown-is-failed") => {
            Ok(Err(WriteError::Failed(error)))
        }
        Err(CommitError::Unknown(error)) => Err(error),
    }
}

/// Goes on with a unit of which nothing is known since it was sent.
async fn write_unknown(
    store: &dyn Store,
    mut unit: impl FnMut() -> UnitOfWork,
    trouble: StoreError,
) -> Result<Committed, WriteError> {
    let mut trouble = trouble;
    let mut attempt = 0;
    loop {
        if aetheris_fault::planted!("blind-retry")
            && let Err(CommitError::Refused(aetheris_store::Refusal::Sequence { actual, .. })) =
                store.commit(unit()).await
        {
            drop(store.commit(UnitOfWork { expected_seq: Some(actual), ..unit() }).await);
        }
        match resolve(store, &unit()).await {
            Ok(Some(committed)) => {
                aetheris_fault::sometimes!(ResolvedWritten);
                return Ok(committed);
            }
            Ok(None) => {
                aetheris_fault::sometimes!(ResolvedAbsent);
                pause(attempt).await;
            }
            Err(error) => return Err(WriteError::Unknown(error)),
        }
        attempt += 1;
        if attempt == RESOLVE_TRIES_MAX {
            return Err(WriteError::Failed(trouble));
        }
        match known(store.commit(unit()).await) {
            Ok(answer) => return answer,
            Err(error) => trouble = error,
        }
    }
}

/// Asks what became of a unit, for as long as its bound allows.
async fn resolve(store: &dyn Store, unit: &UnitOfWork) -> Result<Option<Committed>, StoreError> {
    let mut attempt = 0;
    loop {
        match store.resolve_unknown(unit).await {
            Ok(answer) => return Ok(answer),
            Err(error) if attempt + 1 >= RESOLVE_TRIES_MAX => return Err(error),
            Err(_) => pause(attempt).await,
        }
        attempt += 1;
    }
}

/// How often an unknown outcome is asked for.
pub const RESOLVE_TRIES_MAX: u32 = 12;

/// Waits between two looks: 10 ms, doubled up to a second.
async fn pause(attempt: u32) {
    let millis = 10u64.saturating_mul(1 << attempt.min(7)).min(1_000);
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aetheris_core::event::{
        JobCancelled, JobPaused, JobRequeued, JobWaiting, NodeStarted, PauseReason, RequeueReason, TimerFired, TimerSet,
    };
    use aetheris_core::id::{IdempotencyKey, JobId, PermitId};
    use aetheris_core::job::JobStatus;
    use aetheris_core::json::Json;
    use aetheris_core::plan::WaitType;
    use aetheris_core::state::PlanRef;
    use aetheris_core::time::{Due, Span};
    use aetheris_store::Refusal;
    use aetheris_store::faulty::{Fault, FaultPlan, FaultyStore, Op};
    use aetheris_store::memory::MemoryStore;
    use aetheris_store::system::{ManualClock, SystemIds};

    use super::*;

    /// The checkpoint that rides with the next fact of a job whose message has so many bytes.
    fn checkpoint(message: usize) -> (Draft, Option<Checkpoint>) {
        let mut state = JobState::new(JobId::from_u128(1));
        state.seq = limits::CHECKPOINT_EVENTS;
        state.message = Json::new("x".repeat(message).into());
        let mut draft = Draft::new(state, Guard::Outside, LastCheckpoint::default());
        // Whether the reducer takes the fact is not the question here.
        drop(draft.push(&SystemIds, JobCancelled {}));
        let checkpoint = draft.checkpoint.clone();
        (draft, checkpoint)
    }

    #[test]
    fn a_state_that_is_too_large_is_not_kept_and_not_looked_at_again_at_once() {
        let (draft, small) = checkpoint(1_000);
        let small = small.unwrap();
        assert_eq!((small.seq, draft.too_large_at), (limits::CHECKPOINT_EVENTS, 0));
        assert!(small.state.len() < 3_000);
        let (draft, large) = checkpoint(limits::CHECKPOINT_BYTES_MAX);
        assert_eq!((large, draft.too_large_at), (None, limits::CHECKPOINT_EVENTS));
        // The bound is that of the whole state, to the byte.
        let room = limits::CHECKPOINT_BYTES_MAX - (small.state.len() - 1_000);
        assert!(checkpoint(room).1.is_some_and(|kept| kept.state.len() == limits::CHECKPOINT_BYTES_MAX));
        assert_eq!(checkpoint(room + 1).1, None);
    }

    #[test]
    fn a_state_that_was_too_large_is_looked_at_again_when_as_many_events_have_come() {
        let every = limits::CHECKPOINT_EVENTS;
        for (seq, rebased, kept) in [
            (2 * every - 1, false, None),
            (2 * every - 1, true, None),
            (2 * every, false, Some(2 * every)),
            (2 * every, true, Some(2 * every)),
        ] {
            let state = JobState { seq, ..running() };
            let mut draft = Draft::new(state.clone(), Guard::Outside, LastCheckpoint::default());
            draft.too_large_at = every;
            if rebased {
                draft.rebase(state);
            }
            draft.push(&SystemIds, started("a")).unwrap();
            assert_eq!(draft.checkpoint.map(|kept| kept.seq), kept, "{seq} {rebased}");
        }
    }

    /// A delay counts from the requeue that sets it, whatever is written to the pending job after it.
    #[test]
    fn a_delay_is_counted_by_its_requeue_alone() {
        let not_before = |draft: &Draft| draft.unit(Purpose::Record, EventId::from_u128(1)).row.unwrap().not_before;
        let delay = Span::from_secs(5);
        let mut draft = Draft::new(running(), Guard::Outside, LastCheckpoint::default());
        let requeued = JobRequeued { after_us: Some(delay.micros()), reason: RequeueReason::Retry };
        draft.push(&SystemIds, requeued).unwrap();
        assert_eq!(not_before(&draft), Some(Due::After(delay)));
        let (not_before_delay, at) = (Some(delay), Timestamp::from_micros(7));
        let state = JobState { not_before: Some(at), not_before_delay, status: JobStatus::Pending, ..running() };
        let mut draft = Draft::new(state, Guard::Outside, LastCheckpoint::default());
        draft.push(&SystemIds, JobPaused { reason: PauseReason::Operator }).unwrap();
        assert_eq!(not_before(&draft), Some(Due::At(at)));
    }

    /// Whoever waits for timers is woken by a write that sets one, and by no other.
    #[test]
    fn a_draft_sets_a_timer_where_one_of_its_facts_does() {
        let mut draft = Draft::new(running(), Guard::Outside, LastCheckpoint::default());
        draft.push(&SystemIds, started("a")).unwrap();
        assert!(!draft.sets_timer());
        draft.push(&SystemIds, TimerSet { after_us: 1, timer: TimerId::Wait("a".into()) }).unwrap();
        assert!(draft.sets_timer());
    }

    /// A job that runs, with a plan.
    fn running() -> JobState {
        let mut state = JobState::new(JobId::from_u128(1));
        (state.seq, state.status) = (3, JobStatus::Running);
        state.plan = Some(PlanRef { hash: Hash::ZERO, version: 1 });
        state
    }

    fn started(node: &str) -> NodeStarted {
        NodeStarted::new(node, 1)
    }

    fn waiting(node: &str) -> JobWaiting {
        let (correlation_key, reason, wait_type) = (Some("k".to_owned()), None, WaitType::Signal);
        JobWaiting { correlation_key, doubt: false, node: node.into(), park: false, reason, wait_type }
    }

    fn expected() -> Option<ExpectedSignals> {
        Some(ExpectedSignals { count: 1, key: "k".to_owned() })
    }

    fn see() -> LedgerWrite {
        LedgerWrite::See { key: IdempotencyKey::from_u128(2), permit_id: PermitId::from_u128(3) }
    }

    fn unit(draft: &Draft) -> UnitOfWork {
        draft.unit(Purpose::Record, EventId::from_u128(4))
    }

    #[test]
    fn what_was_written_is_not_written_again() {
        let every = limits::CHECKPOINT_EVENTS;
        let mut draft = Draft::new(JobState { seq: every, ..running() }, Guard::Outside, LastCheckpoint::default());
        draft.push(&SystemIds, TimerSet { after_us: 5, timer: TimerId::Deadline }).unwrap();
        draft.release();
        draft.expect_signals(expected());
        draft.also_settle(see());
        let first = unit(&draft);
        assert_eq!((first.expected_seq, first.events.len(), first.timers.len()), (Some(every), 1, 1));
        assert_eq!((first.lease, first.expected_signals.first()), (LeaseChange::Release, expected().as_ref()));
        let kept = first.checkpoint.unwrap();
        assert_eq!((first.ledger.len(), kept.seq), (1, every));
        draft.written(&Committed { at: Timestamp::from_micros(10), head: Hash::ZERO, seq: every + 1 });
        assert_eq!(draft.state().timers[&TimerId::Deadline].due, Timestamp::from_micros(15));
        assert_eq!(draft.last_checkpoint().seq(), every);
        assert_eq!(draft.last_checkpoint(), LastCheckpoint::of(&kept), "its bytes count for the next one");
        let next = unit(&draft);
        let row = Some(Projection::of(draft.state(), false));
        let id = EventId::from_u128(4);
        let nothing = UnitOfWork::new(id, JobId::from_u128(1), Purpose::Record, Guard::Outside);
        assert_eq!(next, UnitOfWork { expected_seq: Some(every + 1), row, ..nothing });
        // The timer that was written is one that can be cleared.
        draft.push(&SystemIds, TimerFired { timer: TimerId::Deadline }).unwrap();
        assert_eq!(unit(&draft).timers, [projection::TimerChange::Cleared(TimerId::Deadline)]);
    }

    /// A job with a deadline whose first step is being written while its second ends.
    fn ahead() -> (Draft, UnitOfWork) {
        let mut state = running();
        state.apply(&TimerSet { after_us: 5, timer: TimerId::Deadline }.into()).unwrap();
        let mut draft = Draft::new(state, Guard::Outside, LastCheckpoint::default());
        draft.push(&SystemIds, started("a")).unwrap();
        let sent = draft.send(Purpose::Record, EventId::from_u128(4)).unwrap();
        assert!(draft.send(Purpose::Record, EventId::from_u128(4)).is_none(), "one at a time");
        draft.push(&SystemIds, started("b")).unwrap();
        draft.push(&SystemIds, TimerFired { timer: TimerId::Deadline }).unwrap();
        draft.release();
        (draft, sent)
    }

    #[test]
    fn what_came_while_a_unit_was_written_is_the_next() {
        let (mut draft, sent) = ahead();
        assert!(sent.overlaps);
        assert_eq!(
            (sent.events.len(), sent.expected_seq, sent.timers.len(), sent.lease),
            (1, Some(4), 0, LeaseChange::Keep)
        );
        draft.sent_written(&Committed { at: Timestamp::from_micros(10), head: Hash::ZERO, seq: 5 });
        let steps = &draft.state().steps;
        assert_eq!(
            (steps[&"a".into()].started_at, steps[&"b".into()].started_at),
            (Some(Timestamp::from_micros(10)), None)
        );
        let next = unit(&draft);
        assert_eq!((next.events.len(), next.expected_seq, next.lease), (2, Some(5), LeaseChange::Release));
        assert!(!next.overlaps);
        // The timer was there when the first was sent: it is still to be cleared.
        assert_eq!(next.timers, [projection::TimerChange::Cleared(TimerId::Deadline)]);
    }

    #[test]
    fn what_ran_ahead_of_a_refused_unit_is_dropped_with_all_that_came_with_it() {
        let (mut draft, _) = ahead();
        draft.expect_signals(expected());
        draft.also_settle(see());
        draft.recall();
        let mut newer = running();
        newer.apply(&started("c").into()).unwrap();
        assert_eq!(draft.rebase(newer), Rebased::Whole);
        let left = unit(&draft);
        assert_eq!(
            (left.events.len(), left.lease, left.expected_signals.len(), left.ledger.len()),
            (1, LeaseChange::Keep, 0, 0)
        );
        assert!(!draft.state().steps.contains_key(&"b".into()));
    }

    /// A checkpoint is of a state that is written, and what gives the job away is awaited.
    #[test]
    fn what_has_to_be_awaited_is_not_sent_ahead() {
        let every = limits::CHECKPOINT_EVENTS;
        let with = |change: fn(&mut Draft)| {
            let mut draft =
                Draft::new(JobState { seq: every - 2, ..running() }, Guard::Outside, LastCheckpoint::default());
            draft.push(&SystemIds, started("a")).unwrap();
            change(&mut draft);
            draft.send(Purpose::Record, EventId::from_u128(4)).is_some()
        };
        assert!(with(|_| {}));
        assert!(!with(|draft| draft.push(&SystemIds, started("b")).unwrap()), "a checkpoint is due");
        assert!(!with(Draft::release));
        assert!(!with(|draft| draft.expect_signals(expected())));
        assert!(!with(|draft| draft.also_settle(see())));
    }

    /// What follows a fact that the newer state refuses was drafted in its sight.
    #[test]
    fn from_the_first_fact_that_is_refused_on_a_draft_is_cut() {
        let drafted = || {
            let mut draft = Draft::new(running(), Guard::Outside, LastCheckpoint::default());
            for node in ["a", "b", "c"] {
                draft.push(&SystemIds, started(node)).unwrap();
            }
            draft.release();
            draft.expect_signals(expected());
            draft.also_settle(see());
            draft
        };
        let mut newer = running();
        newer.apply(&started("b").into()).unwrap();
        let mut cut = drafted();
        assert_eq!(cut.rebase(newer), Rebased::Cut);
        let left = unit(&cut);
        assert_eq!((left.events.len(), left.expected_seq, cut.state().seq), (1, Some(4), 5));
        assert!(cut.state().steps.contains_key(&"a".into()) && !cut.state().steps.contains_key(&"c".into()));
        assert_eq!((left.lease, left.expected_signals.first(), left.ledger.len()), (LeaseChange::Keep, None, 0));
        let mut whole = drafted();
        assert_eq!(whole.rebase(JobState { seq: 7, ..running() }), Rebased::Whole);
        let all = unit(&whole);
        assert_eq!((all.events.len(), all.expected_seq), (3, Some(7)));
        assert_eq!(
            (all.lease, all.expected_signals.first(), all.ledger.len()),
            (LeaseChange::Release, expected().as_ref(), 1)
        );
    }

    /// What the job waits for may have ended meanwhile: whether it is given away is decided on the newer state.
    #[test]
    fn a_draft_does_not_give_the_job_away_on_a_newer_state() {
        let begun = || {
            let mut state = running();
            state.apply(&started("a").into()).unwrap();
            state
        };
        let mut draft = Draft::new(begun(), Guard::Outside, LastCheckpoint::default());
        draft.push(&SystemIds, started("b")).unwrap();
        draft.push(&SystemIds, waiting("b")).unwrap();
        draft.push(&SystemIds, JobWaiting { correlation_key: None, ..waiting("a") }).unwrap();
        draft.release();
        // The state allows every fact of it.
        assert_eq!(draft.rebase(begun()), Rebased::Cut);
        let left = unit(&draft);
        assert_eq!((left.events.len(), draft.state().status, left.lease), (1, JobStatus::Running, LeaseChange::Keep));
        assert!(draft.state().blocks.is_empty());
    }

    /// The same of a delay, and of a failure: another step may go on, or have failed.
    #[test]
    fn a_draft_does_not_decide_about_the_job_on_a_newer_state() {
        let error = aetheris_core::event::Failure::new("code", "why");
        let requeued = JobRequeued { after_us: Some(5), reason: RequeueReason::Retry };
        let failed = aetheris_core::event::JobFailed { error, node: None };
        for decides in [Event::from(requeued), failed.into()] {
            let mut draft = Draft::new(running(), Guard::Outside, LastCheckpoint::default());
            draft.push(&SystemIds, started("a")).unwrap();
            draft.push(&SystemIds, decides).unwrap();
            draft.release();
            assert_eq!(draft.rebase(running()), Rebased::Cut);
            let left = unit(&draft);
            assert_eq!(
                (left.events.len(), draft.state().status, left.lease),
                (1, JobStatus::Running, LeaseChange::Keep)
            );
        }
    }

    /// A run that met a signal goes on and holds the job: only what blocked it is decided anew.
    #[test]
    fn a_draft_that_must_not_block_keeps_what_comes_before_and_the_lease() {
        let mut draft = Draft::new(running(), Guard::Outside, LastCheckpoint::default());
        draft.push(&SystemIds, started("a")).unwrap();
        draft.push(&SystemIds, waiting("a")).unwrap();
        draft.push(&SystemIds, TimerSet { after_us: 5, timer: TimerId::Wait("a".into()) }).unwrap();
        draft.release();
        draft.expect_signals(expected());
        draft.rebase_unblocked(running());
        let left = unit(&draft);
        assert_eq!((left.events.len(), draft.state().status), (1, JobStatus::Running));
        assert_eq!((left.lease, left.expected_signals.len(), left.timers), (LeaseChange::Keep, 0, Vec::new()));
    }

    /// What becomes of a unit that the store refuses as soon as it looks at it, behind so many sends and looks that
    /// are lost.
    async fn outcome(sends: u32, looks: u32) -> WriteError {
        let lost = |count: u32, fault| (0..count).map(move |_| Some(fault));
        let plan = FaultPlan::none()
            .script(Op::Commit(Purpose::Record), lost(sends, Fault::Lost))
            .script(Op::ResolveUnknown, lost(looks, Fault::Before));
        let store = FaultyStore::new(Arc::new(MemoryStore::new(Arc::new(ManualClock::default()))), plan);
        let draft = Draft::new(running(), Guard::Outside, LastCheckpoint::default());
        write(&store, || unit(&draft)).await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_unit_is_sent_twelve_times_and_its_outcome_asked_for_as_often() {
        for sends in [0, 1, 11] {
            assert!(matches!(outcome(sends, 0).await, WriteError::Refused(Refusal::UnknownJob)), "{sends}");
        }
        assert!(matches!(outcome(12, 0).await, WriteError::Failed(_)));
        // With one answer the next send begins, which has as many looks.
        assert!(matches!(outcome(1, 11).await, WriteError::Refused(Refusal::UnknownJob)));
        assert!(matches!(outcome(1, 12).await, WriteError::Unknown(_)));
    }

    /// A store that was away for a moment is asked again in a moment, and one that stays away every second.
    #[tokio::test(start_paused = true)]
    async fn an_unknown_outcome_is_asked_for_soon_and_then_less_and_less_often() {
        for (times, waited) in [(0, 0), (1, 10), (2, 30), (3, 70), (7, 1_270), (8, 2_270), (9, 3_270)] {
            let began = tokio::time::Instant::now();
            outcome(times, 0).await;
            let sends = began.elapsed().as_millis();
            assert!((waited..waited + 10).contains(&sends), "{times} sends: {sends} ms");
            let began = tokio::time::Instant::now();
            outcome(1, times).await;
            // The send that is found to be lost waits once more.
            let (looks, waited) = (began.elapsed().as_millis(), waited + 10);
            assert!((waited..waited + 10).contains(&looks), "{times} looks: {looks} ms");
        }
    }

    /// What is settled beside the facts is settled with them on the newer state too.
    #[test]
    fn a_draft_keeps_what_it_also_settles_when_it_is_laid_onto_a_newer_state() {
        let job = JobId::from_u128(1);
        let mut draft = Draft::new(JobState::new(job), Guard::Outside, LastCheckpoint::default());
        let (key, permit_id) = (IdempotencyKey::from_u128(2), PermitId::from_u128(3));
        let settle = LedgerWrite::See { key, permit_id };
        draft.also_settle(settle.clone());
        assert_eq!(draft.rebase(JobState::new(job)), Rebased::Whole);
        assert_eq!(draft.unit(Purpose::Record, EventId::from_u128(4)).ledger, [settle]);
    }

    #[test]
    fn a_draft_still_expects_its_kept_signals_when_it_is_laid_onto_a_newer_state() {
        let job = JobId::from_u128(1);
        let mut draft = Draft::new(JobState::new(job), Guard::Outside, LastCheckpoint::default());
        let expected = Some(ExpectedSignals { count: 1, key: "k".to_owned() });
        draft.expect_signals(expected.clone());
        assert_eq!(draft.rebase(JobState::new(job)), Rebased::Whole);
        assert_eq!(draft.unit(Purpose::Block, EventId::from_u128(4)).expected_signals.first(), expected.as_ref());
    }
}
