//! The questions.

use std::collections::BTreeMap;
use std::ops::Bound;

use aetheris_core::event::{EventKind, TimerId};
use aetheris_core::id::{AgentName, InstanceId, JobId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Fence;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_core::time::Timestamp;

use super::tables::{Job, Tables};
use crate::doubt::{DoubtCursor, DoubtFilter, DoubtPage, DoubtRow, Told};
use crate::error::{ErrorKind, StoreError};
use crate::outbox::{ChildPage, ChildRow, PromiseRow};
use crate::query::{
    AgentPage, BlockedOn, Dossier, Dossiers, DueTimers, EventRow, Evidence, ExpiredLease, Glance, History, JobFilter,
    JobPage, JobRow, KeptHead, Placing, StoreStatus, TimerRow, WaitPage, WaitRow,
};
use crate::rules;
use crate::scope::Scope;
use crate::unit::ChildOf;

/// Jobs that one question for dossiers is answered with.
const DOSSIERS_TOLD: u64 = 24;

impl Tables {
    pub(super) fn history(&self, scope: &Scope, id: JobId, full: bool) -> Result<Option<History>, StoreError> {
        let Some(job) = self.job(scope, id) else {
            return Ok(None);
        };
        let checkpoint = job.checkpoint.clone().filter(|checkpoint| !full && checkpoint.is_readable());
        let after = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.seq);
        let events = job.events.iter().filter(|row| row.seq > after).map(EventRow::decode).collect::<Result<_, _>>();
        Ok(Some(History {
            checkpoint,
            effects: job.effects.values().cloned().collect(),
            events: events.map_err(|error| StoreError::new(ErrorKind::Corrupt, "history", error))?,
            kept: job.kept().cloned().collect(),
            ledger: self.ledger.values().filter(|row| row.job == id).cloned().collect(),
            row: job.row.clone(),
        }))
    }

    pub(super) fn history_behind(
        &self,
        scope: &Scope,
        id: JobId,
        seq: u64,
        since: Timestamp,
    ) -> Result<Option<History>, StoreError> {
        let history = self.history(scope, id, true)?;
        Ok(history.map(|mut history| {
            history.events.retain(|event| event.seq > seq);
            history.effects.retain(|effect| effect.at >= since);
            history
        }))
    }

    pub(super) fn glance(&self, scope: &Scope, id: JobId) -> Result<Option<Glance>, StoreError> {
        let (Some(job), Some(history)) = (self.job(scope, id), self.history(scope, id, false)?) else {
            return Ok(None);
        };
        let newest = history.checkpoint.as_ref();
        let after = newest.map_or(0, |checkpoint| checkpoint.seq);
        let bytes = newest.map_or(0, |checkpoint| checkpoint.state.len())
            + job.events.iter().filter(|row| row.seq > after).map(|row| row.payload.len()).sum::<usize>()
            + history.kept.iter().map(|signal| signal.payload.canonical().len() + signal.key.len()).sum::<usize>()
            + history.effects.iter().map(|effect| effect.result.canonical().len()).sum::<usize>();
        let events = u64::try_from(history.events.len()).unwrap_or(u64::MAX);
        let short = events <= limits::LOOK_EVENTS_MAX && bytes <= limits::LOOK_BYTES_MAX;
        Ok(Some(if short { Glance::Short(Box::new(history)) } else { Glance::Long }))
    }

    pub(super) fn ahead_in_session(&self, scope: &Scope, id: JobId) -> Option<JobRow> {
        let of = self.job(scope, id)?;
        let session = of.row.session.as_ref()?;
        let whose = |row: &JobRow| (row.tenant.clone(), row.agent.clone());
        let same = |row: &JobRow| whose(row) == whose(&of.row) && row.session.as_ref() == Some(session);
        let ahead = self.jobs.values().filter(|job| job.arrival < of.arrival && same(&job.row));
        let open = ahead.filter(|job| !job.row.status.is_terminal());
        open.min_by_key(|job| job.arrival).map(|job| job.row.clone())
    }

    pub(super) fn waits(&self, filter: &JobFilter) -> WaitPage {
        let filter = JobFilter { blocked_on: Some(filter.blocked_on.unwrap_or(BlockedOn::Anything)), ..filter.clone() };
        let JobPage { jobs, next } = self.page(&filter);
        WaitPage { next, waits: jobs.into_iter().map(|row| self.wait(row)).collect() }
    }

    fn wait(&self, row: JobRow) -> WaitRow {
        let job = self.jobs.get(&row.id);
        let began = |event: &&EventRow| event.kind == EventKind::JobWaiting.code();
        let since = job.and_then(|job| job.events.iter().rev().find(began)).map_or(row.updated_at, |event| event.at);
        let deadline = job.zip(row.wait_timer()).and_then(|(job, timer)| job.timers.get(&timer).copied());
        WaitRow { deadline, row, since }
    }

    pub(super) fn agent_page(&self, tenant: &TenantId, after: Option<AgentName>, limit: usize) -> AgentPage {
        let mut page = AgentPage::default();
        // No name comes before the empty one.
        let behind = Bound::Excluded((tenant.clone(), after.unwrap_or_else(|| AgentName::from(""))));
        let own = self.agents.range((behind, Bound::Unbounded)).take_while(|((of, _), _)| of == tenant);
        for (_, row) in own {
            if !page.take(row.clone(), limit) {
                break;
            }
        }
        page
    }

    pub(super) fn doubts(&self, filter: &DoubtFilter) -> DoubtPage {
        let of = |call: &LedgerRow| self.jobs.get(&call.job);
        let there = |call: &LedgerRow| of(call).filter(|job| filter.scope.admits(&job.row.tenant));
        let wanted = |call: &&LedgerRow| there(call).is_some_and(|job| filter.wants(call, job.row.status));
        let mut calls: Vec<_> = self.ledger.values().filter(wanted).cloned().collect();
        calls.sort_by_key(DoubtCursor::of);
        let mut page = DoubtPage::default();
        for call in calls {
            let Some(job) = of(&call) else { continue };
            let mut told = Told::default();
            let tells = |row: &&EventRow| Told::KINDS.iter().any(|kind| kind.code() == row.kind);
            for event in job.events.iter().rev().filter(tells) {
                if !told.take(&call, event) {
                    break;
                }
            }
            let mut evidence = self.evidence(&filter.scope, call.job);
            evidence.retain(|late| late.key == call.key);
            if !page.take(DoubtRow { evidence, told, wait: self.wait(job.row.clone()), call }, filter.limit) {
                break;
            }
        }
        page
    }

    /// Fewer than are asked for, as of a store where jobs are large: whoever asks goes on behind the last.
    pub(super) fn dossiers(&self, from: u64, to: u64, now: Timestamp) -> Dossiers {
        let to = to.min(from.saturating_add(DOSSIERS_TOLD));
        let end = u64::try_from(self.jobs.len()).unwrap_or(u64::MAX);
        let mut jobs: Vec<_> =
            self.jobs.values().map(|job| (u64::try_from(job.arrival).unwrap_or(u64::MAX), job)).collect();
        jobs.retain(|(arrival, _)| (from..to).contains(arrival));
        jobs.sort_unstable_by_key(|(arrival, _)| *arrival);
        let dossier = |job: &Job| Dossier {
            checkpoint: job.checkpoint.clone().filter(crate::Checkpoint::is_readable),
            consumed: job.consumed().collect(),
            effects: job.effects.values().cloned().collect(),
            events: job.events.clone(),
            evidence: self.evidence(&Scope::System, job.row.id),
            kept: job.kept().cloned().collect(),
            ledger: self.ledger.values().filter(|row| row.job == job.row.id).cloned().collect(),
            placing: self.placing(&job.row, now),
            row: job.row.clone(),
            timers: self.timers(&Scope::System, job.row.id),
        };
        let jobs = jobs.into_iter().map(|(_, job)| Ok(dossier(job))).collect();
        Dossiers { amiss: Vec::new(), end, jobs, next: to, now }
    }

    /// No column says here how a job is found: a claim asks the rows.
    fn placing(&self, row: &JobRow, now: Timestamp) -> Placing {
        let pending = row.status == JobStatus::Pending;
        let due = rules::claimable(row.status, row.not_before, now);
        Placing {
            behind: pending && self.ahead_in_session(&Scope::System, row.id).is_some(),
            delayed_until: row.not_before.filter(|_| pending && !due),
            not_before: row.not_before,
            pending,
            ready: due && self.heads().any(|(head, ..)| head == row.id),
        }
    }

    pub(super) fn page(&self, filter: &JobFilter) -> JobPage {
        let limit = filter.limit.min(limits::PAGE_JOBS_MAX);
        let mut found = self.jobs.values().rev().map(|job| &job.row).filter(|row| fits(row, filter)).cloned();
        let jobs: Vec<JobRow> = found.by_ref().take(limit).collect();
        let next = found.next().and_then(|_| jobs.last()).map(|row| row.id);
        JobPage { jobs, next }
    }

    pub(super) fn events(&self, scope: &Scope, job: JobId, after: u64, limit: usize) -> Vec<EventRow> {
        let limit = limit.min(limits::PAGE_EVENTS_MAX);
        let rows = self.job(scope, job).map(|job| job.events.as_slice()).unwrap_or_default();
        let mut bytes = 0;
        let within = |row: &&EventRow| {
            let room = bytes < limits::PAGE_EVENTS_BYTES_MAX;
            bytes += row.payload.len();
            room
        };
        rows.iter().filter(|row| row.seq > after).take(limit).take_while(within).cloned().collect()
    }

    pub(super) fn in_doubt(&self, limit: usize) -> Vec<LedgerRow> {
        let mut rows: Vec<_> = self.ledger.values().filter(|row| rules::in_doubt(row)).cloned().collect();
        rows.sort_by_key(|row| (row.updated_at, row.key));
        rows.truncate(limit.min(limits::PAGE_JOBS_MAX));
        rows
    }

    pub(super) fn unresolved(&self, limit: usize) -> Vec<LedgerRow> {
        let ended =
            |row: &&LedgerRow| self.jobs.get(&row.job).is_some_and(|job| rules::unresolved(row, job.row.status));
        let mut rows: Vec<_> = self.ledger.values().filter(ended).cloned().collect();
        rows.sort_by_key(|row| (row.updated_at, row.key));
        rows.truncate(limit.min(limits::PAGE_JOBS_MAX));
        rows
    }

    pub(super) fn kept(&self, scope: &Scope, job: JobId) -> Vec<KeptHead> {
        self.job(scope, job).into_iter().flat_map(Job::kept).take(limits::KEPT_SHOWN_MAX).map(KeptHead::of).collect()
    }

    pub(super) fn evidence(&self, scope: &Scope, job: JobId) -> Vec<Evidence> {
        let mut rows = self.job(scope, job).map(|job| job.evidence.clone()).unwrap_or_default();
        rows.sort_by_key(|row| (row.at, row.permit_id));
        rows
    }

    pub(super) fn timers(&self, scope: &Scope, job: JobId) -> Vec<TimerRow> {
        let timers = self.job(scope, job).map(|job| job.timers.iter());
        let rows = timers.into_iter().flatten().map(|(timer, due)| TimerRow { due: *due, job, timer: timer.clone() });
        sorted(rows.collect())
    }

    pub(super) fn due_timers(&self, after: Option<&TimerRow>, limit: usize, now: Timestamp) -> DueTimers {
        let all = sorted(self.jobs.keys().flat_map(|job| self.timers(&Scope::System, *job)).collect());
        let next = all.iter().map(|row| row.due).find(|due| *due > now);
        let limit = limit.min(limits::SWEEP_ROWS_MAX);
        let due = all.into_iter().filter(|row| row.due <= now);
        let timers = due.filter(|row| after.is_none_or(|after| place(after) < place(row))).take(limit).collect();
        DueTimers { next, now, timers }
    }

    pub(super) fn children(&self, scope: &Scope, job: JobId, after: Option<JobId>, limit: usize) -> ChildPage {
        let all = self.job(scope, job).and_then(|_| self.children.get(&job)).map_or(&[][..], Vec::as_slice);
        let from =
            after.map_or(0, |after| all.iter().position(|(child, _)| *child == after).map_or(all.len(), |at| at + 1));
        let limit = limit.min(limits::PAGE_JOBS_MAX);
        let rest = all.get(from..).unwrap_or_default();
        let row = |(child, of): &(JobId, ChildOf)| {
            let row = self.jobs.get(child)?.row.clone();
            Some(ChildRow { node: of.node.clone(), on_parent_end: of.on_parent_end, row })
        };
        let children: Vec<ChildRow> = rest.iter().take(limit).filter_map(row).collect();
        let next = children.last().map(|child| child.row.id).filter(|_| rest.len() > limit);
        ChildPage { children, next, unreadable: 0 }
    }

    pub(super) fn outbox(&self, after: Option<u64>, limit: usize) -> Vec<PromiseRow> {
        let behind = after.map_or(0, |after| after + 1);
        let rows = self.outbox.range(behind..).take(limit.min(limits::SWEEP_ROWS_MAX));
        rows.map(|(num, (author, promise))| PromiseRow { author: *author, promise: promise.clone(), num: *num })
            .collect()
    }

    pub(super) fn promised(&self, author: JobId, target: JobId) -> Vec<PromiseRow> {
        let about = |row: &PromiseRow| row.author == author && row.promise.target(author) == target;
        let all = self.outbox.iter().map(|(num, (author, promise))| PromiseRow {
            author: *author,
            promise: promise.clone(),
            num: *num,
        });
        all.filter(about).collect()
    }

    pub(super) fn expired(&self, after: Option<ExpiredLease>, limit: usize, now: Timestamp) -> Vec<ExpiredLease> {
        let holders = self.jobs.values().filter_map(|job| Some((job.row.holder.as_ref()?, &job.row)));
        let mut rows: Vec<_> = holders
            .filter(|(holder, _)| !holder.is_live(now))
            .map(|(holder, row)| ExpiredLease { until: holder.lease_until, job: row.id, fence: row.fence })
            .filter(|lease| after.is_none_or(|after| (after.until, after.job) < (lease.until, lease.job)))
            .collect();
        rows.sort_unstable();
        rows.truncate(limit.min(limits::SWEEP_ROWS_MAX));
        rows
    }

    pub(super) fn held_by(&self, instance: InstanceId, after: Option<JobId>, limit: usize) -> Vec<(JobId, Fence)> {
        let rows = self.jobs.values().map(|job| &job.row).filter(|row| after.is_none_or(|after| after < row.id));
        let held = rows.filter(|row| row.holder.as_ref().is_some_and(|holder| holder.instance == instance));
        held.take(limit.min(limits::SWEEP_ROWS_MAX)).map(|row| (row.id, row.fence)).collect()
    }

    pub(super) fn status(&self, now: Timestamp) -> StoreStatus {
        let mut jobs = BTreeMap::new();
        for job in self.jobs.values() {
            *jobs.entry(job.row.status).or_insert(0) += 1;
        }
        StoreStatus {
            backend: "memory",
            durability: "none: everything ends with the process".to_owned(),
            generation: self.generation(),
            jobs,
            now,
            writer: self.stats,
        }
    }
}

/// Oldest first; equal moments by job and name.
fn sorted(mut rows: Vec<TimerRow>) -> Vec<TimerRow> {
    rows.sort_by(|a, b| place(a).cmp(&place(b)));
    rows
}

fn place(row: &TimerRow) -> (Timestamp, JobId, &TimerId) {
    (row.due, row.job, &row.timer)
}

fn fits(row: &JobRow, filter: &JobFilter) -> bool {
    let waits = |wanted: BlockedOn| row.waiting.as_ref().is_some_and(|waiting| wanted.is_on(waiting));
    filter.scope.admits(&row.tenant)
        && filter.agent.as_ref().is_none_or(|agent| row.agent == *agent)
        && filter.before.is_none_or(|before| row.id < before)
        && filter.blocked_on.is_none_or(waits)
        && filter.label.as_ref().is_none_or(|(key, value)| row.labels.get(key) == Some(value))
        && filter.session.as_ref().is_none_or(|session| row.session.as_ref() == Some(session))
        && (filter.statuses.is_empty() || filter.statuses.contains(&row.status))
}
