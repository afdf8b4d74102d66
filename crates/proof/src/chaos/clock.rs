//! The wall clock that all processes of a run share, and that jumps.
//!
//! The processes are on one host, so they have one clock: the machine's and an offset in a file, which the
//! feature `faults` lets them add. The store's time is a rule over that clock ([`StoreClock`]); whatever is to
//! be compared with stored times, as the witness's lines, is told by it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_core::time::Timestamp;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};

/// The host's wall clock of a run.
#[derive(Debug, Clone)]
pub struct HostClock {
    file: PathBuf,
    /// The offset and the highest one that was ever set.
    set: Arc<Mutex<(i64, i64)>>,
}

impl HostClock {
    /// A clock without an offset, kept in `file`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(file: PathBuf) -> Result<Self> {
        let clock = Self { file, set: Arc::new(Mutex::new((0, 0))) };
        clock.write(0)?;
        Ok(clock)
    }

    /// The file that processes are told of.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn write(&self, micros: i64) -> Result<()> {
        let fresh = self.file.with_extension("new");
        std::fs::write(&fresh, micros.to_string())?;
        // In one step: nobody reads half a number.
        std::fs::rename(&fresh, &self.file).context("the clock's offset")
    }

    /// Lets the clock jump, forward or back.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn jump(&self, micros: i64) -> Result<()> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = set.0.saturating_add(micros);
        self.write(offset)?;
        *set = (offset, set.1.max(offset));
        Ok(())
    }

    /// Lets the clock jump for a moment, to so far from where it was furthest ahead: what has to be taken back.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn stray(&self, micros: i64) -> Result<i64> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let far = set.1.saturating_sub(set.0).saturating_add(micros);
        set.0 = set.0.saturating_add(far);
        self.write(set.0)?;
        Ok(far)
    }

    /// Takes such a jump back: it does not count as where the clock was.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn take_back(&self, far: i64) -> Result<()> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        set.0 = set.0.saturating_sub(far);
        self.write(set.0)
    }

    /// Sets the clock to where it was when it was furthest ahead: behind that the store's time stands still.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn catch_up(&self) -> Result<()> {
        let behind = {
            let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
            set.1.saturating_sub(set.0)
        };
        self.jump(behind)
    }
}

impl Clock for HostClock {
    fn boot_id(&self) -> aetheris_core::id::BootId {
        SystemClock.boot_id()
    }

    fn boot(&self) -> Duration {
        SystemClock.boot()
    }

    fn wall(&self) -> Timestamp {
        let offset = self.set.lock().unwrap_or_else(PoisonError::into_inner).0;
        Timestamp::from_micros(SystemClock.wall().micros().saturating_add(offset))
    }
}

/// The time of the `SQLite` store as the witness tells it, worked out from what stands in the store's file: never
/// before an event that is stored, and never after one whose transaction begins later. So a body is told between its
/// permit, which was written before it was called, and its outcome, which is sent after it. Written a second time here,
/// so that evidence does not rest on the code that it is to judge.
///
/// What the store has not stored it may take back: a second in which nothing was written is gone when the wall clock is
/// then set back. So this clock does not go beyond what the store is bound to: the smaller of its mark and the slack, and
/// of the boot clock and the mark's distance. And after the wall clock was set back, until the store has said with a new
/// mark where it stands, it stands at what was stored last.
pub struct StoreClock {
    host: HostClock,
    reader: Mutex<Reader>,
}

/// What stands in the store's file.
#[derive(Debug, Clone, Copy)]
struct Stored {
    /// The mark.
    clock: i64,
    /// The time of the last event.
    last: i64,
    /// How far the wall clock was ahead of the boot clock at the mark.
    offset: i64,
}

struct Reader {
    conn: Connection,
    /// What was told last.
    told: i64,
    /// What was read last.
    stored: Option<Stored>,
}

/// How far the store's clock runs before its mark is written again.
const SLACK_US: i64 = 100_000;
/// How far the wall clock falls behind the boot clock before the store says so with a new mark.
const FALL_US: i64 = 2_000;

impl StoreClock {
    /// A clock over a database that exists.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(database: &Path, host: HostClock) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(database, flags)?;
        conn.busy_timeout(Duration::from_secs(1))?;
        Ok(Self { host, reader: Mutex::new(Reader { conn, told: 0, stored: None }) })
    }
}

impl Reader {
    /// Reads the file; where it cannot be read now, as while its log is being recovered and nobody writes, what it said
    /// last is as much as is known.
    fn look(&mut self) -> Option<Stored> {
        self.stored = self.read().ok().or(self.stored);
        self.stored
    }

    fn read(&self) -> rusqlite::Result<Stored> {
        let sql = "SELECT clock, clock_offset, (SELECT at FROM events ORDER BY num DESC LIMIT 1) FROM meta";
        self.conn.prepare_cached(sql)?.query_row([], |row| {
            Ok(Stored { clock: row.get(0)?, offset: row.get(1)?, last: row.get::<_, Option<i64>>(2)?.unwrap_or(0) })
        })
    }
}

impl Clock for StoreClock {
    fn boot_id(&self) -> aetheris_core::id::BootId {
        self.host.boot_id()
    }

    fn boot(&self) -> Duration {
        self.host.boot()
    }

    fn wall(&self) -> Timestamp {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // The file first: a mark that is newer than the look at the wall clock would be taken for one from before.
        let stored = reader.look();
        let boot = || i64::try_from(self.boot().as_micros()).unwrap_or(i64::MAX);
        // The wall clock between two looks at the boot clock: what is told is bounded by the first, and a set-back
        // that came after it is seen by the second.
        let (before, wall, after) = (boot(), self.host.wall().micros(), boot());
        let Some(Stored { clock, last, offset }) = stored else { return Timestamp::from_micros(wall) };
        let bound = before.saturating_add(offset).min(clock.saturating_add(SLACK_US));
        let set_back = wall.saturating_sub(after) < offset.saturating_sub(FALL_US);
        let bound = if set_back { bound.min(wall) } else { bound }.max(clock).max(last);
        reader.told = reader.told.max(bound);
        Timestamp::from_micros(reader.told)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use aetheris_core::id::{JobId, TenantId};
    use aetheris_core::json::Json;
    use aetheris_store::Store as _;
    use aetheris_store_conformance::fixture::{self, Ids, Message};
    use aetheris_store_sqlite::{SqliteOptions, SqliteStore};

    use super::super::dice::Dice;
    use super::*;
    use aetheris_harness::Folder;

    /// A store that tells time by this clock, and the witness's clock over it.
    async fn store(scratch: &Folder, host: &HostClock) -> (SqliteStore, Ids, Message) {
        let options =
            SqliteOptions { clock: Arc::new(host.clone()), ..SqliteOptions::new(scratch.path().join("store.db")) };
        let store = SqliteStore::open(options).unwrap();
        let agent = fixture::agent("refund", "1");
        let (ids, plan, name) = (Ids::default(), agent.agent.plan.hash(), agent.agent.agent.clone());
        store.put_agent(agent).await.unwrap();
        let message = Message {
            agent: name,
            client_key: None,
            deadline: None,
            job: JobId::from_u128(0),
            labels: BTreeMap::new(),
            message: Json::new(serde_json::json!(1)),
            plan: Some(plan),
            planning: None,
            priority: 0,
            run_at: None,
            session: None,
            tenant: TenantId::default(),
        };
        (store, ids, message)
    }

    #[tokio::test]
    async fn what_is_told_is_never_before_what_is_stored_nor_after_what_is_stored_later() {
        let scratch = Folder::new("told");
        let host = HostClock::new(scratch.path().join("offset")).unwrap();
        let (store, ids, mut message) = store(&scratch, &host).await;
        let clock = StoreClock::open(&scratch.path().join("store.db"), host.clone()).unwrap();
        let (mut dice, mut told, mut ahead) = (Dice::new(1, 1), 0, 0);
        for round in 0..4_000 {
            // Also by less than what the store lets pass.
            let most = if dice.chance(30) { 3_000 } else { 3_000_000 };
            let micros = i64::try_from(dice.within(0..most)).unwrap();
            match dice.within(0..10) {
                0 => host.jump(micros).unwrap(),
                1 => host.jump(-micros).unwrap(),
                2..5 => {
                    message.job = JobId::from_u128(ids.next());
                    store.commit(fixture::create_unit(&ids, &message)).await.unwrap();
                    let at = clock.reader.lock().unwrap().read().unwrap().last;
                    assert!(at >= told, "round {round}: {told} was told, and then {at} is stored");
                    ahead += u64::from(at > host.wall().micros());
                    told = told.max(at);
                }
                _ => {
                    let now = clock.wall().micros();
                    assert!(now >= told, "round {round}: {told} was told or stored, and then {now} is told");
                    told = now;
                }
            }
        }
        assert!(ahead > 20, "the store's time was ahead of a clock that was set back {ahead} times");
    }

    #[test]
    fn a_store_that_cannot_be_read_for_a_while_does_not_take_its_time_back() {
        let scratch = Folder::new("mark");
        let database = scratch.path().join("store.db");
        let store = Connection::open(&database).unwrap();
        let ahead = SystemClock.wall().micros() + 3_600_000_000;
        let tables =
            format!("CREATE TABLE meta AS SELECT {ahead} AS clock, 0 AS clock_offset; CREATE TABLE events (num, at)");
        store.execute_batch(&tables).unwrap();
        let clock = StoreClock::open(&database, HostClock::new(scratch.path().join("offset")).unwrap()).unwrap();
        assert!(clock.wall().micros() >= ahead);
        store.execute_batch("ALTER TABLE meta RENAME TO elsewhere").unwrap();
        assert!(clock.wall().micros() >= ahead);
    }

    #[test]
    fn it_jumps_and_catches_up_with_where_it_was_furthest_ahead() {
        let scratch = Folder::new("clock");
        let clock = HostClock::new(scratch.path().join("offset")).unwrap();
        let text = || std::fs::read_to_string(clock.file()).unwrap();
        clock.jump(5_000_000).unwrap();
        assert_eq!(text(), "5000000");
        assert!(clock.wall().micros() - SystemClock.wall().micros() > 4_000_000);
        clock.jump(-8_000_000).unwrap();
        assert_eq!(text(), "-3000000");
        clock.catch_up().unwrap();
        assert_eq!(text(), "5000000");
        clock.jump(-1_000_000).unwrap();
        let far = clock.stray(86_400_000_000).unwrap();
        assert_eq!(text(), "86405000000");
        clock.take_back(far).unwrap();
        assert_eq!(text(), "4000000");
        clock.catch_up().unwrap();
        assert_eq!(text(), "5000000");
    }
}
