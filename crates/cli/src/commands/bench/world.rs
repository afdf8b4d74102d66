//! A process of the benchmark: the real store, worker and tools, in this process.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::id::{AgentName, JobId, TenantId};
use aetheris_core::json::Json;
use aetheris_runtime::ops::Submission;
use aetheris_store::system::Clock;
use aetheris_store::{NewAgent, Scope, Store};
use tokio_util::sync::CancellationToken;

use super::Place;
use crate::config::{self, Environment, Override};
use crate::error::Error;
use crate::role::Role;
use crate::supervise::Tasks;
use crate::wiring::Wired;

/// The real parts, wired as `dev` wires them.
pub(crate) struct World {
    pub(crate) wired: Wired,
    tasks: Tasks,
    stop: CancellationToken,
}

impl World {
    /// Opens a database in the folder of a part, and starts worker and sweeps.
    pub(crate) fn start(place: &Place, part: &str, slots: usize) -> Result<Self, Error> {
        let wired = place.within(part, |folder| {
            let of = |key, value, flag| Override { key, value, flag };
            let flags = [
                of("jobstore.sqlite.path", serde_json::json!(folder.join("aetheris.db")), "--data"),
                of("worker.slots", serde_json::json!(slots), "--slots"),
            ];
            let config = config::from_text(None, &Environment::of(&[]), &flags).map_err(Error::Config)?;
            Wired::new(config, &Environment::of(&[]), Role::Dev, false)
        })?;
        let (mut tasks, stop) = (Tasks::default(), CancellationToken::new());
        wired.start_sweeps(&mut tasks, &stop);
        wired.start_worker(&mut tasks)?;
        Ok(Self { wired, tasks, stop })
    }

    pub(crate) fn store(&self) -> &dyn Store {
        self.wired.rt.store.as_ref()
    }

    pub(crate) async fn put(&self, file: &str) -> Result<AgentName, Error> {
        let agent =
            aetheris_agentfile::parse(file).map_err(|e| anyhow::anyhow!("the benchmark's agent is wrong: {e:?}"))?;
        let name = agent.agent.clone();
        let new = NewAgent { agent: Arc::new(agent), source: file.to_owned(), tenant: TenantId::default() };
        self.store().put_agent(new).await.map_err(anyhow::Error::from)?;
        Ok(name)
    }

    pub(crate) async fn submit(&self, agent: &AgentName) -> Result<JobId, Error> {
        let submission = Submission { message: Some(Json::null()), ..Submission::default() };
        Ok(self.wired.rt.submit(agent, submission).await.map_err(anyhow::Error::from)?.job)
    }

    /// Waits until a job has ended; answers its row.
    pub(crate) async fn ended(&self, job: JobId) -> Result<aetheris_store::JobRow, Error> {
        self.until(job, |row| row.status.is_terminal()).await
    }

    /// Waits until a job's row is as wanted.
    pub(crate) async fn until(
        &self,
        job: JobId,
        wanted: impl Fn(&aetheris_store::JobRow) -> bool,
    ) -> Result<aetheris_store::JobRow, Error> {
        let mut follower = self.store().bus().follow(job);
        loop {
            let row = self.store().job(Scope::System, job).await.map_err(anyhow::Error::from)?;
            if let Some(row) = row.filter(&wanted) {
                return Ok(row);
            }
            tokio::select! {
                () = follower.changed() => {}
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        }
    }

    /// A job's row.
    pub(crate) async fn row(&self, job: JobId) -> Result<aetheris_store::JobRow, Error> {
        let row = self.store().job(Scope::System, job).await.map_err(anyhow::Error::from)?;
        Ok(row.ok_or_else(|| anyhow::anyhow!("{job} is gone"))?)
    }

    pub(crate) fn now(&self) -> Duration {
        self.wired.rt.system.clock.boot()
    }

    /// Ends worker and sweeps.
    pub(crate) async fn end(mut self) {
        self.wired.stop.drain.cancel();
        self.stop.cancel();
        while self.tasks.next().await.is_some() {}
    }
}

/// The machine's clock, for measuring.
pub(crate) fn now() -> Duration {
    aetheris_store::system::SystemClock.boot()
}
