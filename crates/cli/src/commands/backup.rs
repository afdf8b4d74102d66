//! `backup`: a checked copy of the database, which may be in use.

use std::path::Path;
use std::time::Duration;

use aetheris_api::Command;
use aetheris_store::system::System;
use serde_json::json;
use tokio::time::Instant;

use super::Context;
use crate::args;
use crate::config::Config;
use crate::error::{Error, counted};
use crate::exit::Exit;
use crate::out::Out;
use crate::wiring::{self, Progress};

/// A copy that takes longer says how far it is, and then this often.
const TELL: Duration = Duration::from_secs(2);

/// Copies the configured database to a file.
///
/// # Errors
/// There is no database, the file is there, or one of them cannot be read or written.
pub(super) async fn run(given: &args::Backup, config: &Config, context: &Context) -> Result<Exit, Error> {
    let database = config.jobstore.sqlite.path.clone();
    found(&database)?;
    if given.file.exists() {
        let file = given.file.display();
        return Err(Error::Conflict(format!("{file} exists; a backup is never written over a file: name another")));
    }
    let (file, mut told) = (given.file.clone(), teller(&context.out, "backup"));
    let clock = System::machine().clock;
    let copied = blocking(move || wiring::backup(&database, &file, clock.as_ref(), &mut told)).await?;
    let copied = copied.map_err(|error| Error::Other {
        message: format!("no backup was written: {}", error.source),
        exit: Exit::Failed,
    })?;
    if context.out.json {
        let (bytes, generation) = (copied.bytes, copied.generation);
        let (jobs, unfinished) = (copied.jobs, copied.unfinished);
        let value = json!({ "bytes": bytes, "file": given.file, "generation": generation, "jobs": jobs, "unfinished": unfinished });
        context.out.value(&value)?;
        return Ok(Exit::Done);
    }
    context.out.line(&format!(
        "wrote {}: {}, {}, {} of them unfinished; checked and durable",
        given.file.display(),
        size(copied.bytes),
        counted(usize::try_from(copied.jobs).unwrap_or(usize::MAX), "job"),
        copied.unfinished
    ))?;
    let file = given.file.display().to_string();
    let place = match (&given.data, &given.config) {
        (Some(data), _) => Some(("data", data.display().to_string())),
        (None, Some(config)) => Some(("config", config.display().to_string())),
        (None, None) => None,
    };
    let place = place.as_ref().map(|(option, value)| (*option, value.as_str()));
    context.out.note(&format!("put it back with: {}", Command::Restore { file: &file, place }));
    Ok(Exit::Done)
}

/// # Errors
/// There is no such file.
pub(super) fn found(path: &Path) -> Result<(), Error> {
    if path.is_file() {
        return Ok(());
    }
    let message = format!("there is no database {}: --data or --config names another", path.display());
    Err(Error::Other { message, exit: Exit::NotFound })
}

/// Tells people how far a long copy is.
pub(super) fn teller(out: &Out, what: &'static str) -> impl FnMut(Progress) + Send + use<> {
    let (out, mut next) = (out.clone(), Instant::now() + TELL);
    move |at: Progress| {
        if Instant::now() < next || at.of == 0 {
            return;
        }
        next = Instant::now() + TELL;
        out.note(&format!("{what}: {} of {} pages, {} %", at.done, at.of, at.done.saturating_mul(100) / at.of));
    }
}

/// Runs what waits for the disk away from the threads of the runtime.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.into()))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1_024)),
        _ => format!("{} MiB", bytes.div_ceil(1_048_576)),
    }
}
