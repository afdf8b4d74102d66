//! Pages of jobs. Which index serves a filter is decided here and named in the statement.

use aetheris_core::id::{AgentName, SessionId};
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_store::{JobFilter, JobPage, JobRow};
use rusqlite::types::Null;
use rusqlite::{ToSql, params};

use crate::codes::{Code, count};
use crate::error::Trouble;
use crate::queries::Query;
use crate::read::{Reads, mask};
use crate::rows;

/// Greater than every id.
const LAST: [u8; 17] = [0xff; 17];

impl Reads<'_> {
    pub(crate) fn jobs(&mut self, filter: &JobFilter) -> Result<JobPage, Trouble> {
        let limit = filter.limit.min(limits::PAGE_JOBS_MAX);
        let mut jobs = self.at_once(|reads| reads.candidates(filter, limit + 1))?;
        jobs.sort_by_key(|row| std::cmp::Reverse(row.id));
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().map(|row| row.id).filter(|_| more);
        Ok(JobPage { jobs, next })
    }

    /// The newest jobs that fit, from one index or from one per status. Most jobs of a store have
    /// completed: only who asks for those, or for all, walks along every job.
    fn candidates(&mut self, filter: &JobFilter, limit: usize) -> Result<Vec<JobRow>, Trouble> {
        if filter.session.is_some() {
            return self.page(Query::JobsPageOfSession, filter, limit, None);
        }
        // A paused job may have an open wait, which can end.
        let blocked = [JobStatus::Waiting, JobStatus::Parked, JobStatus::Paused];
        let asked = match (filter.statuses.is_empty(), filter.blocked_on.is_some()) {
            (true, true) => &blocked[..],
            _ => &filter.statuses[..],
        };
        if asked.is_empty() || asked.contains(&JobStatus::Completed) {
            return self.page(Query::JobsPage, filter, limit, None);
        }
        let mut found = Vec::new();
        for status in JobStatus::ALL.into_iter().filter(|status| asked.contains(status)) {
            let query = match status {
                JobStatus::Pending => Query::JobsPagePending,
                JobStatus::Running => Query::JobsPageRunning,
                JobStatus::Waiting
                | JobStatus::Parked
                | JobStatus::Failed
                | JobStatus::Cancelled
                | JobStatus::Paused => Query::JobsPageOfStatus,
                JobStatus::Completed => Query::JobsPage,
            };
            found.extend(self.page(query, filter, limit, Some(status))?);
        }
        Ok(found)
    }

    fn page(
        &mut self,
        query: Query,
        filter: &JobFilter,
        limit: usize,
        status: Option<JobStatus>,
    ) -> Result<Vec<JobRow>, Trouble> {
        let before = filter.before.map(aetheris_core::id::JobId::to_bytes);
        let before = before.as_ref().map_or(&LAST[..], |id| &id[..]);
        let (label, value) = filter.label.as_ref().map(|(key, value)| (key.as_str(), value.as_str())).unzip();
        let blocked = filter.blocked_on.is_some();
        let wait_type = filter.blocked_on.flatten().map(Code::code);
        let statuses = status.map_or_else(|| mask(&filter.statuses), |status| mask(&[status]));
        let agent = filter.agent.as_ref().map(AgentName::as_str);
        let session = filter.session.as_ref().map(SessionId::as_str);
        let limit = count(limit);
        let fixed = params![before, agent, session, statuses, blocked, wait_type, label, value, limit];
        // Only one of the statements names the status by itself.
        let number = status.map(Code::code);
        let mut all: Vec<&dyn ToSql> = fixed.to_vec();
        if query == Query::JobsPageOfStatus {
            all.push(number.as_ref().map_or(&Null as &dyn ToSql, |number| number));
        }
        let found = self.sql.all(query, &all[..], rows::job)?;
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }
}
