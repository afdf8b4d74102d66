//! Agents and their plan documents.

use aetheris_core::id::{AgentName, TenantId};
use aetheris_store::{NewAgent, PutAgent};
use rusqlite::params;

use crate::error::Error;
use crate::queries::Query;
use crate::rows::Text;
use crate::tx::Tx;

/// Puts an agent in place of any of that name of its tenant, and keeps its plan under its hash.
pub(crate) fn put(tx: &mut Tx<'_, '_>, new: &NewAgent) -> Result<PutAgent, Error> {
    let agent = &new.agent;
    let (hash, plan_hash) = (agent.hash(), agent.plan.hash());
    let plan = aetheris_core::json::to_canonical(&agent.plan);
    let doc = aetheris_core::json::to_canonical(agent.as_ref());
    let tenant = tx.tenant_num(&new.tenant)?;
    let created = !tx.sql.exists(Query::AgentKnown, params![agent.agent.as_str(), tenant])?;
    tx.run(Query::PlanPut, params![&plan_hash.as_bytes()[..], Text(&plan)])?;
    tx.exactly_one(
        Query::AgentPut,
        params![
            agent.agent.as_str(),
            &hash.as_bytes()[..],
            &plan_hash.as_bytes()[..],
            agent.version,
            tx.now.micros(),
            Text(&doc),
            new.source,
            tenant,
        ],
    )?;
    tx.changes.bytes += u64::try_from(plan.len() + doc.len() + new.source.len()).unwrap_or(0);
    Ok(PutAgent { created, hash })
}

/// Takes an agent away.
pub(crate) fn delete(tx: &mut Tx<'_, '_>, tenant: &TenantId, name: &AgentName) -> Result<bool, Error> {
    Ok(tx.run(Query::AgentDelete, [name.as_str(), tenant.as_str()])? > 0)
}
