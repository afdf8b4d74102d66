//! Backups and restores of a real folder, without a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aetheris_check::{ClientHistory, Invariant};
use aetheris_core::event::{EventKind, PauseReason};
use aetheris_core::id::{
    AgentName, AttemptId, EventId, IdempotencyKey, InstanceId, JobId, PermitId, TenantId, WorkerId,
};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_runtime::OpError;
use aetheris_runtime::ops::{
    Deposit, DepositOutcome, Deposited, PauseAnswer, Resolution, ResumeAnswer, Signal, SignalAnswer, Submission, Then,
};
use aetheris_store::{ClaimIds, ClaimRequest, JobFilter, NewAgent, Scope};
use aetheris_worker::{StopSignals, Worker, WorkerOptions};

use super::server::{Ran, run, serve};
use crate::config::{self, Environment, Override};
use crate::error::Error;
use crate::exit::Exit;
use crate::role::Role;
use crate::wiring::Wired;

const AGENT: &str = "agent: a\nplan:\n  nodes:\n    - { id: w, kind: wait, wait_type: human, correlation_key: k }\n";

/// A folder of its own, gone with it.
struct Folder(aetheris_harness::Folder);

impl Folder {
    fn new(name: &str) -> Self {
        Self(aetheris_harness::Folder::new(name))
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

/// Opens a folder as `dev` does, but for the server and the worker.
fn open(data: &Path, moved: bool) -> Result<Wired, Error> {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let path = data.join("aetheris.db");
    let flags = [Override { key: "jobstore.sqlite.path", value: serde_json::json!(path), flag: "--data" }];
    let config = config::from_text(None, &Environment::of(&[]), &flags).map_err(Error::Config)?;
    Wired::new(config, &Environment::of(&[]), Role::Dev, moved)
}

async fn submit(wired: &Wired) -> JobId {
    let agent = Arc::new(aetheris_agentfile::parse(AGENT).unwrap());
    wired.rt.store.put_agent(NewAgent { agent, source: AGENT.to_owned(), tenant: TenantId::default() }).await.unwrap();
    let message = Submission { message: Some(Json::null()), ..Submission::default() };
    wired.rt.submit(&AgentName::from("a"), message).await.unwrap().job
}

async fn status(wired: &Wired, job: JobId) -> (JobStatus, Option<PauseReason>) {
    let row = wired.rt.store.job(Scope::System, job).await.unwrap().unwrap();
    (row.status, row.paused.map(|(reason, _)| reason))
}

async fn local(words: &[&str]) -> Ran {
    run("http://127.0.0.1:9", words).await
}

fn refused(opened: Result<Wired, Error>, words: &str) {
    let error = opened.err().unwrap();
    assert_eq!(error.exit(), Exit::Conflict, "{error}");
    let text = error.to_string();
    assert!(text.contains(words), "`{text}` does not say `{words}`");
    assert!(text.contains("aetheris restore"), "{text}");
}

#[tokio::test]
async fn a_backup_of_a_folder_in_use_is_put_back_and_holds_what_was_unfinished() {
    let folder = Folder::new("whole");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    let wired = open(&folder.data(), false).unwrap();
    let (held, cancelled, mine) = (submit(&wired).await, submit(&wired).await, submit(&wired).await);
    wired.rt.cancel(cancelled).await.unwrap();
    wired.rt.pause(mine).await.unwrap();
    let ran = local(&["backup", &file, "--data", &data]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    assert!(ran.stdout.contains("3 jobs, 2 of them unfinished; checked and durable"), "{}", ran.stdout);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    // Never over a file.
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Conflict);
    let later = submit(&wired).await;
    // Never under a process.
    let ran = local(&["restore", &file, "--data", &data]).await;
    assert!(ran.exit() == Exit::Conflict && ran.error().contains("another process"), "{}", ran.error());
    // A folder that was there is left as one that others may be about to use.
    assert!(folder.data().join("aetheris.lock").exists());
    assert_eq!(status(&wired, later).await, (JobStatus::Pending, None));
    drop(wired);
    let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    let told = ran.json();
    assert_eq!((&told["generation"], &told["held"], &told["jobs"]), (&2.into(), &1.into(), &3.into()));
    assert!(Path::new(told["kept_aside"].as_str().unwrap()).is_file());
    let wired = open(&folder.data(), false).unwrap();
    assert_eq!(status(&wired, held).await, (JobStatus::Paused, Some(PauseReason::Restored)));
    assert_eq!(status(&wired, mine).await, (JobStatus::Paused, Some(PauseReason::Operator)));
    assert_eq!(status(&wired, cancelled).await, (JobStatus::Cancelled, None));
    assert!(wired.rt.store.job(Scope::System, later).await.unwrap().is_none());
    wired.rt.resume(held).await.unwrap();
    assert_eq!(status(&wired, held).await, (JobStatus::Pending, None));
    drop(wired);
    // Each restore begins a life of its own, also of the same backup.
    let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
    assert_eq!(ran.json()["generation"], 3);
}

/// A child that was asked for before the backup and is not created in it is held like any other job.
#[tokio::test]
async fn a_child_that_a_backup_only_asks_for_is_created_and_held() {
    const PARENT: &str = "agent: p\nplan:\n  nodes:\n    - { id: j, kind: job, agent: a }\n";
    let folder = Folder::new("asked");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    let wired = open(&folder.data(), false).unwrap();
    submit(&wired).await;
    let agent = Arc::new(aetheris_agentfile::parse(PARENT).unwrap());
    let new = NewAgent { agent, source: PARENT.to_owned(), tenant: TenantId::default() };
    wired.rt.store.put_agent(new).await.unwrap();
    let parent = wired.rt.submit(&AgentName::from("p"), Submission::default()).await.unwrap().job;
    let stop = StopSignals::default();
    let options = WorkerOptions {
        heartbeat: Span::from_secs(5),
        id: WorkerId::from("w"),
        lease_ttl: Span::from_secs(30),
        poll_interval: Span::from_millis(50),
        slots: 4,
    };
    let (worker, keeper) = Worker::new(wired.rt.clone(), wired.instance, options, stop.clone());
    let (worker, keeper) = (tokio::spawn(worker.run()), tokio::spawn(keeper.run()));
    while wired.rt.store.outbox(None, 1).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    stop.drain.cancel();
    worker.await.unwrap();
    keeper.await.unwrap();
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    drop(wired);
    let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    assert_eq!(ran.json()["held"], 3, "{}", ran.json());
    let wired = open(&folder.data(), false).unwrap();
    let children = wired.rt.store.children(Scope::System, parent, None, 9).await.unwrap().children;
    assert_eq!(children.len(), 1);
    assert_eq!(status(&wired, children[0].row.id).await, (JobStatus::Paused, Some(PauseReason::Restored)));
    assert_eq!(wired.rt.store.outbox(None, 9).await.unwrap(), []);
}

/// Who restores what a restore has made is told of the jobs that are held in it.
#[tokio::test]
async fn a_second_restore_says_what_was_held_before() {
    let folder = Folder::new("twice");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    let own = folder.data().join("aetheris.db").display().to_string();
    submit(&open(&folder.data(), false).unwrap()).await;
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
    assert_eq!((&ran.json()["held"], &ran.json()["held_before"]), (&1.into(), &0.into()));
    let wired = open(&folder.data(), false).unwrap();
    wired.rt.pause(submit(&wired).await).await.unwrap();
    drop(wired);
    let ran = local(&["restore", &own, "--data", &data]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    let said = "\n1 unfinished job was held before.\n1 unfinished job is paused by an operator and stays so: what was done \
                after the backup would be done again once it is resumed.\n";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("  aetheris resume --all-restored\n"), "{}", ran.stdout);
    submit(&open(&folder.data(), false).unwrap()).await;
    let ran = local(&["restore", &own, "--data", &data, "--json"]).await;
    let told = ran.json();
    assert_eq!((&told["held"], &told["held_before"], &told["paused_by_operator"]), (&1.into(), &1.into(), &1.into()));
}

/// What was damaged after it was held cannot go on, and `--all-restored` is not said to resume it.
#[tokio::test]
async fn a_second_restore_names_what_cannot_be_read_of_what_was_held() {
    let folder = Folder::new("spoilt");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    let database = folder.data().join("aetheris.db");
    let own = database.display().to_string();
    let wired = open(&folder.data(), false).unwrap();
    let [whole, spoilt] = [submit(&wired).await, submit(&wired).await];
    drop(wired);
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    assert_eq!(local(&["restore", &file, "--data", &data]).await.exit(), Exit::Done);
    let hand = rusqlite::Connection::open(&database).unwrap();
    let damaged = "UPDATE events SET payload = payload || '}' WHERE job = (SELECT num FROM jobs WHERE id = ?1)";
    hand.execute(damaged, [&spoilt.to_bytes()[..]]).unwrap();
    hand.close().unwrap();
    let ran = local(&["restore", &own, "--data", &data, "--json"]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    let told = ran.json();
    assert_eq!((&told["held"], &told["held_before"]), (&0.into(), &1.into()));
    assert_eq!(told["unreadable"], serde_json::json!([spoilt]));
    let ran = local(&["restore", &own, "--data", &data]).await;
    let said = format!("1 unfinished job that cannot be read is held too, and cannot go on:\n  {spoilt}\n");
    assert!(ran.stdout.contains(&said), "{}", ran.stdout);
    let wired = open(&folder.data(), false).unwrap();
    for job in [whole, spoilt] {
        assert_eq!(status(&wired, job).await, (JobStatus::Paused, Some(PauseReason::Restored)));
    }
}

/// Nothing resumes what an operator has paused but the operator.
#[tokio::test]
async fn a_restore_of_what_an_operator_has_paused_holds_nothing() {
    let folder = Folder::new("operator");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    let wired = open(&folder.data(), false).unwrap();
    let job = submit(&wired).await;
    wired.rt.pause(job).await.unwrap();
    drop(wired);
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    let ran = local(&["restore", &file, "--data", &data]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    let said = "\n1 unfinished job is paused by an operator and stays so: what was done after the backup would be done";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("  aetheris resume JOB\n"), "{}", ran.stdout);
    let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
    let told = ran.json();
    assert_eq!((&told["held"], &told["held_before"], &told["paused_by_operator"]), (&0.into(), &0.into(), &1.into()));
    let wired = open(&folder.data(), false).unwrap();
    assert_eq!(status(&wired, job).await, (JobStatus::Paused, Some(PauseReason::Operator)));
    // Wherever it is shown, and of no job that was paused after the restore.
    let later = submit(&wired).await.to_string();
    wired.rt.pause(later.parse().unwrap()).await.unwrap();
    let url = serve(aetheris_server::router(wired.app_state())).await;
    let first = "not run since a restore: first check what the job did after the backup was taken";
    let before = job.to_string();
    for (words, times) in [
        (&["why", &before][..], 1),
        (&["show", &before][..], 1),
        (&["jobs", "--status", "paused"][..], 1),
        (&["why", &later][..], 0),
        (&["show", &later][..], 0),
    ] {
        let ran = run(&url, words).await;
        assert_eq!(ran.stdout.matches(first).count(), times, "{words:?}: {}", ran.stdout);
        assert!(ran.stdout.contains("paused by an operator"), "{words:?}: {}", ran.stdout);
    }
}

/// A job of the backup that has run since is paused like any other.
#[tokio::test]
async fn what_has_run_since_a_restore_is_paused_like_any_other() {
    let folder = Folder::new("since");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    let wired = open(&folder.data(), false).unwrap();
    let job = submit(&wired).await;
    wired.rt.pause(job).await.unwrap();
    drop(wired);
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    assert_eq!(local(&["restore", &file, "--data", &data]).await.exit(), Exit::Done);
    let wired = open(&folder.data(), false).unwrap();
    let warned = async || {
        let url = serve(aetheris_server::router(wired.app_state())).await;
        let page = run(&url, &["jobs", "--status", "paused"]).await.stdout;
        assert!(page.contains("paused by an operator"), "{page}");
        page.contains("not run since a restore")
    };
    assert!(warned().await);
    wired.rt.resume(job).await.unwrap();
    wired.rt.pause(job).await.unwrap();
    assert!(warned().await, "it has not run");
    wired.rt.resume(job).await.unwrap();
    let holder = InstanceId::from_u128(wired.rt.system.ids.secret());
    let pair = ClaimIds {
        attempt: AttemptId::from_u128(wired.rt.system.ids.secret()),
        event: EventId::from_u128(wired.rt.system.ids.secret()),
    };
    let (ids, linger, ttl, worker) = (vec![pair], Span::ZERO, Span::from_secs(30), WorkerId::from("w"));
    let request = ClaimRequest { ids, instance: holder, linger, ttl, worker };
    assert_eq!(wired.rt.store.claim(request).await.unwrap()[0].job, job);
    aetheris_scheduler::reclaim_instance(&wired.rt, holder).await.unwrap();
    wired.rt.pause(job).await.unwrap();
    assert!(!warned().await, "it has run");
}

/// A row that cannot be read is named, and whoever paused its job has paused it still once it can be read again.
#[tokio::test]
async fn a_restore_takes_no_pause_over_whose_row_cannot_be_read() {
    let folder = Folder::new("illegible");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    let database = folder.data().join("aetheris.db");
    let wired = open(&folder.data(), false).unwrap();
    let job = submit(&wired).await;
    wired.rt.pause(job).await.unwrap();
    drop(wired);
    let by_hand = |sql: &str| {
        let hand = rusqlite::Connection::open(&database).unwrap();
        assert_eq!(hand.execute(sql, [&job.to_bytes()[..]]).unwrap(), 1);
    };
    by_hand("UPDATE jobs SET labels = 'nonsense' WHERE id = ?1");
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    assert_eq!(ran.json()["unreadable"], serde_json::json!([job]));
    by_hand("UPDATE jobs SET labels = NULL WHERE id = ?1");
    let wired = open(&folder.data(), false).unwrap();
    assert_eq!(status(&wired, job).await, (JobStatus::Paused, Some(PauseReason::Operator)));
}

#[tokio::test]
async fn a_backup_is_not_opened_by_itself() {
    let folder = Folder::new("itself");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    submit(&open(&folder.data(), false).unwrap()).await;
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    for name in ["aetheris.db-wal", "aetheris.db-shm"] {
        let _absent = std::fs::remove_file(folder.data().join(name));
    }
    std::fs::copy(&file, folder.data().join("aetheris.db")).unwrap();
    refused(open(&folder.data(), false), "is a backup");
    let other = folder.0.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(&file, other.join("aetheris.db")).unwrap();
    refused(open(&other, true), "is a backup");
}

/// As an operator would with the database's own tools: the file of yesterday over the one of today.
#[tokio::test]
async fn an_older_database_in_its_folder_is_refused_until_it_is_restored() {
    let folder = Folder::new("older");
    let database = folder.data().join("aetheris.db");
    let yesterday = folder.file("yesterday.db");
    let wired = open(&folder.data(), false).unwrap();
    let job = submit(&wired).await;
    rusqlite::Connection::open(&database).unwrap().execute("VACUUM INTO ?1", [&yesterday]).unwrap();
    submit(&wired).await;
    drop(wired);
    for name in ["aetheris.db", "aetheris.db-wal", "aetheris.db-shm"] {
        let _absent = std::fs::remove_file(folder.data().join(name));
    }
    // Without its database at all it is not a new one.
    refused(open(&folder.data(), false), "says that there was a database here, and there is none");
    assert!(!database.exists(), "one was made all the same");
    std::fs::copy(&yesterday, &database).unwrap();
    refused(open(&folder.data(), false), "older than what");
    refused(open(&folder.data(), true), "older than what");
    let data = folder.data().display().to_string();
    // The file in place is as good a source as any.
    let own = database.display().to_string();
    let ran = local(&["restore", &own, "--data", &data]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    assert!(ran.stdout.contains("1 unfinished job is held"), "{}", ran.stdout);
    let wired = open(&folder.data(), false).unwrap();
    assert_eq!(status(&wired, job).await, (JobStatus::Paused, Some(PauseReason::Restored)));
}

#[tokio::test]
async fn a_database_without_its_file_was_moved_or_is_refused() {
    let folder = Folder::new("moved");
    let wired = open(&folder.data(), false).unwrap();
    let job = submit(&wired).await;
    drop(wired);
    drop(open(&folder.data(), false).unwrap());
    std::fs::remove_file(folder.data().join("aetheris.seen")).unwrap();
    refused(open(&folder.data(), false), "has been used before");
    let wired = open(&folder.data(), true).unwrap();
    assert_eq!(status(&wired, job).await, (JobStatus::Pending, None));
    drop(wired);
    // Said once: it is a folder like any other then.
    drop(open(&folder.data(), false).unwrap());
}

#[tokio::test]
async fn what_is_no_backup_changes_nothing() {
    let folder = Folder::new("none");
    let data = folder.data().display().to_string();
    let wired = open(&folder.data(), false).unwrap();
    let job = submit(&wired).await;
    drop(wired);
    let text = folder.file("text.db");
    std::fs::write(&text, "not a database, and long enough to be read as one".repeat(100)).unwrap();
    let foreign = folder.file("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    let new = folder.file("new");
    for data in [&data, &new] {
        for file in [&text, &foreign] {
            let ran = local(&["restore", file, "--data", data]).await;
            assert_eq!(ran.ended.as_ref().unwrap_err().exit(), Exit::Failed, "{file}");
            assert!(ran.error().contains("is not a backup of a database"), "{}", ran.error());
        }
    }
    assert!(!Path::new(&new).exists(), "a folder was made for nothing");
    assert_eq!(local(&["restore", &folder.file("absent.db"), "--data", &data]).await.exit(), Exit::NotFound);
    let ran = local(&["restore", &data, "--data", &data]).await;
    let said = format!("{data} is a folder: name the backup's file in it");
    assert_eq!((ran.exit(), ran.error()), (Exit::NotFound, said));
    let ran = local(&["backup", &folder.file("nodir/b.db"), "--data", &data]).await;
    let said = format!("no backup was written: there is no folder {}", folder.file("nodir"));
    assert_eq!((ran.exit(), ran.error()), (Exit::NotFound, said));
    assert_eq!(local(&["backup", &folder.file("b.db"), "--data", "/nowhere"]).await.exit(), Exit::NotFound);
    let wired = open(&folder.data(), false).unwrap();
    assert_eq!(status(&wired, job).await, (JobStatus::Pending, None));
    let left: Vec<_> = std::fs::read_dir(folder.data()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("restoring")), "{left:?}");
}

/// What stands in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// A prefix of the database's name takes the database and what SQLite and the store keep with it, and nothing of the
/// processes.
#[tokio::test]
async fn backup_and_restore_leave_no_file_of_their_own() {
    let folder = Folder::new("files");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    submit(&open(&folder.data(), false).unwrap()).await;
    let left = ["aetheris.db", "aetheris.db-clock", "aetheris.db-turn", "aetheris.seen"];
    assert_eq!(names(&folder.data()), left);
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    assert_eq!(names(&folder.data()), left);
    assert_eq!(names(&folder.0), ["backup.db", "data"]);
    let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    let aside = ran.json()["kept_aside"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let restored = ["aetheris.db", "aetheris.db-clock", "aetheris.db-turn", &aside, "aetheris.lock", "aetheris.seen"];
    assert_eq!(names(&folder.data()), restored);
    assert_eq!(names(&folder.0), ["backup.db", "data"]);
}

/// On the night of a restore, the keys of models may be anywhere but in this shell.
#[tokio::test]
async fn backup_and_restore_ask_for_no_models_key() {
    let folder = Folder::new("keys");
    let config = folder.file("production.yaml");
    let text = format!(
        "jobstore: {{ sqlite: {{ path: {} }} }}\n\
         models: {{ openai: {{ base_url: 'http://h/v1', api_key_env: AETHERIS_UNSET_KEY }} }}\n",
        folder.data().join("aetheris.db").display()
    );
    std::fs::write(&config, text).unwrap();
    let job = submit(&open(&folder.data(), false).unwrap()).await;
    let file = folder.file("backup.db");
    let ran = local(&["backup", &file, "--config", &config]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    let ran = local(&["restore", &file, "--config", &config]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    let wired = open(&folder.data(), false).unwrap();
    assert_eq!(status(&wired, job).await, (JobStatus::Paused, Some(PauseReason::Restored)));
}

/// What is damaged is found out on that night too: it must not keep everything else from coming back.
#[tokio::test]
async fn a_job_that_cannot_be_read_keeps_no_other_from_being_restored() {
    let folder = Folder::new("damaged");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    let wired = open(&folder.data(), false).unwrap();
    let whole = submit(&wired).await;
    // More than one page, and what is damaged in the first of them.
    for _ in 0..limits::PAGE_JOBS_MAX {
        submit(&wired).await;
    }
    let row = submit(&wired).await;
    let mut histories = [row; 6];
    for job in &mut histories {
        *job = submit(&wired).await;
    }
    let unreadable = [&[row][..], &histories].concat();
    drop(wired);
    let hand = rusqlite::Connection::open(folder.data().join("aetheris.db")).unwrap();
    hand.execute("UPDATE jobs SET labels = 'nonsense' WHERE id = ?1", [&row.to_bytes()[..]]).unwrap();
    // Nothing is the end of a payload: what is written behind it is taken away again.
    let damaged = "UPDATE events SET payload = payload || '}' WHERE job = (SELECT num FROM jobs WHERE id = ?1)";
    for job in histories {
        hand.execute(damaged, [&job.to_bytes()[..]]).unwrap();
    }
    // A job that no list finds is found again.
    hand.execute("UPDATE jobs SET listed = NULL WHERE id = ?1", [&whole.to_bytes()[..]]).unwrap();
    hand.close().unwrap();
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    let said = ran.json();
    assert_eq!(
        (&said["held"], &said["unreadable"]),
        (&serde_json::json!(limits::PAGE_JOBS_MAX + 1), &serde_json::json!(unreadable))
    );
    let wired = open(&folder.data(), false).unwrap();
    assert_eq!(status(&wired, whole).await, (JobStatus::Paused, Some(PauseReason::Restored)));
    let counts = wired.rt.store.status().await.unwrap().jobs;
    let all = u64::try_from(limits::PAGE_JOBS_MAX + 1 + unreadable.len()).unwrap();
    assert_eq!(counts, [(JobStatus::Paused, all)].into());
    // Who is held by the row is found by its status like any other.
    let filter = JobFilter { limit: 9, statuses: vec![JobStatus::Paused], ..JobFilter::default() };
    let page = wired.rt.store.jobs(filter).await.unwrap();
    let newest = page.jobs.iter().take(histories.len()).map(|row| (row.id, row.paused.map(|(reason, _)| reason)));
    let held = histories.iter().rev().map(|job| (*job, Some(PauseReason::Restored)));
    assert!(newest.eq(held));
    wired.rt.resume(whole).await.unwrap();
    assert_eq!(status(&wired, whole).await.0, JobStatus::Pending);
    drop(wired);
    // A build that can read it goes on with it when it is told to, and not before.
    let hand = rusqlite::Connection::open(folder.data().join("aetheris.db")).unwrap();
    let mended =
        "UPDATE events SET payload = rtrim(payload, '}') || '}' WHERE job = (SELECT num FROM jobs WHERE id = ?1)";
    for job in histories {
        hand.execute(mended, [&job.to_bytes()[..]]).unwrap();
    }
    hand.close().unwrap();
    let wired = open(&folder.data(), false).unwrap();
    // What its row alone says contradicts nothing, whoever looks.
    for job in histories {
        assert_eq!(wired.rt.replay(job).await.unwrap().differences, Vec::<String>::new());
    }
    let found = aetheris_check::check_store(wired.rt.store.as_ref(), &[], &ClientHistory::default()).await.unwrap();
    assert!(!found.violated().contains(&Invariant::B7), "{found}");
    whatever_comes_first_makes_true_what_their_rows_say(&wired, histories).await;
}

/// Of jobs that are held by their rows alone: none takes a step before it is resumed, and it is resumed at once.
async fn whatever_comes_first_makes_true_what_their_rows_say(wired: &Wired, jobs: [JobId; 6]) {
    let [signalled, paused, asked, late, resumed, cancelled] = jobs;
    let kinds = async |job: JobId| {
        let events = wired.rt.store.history(Scope::System, job, true).await.unwrap().unwrap().events;
        events.iter().map(|recorded| recorded.event.kind()).collect::<Vec<_>>()
    };
    let began = [EventKind::JobCreated, EventKind::PlanGenerated, EventKind::JobPaused];
    let signal = Signal { correlation_key: "k".to_owned(), payload: Json::null(), wait_type: None };
    assert!(matches!(wired.rt.signal(signalled, signal).await.unwrap(), SignalAnswer::Kept { .. }));
    // An operator takes it over, behind the event that its row stood for.
    let taken = [&began[..], &[EventKind::JobResumed, EventKind::JobPaused]].concat();
    assert_eq!(wired.rt.pause(paused).await.unwrap(), PauseAnswer::Now);
    assert_eq!(status(wired, paused).await, (JobStatus::Paused, Some(PauseReason::Operator)));
    assert_eq!(kinds(paused).await, taken);
    // Also what is refused, or only kept as evidence: no such call was made.
    let (key, permit) = (IdempotencyKey::from_u128(1), 1);
    let answer = Resolution { happened: None, note: "seen".to_owned(), permit, refused: false, then: Then::Retry };
    let refused = wired.rt.resolve(asked, key, answer).await;
    assert!(matches!(refused, Err(OpError::InvocationNotFound { .. })), "{refused:?}");
    let (outcome, permit_id) = (DepositOutcome::Done(Json::null()), PermitId::from_u128(1));
    let deposit = Deposit { job: late, key, node: "w".into(), outcome, permit, permit_id };
    assert_eq!(wired.rt.deposit(&deposit).await.unwrap(), Deposited::Evidence { conflict: true });
    for job in [signalled, asked, late] {
        assert_eq!(status(wired, job).await, (JobStatus::Paused, Some(PauseReason::Restored)));
        assert_eq!(kinds(job).await, began);
    }
    for job in [resumed, signalled, paused, asked, late] {
        let before = if job == paused { &taken[..] } else { &began[..] };
        assert_eq!(wired.rt.resume(job).await.unwrap(), ResumeAnswer::Now(JobStatus::Pending));
        assert_eq!(status(wired, job).await, (JobStatus::Pending, None));
        assert_eq!(kinds(job).await, [before, &[EventKind::JobResumed]].concat());
    }
    wired.rt.cancel(cancelled).await.unwrap();
    assert_eq!(status(wired, cancelled).await.0, JobStatus::Cancelled);
    assert_eq!(kinds(cancelled).await, [&began[..], &[EventKind::JobCancelled]].concat());
}

/// What can be held by an event is not held without one.
#[tokio::test]
async fn a_restore_holds_by_the_row_only_what_it_was_told_of() {
    let folder = Folder::new("rest");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    let wired = open(&folder.data(), false).unwrap();
    let [named, other] = [submit(&wired).await, submit(&wired).await];
    drop(wired);
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    let system = aetheris_store::system::System::machine();
    let database = folder.data().join("aetheris.db");
    let staged =
        |database: &Path| crate::wiring::stage(Path::new(&file), database, system.clock.as_ref(), &mut |_| ()).unwrap();
    let refused = staged(&database).hold_rest(system.clock.wall(), &[named]).unwrap_err();
    assert!(refused.to_string().contains(&format!("{other} can be read and is not held")), "{refused}");
    let held = staged(&database).hold_rest(system.clock.wall(), &[named, other]).unwrap();
    assert_eq!(held.unreadable, [named, other]);
}

/// A backup that is damaged is refused as such, and the database stays.
#[tokio::test]
async fn a_damaged_backup_is_named_and_changes_nothing() {
    let folder = Folder::new("torn");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    let wired = open(&folder.data(), false).unwrap();
    let job = submit(&wired).await;
    drop(wired);
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    let whole = std::fs::read(&file).unwrap();
    let mut torn = whole.clone();
    torn[4096..8192].fill(0xff);
    for damaged in [&whole[..whole.len() / 2], &torn] {
        std::fs::write(&file, damaged).unwrap();
        let ran = local(&["restore", &file, "--data", &data]).await;
        assert_eq!(ran.ended.as_ref().unwrap_err().exit(), Exit::Failed, "{:?}", ran.ended);
    }
    assert_eq!(status(&open(&folder.data(), false).unwrap(), job).await.0, JobStatus::Pending);
}

/// A worker never makes a database, and one that is started beside its server waits for the server's.
#[tokio::test]
async fn a_worker_without_a_database_says_so_and_makes_none() {
    let folder = Folder::new("worker");
    let config = folder.file("production.yaml");
    let database = folder.data().join("aetheris.db");
    std::fs::write(&config, format!("jobstore: {{ sqlite: {{ path: {} }} }}\n", database.display())).unwrap();
    let ran = local(&["worker", "--config", &config]).await;
    assert_eq!(ran.exit(), Exit::NotFound, "{}", ran.error());
    assert!(ran.stderr.contains("for `aetheris serve` to make it"), "{}", ran.stderr);
    assert!(ran.error().contains(&format!("there is no database {}", database.display())), "{}", ran.error());
    assert!(!folder.data().exists());
}

#[tokio::test]
async fn a_store_in_memory_has_nothing_to_copy_or_check() {
    let folder = Folder::new("memory");
    let (config, file) = (folder.file("memory.yaml"), folder.file("backup.db"));
    std::fs::write(&config, "jobstore: { type: memory }\n").unwrap();
    std::fs::write(folder.file("some.db"), "x").unwrap();
    for words in [
        &["backup", &file, "--config", &config][..],
        &["restore", &folder.file("some.db"), "--config", &config],
        &["check-consistency", "--config", &config],
        &["worker", "--config", &config],
    ] {
        let ran = local(words).await;
        assert_eq!(ran.exit(), Exit::Usage, "{words:?}: {}", ran.error());
        assert!(ran.error().contains("memory"), "{}", ran.error());
    }
}

/// A configuration may name the database as it likes: every command about it takes the same words.
#[tokio::test]
async fn a_database_of_a_configuration_is_checked_and_put_back_by_it() {
    let folder = Folder::new("named");
    let (config, file) = (folder.file("sw.yaml"), folder.file("backup 1.db"));
    let database = folder.data().join("jobs.db");
    std::fs::write(&config, format!("jobstore: {{ sqlite: {{ path: {} }} }}\n", database.display())).unwrap();
    let flags = [Override { key: "jobstore.sqlite.path", value: serde_json::json!(database), flag: "--data" }];
    let opened = config::from_text(None, &Environment::of(&[]), &flags).unwrap();
    let _installed = rustls::crypto::ring::default_provider().install_default();
    submit(&Wired::new(opened, &Environment::of(&[]), Role::Dev, false).unwrap()).await;
    let ran = local(&["check-consistency", "--config", &config]).await;
    assert!(
        ran.stderr.contains("C1, C2, C4, C6 need the tools' own logs and B3 what clients were told"),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    assert!(ran.stdout.contains("1 job, "), "{}", ran.stdout);
    let ran = local(&["backup", &file, "--config", &config]).await;
    assert!(ran.stdout.contains(" 1 job, 1 of them unfinished"), "{}", ran.stdout);
    assert!(ran.stderr.contains(&format!("aetheris restore '{file}' --config {config}")), "{}", ran.stderr);
    assert_eq!(local(&["check-consistency", "--data", &folder.file("nowhere")]).await.exit(), Exit::NotFound);
}

/// What the folder has seen of its database counts where the database itself cannot be asked any more.
#[tokio::test]
async fn a_restore_over_a_damaged_database_begins_a_life_above_all_that_were_there() {
    let folder = Folder::new("life");
    let (data, file) = (folder.data().display().to_string(), folder.file("backup.db"));
    drop(open(&folder.data(), false).unwrap());
    assert_eq!(local(&["backup", &file, "--data", &data]).await.exit(), Exit::Done);
    for generation in [2, 3] {
        let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
        assert_eq!(ran.json()["generation"], generation);
        drop(open(&folder.data(), false).unwrap());
    }
    std::fs::write(folder.data().join("aetheris.db"), "damaged".repeat(1_000)).unwrap();
    let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
    assert_eq!(ran.json()["generation"], 4, "fences of the third life were given out");
    // Where that is damaged as well, or gone, nobody can say.
    let seen = folder.data().join("aetheris.seen");
    let losses: [fn(&Path) -> std::io::Result<()>; 3] =
        [|seen| std::fs::write(seen, "damaged"), |seen| std::fs::write(seen, ""), |seen| std::fs::remove_file(seen)];
    for lose in losses {
        lose(&seen).unwrap();
        std::fs::write(folder.data().join("aetheris.db"), "damaged".repeat(1_000)).unwrap();
        let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
        assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
        assert_eq!(
            ran.json()["generation"],
            1 + limits::GENERATIONS_SKIPPED,
            "of the backup's life and what followed it"
        );
    }
    // And where one of the two says it, or nothing was there, none is left out.
    std::fs::write(&seen, "damaged").unwrap();
    let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
    assert_eq!(ran.json()["generation"], 2 + limits::GENERATIONS_SKIPPED);
    let ran = local(&["restore", &file, "--data", &folder.file("new"), "--json"]).await;
    assert_eq!(ran.json()["generation"], 2);
    // A newer build's database, and one whose events are lost, still say how often they were restored.
    for (nth, lost) in (3..).zip(["PRAGMA user_version = 99", "DROP TABLE events"]) {
        std::fs::remove_file(&seen).unwrap();
        rusqlite::Connection::open(folder.data().join("aetheris.db")).unwrap().execute_batch(lost).unwrap();
        let ran = local(&["restore", &file, "--data", &data, "--json"]).await;
        assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended.err());
        assert_eq!(ran.json()["generation"], nth + limits::GENERATIONS_SKIPPED, "{lost}");
    }
}

/// Without its plan a job still says why it stands, and what waits is still listed.
#[tokio::test]
async fn a_job_whose_plan_cannot_be_read_says_why_it_stands() {
    let folder = Folder::new("planless");
    let wired = open(&folder.data(), false).unwrap();
    let job = submit(&wired).await;
    wired.rt.pause(job).await.unwrap();
    drop(wired);
    let hand = rusqlite::Connection::open(folder.data().join("aetheris.db")).unwrap();
    assert_eq!(hand.execute("UPDATE plans SET doc = 'nonsense'", []).unwrap(), 1);
    hand.close().unwrap();
    let wired = open(&folder.data(), false).unwrap();
    let url = serve(aetheris_server::router(wired.app_state())).await;
    let id = job.to_string();
    let ran = run(&url, &["why", &id]).await;
    assert_eq!(ran.exit(), Exit::Done, "{:?}", ran.ended);
    assert!(ran.stdout.starts_with("paused_by  paused by an operator\n"), "{}", ran.stdout);
    // What needs the plan says that it cannot be read.
    assert_eq!(run(&url, &["trace", &id]).await.exit(), Exit::Failed);
}

#[tokio::test]
async fn what_a_check_has_found_fits_the_terminal() {
    let folder = Folder::new("fits");
    let data = folder.data().display().to_string();
    let wired = open(&folder.data(), false).unwrap();
    let job = submit(&wired).await;
    drop(wired);
    let hand = rusqlite::Connection::open(folder.data().join("aetheris.db")).unwrap();
    let events = "UPDATE events SET hash = zeroblob(32) WHERE job = (SELECT num FROM jobs WHERE id = ?1)";
    assert_eq!(hand.execute(events, [&job.to_bytes()[..]]).unwrap(), 2);
    hand.close().unwrap();
    let words = ["check-consistency", "--data", &data];
    for columns in [60, 80, 120] {
        let ran = super::server::run_at("http://127.0.0.1:9", &words, columns, true).await;
        assert_eq!(ran.exit(), Exit::CheckFailed);
        for line in ran.stdout.lines().chain(ran.stderr.lines()) {
            assert!(crate::render::width(line) <= columns, "{columns}: {line}\n{}", ran.stdout);
        }
        assert!(ran.stdout.contains("VIOLATED ") && ran.stdout.contains("\n  - "), "{}", ran.stdout);
    }
}
