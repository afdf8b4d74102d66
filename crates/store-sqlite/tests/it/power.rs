//! The power is cut: what was acknowledged is there, what was not is there as a whole or not at all, and the folder is
//! opened again. The files are what a disk could have left of everything that SQLite did to it (`aetheris-disk`), and what
//! is in them is read by plain SQL too.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aetheris_core::id::{JobId, TenantId};
use aetheris_core::json::Json;
use aetheris_core::plan::EffectClass;
use aetheris_core::time::{Span, Timestamp};
use aetheris_disk::{Fault, Kind, Op, Tape, Watched};
use aetheris_store::system::{Clock, ManualClock};
use aetheris_store::{Boxed, CommitError, Committed, ErrorKind, Purpose, Scope, Store as _, StoreError, UnitOfWork};
use aetheris_store_conformance::{Durable, Fixture, Harness, Opened, Run};
use aetheris_store_sqlite::{Custody, SqliteOptions, SqliteStore, Stop, backup, stage};
use rusqlite::{Connection, OpenFlags};

use crate::folder::{Folder, options};
use crate::migrate::first_schema;

/// Stores in one folder that is watched.
struct Taped {
    folder: Arc<Folder>,
    watched: Watched,
}

impl Taped {
    fn new() -> Self {
        let folder = Folder::in_memory();
        let watched = Watched::taped(folder.path()).unwrap();
        Self { folder: Arc::new(folder), watched }
    }

    fn opened(&self, clock: Arc<dyn Clock>, opening: u128) -> Opened {
        let store = SqliteStore::open(in_custody(&self.folder, clock, opening)).unwrap();
        Opened { keep: Box::new(Arc::clone(&self.folder)), store: Arc::new(store) }
    }
}

fn in_custody(folder: &Folder, clock: Arc<dyn Clock>, opening: u128) -> SqliteOptions {
    SqliteOptions { custody: Some(Custody { folder: 1, moved: false, opening }), ..options(folder, clock) }
}

impl Harness for Taped {
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        Box::pin(std::future::ready(self.opened(clock, 1)))
    }
}

impl Durable for Taped {
    fn reopen(&self, opened: Opened, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        drop(opened);
        Box::pin(std::future::ready(self.opened(clock, 2)))
    }
}

/// What a store was asked to keep.
enum Asked {
    Claim(Run),
    Unit(Box<UnitOfWork>, Committed),
}

/// Writes, and says on the tape what was acknowledged: the place in this list.
struct Author<'w> {
    asked: Vec<Asked>,
    fixture: Fixture,
    watched: &'w Watched,
}

impl Author<'_> {
    fn acknowledged(&mut self, asked: Asked) {
        self.watched.mark(u64::try_from(self.asked.len()).unwrap());
        self.asked.push(asked);
    }

    async fn ok(&mut self, unit: UnitOfWork) {
        let committed = self.fixture.ok(unit.clone()).await;
        self.acknowledged(Asked::Unit(Box::new(unit), committed));
    }

    /// Accepts a message of so many bytes and claims its job.
    async fn running(&mut self, bytes: usize) -> Run {
        let mut message = self.fixture.message();
        message.message = Json::new("m".repeat(bytes).into());
        self.ok(self.fixture.creation(&message)).await;
        let run = self.fixture.take(message.job).await;
        self.acknowledged(Asked::Claim(run));
        run
    }

    /// A job with one ledger step, from its message to its end.
    async fn job(&mut self, bytes: usize) {
        let run = self.running(bytes).await;
        self.ok(self.fixture.of(run, Purpose::Permit).await.call("a", EffectClass::AtMostOnce).done()).await;
        self.fixture.advance(Span::from_millis(3));
        let result = Json::new("r".repeat(bytes).into());
        self.ok(self.fixture.of(run, Purpose::Record).await.committed("a", result).done()).await;
        self.ok(self.fixture.of(run, Purpose::Finish).await.complete().done()).await;
    }

    /// Messages that go into one transaction, or a few.
    async fn crowd(&mut self, messages: usize) {
        let units: Vec<UnitOfWork> = (0..messages).map(|_| self.fixture.creation(&self.fixture.message())).collect();
        let store = self.fixture.shared();
        let write = |unit: UnitOfWork| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { (store.commit(unit.clone()).await.unwrap(), unit) })
        };
        let writes: Vec<_> = units.into_iter().map(write).collect();
        for written in writes {
            let (committed, unit) = written.await.unwrap();
            self.acknowledged(Asked::Unit(Box::new(unit), committed));
        }
        self.fixture.claim(messages).await;
    }
}

/// A folder's story: small and large jobs, crowds, and a second process after the first has closed the database.
async fn story(taped: &Taped, jobs: usize, bytes: usize) -> (Vec<Asked>, Tape) {
    let mut author = Author { asked: Vec::new(), fixture: Fixture::open(taped).await, watched: &taped.watched };
    for life in 0..2 {
        for job in 0..jobs {
            author.job(if job % 3 == 1 { bytes } else { 10 }).await;
        }
        author.crowd(8).await;
        if life == 0 {
            author.fixture = author.fixture.reopen(taped).await;
        }
    }
    let tape = taped.watched.tape();
    (author.asked, tape)
}

/// How many events of a job stand in the database with the names that its author gave, by SQLite's own file system.
fn events_of(conn: &Connection, unit: &UnitOfWork) -> u32 {
    let known = |id: &[u8]| {
        conn.prepare_cached(
            "SELECT count(*) FROM events JOIN jobs ON jobs.num = events.job WHERE jobs.id = ?1 AND events.id = ?2",
        )
        .unwrap()
        .query_row([&unit.job.to_bytes()[..], id], |row| row.get::<_, u32>(0))
        .unwrap()
    };
    unit.events.iter().map(|event| known(&event.id.to_bytes())).sum()
}

fn plain(path: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags_and_vfs(path, flags, "unix").unwrap()
}

/// Opens what a cut has left, and looks for everything that was acknowledged before it.
async fn judge(asked: &[Asked], tape: &Tape, before: usize, seed: u64) {
    let at = || format!("cut before {before} of {}, seed {seed}", tape.len());
    let folder = Folder::in_memory();
    tape.cut(before, seed, folder.path()).unwrap();
    let marks = tape.marks(before);
    let safe = |place: usize| marks.contains(&u64::try_from(place).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_micros(1_790_000_000_000_000)));
    let store = SqliteStore::open(in_custody(&folder, clock, 3));
    assert!(store.is_ok(), "{}: {}", at(), store.unwrap_err());
    let store = store.unwrap();
    let mut there = Vec::new();
    for (place, asked) in asked.iter().enumerate() {
        match asked {
            Asked::Unit(unit, committed) => {
                let found = store.resolve_unknown(unit).await.unwrap();
                assert!(found.as_ref().is_none_or(|found| found == committed), "{}: {place} is another", at());
                assert!(found.is_some() || !safe(place), "{}: {place} was acknowledged and is lost", at());
                there.push((unit.as_ref(), found.is_some()));
            }
            Asked::Claim(run) if safe(place) => {
                let row = store.job(Scope::System, run.job).await.unwrap();
                assert!(row.is_some_and(|row| row.fence >= run.fence), "{}: claim {place} is lost", at());
            }
            Asked::Claim(_) => {}
        }
    }
    // It goes on: the next message is accepted and survives the end of the process.
    let next = goes_on(&store).await;
    drop(store);
    let conn = plain(&folder.database());
    let sound: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok", "{}", at());
    for (unit, found) in there {
        let events = if found { u32::try_from(unit.events.len()).unwrap() } else { 0 };
        assert_eq!(events_of(&conn, unit), events, "{}: part of a unit", at());
    }
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
    let torn = "SELECT count(*) FROM jobs WHERE seq <> (SELECT count(*) FROM events WHERE job = jobs.num)";
    assert_eq!(count(torn), 0, "{}: a job and its events differ", at());
    let known = "SELECT count(*) FROM jobs WHERE id = ?1";
    let known: u32 = conn.query_row(known, [&next.to_bytes()[..]], |row| row.get(0)).unwrap();
    assert_eq!(known, 1, "{}", at());
}

/// A message, by whoever comes after the cut.
async fn goes_on(store: &SqliteStore) -> JobId {
    let ids = aetheris_store_conformance::fixture::Ids::default();
    let agent = aetheris_store_conformance::fixture::agent("after", "1");
    store.put_agent(agent).await.unwrap();
    let message = aetheris_store_conformance::Message {
        agent: "after".into(),
        client_key: None,
        deadline: None,
        job: JobId::from_u128(9),
        labels: std::collections::BTreeMap::new(),
        message: Json::null(),
        plan: None,
        planning: None,
        priority: 0,
        run_at: None,
        session: None,
        tenant: TenantId::default(),
    };
    store.commit(aetheris_store_conformance::fixture::create_unit(&ids, &message)).await.unwrap();
    message.job
}

/// Cuts at moments drawn from the seed: half of them anywhere, half around a sync.
async fn cuts(taped: &Taped, (jobs, bytes): (usize, usize), cuts: u64) {
    let (asked, tape) = story(taped, jobs, bytes).await;
    let syncs: Vec<usize> = (0..tape.len()).filter(|at| matches!(tape.ops()[*at], Op::Sync { .. })).collect();
    for seed in 0..cuts {
        let drawn = usize::try_from(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16).unwrap();
        let before = if seed % 2 == 0 { drawn % (tape.len() + 1) } else { syncs[drawn % syncs.len()] + drawn / 7 % 3 };
        judge(&asked, &tape, before.min(tape.len()), seed).await;
    }
    judge(&asked, &tape, tape.len(), 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_jobs_survive_a_power_cut() {
    cuts(&Taped::new(), (6, 900), 700).await;
}

/// Their log is copied into the file while they are written, and grows beyond one page's payload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_jobs_survive_a_power_cut() {
    cuts(&Taped::new(), (9, 600_000), 300).await;
}

/// A second life, in what the first has left when it was killed: what it acknowledges survives a cut, and so does what was
/// acknowledged before. Whether the first was killed anywhere, or because the log could not be synced.
async fn second_lives(syncs_fail: bool, lives: u64, cuts: u64) {
    for life in 0..lives {
        let told: Arc<AtomicUsize> = Arc::default();
        let harness = Failing { fatal: Arc::clone(&told), taped: Taped::new() };
        let watched = harness.taped.watched.clone();
        let mut author = Author { asked: Vec::new(), fixture: Fixture::open(&harness).await, watched: &watched };
        author.job(if life % 3 == 1 { 60_000 } else { 10 }).await;
        let begun = watched.tape().len();
        author.crowd(3).await;
        if syncs_fail {
            harness.taped.watched.fail(Kind::Log, Fault::Sync, 0, 1);
            let lost = author.fixture.creation(&author.fixture.message());
            assert!(matches!(author.fixture.store().commit(lost).await, Err(CommitError::Unknown(_))));
            assert_eq!(told.load(Ordering::SeqCst), 1);
        }
        let tape = watched.tape();
        let drawn = usize::try_from(life.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16).unwrap();
        let killed = if syncs_fail { tape.len() } else { begun + drawn % (tape.len() - begun) };
        let folder = Folder::in_memory();
        let watched = Watched::after_kill(&tape, killed, folder.path()).unwrap();
        let second = Taped { folder: Arc::new(folder), watched: watched.clone() };
        author.fixture = author.fixture.reopen(&second).await;
        author.watched = &watched;
        for _ in 0..3 {
            author.ok(author.fixture.creation(&author.fixture.message())).await;
        }
        let (asked, tape) = (std::mem::take(&mut author.asked), watched.tape());
        for seed in 0..cuts {
            let before = killed
                + usize::try_from(seed.wrapping_mul(0xD1B5_4A32_D192_ED03) >> 16).unwrap() % (tape.len() - killed + 1);
            judge(&asked, &tape, before, seed).await;
        }
        judge(&asked, &tape, tape.len(), 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_after_a_kill_survives_a_power_cut() {
    second_lives(false, 30, 8).await;
}

/// The system holds for written what the failed sync has left: the next process reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_after_a_failed_sync_survives_a_power_cut() {
    second_lives(true, 9, 8).await;
}

/// A folder whose last process was killed: a database of the first schema, and a log of more than a piece beside it.
fn left_with_a_log() -> (Folder, Watched, Vec<u8>) {
    let taped = Taped::new();
    first_schema(&taped.folder);
    let conn = Connection::open(taped.folder.database()).unwrap();
    let fill = "PRAGMA wal_autocheckpoint = 0; CREATE TABLE rest (a); INSERT INTO rest VALUES (zeroblob(3000000))";
    conn.execute_batch(fill).unwrap();
    let (tape, second) = (taped.watched.tape(), Folder::in_memory());
    let watched = Watched::after_kill(&tape, tape.len(), second.path()).unwrap();
    let log = std::fs::read(second.path().join("aetheris.db-wal")).unwrap();
    assert!(log.len() > 3_000_000);
    (second, watched, log)
}

/// The whole log is written again and synced before anything is written to it or to the database.
fn began_with_its_log(tape: &Tape, from: usize, left: &[u8]) {
    let [database, log] = ["aetheris.db", "aetheris.db-wal"].map(|name| tape.file(name).unwrap());
    let mut again = Vec::new();
    for op in &tape.ops()[from..] {
        match op {
            Op::Sync { file, .. } if *file == log => break,
            Op::Write { file, at, bytes } if [database, log].contains(file) => {
                assert_eq!((*file, *at), (log, again.len() as u64), "something else is written before");
                again.extend_from_slice(bytes);
            }
            Op::Create(_)
            | Op::Delete { .. }
            | Op::Mark(_)
            | Op::Rename { .. }
            | Op::Sync { .. }
            | Op::SyncFailed(_)
            | Op::SyncFolder
            | Op::Truncate { .. }
            | Op::Write { .. } => {}
        }
    }
    assert!(again == left, "{} of {} bytes", again.len(), left.len());
}

/// Also where an earlier build has left it: the database is brought up to date on a log that is on the disk.
#[test]
fn a_log_that_was_left_is_written_again_before_anything_else() {
    let (folder, watched, left) = left_with_a_log();
    let from = watched.tape().len();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_micros(1_790_000_000_000_000)));
    drop(SqliteStore::open(options(&folder, clock)).unwrap());
    began_with_its_log(&watched.tape(), from, &left);
}

/// Whoever cannot make it durable leaves it, and the database, as they are.
#[test]
fn a_log_that_cannot_be_written_again_is_copied_nowhere() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_micros(1_790_000_000_000_000)));
    for (fault, skip, says) in [
        (Fault::Write, 0, "cannot be written"),
        (Fault::Full, 2, "cannot be written"),
        (Fault::Sync, 0, "cannot be synced"),
    ] {
        let (folder, watched, left) = left_with_a_log();
        let from = watched.tape().len();
        watched.fail(Kind::Log, fault, skip, 1);
        let refused = SqliteStore::open(options(&folder, Arc::clone(&clock))).unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
        let tape = watched.tape();
        let database = tape.file("aetheris.db").unwrap();
        let wrote = |op: &&Op| matches!(op, Op::Write { file, .. } if *file == database);
        assert_eq!(tape.ops()[from..].iter().find(wrote), None, "{fault:?}");
        assert!(std::fs::read(folder.path().join("aetheris.db-wal")).unwrap() == left, "{fault:?}");
        // Once it can be written, all of it is.
        let from = tape.len();
        drop(SqliteStore::open(options(&folder, Arc::clone(&clock))).unwrap());
        began_with_its_log(&watched.tape(), from, &left);
    }
}

/// What a restore puts aside is whole: it may be all that there is of some jobs.
#[test]
fn the_log_of_what_a_restore_puts_aside_is_written_again_before_it_is_copied() {
    let (copied, _, _) = left_with_a_log();
    let backed = copied.path().join("backup.db");
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_micros(1_790_000_000_000_000)));
    drop(SqliteStore::open(options(&copied, Arc::clone(&clock))).unwrap());
    backup(&copied.database(), &backed, clock.as_ref(), &Stop::default(), &mut |_| {}).unwrap();
    let (folder, watched, left) = left_with_a_log();
    let from = watched.tape().len();
    let staged = stage(&backed, &folder.database(), clock.as_ref(), &mut |_| {}).unwrap();
    staged.put_in_place(clock.wall(), Custody { folder: 1, moved: false, opening: 2 }).unwrap();
    began_with_its_log(&watched.tape(), from, &left);
}

/// A folder that is hardly used: most cuts are in its making and in the first opening after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_folder_survives_a_power_cut() {
    cuts(&Taped::new(), (1, 10), 1_000).await;
}

/// What is written down in `ARCHITECTURE.md`: a transaction is one fsync, of the log, whoever and however many are in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_one_sync_of_the_log() {
    let taped = Taped::new();
    let fixture = Fixture::open(&taped).await;
    let mut author = Author { asked: Vec::new(), fixture, watched: &taped.watched };
    for _ in 0..4 {
        author.job(10).await;
    }
    let tape = taped.watched.tape();
    let marks: Vec<usize> =
        (0..tape.len()).filter(|at| matches!(tape.ops()[*at], Op::Mark(mark) if mark < 20)).collect();
    assert_eq!((marks.len(), author.asked.len()), (20, 20));
    for pair in marks.windows(2) {
        let syncs: Vec<(&str, usize)> = tape.syncs(pair[0]..pair[1]).into_iter().collect();
        assert_eq!(syncs, [("aetheris.db-wal", 1)], "between {pair:?}");
    }
}

/// A store that says how often it was told that it must not go on.
struct Failing {
    fatal: Arc<AtomicUsize>,
    taped: Taped,
}

impl Harness for Failing {
    fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let told = Arc::clone(&self.fatal);
        let on_fatal = Arc::new(move |_: &StoreError| {
            told.fetch_add(1, Ordering::SeqCst);
        });
        let options = SqliteOptions { on_fatal, ..in_custody(&self.taped.folder, clock, 1) };
        let store = Arc::new(SqliteStore::open(options).unwrap());
        Box::pin(std::future::ready(Opened { keep: Box::new(Arc::clone(&self.taped.folder)), store }))
    }
}

/// What SQLite reports of a COMMIT is told as what it is: of a sync that failed nobody knows what it has left, and the
/// process must not go on; a full disk has kept nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_fails_is_told_as_unknown_or_as_nothing() {
    for (fault, fatal, unknown) in [(Fault::Sync, 1, true), (Fault::Write, 1, true), (Fault::Full, 0, false)] {
        let harness = Failing { fatal: Arc::default(), taped: Taped::new() };
        let fixture = Fixture::open(&harness).await;
        let kept = fixture.creation(&fixture.message());
        let kept_at = fixture.ok(kept.clone()).await;
        let lost = fixture.creation(&fixture.message());
        harness.taped.watched.fail(Kind::Log, fault, 0, 1);
        let answer = fixture.store().commit(lost.clone()).await;
        let told = match &answer {
            Err(CommitError::Unknown(_)) => true,
            Err(CommitError::Failed(error)) => {
                assert_eq!(error.kind, ErrorKind::Full, "{fault:?}: {error}");
                false
            }
            other => panic!("{fault:?}: {other:?}"),
        };
        assert_eq!((told, harness.fatal.load(Ordering::SeqCst)), (unknown, fatal), "{fault:?}");
        if !unknown {
            assert_eq!(fixture.store().resolve_unknown(&lost).await.unwrap(), None, "{fault:?}");
            fixture.ok(lost.clone()).await;
        }
        let clock: Arc<dyn Clock> = Arc::new(fixture.clock.clone());
        drop(fixture);
        let next = SqliteStore::open(in_custody(&harness.taped.folder, clock, 2)).unwrap();
        assert_eq!(next.resolve_unknown(&kept).await.unwrap(), Some(kept_at), "{fault:?}");
        let events = if next.resolve_unknown(&lost).await.unwrap().is_some() { lost.events.len() } else { 0 };
        let rows = next.events(Scope::System, lost.job, 0, 16).await.unwrap();
        assert_eq!(rows.len(), events, "{fault:?}: part of a unit");
        drop(next);
    }
}

/// The log is copied into the file after everybody was answered: nobody is told that it failed. The process must not go on
/// where the disk did, and goes on where it is only full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_copied_ends_the_process_unless_the_disk_is_full() {
    for (fault, ends) in [(Fault::Sync, true), (Fault::Write, true), (Fault::Full, false)] {
        let harness = Failing { fatal: Arc::default(), taped: Taped::new() };
        let (watched, fixture) = (harness.taped.watched.clone(), Fixture::open(&harness).await);
        let mut author = Author { asked: Vec::new(), fixture, watched: &watched };
        watched.fail(Kind::Database, fault, 0, usize::MAX);
        for _ in 0..9 {
            author.job(600_000).await;
        }
        assert_eq!(harness.fatal.load(Ordering::SeqCst) > 0, ends, "{fault:?}");
    }
}

/// Readiness goes by it: each part by itself, until it works again, for which a question tries a write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_failed_is_told_until_it_works_again() {
    let taped = Taped::new();
    let fixture = Fixture::open(&taped).await;
    let job = fixture.pending().await;
    let failing = async || {
        let health = fixture.store().health().await.unwrap();
        [health.last_claim, health.last_write].map(|failed| failed.map(|failed| failed.kind))
    };
    taped.watched.fail(Kind::Log, Fault::Full, 0, 1);
    assert_eq!(fixture.store().claim(fixture.request(1)).await.unwrap_err().kind, ErrorKind::Full);
    assert_eq!(failing().await, [Some(ErrorKind::Full), None]);
    assert_eq!(fixture.claim_ids(1).await, [job]);
    assert_eq!(failing().await, [None, None]);
    // The second one is the question's own.
    taped.watched.fail(Kind::Log, Fault::Full, 0, 2);
    assert!(fixture.store().commit(fixture.creation(&fixture.message())).await.is_err());
    assert_eq!(failing().await, [None, Some(ErrorKind::Full)]);
    let before = fixture.store().status().await.unwrap().writer.commits;
    assert_eq!(failing().await, [None, None]);
    assert_eq!(fixture.store().status().await.unwrap().writer.commits, before + 1);
    assert_eq!(failing().await, [None, None]);
    assert_eq!(
        fixture.store().status().await.unwrap().writer.commits,
        before + 1,
        "it is asked only where it may help"
    );
    // A real write that works ends it as well.
    taped.watched.fail(Kind::Log, Fault::Full, 0, 1);
    assert!(fixture.store().commit(fixture.creation(&fixture.message())).await.is_err());
    fixture.pending().await;
    let before = fixture.store().status().await.unwrap().writer.commits;
    assert_eq!(failing().await, [None, None]);
    assert_eq!(fixture.store().status().await.unwrap().writer.commits, before);
}

/// Everything that a database says of jobs, as text.
fn content(conn: &Connection) -> Vec<String> {
    let tables = [
        "jobs",
        "events",
        "plans",
        "agents",
        "checkpoints",
        "ledger",
        "effects",
        "evidence",
        "inbox",
        "timers",
        "job_labels",
    ];
    let columns = |table: &str| {
        let mut found = conn.prepare(&format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid")).unwrap();
        let names: Vec<String> = found.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert!(!names.is_empty(), "{table}");
        names.iter().map(|name| format!("quote({name})")).collect::<Vec<_>>().join(" || ',' || ")
    };
    let row = |table: &str| format!("SELECT {} FROM {table} ORDER BY 1", columns(table));
    let rows = |table: &str| -> Vec<String> {
        conn.prepare(&row(table)).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    tables.into_iter().flat_map(|table| rows(table).into_iter().map(move |row| format!("{table}: {row}"))).collect()
}

/// A backup, cut short at every moment with the power: what has its name is whole, and once it is said to be made it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_survives_a_power_cut() {
    let taped = Taped::new();
    let mut author = Author { asked: Vec::new(), fixture: Fixture::open(&taped).await, watched: &taped.watched };
    for bytes in [10, 9_000] {
        author.job(bytes).await;
        author.running(bytes).await;
    }
    let said = content(&plain(&taped.folder.database()));
    let begun = taped.watched.tape().len();
    let file = taped.folder.path().join("monday.db");
    backup(&taped.folder.database(), &file, &aetheris_store::system::SystemClock, &Stop::default(), &mut |_| {})
        .unwrap();
    let tape = taped.watched.tape();
    let mut found = [0; 2];
    for before in begun..=tape.len() {
        for seed in 0..12 {
            let (folder, at) = (Folder::in_memory(), format!("cut before {before} of {}, seed {seed}", tape.len()));
            tape.cut(before, seed, folder.path()).unwrap();
            let file = folder.path().join("monday.db");
            found[usize::from(file.exists())] += 1;
            if file.exists() {
                let conn = plain(&file);
                let (check, copied): (String, bool) = conn
                    .query_row("SELECT (SELECT * FROM pragma_integrity_check), copied FROM meta", [], |row| {
                        Ok((row.get(0)?, row.get(1)?))
                    })
                    .unwrap();
                assert_eq!((check.as_str(), copied), ("ok", true), "{at}: it is whole, and says what it is");
                assert!(content(&conn) == said, "{at}: it says something else than the database that it was made of");
            }
            assert!(before < tape.len() || file.exists(), "{at}: it is not there");
        }
    }
    assert!(found[0] > 12 && found[1] > 12, "{found:?}");
}

/// What a folder has after a restore that was cut short, looked at as whoever starts next does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// Everything that was there before.
    Old,
    /// Refused, with the way on.
    Refused,
    /// Everything that was restored.
    Restored,
}

async fn left(folder: &Folder, (old, new): (JobId, JobId), at: &str) -> Left {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_micros(1_790_000_000_000_000)));
    match SqliteStore::open(in_custody(folder, clock, 30)) {
        Err(error) => {
            assert!(error.to_string().contains("aetheris restore"), "{at}: {error}");
            Left::Refused
        }
        Ok(store) => {
            let there = [
                store.job(Scope::System, old).await.unwrap().is_some(),
                store.job(Scope::System, new).await.unwrap().is_some(),
            ];
            let generation = store.status().await.unwrap().generation;
            assert!(there == [true, generation == 1], "{at}: {there:?} in generation {generation}");
            if generation == 1 { Left::Old } else { Left::Restored }
        }
    }
}

/// A restore, from its copy to its last name, cut short at every moment, by a kill or with the power: who starts next has
/// what was there before, or what was restored, or is told to restore. Once it has ended there is nothing but the latter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_survives_a_kill_and_a_power_cut() {
    let (taped, elsewhere) = (Taped::new(), Folder::in_memory());
    let file = elsewhere.path().join("backup.db");
    let mut author = Author { asked: Vec::new(), fixture: Fixture::open(&taped).await, watched: &taped.watched };
    let old = author.running(10).await.job;
    backup(&taped.folder.database(), &file, &aetheris_store::system::SystemClock, &Stop::default(), &mut |_| {})
        .unwrap();
    let new = author.running(10).await.job;
    author.fixture = author.fixture.reopen(&taped).await;
    let clock = author.fixture.clock.clone();
    drop(author);
    let restore = |folder: &Folder, opening: u8| {
        let staged = stage(&file, &folder.database(), &clock, &mut |_| {}).unwrap();
        let restored = Custody { folder: 1, moved: false, opening: opening.into() };
        staged.put_in_place(Timestamp::from_micros(opening.into()), restored).unwrap();
    };
    let begun = taped.watched.tape().len();
    restore(&taped.folder, 20);
    let tape = taped.watched.tape();
    let mut found = std::collections::BTreeSet::new();
    for before in begun..=tape.len() {
        let seeds = (0..12).map(Some).chain([None]);
        for seed in seeds {
            let (folder, at) = (Folder::in_memory(), format!("cut before {before} of {}, seed {seed:?}", tape.len()));
            match seed {
                Some(seed) => tape.cut(before, seed, folder.path()).unwrap(),
                None => tape.kill(before, folder.path()).unwrap(),
            }
            let now = left(&folder, (old, new), &at).await;
            assert!(before < tape.len() || now == Left::Restored, "{at}: {now:?}");
            if now == Left::Refused && seed.is_none_or(|seed| seed == 0) {
                restore(&folder, 21);
                assert_eq!(left(&folder, (old, new), &at).await, Left::Restored, "{at}");
            }
            found.insert(now);
        }
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [Left::Old, Left::Refused, Left::Restored]);
}
