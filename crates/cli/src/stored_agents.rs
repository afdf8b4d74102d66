//! What agents of the database ask for that this process does not have: another process accepted them, with another
//! configuration.

use aetheris_core::id::TenantId;
use aetheris_core::limits;

use crate::error::Error;
use crate::wiring::Wired;

/// As many are told of; the others are counted.
const TOLD_MAX: usize = 16;

/// Warns of agents whose jobs would fail where this process runs them.
///
/// # Errors
/// The store cannot be asked.
pub(crate) async fn warn_of_unusable(wired: &Wired) -> Result<(), Error> {
    let Found { all, unusable } = unusable(wired).await?;
    for (agent, problem) in unusable.iter().take(TOLD_MAX) {
        tracing::warn!(%agent, problem, "an agent of this database cannot run here: if this process claims a job of it, the job fails at that step");
    }
    if let Some(more) = unusable.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        tracing::warn!(more, "further agents of this database cannot run here");
    }
    if !all {
        tracing::info!("this database has so many agents that not all were checked for whether they can run here");
    }
    Ok(())
}

/// What a look at the agents of a database has found.
pub(crate) struct Found {
    /// Whether it was a look at all of them: a start does not wait for more than a bound of pages.
    pub(crate) all: bool,
    /// Each agent that this process cannot run, and why.
    pub(crate) unusable: Vec<(String, String)>,
}

/// Looks through the agents of the database.
pub(crate) async fn unusable(wired: &Wired) -> Result<Found, Error> {
    let check = wired.check_agent();
    let (mut unusable, mut after) = (Vec::new(), None);
    for _ in 0..limits::START_AGENT_PAGES_MAX {
        let page = wired.rt.store.agents(TenantId::default(), after, limits::PAGE_JOBS_MAX).await;
        let page = page.map_err(anyhow::Error::from)?;
        for row in &page.agents {
            let problems = check(&row.agent);
            unusable.extend(problems.into_iter().map(|problem| (row.agent.agent.to_string(), problem.message)));
        }
        after = page.next;
        if after.is_none() {
            return Ok(Found { all: true, unusable });
        }
    }
    Ok(Found { all: false, unusable })
}
