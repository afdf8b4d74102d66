//! `check-consistency`: the invariants, evaluated over a database. Reads only, and makes no file.

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aetheris_check::{ClientHistory, Invariant, Report, Survey};
use aetheris_store::{ErrorKind, Store, StoreError};
use tokio::task::JoinSet;

use super::Context;
use crate::config::Config;
use crate::error::{Error, counted};
use crate::exit::Exit;
use crate::render::{self, wrap};
use crate::wiring;

/// How often the progress is told.
const TOLD_EVERY: Duration = Duration::from_millis(500);

/// Checks the configured database. It may be in use.
///
/// # Errors
/// There is no database, or it cannot be read.
pub async fn run(config: &Config, context: &Context) -> Result<Exit, Error> {
    let path = config.jobstore.sqlite.path.clone();
    super::backup::found(&path)?;
    let report = check(&path).await.map_err(|error| unreadable(&path, &error))?;
    // A database alone has no witness log and not every kind of case: what is not there cannot be wrong.
    let absent = report.unexamined();
    let report = report.excuse(&absent);
    if context.out.json {
        context.out.value(&report)?;
    } else {
        let count = |count: u64, noun| counted(usize::try_from(count).unwrap_or(usize::MAX), noun);
        let (jobs, events) = (count(report.jobs, "job"), count(report.events, "event"));
        let verdict = verdict(report.is_clean(), absent.len());
        let style = context.out.style;
        let sum = wrap(&format!("{jobs}, {events} in {}: {verdict}", path.display()), style.columns, 0, 2);
        context.out.text(&format!("{}\n{sum}\n", render::check::report(&report, style)))?;
        context.out.note(&wrap(&beyond(&context.program()), context.out.style_aside.columns, 0, 0));
    }
    Ok(if report.is_clean() { Exit::Done } else { Exit::CheckFailed })
}

/// What a report comes to, of which so many invariants had no cases.
fn verdict(clean: bool, absent: usize) -> String {
    match (clean, absent) {
        (false, _) => "violations found".to_owned(),
        (true, 0) => "all invariants hold".to_owned(),
        (true, absent) => format!("none violated; {absent} had no cases here"),
    }
}

/// What no database can show: without it, "no cases here" reads as if the calls had not been recognised.
fn beyond(program: &str) -> String {
    let names = |of: &[Invariant]| of.iter().map(|id| id.id()).collect::<Vec<_>>().join(", ");
    format!(
        "{} need the tools' own logs and {} what clients were told: `{program} prove` judges them on this machine",
        names(Invariant::OF_WITNESS),
        names(Invariant::OF_CLIENTS)
    )
}

fn unreadable(path: &Path, error: &StoreError) -> Error {
    let exit = if error.kind == ErrorKind::Corrupt { Exit::CheckFailed } else { Exit::Failed };
    Error::Other { message: format!("{} cannot be checked: {}", path.display(), error.source), exit }
}

async fn check(path: &Path) -> Result<Report, StoreError> {
    let hands = std::thread::available_parallelism().map_or(1, usize::from);
    let store = wiring::open_read_only(path, hands)?;
    let survey = Arc::new(Survey::new(&[], &ClientHistory::default()));
    let mut tasks = JoinSet::new();
    // One reads while another checks what it has read.
    for _ in 0..hands * 2 {
        let (store, survey) = (Arc::clone(&store), Arc::clone(&survey));
        tasks.spawn(async move { survey.take_part(store.as_ref()).await });
    }
    let mut parts = Vec::new();
    let mut progress = Progress::begin();
    while !tasks.is_empty() {
        tokio::select! {
            part = tasks.join_next() => match part {
                Some(Ok(part)) => parts.push(part?),
                Some(Err(e)) => return Err(StoreError::new(ErrorKind::Corrupt, "check", e)),
                None => break,
            },
            () = tokio::time::sleep(TOLD_EVERY) => progress.tell(&survey),
        }
    }
    progress.end();
    let report = survey.conclude(store.as_ref() as &dyn Store, parts).await?;
    store.was_left_alone()?;
    Ok(report)
}

/// One line on stderr that is drawn again, where that is a terminal.
struct Progress {
    began: std::time::Instant,
    drawn: bool,
    shown: bool,
}

impl Progress {
    #[expect(clippy::disallowed_methods, reason = "how long a check takes is told to a person and decides nothing")]
    fn begin() -> Self {
        Self { began: std::time::Instant::now(), drawn: false, shown: std::io::stderr().is_terminal() }
    }

    fn tell(&mut self, survey: &Survey) {
        let (done, Some(of)) = survey.progress() else { return };
        if self.shown {
            self.drawn = true;
            eprint(&format!("\r\u{1b}[K{}", line(done.min(of), of, self.began.elapsed())));
        }
    }

    fn end(&self) {
        if self.drawn {
            eprint("\r\u{1b}[K");
        }
    }
}

/// How far it has come, how fast it is, and how long the rest takes.
fn line(done: u64, of: u64, took: Duration) -> String {
    let rate = u64::try_from(u128::from(done) * 1_000 / took.as_millis().max(1)).unwrap_or(u64::MAX);
    let left = of.saturating_sub(done).checked_div(rate);
    let left = left.map_or_else(String::new, |left| format!(", {} left", aetheris_core::time::Span::from_secs(left)));
    format!("{done} of {of} jobs, {rate} a second{left}")
}

fn eprint(text: &str) {
    use std::io::Write as _;
    // A terminal that has gone loses nothing.
    let mut stderr = std::io::stderr();
    let _unheard = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_what_it_comes_to() {
        assert_eq!(verdict(false, 2), "violations found");
        assert_eq!(verdict(true, 0), "all invariants hold");
        assert_eq!(verdict(true, 2), "none violated; 2 had no cases here");
    }

    #[test]
    fn a_database_that_is_damaged_fails_the_check_and_one_that_cannot_be_read_does_not() {
        for (kind, exit) in [
            (ErrorKind::Corrupt, Exit::CheckFailed),
            (ErrorKind::Unavailable, Exit::Failed),
            (ErrorKind::Full, Exit::Failed),
            (ErrorKind::Invalid, Exit::Failed),
        ] {
            let error = unreadable(Path::new("a.db"), &StoreError::new(kind, "check", "why"));
            assert_eq!((error.exit(), error.to_string()), (exit, "a.db cannot be checked: why".to_owned()), "{kind:?}");
        }
    }

    #[test]
    fn progress_says_how_far_how_fast_and_how_long() {
        let told = line(500_000, 2_000_000, Duration::from_secs(25));
        assert_eq!(told, "500000 of 2000000 jobs, 20000 a second, 75s left");
        assert_eq!(line(0, 7, Duration::ZERO), "0 of 7 jobs, 0 a second");
    }
}
