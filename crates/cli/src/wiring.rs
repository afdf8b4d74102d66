//! Where the parts of a process are put together: the only place that names a backend.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aetheris_adapters::{
    Dialect, EnvSource, IpNet, ModelBook, ModelEndpoint, OwnAddresses, RateLimits, Secret, Toolbox, Unusable,
};
use aetheris_core::id::{InstanceId, NodeId, TenantId, WorkerId};
use aetheris_core::limits;
use aetheris_core::plan::{Node, NodeKind, Work};
use aetheris_core::time::Span;
use aetheris_runtime::{Models, Runtime, Settings, Tools};
use aetheris_scheduler::SweepOptions;
use aetheris_server::state::AgentCheck;
use aetheris_server::{AgentProblem, AppState, Hosts};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::System;
use aetheris_store::vital::Vital;
use aetheris_store::{ErrorKind, Store, StoreError};
pub use aetheris_store_sqlite::{
    Backed, ENDINGS, LIVE, LOCK, PID, Progress, Staged, Stop, backup, in_folder_of, recognise, stage,
};
use aetheris_store_sqlite::{Custody, EXIT_IO, SqliteOptions, SqliteStore};
use aetheris_worker::{StopSignals, Worker, WorkerOptions};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

use crate::config::UNSET;
use crate::config::{Config, Environment, ModelDialect, StoreKind};
use crate::error::Error;
use crate::last_words::{self, on_death};
use crate::listen_addresses::ListenAddresses;
use crate::open_files;
use crate::pulses::Pulses;
use crate::role::Role;
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
    pub(crate) listen_addresses: Arc<ListenAddresses>,
    /// Signs of life of its loops.
    pub pulses: Pulses,
    /// What it is for.
    pub role: Role,
    /// Its tools.
    pub toolbox: Arc<Toolbox>,
}

/// Opens the configured store.
///
/// # Errors
/// It cannot be opened.
pub fn open_store(config: &Config, system: &System, role: Role, moved: bool) -> Result<Arc<dyn Store>, Error> {
    match config.jobstore.kind {
        StoreKind::Memory => Ok(Arc::new(MemoryStore::new(Arc::clone(&system.clock)))),
        StoreKind::Sqlite => {
            open_database(&config.jobstore.sqlite.path, system, role.makes_databases(), Some(custody(system, moved)))
        }
    }
}

/// New names for an opening, and for the folder if it has none.
pub(crate) fn custody(system: &System, moved: bool) -> Custody {
    Custody { folder: system.ids.secret(), moved, opening: system.ids.secret() }
}

/// Opens a database file to look at it, or a copy: the file beside it is not asked and not written.
///
/// # Errors
/// Its folder cannot be made, or it cannot be opened.
pub fn open_sqlite(path: &Path, system: &System) -> Result<Arc<dyn Store>, Error> {
    open_database(path, system, true, None)
}

/// Opens a database for reading, with so many threads: nothing is made and nothing changed.
///
/// # Errors
/// There is no database of this program, or it cannot be read.
pub fn open_read_only(path: &Path, readers: usize) -> Result<Arc<SqliteStore>, StoreError> {
    SqliteStore::open_read_only(path, &System::machine().clock, readers).map(Arc::new)
}

fn open_database(path: &Path, system: &System, make: bool, custody: Option<Custody>) -> Result<Arc<dyn Store>, Error> {
    if let Some(folder) = path.parent().filter(|_| make) {
        let failed = |error| anyhow::anyhow!("the folder {} cannot be made: {error}", folder.display());
        crate::folder::make(folder).map_err(failed)?;
    }
    // Told, for whoever meant a database in another folder.
    let new = custody.is_some() && !path.exists();
    let options = SqliteOptions {
        clock: Arc::clone(&system.clock),
        custody,
        make,
        on_death: on_death(),
        on_fatal: Arc::new(|error| last_words::disk_failed(error, EXIT_IO)),
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
    if new {
        tracing::info!(path = %absolute(path).display(), "a new database was made");
    }
    Ok(Arc::new(store))
}

/// A path that says the same in every folder; as it was given where the current folder is gone.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl Wired {
    /// Puts the parts together. `moved` says that the data folder was moved and its original is gone.
    ///
    /// # Errors
    /// The store cannot be opened, or an adapter not be set up.
    pub fn new(config: Config, env: &Environment, role: Role, moved: bool) -> Result<Self, Error> {
        let system = System::machine();
        let beside = config.jobstore.database();
        let listen_addresses = Arc::new(beside.map_or_else(ListenAddresses::default, ListenAddresses::beside));
        let own = Arc::clone(&listen_addresses) as Arc<dyn OwnAddresses>;
        let toolbox = Arc::new(toolbox(&config, env, role, own)?);
        let models = Arc::new(models(&config, env, role)?);
        if role.runs_steps() {
            // It would claim jobs and call no tool.
            listen_addresses
                .listening()
                .map_err(|e| anyhow::anyhow!("cannot read where this database's servers listen: {e}"))?;
            for name in config.unset_names(env) {
                tracing::warn!(name, "a variable of `tools.env` is not set: {UNSET}");
            }
        }
        // The last to fail: a process that cannot start makes no database.
        let store = open_store(&config, &system, role, moved)?;
        let defaults = Settings::default();
        let settings = Settings {
            execution_version: config.versions.execution.clone().unwrap_or(defaults.execution_version),
            max_attempts: config.worker.max_attempts,
            max_parallel_steps: config.executor.max_parallel_steps,
            step_timeout: config.executor.step_timeout,
        };
        let instance = InstanceId::from_u128(system.ids.secret());
        let mut rt = Runtime { settings: Arc::new(settings), ..Runtime::offline(store, system) };
        if role.runs_steps() {
            rt.models = Arc::clone(&models) as Arc<dyn Models>;
            rt.tools = Arc::clone(&toolbox) as Arc<dyn Tools>;
        }
        let (open_files, pulses, stop) = (open_files::raise(), Pulses::default(), StopSignals::default());
        Ok(Self { config, instance, rt, stop, models, open_files, listen_addresses, pulses, role, toolbox })
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

    /// Starts the sweeps: timers, expired leases and the outbox.
    pub fn start_sweeps(&self, tasks: &mut Tasks, stop: &CancellationToken) {
        let ttl = self.config.worker.lease_ttl.to_std();
        let poll = self.config.worker.poll_interval.to_std().min(Duration::from_secs(1));
        let span = Span::from_std;
        let options = SweepOptions {
            leases: span((ttl / 4).min(Duration::from_secs(1))),
            outbox: span(poll),
            timers: span(poll),
        };
        let Pulses { timers, leases, outbox, .. } = self.pulses.clone();
        tasks.spawn("timers", aetheris_scheduler::fire_timers(self.rt.clone(), options, timers, stop.clone()));
        tasks.spawn("outbox", aetheris_scheduler::deliver_outbox(self.rt.clone(), options, outbox, stop.clone()));
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
        let (leaves, left) = tokio::sync::oneshot::channel::<()>();
        let started = thread.spawn(move || {
            let vital = Vital::new("lease-keeper", &on_death());
            runtime.block_on(keeper.run());
            vital.release();
            drop(leaves);
        });
        started.map_err(|e| anyhow::anyhow!("the thread that keeps leases cannot be started: {e}"))?;
        tasks.spawn("worker", async move {
            worker.run().await;
            // The keeper ends with its worker, and until then has the store in its hands.
            let _gone = left.await;
        });
        Ok(())
    }

    /// The state of the HTTP server.
    #[must_use]
    pub fn app_state(&self) -> AppState {
        let ready = self.pulses.checks(self.role, self.config.worker.heartbeat, &self.rt.system.clock);
        let server = &self.config.server;
        // Whoever is out of reach is not to be reached by a name that someone else chose.
        let hosts = if is_loopback(server.listen) { Hosts::Own(server.hosts.clone()) } else { Hosts::Any };
        AppState {
            check_agent: self.check_agent(),
            connections_max: open_files::connections_max(self.open_files),
            hosts,
            ready,
            // Whoever asks from outside is the tenant `default`: nobody says who he is yet.
            ..AppState::new(self.rt.of(TenantId::default()))
        }
    }

    /// Listens where it is configured.
    ///
    /// # Errors
    /// The address is taken or not ours.
    pub async fn listen(&self) -> Result<TcpListener, Error> {
        let address = self.config.server.listen;
        let failed = |error| unheard(address, elsewhere(self.role), &error);
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(failed)?;
        socket.set_reuseaddr(true).and_then(|()| socket.bind(address)).map_err(failed)?;
        // Every process of the store knows before anybody can connect: no tool of theirs may.
        self.listen_addresses.announce(self.instance, socket.local_addr().map_err(failed)?)?;
        socket.listen(limits::BACKLOG_MAX).map_err(failed)
    }
}

/// Whether an address can be listened on at this moment.
///
/// # Errors
/// It is taken or not ours.
pub fn can_listen(address: SocketAddr, role: Role) -> Result<(), Error> {
    std::net::TcpListener::bind(address).map(drop).map_err(|error| unheard(address, elsewhere(role), &error))
}

/// Whether only this machine can reach an address, in whatever form it is written.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// The option by which a command listens elsewhere.
pub(crate) const LISTEN_FLAG: &str = "--listen 127.0.0.1:0 takes a free port";

/// How a process is told to listen elsewhere.
const fn elsewhere(role: Role) -> &'static str {
    match role {
        Role::Dev => LISTEN_FLAG,
        Role::Serve | Role::Worker => {
            "`server.listen` of the configuration says where, and the variable AETHERIS__SERVER__LISTEN comes before it"
        }
    }
}

/// Why an address is not listened on, and what to do.
pub(crate) fn unheard(address: SocketAddr, elsewhere: &str, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => Error::Conflict(format!(
            "{address} is in use: another server is listening there. Stop it, or listen elsewhere: {elsewhere}"
        )),
        _ => Error::Internal(anyhow::anyhow!("{address} cannot be listened on: {error}")),
    }
}

/// What a process with this configuration cannot execute of an agent, asked before there is a process.
///
/// # Errors
/// An adapter cannot be set up.
pub fn agent_check(config: &Config, env: &Environment, role: Role) -> Result<AgentCheck, Error> {
    let toolbox = toolbox(config, env, role, Arc::new(ListenAddresses::default()))?;
    Ok(check_by(Arc::new(toolbox), Arc::new(models(config, env, role)?)))
}

fn check_by(toolbox: Arc<Toolbox>, models: Arc<ModelBook>) -> AgentCheck {
    Arc::new(move |agent| {
        let unknown_model = |at: String, id: &NodeId, work: &Work| {
            models.knows(work.model()?).err().map(|why| AgentProblem {
                message: format!("node `{id}`: {why}"),
                pointers: vec![format!("{at}/model"), "/model".to_owned()],
            })
        };
        let tools = agent.plan.tools.iter().flat_map(|(name, tool)| {
            let tool_at = format!("/tools/{name}");
            let problem = move |Unusable { place, why }| AgentProblem {
                message: why,
                pointers: vec![format!("{tool_at}{place}")],
            };
            toolbox.unusable(name, tool).into_iter().map(problem)
        });
        let of_graph = |at: String, nodes: &[Node]| -> Vec<AgentProblem> {
            let of_node = |(place, node): (usize, &Node)| {
                let at = format!("{at}/nodes/{place}");
                let each = node.work.each().and_then(|each| unknown_model(format!("{at}/do"), &node.id, each));
                [unknown_model(at, &node.id, &node.work), each].into_iter().flatten()
            };
            nodes.iter().enumerate().flat_map(of_node).collect()
        };
        let models = match agent.plan.planning_node() {
            None => of_graph("/plan".to_owned(), &agent.plan.nodes),
            Some(node) => {
                let rules = agent.plan.rules().iter().enumerate();
                let planned =
                    rules.flat_map(|(place, rule)| of_graph(format!("/rules/{place}/plan"), &rule.graph.nodes));
                let planner = unknown_model("/planning".to_owned(), &node.id, &node.work);
                let of_model = if let NodeKind::Plan(planner) = &node.work.kind { Some(planner) } else { None };
                let nodes_model = of_model.and_then(|planner| planner.nodes_model.as_ref());
                let of_nodes = nodes_model.and_then(|model| models.knows(model).err());
                let of_nodes = of_nodes.map(|message| AgentProblem { message, pointers: vec!["/model".to_owned()] });
                planner.into_iter().chain(of_nodes).chain(planned).collect()
            }
        };
        tools.chain(models).collect()
    })
}

fn toolbox(config: &Config, env: &Environment, role: Role, own: Arc<dyn OwnAddresses>) -> Result<Toolbox, Error> {
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
    let builder = if role.allows_loopback() { builder.allow_loopback() } else { builder };
    Ok(builder.build().map_err(anyhow::Error::from)?)
}

/// The models by name; only what asks them reads their keys.
fn models(config: &Config, env: &Environment, role: Role) -> Result<ModelBook, Error> {
    let mut builder = ModelBook::builder();
    for (name, model) in &config.models {
        let api_key = match model.api_key().filter(|_| role.runs_steps()) {
            Some(reference) => {
                let secret = env.secret(&reference).map_err(|why| Error::Usage(format!("models.{name}: {why}")))?;
                Some(Secret::new(secret))
            }
            None => None,
        };
        builder = builder.endpoint(ModelEndpoint {
            api_key,
            api_key_env: model.api_key_env.clone(),
            api_key_file: model.api_key_file.clone(),
            base_url: model.base_url.clone(),
            dialect: match model.dialect {
                ModelDialect::Anthropic => Dialect::Messages,
                ModelDialect::Openai => Dialect::ChatCompletions,
            },
            max_concurrent: model.max_concurrent,
            name: name.clone(),
            rate: RateLimits {
                requests_per_minute: model.requests_per_minute,
                tokens_per_minute: model.tokens_per_minute,
            },
            stream: model.stream,
            timeout: model.timeout.to_std(),
        });
    }
    Ok(builder.build().map_err(anyhow::Error::from)?)
}
