//! `backup`: a checked copy of the database, which may be in use.

use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
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
use crate::signals::StopRequests;
use crate::wiring::{self, Progress, Stop};

/// A copy that takes longer says how far it is, and then this often.
const TELL: Duration = Duration::from_secs(2);

/// Copies the configured database to a file.
///
/// # Errors
/// There is no database, the file is there, one of them cannot be read or written, or a signal has ended it.
pub(super) async fn run(given: &args::Backup, config: &Config, context: &Context) -> Result<Exit, Error> {
    let database = config.jobstore.sqlite.path.clone();
    found(&database)?;
    if given.file.exists() {
        let file = given.file.display();
        return Err(Error::Conflict(format!("{file} exists; a backup is never written over a file: name another")));
    }
    if given.file.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(Error::Usage(format!(
            "{} is a folder: name the file that the backup is to be",
            given.file.display()
        )));
    }
    let folder = given.file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_missing = |folder: &&Path| folder.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if let Some(folder) = folder.filter(is_missing) {
        let message = format!("no backup was written: there is no folder {}", folder.display());
        return Err(Error::Other { message, exit: Exit::NotFound });
    }
    let (file, mut told) = (given.file.clone(), teller(&context.out, "backup"));
    let clock = System::machine().clock;
    let copy = move |stop: &Stop| wiring::backup(&database, &file, clock.as_ref(), stop, &mut told);
    let copied = stoppable(&context.out, copy).await?;
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

/// Does work that a signal asks to end. One that insists does not wait for that: what is left then is removed by the next
/// backup to the same file.
async fn stoppable<T: Send + 'static>(out: &Out, work: impl FnOnce(&Stop) -> T + Send + 'static) -> Result<T, Error> {
    let mut signals = StopRequests::new()?;
    let stop = Arc::new(Stop::default());
    let asked = Arc::clone(&stop);
    let mut work = pin!(blocking(move || work(&asked)));
    let signal = tokio::select! {
        biased;
        ended = &mut work => return ended,
        signal = signals.next() => signal,
    };
    stop.ask();
    out.note(&format!("stopping on {}", signal.name()));
    tokio::select! {
        biased;
        ended = &mut work => ended,
        signal = signals.insisted() => {
            let message = format!("no backup was written: a second {} has ended it", signal.name());
            Err(Error::Other { message, exit: Exit::Failed })
        }
    }
}

/// # Errors
/// There is no such file, or this user may not look.
pub(super) fn found(path: &Path) -> Result<(), Error> {
    let shown = wiring::absolute(path);
    let shown = shown.display();
    let message = match path.metadata() {
        Ok(there) if there.is_file() => return Ok(()),
        Ok(_) => format!("{shown} is no file: --data or --config names another"),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            format!("there is no database {shown}: --data or --config names another")
        }
        // It may be there: whoever is not allowed to look must not believe it lost.
        Err(error) => return Err(Error::Internal(anyhow::anyhow!("{shown} cannot be looked at: {error}"))),
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::process_control::Folder;
    use crate::render::Style;

    /// Nobody is told of half a backup, and none is left.
    #[tokio::test]
    async fn a_signal_ends_a_backup_that_can_tidy_up_first() {
        use rustix::process::Signal;
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let work = move |stop: &Stop| {
                rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
                while !stop.is_asked() {
                    std::thread::yield_now();
                }
                "tidied up"
            };
            let out = crate::out::Out::of_process(true, false, Default::default());
            assert_eq!(stoppable(&out, work).await.unwrap(), "tidied up");
        }
    }

    #[test]
    fn a_size_is_never_told_too_small() {
        const MIB: u64 = 1_024 * 1_024;
        for (bytes, said) in [
            (0, "0 KiB"),
            (1, "1 KiB"),
            (1_024, "1 KiB"),
            (1_025, "2 KiB"),
            (MIB - 1, "1024 KiB"),
            (MIB, "1 MiB"),
            (MIB + 1, "2 MiB"),
        ] {
            assert_eq!(size(bytes), said);
        }
    }

    /// A short copy says nothing, and a long one not with every page.
    #[tokio::test(start_paused = true)]
    async fn how_far_a_copy_is_is_told_now_and_then() {
        let kept = crate::tests::Kept::default();
        let out = Out::to(Box::new(std::io::sink()), Box::new(kept.clone()), false, false, [Style::default(); 2]);
        let mut tell = teller(&out, "backup");
        for done in 0..=10 {
            tell(Progress { done, of: 20 });
            tokio::time::advance(TELL / 4).await;
        }
        tell(Progress { done: 11, of: 0 });
        assert_eq!(kept.text(), "backup: 4 of 20 pages, 20 %\nbackup: 8 of 20 pages, 40 %\n");
    }

    #[test]
    fn a_database_that_cannot_be_looked_at_is_not_called_missing() {
        let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-found").unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("whole"), "").unwrap();
        found(&path("whole")).unwrap();
        for missing in [path("none"), path("whole").join("none")] {
            let error = found(&missing).unwrap_err();
            assert!(error.to_string().starts_with("there is no database "), "{error}");
        }
        assert!(found(folder.path()).unwrap_err().to_string().contains(" is no file"));
        std::os::unix::fs::symlink("loop", path("loop")).unwrap();
        let error = found(&path("loop")).unwrap_err();
        assert!(error.to_string().contains("cannot be looked at: "), "{error}");
    }
}
