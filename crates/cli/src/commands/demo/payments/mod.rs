//! A small payments service: the outside world of the demonstration, in a process of its own.
//!
//! It books every `POST /refunds` that reaches it and never looks whether it has booked the same
//! idempotency key before: a second call would be a second refund, and its log would show it. What it refuses are calls
//! of which it has said that they did not happen. Bookings and refusals are on disk before they are answered.
//!
//! | call | answer |
//! |---|---|
//! | `GET /orders/{id}` | the order |
//! | `POST /refunds` | books, always, but for a refused permit (410); the answer can be held back |
//! | `POST /refunds/lookup` | whether a key was booked; if not, refuses this and every earlier permit of it from now on |
//!
//! Whoever started it speaks to it on stdin ([`wire::Command`]) and hears of what happens on stdout
//! ([`wire::Notice`]). It ends when its stdin does.

mod log;
mod routes;
mod wire;

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub(super) use self::log::{Booking, read as read_log};
use self::routes::Service;
pub(super) use self::wire::{Command, Notice};
use super::super::process_control::{Ended, Tag, Watched};
use crate::error::Error;
use crate::exit::Exit;
use crate::wiring::{LISTEN_FLAG, unheard};

/// Arguments of the hidden `demo-payments`.
#[derive(Debug, Clone, clap::Args)]
pub struct PaymentsArgs {
    /// The log of bookings, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub log: PathBuf,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
}

/// Serves until stdin ends.
///
/// # Errors
/// The log cannot be opened, or the address not be listened at.
pub async fn run(args: &PaymentsArgs) -> Result<Exit, Error> {
    let log = log::BookingLog::open(&args.log)
        .map_err(|error| Error::Internal(anyhow::anyhow!("{} cannot be opened: {error}", args.log.display())))?;
    let listener = TcpListener::bind(args.listen).await.map_err(|error| unheard(args.listen, LISTEN_FLAG, &error))?;
    let address = listener.local_addr().map_err(anyhow::Error::from)?;
    let service = Arc::new(Service::new(log, say));
    let (ended, end) = oneshot::channel();
    let obeying = Arc::clone(&service);
    std::thread::spawn(move || {
        obey(&obeying);
        ended.send(())
    });
    say(&Notice::Listening { url: format!("http://{address}") });
    let app = routes::router(service).into_make_service_with_connect_info::<Tag>();
    tokio::select! {
        served = axum::serve(Watched::new(listener, ended_as), app) => served.map_err(anyhow::Error::from)?,
        _ended = end => tracing::info!("stdin has ended: stopping"),
    }
    Ok(Exit::Done)
}

/// Follows the commands on stdin until it ends.
fn obey(service: &Service) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else {
            return;
        };
        match serde_json::from_str(&line) {
            Ok(Command::Hold) => service.hold(),
            Ok(Command::Release) => service.release(),
            Err(_) => tracing::warn!(line, "not a command: expected \"hold\" or \"release\", with the quotes"),
        }
    }
}

/// Says how a connection ended that had asked for a refund.
fn ended_as(Ended { answered, by_client, connection }: Ended) {
    say(&Notice::Closed { answered, by_client, connection });
}

/// Says something on stdout. If nobody listens any more, stdin has ended as well.
fn say(notice: &Notice) {
    if let Ok(mut line) = serde_json::to_string(notice) {
        line.push('\n');
        let mut out = std::io::stdout().lock();
        let _unheard = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests;
