//! Claims: which jobs a worker gets, and the one write that makes each its own.

use std::time::{Duration, Instant};

use aetheris_core::job::JobStatus;
use aetheris_core::lease::{Fence, Holder};
use aetheris_core::limits;
use aetheris_core::time::Timestamp;
use aetheris_store::decide::{self, Candidate, ClaimWrites};
use aetheris_store::{ClaimIds, ClaimRequest, Claimed, JobRow, StoreError};
use rusqlite::{ErrorCode, params};
use tokio::sync::oneshot;

use crate::codes::{count, int};
use crate::error::Error;
use crate::history::{self, Bound, Start, Wanted};
use crate::queries::{Prepared, Query};
use crate::rows::{self, RawHistory};
use crate::tx::Tx;
use crate::write;

/// What a claimed job's row has new, in bytes.
const CLAIM_ROW_BYTES: u64 = 96;

/// A claim whose answer is not due yet.
pub(crate) struct PendingClaim {
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

/// What serving pending claims has found.
pub(crate) struct Served {
    /// The jobs of each claim, in the order of the claims.
    pub(crate) claims: Vec<Vec<RawClaim>>,
    /// Nothing is left to be claimed now.
    pub(crate) exhausted: bool,
    /// When the first delayed job can be.
    pub(crate) next_due: Option<Timestamp>,
}

/// Gives claimable jobs to pending claims, in the order in which they came.
pub(crate) fn serve(tx: &mut Tx<'_, '_>, pending: &[PendingClaim], sent_at: Duration) -> Result<Served, Error> {
    promote(tx)?;
    if aetheris_fault::planted!("promoted-before-session") {
        let due = "UPDATE jobs SET ready = 1
            WHERE status = 0 AND ready = 0 AND delayed_until IS NULL AND not_before IS NOT NULL";
        tx.sql.connection().execute(due, [])?;
    }
    let (mut claims, mut exhausted) = (Vec::with_capacity(pending.len()), false);
    for claim in pending {
        let mut taken = Vec::new();
        // Whoever asked may have gone; a job would wait for the end of a lease that nobody holds.
        if !exhausted && !claim.reply.is_closed() {
            let ids = &claim.request.ids[..claim.request.ids.len().min(limits::CLAIM_JOBS_MAX)];
            let nums = tx.sql.all(Query::JobsReady, [count(ids.len())], |row| row.get::<_, i64>(0))?;
            exhausted = nums.len() < ids.len();
            for (num, ids) in nums.into_iter().zip(ids) {
                taken.extend(take(tx, num, *ids, &claim.request, sent_at)?);
            }
        }
        claims.push(taken);
    }
    let next_due = if exhausted { next_delayed(tx.sql)? } else { None };
    Ok(Served { claims, exhausted, next_due })
}

/// Due jobs go over to those that can be claimed, a bounded number in one transaction: heartbeats and commits wait for
/// its end. Those that are left are due, so that whoever finds nothing to claim is served again at once.
fn promote(tx: &mut Tx<'_, '_>) -> Result<(), Error> {
    // A statement that may change a job opens every index of its table first, which takes longer than this look.
    if next_delayed(tx.sql)?.is_none_or(|due| due > tx.now) {
        return Ok(());
    }
    tx.run(Query::JobsPromote, params![tx.now.micros(), count(limits::WRITER_BATCH_MAX)])?;
    Ok(())
}

fn next_delayed(sql: &mut Prepared<'_>) -> Result<Option<Timestamp>, Error> {
    let next = sql.first(Query::JobsNextDelayed, [], |row| row.get::<_, Option<i64>>(0))?;
    Ok(next.flatten().map(Timestamp::from_micros))
}

fn take(
    tx: &mut Tx<'_, '_>,
    num: i64,
    ids: ClaimIds,
    request: &ClaimRequest,
    sent_at: Duration,
) -> Result<Option<RawClaim>, Error> {
    let mut row = match tx.sql.first(Query::JobByNum, [num], rows::job) {
        Ok(found) => found.ok_or_else(|| Error::Corrupt(format!("job number {num} has gone")))?.1,
        // One row that cannot be read costs nobody else a claim.
        Err(Error::Corrupt(why)) => return set_aside(tx, num, &why).map(|()| None),
        Err(error) => return Err(error),
    };
    let before = Before { epoch: row.fence.epoch, seq: row.seq };
    let last_event = tx.sql.exists(Query::EventAt, params![num, int(before.seq)])?;
    let (paused, seq) = (row.paused.is_some(), row.seq);
    let candidate = Candidate { fence: row.fence, head: row.head, id: row.id, last_event, paused, seq };
    let ClaimWrites { event, fence, head, holder, seq } =
        match decide::claim(&candidate, ids, request, tx.generation, tx.now) {
            Ok(writes) => writes,
            Err(why) => return set_aside(tx, num, why).map(|()| None),
        };
    row.seq = seq;
    row.head = head;
    row.fence = fence;
    row.status = JobStatus::Running;
    row.not_before = None;
    row.updated_at = tx.now;
    let lease_until = holder.lease_until;
    // The event first: where its place is taken, nothing is written yet.
    match write::insert_event(tx, num, seq, &event, fence, &head) {
        Ok(()) => {}
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            return set_aside(tx, num, "its row does not fit its events").map(|()| None);
        }
        Err(error) => return Err(error.into()),
    }
    hold(tx, num, &row, &holder, before)?;
    tx.claimed(num);
    row.holder = Some(holder);
    tx.moved(Some(JobStatus::Pending), JobStatus::Running);
    tx.changes.bytes += CLAIM_ROW_BYTES;
    tx.changes.written.push((row.id, row.seq));
    let job = row.id;
    // Most histories are short, and bringing them saves a read. Where there was no claim before, no run has asked
    // for permission.
    let wanted = Wanted { from: Start::Checkpoint, ledger: before.epoch > 0 };
    let history = match history::read(tx.sql, num, row, wanted, Bound::CLAIM) {
        Ok(history) => history,
        // The run asks for it again and is told.
        Err(Error::Corrupt(_)) => None,
        Err(error) => return Err(error),
    };
    Ok(Some(RawClaim { attempt: ids.attempt, fence, history, job, lease_until, sent_at }))
}

/// A job whose row cannot be read is looked at again later.
fn set_aside(tx: &mut Tx<'_, '_>, num: i64, why: &str) -> Result<(), Error> {
    tracing::error!(number = num, why, "a pending job cannot be read, and is not claimed");
    let until = tx.now.after(limits::SWEEP_BACKOFF_MAX);
    tx.exactly_one(Query::JobSetAside, params![num, until.micros()])
}

/// What the claim's statement expects to find.
#[derive(Clone, Copy)]
struct Before {
    epoch: u32,
    seq: u64,
}

fn hold(tx: &mut Tx<'_, '_>, num: i64, row: &JobRow, holder: &Holder, before: Before) -> Result<(), Error> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::tests::schema;

    #[test]
    fn the_next_moment_of_a_delayed_job_is_that_of_a_pending_one() {
        let conn = schema();
        conn.pragma_update(None, "ignore_check_constraints", true).unwrap();
        let mut insert = conn
            .prepare(
                "INSERT INTO jobs (seq, generation, epoch, status, head, updated_at, ready, delayed_until, id, agent,
                                   agent_version, priority, created_at)
                 VALUES (1, 1, 0, ?1, zeroblob(32), 0, 0, ?2, ?3, 'a', '1', 0, 0)",
            )
            .unwrap();
        for (status, at) in [(5, 10), (0, 30), (128, 20), (0, 40u8)] {
            insert.execute(params![status, at, [at; 16]]).unwrap();
        }
        assert_eq!(next_delayed(&mut Prepared::new(&conn)).unwrap(), Some(Timestamp::from_micros(30)));
        conn.execute("DELETE FROM jobs WHERE status = 0", []).unwrap();
        assert_eq!(next_delayed(&mut Prepared::new(&conn)).unwrap(), None);
    }
}
