//! Renewals: all leases of a worker in one transaction, each where its fence, its worker and its end allow.

use std::time::Duration;

use aetheris_store::{Heartbeat, Renewal};
use rusqlite::params;

use crate::error::Error;
use crate::queries::Query;
use crate::tx::Tx;

/// Renews what may be renewed and says of every lease whether it was.
pub(crate) fn renew(tx: &mut Tx<'_, '_>, request: &Heartbeat, sent_at: Duration) -> Result<Vec<Renewal>, Error> {
    let lease_until = tx.now.after(request.ttl).micros();
    let alive_after = if aetheris_fault::planted!("lease-never-expires-check") { i64::MIN } else { tx.now.micros() };
    let mut answers = Vec::with_capacity(request.leases.len());
    for lease in &request.leases {
        let mut fence = lease.fence;
        if aetheris_fault::planted!("renewal-by-worker") {
            let job = tx.sql.first(Query::JobHot, [&lease.job.to_bytes()[..]], crate::rows::hot_job)?;
            fence = job.map_or(fence, |job| job.fence);
        }
        let ended = tx.sql.first(
            Query::JobRenew,
            params![
                lease_until,
                &lease.job.to_bytes()[..],
                fence.generation,
                fence.epoch,
                request.worker.as_str(),
                alive_after
            ],
            |row| row.get::<_, bool>(0),
        )?;
        answers.push(match ended {
            Some(end_requested) => {
                tx.changes.rows += 1;
                tx.changes.bytes += 8;
                Renewal::Renewed { end_requested, job: lease.job, sent_at }
            }
            None => Renewal::Refused(lease.job),
        });
    }
    Ok(answers)
}
