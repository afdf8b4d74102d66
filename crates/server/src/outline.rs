//! Jobs without what is large in them: their state as the events tell it, with outputs, inputs and payloads left out.
//!
//! A question about a job wants its steps, times and waits, and not the megabytes that went through them. An outline
//! is folded page by page, so that a history is never in memory as a whole, and it is kept: the next question reads
//! only what was written since. It is a fold like any other and can be thrown away at any time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aetheris_api::Raw;
use aetheris_core::event::{Answer, Event, Recorded, WaitEnd};
use aetheris_core::id::{JobId, NodeId};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::state::{Ending, JobState, Output};
use aetheris_core::step::StepStatus;
use aetheris_runtime::OpError;
use aetheris_store::{EventRow, JobRow, Store};
use tokio::sync::OwnedMutexGuard;

use crate::error::Failure;
use crate::reading::{AnswerSlot, aside};
use crate::state::Shared;

/// Payloads up to this stay where they are.
const SMALL: usize = 512;
/// What an outline takes beside what is counted.
const BASE: usize = 1024;

/// A job in outline.
pub(crate) struct Outline {
    bytes: usize,
    /// Where the values are that were left out.
    left_out: BTreeMap<NodeId, u64>,
    message: Raw,
    /// The job's answer, where it has ended with one and was asked for it.
    result: Option<Raw>,
    state: JobState,
}

/// A job's row, and its outline at the row's place.
pub(crate) struct Outlined {
    outline: OwnedMutexGuard<Outline>,
    pub(crate) row: JobRow,
}

impl Outline {
    fn new(job: JobId) -> Self {
        let state = JobState::new(job);
        Self { bytes: BASE, left_out: BTreeMap::new(), message: Raw::default(), result: None, state }
    }

    fn take(&mut self, row: &EventRow) -> Result<(), OpError> {
        let unreadable = |why: String| OpError::Corrupt(format!("event {}: {why}", row.seq));
        let recorded = row.decode().map_err(|error| unreadable(error.to_string()))?;
        self.state.replay(&recorded).map_err(|illegal| unreadable(illegal.to_string()))?;
        self.bytes += SMALL.min(row.payload.len()) + 64;
        if self.state.ending.is_none() {
            self.result = None;
        }
        self.leave_out(&recorded, row.payload.len() > SMALL);
        Ok(())
    }

    /// Takes out of the state what the event has brought and an outline has not.
    fn leave_out(&mut self, recorded: &Recorded, large: bool) {
        if let Event::JobCreated(e) = &recorded.event {
            self.message = Raw::new(&e.message);
            self.bytes += self.message.text().len();
        } else if let Event::JobCompleted(e) = &recorded.event {
            if let Answer::Value(value) = &e.answer {
                self.keep_result(Raw::new(value));
            }
        } else if let Event::NodeFinished(e) = &recorded.event
            && e.output.is_some()
        {
            self.left_out.remove(&e.node);
        } else if !large {
            return;
        }
        if let Some(node) = forget_values(&mut self.state, &recorded.event, large) {
            self.left_out.insert(node, recorded.seq);
        }
    }

    fn keep_result(&mut self, result: Raw) {
        self.bytes += result.text().len();
        self.result = Some(result);
    }

    /// Folds what a page has up to `last`.
    fn take_page(&mut self, rows: &[EventRow], last: u64) -> Result<(), OpError> {
        rows.iter().filter(|row| row.seq <= last).try_for_each(|row| self.take(row))
    }
}

impl Outlined {
    pub(crate) fn message(&self) -> &Raw {
        &self.outline.message
    }

    pub(crate) fn state(&self) -> &JobState {
        &self.outline.state
    }

    /// The job's answer; `null` until it is there.
    ///
    /// # Errors
    /// It is in the store and cannot be read.
    pub(crate) async fn result(&mut self, store: &dyn Store) -> Result<Raw, Failure> {
        if let Some(kept) = &self.outline.result {
            return Ok(kept.clone());
        }
        let Some(Ending::Answered(Answer::Node(node))) = &self.outline.state.ending else {
            return Ok(Raw::default());
        };
        let result = Raw::new(&self.output(store, node).await?);
        self.outline.keep_result(result.clone());
        Ok(result)
    }

    /// A node's output, read where it stands.
    async fn output(&self, store: &dyn Store, node: &NodeId) -> Result<Json, Failure> {
        let Some(step) = self.outline.state.steps.get(node).filter(|step| step.status == StepStatus::Completed) else {
            return Ok(Json::null());
        };
        match (&step.output, self.outline.left_out.get(node)) {
            (Some(Output::Effect(key)), _) => {
                let effect = store.effect(self.row.id, *key).await?;
                Ok(effect.map_or_else(Json::null, |effect| effect.result))
            }
            (Some(Output::Inline(_)), Some(place)) => {
                let found = store.events(self.row.id, place.saturating_sub(1), 1).await?.pop();
                let recorded = found.map(|row| row.decode()).transpose();
                let recorded = recorded.map_err(|error| OpError::Corrupt(format!("event {place}: {error}")))?;
                Ok(recorded.and_then(|recorded| value(recorded.event)).unwrap_or_else(Json::null))
            }
            (Some(Output::Inline(value)), None) => Ok(value.clone()),
            (None, _) => Ok(Json::null()),
        }
    }
}

/// Takes the values out of a state that the event just folded has brought: message and answer always, a node's only
/// where they are `large`. The node whose value it was.
pub(crate) fn forget_values(state: &mut JobState, event: &Event, large: bool) -> Option<NodeId> {
    let none = Json::null();
    match event {
        Event::JobCreated(_) => state.message = none,
        Event::JobCompleted(e) => {
            if let Answer::Value(_) = e.answer {
                state.ending = Some(Ending::Answered(Answer::Value(none)));
            }
        }
        Event::ToolInvocationStarted(e) if large => {
            state.steps.get_mut(&e.node)?.invocation.as_mut()?.input = none;
        }
        Event::WaitCompleted(e) if large => {
            if let Some(WaitEnd::Signal { payload, .. }) = &mut state.steps.get_mut(&e.node)?.wait_end {
                *payload = none;
                return Some(e.node.clone());
            }
        }
        Event::NodeFinished(e) if large && e.output.is_some() => {
            if let Some(Output::Inline(value)) = &mut state.steps.get_mut(&e.node)?.output {
                *value = none;
                return Some(e.node.clone());
            }
        }
        // Small, or without a value that stays in the state.
        Event::CommandCommitted(_)
        | Event::InDoubtResolved(_)
        | Event::JobCancelRequested(_)
        | Event::JobCancelled(_)
        | Event::JobClaimed(_)
        | Event::JobFailed(_)
        | Event::JobPauseRequested(_)
        | Event::JobPaused(_)
        | Event::JobRequeued(_)
        | Event::JobResumed(_)
        | Event::JobWaiting(_)
        | Event::NodeFinished(_)
        | Event::NodeRetryScheduled(_)
        | Event::NodeSkipped(_)
        | Event::NodeStarted(_)
        | Event::PlanGenerated(_)
        | Event::SignalRefused(_)
        | Event::StepInDoubt(_)
        | Event::TimerFired(_)
        | Event::TimerSet(_)
        | Event::ToolInvocationFinished(_)
        | Event::ToolInvocationStarted(_)
        | Event::WaitCompleted(_) => {}
    }
    None
}

/// The value that an event has brought to its node.
fn value(event: Event) -> Option<Json> {
    if let Event::NodeFinished(e) = event {
        return e.output;
    }
    if let Event::WaitCompleted(e) = event
        && let WaitEnd::Signal { payload, .. } = e.by
    {
        return Some(payload);
    }
    None
}

/// Reads a job in outline, with a place to answer about it. Whoever asks for the same job waits for it and finds what
/// was read.
///
/// # Errors
/// There is no such job, it cannot be read, or there was no place.
pub(crate) async fn read(app: &Shared, job: JobId) -> Result<(Outlined, AnswerSlot), Failure> {
    let missing = || Failure::from(OpError::JobNotFound(job));
    app.store().job(job).await?.ok_or_else(missing)?;
    let mut outline = app.outlines.of(job).lock_owned().await;
    let slot = AnswerSlot::begin(app).await?;
    let row = app.store().job(job).await?.ok_or_else(missing)?;
    if outline.state.seq > row.seq {
        *outline = Outline::new(job);
    }
    while outline.state.seq < row.seq {
        let rows = app.store().events(job, outline.state.seq, limits::PAGE_EVENTS_MAX).await?;
        if rows.is_empty() {
            return Err(OpError::Corrupt(format!("event {} is missing", outline.state.seq + 1)).into());
        }
        let (last, quick) =
            (row.seq, rows.iter().map(|row| row.payload.len()).sum::<usize>() <= limits::QUICK_BYTES_MAX);
        let fold = move || {
            let folded = outline.take_page(&rows, last);
            if folded.is_err() {
                // What was half folded is not to be used.
                *outline = Outline::new(job);
            }
            (outline, folded)
        };
        let (back, folded) = if quick { fold() } else { aside(fold).await? };
        outline = back;
        folded?;
    }
    app.outlines.weigh(job, outline.bytes);
    Ok((Outlined { outline, row }, slot))
}

/// The outlines that are kept: those that were asked for last.
#[derive(Default)]
pub(crate) struct Outlines(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    asked: u64,
    bytes: usize,
    jobs: BTreeMap<JobId, Entry>,
}

struct Entry {
    bytes: usize,
    last_asked: u64,
    outline: Arc<tokio::sync::Mutex<Outline>>,
}

impl Outlines {
    fn of(&self, job: JobId) -> Arc<tokio::sync::Mutex<Outline>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.asked += 1;
        let asked = kept.asked;
        let fresh = || Entry { bytes: 0, last_asked: 0, outline: Arc::new(tokio::sync::Mutex::new(Outline::new(job))) };
        let entry = kept.jobs.entry(job).or_insert_with(fresh);
        entry.last_asked = asked;
        Arc::clone(&entry.outline)
    }

    /// Takes note of what an outline weighs, and lets go of others where all are too heavy.
    fn weigh(&self, job: JobId, bytes: usize) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = kept.jobs.get_mut(&job) {
            let before = std::mem::replace(&mut entry.bytes, bytes);
            kept.bytes = kept.bytes.saturating_sub(before).saturating_add(bytes);
        }
        while kept.bytes > limits::OUTLINES_BYTES_MAX {
            let oldest = kept.jobs.iter().min_by_key(|(_, entry)| entry.last_asked).map(|(job, _)| *job);
            let Some(gone) = oldest.and_then(|job| kept.jobs.remove(&job)) else { return };
            kept.bytes = kept.bytes.saturating_sub(gone.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_the_last_asked_for_stay() {
        let (outlines, each) = (Outlines::default(), limits::OUTLINES_BYTES_MAX / 4);
        for job in 0..8 {
            outlines.of(JobId::from_u128(job));
            outlines.of(JobId::from_u128(0));
            outlines.weigh(JobId::from_u128(job), each);
        }
        let kept = outlines.0.lock().unwrap();
        let jobs: Vec<JobId> = kept.jobs.keys().copied().collect();
        assert_eq!(jobs, [0, 5, 6, 7].map(JobId::from_u128));
        assert_eq!(kept.bytes, 4 * each);
    }
}
