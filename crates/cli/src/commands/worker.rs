//! `worker`: runs the jobs of a database that it shares with servers and other workers.

use std::path::Path;
use std::time::Duration;

use aetheris_core::limits;
use aetheris_server::Ending;
use tokio::time::Instant;

use super::Context;
use super::lifecycle::{announce, until_stopped};
use crate::config::Config;
use crate::error::Error;
use crate::exit::Exit;
use crate::logging;
use crate::out::Out;
use crate::progress::Progress;
use crate::role::Role;
use crate::signals::StopRequests;
use crate::stored_agents;
use crate::supervise::Tasks;
use crate::wiring::{self, Wired};

/// Claims and executes. It also sweeps, so that workers alone take back what one of them has lost.
///
/// # Errors
/// The process cannot start.
pub async fn run(config: Config, moved: bool, context: &Context) -> Result<Exit, Error> {
    let Some(database) = config.jobstore.database() else {
        let message = "a worker shares a database with a server; jobstore.type memory is one process's own";
        return Err(Error::Usage(message.to_owned()));
    };
    let out = &context.out;
    // Before anything is waited for: what is wrong with the configuration stays wrong.
    wiring::agent_check(&config, &context.env, Role::Worker)?;
    made(database, out).await?;
    let opening = Progress::of(out, "opening the database");
    let wired = Wired::new(config, &context.env, Role::Worker, moved)?;
    drop(opening);
    stored_agents::warn_of_unusable(&wired).await?;
    let signals = StopRequests::new()?;
    let mut tasks = Tasks::default();
    let ending = Ending::default();
    wired.start_sweeps(&mut tasks, &ending.draining);
    wired.start_worker(&mut tasks)?;
    announce(out, &wired, &format!("aetheris worker: ready as {}", wired.worker_id()), None);
    until_stopped(&wired, signals, &ending, tasks, out).await
}

/// Between two looks for the database.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for the database that a server makes: both may be started at once. A worker makes none, since nobody would ever
/// send a job there.
async fn made(path: &Path, out: &Out) -> Result<(), Error> {
    let until = Instant::now() + limits::DATABASE_PATIENCE.to_std();
    let mut told = false;
    loop {
        match super::backup::found(path) {
            Ok(()) if path.metadata().is_ok_and(|found| found.len() > 0) => return Ok(()),
            Ok(()) => {}
            Err(error) if error.exit() == Exit::NotFound => {}
            Err(error) => return Err(error),
        }
        let shown = wiring::absolute(path);
        let shown = shown.display();
        if Instant::now() >= until {
            let message = format!(
                "there is no database {shown}, and a worker does not create one: start `aetheris serve` with the same \
                 configuration first, or name the database by an absolute path"
            );
            return Err(Error::Other { message, exit: Exit::NotFound });
        }
        if !std::mem::replace(&mut told, true) {
            let patience = limits::DATABASE_PATIENCE;
            let waits = format!("there is no database {shown} yet: waiting {patience} for `aetheris serve` to make it");
            logging::note(out, &waits);
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::process_control::Folder;

    /// A server that is just making it has the file before there is anything in it.
    #[tokio::test(start_paused = true)]
    async fn a_file_without_a_byte_is_no_database_yet() {
        let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-made").unwrap();
        let (path, out) = (folder.path().join("a.db"), Out::of_process(true, false, Default::default()));
        std::fs::write(&path, "").unwrap();
        let began = Instant::now();
        assert_eq!(made(&path, &out).await.unwrap_err().exit(), Exit::NotFound);
        assert!(began.elapsed() >= limits::DATABASE_PATIENCE.to_std(), "{:?}", began.elapsed());
        std::fs::write(&path, "x").unwrap();
        made(&path, &out).await.unwrap();
        // What is no file is none later either.
        let began = Instant::now();
        assert_eq!(made(&path.join("a.db"), &out).await.unwrap_err().exit(), Exit::NotFound);
        assert_eq!(made(folder.path(), &out).await.unwrap_err().exit(), Exit::NotFound);
        assert!(began.elapsed() >= limits::DATABASE_PATIENCE.to_std(), "{:?}", began.elapsed());
    }
}
