//! The questions, each asked on a connection that cannot write.

use std::collections::BTreeMap;
use std::sync::Arc;

use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, IdempotencyKey, InstanceId, JobId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::lease::Fence;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_core::plan::Plan;
use aetheris_core::time::Timestamp;
use aetheris_store::clock::StoreClock;
use aetheris_store::{
    AgentPage, AgentRow, ChildPage, ChildRow, DoubtCursor, DueTimers, EffectRow, EventRow, Evidence, ExpiredLease,
    JobRow, KeptHead, PlanDocument, PromiseRow, Scope, TimerRow,
};
use rusqlite::{Row, params};

use crate::codes::{Code, count, int};
use crate::documents::Documents;
use crate::error::Error;
use crate::history::{self, Bound, Looked, Start};
use crate::promises;
use crate::queries::{Prepared, Query};
use crate::rows::{self, RawEffect};
use crate::tx::Meta;
use crate::unreadable::{self, Which, passed_over};

/// A reader: a connection's statements and what is shared between readers.
pub(crate) struct Reads<'c> {
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) documents: Arc<Documents>,
    pub(crate) sql: Prepared<'c>,
}

impl Reads<'_> {
    /// Several statements on one state of the store.
    pub(crate) fn at_once<T>(&mut self, ask: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if aetheris_fault::planted!("torn-reads") {
            return ask(self);
        }
        self.sql.run(Query::BeginRead, [])?;
        let answer = ask(self);
        self.sql.run(Query::Commit, [])?;
        answer
    }

    /// The number of a job that is there for whoever asks.
    pub(crate) fn number(&mut self, scope: &Scope, job: JobId) -> Result<Option<i64>, Error> {
        Ok(self.sql.first(Query::JobNum, params![&job.to_bytes()[..], name(scope)], |row| row.get(0))?)
    }

    /// The numbers of the tenants that a question is about.
    pub(crate) fn tenants(&mut self, scope: &Scope) -> Result<Vec<i64>, Error> {
        let number = |row: &Row<'_>| Ok::<i64, Error>(row.get(0)?);
        match scope {
            Scope::System => self.sql.all(Query::TenantsAll, [], number),
            Scope::Tenant(tenant) => self.sql.all(Query::TenantNum, [tenant.as_str()], number),
        }
    }

    /// The store's clock, inside a transaction.
    pub(crate) fn now(&mut self) -> Result<(Timestamp, u32), Error> {
        let meta = Meta::read(&mut self.sql)?;
        Ok((self.clock.look(Some(meta.mark)).now, meta.generation))
    }

    pub(crate) fn job(&mut self, scope: &Scope, job: JobId) -> Result<Option<JobRow>, Error> {
        Ok(self.sql.first(Query::JobById, params![&job.to_bytes()[..], name(scope)], rows::job)?.map(|(_, row)| row))
    }

    pub(crate) fn ahead_in_session(&mut self, scope: &Scope, job: JobId) -> Result<Option<JobRow>, Error> {
        let ahead = self.sql.first(Query::SessionAhead, params![&job.to_bytes()[..], name(scope)], rows::job);
        Ok(passed_over(ahead, format_args!("the job ahead of {job} in its session"))?.flatten().map(|(_, row)| row))
    }

    pub(crate) fn history(&mut self, scope: &Scope, job: JobId, from: Start, bound: Bound) -> Result<Looked, Error> {
        self.at_once(|reads| {
            match reads.sql.first(Query::JobById, params![&job.to_bytes()[..], name(scope)], rows::job)? {
                None => Ok(Looked::Absent),
                Some(found) => history::look(&mut reads.sql, found, from, bound),
            }
        })
    }

    pub(crate) fn events(
        &mut self,
        scope: &Scope,
        job: JobId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<EventRow>, Error> {
        let Some(num) = self.number(scope, job)? else {
            return Ok(Vec::new());
        };
        let limit = count(limit.min(limits::PAGE_EVENTS_MAX));
        let mut rows = self.sql.get(Query::EventsPage)?.query(params![num, int(after), limit])?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        while bytes < limits::PAGE_EVENTS_BYTES_MAX
            && let Some(row) = rows.next()?
        {
            let event: EventRow = rows::event(row)?;
            bytes += event.payload.len();
            events.push(event);
        }
        Ok(events)
    }

    pub(crate) fn effect(
        &mut self,
        scope: &Scope,
        job: JobId,
        key: IdempotencyKey,
    ) -> Result<Option<EffectRow>, Error> {
        let Some(num) = self.number(scope, job)? else {
            return Ok(None);
        };
        let effect = self.sql.first(Query::EffectNewest, params![num, &key.to_bytes()[..]], rows::effect)?;
        effect.map(RawEffect::decode).transpose()
    }

    /// The job of a client's key, and the hash of the request that made it.
    pub(crate) fn client_key(
        &mut self,
        tenant: &TenantId,
        agent: &AgentName,
        key: &str,
    ) -> Result<Option<(JobId, Hash)>, Error> {
        self.sql.first(Query::ClientKey, params![agent.as_str(), key, tenant.as_str()], rows::client_key)
    }

    pub(crate) fn agent(&mut self, tenant: &TenantId, name: &AgentName) -> Result<Option<AgentRow>, Error> {
        let documents = Arc::clone(&self.documents);
        self.sql.first(Query::AgentRead, [name.as_str(), tenant.as_str()], |row| agent(&documents, row))
    }

    pub(crate) fn agents(
        &mut self,
        tenant: &TenantId,
        after: Option<&AgentName>,
        limit: usize,
    ) -> Result<AgentPage, Error> {
        let documents = Arc::clone(&self.documents);
        let mut page = AgentPage::default();
        let read = |row: &Row<'_>| {
            let name: String = row.get(5)?;
            passed_over(agent(&documents, row), format_args!("the agent `{name}`"))
        };
        let take = |row: Option<AgentRow>| row.is_none_or(|row| page.take(row, limit));
        let behind = [after.map_or("", AgentName::as_str), tenant.as_str()];
        self.sql.until(Query::AgentsPage, behind, read, take)?;
        Ok(page)
    }

    pub(crate) fn plan(&mut self, hash: Hash) -> Result<Option<PlanDocument>, Error> {
        let plan = self.sql.first(Query::PlanRead, [&hash.as_bytes()[..]], |row| {
            rows::json::<Plan>("a plan document", rows::bytes(row, 0)?)
        })?;
        Ok(plan.map(|plan| PlanDocument { hash, plan: Arc::new(plan) }))
    }

    pub(crate) fn in_doubt(&mut self, limit: usize) -> Result<Vec<LedgerRow>, Error> {
        self.calls(Query::LedgerInDoubt, &Scope::System, None, limit.min(limits::PAGE_JOBS_MAX))
    }

    pub(crate) fn unresolved(&mut self, limit: usize) -> Result<Vec<LedgerRow>, Error> {
        self.calls(Query::LedgerUnresolved, &Scope::System, None, limit.min(limits::PAGE_JOBS_MAX))
    }

    /// Rows of one of the lists of doubts, those behind a place only: of one tenant, or of all, merged from those of each.
    /// One that cannot be read is passed over.
    pub(crate) fn calls(
        &mut self,
        list: Query,
        scope: &Scope,
        after: Option<DoubtCursor>,
        limit: usize,
    ) -> Result<Vec<LedgerRow>, Error> {
        let at = after.map_or(i64::MIN, |place| place.updated_at.micros());
        // No key comes before the empty one.
        let key = after.map_or_else(Vec::new, |place| place.key.to_bytes().to_vec());
        let mut calls = Vec::new();
        for tenant in self.tenants(scope)? {
            calls.extend(unreadable::page((at, key.clone()), limit, |(at, key), wanted| {
                self.sql.all(list, params![count(wanted), at, key, tenant], |row| {
                    let (at, key): (_, Vec<u8>) = (row.get(13)?, row.get(7)?);
                    let call = passed_over(rows::ledger(row), format_args!("the call {}", Which::Call(&key)))?;
                    Ok(((at, key), call))
                })
            })?);
        }
        calls.sort_by_key(DoubtCursor::of);
        calls.truncate(limit);
        Ok(calls)
    }

    pub(crate) fn evidence(&mut self, scope: &Scope, job: JobId) -> Result<Vec<Evidence>, Error> {
        match self.number(scope, job)? {
            Some(num) => self.sql.all(Query::EvidenceByJob, [num], rows::evidence),
            None => Ok(Vec::new()),
        }
    }

    pub(crate) fn kept(&mut self, scope: &Scope, job: JobId) -> Result<Vec<KeptHead>, Error> {
        match self.number(scope, job)? {
            Some(num) => {
                let heads = self.sql.all(Query::InboxHeads, params![num, count(limits::KEPT_SHOWN_MAX)], |row| {
                    passed_over(rows::kept_head(row), format_args!("a kept signal of {job}"))
                })?;
                Ok(heads.into_iter().flatten().collect())
            }
            None => Ok(Vec::new()),
        }
    }

    pub(crate) fn timers(&mut self, scope: &Scope, job: JobId) -> Result<Vec<TimerRow>, Error> {
        if self.number(scope, job)?.is_none() {
            return Ok(Vec::new());
        }
        self.sql.all(Query::TimersByJob, [&job.to_bytes()[..]], rows::timer)
    }

    pub(crate) fn children(
        &mut self,
        scope: &Scope,
        job: JobId,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<ChildPage, Error> {
        self.at_once(|reads| {
            let Some(parent) = reads.number(scope, job)? else { return Ok(ChildPage::default()) };
            let after = match after {
                Some(after) => match reads.number(scope, after)? {
                    Some(after) => after,
                    None => return Ok(ChildPage::default()),
                },
                None => 0,
            };
            let limit = limit.min(limits::PAGE_JOBS_MAX);
            let mut unreadable = 0;
            let found = unreadable::page(after, limit + 1, |after, wanted| {
                reads.sql.all(Query::ChildrenPage, params![parent, after, count(wanted)], |row| {
                    let child: i64 = row.get(28)?;
                    let read = passed_over(rows::child(row), format_args!("child {child} of {job}"))?;
                    unreadable += usize::from(read.is_none());
                    Ok((child, read))
                })
            })?;
            let more = found.len() > limit;
            let children: Vec<ChildRow> = found.into_iter().take(limit).collect();
            let next = children.last().map(|child| child.row.id).filter(|_| more);
            Ok(ChildPage { children, next, unreadable })
        })
    }

    pub(crate) fn outbox(&mut self, after: Option<u64>, limit: usize) -> Result<Vec<PromiseRow>, Error> {
        let limit = limit.min(limits::SWEEP_ROWS_MAX);
        unreadable::page(int(after.unwrap_or(0)), limit, |after, wanted| {
            self.sql.all(Query::OutboxPage, params![after, count(wanted)], |row| {
                let num: i64 = row.get(0)?;
                Ok((num, passed_over(promises::read(row), format_args!("promise {num} in the outbox"))?))
            })
        })
    }

    pub(crate) fn promised(&mut self, author: JobId, target: JobId) -> Result<Vec<PromiseRow>, Error> {
        let about = params![&author.to_bytes()[..], &target.to_bytes()[..]];
        self.sql.all(Query::OutboxAbout, about, promises::read)
    }

    pub(crate) fn due_timers(&mut self, after: Option<&TimerRow>, limit: usize) -> Result<DueTimers, Error> {
        self.at_once(|reads| {
            let (now, _) = reads.now()?;
            let limit = limit.min(limits::SWEEP_ROWS_MAX);
            let place = after.map(|after| (after.due, after.job.to_bytes().to_vec(), after.timer.to_string()));
            let timers = unreadable::page(place, limit, |place, wanted| {
                let found = match place {
                    None => reads.sql.all(Query::TimersDue, params![now.micros(), count(wanted)], rows::raw_timer)?,
                    Some((due, job, timer)) => {
                        let place = params![now.micros(), count(wanted), due.micros(), job, timer];
                        reads.sql.all(Query::TimersDueAfter, place, rows::raw_timer)?
                    }
                };
                let read = |(due, job, timer): (Timestamp, Vec<u8>, String)| {
                    let parsed = rows::parsed_timer(due, &job, &timer).map_err(Error::Corrupt);
                    let parsed = passed_over(parsed, format_args!("the due timer `{timer}` of {}", Which::Job(&job)))?;
                    Ok((Some((due, job, timer)), parsed))
                };
                found.into_iter().map(read).collect()
            })?;
            let next = reads.sql.first(Query::TimersNext, [now.micros()], |row| row.get::<_, Option<i64>>(0))?;
            Ok(DueTimers { next: next.flatten().map(Timestamp::from_micros), now, timers })
        })
    }

    pub(crate) fn expired(&mut self, after: Option<ExpiredLease>, limit: usize) -> Result<Vec<ExpiredLease>, Error> {
        self.at_once(|reads| {
            let (now, _) = reads.now()?;
            let limit = limit.min(limits::SWEEP_ROWS_MAX);
            let (until, job) = after.map_or((i64::MIN, [0; 16]), |after| (after.until.micros(), after.job.to_bytes()));
            unreadable::page((until, job.to_vec()), limit, |(until, job), wanted| {
                reads.sql.all(Query::LeasesExpired, params![now.micros(), count(wanted), until, job], |row| {
                    let (until, job): (_, Vec<u8>) = (row.get(3)?, row.get(0)?);
                    let what = format_args!("the expired lease of {}", Which::Job(&job));
                    let lease = passed_over(rows::expired(row), what)?;
                    Ok(((until, job), lease))
                })
            })
        })
    }

    pub(crate) fn held_by(
        &mut self,
        instance: InstanceId,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<(JobId, Fence)>, Error> {
        let limit = limit.min(limits::SWEEP_ROWS_MAX);
        let after = after.map(|after| after.to_bytes().to_vec()).unwrap_or_default();
        unreadable::page(after, limit, |after, wanted| {
            self.sql.all(Query::LeasesOf, params![&instance.to_bytes()[..], count(wanted), after], |row| {
                let job: Vec<u8> = row.get(0)?;
                let lease = passed_over(rows::lease(row), format_args!("the lease of {}", Which::Job(&job)))?;
                Ok((job, lease))
            })
        })
    }

    /// The jobs of each status, by the store's own row.
    pub(crate) fn counts(&mut self) -> Result<BTreeMap<JobStatus, u64>, Error> {
        let jobs = self.sql.first(Query::MetaCounts, [], |row| {
            let mut jobs = BTreeMap::new();
            for (column, status) in JobStatus::ALL.into_iter().enumerate() {
                jobs.insert(status, rows::number(row, column)?);
            }
            Ok::<_, Error>(jobs)
        })?;
        Ok(jobs.unwrap_or_default())
    }

    /// The clock, the generation and the jobs of each status that has any.
    pub(crate) fn status(&mut self) -> Result<(Timestamp, u32, BTreeMap<JobStatus, u64>), Error> {
        self.at_once(|reads| {
            let (now, generation) = reads.now()?;
            let mut jobs = reads.counts()?;
            jobs.retain(|_, count| *count > 0);
            Ok((now, generation, jobs))
        })
    }
}

/// The tenant whose jobs alone are there; none where everybody's are.
fn name(scope: &Scope) -> Option<&str> {
    scope.tenant().map(TenantId::as_str)
}

/// A row of the agents' statements.
fn agent(documents: &Documents, row: &Row<'_>) -> Result<AgentRow, Error> {
    let hash = rows::id(row, 0, Hash::from_slice)?;
    let agent = documents.agent(hash, rows::bytes(row, 2)?)?;
    Ok(AgentRow {
        agent,
        hash,
        plan_hash: rows::id(row, 1, Hash::from_slice)?,
        source: row.get(3)?,
        updated_at: rows::time(row, 4)?,
    })
}

/// The statuses of a filter as a bit for each.
pub(crate) fn mask(statuses: &[JobStatus]) -> i64 {
    let all = if statuses.is_empty() { &JobStatus::ALL[..] } else { statuses };
    all.iter().fold(0, |mask, status| mask | (1 << status.code()))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use aetheris_harness::Folder;
    use aetheris_store::system::SystemClock;

    use super::*;

    /// A history is several questions, and its answer is of one moment.
    #[test]
    fn questions_that_are_asked_at_once_see_one_state() {
        let folder = Folder::new("read");
        let path = folder.join("aetheris.db");
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE meta (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO meta VALUES (1, 0)").unwrap();
        let conn = crate::open::reader(&path).unwrap();
        let clock = Arc::new(StoreClock::new(Arc::new(SystemClock)));
        let mut reads = Reads { clock, documents: Arc::default(), sql: Prepared::new(&conn) };
        let look = |reads: &mut Reads<'_>| -> i64 {
            reads.sql.connection().query_row("SELECT n FROM meta", [], |row| row.get(0)).unwrap()
        };
        let seen = reads.at_once(|reads| {
            let before = look(reads);
            writer.execute_batch("UPDATE meta SET n = n + 1").unwrap();
            Ok((before, look(reads)))
        });
        assert_eq!(seen.unwrap(), (0, 0));
        assert_eq!(reads.at_once(|reads| Ok(look(reads))).unwrap(), 1);
        // A question that fails leaves nothing open.
        reads.at_once(|_| Err::<(), _>(Error::Corrupt("a row".to_owned()))).unwrap_err();
        assert_eq!(reads.at_once(|reads| Ok(look(reads))).unwrap(), 1);
    }
}
