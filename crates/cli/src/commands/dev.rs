//! `dev`: server and worker in one process, on a folder that is its own.

use std::sync::Arc;

use aetheris_core::id::{InstanceId, TenantId};
use aetheris_runtime::OpError;
use aetheris_server::Ending;
use aetheris_store::NewAgent;
use aetheris_store::system::System;

use super::Context;
use super::agent_files::{self, Good};
use super::lifecycle::{announce, start_server, until_stopped};
use crate::args;
use crate::config::Config;
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::DataLock;
use crate::logging;
use crate::out::Out;
use crate::pid::PidFile;
use crate::progress::Progress;
use crate::role::Role;
use crate::signals::StopRequests;
use crate::stored_agents;
use crate::supervise::Tasks;
use crate::wiring::{self, Wired};

/// API, worker and sweeps in one process, on the database in a folder that is its own.
///
/// # Errors
/// The folder is in use, an agent file is wrong, or the process cannot start.
pub async fn run(given: &args::Dev, config: Config, context: &Context) -> Result<Exit, Error> {
    let out = &context.out;
    let Some(agents) = agents(given, &config, context)? else { return Ok(Exit::CheckFailed) };
    let instance = InstanceId::from_u128(System::machine().ids.secret());
    if config.jobstore.database().is_some() && !config.data_folder().exists() {
        // Nobody is there who would be named instead, and nothing is to be left behind.
        wiring::can_listen(config.server.listen, Role::Dev)?;
    }
    // The folder is taken before the database is opened: a second process changes nothing.
    let lock = config.jobstore.database().map(|_| DataLock::take(config.data_folder(), instance));
    let mut lock = lock.transpose()?;
    let _pid = lock.as_ref().map(|_| PidFile::write(config.data_folder()));
    let opening = Progress::of(out, "opening the database");
    let wired = Wired { instance, ..Wired::new(config, &context.env, Role::Dev, given.moved)? };
    drop(opening);
    aetheris_fault::crash_point!("start.opened");
    for agent in agents {
        put(&wired, agent, out).await?;
    }
    aetheris_fault::crash_point!("start.agents_put");
    stored_agents::warn_of_unusable(&wired).await?;
    if let Some(lock) = &mut lock {
        take_back(lock, async |dead| aetheris_scheduler::reclaim_instance(&wired.rt, dead).await).await?;
        aetheris_fault::crash_point!("start.taken_back");
    }
    let listener = wired.listen().await?;
    let address = listener.local_addr().map_err(anyhow::Error::from)?;
    // Heard from here on: whoever has seen this process begin can end it in good order.
    let signals = StopRequests::new()?;
    let mut tasks = Tasks::default();
    let ending = Ending::default();
    wired.start_sweeps(&mut tasks, &ending.draining);
    wired.start_worker(&mut tasks)?;
    start_server(&wired, listener, &mut tasks, &ending);
    aetheris_fault::crash_point!("start.listening");
    announce(out, &wired, &format!("aetheris dev: listening on http://{address}"), Some(address));
    until_stopped(&wired, signals, &ending, tasks, out).await
}

/// The agents that are to be put, or every mistake of every file said: nothing is made before all are good.
fn agents(given: &args::Dev, config: &Config, context: &Context) -> Result<Option<Vec<NewAgent>>, Error> {
    let files = agent_files::read(&given.agents);
    if !agent_files::all_good(&files) {
        agent_files::mistakes(&files).iter().for_each(|line| logging::mistake(&context.out, line));
        return Ok(None);
    }
    let check = wiring::agent_check(config, &context.env, Role::Dev)?;
    let (mut agents, mut good) = (Vec::new(), true);
    for file in files {
        let Ok(Good { agent, text }) = file.parsed else { continue };
        for problem in check(&agent) {
            good = false;
            let (path, line) = problem.place(&text);
            let told = format!("{}:{line}: {path}: {}", agent_files::shown(file.path), problem.message);
            logging::mistake(&context.out, &told);
        }
        agents.push(NewAgent { agent: Arc::new(agent), source: text, tenant: TenantId::default() });
    }
    Ok(good.then_some(agents))
}

/// Puts an agent, and says so where it takes the place of another file: whoever starts this again with an old file undoes
/// what was put since.
async fn put(wired: &Wired, new: NewAgent, out: &Out) -> Result<(), Error> {
    let store = &wired.rt.store;
    let (name, version) = (new.agent.agent.clone(), new.agent.version.clone());
    let before = store.agent(new.tenant.clone(), name.clone()).await.map_err(anyhow::Error::from)?;
    let put = store.put_agent(new).await.map_err(anyhow::Error::from)?;
    if let Some(before) = before.filter(|before| before.hash != put.hash) {
        let became = super::agent::replaces((before.hash, &before.agent.version), (put.hash, &version));
        logging::warn(out, &format!("{name} version {version} {became}"));
    }
    Ok(())
}

/// The lock proves that its earlier holders are dead: their jobs are pending again before the first
/// claim.
async fn take_back(
    lock: &mut DataLock,
    reclaim: impl AsyncFn(InstanceId) -> Result<usize, OpError>,
) -> Result<(), Error> {
    let dead = lock.predecessors().to_vec();
    if aetheris_fault::planted!("dead-forgotten-first") {
        lock.forget_predecessors()?;
    }
    for dead in dead {
        match reclaim(dead).await {
            Ok(0) => {}
            Ok(jobs) => tracing::info!(instance = %dead, jobs, "took back the jobs of a predecessor that is dead"),
            // One job that cannot be read must not keep all others from running.
            Err(OpError::StateConflict(why)) => tracing::error!(instance = %dead, %why, "left to expire"),
            Err(error) => return Err(anyhow::Error::from(error).into()),
        }
    }
    aetheris_fault::crash_point!("start.forgetting");
    lock.forget_predecessors()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use aetheris_core::id::JobId;
    use aetheris_harness::Folder;

    use super::*;

    /// Whoever comes after a process that ended in between has to know whose jobs are still held.
    #[tokio::test]
    async fn the_dead_are_known_until_all_of_their_jobs_are_taken_back() {
        let folder = Folder::new("take-back");
        let [first, second, third, fourth] = [1, 2, 3, 4].map(InstanceId::from_u128);
        drop(DataLock::take(&folder, first).unwrap());
        drop(DataLock::take(&folder, second).unwrap());
        let mut lock = DataLock::take(&folder, third).unwrap();
        let fails = async |dead| if dead == first { Ok(1) } else { Err(OpError::JobNotFound(JobId::from_u128(1))) };
        take_back(&mut lock, fails).await.unwrap_err();
        drop(lock);
        let mut lock = DataLock::take(&folder, fourth).unwrap();
        assert_eq!(lock.predecessors(), [first, second, third]);
        // One job that cannot be read is left to expire, and the others are asked for.
        let asked = RefCell::new(Vec::new());
        let one_is_damaged = async |dead| {
            asked.borrow_mut().push(dead);
            if dead == second { Err(OpError::StateConflict("it cannot be read".into())) } else { Ok(0) }
        };
        take_back(&mut lock, one_is_damaged).await.unwrap();
        assert_eq!(asked.into_inner(), [first, second, third]);
        drop(lock);
        assert_eq!(DataLock::take(&folder, first).unwrap().predecessors(), [fourth]);
    }
}
