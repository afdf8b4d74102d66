//! Replay: the fold again from the first event, compared with what is live. Reported, never repaired.
//!
//! A job may be many megabytes: its events are read page by page, and only the state outlives a page. A job may go on
//! meanwhile. All that is compared is of one moment: [`Books`] are read again until nothing was written in between, and
//! only events that were there then count.

use std::collections::BTreeMap;

use aetheris_core::event::{DecodeError, Event, Recorded};
use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::state::{Illegal, JobState};
use aetheris_store::{
    Checkpoint, EffectRow, ErrorKind, EventRow, History, JobRow, Scope, Store, StoreError, TimerRow, differences,
};

use crate::Runtime;
use crate::error::OpError;
use crate::load;

/// The result of a replay.
#[derive(Debug, Clone)]
pub struct Replay {
    /// What differs, in words; empty where all is equal.
    pub differences: Vec<String>,
    /// How many events were folded.
    pub events: u64,
    /// Hash of the state that the job goes on from: its newest checkpoint and what follows.
    pub live_state_hash: Hash,
    /// The state as folded from the first event.
    pub state: JobState,
    /// Its hash.
    pub state_hash: Hash,
}

/// How a state that was folded again compares with what is live.
#[derive(Debug)]
pub struct Compared {
    /// As [`Replay::differences`].
    pub differences: Vec<String>,
    /// As [`Replay::live_state_hash`].
    pub live_state_hash: Hash,
    /// As [`Replay::state_hash`].
    pub state_hash: Hash,
}

/// What a store has of a job at one moment, without its events and without what is large.
#[derive(Debug)]
pub struct Books {
    /// The hashes of what its calls brought, by permit.
    pub effects: BTreeMap<(IdempotencyKey, u32), Hash>,
    /// The place of its last event.
    last: u64,
    /// Its ledger rows.
    pub ledger: Vec<LedgerRow>,
    live: Live,
    /// Its row.
    pub row: JobRow,
    timers: Vec<TimerRow>,
}

/// A job's events up to a place, folded again.
#[derive(Debug)]
pub struct Refold {
    /// The results that they record.
    pub results: Vec<RecordedResult>,
    job: JobId,
    last: u64,
    live: Live,
    /// What they fold to, or the first one that does not.
    pub state: Result<JobState, Unfolded>,
}

/// That the result of a step's call was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResult {
    /// The step.
    pub node: StepPath,
    /// The hash of the result.
    pub result_hash: Hash,
    /// The place of the event.
    pub seq: u64,
}

/// An event that does not fold.
#[derive(Debug)]
pub enum Unfolded {
    /// It does not follow from those before it.
    Illegal {
        /// The place of the event.
        seq: u64,
        /// Why it does not.
        why: Illegal,
    },
    /// It cannot be read.
    Unreadable {
        /// The place of the event.
        seq: u64,
        /// Why it cannot be.
        why: DecodeError,
    },
}

/// The state that the job goes on from, while its events are folded.
#[derive(Debug)]
enum Live {
    /// It begins with a checkpoint that the fold has not reached.
    Ahead(Mark),
    /// It is another than the one folded from the first event.
    Apart(Box<JobState>),
    /// It cannot be read or folded.
    Broken(String),
    /// It is the one folded from the first event.
    Same,
    /// It was not read: there is nothing to compare with.
    Unread,
}

/// A checkpoint, and the hash of the state that is read from it.
#[derive(Debug)]
struct Mark {
    bytes: Vec<u8>,
    hash: Hash,
    seq: u64,
}

impl Runtime {
    /// Folds a job from its first event and compares the result with the live state, the row and the
    /// timers. No outside call, no write.
    ///
    /// # Errors
    /// [`OpError`]: no such job, or its history cannot be read or folded.
    pub async fn replay(&self, job: JobId) -> Result<Replay, OpError> {
        let store = self.store.as_ref();
        let mut books = Books::read(store, &self.scope, job).await?;
        let mut refold = Refold::of(&mut books);
        refold.read(store, |_| ()).await?;
        let Compared { differences, live_state_hash, state_hash } = self.compared(&books, &refold).await?;
        let state = refold.state.map_err(|unfolded| unfolded.error())?;
        Ok(Replay { differences, events: state.seq, live_state_hash, state, state_hash })
    }

    /// Compares what was folded again with the live state, the row and the timers.
    ///
    /// # Errors
    /// [`OpError`]: one of the two states cannot be read or folded.
    pub async fn compared(&self, books: &Books, refold: &Refold) -> Result<Compared, OpError> {
        let live = match &refold.live {
            Live::Ahead(mark) => Some(mark.hash),
            Live::Apart(live) => Some(live.hash()),
            Live::Broken(why) => return Err(OpError::Corrupt(why.clone())),
            Live::Unread => return Err(OpError::Corrupt("its live state was not read".to_owned())),
            Live::Same => None,
        };
        let state = refold.state.as_ref().map_err(Unfolded::error)?;
        let state_hash = state.hash();
        let live_state_hash = live.unwrap_or(state_hash);
        let held = self.holds_alone(&books.row, state).await?;
        let differs = differences(state, &books.row, held, &books.timers);
        let mut differences: Vec<String> = differs.iter().map(|differs| format!("the row's {differs}")).collect();
        if state_hash != live_state_hash {
            differences.push(
                "the state from the newest checkpoint differs from the one folded from the first event".to_owned(),
            );
        }
        Ok(Compared { differences, live_state_hash, state_hash })
    }
}

impl Books {
    /// Reads them.
    ///
    /// # Errors
    /// [`OpError`]: no such job, it keeps changing, or what is stored cannot be read.
    pub async fn read(store: &dyn Store, scope: &Scope, job: JobId) -> Result<Self, OpError> {
        for _ in 0..limits::AUDIT_LOOKS_MAX {
            let row = store.job(scope.clone(), job).await?.ok_or(OpError::JobNotFound(job))?;
            let timers = store.timers(scope.clone(), job).await?;
            let history = load::history(store, scope, job).await?;
            // The timers are those of this moment: nothing was written between the row and the history.
            if history.row.seq == row.seq {
                return Ok(Self::of(history, timers));
            }
        }
        Err(OpError::KeepsChanging(job))
    }

    fn of(history: History, timers: Vec<TimerRow>) -> Self {
        let History { checkpoint, effects, events, kept, ledger, row } = history;
        let newest = events.last().map(|event| event.seq);
        let last = newest.or(checkpoint.as_ref().map(|checkpoint| checkpoint.seq)).unwrap_or(0);
        drop((events, kept));
        let hashed = |effect: EffectRow| ((effect.key, effect.permit), effect.result.hash());
        let effects = effects.into_iter().map(hashed).collect();
        Self { effects, last, ledger, live: checkpoint.map_or(Live::Same, Live::of), row, timers }
    }
}

impl Refold {
    /// Of the events that were there when the books were read.
    #[must_use]
    pub fn of(books: &mut Books) -> Self {
        let live = std::mem::replace(&mut books.live, Live::Unread);
        Self { last: books.last, live, ..Self::until(books.row.id, books.last) }
    }

    /// Of the events up to a place.
    #[must_use]
    pub fn until(job: JobId, last: u64) -> Self {
        Self { results: Vec::new(), job, last, live: Live::Unread, state: Ok(JobState::new(job)) }
    }

    /// Reads the events page by page, and shows each as it is stored. Whoever has the books was let in to the job.
    ///
    /// # Errors
    /// The store cannot be asked. What does not fold is no error here.
    pub async fn read(&mut self, store: &dyn Store, mut show: impl FnMut(&EventRow)) -> Result<(), OpError> {
        let mut seq = 0;
        while seq < self.last {
            let rows = store.events(Scope::System, self.job, seq, limits::VERIFY_EVENTS_MAX).await?;
            let Some(newest) = rows.last() else { break };
            seq = newest.seq;
            // What was written later is no part of the moment that is compared.
            let last = self.last;
            for row in rows.iter().filter(|row| row.seq <= last) {
                show(row);
                self.take(row);
            }
        }
        Ok(())
    }

    fn take(&mut self, row: &EventRow) {
        let (seq, Ok(state)) = (row.seq, &mut self.state) else { return };
        let recorded = match row.decode() {
            Ok(recorded) => recorded,
            Err(why) => {
                self.state = Err(Unfolded::Unreadable { seq, why });
                return;
            }
        };
        if let Err(why) = state.replay(&recorded) {
            self.state = Err(Unfolded::Illegal { seq, why });
            return;
        }
        if let Live::Ahead(_) | Live::Apart(_) = &self.live {
            self.live = std::mem::replace(&mut self.live, Live::Unread).after(state, &recorded);
        }
        if let Event::CommandCommitted(e) = recorded.event {
            self.results.push(RecordedResult { node: e.node, result_hash: e.result_hash, seq });
        }
    }
}

impl Unfolded {
    /// As an operation's error.
    #[must_use]
    pub fn error(&self) -> OpError {
        match self {
            Self::Illegal { seq, why } => OpError::Corrupt(format!("event {seq}: {why}")),
            Self::Unreadable { seq, why } => {
                StoreError::new(ErrorKind::Corrupt, "history", format!("event {seq}: {why}")).into()
            }
        }
    }
}

impl Live {
    /// From a checkpoint. Its state is read for its hash, and read again only if the fold comes to another one.
    fn of(checkpoint: Checkpoint) -> Self {
        match state_of(&checkpoint.state) {
            Ok(state) => Self::Ahead(Mark { hash: state.hash(), bytes: checkpoint.state, seq: checkpoint.seq }),
            Err(why) => Self::Broken(why),
        }
    }

    /// After an event that has led the fold to `state`. Equal states go on equally.
    fn after(self, state: &JobState, recorded: &Recorded) -> Self {
        match self {
            Self::Ahead(mark) if mark.seq == recorded.seq => {
                if state.hash() == mark.hash {
                    return Self::Same;
                }
                state_of(&mark.bytes).map_or_else(Self::Broken, |live| Self::Apart(Box::new(live)))
            }
            Self::Apart(mut live) => match live.replay(recorded) {
                Ok(()) => Self::Apart(live),
                Err(why) => Self::Broken(format!("event {}: {why}", recorded.seq)),
            },
            Self::Ahead(_) | Self::Broken(_) | Self::Same | Self::Unread => self,
        }
    }
}

fn state_of(checkpoint: &[u8]) -> Result<JobState, String> {
    serde_json::from_slice(checkpoint).map_err(|e| format!("its checkpoint cannot be read: {e}"))
}

#[cfg(test)]
mod tests {
    use aetheris_core::event::{JobCancelled, JobResumed};
    use aetheris_core::id::EventId;
    use aetheris_core::lease::Fence;
    use aetheris_core::time::Timestamp;

    use super::*;
    use crate::load::tests::row;

    /// A row that is behind its events is wrong: what is there beyond it counts.
    #[test]
    fn the_last_event_is_the_one_that_was_there_and_not_the_one_that_the_row_names() {
        let state = JobState::new(JobId::from_u128(1));
        let recorded = |seq, event| {
            let (fence, at, hash) = (Fence::default(), Timestamp::default(), Hash::ZERO);
            Recorded { seq, id: EventId::from_u128(1), fence, at, hash, event }
        };
        let events = vec![recorded(6, JobResumed {}.into()), recorded(7, JobCancelled {}.into())];
        let checkpoint = Some(Checkpoint::of(5, &state));
        let (none, row) = (Vec::new, JobRow { seq: 6, ..row(&state) });
        for (checkpoint, events, last) in
            [(checkpoint.clone(), events.clone(), 7), (None, events, 7), (checkpoint, none(), 5), (None, none(), 0)]
        {
            let (effects, kept, ledger) = (Vec::new(), Vec::new(), Vec::new());
            let history = History { checkpoint, effects, events, kept, ledger, row: row.clone() };
            assert_eq!(Refold::of(&mut Books::of(history, Vec::new())).last, last);
        }
    }
}
