//! Claims and renewals.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use aetheris_core::id::JobId;
use aetheris_core::job::JobTrigger;
use aetheris_core::limits;
use aetheris_core::time::{Span, Timestamp};

use super::tables::Tables;
use crate::claim::{ClaimIds, ClaimRequest, Claimed, Heartbeat, LeaseRenewal, Renewal};
use crate::clock::Look;
use crate::decide::{self, Candidate, ClaimWrites};
use crate::error::{ErrorKind, StoreError};
use crate::query::History;
use crate::rules;
use crate::scope::Scope;

impl Tables {
    pub(super) fn claim(
        &mut self,
        request: &ClaimRequest,
        look: Look,
        sent_at: Duration,
    ) -> Result<Vec<Claimed>, StoreError> {
        let now = look.now;
        let looked_at = if aetheris_fault::planted!("lost-candidate") { 1 } else { usize::MAX };
        let mut ready: Vec<(Reverse<i32>, JobId)> = self
            .heads()
            .take(looked_at)
            .filter(|(_, status, not_before, _)| rules::claimable(*status, *not_before, now))
            .map(|(id, _, _, priority)| (Reverse(priority), id))
            .collect();
        ready.sort_unstable();
        let taken: Vec<_> = ready.into_iter().zip(request.ids.iter().take(limits::CLAIM_JOBS_MAX)).collect();
        if !taken.is_empty() {
            self.tick(look);
            self.count(0, taken.len() * 2, 0);
        }
        taken.into_iter().map(|((_, job), ids)| self.take(job, *ids, request, now, sent_at)).collect()
    }

    /// Jobs that no earlier unfinished job of their session holds up, by id.
    pub(super) fn heads(&self) -> impl Iterator<Item = (JobId, aetheris_core::job::JobStatus, Option<Timestamp>, i32)> {
        let open = || self.jobs.values().filter(|job| !job.row.status.is_terminal());
        let of_tenant = |tenant| Some(tenant).filter(|_| !aetheris_fault::planted!("session-of-any-tenant"));
        let mut first: BTreeMap<_, usize> = BTreeMap::new();
        for job in open() {
            if let Some(session) = &job.row.session {
                let conversation = (of_tenant(&job.row.tenant), &job.row.agent, session);
                let earliest = first.entry(conversation).or_insert(job.arrival);
                if job.arrival < *earliest && !aetheris_fault::planted!("session-by-id") {
                    *earliest = job.arrival;
                }
            }
        }
        open().filter_map(move |job| {
            let row = &job.row;
            let session =
                row.session.as_ref().and_then(|session| first.get(&(of_tenant(&row.tenant), &row.agent, session)));
            let next = session.is_none_or(|earliest| *earliest == job.arrival);
            let next = next || aetheris_fault::planted!("session-order-ignored");
            next.then_some((row.id, row.status, row.not_before, row.priority))
        })
    }

    /// How long until the first delayed job may be claimed.
    pub(super) fn next_claimable(&self, look: Look) -> Option<Span> {
        let now = look.now;
        let delayed = self.heads().filter(|(_, status, at, _)| rules::claimable(*status, None, now) && at.is_some());
        delayed.filter_map(|(_, _, at, _)| at).min().map(|at| at.since(now))
    }

    fn take(
        &mut self,
        id: JobId,
        ids: ClaimIds,
        request: &ClaimRequest,
        now: Timestamp,
        sent_at: Duration,
    ) -> Result<Claimed, StoreError> {
        let corrupt = |what| StoreError::new(ErrorKind::Corrupt, "claim", what);
        let generation = self.generation();
        let job = self.jobs.get_mut(&id).ok_or_else(|| corrupt("a job has gone".to_owned()))?;
        let row = &job.row;
        let paused = row.paused.is_some();
        let candidate = Candidate { fence: row.fence, head: row.head, id, last_event: true, paused, seq: row.seq };
        let claimed =
            decide::claim(&candidate, ids, request, generation, now).map_err(|why| corrupt(why.to_owned()))?;
        let ClaimWrites { event, fence, head, holder, seq: _ } = claimed;
        let lease_until = holder.lease_until;
        job.row.status = job.row.status.next(JobTrigger::Claim).map_err(|illegal| corrupt(illegal.to_string()))?;
        job.row.fence = fence;
        job.row.not_before = None;
        job.row.holder = Some(holder);
        job.row.updated_at = now;
        job.append(event, fence, head, now);
        // As much as the others put beside a claim: whoever runs on this store reads the rest by itself too.
        let short =
            |history: &History| u64::try_from(history.events.len()).is_ok_and(|e| e <= limits::CLAIM_EVENTS_MAX);
        let history = self.history(&Scope::System, id, false)?.filter(short);
        Ok(Claimed { attempt_id: ids.attempt, fence, history, job: id, lease_until, sent_at })
    }

    pub(super) fn heartbeat(&mut self, request: &Heartbeat, look: Look, sent_at: Duration) -> Vec<Renewal> {
        let now = look.now;
        let any_fence = aetheris_fault::planted!("renewal-by-worker");
        let expired_too = aetheris_fault::planted!("lease-never-expires-check");
        let mut renew = |lease: &LeaseRenewal| {
            let row = self.jobs.get_mut(&lease.job).map(|job| &mut job.row);
            let row = row.filter(|row| row.fence == lease.fence || any_fence)?;
            let holder = row.holder.as_mut().filter(|holder| holder.worker == request.worker)?;
            let holder = Some(holder).filter(|holder| holder.is_live(now) || expired_too)?;
            holder.lease_until = now.after(request.ttl);
            Some(Renewal::Renewed { end_requested: row.end_requested.is_some(), job: lease.job, sent_at })
        };
        let answers: Vec<_> =
            request.leases.iter().map(|lease| renew(lease).unwrap_or(Renewal::Refused(lease.job))).collect();
        let renewed = answers.iter().filter(|answer| matches!(answer, Renewal::Renewed { .. })).count();
        if renewed > 0 {
            self.tick(look);
            self.count(0, renewed, 0);
        }
        answers
    }
}
