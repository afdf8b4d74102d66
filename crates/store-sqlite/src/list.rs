//! Pages of jobs. Which index serves a filter is decided here and named in the statement.

use aetheris_core::event::EventKind;
use aetheris_core::id::{AgentName, SessionId};
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_core::plan::WaitType;
use aetheris_store::{
    DoubtCursor, DoubtFilter, DoubtPage, DoubtRow, EventRow, JobFilter, JobPage, JobRow, Told, WaitPage, WaitRow,
};
use rusqlite::{ToSql, params};

use crate::codes::{Code, count, int};
use crate::error::Trouble;
use crate::queries::Query;
use crate::read::{Reads, mask};
use crate::rows;

/// So many jobs are looked through for what no index finds.
const FEW: u64 = 5_000;
/// Greater than every id.
const LAST: [u8; 17] = [0xff; 17];

impl Reads<'_> {
    pub(crate) fn jobs(&mut self, filter: &JobFilter) -> Result<JobPage, Trouble> {
        let limit = filter.limit.min(limits::PAGE_JOBS_MAX);
        let mut jobs = self.at_once(|reads| reads.candidates(filter, limit + 1))?;
        newest(&mut jobs, limit + 1);
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().map(|row| row.id).filter(|_| more);
        Ok(JobPage { jobs, next })
    }

    /// Blocked jobs with the times of their waits: the moment of the event that began it, which is among the last, and
    /// its timer.
    pub(crate) fn waits(&mut self, filter: &JobFilter) -> Result<WaitPage, Trouble> {
        let filter = JobFilter { blocked_on: Some(filter.blocked_on.flatten()), ..filter.clone() };
        let JobPage { jobs, next } = self.jobs(&filter)?;
        let mut waits = Vec::with_capacity(jobs.len());
        for row in jobs {
            waits.push(self.wait(row)?);
        }
        Ok(WaitPage { next, waits })
    }

    fn wait(&mut self, row: JobRow) -> Result<WaitRow, Trouble> {
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
        Ok(WaitRow { deadline, since: since.unwrap_or(row.updated_at), row })
    }

    /// Calls in doubt, with what their jobs' newest events tell of them.
    pub(crate) fn doubts(&mut self, filter: &DoubtFilter) -> Result<DoubtPage, Trouble> {
        let limit = filter.limit.min(limits::PAGE_JOBS_MAX);
        self.at_once(|reads| {
            let mut calls = match (filter.job, filter.unresolved) {
                (Some(job), _) => match reads.number(job)? {
                    Some(num) => reads.sql.all(Query::LedgerByJob, [num], rows::ledger)?,
                    None => Vec::new(),
                },
                (None, None) => reads.calls(Query::LedgerInDoubt, filter.after, limit + 1)?,
                (None, Some(true)) => reads.calls(Query::LedgerUnresolved, filter.after, limit + 1)?,
                (None, Some(false)) => reads.calls(Query::LedgerInDoubtOpen, filter.after, limit + 1)?,
            };
            calls.sort_by_key(DoubtCursor::of);
            let mut page = DoubtPage::default();
            for call in calls {
                let Some(row) = reads.job(call.job)? else { continue };
                if !filter.wants(&call, row.status) {
                    continue;
                }
                if page.doubts.len() == limit {
                    page.next = page.doubts.last().map(|doubt| DoubtCursor::of(&doubt.call));
                    break;
                }
                page.doubts.push(reads.doubt(call, row)?);
            }
            Ok(page)
        })
    }

    fn doubt(&mut self, call: LedgerRow, row: JobRow) -> Result<DoubtRow, Trouble> {
        let num = self.number(call.job)?;
        let (mut told, mut before) = (Told::default(), i64::MAX);
        while let Some(event) = self.sql.first(Query::EventDoubtBefore, params![num, before], rows::event)? {
            let event: EventRow = event;
            if !told.take(&call, &event) {
                break;
            }
            before = int(event.seq);
        }
        let mut evidence = self.evidence(call.job)?;
        evidence.retain(|late| late.key == call.key);
        Ok(DoubtRow { call, evidence, told, wait: self.wait(row)? })
    }

    /// The newest jobs that fit: from the one index whose first columns are what is asked for or, where several states
    /// are, from one for each.
    fn candidates(&mut self, filter: &JobFilter, limit: usize) -> Result<Vec<JobRow>, Trouble> {
        if filter.session.is_some() {
            return self.page(Query::JobsPageOfSession, filter, limit, Part::Whole);
        }
        if filter.label.is_some() && !self.are_few(filter)? {
            return self.page(Query::JobsPageOfLabel, filter, limit, Part::Whole);
        }
        if filter.statuses.is_empty() {
            return match (filter.blocked_on, &filter.agent) {
                (Some(_), _) => self.blocked(filter, limit),
                (None, Some(_)) => self.page(Query::JobsPageOfAgent, filter, limit, Part::Whole),
                (None, None) => self.page(Query::JobsPage, filter, limit, Part::Whole),
            };
        }
        let mut found = Vec::new();
        for status in JobStatus::ALL.into_iter().filter(|status| filter.statuses.contains(status)) {
            found.extend(self.of_status(filter, limit, status)?);
        }
        Ok(found)
    }

    fn of_status(&mut self, filter: &JobFilter, limit: usize, status: JobStatus) -> Result<Vec<JobRow>, Trouble> {
        let part = Part::Status(status);
        match (status, &filter.agent) {
            (JobStatus::Running, _) => self.page(Query::JobsPageRunning, filter, limit, part),
            // Most jobs of an agent have completed.
            (JobStatus::Completed, Some(_)) => self.page(Query::JobsPageOfAgent, filter, limit, part),
            (
                JobStatus::Pending
                | JobStatus::Waiting
                | JobStatus::Parked
                | JobStatus::Failed
                | JobStatus::Cancelled
                | JobStatus::Paused,
                Some(_),
            ) => self.page(Query::JobsPageOfAgentStatus, filter, limit, part),
            (
                JobStatus::Pending
                | JobStatus::Waiting
                | JobStatus::Parked
                | JobStatus::Completed
                | JobStatus::Failed
                | JobStatus::Cancelled
                | JobStatus::Paused,
                None,
            ) => self.page(Query::JobsPageOfStatus, filter, limit, part),
        }
    }

    /// Jobs that wait for one thing, or for any.
    fn blocked(&mut self, filter: &JobFilter, limit: usize) -> Result<Vec<JobRow>, Trouble> {
        let all = [WaitType::Human, WaitType::Signal, WaitType::Timer, WaitType::Webhook];
        let mut found = Vec::new();
        for wait_type in all.into_iter().filter(|of| filter.blocked_on.flatten().is_none_or(|asked| asked == *of)) {
            let filter = JobFilter { blocked_on: Some(Some(wait_type)), ..filter.clone() };
            found.extend(self.page(Query::JobsPageOfWait, &filter, limit, Part::Whole)?);
        }
        Ok(found)
    }

    /// Whether so few jobs are in the asked states that they are looked through for the rest of the filter.
    fn are_few(&mut self, filter: &JobFilter) -> Result<bool, Trouble> {
        Ok(!filter.statuses.is_empty() && self.count(&filter.statuses)? <= FEW)
    }

    fn count(&mut self, statuses: &[JobStatus]) -> Result<u64, Trouble> {
        let counts = self.counts()?;
        Ok(statuses.iter().filter_map(|status| counts.get(status)).sum())
    }

    fn page(&mut self, query: Query, filter: &JobFilter, limit: usize, part: Part) -> Result<Vec<JobRow>, Trouble> {
        let before = filter.before.map(aetheris_core::id::JobId::to_bytes);
        let before = before.as_ref().map_or(&LAST[..], |id| &id[..]);
        let (label, value) = filter.label.as_ref().map(|(key, value)| (key.as_str(), value.as_str())).unzip();
        let blocked = filter.blocked_on.is_some();
        let wait_type = filter.blocked_on.flatten().map(Code::code);
        let status = part.status();
        let statuses = status.map_or_else(|| mask(&filter.statuses), |status| mask(&[status]));
        let agent = filter.agent.as_ref().map(AgentName::as_str);
        let session = filter.session.as_ref().map(SessionId::as_str);
        let limit = count(limit);
        let fixed = params![before, agent, session, statuses, blocked, wait_type, label, value, limit];
        let mut all: Vec<&dyn ToSql> = fixed.to_vec();
        let number = status.map(Code::code);
        match (&part, query) {
            (Part::Status(_), Query::JobsPageOfAgentStatus | Query::JobsPageOfStatus) => all.push(&number),
            (Part::Status(_) | Part::Whole, _) => {}
        }
        // A job that cannot be read is not listed, and keeps no other from being listed.
        let found = self.sql.all(query, &all[..], |row| match rows::job(row) {
            Ok((_, job)) => Ok(Some(job)),
            Err(Trouble::Corrupt(why)) => {
                tracing::error!(why, "a job that cannot be read is left out of a list");
                Ok(None)
            }
            Err(trouble) => Err(trouble),
        })?;
        Ok(found.into_iter().flatten().collect())
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

/// Keeps no more than the newest.
fn newest(jobs: &mut Vec<JobRow>, limit: usize) {
    jobs.sort_by_key(|row| std::cmp::Reverse(row.id));
    jobs.truncate(limit);
}
