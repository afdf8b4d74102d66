//! The writes of an accepted unit. Each repeats in its statement what the checks have found, but for the moment of a timer.

use aetheris_core::event::EncodedEvent;
use aetheris_core::hash::Hash;
use aetheris_core::id::SessionId;
use aetheris_core::job::JobStatus;
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::ledger::LedgerRow;
use aetheris_core::path::StepPath;
use aetheris_core::projection::{Projection, TimerChange};
use aetheris_core::time::{BootMoment, Span, Timestamp};
use aetheris_store::decide::{LedgerChange, Moments, Writes};
use aetheris_store::{Committed, InboxWrite, LeaseChange, NewJob, UnitOfWork};
use rusqlite::{ToSql, params};

use crate::agents;
use crate::codes::{Code, count, int};
use crate::error::Error;
use crate::promises;
use crate::queries::Query;
use crate::rows::{Conversation, ErrorText, HotJob, Text};
use crate::tx::Tx;

/// What an event's row has beside its payload, in bytes: numbers, time, id and hash. Indexes are not
/// counted, here and below.
const EVENT_ROW_BYTES: u64 = 72;
/// What a touched job's row has new, in bytes.
const TOUCH_BYTES: u64 = 48;

/// Writes a unit. An error leaves the transaction to be rolled back.
pub(crate) fn put(
    tx: &mut Tx<'_, '_>,
    unit: &UnitOfWork,
    before: Option<&HotJob>,
    writes: &Writes,
) -> Result<Committed, Error> {
    let num = match (before, &unit.create) {
        (Some(job), _) => update(tx, unit, job, writes)?,
        (None, Some(new)) => insert(tx, unit, new, writes)?,
        (None, None) => return Err(Error::Invalid("a unit of no job came through its checks".to_owned())),
    };
    let first = before.map_or(0, |job| job.seq) + 1;
    for ((event, hash), seq) in unit.events.iter().zip(&writes.hashes).zip(first..) {
        insert_event(tx, num, seq, event, writes.fence, hash)?;
    }
    for step in &writes.ledger {
        ledger(tx, num, step)?;
    }
    effects(tx, unit, num)?;
    inbox(tx, unit, num)?;
    timers(tx, unit)?;
    outbox(tx, unit)?;
    if let Some(document) = &unit.plan {
        agents::plan_document(tx, &document.plan)?;
    }
    if let Some(checkpoint) = &unit.checkpoint {
        tx.run(Query::CheckpointPut, params![num, int(checkpoint.seq), checkpoint.version, checkpoint.state])?;
    }
    tx.changes.units += 1;
    tx.changes.written.push((unit.job, writes.seq));
    Ok(Committed { at: tx.now, head: writes.head, seq: writes.seq })
}

/// Writes one event of a job.
pub(crate) fn insert_event(
    tx: &mut Tx<'_, '_>,
    num: i64,
    seq: u64,
    event: &EncodedEvent,
    fence: Fence,
    hash: &Hash,
) -> rusqlite::Result<()> {
    let row = params![
        num,
        int(seq),
        event.kind.code(),
        event.schema_version,
        fence.generation,
        fence.epoch,
        tx.now.micros(),
        &event.id.to_bytes()[..],
        // The payload stands here and says its own hash.
        None::<&[u8]>,
        &hash.as_bytes()[..],
        Text(&event.payload),
    ];
    tx.sql.run(Query::EventInsert, row)?;
    tx.changes.last_event = Some(tx.sql.connection().last_insert_rowid());
    tx.changes.rows += 1;
    tx.changes.events += 1;
    tx.changes.bytes += u64::try_from(event.payload.len()).unwrap_or(0) + EVENT_ROW_BYTES;
    Ok(())
}

/// The derived columns as they are to be.
struct Derived {
    error: Option<Vec<u8>>,
    moments: Moments,
    waiting: Option<Vec<u8>>,
}

/// `num` is the job's place in the order of arrival; a new one has none yet.
fn derive(
    tx: &mut Tx<'_, '_>,
    num: Option<i64>,
    session: Option<&Conversation>,
    (row, moments): (&Projection, Moments),
) -> Result<Derived, Error> {
    let mut ready = moments.ready;
    if ready
        && let Some(Conversation { agent, session, tenant }) = session
        && !aetheris_fault::planted!("session-order-ignored")
    {
        // A new job comes behind all that are there, whatever its id says: that was made before.
        let earlier = params![agent.as_str(), session.as_str(), num.unwrap_or(i64::MAX), tenant];
        ready = !tx.sql.exists(Query::SessionEarlier, earlier)?;
    }
    tx.changes.claimable |= ready;
    if let Some(at) = moments.delayed_until {
        tx.changes.next_due = Some(tx.changes.next_due.map_or(at, |next| next.min(at)));
    }
    let error = row.error.as_ref().map(|(error, node)| {
        aetheris_core::json::to_canonical(&ErrorText { error: error.clone(), node: node.clone() })
    });
    let waiting = row.waiting.as_ref().map(aetheris_core::json::to_canonical);
    Ok(Derived { error, moments: Moments { ready, ..moments }, waiting })
}

/// A unit's row with its moments.
fn row_of<'u>(unit: &'u UnitOfWork, writes: &Writes) -> Option<(&'u Projection, Moments)> {
    unit.row.as_ref().zip(writes.moments)
}

fn insert(tx: &mut Tx<'_, '_>, unit: &UnitOfWork, new: &NewJob, writes: &Writes) -> Result<i64, Error> {
    let (row, moments) = row_of(unit, writes).ok_or_else(|| Error::Invalid("a new job has a row".to_owned()))?;
    let tenant = tx.tenant_num(&new.tenant)?;
    let conversation =
        |session: &SessionId| Conversation { agent: new.agent.clone(), session: session.clone(), tenant };
    let session = new.session.as_ref().map(conversation);
    let derived = derive(tx, None, session.as_ref(), (row, moments))?;
    let labels = (!new.labels.is_empty()).then(|| aetheris_core::json::to_canonical(&new.labels));
    let id = unit.job.to_bytes();
    tx.exactly_one(
        Query::JobInsert,
        params![
            int(writes.seq),
            writes.fence.generation,
            writes.fence.epoch,
            row.status.code(),
            &writes.head.as_bytes()[..],
            tx.now.micros(),
            derived.moments.ready,
            derived.moments.delayed_until.map(Timestamp::micros),
            derived.moments.not_before.map(Timestamp::micros),
            row.end_requested.map(Code::code),
            row.waiting.as_ref().map(|waiting| waiting.wait_type.code()),
            row.plan_hash.as_ref().map(|hash| &hash.as_bytes()[..]),
            derived.error.as_deref().map(Text),
            derived.waiting.as_deref().map(Text),
            &id[..],
            new.agent.as_str(),
            new.agent_version,
            new.priority,
            new.session.as_ref().map(SessionId::as_str),
            labels.as_deref().map(Text),
            new.client_key.as_ref().map(|client| client.key.as_str()),
            new.client_key.as_ref().map(|client| &client.body_hash.as_bytes()[..]),
            tenant,
        ],
    )?;
    let num = tx.sql.connection().last_insert_rowid();
    if aetheris_fault::planted!("session-by-id") {
        let by_id = "UPDATE jobs AS new SET ready = 1
            WHERE num = ?1 AND status = 0 AND delayed_until IS NULL AND session IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM jobs WHERE tenant = new.tenant AND agent = new.agent AND session = new.session
                              AND status <> 4 AND status <> 5 AND status <> 6 AND id < new.id)";
        tx.sql.connection().execute(by_id, [num])?;
    }
    for (key, value) in &new.labels {
        tx.exactly_one(Query::LabelInsert, params![key, value, &id[..], tenant])?;
        tx.changes.bytes += u64::try_from(key.len() + value.len() + id.len()).unwrap_or(0);
    }
    if let Some(parent) = &new.parent {
        let row = params![&parent.job.to_bytes()[..], num, parent.on_parent_end.code(), parent.node.text()];
        tx.exactly_one(Query::ChildInsert, row)?;
        tx.changes.bytes += 32;
    }
    tx.moved(None, row.status);
    if row.status == JobStatus::Pending {
        tx.arrived(num);
    }
    tx.changes.bytes += 256;
    Ok(num)
}

/// Lets the first unfinished job of a session be claimed, if only its turn was missing.
fn advance(tx: &mut Tx<'_, '_>, of: &Conversation) -> Result<(), Error> {
    let freed = tx.run(Query::SessionAdvance, params![of.agent.as_str(), of.session.as_str(), of.tenant])?;
    tx.changes.claimable |= freed > 0;
    Ok(())
}

/// Whether the row's derived part stays as it is: then its indexes need not be touched.
fn unchanged((row, moments): &(&Projection, Moments), job: &HotJob) -> bool {
    row.status == job.status
        && row.end_requested == job.end_requested
        && row.plan_hash == job.plan_hash
        && moments.not_before == job.not_before
        && row.error.is_none()
        && row.waiting.is_none()
        // A pause may have been taken over.
        && row.paused.is_none()
        && !job.has_texts
}

fn update(tx: &mut Tx<'_, '_>, unit: &UnitOfWork, job: &HotJob, writes: &Writes) -> Result<i64, Error> {
    // The guard's own fence, so that the statement finds nothing where the check was wrong.
    let (fence, held) = match unit.guard {
        Guard::Outside | Guard::Due(_) => (job.fence, false),
        Guard::Run(fence) | Guard::Expired(fence) | Guard::Dead(fence, _) => (fence, true),
    };
    let planted = aetheris_fault::planted!("fence-not-checked");
    let (fence, held) = if planted { (job.fence, false) } else { (fence, held) };
    let seq = unit.expected_seq.filter(|_| !aetheris_fault::planted!("sequence-not-checked")).unwrap_or(job.seq);
    tx.changes.bytes += TOUCH_BYTES;
    let keeps = unit.lease == LeaseChange::Keep || job.holder.is_none();
    let Some((row, moments)) = row_of(unit, writes).filter(|row| !keeps || !unchanged(row, job)) else {
        let head = &writes.head.as_bytes()[..];
        let touched =
            params![int(writes.seq), head, tx.now.micros(), job.num, int(seq), fence.generation, fence.epoch, held];
        tx.exactly_one(Query::JobTouch, touched)?;
        return Ok(job.num);
    };
    let derived = derive(tx, Some(job.num), job.session.as_ref(), (row, moments))?;
    let Moments { delayed_until, not_before, paused, ready } = derived.moments;
    tx.exactly_one(
        Query::JobUpdate,
        params![
            int(writes.seq),
            &writes.head.as_bytes()[..],
            tx.now.micros(),
            job.num,
            int(seq),
            fence.generation,
            fence.epoch,
            held,
            row.status.code(),
            ready,
            delayed_until.map(Timestamp::micros),
            not_before.map(Timestamp::micros),
            row.end_requested.map(Code::code),
            row.waiting.as_ref().map(|waiting| waiting.wait_type.code()),
            row.plan_hash.as_ref().map(|hash| &hash.as_bytes()[..]),
            derived.error.as_deref().map(Text),
            derived.waiting.as_deref().map(Text),
            unit.lease == LeaseChange::Keep,
            paused.map(|(reason, _)| reason.code()),
            paused.map(|(_, since)| since.micros()),
        ],
    )?;
    tx.moved(Some(job.status), row.status);
    if row.status == JobStatus::Pending {
        tx.arrived(job.num);
    }
    if let Some(conversation) = &job.session
        && row.status.is_terminal()
    {
        advance(tx, conversation)?;
    }
    Ok(job.num)
}

fn ledger(tx: &mut Tx<'_, '_>, num: i64, step: &LedgerChange) -> Result<(), Error> {
    let LedgerRow {
        boot,
        class,
        deadline,
        disproved,
        fence,
        input_hash,
        job: _,
        key,
        lifetime,
        node,
        permit,
        permit_id,
        seen,
        status,
        tool,
        updated_at,
    } = &step.after;
    let (key, id) = (key.to_bytes(), permit_id.to_bytes());
    let (hash, status) = (&input_hash.as_bytes()[..], status.code());
    let (deadline, updated_at) = (deadline.micros(), updated_at.micros());
    let (node, tool, class) = (node.text(), tool.as_str(), class.code());
    let (boot, boot_deadline) = boot_moment(tx, *boot)?;
    let (seen_boot, seen_at) = boot_moment(tx, *seen)?;
    let lifetime = lifetime.map(Span::micros_i64);
    tx.changes.bytes += if step.before.is_none() { 144 } else { 16 };
    let (key, id) = (&key[..], &id[..]);
    let mut columns: Vec<&dyn ToSql> = vec![
        &key,
        &num,
        permit,
        &id,
        &status,
        disproved,
        &class,
        &fence.generation,
        &fence.epoch,
        &deadline,
        &updated_at,
        &hash,
        &node,
        &tool,
        &boot,
        &boot_deadline,
        &lifetime,
        &seen_boot,
        &seen_at,
    ];
    let Some(before) = &step.before else {
        return tx.exactly_one(Query::LedgerInsert, &columns[..]);
    };
    let (permit_id, status) = (before.permit_id.to_bytes(), before.status.code());
    let permit_id = &permit_id[..];
    columns.extend([&before.permit as &dyn ToSql, &permit_id, &status, &before.disproved]);
    tx.exactly_one(Query::LedgerUpdate, &columns[..])
}

/// A boot clock's number and a moment of it, in two columns.
fn boot_moment(tx: &mut Tx<'_, '_>, moment: Option<BootMoment>) -> Result<(Option<i64>, Option<i64>), Error> {
    Ok(match moment {
        Some(BootMoment { at, of }) => (Some(tx.boot_num(of)?), Some(at.micros_i64())),
        None => (None, None),
    })
}

fn effects(tx: &mut Tx<'_, '_>, unit: &UnitOfWork, num: i64) -> Result<(), Error> {
    let at = tx.now.micros();
    for effect in &unit.effects {
        let (key, id) = (effect.key.to_bytes(), effect.permit_id.to_bytes());
        let result = effect.result.canonical();
        tx.run(Query::EffectInsert, params![num, &key[..], effect.permit, &id[..], at, Text(&result)])?;
        tx.changes.bytes += u64::try_from(result.len()).unwrap_or(0) + 48;
    }
    for evidence in &unit.evidence {
        let (key, id) = (evidence.key.to_bytes(), evidence.permit_id.to_bytes());
        let (node, outcome) = (evidence.node.text(), evidence.outcome.canonical());
        tx.run(
            Query::EvidenceInsert,
            params![&id[..], num, &key[..], evidence.permit, evidence.conflict, at, node, Text(&outcome)],
        )?;
        tx.changes.bytes += u64::try_from(outcome.len()).unwrap_or(0) + 64;
    }
    Ok(())
}

fn inbox(tx: &mut Tx<'_, '_>, unit: &UnitOfWork, num: i64) -> Result<(), Error> {
    for write in &unit.inbox {
        match write {
            InboxWrite::Receive { delivered, key, payload, signal, wait_type } => {
                let id = signal.to_bytes();
                let wait_type = wait_type.map(Code::code);
                let at = tx.now.micros();
                // What was delivered is brought to nobody again.
                let memory = if *delivered { 0 } else { count(payload.memory()) };
                let text = payload.canonical();
                let row = params![&id[..], num, delivered, wait_type, at, key, Text(&text), memory];
                tx.run(Query::InboxInsert, row)?;
                tx.changes.bytes += u64::try_from(text.len() + key.len()).unwrap_or(0) + 32;
            }
            InboxWrite::Consume(signal) => {
                tx.exactly_one(Query::InboxDeliver, params![num, &signal.to_bytes()[..]])?;
            }
        }
    }
    Ok(())
}

fn timers(tx: &mut Tx<'_, '_>, unit: &UnitOfWork) -> Result<(), Error> {
    let job = unit.job.to_bytes();
    for change in &unit.timers {
        match change {
            TimerChange::Set { due, timer } => {
                let due = due.resolve(tx.now).micros();
                tx.run(Query::TimerPut, params![&job[..], timer.to_string(), due])?;
                tx.changes.bytes += 40;
            }
            TimerChange::Cleared(timer) => {
                tx.run(Query::TimerDelete, params![&job[..], timer.to_string()])?;
            }
        }
    }
    Ok(())
}

/// What was promised and is done with this goes; what this promises comes.
fn outbox(tx: &mut Tx<'_, '_>, unit: &UnitOfWork) -> Result<(), Error> {
    for num in &unit.delivers {
        tx.exactly_one(Query::OutboxDelete, [int(*num)])?;
    }
    let author = unit.job.to_bytes();
    for promise in &unit.outbox {
        let (kind, node, seq) = promises::columns(promise);
        let target = promise.target(unit.job).to_bytes();
        let node = node.map(StepPath::text);
        tx.exactly_one(Query::OutboxInsert, params![kind, &author[..], &target[..], node, seq.map(int)])?;
        tx.changes.bytes += 64;
    }
    tx.changes.promised |= !unit.outbox.is_empty();
    Ok(())
}
