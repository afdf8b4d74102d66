//! How `dev`, `serve` and `worker` live: they say that they are ready, run until they are told to stop, and end in good
//! order.

use std::sync::Arc;

use aetheris_server::Ending;
use aetheris_store::system::{Clock as _, SystemClock};
use tokio::net::TcpListener;

use crate::error::Error;
use crate::exit::Exit;
use crate::last_words::died;
use crate::logging;
use crate::out::Out;
use crate::signals::StopRequests;
use crate::supervise::{Ended, Tasks};
use crate::wiring::{self, Wired, absolute};

/// Runs until SIGTERM, SIGINT or SIGHUP, then drains: no new claims and steps, what runs ends, the rest is given
/// back, and the server answers until then. A second SIGTERM or SIGINT gives up calls that have left as well. A task
/// that ends before that ends the process too: it drains in the same way, for as long as `worker.drain_timeout` at most.
pub(super) async fn until_stopped(
    wired: &Wired,
    mut signals: StopRequests,
    ending: &Ending,
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
    ending.draining.cancel();
    let drain_timeout = wired.config.worker.drain_timeout;
    let abandon = wired.stop.abandon.clone();
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
        panicked = all_ended(&mut tasks, ending) => panicked,
        () = insisted => None,
        () = patient => None,
    };
    if let Some(ended) = panicked {
        logging::say_error(&died_text(ended));
    }
    tracing::info!("stopped");
    Ok(if died.or(panicked).is_some() { Exit::Died } else { Exit::Done })
}

/// Waits for every task, and for the server's last; one of them that panicked.
async fn all_ended(tasks: &mut Tasks, ending: &Ending) -> Option<Ended> {
    let mut panicked = None;
    loop {
        // The server answers until everything else has ended.
        if tasks.only(SERVER) {
            ending.over.cancel();
        }
        let Some(ended) = tasks.next().await else { return panicked };
        panicked = panicked.or(Some(ended).filter(|ended| ended.panicked));
    }
}

fn died_text(ended: Ended) -> String {
    let how = if ended.panicked { " It panicked, which is a bug." } else { "" };
    format!("{}{how}", died(ended.name))
}

/// Says that the process is ready, on stdout for whoever started it and in the log. Nobody has to read it.
pub(super) fn announce(out: &Out, wired: &Wired, ready: &str, address: Option<std::net::SocketAddr>) {
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
    if let Some(address) = address.filter(|address| !wiring::is_loopback(*address)) {
        tracing::warn!(%address, "{OPEN}");
    }
    let database = wired.config.jobstore.database();
    let store = database.map_or_else(|| "memory".to_owned(), |path| absolute(path).display().to_string());
    let (instance, version) = (wired.instance, env!("CARGO_PKG_VERSION"));
    tracing::info!(%instance, version, store, listening = url.as_deref(), open_files = wired.open_files, "started");
}

/// What is said where others than this machine's programs may ask.
const OPEN: &str = "listening beyond this machine without authentication: anyone who can reach this address can do anything. Listen \
                    on loopback, or let only an authenticating proxy reach it";

const STOPPING: &str =
    "no new claims; jobs are given back; calls in flight are waited for. Stop again to stop waiting for them";

/// The task that answers.
const SERVER: &str = "server";

pub(super) fn start_server(wired: &Wired, listener: TcpListener, tasks: &mut Tasks, ending: &Ending) {
    let served = aetheris_server::serve(listener, wired.app_state(), ending.clone());
    let addresses = Arc::clone(&wired.listen_addresses);
    tasks.spawn(SERVER, async move {
        aetheris_fault::crash_point!("vital.server");
        let served = tokio::select! {
            served = served => served,
            unsaid = addresses.keep_announced() => unsaid.map(|never| match never {}),
        };
        if let Err(error) = served {
            tracing::error!(%error, "the server has ended");
        }
    });
}
