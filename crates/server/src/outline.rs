//! Jobs without what is large in them: their state as the events tell it, with outputs, inputs and payloads left out.
//!
//! A question about a job wants its steps, times and waits, and not the megabytes that went through them. An outline
//! is folded page by page, so that a history is never in memory as a whole, and it is kept: the next question reads
//! only what was written since. It is a fold like any other and can be thrown away at any time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_api::Raw;
use aetheris_core::event::{Answer, ChildOutcome, Event, Recorded, WaitEnd};
use aetheris_core::id::{JobId, NodeId};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::state::{Ending, JobState, Output};
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::OpError;
use aetheris_store::kept::Kept;
use aetheris_store::{EventRow, JobRow, Scope, Store};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::answer::text_bytes;
use crate::error::Failure;
use crate::reading::{AnswerSlot, aside};
use crate::state::Shared;
use crate::step_answers::StepAnswers;

/// Payloads up to this stay where they are.
const SMALL: usize = 512;
/// What an outline takes beside what is counted.
const BASE: usize = 1024;
/// What an event leaves in a state beside the bytes of its payload: places in maps, times, hashes.
const BESIDE: usize = 256;

/// A job in outline.
pub(crate) struct Outline {
    answers: StepAnswers,
    bytes: usize,
    /// Where the values are that were left out.
    left_out: BTreeMap<StepPath, u64>,
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
        let (answers, left_out) = (StepAnswers::default(), BTreeMap::new());
        Self { answers, bytes: BASE, left_out, message: Raw::default(), result: None, state }
    }

    fn take(&mut self, row: &EventRow) -> Result<(), OpError> {
        let unreadable = |why: String| OpError::Corrupt(format!("event {}: {why}", row.seq));
        let recorded = row.decode().map_err(|error| unreadable(error.to_string()))?;
        self.state.replay(&recorded).map_err(|illegal| unreadable(illegal.to_string()))?;
        let large = row.payload.len() > SMALL;
        self.bytes += stays(&recorded.event, row.payload.len(), large) + BESIDE;
        if self.state.ending.is_none() {
            self.result = None;
        }
        self.answers.note(&self.state, &recorded);
        self.leave_out(&recorded, large);
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
    /// What steps have been told with which they have not gone on.
    pub(crate) fn answers(&self) -> &StepAnswers {
        &self.outline.answers
    }

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
        if self.outline.state.node_status(node) != StepStatus::Completed {
            return Ok(Json::null());
        }
        let scope = Scope::Tenant(self.row.tenant.clone());
        // What its last round gave.
        let path = self.outline.state.newest_round(&StepPath::from(node));
        let output = self.outline.state.steps.get(&path).and_then(|step| step.output.as_ref());
        match (output, self.outline.left_out.get(&path)) {
            (Some(Output::Effect(key)), _) => {
                let effect = store.effect(scope, self.row.id, *key).await?;
                Ok(effect.map_or_else(Json::null, |effect| effect.result))
            }
            (Some(Output::Inline(_)), Some(place)) => {
                let found = store.events(scope, self.row.id, place.saturating_sub(1), 1).await?.pop();
                let recorded = found.map(|row| row.decode()).transpose();
                let recorded = recorded.map_err(|error| OpError::Corrupt(format!("event {place}: {error}")))?;
                Ok(recorded.and_then(|recorded| value(recorded.event)).unwrap_or_else(Json::null))
            }
            (Some(Output::Inline(value)), None) => Ok(value.clone()),
            // An answer that is what a map came to is recorded as a value.
            (Some(Output::Items) | None, _) => Ok(Json::null()),
        }
    }
}

/// How much of an event stays, at most: the value that is left out does not, and one that stays takes more than its text.
fn stays(event: &Event, payload: usize, large: bool) -> usize {
    let always = matches!(event, Event::JobCreated(_) | Event::JobCompleted(_));
    match carried(event) {
        Some(value) if large || always => payload.saturating_sub(text_bytes(value.value())),
        Some(value) => payload + value.memory(),
        None => payload,
    }
}

/// The value of an event that [`forget_values`] takes away where it is large.
fn carried(event: &Event) -> Option<&Json> {
    if let Event::JobCreated(e) = event {
        Some(&e.message)
    } else if let Event::JobCompleted(e) = event
        && let Answer::Value(value) = &e.answer
    {
        Some(value)
    } else if let Event::ToolInvocationStarted(e) = event {
        e.input.as_ref()
    } else if let Event::WaitCompleted(e) = event
        && let WaitEnd::Signal { payload, .. } = &e.by
    {
        Some(payload)
    } else if let Event::ChildEnded(e) = event
        && let ChildOutcome::Completed { result } = &e.outcome
    {
        Some(result)
    } else if let Event::NodeFinished(e) = event {
        e.output.as_ref()
    } else {
        None
    }
}

/// Takes the values out of a state that the event just folded has brought: message and answer always, a node's only
/// where they are `large`. The node whose value it was.
pub(crate) fn forget_values(state: &mut JobState, event: &Event, large: bool) -> Option<StepPath> {
    let none = Json::null();
    match event {
        Event::JobCreated(_) => state.message = none,
        Event::JobCompleted(e) => {
            if let Answer::Value(_) = e.answer {
                state.ending = Some(Ending::Answered(Answer::Value(none)));
            }
        }
        Event::ToolInvocationStarted(e) if large => {
            state.steps.get_mut(&e.node)?.invocation.as_deref_mut()?.input = none;
        }
        Event::WaitCompleted(e) if large => {
            if let Some(WaitEnd::Signal { payload, .. }) = state.steps.get_mut(&e.node)?.wait_end.as_deref_mut() {
                *payload = none;
                return Some(e.node.clone());
            }
        }
        Event::ChildEnded(e) if large => {
            if let Some(ChildOutcome::Completed { result }) =
                &mut state.steps.get_mut(&e.node)?.child.as_deref_mut()?.end
            {
                *result = none;
                return Some(e.node.clone());
            }
        }
        Event::NodeFinished(e) if large && e.output.is_some() => {
            for call in state.steps.get_mut(&e.node)?.turn.iter_mut().flat_map(|turn| &mut turn.calls) {
                call.arguments = limits::cut(std::mem::take(&mut call.arguments), SMALL);
                call.provider = None;
            }
            if let Some(Output::Inline(value)) = &mut state.steps.get_mut(&e.node)?.output {
                *value = none;
                return Some(e.node.clone());
            }
        }
        Event::NodeRefining(e) if large => {
            if let Some(feedback) = &mut state.steps.get_mut(&e.node.in_round(e.round))?.feedback {
                *feedback = limits::cut(std::mem::take(feedback), SMALL);
            }
        }
        // Small, or without a value that stays in the state.
        Event::ChildEnded(_)
        | Event::ChildStarted(_)
        | Event::CommandCommitted(_)
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
        | Event::NodeRefining(_)
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
        | Event::ValueRecorded(_)
        | Event::WaitCompleted(_) => {}
    }
    None
}

/// The value that an event has brought to its node.
fn value(event: Event) -> Option<Json> {
    if let Event::NodeFinished(e) = event {
        return e.output;
    }
    if let Event::WaitCompleted(e) = &event
        && let WaitEnd::Signal { payload, .. } = &e.by
    {
        return Some(payload.clone());
    }
    if let Event::ChildEnded(e) = event
        && let ChildOutcome::Completed { result } = e.outcome
    {
        return Some(result);
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
    app.store().job(app.scope(), job).await?.ok_or_else(missing)?;
    let (mut outline, slot) = taken(app, job).await?;
    let row = app.store().job(app.scope(), job).await?.ok_or_else(missing)?;
    if outline.state.seq > row.seq {
        *outline = Outline::new(job);
    }
    while outline.state.seq < row.seq {
        let rows = app.store().events(app.scope(), job, outline.state.seq, limits::PAGE_EVENTS_MAX).await?;
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
        app.outlines.kept().weigh(&job, outline.bytes);
        folded?;
    }
    Ok((Outlined { outline, row }, slot))
}

/// A job's outline, and a place to read it. Nobody keeps the outline from others while waiting for a place, nor a place
/// while waiting for the outline: however many ask for one job, each waits for a place once.
async fn taken(app: &Shared, job: JobId) -> Result<(OwnedMutexGuard<Outline>, AnswerSlot), Failure> {
    let until = Instant::now() + limits::ANSWER_PATIENCE.to_std();
    loop {
        let outline = app.outlines.of(job).lock_owned().await;
        if let Some(slot) = AnswerSlot::free(app) {
            return Ok((outline, slot));
        }
        drop(outline);
        let left = Span::from_std(until.saturating_duration_since(Instant::now()));
        let slot = AnswerSlot::within(app, left).await?;
        if let Ok(outline) = app.outlines.of(job).try_lock_owned() {
            return Ok((outline, slot));
        }
    }
}

/// The outlines that are kept: those that were asked for last.
pub(crate) struct Outlines(Mutex<Kept<JobId, SharedOutline>>);

/// One who reads it at a time.
type SharedOutline = Arc<tokio::sync::Mutex<Outline>>;

impl Default for Outlines {
    fn default() -> Self {
        Self(Mutex::new(Kept::with_room(limits::OUTLINES_BYTES_MAX)))
    }
}

impl Outlines {
    fn of(&self, job: JobId) -> SharedOutline {
        let mut kept = self.kept();
        if let Some(outline) = kept.get(&job) {
            return outline;
        }
        let fresh = Arc::new(tokio::sync::Mutex::new(Outline::new(job)));
        kept.keep(job, Arc::clone(&fresh), BASE);
        fresh
    }

    fn kept(&self) -> MutexGuard<'_, Kept<JobId, SharedOutline>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::event::{
        EncodedEvent, Failure, InDoubtResolved, JobClaimed, JobCreated, JobFailed, JobWaiting, NodeFinished,
        NodeRetryScheduled, NodeStarted, PlanGenerated, Resolver, StepInDoubt, StepResult, ToolInvocationStarted,
        WaitCompleted,
    };
    use aetheris_core::hash::Hash;
    use aetheris_core::id::{
        AgentName, AttemptId, EventId, IdempotencyKey, InstanceId, PermitId, SignalId, TenantId, ToolName, WorkerId,
    };
    use aetheris_core::lease::Fence;
    use aetheris_core::plan::{EffectClass, WaitType};
    use aetheris_core::time::Timestamp;

    use super::*;

    /// Also of jobs that nobody can read, or that were asked for and never read.
    #[test]
    fn outlines_are_bounded_from_the_first_question_on() {
        let outlines = Outlines::default();
        let most = limits::OUTLINES_BYTES_MAX / BASE;
        for job in 0..2 * most {
            outlines.of(JobId::from_u128(job as u128));
            assert!(Arc::ptr_eq(&outlines.of(JobId::from_u128(0)), &outlines.of(JobId::from_u128(0))));
        }
        let kept = outlines.kept();
        assert_eq!((kept.iter().len(), kept.taken()), (most, most * BASE));
    }

    fn row(seq: u64, epoch: u32, event: &Event) -> EventRow {
        let encoded = EncodedEvent::new(EventId::from_u128(u128::from(seq)), event);
        EventRow {
            at: Timestamp::from_micros(i64::try_from(seq).unwrap()),
            fence: Fence { epoch, generation: 1 },
            hash: Hash::ZERO,
            id: encoded.id,
            kind: encoded.kind.code(),
            payload: encoded.payload,
            payload_hash: encoded.payload_hash,
            schema_version: encoded.schema_version,
            seq,
        }
    }

    /// Each kind of event that leaves something in a state, with that at its largest.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn an_outline_counts_no_less_than_it_keeps() {
        let long = |bytes: usize| "x".repeat(bytes);
        let much = || Json::new(serde_json::json!(long(limits::PAYLOAD_BYTES_MAX - 2)));
        let (call, wait) = (StepPath::from("call"), StepPath::from("wait"));
        let error = || Failure::new("boom", long(limits::ERROR_MESSAGE_BYTES_MAX));
        let waiting = |node: &StepPath, doubt, key: Option<&str>| JobWaiting {
            correlation_key: key.map(str::to_owned),
            doubt,
            node: node.clone(),
            park: true,
            reason: Some(long(limits::WAIT_REASON_BYTES_MAX)),
            wait_type: WaitType::Human,
        };
        let claim = || JobClaimed {
            attempt_id: AttemptId::from_u128(1),
            instance: InstanceId::from_u128(1),
            worker: WorkerId::from(long(200).as_str()),
        };
        let key = IdempotencyKey::from_u128(1);
        let start = |number| NodeStarted::new(call.clone(), number);
        let labels = (0..32).map(|n| (format!("{n}{}", long(60)), long(200))).collect();
        let correlation = long(limits::CORRELATION_KEY_CHARS_MAX);
        let events: Vec<Event> = vec![
            JobCreated {
                agent: AgentName::from("a"),
                agent_version: long(60),
                execution_version: long(60),
                labels,
                message: much(),
                parent: None,
                planning: None,
                priority: 0,
                run_at: None,
                session: None,
                tenant: TenantId::default(),
            }
            .into(),
            PlanGenerated { plan_hash: Hash::ZERO, plan_version: 1, planner: long(60), planner_version: long(60) }
                .into(),
            claim().into(),
            start(1).into(),
            NodeRetryScheduled { after_us: 1, error: error(), model: None, node: call.clone() }.into(),
            start(2).into(),
            ToolInvocationStarted {
                effect: EffectClass::AtMostOnce,
                input: Some(much()),
                key,
                lifetime_us: 1,
                node: call.clone(),
                permit: 1,
                permit_id: PermitId::from_u128(1),
                tool: ToolName::from("t"),
                tool_version: Some(long(60)),
            }
            .into(),
            StepInDoubt { node: call.clone(), permit: 1, policy: 0, reason: long(limits::ERROR_MESSAGE_BYTES_MAX) }
                .into(),
            waiting(&call, true, None).into(),
            InDoubtResolved {
                by: Resolver::Operator,
                grounds: None,
                node: call.clone(),
                note: Some(long(limits::NOTE_CHARS_MAX)),
                outcome: aetheris_core::event::DoubtOutcome::Happened,
                permit: 1,
                result: Some(much()),
                settle_us: None,
                then: None,
            }
            .into(),
            claim().into(),
            NodeFinished::new(call.clone(), StepResult::SideEffectCommitted).into(),
            NodeStarted::new(wait.clone(), 1).into(),
            waiting(&wait, false, Some(&correlation)).into(),
            WaitCompleted { by: WaitEnd::Signal { payload: much(), signal: SignalId::from_u128(1) }, node: wait }
                .into(),
            claim().into(),
            JobFailed { error: error(), node: Some(call.clone()) }.into(),
        ];
        let mut outline = Outline::new(JobId::from_u128(1));
        let (mut epoch, mut told) = (0, BASE);
        for (seq, event) in (1..).zip(events) {
            epoch += u32::from(matches!(event, Event::JobClaimed(_)));
            let row = row(seq, epoch, &event);
            outline.take(&row).unwrap_or_else(|error| panic!("{seq} {:?}: {error}", event.kind()));
            let state = serde_json::to_vec(&outline.state).unwrap().len();
            let kept = state + outline.message.text().len();
            assert!(outline.bytes >= kept, "{:?}: {} are counted, {kept} are kept", event.kind(), outline.bytes);
            // Nor much more than it was told: the message once more, as it is beside the state.
            told += row.payload.len() + BESIDE;
            assert!(outline.bytes <= told + limits::PAYLOAD_BYTES_MAX, "{:?}: {}", event.kind(), outline.bytes);
            // The message stays beside the state, and what was left out is not counted.
            assert!(state < 64 * 1024, "{:?}: {state}", event.kind());
        }
    }

    /// What a signal has brought is left out, and is not the output of a step that ends with a value of its own.
    #[test]
    fn the_place_of_what_was_left_out_is_the_outputs_own() {
        let node = StepPath::from("ask");
        let large = Json::new(serde_json::json!("x".repeat(2 * SMALL)));
        let mut state = JobState::new(JobId::from_u128(1));
        state.seq = 6;
        state.status = aetheris_core::job::JobStatus::Running;
        state.fence = Fence { epoch: 1, generation: 1 };
        state.plan = Some(aetheris_core::state::PlanRef { hash: aetheris_core::hash::Hash::ZERO, version: 1 });
        let step = state.steps.entry(node.clone()).or_default();
        step.status = StepStatus::Running;
        step.wait_end = Some(Box::new(WaitEnd::Signal { payload: Json::null(), signal: SignalId::from_u128(1) }));
        for (output, place) in
            [(Some(Json::new(serde_json::json!("own"))), None), (None, Some(6)), (Some(large), Some(7))]
        {
            let mut outline = Outline::new(JobId::from_u128(1));
            outline.state = state.clone();
            outline.left_out.insert(node.clone(), 6);
            let ended = NodeFinished { output, ..NodeFinished::new(node.clone(), StepResult::Success) };
            outline.take(&row(7, 1, &ended.into())).unwrap();
            assert_eq!(outline.left_out.values().next().copied(), place);
        }
    }

    /// Only what is large is read again when it is asked for.
    #[test]
    fn a_large_output_is_left_out_of_an_outline_and_a_small_one_stays() {
        let node = StepPath::from("a");
        let finished: Event = NodeFinished {
            output: Some(Json::new(serde_json::json!("done"))),
            ..NodeFinished::new(node.clone(), StepResult::Success)
        }
        .into();
        for large in [false, true] {
            let mut state = JobState::new(JobId::from_u128(1));
            state.steps.entry(node.clone()).or_default().output =
                Some(Output::Inline(Json::new(serde_json::json!("done"))));
            let left_out = forget_values(&mut state, &finished, large);
            assert_eq!(left_out, large.then(|| node.clone()));
            let kept = Json::new(if large { serde_json::Value::Null } else { serde_json::json!("done") });
            assert_eq!(state.steps[&node].output, Some(Output::Inline(kept)));
        }
    }
}
