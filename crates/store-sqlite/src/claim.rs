//! Claims: which jobs a worker gets, and the one write that makes each its own.

use std::time::{Duration, Instant};

use aetheris_core::chain::Header;
use aetheris_core::event::{EncodedEvent, Event, JobClaimed};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::{Fence, Holder};
use aetheris_core::limits;
use aetheris_core::time::Timestamp;
use aetheris_store::{ClaimIds, ClaimRequest, Claimed, JobRow, StoreError};
use rusqlite::params;
use tokio::sync::oneshot;

use crate::codes::{count, int};
use crate::error::Trouble;
use crate::queries::{Prepared, Query};
use crate::rows::{self, RawHistory, Text};
use crate::tx::Tx;

/// A claim brings the history of a job that has at most so many events: most have, and it saves a read.
const HISTORY_EVENTS_MAX: u64 = 64;
/// And at most so many bytes of payloads.
const HISTORY_BYTES_MAX: usize = 256 * 1024;

/// A claim whose answer is not due yet.
pub(crate) struct Standing {
    /// When it is answered, with whatever there is.
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<Vec<RawClaim>, StoreError>>,
    pub(crate) request: ClaimRequest,
}

/// A claimed job whose history is still bytes.
#[derive(Debug)]
pub(crate) struct RawClaim {
    attempt: aetheris_core::id::AttemptId,
    fence: Fence,
    history: Option<RawHistory>,
    job: aetheris_core::id::JobId,
    lease_until: Timestamp,
    sent_at: Duration,
}

impl RawClaim {
    /// What the worker gets. A history that cannot be parsed is left out: whoever then reads it is told why.
    pub(crate) fn decode(self) -> Claimed {
        Claimed {
            attempt_id: self.attempt,
            fence: self.fence,
            history: self.history.and_then(|raw| raw.decode().ok()),
            job: self.job,
            lease_until: self.lease_until,
            sent_at: self.sent_at,
        }
    }
}

/// What serving standing claims has found.
pub(crate) struct Served {
    /// The jobs of each claim, in the order of the claims.
    pub(crate) claims: Vec<Vec<RawClaim>>,
    /// Nothing is left to be claimed now.
    pub(crate) exhausted: bool,
    /// When the first delayed job can be.
    pub(crate) next_due: Option<Timestamp>,
}

/// Gives claimable jobs to standing claims, in the order in which they came.
pub(crate) fn serve(tx: &mut Tx<'_, '_>, standing: &[Standing], sent_at: Duration) -> Result<Served, Trouble> {
    promote(tx)?;
    let (mut claims, mut exhausted) = (Vec::with_capacity(standing.len()), false);
    for claim in standing {
        let mut taken = Vec::new();
        // Whoever asked may have gone; a job would wait for the end of a lease that nobody holds.
        if !exhausted && !claim.reply.is_closed() {
            let ids = &claim.request.ids[..claim.request.ids.len().min(limits::CLAIM_JOBS_MAX)];
            let nums = tx.sql.all(Query::JobsReady, [count(ids.len())], |row| row.get::<_, i64>(0))?;
            exhausted = nums.len() < ids.len();
            for (num, ids) in nums.into_iter().zip(ids) {
                taken.push(take(tx, num, *ids, &claim.request, sent_at)?);
            }
        }
        claims.push(taken);
    }
    let next_due = if exhausted { next_delayed(tx.sql)? } else { None };
    Ok(Served { claims, exhausted, next_due })
}

/// Due jobs go over to those that can be claimed, a bounded number at a time.
fn promote(tx: &mut Tx<'_, '_>) -> Result<(), Trouble> {
    let bound = count(limits::WRITER_BATCH_MAX);
    while tx.run(Query::JobsPromote, params![tx.now.micros(), bound])? == limits::WRITER_BATCH_MAX {}
    Ok(())
}

fn next_delayed(sql: &mut Prepared<'_>) -> Result<Option<Timestamp>, Trouble> {
    let next = sql.first(Query::JobsNextDelayed, [], |row| row.get::<_, Option<i64>>(0))?;
    Ok(next.flatten().map(Timestamp::from_micros))
}

fn take(
    tx: &mut Tx<'_, '_>,
    num: i64,
    ids: ClaimIds,
    request: &ClaimRequest,
    sent_at: Duration,
) -> Result<RawClaim, Trouble> {
    let found = tx.sql.first(Query::JobByNum, [num], rows::job)?;
    let (_, mut row) = found.ok_or_else(|| Trouble::Corrupt(format!("job number {num} has gone")))?;
    let before = Before { epoch: row.fence.epoch, seq: row.seq };
    let step = u32::from(!aetheris_fault::planted!("claim-keeps-epoch"));
    let fence = Fence { generation: tx.generation, epoch: before.epoch + step };
    let holder = Holder {
        attempt_id: ids.attempt,
        instance: request.instance,
        lease_until: tx.now.after(request.ttl),
        worker: request.worker.clone(),
    };
    let claimed = JobClaimed { attempt_id: ids.attempt, instance: request.instance, worker: request.worker.clone() };
    let event = EncodedEvent::new(ids.event, &Event::from(claimed));
    let header = Header::of(row.id, before.seq + 1, &event, fence, tx.now);
    let hash = header.chain(&row.head);
    row.seq = header.seq;
    row.head = hash;
    row.fence = fence;
    row.status = JobStatus::Running;
    row.not_before = None;
    row.updated_at = tx.now;
    let lease_until = holder.lease_until;
    write(tx, num, &row, &holder, before)?;
    row.holder = Some(holder);
    tx.exactly_one(
        Query::EventInsert,
        params![
            num,
            int(header.seq),
            header.kind,
            header.schema_version,
            fence.generation,
            fence.epoch,
            tx.now.micros(),
            &event.id.to_bytes()[..],
            None::<&[u8]>,
            &hash.as_bytes()[..],
            Text(&event.payload),
        ],
    )?;
    tx.moved(Some(JobStatus::Pending), JobStatus::Running);
    tx.changes.bytes += u64::try_from(event.payload.len()).unwrap_or(0) + 168;
    tx.changes.written.push((row.id, row.seq));
    let job = row.id;
    let history = short_history(tx.sql, num, row, before.epoch)?;
    Ok(RawClaim { attempt: ids.attempt, fence, history, job, lease_until, sent_at })
}

/// What the claim's statement expects to find.
#[derive(Clone, Copy)]
struct Before {
    epoch: u32,
    seq: u64,
}

fn write(tx: &mut Tx<'_, '_>, num: i64, row: &JobRow, holder: &Holder, before: Before) -> Result<(), Trouble> {
    let params = params![
        int(row.seq),
        &row.head.as_bytes()[..],
        tx.now.micros(),
        row.fence.generation,
        row.fence.epoch,
        holder.lease_until.micros(),
        &holder.attempt_id.to_bytes()[..],
        &holder.instance.to_bytes()[..],
        holder.worker.as_str(),
        num,
        int(before.seq),
        before.epoch,
    ];
    tx.exactly_one(Query::JobClaim, params)
}

/// The history of a job with few events, in the claim's own transaction. `epoch` is the number of claims
/// before: where there was none, no run has asked for permission.
fn short_history(sql: &mut Prepared<'_>, num: i64, row: JobRow, epoch: u32) -> Result<Option<RawHistory>, Trouble> {
    if row.seq > HISTORY_EVENTS_MAX {
        return Ok(None);
    }
    let checkpoint = sql.first(Query::CheckpointRead, [num], rows::checkpoint)?;
    let after = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.seq);
    let events = sql.all(Query::EventsPage, params![num, int(after), int(HISTORY_EVENTS_MAX)], rows::event)?;
    let bytes: usize = events.iter().map(|event| event.payload.len()).sum();
    if bytes > HISTORY_BYTES_MAX {
        return Ok(None);
    }
    let kept = sql.all(Query::InboxKept, [num], rows::kept)?;
    let mut history = RawHistory { checkpoint, effects: Vec::new(), events, kept, ledger: Vec::new(), row };
    if epoch > 0 {
        history.ledger = sql.all(Query::LedgerByJob, [num], rows::ledger)?;
        history.effects = sql.all(Query::EffectsByJob, [num], rows::effect)?;
    }
    Ok(Some(history))
}
