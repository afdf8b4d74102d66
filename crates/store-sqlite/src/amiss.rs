//! What is amiss in rows that no history tells of: how a job is found, counts, documents, and rows of jobs that are not
//! there. Only a check asks.

use std::collections::BTreeMap;

use aetheris_core::hash::Hash;
use aetheris_core::id::JobId;
use aetheris_core::limits;
use aetheris_core::time::{Span, Timestamp};
use aetheris_store::JobRow;
use rusqlite::{Row, params};

use crate::codes::{Code, int};
use crate::error::Trouble;
use crate::queries::{Prepared, Query};
use crate::read::Reads;
use crate::rows;
use crate::unreadable::Which;

/// The clock can have been so far ahead of what is kept of it.
const CLOCK_SLACK: Span = Span::from_secs(1);

/// How lists and claims find a job: a row of `jobs_arrived.sql`.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) num: i64,
    /// Its id, or what stands there.
    pub(crate) job: Result<JobId, Vec<u8>>,
    pub(crate) listed: bool,
    pending: bool,
    ready: bool,
    delayed_until: Option<Timestamp>,
    not_before: Option<Timestamp>,
    wait_type: Option<i64>,
    /// Another job of its session comes first.
    behind: bool,
}

impl Found {
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, Trouble> {
        let id = rows::bytes(row, 1).unwrap_or_default();
        Ok(Self {
            num: row.get(0)?,
            job: JobId::from_slice(id).ok_or_else(|| id.to_vec()),
            listed: row.get(2)?,
            pending: row.get(3)?,
            ready: row.get(4)?,
            delayed_until: rows::maybe(row, 5, rows::time)?,
            not_before: rows::maybe(row, 6, rows::time)?,
            wait_type: row.get(7)?,
            behind: row.get(8)?,
        })
    }

    /// What keeps it from being claimed at its time and not before, if anything does.
    pub(crate) fn misplaced(&self, now: Timestamp) -> Option<String> {
        let latest = now.after(CLOCK_SLACK);
        match (self.pending, self.ready, self.delayed_until) {
            (false, false, None) => None,
            (false, ..) => Some("it is not pending, and its row says that it can be claimed".to_owned()),
            (true, true, Some(_)) => Some("its row says that it can be claimed, and that it cannot yet".to_owned()),
            (true, true, None) if self.behind => {
                Some("it can be claimed, and another job of its session comes first".to_owned())
            }
            (true, true, None) => {
                let early = self.not_before.filter(|at| *at > latest)?;
                Some(format!("it can be claimed, and its time is {early}"))
            }
            (true, false, None) => (!self.behind).then(|| "it is pending, and no claim finds it".to_owned()),
            (true, false, Some(until)) => {
                if let Some(at) = self.not_before.filter(|at| *at > until) {
                    return Some(format!("it is claimed from {until} on, and its time is {at}"));
                }
                // One whose row could not be read is looked at again later than its time.
                let last = self.not_before.unwrap_or(until.min(latest)).max(latest.after(limits::SWEEP_BACKOFF_MAX));
                (until > last).then(|| format!("no claim finds it before {until}, which is not its time"))
            }
        }
    }

    /// What lists find it by that is not what its row says.
    pub(crate) fn unlike(&self, row: &JobRow, sql: &mut Prepared<'_>) -> Result<Option<String>, Trouble> {
        let waits = row.waiting.as_ref().map(|waiting| waiting.wait_type.code());
        if waits != self.wait_type {
            return Ok(Some(format!("it waits for {waits:?}, and is listed under {:?}", self.wait_type)));
        }
        for (key, value) in &row.labels {
            if !sql.exists(Query::LabelKnown, params![key, value, &row.id.to_bytes()[..]])? {
                return Ok(Some(format!("its label `{key}` does not find it")));
            }
        }
        Ok(None)
    }
}

impl Reads<'_> {
    /// What is amiss beside the jobs of these numbers; with the first of them, in the whole store.
    pub(crate) fn amiss(&mut self, from: u64, to: u64, end: u64) -> Result<Vec<String>, Trouble> {
        // Numbers that no job can have are looked at with the first and the last that one has.
        let (first, last) = (from == 0, from < end.max(1) && to >= end);
        let (from, to) = (if first { i64::MIN } else { int(from) }, if last { i64::MAX } else { int(to) });
        let stray = |row: &Row<'_>| {
            let (table, job, count) = (row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?);
            Ok::<_, Trouble>(format!("the table `{table}` has {count} of job number {job}, which is not there"))
        };
        let mut amiss = self.sql.all(Query::Strays, [from, to], stray)?;
        if first {
            amiss.extend(self.sql.all(Query::StraysById, [], |row| {
                let (table, count) = (row.get::<_, String>(0)?, row.get::<_, i64>(2)?);
                let job = Which::Job(rows::bytes(row, 1).unwrap_or_default());
                Ok::<_, Trouble>(format!("the table `{table}` has {count} of {job}, which is not there"))
            })?);
            amiss.extend(self.miscounted()?);
            amiss.extend(self.sql.all(Query::Documents, [], document)?.into_iter().flatten());
        }
        Ok(amiss)
    }

    /// Jobs per status, by the row that keeps their numbers and by their own.
    fn miscounted(&mut self) -> Result<Option<String>, Trouble> {
        let told = self.counts()?;
        let counted = self.counts_by(Query::JobsCounted)?;
        let some = |counts: &BTreeMap<_, u64>| format!("{counts:?}");
        Ok((told != counted).then(|| format!("the store counts {}, and has {}", some(&told), some(&counted))))
    }
}

/// What is wrong with a document, if anything is.
fn document(row: &Row<'_>) -> Result<Option<String>, Trouble> {
    let (what, name) = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
    if !rows::bytes(row, 3).is_ok_and(|doc| rows::bytes(row, 2).is_ok_and(|hash| Hash::of(doc).as_bytes() == hash)) {
        return Ok(Some(format!("the {what} `{name}`: its document does not have its hash")));
    }
    Ok((!row.get::<_, bool>(4)?).then(|| format!("the {what} `{name}`: its plan is not there")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn job(pending: bool, ready: bool, delayed_until: Option<Timestamp>) -> Found {
        let job = Ok(JobId::from_u128(1));
        let (behind, listed, not_before, num, wait_type) = (false, true, None, 1, None);
        Found { num, job, listed, pending, ready, delayed_until, not_before, wait_type, behind }
    }

    fn at(seconds: u64) -> Timestamp {
        NOW.after(Span::from_secs(seconds))
    }

    #[test]
    fn a_job_that_claims_find_at_its_time_is_in_its_place() {
        let past = Timestamp::from_micros(5);
        for found in [
            job(false, false, None),
            job(true, true, None),
            Found { not_before: Some(past), ..job(true, true, None) },
            Found { behind: true, ..job(true, false, None) },
            Found { not_before: Some(at(9_000)), ..job(true, false, Some(at(9_000))) },
            Found { behind: true, not_before: Some(at(9_000)), ..job(true, false, Some(at(9_000))) },
            // Its row could not be read a moment ago.
            Found { not_before: Some(past), ..job(true, false, Some(at(60))) },
            job(true, false, Some(at(60))),
            // Its time has come, and nobody has asked.
            Found { not_before: Some(past), ..job(true, false, Some(past)) },
        ] {
            assert_eq!(found.misplaced(NOW), None, "{found:?}");
        }
    }

    #[test]
    fn a_job_that_claims_miss_or_find_too_early_is_told() {
        for (found, words) in [
            (job(false, true, None), "not pending"),
            (job(false, false, Some(at(1))), "not pending"),
            (job(true, true, Some(at(1))), "that it cannot yet"),
            (job(true, false, None), "no claim finds it"),
            (Found { behind: true, ..job(true, true, None) }, "comes first"),
            (Found { not_before: Some(at(9)), ..job(true, true, None) }, "its time is"),
            (Found { not_before: Some(at(9)), ..job(true, false, Some(at(8))) }, "is claimed from"),
            (Found { not_before: Some(at(9)), ..job(true, false, Some(at(9_000))) }, "before"),
            (job(true, false, Some(at(9_000))), "before"),
        ] {
            let told = found.misplaced(NOW).unwrap_or_default();
            assert!(told.contains(words), "{found:?}: {told}");
        }
    }
}
