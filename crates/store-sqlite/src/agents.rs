//! Agents and their plan documents.

use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, TenantId};
use aetheris_core::plan::Plan;
use aetheris_store::{NewAgent, PutAgent};
use rusqlite::params;

use crate::error::Error;
use crate::queries::Query;
use crate::rows::Text;
use crate::tx::Tx;

/// Puts an agent in place of any of that name of its tenant, and keeps its plans under their hashes.
pub(crate) fn put(tx: &mut Tx<'_, '_>, new: &NewAgent) -> Result<PutAgent, Error> {
    let agent = &new.agent;
    let (hash, plan_hash) = (agent.hash(), agent.plan.hash());
    let doc = aetheris_core::json::to_canonical(agent.as_ref());
    let tenant = tx.tenant_num(&new.tenant)?;
    let created = !tx.sql.exists(Query::AgentKnown, params![agent.agent.as_str(), tenant])?;
    let mut plans = 0;
    for plan in agent.plans() {
        plans += plan_document(tx, &plan)?;
    }
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
    tx.changes.bytes += u64::try_from(plans + doc.len() + new.source.len()).unwrap_or(0);
    Ok(PutAgent { created, hash })
}

/// Keeps a plan document under its hash. How many bytes it has.
pub(crate) fn plan_document(tx: &mut Tx<'_, '_>, plan: &Plan) -> Result<usize, Error> {
    let text = aetheris_core::json::to_canonical(plan);
    tx.run(Query::PlanPut, params![&Hash::of(&text).as_bytes()[..], Text(&text)])?;
    Ok(text.len())
}

/// Takes an agent away.
pub(crate) fn delete(tx: &mut Tx<'_, '_>, tenant: &TenantId, name: &AgentName) -> Result<bool, Error> {
    Ok(tx.run(Query::AgentDelete, [name.as_str(), tenant.as_str()])? > 0)
}
