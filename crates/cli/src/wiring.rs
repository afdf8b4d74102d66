//! Where the parts of a process are put together: the only place that names a backend.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aetheris_adapters::{EnvSource, IpNet, ModelBook, ModelEndpoint, OwnAddresses, Secret, Toolbox, Unusable};
use aetheris_core::id::{InstanceId, WorkerId};
use aetheris_core::limits;
use aetheris_core::plan::NodeKind;
use aetheris_core::time::Span;
use aetheris_runtime::pulse::Pulse;
use aetheris_runtime::{Models, Plans, Runtime, Settings, Wakeups};
use aetheris_scheduler::SweepOptions;
use aetheris_server::state::AgentCheck;
use aetheris_server::{AgentProblem, AppState, Hosts, ReadyCheck};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::System;
use aetheris_store::vital::{self, OnDeath, Vital};
use aetheris_store::{ErrorKind, Store};
pub use aetheris_store_sqlite::{Backed, Progress, Staged, backup, stage};
use aetheris_store_sqlite::{Custody, EXIT_IO, SqliteOptions, SqliteStore};
use aetheris_worker::{StopSignals, Worker, WorkerOptions};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Environment, StoreKind};
use crate::error::Error;
use crate::logging;
use crate::presence::Presence;
use crate::supervise::Tasks;

/// The parts that every kind of process has.
pub struct Wired {
    /// What configuration says.
    pub config: Config,
    /// This process; never used again.
    pub instance: InstanceId,
    /// The operations.
    pub rt: Runtime,
    /// Asks a running process to stop.
    pub stop: StopSignals,
    /// Its models.
    pub models: Arc<ModelBook>,
    /// Files that this process may have open.
    pub open_files: u64,
    /// Where the processes of its store listen.
    pub(crate) presence: Arc<Presence>,
    /// Signs of life of its loops.
    pub pulses: Pulses,
    /// Its tools.
    pub toolbox: Arc<Toolbox>,
    /// Whether it has a worker.
    pub works: bool,
}

/// Signs of life of the loops of a process.
#[derive(Debug, Clone, Default)]
pub struct Pulses {
    /// The one that renews leases.
    pub keeper: Pulse,
    /// The one that takes back jobs whose lease is over.
    pub leases: Pulse,
    /// The one that fires timers.
    pub timers: Pulse,
}

/// Opens the configured store.
///
/// # Errors
/// It cannot be opened.
pub fn open_store(config: &Config, system: &System, moved: bool) -> Result<Arc<dyn Store>, Error> {
    match config.jobstore.kind {
        StoreKind::Memory => Ok(Arc::new(MemoryStore::new(Arc::clone(&system.clock)))),
        StoreKind::Sqlite => {
            let (folder, opening) = (system.ids.secret(), system.ids.secret());
            let custody = Custody { folder, moved, opening };
            open_database(&config.jobstore.sqlite.path, system, Some(custody))
        }
    }
}

/// Opens a database file to look at it, or a copy: the file beside it is not asked and not written.
///
/// # Errors
/// Its folder cannot be made, or it cannot be opened.
pub fn open_sqlite(path: &Path, system: &System) -> Result<Arc<dyn Store>, Error> {
    open_database(path, system, None)
}

fn open_database(path: &Path, system: &System, custody: Option<Custody>) -> Result<Arc<dyn Store>, Error> {
    if let Some(folder) = path.parent() {
        let failed = |error| anyhow::anyhow!("the folder {} cannot be made: {error}", folder.display());
        crate::folder::make(folder).map_err(failed)?;
    }
    let options = SqliteOptions {
        clock: Arc::clone(&system.clock),
        custody,
        on_death: on_death(),
        on_fatal: Arc::new(|error| {
            vital::end_process(EXIT_IO, || {
                let what = "the disk failed; the process ends, and the next one recovers from what is on it";
                logging::say_error(&format!("{what}: {error}"));
                logging::flush();
            })
        }),
        ..SqliteOptions::new(path)
    };
    let store = SqliteStore::open(options).map_err(|error| {
        let path = path.display();
        match error.kind {
            // The file is there and is not to be opened like this: its user has to do something.
            ErrorKind::Invalid => Error::Conflict(format!("{path} cannot be opened: {}", error.source)),
            _ => Error::Internal(anyhow::anyhow!("{path} cannot be opened: {error}")),
        }
    })?;
    Ok(Arc::new(store))
}

/// The end of a process of which a thread has ended that it needs: said, and done whether or not anybody hears.
fn on_death() -> OnDeath {
    Arc::new(|name| {
        vital::end_process(vital::EXIT_DIED, || {
            logging::say_error(&died(name));
            logging::flush();
        })
    })
}

/// What is said where a thread or task has ended that must not.
pub(crate) fn died(name: &str) -> String {
    format!("`{name}` has ended unasked; the process ends, to be started again: what was accepted is on the disk")
}

/// Raises this process's soft limit of open files to the hard one, and says what it is then. Connections, tools and
/// the store need one each, and the usual soft limit of 1,024 is for programs that use `select`.
#[must_use]
pub fn raise_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    // Where it is forbidden, what there is has to do.
    if raised.is_ok() { wanted } else { current }
}

/// Connections that may be served at once with so many open files: half of them, less what the store needs. The other
/// half is for the tools.
fn connections_max(open_files: u64) -> usize {
    let half = usize::try_from(open_files / 2).unwrap_or(usize::MAX);
    half.saturating_sub(OPEN_FILES_OF_THE_STORE).clamp(CONNECTIONS_MIN, aetheris_server::state::CONNECTIONS_MAX)
}

/// More open files than this are not asked for: each costs the kernel memory.
const OPEN_FILES_MAX: u64 = 1 << 16;
/// Open files that the store, the log and the runtime need.
const OPEN_FILES_OF_THE_STORE: usize = 64;
/// The fewest connections that a server serves at once, however few files it may open.
const CONNECTIONS_MIN: usize = 16;

impl Wired {
    /// Puts the parts together. `allow_loopback` is what `dev` allows and nothing else does; `moved` says that the
    /// data folder was moved and its original is gone.
    ///
    /// # Errors
    /// The store cannot be opened, or an adapter not be set up.
    pub fn new(config: Config, env: &Environment, allow_loopback: bool, moved: bool) -> Result<Self, Error> {
        let system = System::machine();
        let store = open_store(&config, &system, moved)?;
        Self::over(store, system, config, env, allow_loopback)
    }

    /// Puts the parts together over a store that is open.
    ///
    /// # Errors
    /// An adapter cannot be set up.
    pub fn over(
        store: Arc<dyn Store>,
        system: System,
        config: Config,
        env: &Environment,
        allow_loopback: bool,
    ) -> Result<Self, Error> {
        let presence = Arc::new(match config.jobstore.kind {
            StoreKind::Memory => Presence::default(),
            StoreKind::Sqlite => Presence::beside(&config.jobstore.sqlite.path),
        });
        let own = Arc::clone(&presence) as Arc<dyn OwnAddresses>;
        let toolbox = Arc::new(toolbox(&config, env, allow_loopback, own)?);
        let models = Arc::new(models(&config, env)?);
        let defaults = Settings::default();
        let settings = Settings {
            execution_version: config.versions.execution.clone().unwrap_or(defaults.execution_version),
            max_attempts: config.worker.max_attempts,
            step_timeout: config.executor.step_timeout,
        };
        let instance = InstanceId::from_u128(system.ids.secret());
        let rt = Runtime {
            in_flight: aetheris_runtime::InFlight::default(),
            models: Arc::clone(&models) as Arc<dyn Models>,
            plans: Plans::default(),
            settings: Arc::new(settings),
            store,
            system,
            tools: Arc::clone(&toolbox) as Arc<dyn aetheris_runtime::Tools>,
            wakeups: Wakeups::default(),
        };
        let (open_files, pulses, stop) = (raise_open_files(), Pulses::default(), StopSignals::default());
        Ok(Self { config, instance, rt, stop, models, open_files, presence, pulses, toolbox, works: false })
    }

    /// What this process cannot execute of an agent whose file is valid.
    #[must_use]
    pub fn check_agent(&self) -> AgentCheck {
        check_by(Arc::clone(&self.toolbox), Arc::clone(&self.models))
    }

    /// The worker's name: the configured one, or one of host and instance.
    #[must_use]
    pub fn worker_id(&self) -> WorkerId {
        match self.config.worker.chosen_id() {
            Some(id) => WorkerId::from(id),
            None => {
                let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
                WorkerId::new(format!("{host}-{}", self.instance))
            }
        }
    }

    /// Starts the sweeps: timers and expired leases.
    pub fn start_sweeps(&self, tasks: &mut Tasks, stop: &CancellationToken) {
        let ttl = self.config.worker.lease_ttl.to_std();
        let poll = self.config.worker.poll_interval.to_std().min(Duration::from_secs(1));
        let span = Span::from_std;
        let options = SweepOptions { leases: span((ttl / 4).min(Duration::from_secs(1))), timers: span(poll) };
        let Pulses { timers, leases, .. } = self.pulses.clone();
        tasks.spawn("timers", aetheris_scheduler::fire_timers(self.rt.clone(), options, timers, stop.clone()));
        tasks.spawn("leases", aetheris_scheduler::reclaim_expired(self.rt.clone(), options, leases, stop.clone()));
    }

    /// Starts the worker, and its keeper on a thread of its own: steps that keep every processor of the
    /// runtime busy must not cost a lease.
    ///
    /// # Errors
    /// The keeper's thread cannot be started.
    pub fn start_worker(&self, tasks: &mut Tasks) -> Result<(), Error> {
        let worker = &self.config.worker;
        let options = WorkerOptions {
            heartbeat: worker.heartbeat,
            id: self.worker_id(),
            lease_ttl: worker.lease_ttl,
            poll_interval: worker.poll_interval,
            slots: worker.slots,
        };
        let (worker, keeper) = Worker::new(self.rt.clone(), self.instance, options, self.stop.clone());
        let keeper = keeper.with_pulse(self.pulses.keeper.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|e| anyhow::anyhow!("the thread that keeps leases cannot be set up: {e}"))?;
        let thread = std::thread::Builder::new().name("lease-keeper".to_owned());
        let started = thread.spawn(move || {
            let vital = Vital::new("lease-keeper", &on_death());
            runtime.block_on(keeper.run());
            vital.release();
        });
        started.map_err(|e| anyhow::anyhow!("the thread that keeps leases cannot be started: {e}"))?;
        tasks.spawn("worker", worker.run());
        Ok(())
    }

    /// The state of the HTTP server.
    #[must_use]
    pub fn app_state(&self) -> AppState {
        let mut ready = vec![self.beating("timers", &self.pulses.timers), self.beating("leases", &self.pulses.leases)];
        if self.works {
            ready.push(self.beating("lease-keeper", &self.pulses.keeper));
        }
        let server = &self.config.server;
        // Whoever is out of reach is not to be reached by a name that someone else chose.
        let hosts = if server.listen.ip().is_loopback() { Hosts::Own(server.hosts.clone()) } else { Hosts::Any };
        AppState {
            check_agent: self.check_agent(),
            connections_max: connections_max(self.open_files),
            hosts,
            ready,
            ..AppState::new(self.rt.clone())
        }
    }

    /// Whether a loop has come round lately: within its longest pause, twice, and the time that a store which is busy
    /// may take.
    fn beating(&self, name: &str, pulse: &Pulse) -> ReadyCheck {
        let (pulse, clock) = (pulse.clone(), Arc::clone(&self.rt.system.clock));
        let patience = self.config.worker.heartbeat.to_std() * 2 + limits::PULSE_GRACE.to_std();
        let began = clock.boot();
        ReadyCheck {
            name: name.to_owned(),
            look: Arc::new(move || {
                let silent = pulse.silent_for(clock.as_ref());
                let since = silent.unwrap_or_else(|| clock.boot().saturating_sub(began));
                let ago = Span::from_std(Duration::from_secs(since.as_secs()));
                if since > patience {
                    return Err(format!("it has not come round for {ago}"));
                }
                Ok(format!("it came round {ago} ago"))
            }),
        }
    }

    /// Listens where it is configured.
    ///
    /// # Errors
    /// The address is taken or not ours.
    pub async fn listen(&self) -> Result<TcpListener, Error> {
        let address = self.config.server.listen;
        let failed = |error| unheard(address, &error);
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(failed)?;
        socket.set_reuseaddr(true).and_then(|()| socket.bind(address)).map_err(failed)?;
        // Every process of the store knows before anybody can connect: no tool of theirs may.
        self.presence.announce(self.instance, socket.local_addr().map_err(failed)?)?;
        socket.listen(BACKLOG).map_err(failed)
    }
}

/// Whether an address can be listened on at this moment.
///
/// # Errors
/// It is taken or not ours.
pub fn can_listen(address: SocketAddr) -> Result<(), Error> {
    std::net::TcpListener::bind(address).map(drop).map_err(|error| unheard(address, &error))
}

fn unheard(address: SocketAddr, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => Error::Conflict(format!(
            "{address} is in use: another server is listening there. Stop it, or listen elsewhere: --listen 127.0.0.1:0 takes a free port"
        )),
        _ => Error::Internal(anyhow::anyhow!("{address} cannot be listened on: {error}")),
    }
}

/// What a process with this configuration cannot execute of an agent, asked before there is a process.
///
/// # Errors
/// An adapter cannot be set up.
pub fn agent_check(config: &Config, env: &Environment, allow_loopback: bool) -> Result<AgentCheck, Error> {
    let toolbox = toolbox(config, env, allow_loopback, Arc::new(Presence::default()))?;
    Ok(check_by(Arc::new(toolbox), Arc::new(models(config, env)?)))
}

fn check_by(toolbox: Arc<Toolbox>, models: Arc<ModelBook>) -> AgentCheck {
    Arc::new(move |agent| {
        let unknown_model = |(place, node): (usize, &aetheris_core::plan::Node)| match &node.kind {
            NodeKind::Llm(llm) => models.knows(&llm.model).err().map(|why| AgentProblem {
                message: format!("node `{}`: {why}", node.id),
                pointers: vec![format!("/plan/nodes/{place}/model"), "/model".to_owned()],
            }),
            NodeKind::Condition
            | NodeKind::Sleep(_)
            | NodeKind::Tool { .. }
            | NodeKind::Transform(_)
            | NodeKind::Wait(_) => None,
        };
        let tools = agent.plan.tools.iter().flat_map(|(name, tool)| {
            let tool_at = format!("/tools/{name}");
            let problem = move |Unusable { place, why }| AgentProblem {
                message: why,
                pointers: vec![format!("{tool_at}{place}")],
            };
            toolbox.unusable(name, tool).into_iter().map(problem)
        });
        tools.chain(agent.plan.nodes.iter().enumerate().filter_map(unknown_model)).collect()
    })
}

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

fn toolbox(
    config: &Config,
    env: &Environment,
    allow_loopback: bool,
    own: Arc<dyn OwnAddresses>,
) -> Result<Toolbox, Error> {
    let mut networks = Vec::new();
    for text in &config.tools.http.allow {
        let network: IpNet = text.parse().map_err(|_| {
            Error::Usage(format!("tools.http.allow: `{text}` is not a network: expected one as 10.0.0.0/8"))
        })?;
        networks.push(network);
    }
    let env = env.clone();
    let source = EnvSource::new(config.tools.env.clone(), move |name| env.get(name).map(str::to_owned));
    let builder = Toolbox::builder().allow_networks(networks).env(source).own_addresses(own);
    let builder = if allow_loopback { builder.allow_loopback() } else { builder };
    Ok(builder.build().map_err(anyhow::Error::from)?)
}

fn models(config: &Config, env: &Environment) -> Result<ModelBook, Error> {
    let mut builder = ModelBook::builder();
    for (name, model) in &config.models {
        let api_key = match model.api_key() {
            Some(reference) => {
                let secret = env.secret(&reference).map_err(|why| Error::Usage(format!("models.{name}: {why}")))?;
                Some(Secret::new(secret))
            }
            None => None,
        };
        builder = builder.endpoint(ModelEndpoint {
            api_key,
            api_key_env: model.api_key_env.clone(),
            base_url: model.base_url.clone(),
            name: name.clone(),
            timeout: model.timeout.to_std(),
        });
    }
    Ok(builder.build().map_err(anyhow::Error::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_store_and_the_tools() {
        for (files, connections) in [(0, 16), (256, 64), (1_024, 448), (4_096, 1_984), (65_536, 16_384)] {
            assert_eq!(connections_max(files), connections, "{files}");
        }
        assert_eq!(connections_max(u64::MAX), 16_384);
    }

    #[test]
    fn the_soft_limit_of_open_files_is_raised() {
        let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let raised = raise_open_files();
        let after = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(after.current.unwrap_or(u64::MAX), raised);
        let wanted = before.maximum.unwrap_or(u64::MAX).min(OPEN_FILES_MAX);
        assert!(raised >= wanted && after.maximum == before.maximum, "{before:?} {after:?}");
    }
}
