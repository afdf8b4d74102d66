//! `restore`: a backup becomes the database, and what was unfinished in it is held.

use std::path::Path;
use std::sync::Arc;

use aetheris_core::event::PauseReason;
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::projection::Promise;
use aetheris_runtime::Runtime;
use aetheris_runtime::ops::Held;
use aetheris_store::system::System;
use aetheris_store::{JobFilter, JobPage, JobRow, Scope};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;

use super::Context;
use super::backup::{blocking, teller};
use crate::args;
use crate::config::Config;
use crate::error::{Error, counted};
use crate::exit::Exit;
use crate::lock::SharedLock;
use crate::out::Out;
use crate::wiring::{self, Staged};

/// Puts a backup in the place of the configured database. Nothing may run on it.
///
/// # Errors
/// The folder is in use, the file is no backup, or something cannot be read or written.
pub(super) async fn run(given: &args::Restore, config: &Config, context: &Context) -> Result<Exit, Error> {
    if !given.file.is_file() {
        let shown = given.file.display();
        let message = if given.file.is_dir() {
            format!("{shown} is a folder: name the backup's file in it")
        } else {
            format!("there is no file {shown}")
        };
        return Err(Error::Other { message, exit: Exit::NotFound });
    }
    // Before anything is made in the folder, or the folder itself.
    let file = given.file.clone();
    let recognised = blocking(move || wiring::recognise(&file)).await?;
    recognised.map_err(|error| unusable(&given.file, &error))?;
    let new = !config.data_folder().exists();
    let lock = SharedLock::take(config.data_folder())?;
    let restored = restored(given, config, context).await;
    if new && restored.is_err() {
        lock.leave_no_trace();
    }
    restored
}

/// The restore itself, with the folder's lock.
async fn restored(given: &args::Restore, config: &Config, context: &Context) -> Result<Exit, Error> {
    let system = System::machine();
    let database = config.jobstore.sqlite.path.clone();
    let (file, at, mut told) = (given.file.clone(), database.clone(), teller(&context.out, "restore"));
    let clock = Arc::clone(&system.clock);
    let staged = blocking(move || wiring::stage(&file, &at, clock.as_ref(), &mut told)).await?;
    let staged = staged.map_err(|error| refused(&given.file, &error))?;
    let mut holds = hold(&staged, system.clone(), &context.out).await?;
    let (generation, jobs) = (staged.generation, staged.backed.jobs);
    let now = system.clock.wall();
    let unread = holds.unreadable.clone();
    let (staged, rest) = blocking(move || staged.hold_rest(now, &unread).map(|rest| (staged, rest)))
        .await?
        .map_err(|error| refused(&given.file, &error))?;
    let lost = hold_mended(&staged, &rest.held, system.clone(), &mut holds).await?;
    let unreadable = holds.unreadable_before.iter().chain(&rest.unreadable).chain(&lost);
    let unreadable: Vec<String> = unreadable.map(ToString::to_string).collect();
    let custody = wiring::custody(&system, false);
    let aside =
        blocking(move || staged.put_in_place(now, custody)).await?.map_err(|error| refused(&database, &error))?;
    if context.out.json {
        let value = json!({ "database": database, "ended": holds.ended, "generation": generation, "held": holds.now,
            "held_before": holds.before, "jobs": jobs, "kept_aside": aside,
            "paused_by_operator": holds.operators, "undelivered": holds.undelivered, "unreadable": unreadable });
        context.out.value(&value)?;
        return Ok(Exit::Done);
    }
    let mut text = format!(
        "restored {} into {}: generation {generation}, {}\n",
        given.file.display(),
        database.display(),
        counted(usize::try_from(jobs).unwrap_or(usize::MAX), "job")
    );
    if let Some(aside) = aside {
        text.push_str(&format!("the database that was there is kept as {}\n", aside.display()));
    }
    text.push_str(&summary(&holds, &unreadable));
    context.out.text(&text)?;
    Ok(Exit::Done)
}

fn refused(file: &Path, error: &aetheris_store::StoreError) -> Error {
    let path = file.display();
    match error.kind {
        aetheris_store::ErrorKind::Invalid => Error::Conflict(format!("{path} cannot be restored: {}", error.source)),
        aetheris_store::ErrorKind::Corrupt => unusable(file, error),
        aetheris_store::ErrorKind::Full | aetheris_store::ErrorKind::Unavailable => {
            Error::Internal(anyhow::anyhow!("{path} cannot be restored: {error}"))
        }
    }
}

/// A file of which no database can be made, whatever the state of the folder is.
fn unusable(file: &Path, error: &aetheris_store::StoreError) -> Error {
    let file = file.display();
    let message = format!("{file} is not a backup of a database, or is damaged: {}", error.source);
    Error::Other { message, exit: Exit::Failed }
}

/// What is held of a restored database.
#[derive(Default)]
struct Holds {
    /// Jobs that an earlier restore has held.
    before: usize,
    /// Jobs whose end had been asked for: they have ended now.
    ended: usize,
    /// Jobs that this restore has held.
    now: usize,
    /// Jobs that an operator has paused: no restore lets them go on.
    operators: usize,
    /// What the backup left to be done for children that could not be done, each with its job.
    undelivered: Vec<String>,
    /// Jobs that are to be held and whose histories cannot be read.
    unreadable: Vec<JobId>,
    /// The same of jobs that an earlier restore has held.
    unreadable_before: Vec<JobId>,
}

impl Holds {
    /// Counts what this restore did with a job.
    fn count(&mut self, held: Held) {
        match held {
            Held::Now => self.now += 1,
            Held::AsAsked => self.operators += 1,
            Held::Ended => self.ended += 1,
            Held::Already => {}
        }
    }
}

/// Most that is listed of what could not be done.
const UNDELIVERED_SHOWN: usize = 10;

/// What is held, and how it goes on.
fn summary(holds: &Holds, unreadable: &[String]) -> String {
    let is = |count: usize| if count == 1 { "is" } else { "are" };
    let (now, before, operators) = (holds.now, holds.before, holds.operators);
    let held = now > 0 || before > 0;
    let mut text = String::new();
    if now > 0 {
        text.push_str(&format!(
            "{} {} held: what was done after the backup is not in it, and would be done again.\n",
            counted(now, "unfinished job"),
            is(now)
        ));
    }
    if before > 0 {
        let was = if before == 1 { "was" } else { "were" };
        text.push_str(&format!("{} {was} held before.\n", counted(before, "unfinished job")));
    }
    if operators > 0 {
        let (stay, resumed) = if operators == 1 { ("stays", "it is") } else { ("stay", "they are") };
        let jobs = counted(operators, "unfinished job");
        text.push_str(&format!(
            "{jobs} {} paused by an operator and {stay} so: what was done after the backup would be done again once \
             {resumed} resumed.\n",
            is(operators)
        ));
    }
    if holds.ended > 0 {
        let (was, has, it) = if holds.ended == 1 { ("was", "has", "it") } else { ("were", "have", "one") };
        text.push_str(&format!(
            "{} {was} to end, and {has} ended now. A call that {it} had made may be in doubt; once the server runs:\n  \
             aetheris in-doubt --unresolved\n",
            counted(holds.ended, "unfinished job")
        ));
    }
    if held || operators > 0 {
        text.push_str(
            "Deadlines keep running: one that passes ends its wait or fails its job (deadline_exceeded), and calls \
             nothing.\n\
             Start the server, look at what each job did after the backup, then let it go on:\n  \
             aetheris jobs --status paused\n  aetheris resume JOB\n",
        );
    }
    if held {
        text.push_str("  aetheris resume --all-restored\n");
    }
    match unreadable {
        [] if text.is_empty() => text.push_str("there were no unfinished jobs to hold\n"),
        [] => {}
        [first, ..] => text.push_str(&format!(
            "{} that cannot be read {} held{}, and cannot go on:\n  {}\n\
             Once the server runs, see what is wrong with one:\n  aetheris verify {first}\n",
            counted(unreadable.len(), "unfinished job"),
            is(unreadable.len()),
            if held { " too" } else { "" },
            unreadable.join("\n  ")
        )),
    }
    if let Some(shown) =
        holds.undelivered.get(..holds.undelivered.len().min(UNDELIVERED_SHOWN)).filter(|s| !s.is_empty())
    {
        text.push_str(&format!(
            "{} between parent and child jobs of the backup could not be kept. The server tries again, and a child job that it creates then is not held:\n  {}\n",
            counted(holds.undelivered.len(), "promise"),
            shown.join("\n  ")
        ));
    }
    text
}

/// Holds every unfinished job of the staged copy. It runs no step, so that a restore needs neither the keys of models
/// nor what tools ask for.
async fn hold(staged: &Staged, system: System, out: &Out) -> Result<Holds, Error> {
    let store = wiring::open_sqlite(&staged.path, &system)?;
    let rt = Runtime::offline(store, system);
    deliver(&rt).await?;
    // Before the others: what this restore holds is paused afterwards too.
    let mut holds = held_before(&rt).await?;
    holds.undelivered = undelivered(&rt).await?;
    let statuses: Vec<_> = JobStatus::OPEN.into_iter().filter(|status| *status != JobStatus::Paused).collect();
    let mut before = None;
    loop {
        let page = page(&rt, &statuses, before).await?;
        for (job, now) in hold_all(&rt, &ids(&page.jobs)).await? {
            match now {
                Some(held) => holds.count(held),
                None => holds.unreadable.push(job),
            }
        }
        before = page.next;
        if before.is_none() {
            return Ok(holds);
        }
        out.note(&format!("{} held; going on", counted(holds.now, "unfinished job")));
    }
}

/// Holds by an event the jobs whose rows have been mended by a hold, so that each is what its history says; and counts
/// them. Those that cannot be read after all are the answer.
async fn hold_mended(staged: &Staged, jobs: &[JobId], system: System, holds: &mut Holds) -> Result<Vec<JobId>, Error> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let rt = Runtime::offline(wiring::open_sqlite(&staged.path, &system)?, system);
    let mut lost = Vec::new();
    for (job, held) in hold_all(&rt, jobs).await? {
        match held {
            Some(Held::Already) => {
                let row = rt.store.job(Scope::System, job).await.map_err(anyhow::Error::from)?;
                match row.and_then(|row| row.paused) {
                    Some((PauseReason::Operator, _)) => holds.operators += 1,
                    Some((PauseReason::Restored, _)) => holds.now += 1,
                    None => {}
                }
            }
            Some(held) => holds.count(held),
            None => lost.push(job),
        }
    }
    Ok(lost)
}

/// Does what the staged copy has promised and not done: a child job that was asked for is there then, and held like any other.
async fn deliver(rt: &Runtime) -> Result<(), Error> {
    // What is done may promise more: a child that is cancelled has children of its own.
    let mut before = Vec::new();
    for _ in 0..=2 * limits::CHILD_DEPTH_MAX {
        let delivered = aetheris_scheduler::deliver_all(rt).await;
        delivered.map_err(|error| anyhow::anyhow!("child jobs cannot be brought up to date: {error}"))?;
        let standing = rt.store.outbox(None, limits::SWEEP_ROWS_MAX).await.map_err(anyhow::Error::from)?;
        // What cannot be carried out keeps nothing else from it.
        if standing.is_empty() || standing == before {
            break;
        }
        before = standing;
    }
    Ok(())
}

/// What stands in the outbox all the same.
async fn undelivered(rt: &Runtime) -> Result<Vec<String>, Error> {
    let rows = rt.store.outbox(None, limits::SWEEP_ROWS_MAX).await.map_err(anyhow::Error::from)?;
    let told = rows.iter().map(|row| match &row.promise {
        Promise::CancelChildren => format!("{}: cancel its children", row.author),
        Promise::CancelChild { child, .. } => format!("{}: cancel {child}", row.author),
        Promise::CreateChild { child, .. } => format!("{}: create {child}", row.author),
        Promise::TellParent { parent, .. } => format!("{}: tell {parent} how it ended", row.author),
    });
    Ok(told.collect())
}

/// What is paused in the staged copy, and by whom. Each job that a restore has held is read: one that has been damaged
/// since cannot go on.
async fn held_before(rt: &Runtime) -> Result<Holds, Error> {
    let mut holds = Holds::default();
    let mut before = None;
    loop {
        let page = page(rt, &[JobStatus::Paused], before).await?;
        let by_operator = |row: &JobRow| row.paused.is_some_and(|(reason, _)| reason == PauseReason::Operator);
        let (operators, restored): (Vec<_>, Vec<_>) = page.jobs.into_iter().partition(by_operator);
        holds.operators += operators.len();
        for (job, held) in hold_all(rt, &ids(&restored)).await? {
            match held {
                Some(Held::Already | Held::Now) => holds.before += 1,
                Some(held @ (Held::AsAsked | Held::Ended)) => holds.count(held),
                None => holds.unreadable_before.push(job),
            }
        }
        before = page.next;
        if before.is_none() {
            return Ok(holds);
        }
    }
}

/// The next page of the jobs in these states.
async fn page(rt: &Runtime, statuses: &[JobStatus], before: Option<JobId>) -> Result<JobPage, Error> {
    let limit = limits::PAGE_JOBS_MAX;
    let filter = JobFilter { before, limit, scope: Scope::System, statuses: statuses.to_vec(), ..JobFilter::default() };
    Ok(rt.store.jobs(filter).await.map_err(anyhow::Error::from)?)
}

fn ids(rows: &[JobRow]) -> Vec<JobId> {
    rows.iter().map(|row| row.id).collect()
}

/// Holds these jobs. Those whose histories cannot be read are left to [`Staged::hold_rest`].
async fn hold_all(rt: &Runtime, jobs: &[JobId]) -> Result<Vec<(JobId, Option<Held>)>, Error> {
    let holds = jobs.iter().map(|&job| async move {
        match rt.hold_restored(job).await {
            Err(error) if error.is_of_this_job() => {
                tracing::warn!(%job, %error, "the job cannot be held by an event");
                Ok((job, None))
            }
            held => held.map(|held| (job, Some(held))),
        }
    });
    let held = stream::iter(holds).buffer_unordered(limits::RESTORE_HOLDS_MAX).try_collect().await;
    Ok(held.map_err(|error| anyhow::anyhow!("an unfinished job cannot be held, and nothing was changed: {error}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_restored_says_whose_fault_it_is() {
        use aetheris_store::ErrorKind;
        let error = |kind| refused(Path::new("b.db"), &aetheris_store::StoreError::new(kind, "restore", "why"));
        for (kind, exit, words) in [
            (ErrorKind::Invalid, Exit::Conflict, "b.db cannot be restored: why"),
            (ErrorKind::Corrupt, Exit::Failed, "b.db is not a backup of a database, or is damaged: why"),
            (ErrorKind::Full, Exit::Failed, "b.db cannot be restored: the store is full"),
            (ErrorKind::Unavailable, Exit::Failed, "b.db cannot be restored: the store is unavailable"),
        ] {
            let error = error(kind);
            assert!(error.exit() == exit && error.to_string().starts_with(words), "{kind:?}: {error}");
        }
    }

    #[test]
    fn what_is_held_is_told_with_what_to_do_next() {
        let ids = ["job_1", "job_2"].map(str::to_owned);
        let said = |before, now, operators, unreadable: &[String]| {
            summary(&Holds { before, now, operators, ..Holds::default() }, unreadable)
        };
        assert_eq!(said(0, 0, 0, &[]), "there were no unfinished jobs to hold\n");
        for (before, now, operators, lines) in [
            (0, 1, 0, &["1 unfinished job is held: what was done"][..]),
            (1, 0, 0, &["1 unfinished job was held before.\n"][..]),
            (3, 2, 0, &["2 unfinished jobs are held: what was done", "3 unfinished jobs were held before.\n"][..]),
            (
                1,
                0,
                2,
                &["1 unfinished job was held before.\n", "2 unfinished jobs are paused by an operator and stay so: "][..],
            ),
        ] {
            let text = said(before, now, operators, &[]);
            assert!(lines.iter().all(|line| text.contains(line)), "{text}");
            assert_eq!(text.matches("unfinished job").count(), lines.len(), "{text}");
            assert!(text.ends_with("  aetheris resume JOB\n  aetheris resume --all-restored\n"), "{text}");
        }
        // Nothing is there that `--all-restored` would resume.
        let mine = said(0, 0, 1, &[]);
        assert!(mine.starts_with("1 unfinished job is paused by an operator and stays so: what was done after"));
        assert!(mine.ends_with("  aetheris jobs --status paused\n  aetheris resume JOB\n"), "{mine}");
        // Nobody is left to resume what has ended; its call may have to be looked up.
        for (ended, told) in
            [(1, "1 unfinished job was to end, and has ended now."), (2, "2 unfinished jobs were to end, and have")]
        {
            let text = summary(&Holds { ended, ..Holds::default() }, &[]);
            assert!(text.starts_with(told) && text.ends_with("\n  aetheris in-doubt --unresolved\n"), "{text}");
        }
        let damaged = "1 unfinished job that cannot be read is held, and cannot go on:\n  job_1\n\
                       Once the server runs, see what is wrong with one:\n  aetheris verify job_1\n";
        assert_eq!(said(0, 0, 0, &ids[..1]), damaged);
        assert_eq!(said(0, 0, 1, &ids[..1]), format!("{mine}{damaged}"));
        let both = said(1, 0, 0, &ids);
        assert!(both.contains("2 unfinished jobs that cannot be read are held too, and cannot go on:"), "{both}");
        assert!(both.contains("resume --all-restored\n") && both.ends_with("  aetheris verify job_1\n"), "{both}");
    }
}
