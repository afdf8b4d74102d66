//! `dev`, `serve` and `worker`: processes that run until they are told to stop.

use std::path::Path;
use std::sync::Arc;

use aetheris_core::id::InstanceId;
use aetheris_runtime::OpError;
use aetheris_store::NewAgent;
use aetheris_store::system::{Clock, System, SystemClock};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Context;
use super::agent_files::{self, Good};
use crate::args;
use crate::config::{Config, StoreKind};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::DataLock;
use crate::logging;
use crate::out::Out;
use crate::pid::PidFile;
use crate::progress::Progress;
use crate::signals::StopRequests;
use crate::supervise::{Ended, Tasks};
use crate::wiring::{self, Wired, died};

/// API, worker and sweeps in one process, on the database in a folder that is its own.
///
/// # Errors
/// The folder is in use, an agent file is wrong, or the process cannot start.
pub async fn run(given: &args::Dev, config: Config, context: &Context) -> Result<Exit, Error> {
    let out = &context.out;
    let Some(agents) = agents(given, &config, context)? else { return Ok(Exit::CheckFailed) };
    let instance = InstanceId::from_u128(System::machine().ids.secret());
    if config.jobstore.kind == StoreKind::Sqlite && !data_folder(&config).exists() {
        // Nobody is there who would be named instead, and nothing is to be left behind.
        wiring::can_listen(config.server.listen)?;
    }
    // The folder is taken before the database is opened: a second process changes nothing.
    let mut lock = match config.jobstore.kind {
        StoreKind::Memory => None,
        StoreKind::Sqlite => Some(DataLock::take(data_folder(&config), instance)?),
    };
    let _pid = lock.as_ref().map(|_| PidFile::write(data_folder(&config)));
    let opening = Progress::of(out, "opening the database");
    let wired = Wired { instance, works: true, ..Wired::new(config, &context.env, true, given.moved)? };
    drop(opening);
    aetheris_fault::crash_point!("start.opened");
    for agent in agents {
        wired.rt.store.put_agent(agent).await.map_err(anyhow::Error::from)?;
    }
    aetheris_fault::crash_point!("start.agents_put");
    if let Some(lock) = &mut lock {
        take_back(&wired, lock).await?;
        aetheris_fault::crash_point!("start.taken_back");
    }
    let listener = wired.listen().await?;
    let address = listener.local_addr().map_err(anyhow::Error::from)?;
    // Heard from here on: whoever has seen this process begin can end it in good order.
    let signals = StopRequests::new()?;
    let mut tasks = Tasks::default();
    let background = CancellationToken::new();
    wired.start_sweeps(&mut tasks, &background);
    wired.start_worker(&mut tasks)?;
    start_server(&wired, listener, &mut tasks, &background);
    aetheris_fault::crash_point!("start.listening");
    announce(out, &wired, &format!("aetheris dev: listening on http://{address}"), Some(address));
    until_stopped(&wired, signals, &background, tasks, out).await
}

/// The folder of the database: what `--data` names, or where the configuration puts the file.
pub(super) fn data_folder(config: &Config) -> &Path {
    let folder = config.jobstore.sqlite.path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// API, timers and sweeps.
///
/// # Errors
/// The process cannot start.
pub async fn serve(config: Config, moved: bool, context: &Context) -> Result<Exit, Error> {
    let out = &context.out;
    let opening = Progress::of(out, "opening the database");
    let wired = Wired::new(config, &context.env, false, moved)?;
    drop(opening);
    let listener = wired.listen().await?;
    let address = listener.local_addr().map_err(anyhow::Error::from)?;
    let signals = StopRequests::new()?;
    let mut tasks = Tasks::default();
    let background = CancellationToken::new();
    wired.start_sweeps(&mut tasks, &background);
    start_server(&wired, listener, &mut tasks, &background);
    announce(out, &wired, &format!("aetheris serve: listening on http://{address}"), Some(address));
    until_stopped(&wired, signals, &background, tasks, out).await
}

/// Claims and executes. It also sweeps, so that workers alone take back what one of them has lost.
///
/// # Errors
/// The process cannot start.
pub async fn worker(config: Config, moved: bool, context: &Context) -> Result<Exit, Error> {
    if config.jobstore.kind == StoreKind::Memory {
        let message = "a worker shares a database with a server; jobstore.type memory is one process's own";
        return Err(Error::Usage(message.to_owned()));
    }
    let out = &context.out;
    let opening = Progress::of(out, "opening the database");
    let wired = Wired::new(config, &context.env, false, moved)?;
    drop(opening);
    let signals = StopRequests::new()?;
    let mut tasks = Tasks::default();
    let background = CancellationToken::new();
    wired.start_sweeps(&mut tasks, &background);
    wired.start_worker(&mut tasks)?;
    announce(out, &wired, &format!("aetheris worker: ready as {}", wired.worker_id()), None);
    until_stopped(&wired, signals, &background, tasks, out).await
}

/// The agents that are to be put, or every mistake of every file said: nothing is made before all are good.
fn agents(given: &args::Dev, config: &Config, context: &Context) -> Result<Option<Vec<NewAgent>>, Error> {
    let files = agent_files::read(&given.agents);
    if !agent_files::all_good(&files) {
        agent_files::mistakes(&files).iter().for_each(|line| context.out.note(line));
        return Ok(None);
    }
    let check = wiring::agent_check(config, &context.env, true)?;
    let (mut agents, mut good) = (Vec::new(), true);
    for file in files {
        let Ok(Good { agent, text }) = file.parsed else { continue };
        for problem in check(&agent) {
            good = false;
            let (path, line) = problem.place(&text);
            context.out.note(&format!("{}:{line}: {path}: {}", agent_files::shown(file.path), problem.message));
        }
        agents.push(NewAgent { agent: Arc::new(agent), source: text });
    }
    Ok(good.then_some(agents))
}

/// The lock proves that its earlier holders are dead: their jobs are pending again before the first
/// claim.
async fn take_back(wired: &Wired, lock: &mut DataLock) -> Result<(), Error> {
    for dead in lock.predecessors().to_vec() {
        match aetheris_scheduler::reclaim_instance(&wired.rt, dead).await {
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

/// Runs until SIGTERM, SIGINT or SIGHUP, then drains: no new claims and steps, what runs ends, the rest is given
/// back. A second SIGTERM or SIGINT gives up calls that have left as well. A task that ends before that ends the process too:
/// it drains in the same way, for as long as `worker.drain_timeout` at most.
async fn until_stopped(
    wired: &Wired,
    mut signals: StopRequests,
    background: &CancellationToken,
    mut tasks: Tasks,
    out: &Out,
) -> Result<Exit, Error> {
    let (died, asked) = tokio::select! {
        biased;
        ended = tasks.next() => (ended, None),
        signal = signals.next() => (None, Some(signal)),
    };
    match died {
        None => {
            aetheris_fault::crash_point!("stop.asked");
            let by = asked.map(|signal| format!(" on {}", signal.name())).unwrap_or_default();
            logging::say(out, &format!("stopping{by}: {STOPPING}"));
        }
        Some(ended) => {
            logging::say_error(&died_text(ended));
        }
    }
    wired.stop.drain.cancel();
    background.cancel();
    let drain_timeout = wired.config.worker.drain_timeout;
    let abandon = wired.stop.abandon.clone();
    let ended = async {
        let mut panicked = None;
        while let Some(ended) = tasks.next().await {
            panicked = panicked.or(Some(ended).filter(|ended| ended.panicked));
        }
        panicked
    };
    let insisted = async {
        let signal = signals.insisted().await.name();
        logging::say(
            out,
            &format!("{signal} again: calls of at_most_once tools that have left are given up, and are in doubt"),
        );
        abandon.cancel();
        std::future::pending::<()>().await;
    };
    // A call that has left keeps its own timeout, however long; after this time people are told so.
    let patient = async {
        tokio::time::sleep(drain_timeout.to_std()).await;
        if died.is_some() {
            return;
        }
        logging::say(
            out,
            &format!(
                "still waiting after {drain_timeout}: calls of at_most_once tools that have left keep their own timeouts"
            ),
        );
        std::future::pending::<()>().await;
    };
    let panicked = tokio::select! {
        panicked = ended => panicked,
        () = insisted => None,
        () = patient => None,
    };
    if let Some(ended) = panicked {
        logging::say_error(&died_text(ended));
    }
    tracing::info!("stopped");
    Ok(if died.or(panicked).is_some() { Exit::Died } else { Exit::Done })
}

fn died_text(ended: Ended) -> String {
    let how = if ended.panicked { " by a bug" } else { "" };
    format!("{}{how}", died(ended.name))
}

/// Says that the process is ready, on stdout for whoever started it and in the log. Nobody has to read it.
fn announce(out: &Out, wired: &Wired, ready: &str, address: Option<std::net::SocketAddr>) {
    let url = address.map(|address| format!("http://{address}"));
    let line = if logging::is_json() {
        serde_json::json!({ "level": "INFO", "listening": url, "message": ready, "timestamp": SystemClock.wall().to_string() })
            .to_string()
    } else {
        ready.to_owned()
    };
    if let Err(error) = out.line(&line) {
        tracing::debug!(%error, "stdout cannot be written");
    }
    let store = match wired.config.jobstore.kind {
        StoreKind::Memory => "memory".to_owned(),
        StoreKind::Sqlite => wired.config.jobstore.sqlite.path.display().to_string(),
    };
    let (instance, version) = (wired.instance, env!("CARGO_PKG_VERSION"));
    tracing::info!(%instance, version, store, listening = url.unwrap_or_default(), open_files = wired.open_files, "started");
}

const STOPPING: &str =
    "no new claims, jobs are given back, calls that have left are awaited. Stop again to stop waiting for them";

fn start_server(wired: &Wired, listener: TcpListener, tasks: &mut Tasks, background: &CancellationToken) {
    let served = aetheris_server::serve(listener, wired.app_state(), background.clone());
    tasks.spawn("server", async move {
        aetheris_fault::crash_point!("vital.server");
        if let Err(error) = served.await {
            tracing::error!(%error, "the server has ended");
        }
    });
}
