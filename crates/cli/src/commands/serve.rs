//! `serve`: a server without a worker.

use aetheris_server::Ending;

use super::Context;
use super::lifecycle::{announce, start_server, until_stopped};
use crate::config::Config;
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::SharedLock;
use crate::progress::Progress;
use crate::role::Role;
use crate::signals::StopRequests;
use crate::supervise::Tasks;
use crate::wiring::{self, Wired};

/// API, timers and sweeps.
///
/// # Errors
/// The process cannot start.
pub async fn run(config: Config, moved: bool, context: &Context) -> Result<Exit, Error> {
    let out = &context.out;
    let Some(database) = config.jobstore.database() else {
        // No worker could ever share it.
        let message = "a server without a worker shares a database with workers; jobstore.type memory is one process's own: \
                       `aetheris dev --ephemeral` runs both on one";
        return Err(Error::Usage(message.to_owned()));
    };
    if !database.exists() {
        // Nothing is to be left behind where nobody can be answered.
        wiring::can_listen(config.server.listen, Role::Serve)?;
    }
    // Taken before the database is opened: a second process changes nothing.
    let _lock = SharedLock::take(config.data_folder())?;
    let opening = Progress::of(out, "opening the database");
    let wired = Wired::new(config, &context.env, Role::Serve, moved)?;
    drop(opening);
    let listener = wired.listen().await?;
    let address = listener.local_addr().map_err(anyhow::Error::from)?;
    let signals = StopRequests::new()?;
    let mut tasks = Tasks::default();
    let ending = Ending::default();
    wired.start_sweeps(&mut tasks, &ending.draining);
    start_server(&wired, listener, &mut tasks, &ending);
    announce(out, &wired, &format!("aetheris serve: listening on http://{address}"), Some(address));
    until_stopped(&wired, signals, &ending, tasks, out).await
}
