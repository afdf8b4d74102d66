//! The facts that a unit's decision needs, looked up in the transaction that writes, and what is made of the decision.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::id::{IdempotencyKey, SignalId};
use aetheris_core::ledger::LedgerRow;
use aetheris_store::decide::{self, Facts, JobFacts, KnownSignal, Needs};
use aetheris_store::rules::Kept;
use aetheris_store::{CommitError, Committed, UnitOfWork};
use rusqlite::{Row, params};

use crate::codes::int;
use crate::error::{Error, Stop};
use crate::queries::Query;
use crate::rows::{self, HotJob};
use crate::tx::Tx;
use crate::write;

/// Decides a unit and writes it, or leaves everything as it is.
pub(crate) fn apply(tx: &mut Tx<'_, '_>, unit: &UnitOfWork) -> Result<Committed, Stop> {
    let needs = decide::needs(unit).map_err(|error| Stop::Answer(CommitError::Failed(error)))?;
    let job = tx.sql.first(Query::JobHot, [&unit.job.to_bytes()[..]], rows::hot_job)?;
    let facts = Facts { generation: tx.generation, job: job.as_ref().map(job_facts), ..Facts::default() };
    decide::admit(unit, &facts, tx.reading()).map_err(|refusal| Stop::Answer(refusal.into()))?;
    let facts = look_up(tx, (unit, needs), job.as_ref(), facts)?;
    let writes = decide::decide(unit, &facts, tx.reading()).map_err(Stop::Answer)?;
    write::put(tx, unit, job.as_ref(), &writes).map_err(Stop::Broken)
}

fn job_facts(job: &HotJob) -> JobFacts<'_> {
    JobFacts { fence: job.fence, head: job.head, holder: job.holder.as_ref(), seq: job.seq, status: job.status }
}

/// One statement for each kind of fact that the unit needs, or for each of them; most units need one or two.
fn look_up<'f>(
    tx: &mut Tx<'_, '_>,
    (unit, needs): (&UnitOfWork, Needs<'_>),
    job: Option<&HotJob>,
    facts: Facts<'f>,
) -> Result<Facts<'f>, Error> {
    let num = job.map(|job| job.num);
    let last_event = match job.filter(|_| needs.last_event) {
        Some(job) => tx.sql.exists(Query::EventAt, params![job.num, int(job.seq)])?,
        None => false,
    };
    let plan = match &needs.plan {
        Some(hash) => tx.sql.exists(Query::PlanKnown, [&hash.as_bytes()[..]])?,
        None => false,
    };
    let parent = match needs.parent {
        Some(parent) => tx.sql.first(Query::JobStatus, [&parent.to_bytes()[..]], |row| rows::code(row, 0))?,
        None => None,
    };
    let mut standing = BTreeSet::new();
    for num in needs.delivers {
        if tx.sql.exists(Query::OutboxKnown, [int(*num)])? {
            standing.insert(*num);
        }
    }
    let client_key = match needs.client_key {
        Some((new, client)) => {
            let name = params![new.agent.as_str(), client.key, new.tenant.as_str()];
            tx.sql.first(Query::ClientKey, name, rows::client_key)?
        }
        None => None,
    };
    let mut kept_of = BTreeMap::new();
    for key in &needs.kept_of {
        let found = tx.sql.first(Query::InboxCountOfKey, params![num, key], |row| rows::number(row, 0))?;
        kept_of.insert((*key).to_owned(), found.unwrap_or(0));
    }
    let ledger = ledger(tx, &needs)?;
    let succeeded = succeeded(tx, unit, &needs, &ledger)?;
    let (kept, signals) = match num.filter(|_| !needs.signals.is_empty()) {
        Some(num) => inbox(tx, num, &needs)?,
        None => (Kept::default(), BTreeMap::new()),
    };
    Ok(Facts { client_key, kept, kept_of, last_event, ledger, parent, plan, signals, standing, succeeded, ..facts })
}

fn ledger(tx: &mut Tx<'_, '_>, needs: &Needs<'_>) -> Result<BTreeMap<IdempotencyKey, LedgerRow>, Error> {
    let mut rows = BTreeMap::new();
    for key in &needs.ledger {
        if let Some(row) = tx.sql.first(Query::LedgerByKey, [&key.to_bytes()[..]], rows::ledger)? {
            rows.insert(*key, row);
        }
    }
    Ok(rows)
}

/// Nothing is called for the first time after a success: only keys with a row are looked for.
fn succeeded(
    tx: &mut Tx<'_, '_>,
    unit: &UnitOfWork,
    needs: &Needs<'_>,
    ledger: &BTreeMap<IdempotencyKey, LedgerRow>,
) -> Result<BTreeSet<IdempotencyKey>, Error> {
    let mut found = BTreeSet::new();
    for key in needs.succeeded.iter().filter(|key| ledger.contains_key(key)) {
        if tx.sql.exists(Query::EvidenceOfSuccess, params![&unit.job.to_bytes()[..], &key.to_bytes()[..]])? {
            found.insert(*key);
        }
    }
    Ok(found)
}

/// All that is kept for the job, and what is known of the unit's signals.
fn inbox(tx: &mut Tx<'_, '_>, num: i64, needs: &Needs<'_>) -> Result<(Kept, BTreeMap<SignalId, KnownSignal>), Error> {
    let all = |row: &Row<'_>| {
        let (bytes, count, memory) = (rows::number(row, 1)?, rows::number(row, 0)?, rows::number(row, 2)?);
        Ok::<_, Error>(Kept { bytes, count, memory })
    };
    let kept = tx.sql.first(Query::InboxCount, [num], all)?.unwrap_or_default();
    let one = |row: &Row<'_>| {
        let size = Kept { bytes: rows::number(row, 2)?, count: 1, memory: rows::number(row, 3)? };
        Ok::<_, Error>(KnownSignal { kept: row.get::<_, i64>(0)? == 0, size })
    };
    let mut signals = BTreeMap::new();
    for signal in &needs.signals {
        if let Some(known) = tx.sql.first(Query::InboxState, params![num, &signal.to_bytes()[..]], one)? {
            signals.insert(*signal, known);
        }
    }
    Ok((kept, signals))
}
