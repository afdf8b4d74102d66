//! Pages of jobs. Which index serves a filter is decided here and named in the statement.

use aetheris_core::event::EventKind;
use aetheris_core::id::{AgentName, JobId, SessionId};
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_core::plan::WaitType;
use aetheris_core::time::Timestamp;
use aetheris_store::{
    BlockedOn, DoubtCursor, DoubtFilter, DoubtPage, DoubtRow, EventRow, JobFilter, JobPage, JobRow, Told, WaitPage,
    WaitRow,
};
use rusqlite::types::Value;
use rusqlite::{Row, ToSql, params};

use crate::codes::{Code, count, int};
use crate::error::Error;
use crate::queries::Query;
use crate::read::{Reads, mask};
use crate::rows;
use crate::unreadable::{self, passed_over};

/// So many jobs are looked through for what no index finds.
const FEW: u64 = 5_000;
/// How often one page is looked for behind calls that it does not show.
const LOOKS_MAX: usize = 8;
/// Greater than every id.
const LAST: [u8; 17] = [0xff; 17];

impl Reads<'_> {
    pub(crate) fn jobs(&mut self, filter: &JobFilter) -> Result<JobPage, Error> {
        let limit = filter.limit.min(limits::PAGE_JOBS_MAX);
        let mut found = self.at_once(|reads| {
            let mut found = Vec::new();
            for tenant in reads.tenants(&filter.scope)? {
                found.extend(reads.candidates(tenant, filter, limit + 1)?);
            }
            Ok(found)
        })?;
        newest(&mut found, limit + 1);
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().map(|found| found.id).filter(|_| more);
        // A job that cannot be read has its place, and keeps no other from being listed.
        Ok(JobPage { jobs: found.into_iter().filter_map(|found| found.row).collect(), next })
    }

    /// Blocked jobs with the times of their waits: the moment of the event that began it, which is among the last, and
    /// its timer.
    pub(crate) fn waits(&mut self, filter: &JobFilter) -> Result<WaitPage, Error> {
        let filter = JobFilter { blocked_on: Some(filter.blocked_on.unwrap_or(BlockedOn::Anything)), ..filter.clone() };
        let JobPage { jobs, next } = self.jobs(&filter)?;
        let mut waits = Vec::with_capacity(jobs.len());
        for row in jobs {
            waits.push(self.wait(row)?);
        }
        Ok(WaitPage { next, waits })
    }

    fn wait(&mut self, row: JobRow) -> Result<WaitRow, Error> {
        let times = passed_over(self.times(&row), format_args!("since when {} waits", row.id))?;
        let (since, deadline) = times.unwrap_or((row.updated_at, None));
        Ok(WaitRow { deadline, since, row })
    }

    /// Since and until when a job waits.
    fn times(&mut self, row: &JobRow) -> Result<(Timestamp, Option<Timestamp>), Error> {
        let id = row.id.to_bytes();
        let began = params![&id[..], EventKind::JobWaiting.code()];
        let since = self.sql.first(Query::EventLastOf, began, |found| rows::time(found, 0))?;
        let deadline = match row.wait_timer() {
            Some(timer) => {
                let named = params![&id[..], timer.to_string()];
                self.sql.first(Query::TimerDue, named, |found| rows::time(found, 0))?
            }
            None => None,
        };
        Ok((since.unwrap_or(row.updated_at), deadline))
    }

    /// Calls in doubt, with what their jobs' newest events tell of them.
    pub(crate) fn doubts(&mut self, filter: &DoubtFilter) -> Result<DoubtPage, Error> {
        let limit = filter.limit.min(limits::PAGE_JOBS_MAX);
        self.at_once(|reads| {
            let (mut page, mut after) = (DoubtPage::default(), filter.after);
            for _ in 0..LOOKS_MAX {
                let calls = reads.calls_of(filter, after, limit + 1)?;
                // All calls of one job come at once.
                let more = filter.job.is_none() && calls.len() > limit;
                for call in calls {
                    let place = DoubtCursor::of(&call);
                    let (key, job) = (call.key, call.job);
                    // A call whose job cannot be read keeps no other from being listed.
                    let what = format_args!("the call {key} of {job}");
                    let Some(doubt) = passed_over(reads.doubt(call, filter), what)?.flatten() else {
                        after = Some(place);
                        continue;
                    };
                    if page.is_full(limit) {
                        page.next = after;
                        return Ok(page);
                    }
                    page.take(doubt, limit);
                    after = Some(place);
                }
                if !more {
                    return Ok(page);
                }
            }
            // The next page looks further.
            page.next = after;
            Ok(page)
        })
    }

    /// Calls that may be in doubt, in the order of their places.
    fn calls_of(
        &mut self,
        filter: &DoubtFilter,
        after: Option<DoubtCursor>,
        limit: usize,
    ) -> Result<Vec<LedgerRow>, Error> {
        match (filter.job, filter.unresolved) {
            (Some(job), _) => {
                let Some(num) = self.number(&filter.scope, job)? else { return Ok(Vec::new()) };
                let mut calls = self.sql.all(Query::LedgerByJob, [num], rows::ledger)?;
                calls.sort_by_key(DoubtCursor::of);
                Ok(calls)
            }
            (None, None) => self.calls(Query::LedgerInDoubt, &filter.scope, after, limit),
            (None, Some(true)) => self.calls(Query::LedgerUnresolved, &filter.scope, after, limit),
            (None, Some(false)) => self.calls(Query::LedgerInDoubtOpen, &filter.scope, after, limit),
        }
    }

    /// What is told of a call, if it is one that is asked for.
    fn doubt(&mut self, call: LedgerRow, filter: &DoubtFilter) -> Result<Option<DoubtRow>, Error> {
        let Some(row) = self.job(&filter.scope, call.job)?.filter(|row| filter.wants(&call, row.status)) else {
            return Ok(None);
        };
        let num = self.number(&filter.scope, call.job)?;
        let (mut told, mut before) = (Told::default(), i64::MAX);
        while let Some(event) = self.sql.first(Query::EventDoubtBefore, params![num, before], rows::event)? {
            let event: EventRow = event;
            if !told.take(&call, &event) {
                break;
            }
            before = int(event.seq);
        }
        let mut evidence = self.evidence(&filter.scope, call.job)?;
        evidence.retain(|late| late.key == call.key);
        Ok(Some(DoubtRow { call, evidence, told, wait: self.wait(row)? }))
    }

    /// The newest jobs that fit: from the one index whose first columns are what is asked for or, where several states
    /// are, from one for each.
    fn candidates(&mut self, tenant: i64, filter: &JobFilter, limit: usize) -> Result<Vec<Found>, Error> {
        if filter.session.is_some() {
            return self.page(tenant, Query::JobsPageOfSession, filter, limit, Part::Whole);
        }
        if filter.label.is_some() && !self.are_few(filter)? {
            return self.page(tenant, Query::JobsPageOfLabel, filter, limit, Part::Whole);
        }
        if filter.statuses.is_empty() {
            return match (filter.blocked_on, &filter.agent) {
                (Some(on), _) => self.blocked(tenant, filter, limit, on),
                (None, Some(_)) => self.page(tenant, Query::JobsPageOfAgent, filter, limit, Part::Whole),
                (None, None) => self.page(tenant, Query::JobsPage, filter, limit, Part::Whole),
            };
        }
        let mut found = Vec::new();
        for status in JobStatus::ALL.into_iter().filter(|status| filter.statuses.contains(status)) {
            found.extend(self.of_status(tenant, filter, limit, status)?);
        }
        Ok(found)
    }

    fn of_status(
        &mut self,
        tenant: i64,
        filter: &JobFilter,
        limit: usize,
        status: JobStatus,
    ) -> Result<Vec<Found>, Error> {
        let part = Part::Status(status);
        match (status, &filter.agent) {
            (JobStatus::Running, _) => self.page(tenant, Query::JobsPageRunning, filter, limit, part),
            // Most jobs of an agent have completed.
            (JobStatus::Completed, Some(_)) => self.page(tenant, Query::JobsPageOfAgent, filter, limit, part),
            (
                JobStatus::Pending
                | JobStatus::Waiting
                | JobStatus::Parked
                | JobStatus::Failed
                | JobStatus::Cancelled
                | JobStatus::Paused,
                Some(_),
            ) => self.page(tenant, Query::JobsPageOfAgentStatus, filter, limit, part),
            (
                JobStatus::Pending
                | JobStatus::Waiting
                | JobStatus::Parked
                | JobStatus::Completed
                | JobStatus::Failed
                | JobStatus::Cancelled
                | JobStatus::Paused,
                None,
            ) => self.page(tenant, Query::JobsPageOfStatus, filter, limit, part),
        }
    }

    /// Jobs that wait for one thing, or for any.
    fn blocked(&mut self, tenant: i64, filter: &JobFilter, limit: usize, on: BlockedOn) -> Result<Vec<Found>, Error> {
        let all = [WaitType::Child, WaitType::Human, WaitType::Signal, WaitType::Timer, WaitType::Webhook];
        let asked = |of: &WaitType| match on {
            BlockedOn::Anything => true,
            BlockedOn::Someone => !matches!(of, WaitType::Timer | WaitType::Child),
            BlockedOn::Type(asked) => asked == *of,
        };
        let mut found = Vec::new();
        for wait_type in all.into_iter().filter(asked) {
            let filter = JobFilter { blocked_on: Some(BlockedOn::Type(wait_type)), ..filter.clone() };
            found.extend(self.page(tenant, Query::JobsPageOfWait, &filter, limit, Part::Whole)?);
        }
        if on == BlockedOn::Someone {
            // Found by the calls in doubt, all of which are looked through.
            found.extend(self.page(tenant, Query::JobsPageOfDoubt, filter, limit, Part::Whole)?);
        }
        Ok(found)
    }

    /// Whether so few jobs are in the asked states that they are looked through for the rest of the filter.
    fn are_few(&mut self, filter: &JobFilter) -> Result<bool, Error> {
        Ok(!filter.statuses.is_empty() && self.count(&filter.statuses)? <= FEW)
    }

    fn count(&mut self, statuses: &[JobStatus]) -> Result<u64, Error> {
        let counts = self.counts()?;
        Ok(statuses.iter().filter_map(|status| counts.get(status)).sum())
    }

    fn page(
        &mut self,
        tenant: i64,
        query: Query,
        filter: &JobFilter,
        limit: usize,
        part: Part,
    ) -> Result<Vec<Found>, Error> {
        let before = filter.before.map_or_else(|| LAST.to_vec(), |id| id.to_bytes().to_vec());
        let (label, value) = filter.label.as_ref().map(|(key, value)| (key.as_str(), value.as_str())).unzip();
        let (blocked, wait_type) = match filter.blocked_on {
            None => (0, None),
            Some(BlockedOn::Anything) => (1, None),
            Some(BlockedOn::Someone) => (2, None),
            Some(BlockedOn::Type(wait_type)) => (1, Some(wait_type.code())),
        };
        let status = part.status();
        let statuses = status.map_or_else(|| mask(&filter.statuses), |status| mask(&[status]));
        let agent = filter.agent.as_ref().map(AgentName::as_str);
        let session = filter.session.as_ref().map(SessionId::as_str);
        let number = status.map(Code::code);
        // A job whose id cannot be read has no place that a page could name: others come for it.
        unreadable::page(Value::Blob(before), limit, |before, limit| {
            let limit = count(limit);
            let fixed = params![before, agent, session, statuses, blocked, wait_type, label, value, limit, tenant];
            let mut all: Vec<&dyn ToSql> = fixed.to_vec();
            match (&part, query) {
                (Part::Status(_), Query::JobsPageOfAgentStatus | Query::JobsPageOfStatus) => all.push(&number),
                (Part::Status(_) | Part::Whole, _) => {}
            }
            self.sql.all(query, &all[..], |row| {
                let found = passed_over(Found::read(row), format_args!("job number {}", row.get::<_, i64>(0)?))?;
                Ok((row.get(rows::JOB_ID_AT)?, found))
            })
        })
    }
}

/// Which part of what fits one statement finds.
#[derive(Debug, Clone, Copy)]
enum Part {
    Status(JobStatus),
    Whole,
}

impl Part {
    fn status(self) -> Option<JobStatus> {
        match self {
            Self::Status(status) => Some(status),
            Self::Whole => None,
        }
    }
}

/// What a list has found in one place: a job, or one that cannot be read.
#[derive(Debug)]
struct Found {
    id: JobId,
    row: Option<JobRow>,
}

impl Found {
    fn read(row: &Row<'_>) -> Result<Self, Error> {
        let id = rows::id_of_job(row)?;
        let job = passed_over(rows::job(row), id)?;
        Ok(Self { id, row: job.map(|(_, job)| job) })
    }
}

/// Keeps no more than the newest.
fn newest(found: &mut Vec<Found>, limit: usize) {
    found.sort_by_key(|found| std::cmp::Reverse(found.id));
    found.truncate(limit);
}
