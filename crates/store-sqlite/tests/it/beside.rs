//! Which files stand beside a database, and that a backup and a restore leave no others.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use aetheris_core::event::PauseReason;
use aetheris_core::id::{JobId, TenantId};
use aetheris_core::job::JobStatus;
use aetheris_core::limits;
use aetheris_core::plan::WaitType;
use aetheris_core::time::Timestamp;
use aetheris_store::system::{Clock, SystemClock};
use aetheris_store::{Boxed, Checkpoint, JobFilter, Purpose, Scope, Store as _};
use aetheris_store_conformance::fixture::agent;
use aetheris_store_conformance::{Draft, Fixture, Harness, Message, Opened};
use aetheris_store_sqlite::{Backed, Custody, SqliteOptions, SqliteStore, Staged, Stop, backup, stage};
use rusqlite::Connection;

use crate::folder::{At, Folder, options};

fn names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// As a process that works on it.
fn open(folder: &Folder, opening: u128) -> SqliteStore {
    let custody = Some(Custody { folder: 1, moved: false, opening });
    SqliteStore::open(SqliteOptions { custody, ..options(folder, Arc::new(SystemClock)) }).unwrap()
}

/// Stores on one folder, as of a process that works on it.
struct AtWork(Arc<Folder>);

impl Harness for AtWork {
    fn open(&self, _: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let opened = Opened { keep: Box::new(Arc::clone(&self.0)), store: Arc::new(open(&self.0, 1)) };
        Box::pin(std::future::ready(opened))
    }
}

/// Whoever noted less would take an older copy for the newest, and whoever noted more would refuse the newest.
#[tokio::test]
async fn what_is_noted_is_what_the_database_has_whatever_was_written() {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::open(&AtWork(Arc::clone(&folder))).await;
    let conn = Connection::open(folder.database()).unwrap();
    let sql = "SELECT writes, (SELECT max(num) FROM events) FROM meta";
    let mut lasts = Vec::new();
    for round in 0..3 {
        for write in ["a job", "a claim", "an agent", "nothing"] {
            match write {
                "a job" => drop(fixture.pending().await),
                "a claim" => assert_eq!(fixture.claim(1).await.len(), 1),
                "an agent" => drop(fixture.store().put_agent(agent(write, &round.to_string())).await.unwrap()),
                _ => assert!(fixture.claim(1).await.is_empty()),
            }
            // The note comes behind the answer: whoever is answered next finds it.
            fixture.store().health().await.unwrap();
            let (silent, last): (i64, i64) = conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            let seen = std::fs::read_to_string(folder.path().join("aetheris.seen")).unwrap();
            let noted = seen.lines().find_map(|line| line.strip_prefix("writes")).unwrap();
            assert_eq!(noted.trim().parse::<i64>().unwrap(), silent + last, "{write}, round {round}");
            lasts.push((silent, last));
        }
    }
    lasts.dedup();
    assert_eq!(lasts.len(), 9, "three of the four write: {lasts:?}");
}

/// As a restore names what it has put in place.
const RESTORED: Custody = Custody { folder: 1, moved: false, opening: 77 };

/// As `restore` opens it, to hold its jobs.
fn look(path: &Path) -> SqliteStore {
    SqliteStore::open(SqliteOptions::new(path)).unwrap()
}

fn staged(folder: &Folder, file: &Path) -> Staged {
    stage(file, &folder.database(), &SystemClock, &mut |_| {}).unwrap()
}

#[test]
fn a_backup_leaves_the_folder_as_it_was_and_a_restore_leaves_only_the_old_database() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    drop(open(&folder, 1));
    let left = ["aetheris.db", "aetheris.db-clock", "aetheris.db-turn", "aetheris.seen"];
    assert_eq!(names(&folder), left);
    backup(&folder.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    assert_eq!((names(&folder), names(&elsewhere)), (left.map(str::to_owned).to_vec(), vec!["backup.db".to_owned()]));
    // All that the jobs know stands in it.
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let staged = staged(&folder, &file);
    drop(look(&staged.path));
    staged.put_in_place(Timestamp::from_micros(0), RESTORED).unwrap();
    let aside = "aetheris.db.before-restore-19700101T000000000000Z";
    assert_eq!(names(&folder), ["aetheris.db", "aetheris.db-clock", "aetheris.db-turn", aside, "aetheris.seen"]);
}

/// While it is made, how far it is; then what is in it, and so a restore of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_says_how_far_it_is_and_what_it_holds() {
    let (folder, elsewhere) = (Arc::new(Folder::new()), Folder::new());
    let file = elsewhere.path().join("backup.db");
    let fixture = Fixture::open(&At(Arc::clone(&folder))).await;
    let ended = fixture.running().await;
    fixture.ok(fixture.of(ended, Purpose::Finish).await.complete().done()).await;
    fixture.running().await;
    fixture.pending().await;
    let run = fixture.running_among(fixture.pending().await).await;
    // More than one piece.
    let large = usize::try_from(limits::BACKUP_STEP_PAGES).unwrap() * 4_096 * 3 / 2;
    let mut unit = fixture.plain(run, Purpose::Record);
    unit.checkpoint = Some(Checkpoint::from_bytes(3, vec![b'x'; large]));
    fixture.ok(unit).await;
    let mut told = Vec::new();
    let backed =
        backup(&folder.database(), &file, &SystemClock, &Stop::default(), &mut |at| told.push((at.done, at.of)));
    let backed = backed.unwrap();
    let bytes = std::fs::metadata(&file).unwrap().len();
    let pages = bytes / 4_096;
    assert!(told.len() > 1 && told.is_sorted() && told.iter().all(|(done, of)| *done > 0 && *of == pages), "{told:?}");
    assert_eq!(told.last(), Some(&(pages, pages)));
    assert_eq!(backed, Backed { bytes, generation: 1, jobs: 4, unfinished: 3 });
    drop(fixture);
    let other = Folder::new();
    let restored = staged(&other, &file);
    let Backed { bytes: _, generation, jobs, unfinished } = restored.backed;
    assert_eq!((generation, jobs, unfinished), (restored.generation, 4, 3));
}

/// They would be written over, or removed by the next start or restore.
#[test]
fn a_backup_takes_no_name_that_the_database_uses_itself() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    drop(open(&folder, 1));
    let back_up = |file: &Path| backup(&folder.database(), file, &SystemClock, &Stop::default(), &mut |_| {});
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    for ending in ["-journal", "-wal", "-shm", "-restoring", "-clock", "-turn", "-one-day"] {
        for folder in [folder.path(), &link] {
            let error = back_up(&folder.join(format!("aetheris.db{ending}"))).unwrap_err().to_string();
            assert!(error.contains("uses itself; name another"), "{ending}: {error}");
        }
    }
    for name in ["aetheris.db", "aetheris.seen", "aetheris.lock", "aetheris.pid", "aetheris.live"] {
        assert!(back_up(&folder.path().join(name)).unwrap_err().to_string().contains("uses itself"), "{name}");
    }
    let left = ["aetheris.db", "aetheris.db-clock", "aetheris.db-turn", "aetheris.seen"];
    assert_eq!(names(&folder), left);
    for name in ["aetheris.db.bak", "aetheris.backup", "copy.db"] {
        back_up(&folder.path().join(name)).unwrap();
    }
    back_up(&elsewhere.path().join("aetheris.db-wal")).unwrap();
    // One of an earlier build.
    let staging = folder.path().join("aetheris.db-restoring");
    std::fs::rename(folder.path().join("copy.db"), &staging).unwrap();
    let error = stage(&staging, &folder.database(), &SystemClock, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("give the backup another name") && staging.exists(), "{error}");
}

/// Whoever has called a database as the other one's file is called keeps it.
#[test]
fn a_restore_takes_no_other_databases_file() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    drop(open(&folder, 1));
    backup(&folder.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    for (database, other) in [("a.db", "a.seen"), ("a", "a-seen")] {
        let [database, other] = [database, other].map(|name| folder.path().join(name));
        drop(look(&other));
        let bytes = std::fs::read(&other).unwrap();
        let refused = stage(&file, &database, &SystemClock, &mut |_| {}).unwrap_err().to_string();
        assert!(refused.contains("is a database, and has the name of a file"), "{refused}");
        assert!(std::fs::read(&other).unwrap() == bytes && !database.exists());
    }
}

#[test]
fn what_is_not_ours_is_not_copied_and_what_is_older_is_brought_up_to_date() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    let theirs = rusqlite::Connection::open(folder.database()).unwrap();
    theirs.execute_batch("PRAGMA application_id = 7; CREATE TABLE meta (id); INSERT INTO meta VALUES (1)").unwrap();
    drop(theirs);
    let copy = |folder: &Folder| backup(&folder.database(), &file, &SystemClock, &Stop::default(), &mut |_| {});
    let refused = copy(&folder).unwrap_err().to_string();
    assert!(refused.contains("is not a database of this program"), "{refused}");
    assert_eq!(names(&elsewhere), [""; 0]);
    let older = Folder::new();
    crate::migrate::first_schema(&older);
    copy(&older).unwrap();
    let conn = rusqlite::Connection::open(&file).unwrap();
    assert_eq!(conn.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).unwrap(), 6);
}

#[test]
fn a_database_that_is_opened_while_it_is_copied_is_copied_again() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    drop(open(&folder, 1));
    let (mut opened, mut copies) = (None, 0);
    let mut meanwhile = |at: aetheris_store_sqlite::Progress| {
        opened.get_or_insert_with(|| open(&folder, 2));
        copies += u32::from(at.done == at.of);
    };
    backup(&folder.database(), &file, &SystemClock, &Stop::default(), &mut meanwhile).unwrap();
    assert_eq!((copies, names(&elsewhere)), (2, vec!["backup.db".to_owned()]));
    drop(opened);
}

/// A backup that is cut short would fill its disk with copies, one each night.
#[test]
fn a_backup_that_is_stopped_leaves_nothing_and_the_next_one_removes_what_the_dead_have_left() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    drop(open(&folder, 1));
    let stop = Stop::default();
    let mut began = Vec::new();
    let mut ask = |_| {
        began = names(&elsewhere);
        stop.ask();
    };
    let stopped = backup(&folder.database(), &file, &SystemClock, &stop, &mut ask).unwrap_err();
    assert_eq!((stopped.source.to_string(), names(&elsewhere).len()), ("it was stopped".to_owned(), 0));
    assert!(began.iter().any(|name| name.starts_with(&format!("backup.db-part-{}-", std::process::id()))), "{began:?}");
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (dead, own) = (ended.id(), std::process::id());
    let abandoned = [
        format!("backup.db-part-{dead}"),
        format!("backup.db-part-{dead}-1-journal"),
        format!("backup.db-part-{own}-1"),
    ];
    // Of one that lives, of another backup, and of nobody's.
    let mut kept = ["backup.db-part-1", "backup.db-part-1-1", "backup.db-part-notes"].map(str::to_owned).to_vec();
    kept.push(format!("other.db-part-{dead}"));
    for name in abandoned.iter().chain(&kept) {
        std::fs::write(elsewhere.path().join(name), "half of one").unwrap();
    }
    backup(&folder.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    kept.insert(0, "backup.db".to_owned());
    assert_eq!(names(&elsewhere), kept);
}

/// Whatever ends it: an error, or a kill, after which it is made again.
#[test]
fn a_restore_that_is_cut_short_leaves_nothing_behind() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    drop(open(&folder, 1));
    backup(&folder.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    let before = names(&folder);
    let failed = staged(&folder, &file);
    drop(look(&failed.path));
    drop(failed);
    assert_eq!(names(&folder), before);
    let killed = folder.path().join("aetheris.db-restoring");
    for ending in ["", "-wal", "-shm", "-journal", "-clock", "-turn"] {
        std::fs::write(format!("{}{ending}", killed.display()), "half of one").unwrap();
    }
    drop(staged(&folder, &file));
    assert_eq!(names(&folder), before);
}

/// Whoever comes in between would be told that its jobs are kept, and lose them with the database that is set aside.
#[test]
fn nobody_opens_a_folder_while_it_is_restored() {
    for used in [true, false] {
        let (source, folder, elsewhere) = (Folder::new(), Folder::new(), Folder::new());
        let file = elsewhere.path().join("backup.db");
        drop(open(&source, 1));
        backup(&source.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
        if used {
            drop(open(&folder, 1));
        }
        let comes = |moved| {
            let custody = Some(Custody { folder: 5, moved, opening: 5 });
            SqliteStore::open(SqliteOptions { custody, ..options(&folder, Arc::new(SystemClock)) })
                .unwrap_err()
                .to_string()
        };
        let mut meanwhile = Vec::new();
        let staged = stage(&file, &folder.database(), &SystemClock, &mut |_| meanwhile.push(comes(false))).unwrap();
        drop(look(&staged.path));
        meanwhile.extend([comes(false), comes(true)]);
        for refused in meanwhile {
            assert!(refused.contains("or is restoring it"), "{refused}");
        }
        assert_eq!(folder.database().exists(), used, "a database was made all the same");
        let aside = staged.put_in_place(Timestamp::from_micros(0), RESTORED).unwrap();
        assert_eq!(aside.is_some(), used);
        drop(open(&folder, 2));
    }
}

/// Whatever is left of it: jobs would run again under fences that were used.
#[test]
fn a_restore_begins_a_life_above_every_one_that_may_have_been_here() {
    let (source, elsewhere) = (Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    drop(open(&source, 3));
    backup(&source.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    let skipped = 1 + aetheris_core::limits::GENERATIONS_SKIPPED;
    let gone = |path: &Path| std::fs::remove_file(path).unwrap();
    let garbage = |path: &Path| std::fs::write(path, "nothing that can be read".repeat(50)).unwrap();
    let longer = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        std::fs::write(path, text + "and more").unwrap();
    };
    let nothing = |_: &Path| ();
    type Spoil<'a> = &'a dyn Fn(&Path);
    // What becomes of the database and of the folder's file, the life that begins, and whether the folder keeps its name.
    let cases: [(Spoil<'_>, Spoil<'_>, u32, bool); 6] = [
        (&nothing, &nothing, 3, true),
        (&nothing, &gone, 3, true),
        (&nothing, &longer, 3, true),
        (&gone, &nothing, 3, true),
        (&gone, &garbage, skipped, false),
        (&garbage, &gone, skipped, false),
    ];
    for (place, (database, seen, generation, keeps)) in cases.into_iter().enumerate() {
        let folder = Folder::new();
        drop(open(&folder, 1));
        staged(&folder, &file).put_in_place(Timestamp::from_micros(0), RESTORED).unwrap();
        drop(open(&folder, 2));
        database(&folder.database());
        seen(&folder.path().join("aetheris.seen"));
        let staged = staged(&folder, &file);
        assert_eq!(staged.generation, generation, "{place}");
        let custody = Custody { folder: 5, moved: false, opening: 78 };
        staged.put_in_place(Timestamp::from_micros(1), custody).unwrap();
        let conn = rusqlite::Connection::open(folder.database()).unwrap();
        let found: (u32, u8) = conn
            .query_row("SELECT generation, unhex(hex(folder)) = ?1 FROM meta", [&1u128.to_be_bytes()[..]], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!(found, (generation, u8::from(keeps)), "{place}");
        drop(conn);
        drop(open(&folder, 79));
    }
}

#[test]
fn no_database_is_set_aside_over_another_that_was() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    drop(open(&folder, 1));
    backup(&folder.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    let put = || staged(&folder, &file).put_in_place(Timestamp::from_micros(0), RESTORED);
    let aside = put().unwrap().unwrap();
    let (first, before) = (std::fs::read(&aside).unwrap(), names(&folder));
    let refused = put().unwrap_err().to_string();
    assert!(refused.contains("exists; try again"), "{refused}");
    assert!(std::fs::read(&aside).unwrap() == first && names(&folder) == before);
    drop(open(&folder, 2));
}

/// A job that runs, and a unit of its run.
async fn begun(fixture: &Fixture, purpose: Purpose) -> (JobId, Draft) {
    let run = fixture.running().await;
    (run.job, fixture.of(run, purpose).await)
}

/// Whoever restores is told of all that nobody goes on with, and every list and count fits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_holds_by_its_row_what_no_event_can_hold() {
    let (source, folder, elsewhere) = (Arc::new(Folder::new()), Folder::new(), Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&source))).await;
    let file = elsewhere.path().join("backup.db");
    let (completed, draft) = begun(&fixture, Purpose::Finish).await;
    fixture.ok(draft.complete().done()).await;
    let (waits, draft) = begun(&fixture, Purpose::Block).await;
    fixture.ok(draft.wait("w", "k", WaitType::Human, false).done()).await;
    let (parked, draft) = begun(&fixture, Purpose::Block).await;
    fixture.ok(draft.wait("w", "k", WaitType::Human, true).done()).await;
    let (paused, draft) = begun(&fixture, Purpose::Pause).await;
    fixture.ok(draft.pause().done()).await;
    let running = fixture.running().await.job;
    let run_at = Some(fixture.now().await.after(aetheris_core::time::Span::from_secs(9)));
    let delayed = fixture.create(&Message { run_at, ..fixture.message() }).await;
    let pending = fixture.pending().await;
    let broken = [paused, running, delayed];
    let hand = rusqlite::Connection::open(source.database()).unwrap();
    for job in broken {
        hand.execute("UPDATE jobs SET labels = 'nonsense' WHERE id = ?1", [&job.to_bytes()[..]]).unwrap();
    }
    // What is derived is derived anew.
    hand.execute("UPDATE jobs SET listed = NULL WHERE id = ?1", [&completed.to_bytes()[..]]).unwrap();
    backup(&source.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    let staged = staged(&folder, &file);
    assert_eq!((staged.backed.jobs, staged.backed.unfinished), (7, 6));
    let now = Timestamp::from_micros(1_790_000_000_000_000);
    let left = staged.hold_rest(now, &[waits, parked]).unwrap_err().to_string();
    assert!(left.contains(&format!("{pending} can be read and is not held")), "{left}");
    let rest = staged.hold_rest(now, &[waits, parked, pending]).unwrap();
    let mut named = [rest.held, rest.unreadable].concat();
    named.sort();
    assert_eq!(named, [waits, parked, paused, running, delayed, pending]);
    let store = look(&staged.path);
    let counts = [(JobStatus::Completed, 1), (JobStatus::Paused, 6)];
    assert_eq!(store.status().await.unwrap().jobs, counts.into());
    let by = async |statuses| {
        let page = store.jobs(JobFilter { limit: 9, statuses, ..JobFilter::default() }).await.unwrap();
        page.jobs.into_iter().map(|row| (row.id, row.paused)).collect::<Vec<_>>()
    };
    let since = Some((PauseReason::Restored, now));
    assert_eq!(by(vec![JobStatus::Paused]).await, [(pending, since), (parked, since), (waits, since)]);
    assert_eq!(by(vec![JobStatus::Completed]).await, [(completed, None)]);
}

/// A job that has ended is not held, for its session would never go on, and what an operator has paused stays the operator's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_row_has_lost_a_restore_takes_from_the_events() {
    let (source, folder, elsewhere) = (Arc::new(Folder::new()), Folder::new(), Folder::new());
    let fixture = Fixture::open(&At(Arc::clone(&source))).await;
    let file = elsewhere.path().join("backup.db");
    let (completed, draft) = begun(&fixture, Purpose::Finish).await;
    fixture.ok(draft.complete().done()).await;
    let (paused, draft) = begun(&fixture, Purpose::Pause).await;
    fixture.ok(draft.pause().done()).await;
    let pending = fixture.pending().await;
    let hand = rusqlite::Connection::open(source.database()).unwrap();
    hand.pragma_update(None, "ignore_check_constraints", true).unwrap();
    assert_eq!(hand.execute("UPDATE jobs SET status = 99", []).unwrap(), 3);
    backup(&source.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    let staged = staged(&folder, &file);
    let now = Timestamp::from_micros(1_790_000_000_000_000);
    let rest = staged.hold_rest(now, &[]).unwrap();
    assert_eq!((rest.held, rest.unreadable), (vec![paused, pending], vec![]));
    let store = look(&staged.path);
    let row = async |job| store.job(Scope::System, job).await.unwrap().unwrap();
    assert_eq!((row(completed).await.status, row(completed).await.paused), (JobStatus::Completed, None));
    let (reason, since) = row(paused).await.paused.unwrap();
    assert_eq!((row(paused).await.status, reason), (JobStatus::Paused, PauseReason::Operator));
    assert_ne!(since, now);
    assert_eq!(row(pending).await.paused, Some((PauseReason::Restored, now)));
    assert_eq!(store.status().await.unwrap().jobs, [(JobStatus::Completed, 1), (JobStatus::Paused, 2)].into());
}

/// One that knows nothing of the folder's file.
#[test]
fn a_database_that_has_appeared_meanwhile_is_not_set_aside() {
    let (source, folder, elsewhere) = (Folder::new(), Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    drop(open(&source, 1));
    backup(&source.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    let staged = staged(&folder, &file);
    drop(look(&folder.database()));
    let refused = staged.put_in_place(Timestamp::from_micros(0), RESTORED).unwrap_err().to_string();
    assert!(refused.contains("another process opened"), "{refused}");
    assert_eq!(names(&folder), ["aetheris.db", "aetheris.db-clock", "aetheris.db-turn"]);
}

/// A service that runs as another user than whoever restores could not open its database any more, on the night when that
/// matters most.
#[test]
fn a_restored_database_belongs_to_those_who_had_the_one_before() {
    let (source, elsewhere) = (Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    drop(open(&source, 1));
    backup(&source.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    // Only root may give a file to others.
    let other = if rustix::process::geteuid().is_root() { Some(65_534) } else { None };
    let give = |path: &Path, mode| {
        std::os::unix::fs::chown(path, other, other).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    let restored = |folder: &Folder| {
        let staged = staged(folder, &file);
        drop(look(&staged.path));
        staged.put_in_place(Timestamp::from_micros(0), RESTORED).unwrap();
        for file in ["aetheris.db-clock", "aetheris.db-turn"] {
            drop(std::fs::remove_file(folder.path().join(file)));
        }
        drop(open(folder, 2));
        let files = ["aetheris.db", "aetheris.seen", "aetheris.db-clock", "aetheris.db-turn"];
        files.map(|file| std::fs::metadata(folder.path().join(file)).unwrap()).map(|found| {
            let own = other.is_none_or(|other| (found.uid(), found.gid()) == (other, other));
            (found.mode() & 0o777, own)
        })
    };
    for mode in [0o660, 0o640, 0o600] {
        let folder = Folder::new();
        drop(open(&folder, 1));
        std::fs::remove_file(folder.path().join("aetheris.seen")).unwrap();
        give(&folder.database(), mode);
        assert_eq!(restored(&folder), [(mode, true); 4], "{mode:o}");
    }
    // Where there is none, of the folder.
    for (mode, of_files) in [(0o2_770, 0o660), (0o755, 0o640), (0o700, 0o600)] {
        let folder = Folder::new();
        give(folder.path(), mode);
        assert_eq!(restored(&folder), [(of_files, true); 4], "{mode:o}");
    }
}

/// Between a restore and the first start too.
#[test]
fn a_restored_database_that_is_lost_is_not_replaced_by_an_empty_one() {
    let (source, folder, elsewhere) = (Folder::new(), Folder::new(), Folder::new());
    let file = elsewhere.path().join("backup.db");
    drop(open(&source, 1));
    backup(&source.database(), &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    staged(&folder, &file).put_in_place(Timestamp::from_micros(0), RESTORED).unwrap();
    std::fs::remove_file(folder.database()).unwrap();
    let custody = Some(Custody { folder: 1, moved: false, opening: 2 });
    let refused = SqliteStore::open(SqliteOptions { custody, ..options(&folder, Arc::new(SystemClock)) });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("and there is none") && refused.contains("aetheris restore"), "{refused}");
    assert!(!folder.database().exists());
    staged(&folder, &file).put_in_place(Timestamp::from_micros(0), Custody { opening: 78, ..RESTORED }).unwrap();
    drop(open(&folder, 3));
}

/// As where the file is bound into a container, or its folder lets nobody but its owner take it away: here the other name
/// is too long.
#[tokio::test]
async fn a_restore_that_cannot_move_what_is_there_leaves_it_as_it_is() {
    let folder = Folder::new();
    let database = folder.path().join(format!("{}.db", "d".repeat(220)));
    let custody = |opening| Custody { folder: 1, moved: false, opening };
    let open = |opening| {
        let usual = options(&folder, Arc::new(SystemClock));
        SqliteStore::open(SqliteOptions { custody: Some(custody(opening)), path: database.clone(), ..usual })
    };
    let store = open(1).unwrap();
    store.put_agent(agent("before", "1")).await.unwrap();
    let file = folder.path().join("monday.db");
    backup(&database, &file, &SystemClock, &Stop::default(), &mut |_| {}).unwrap();
    store.put_agent(agent("after", "1")).await.unwrap();
    drop(store);
    let said = std::fs::read(database.with_extension("seen")).unwrap();
    let staged = stage(&file, &database, &SystemClock, &mut |_| {}).unwrap();
    let error = staged.put_in_place(SystemClock.wall(), custody(2)).unwrap_err().to_string();
    assert!(error.contains("Nothing was changed"), "{error}");
    assert_eq!(std::fs::read(database.with_extension("seen")).unwrap(), said);
    let store = open(3).unwrap();
    for name in ["before", "after"] {
        assert!(store.agent(TenantId::default(), name.into()).await.unwrap().is_some(), "{name}");
    }
}
