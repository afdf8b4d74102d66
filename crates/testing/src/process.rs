//! A simulated process: the production worker, keeper and sweeps behind one gate.

use std::sync::Arc;

use aetheris_core::id::{IdSource, InstanceId};
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{InFlight, Models, Plans, Runtime, Settings, Tools};
use aetheris_scheduler::SweepOptions;
use aetheris_store::Store;
use aetheris_store::{Scope, system::System};
use aetheris_worker::{StopSignals, Worker, WorkerOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gate::{Ambush, Gate};
use crate::link::{ModelsLink, StoreLink, ToolsLink};
use crate::time::VirtualClock;

/// What a process finds in its world.
#[derive(Clone)]
pub struct World {
    /// Its own clock.
    pub clock: Arc<VirtualClock>,
    /// Where its identifiers come from.
    pub ids: Arc<dyn IdSource>,
    /// The models.
    pub models: Arc<dyn Models>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The tools.
    pub tools: Arc<dyn Tools>,
}

/// What a process does.
#[derive(Debug, Clone, Default)]
pub struct Duties {
    /// Its version and bounds.
    pub settings: Settings,
    /// Whether it fires timers and takes back expired leases.
    pub sweeps: Option<SweepOptions>,
    /// Whether its parts wake each other; otherwise each looks by itself, as parts of different
    /// processes do.
    pub shares_hints: bool,
    /// Whether it runs jobs.
    pub worker: Option<WorkerOptions>,
}

/// A process that runs until it is killed, dies at a crossing, drains, or is dropped.
#[derive(Debug)]
pub struct Process {
    gate: Gate,
    instance: InstanceId,
    rt: Runtime,
    stop: StopSignals,
    sweeping: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    worker: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a process. To be called inside a runtime whose time is paused.
    #[must_use]
    pub fn start(world: &World, duties: Duties, ambush: Arc<dyn Ambush>) -> Self {
        let gate = Gate::new(ambush);
        let way = || Arc::new(StoreLink::new(Arc::clone(&world.store), gate.clone(), Arc::clone(&world.clock)));
        let rt = Runtime {
            in_flight: InFlight::default(),
            loads: aetheris_runtime::Loads::default(),
            models: Arc::new(ModelsLink::new(Arc::clone(&world.models), gate.clone())),
            plans: Plans::default(),
            scope: Scope::System,
            settings: Arc::new(duties.settings),
            store: way(),
            system: System { clock: Arc::clone(&world.clock) as _, ids: Arc::clone(&world.ids) },
            tools: Arc::new(ToolsLink::new(Arc::clone(&world.tools), gate.clone())),
        };
        let instance = InstanceId::from_u128(world.ids.secret());
        let (stop, sweeping) = (StopSignals::default(), CancellationToken::new());
        let mut tasks = Vec::new();
        let part = |shared: &Runtime| match duties.shares_hints {
            true => shared.clone(),
            false => Runtime { in_flight: InFlight::default(), store: way(), ..shared.clone() },
        };
        if let Some(options) = duties.sweeps {
            tasks.push(tokio::spawn(aetheris_scheduler::fire_timers(
                part(&rt),
                options,
                Pulse::default(),
                sweeping.clone(),
            )));
            tasks.push(tokio::spawn(aetheris_scheduler::deliver_outbox(
                part(&rt),
                options,
                Pulse::default(),
                sweeping.clone(),
            )));
            tasks.push(tokio::spawn(aetheris_scheduler::reclaim_expired(
                part(&rt),
                options,
                Pulse::default(),
                sweeping.clone(),
            )));
        }
        let worker = duties.worker.map(|options| {
            let (worker, keeper) = Worker::new(part(&rt), instance, options, stop.clone());
            tasks.push(tokio::spawn(keeper.run()));
            tokio::spawn(worker.run())
        });
        Self { gate, instance, rt, stop, sweeping, tasks, worker }
    }

    /// The operations of the process: what its API would call.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.rt
    }

    /// Its gate: whether it runs, and how to stop it.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Its name among instances.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        self.instance
    }

    /// Kills it: what it has sent may still happen, nothing else of it does.
    pub fn kill(&self) {
        self.gate.kill();
        self.sweeping.cancel();
        for task in self.tasks.iter().chain(&self.worker) {
            task.abort();
        }
    }

    /// Tells it to drain, and with `abandon` to give up calls that have left.
    pub fn drain(&self, abandon: bool) {
        self.stop.drain.cancel();
        if abandon {
            self.stop.abandon.cancel();
        }
    }

    /// Waits until a drained worker has ended. Returns at once where there is none.
    pub async fn drained(&mut self) {
        if let Some(worker) = self.worker.take() {
            // A worker that was killed has ended too.
            let _ = worker.await;
        }
        self.sweeping.cancel();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
