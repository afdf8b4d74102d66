//! `worker`: runs the jobs of a database that it shares with servers and other workers.

use aetheris_server::Ending;

use super::Context;
use super::lifecycle::{announce, until_stopped};
use crate::config::{Config, StoreKind};
use crate::error::Error;
use crate::exit::Exit;
use crate::progress::Progress;
use crate::role::Role;
use crate::signals::StopRequests;
use crate::supervise::Tasks;
use crate::wiring::Wired;

/// Claims and executes. It also sweeps, so that workers alone take back what one of them has lost.
///
/// # Errors
/// The process cannot start.
pub async fn run(config: Config, moved: bool, context: &Context) -> Result<Exit, Error> {
    if config.jobstore.kind == StoreKind::Memory {
        let message = "a worker shares a database with a server; jobstore.type memory is one process's own";
        return Err(Error::Usage(message.to_owned()));
    }
    let out = &context.out;
    let opening = Progress::of(out, "opening the database");
    let wired = Wired::new(config, &context.env, Role::Worker, moved)?;
    drop(opening);
    let signals = StopRequests::new()?;
    let mut tasks = Tasks::default();
    let ending = Ending::default();
    wired.start_sweeps(&mut tasks, &ending.draining);
    wired.start_worker(&mut tasks)?;
    announce(out, &wired, &format!("aetheris worker: ready as {}", wired.worker_id()), None);
    until_stopped(&wired, signals, &ending, tasks, out).await
}
