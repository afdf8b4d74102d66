//! Rows and what they are mapped to.

use std::collections::BTreeMap;

use aetheris_core::event::Failure;
use aetheris_core::hash::Hash;
use aetheris_core::id::{
    AgentName, BootId, EventId, IdempotencyKey, JobId, PermitId, SessionId, SignalId, TenantId, ToolName, WorkerId,
};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Holder};
use aetheris_core::ledger::LedgerRow;
use aetheris_core::path::StepPath;
use aetheris_core::projection::WaitingView;
use aetheris_core::time::{BootMoment, Span, Timestamp};
use aetheris_store::{
    Checkpoint, ChildRow, EffectRow, EventRow, Evidence, ExpiredLease, History, JobRow, KeptHead, KeptSignal, TimerRow,
};
use rusqlite::Row;
use rusqlite::types::{ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

use crate::codes::Code;
use crate::error::Error;

/// Canonical bytes bound as text without being looked at: they are UTF-8 by the way they were made.
pub(crate) struct Text<'a>(pub(crate) &'a [u8]);

impl rusqlite::ToSql for Text<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

fn corrupt(row: &Row<'_>, index: usize, what: &str) -> Error {
    let column = row.as_ref().column_name(index).unwrap_or("?");
    Error::Corrupt(format!("column `{column}` does not hold a {what}"))
}

/// The bytes of a text or blob column.
pub(crate) fn bytes<'r>(row: &'r Row<'_>, index: usize) -> Result<&'r [u8], Error> {
    match row.get_ref(index)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(bytes),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => Err(corrupt(row, index, "text")),
    }
}

/// A column that may be null.
pub(crate) fn maybe<T>(
    row: &Row<'_>,
    index: usize,
    read: impl FnOnce(&Row<'_>, usize) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    match row.get_ref(index)? {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => read(row, index).map(Some),
    }
}

/// An id or hash.
pub(crate) fn id<T>(row: &Row<'_>, index: usize, of: impl FnOnce(&[u8]) -> Option<T>) -> Result<T, Error> {
    of(bytes(row, index)?).ok_or_else(|| corrupt(row, index, "id or hash"))
}

/// An enum's number.
pub(crate) fn code<T: Code>(row: &Row<'_>, index: usize) -> Result<T, Error> {
    T::of(row.get(index)?).ok_or_else(|| corrupt(row, index, T::WHAT))
}

/// An unsigned number.
pub(crate) fn number<T: TryFrom<i64>>(row: &Row<'_>, index: usize) -> Result<T, Error> {
    T::try_from(row.get::<_, i64>(index)?).map_err(|_| corrupt(row, index, "number in its range"))
}

/// A moment.
pub(crate) fn time(row: &Row<'_>, index: usize) -> Result<Timestamp, Error> {
    Ok(Timestamp::from_micros(row.get(index)?))
}

pub(crate) fn text<'r>(row: &'r Row<'_>, index: usize) -> Result<&'r str, Error> {
    std::str::from_utf8(bytes(row, index)?).map_err(|_| corrupt(row, index, "UTF-8 text"))
}

/// JSON of this program's own making.
pub(crate) fn json<T: for<'de> Deserialize<'de>>(what: &str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|e| Error::Corrupt(format!("{what} cannot be read: {e}")))
}

/// The columns generation and epoch.
pub(crate) fn fence(row: &Row<'_>, index: usize) -> Result<Fence, Error> {
    Ok(Fence { generation: number(row, index)?, epoch: number(row, index + 1)? })
}

/// The columns lease_until, attempt, instance and worker.
fn holder(row: &Row<'_>, index: usize) -> Result<Option<Holder>, Error> {
    let Some(lease_until) = maybe(row, index, time)? else {
        return Ok(None);
    };
    Ok(Some(Holder {
        attempt_id: id(row, index + 1, aetheris_core::id::AttemptId::from_slice)?,
        instance: id(row, index + 2, aetheris_core::id::InstanceId::from_slice)?,
        lease_until,
        worker: WorkerId::from(text(row, index + 3)?),
    }))
}

/// What a write has to know of its job.
#[derive(Debug)]
pub(crate) struct HotJob {
    pub(crate) num: i64,
    pub(crate) seq: u64,
    pub(crate) fence: Fence,
    pub(crate) status: JobStatus,
    pub(crate) head: Hash,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) holder: Option<Holder>,
    pub(crate) end_requested: Option<aetheris_core::event::EndCause>,
    pub(crate) plan_hash: Option<Hash>,
    /// Whether it has an error or waits, which most jobs never do.
    pub(crate) has_texts: bool,
    /// Whose turn it is to be claimed depends on the others of the same.
    pub(crate) session: Option<Conversation>,
}

/// Jobs of which one at a time has its turn.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub(crate) agent: AgentName,
    pub(crate) session: SessionId,
    /// The tenant's number.
    pub(crate) tenant: i64,
}

/// A row of `job_hot.sql`.
pub(crate) fn hot_job(row: &Row<'_>) -> Result<HotJob, Error> {
    Ok(HotJob {
        num: row.get(0)?,
        seq: number(row, 1)?,
        fence: fence(row, 2)?,
        status: code(row, 4)?,
        head: id(row, 5, Hash::from_slice)?,
        not_before: maybe(row, 6, time)?,
        holder: holder(row, 7)?,
        end_requested: maybe(row, 11, code)?,
        plan_hash: maybe(row, 12, |row, i| id(row, i, Hash::from_slice))?,
        has_texts: row.get(13)?,
        session: maybe(row, 14, conversation)?,
    })
}

/// The columns session, agent and tenant.
fn conversation(row: &Row<'_>, index: usize) -> Result<Conversation, Error> {
    let (session, agent) = (SessionId::from(text(row, index)?), AgentName::from(text(row, index + 1)?));
    Ok(Conversation { agent, session, tenant: row.get(index + 2)? })
}

/// How an error stands in its column.
#[derive(Serialize, Deserialize)]
pub(crate) struct ErrorText {
    pub(crate) error: Failure,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<StepPath>,
}

/// A row of `job_by_id.sql` and of the pages, and its number.
pub(crate) fn job(row: &Row<'_>) -> Result<(i64, JobRow), Error> {
    let error = maybe(row, 14, |row, i| json::<ErrorText>("a job's error", bytes(row, i)?))?;
    let labels = maybe(row, 21, |row, i| json("a job's labels", bytes(row, i)?))?;
    let job = JobRow {
        agent: AgentName::from(text(row, 17)?),
        agent_version: text(row, 18)?.to_owned(),
        created_at: time(row, 22)?,
        end_requested: maybe(row, 12, code)?,
        error: error.map(|text| (text.error, text.node)),
        fence: fence(row, 2)?,
        head: id(row, 5, Hash::from_slice)?,
        holder: holder(row, 8)?,
        id: id_of_job(row)?,
        labels: labels.unwrap_or_else(BTreeMap::new),
        not_before: maybe(row, 7, time)?,
        paused: maybe(row, 23, |row, i| Ok((code(row, i)?, time(row, i + 1)?)))?,
        plan_hash: maybe(row, 13, |row, i| id(row, i, Hash::from_slice))?,
        priority: number(row, 19)?,
        seq: number(row, 1)?,
        session: maybe(row, 20, |row, i| text(row, i).map(SessionId::from))?,
        status: code(row, 4)?,
        tenant: TenantId::from(text(row, 25)?),
        updated_at: time(row, 6)?,
        waiting: maybe(row, 15, |row, i| json::<WaitingView>("what a job waits for", bytes(row, i)?))?,
    };
    Ok((row.get(0)?, job))
}

/// Where the id stands in a row of the jobs.
pub(crate) const JOB_ID_AT: usize = 16;

/// A row of `children_page.sql`.
pub(crate) fn child(row: &Row<'_>) -> Result<ChildRow, Error> {
    let (_, of) = job(row)?;
    Ok(ChildRow { node: StepPath::from(text(row, 26)?), on_parent_end: code(row, 27)?, row: of })
}

/// The id in a row of the jobs, which stands there whatever the rest says.
pub(crate) fn id_of_job(row: &Row<'_>) -> Result<JobId, Error> {
    id(row, JOB_ID_AT, JobId::from_slice)
}

/// A row of `events_page.sql`.
pub(crate) fn event(row: &Row<'_>) -> Result<EventRow, Error> {
    let payload = bytes(row, 9)?.to_vec();
    let stored = maybe(row, 7, |row, i| id(row, i, Hash::from_slice))?;
    Ok(EventRow {
        seq: number(row, 0)?,
        kind: number(row, 1)?,
        schema_version: number(row, 2)?,
        fence: fence(row, 3)?,
        at: time(row, 5)?,
        id: id(row, 6, EventId::from_slice)?,
        payload_hash: stored.unwrap_or_else(|| Hash::of(&payload)),
        hash: id(row, 8, Hash::from_slice)?,
        payload,
    })
}

/// A boot clock's name and a moment of it, in two columns.
fn boot_moment(row: &Row<'_>, at: usize) -> Result<Option<BootMoment>, Error> {
    match row.get::<_, Option<i64>>(at + 1)? {
        None => Ok(None),
        Some(micros) => Ok(Some(BootMoment { at: span(micros), of: id(row, at, BootId::from_slice)? })),
    }
}

fn span(micros: i64) -> Span {
    Span::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// A row of the ledger's statements.
pub(crate) fn ledger(row: &Row<'_>) -> Result<LedgerRow, Error> {
    Ok(LedgerRow {
        boot: boot_moment(row, 14)?,
        class: code(row, 0)?,
        deadline: time(row, 1)?,
        disproved: row.get(2)?,
        fence: fence(row, 3)?,
        input_hash: id(row, 5, Hash::from_slice)?,
        job: id(row, 6, JobId::from_slice)?,
        key: id(row, 7, IdempotencyKey::from_slice)?,
        lifetime: row.get::<_, Option<i64>>(16)?.map(span),
        node: StepPath::from(text(row, 8)?),
        permit: number(row, 9)?,
        permit_id: id(row, 10, PermitId::from_slice)?,
        seen: boot_moment(row, 17)?,
        status: code(row, 11)?,
        tool: ToolName::from(text(row, 12)?),
        updated_at: time(row, 13)?,
    })
}

/// An effect as it stands.
#[derive(Debug)]
pub(crate) struct RawEffect {
    pub(crate) at: Timestamp,
    pub(crate) key: IdempotencyKey,
    pub(crate) permit: u32,
    pub(crate) result: Vec<u8>,
}

impl RawEffect {
    /// Parses it.
    pub(crate) fn decode(self) -> Result<EffectRow, Error> {
        let result = json("an effect", &self.result)?;
        Ok(EffectRow { at: self.at, key: self.key, permit: self.permit, result })
    }
}

/// A row of the effects' statements.
pub(crate) fn effect(row: &Row<'_>) -> Result<RawEffect, Error> {
    Ok(RawEffect {
        at: time(row, 0)?,
        key: id(row, 1, IdempotencyKey::from_slice)?,
        permit: number(row, 2)?,
        result: bytes(row, 3)?.to_vec(),
    })
}

/// A kept signal as it stands: a key, bytes and the rest.
#[derive(Debug)]
pub(crate) struct RawSignal {
    payload: Vec<u8>,
    signal: KeptSignal,
}

impl RawSignal {
    /// The bytes that it brings.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.signal.key.len()
    }
}

/// A row of `inbox_kept.sql`.
pub(crate) fn kept(row: &Row<'_>) -> Result<RawSignal, Error> {
    let signal = KeptSignal {
        key: text(row, 0)?.to_owned(),
        payload: Json::null(),
        received_at: time(row, 2)?,
        signal: id(row, 3, SignalId::from_slice)?,
        wait_type: maybe(row, 4, code)?,
    };
    Ok(RawSignal { payload: bytes(row, 1)?.to_vec(), signal })
}

/// A row of `inbox_heads.sql`.
pub(crate) fn kept_head(row: &Row<'_>) -> Result<KeptHead, Error> {
    Ok(KeptHead { key: text(row, 0)?.to_owned(), received_at: time(row, 1)?, wait_type: maybe(row, 2, code)? })
}

/// A row of `evidence_by_job.sql`.
pub(crate) fn evidence(row: &Row<'_>) -> Result<Evidence, Error> {
    Ok(Evidence {
        at: time(row, 0)?,
        conflict: row.get(1)?,
        key: id(row, 2, IdempotencyKey::from_slice)?,
        node: StepPath::from(text(row, 3)?),
        outcome: json("evidence", bytes(row, 4)?)?,
        permit: number(row, 5)?,
        permit_id: id(row, 6, PermitId::from_slice)?,
    })
}

/// A row of the timers' statements.
pub(crate) fn timer(row: &Row<'_>) -> Result<TimerRow, Error> {
    let (due, job, timer) = raw_timer(row)?;
    parsed_timer(due, &job, &timer).map_err(Error::Corrupt)
}

/// The same, of which nothing but the types of its columns was looked at: the moment, the job, and the timer.
pub(crate) fn raw_timer(row: &Row<'_>) -> Result<(Timestamp, Vec<u8>, String), Error> {
    Ok((time(row, 0)?, bytes(row, 1)?.to_vec(), text(row, 2)?.to_owned()))
}

/// A timer out of its columns.
pub(crate) fn parsed_timer(due: Timestamp, job: &[u8], timer: &str) -> Result<TimerRow, String> {
    let id = JobId::from_slice(job).ok_or_else(|| "its job has no id".to_owned())?;
    Ok(TimerRow { due, job: id, timer: timer.parse()? })
}

/// A row of `client_key.sql`.
pub(crate) fn client_key(row: &Row<'_>) -> Result<(JobId, Hash), Error> {
    Ok((id(row, 0, JobId::from_slice)?, id(row, 1, Hash::from_slice)?))
}

/// A row of `checkpoint_read.sql`.
pub(crate) fn checkpoint(row: &Row<'_>) -> Result<Checkpoint, Error> {
    Ok(Checkpoint { seq: number(row, 0)?, state: bytes(row, 1)?.to_vec(), version: number(row, 2)? })
}

/// A job with its fence.
pub(crate) fn lease(row: &Row<'_>) -> Result<(JobId, Fence), Error> {
    Ok((id(row, 0, JobId::from_slice)?, fence(row, 1)?))
}

pub(crate) fn expired(row: &Row<'_>) -> Result<ExpiredLease, Error> {
    let (job, fence) = lease(row)?;
    Ok(ExpiredLease { until: time(row, 3)?, job, fence })
}

/// A history whose payloads are still bytes: reading rows needs the database, parsing does not.
#[derive(Debug)]
pub(crate) struct RawHistory {
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) effects: Vec<RawEffect>,
    pub(crate) events: Vec<EventRow>,
    pub(crate) kept: Vec<RawSignal>,
    pub(crate) ledger: Vec<LedgerRow>,
    pub(crate) row: JobRow,
}

impl RawHistory {
    /// Parses it.
    pub(crate) fn decode(self) -> Result<History, Error> {
        let events = self
            .events
            .into_iter()
            .map(|event| event.decode().map_err(|e| Error::Corrupt(format!("event {}: {e}", event.seq))))
            .collect::<Result<_, _>>()?;
        let effects = self.effects.into_iter().map(RawEffect::decode).collect::<Result<_, Error>>()?;
        let kept = self
            .kept
            .into_iter()
            .map(|raw| Ok(KeptSignal { payload: json("a kept signal", &raw.payload)?, ..raw.signal }))
            .collect::<Result<_, Error>>()?;
        Ok(History { checkpoint: self.checkpoint, effects, events, kept, ledger: self.ledger, row: self.row })
    }
}
