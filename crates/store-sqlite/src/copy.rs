//! Copies of a database: a backup of one that may be in use, and putting one back.
//!
//! A backup reads one snapshot through SQLite's own copying, in pieces; whoever writes meanwhile is not held up, and only
//! the log grows for so long. It is marked as a copy, checked, synced and then given its name, so that under that name
//! there is never half of one.
//!
//! A restore makes the copy usable beside the database ([`stage`]): marked as in use, in the next generation.
//! Its unfinished jobs are then held by whoever can fold them, and [`Staged::put_in_place`] puts the folder's name into it,
//! announces it and changes the names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use aetheris_core::limits;
use aetheris_core::time::Timestamp;
use aetheris_store::StoreError;
use aetheris_store::system::Clock;
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags, params};

use crate::error::Error;
use crate::file::{self, JOURNAL, PARTS, Still, WAL, beside, remove_beside};
use crate::folder::Owner;
use crate::part::{Part, Stop, remove_abandoned};
use crate::pieces::{Next, Waited};
use crate::queries::Query;
use crate::seen::{self, Alone, Custody, Known};
use crate::{folder, migrate, open, wal};

/// How long one piece waits for a lock before it is asked for again.
const PAUSE: Duration = Duration::from_millis(20);

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Pages copied.
    pub done: u64,
    /// Pages in all.
    pub of: u64,
}

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backed {
    /// The file's size, in bytes.
    pub bytes: u64,
    /// The store's life that it is from.
    pub generation: u32,
    /// Jobs in it.
    pub jobs: u64,
    /// Those of them that had not ended.
    pub unfinished: u64,
}

/// Copies a database, which may be in use, to a file that is not there yet.
///
/// # Errors
/// There is no such database, the file is there, one of them cannot be read or written, or the backup was asked to stop.
pub fn backup(
    database: &Path,
    file: &Path,
    clock: &dyn Clock,
    stop: &Stop,
    progress: &mut dyn FnMut(Progress),
) -> Result<Backed, StoreError> {
    let backed = back_up(database, file, clock, stop, progress);
    // What it was doing then is not what ended it.
    backed.map_err(|error| stop.check().err().unwrap_or(error).at("backup"))
}

fn back_up(
    database: &Path,
    file: &Path,
    clock: &dyn Clock,
    stop: &Stop,
    progress: &mut dyn FnMut(Progress),
) -> Result<Backed, Error> {
    if file::is_name_of(database, file)? {
        let (file, database) = (file.display(), database.display());
        return Err(Error::Refused(format!("{file} is a name that {database} uses itself; name another")));
    }
    refuse_taken(file)?;
    remove_abandoned(file);
    let mut part = Part::of(file, clock);
    let conn = copied(database, &part.path, clock, stop, progress)?;
    conn.execute(Query::BackupMark.sql(), [])?;
    stop.watch(&conn)?;
    let backed = finished(conn, &part.path)?;
    stop.check()?;
    refuse_taken(file)?;
    part.named(file)?;
    folder::sync(file)?;
    Ok(backed)
}

fn refuse_taken(file: &Path) -> Result<(), Error> {
    if file.exists() {
        return Err(Error::Refused(format!("{} exists; a backup is never written over a file", file.display())));
    }
    Ok(())
}

/// Copies one snapshot of a database to a new file, page by page, and brings the copy's schema up to date.
fn copied(
    from: &Path,
    to: &Path,
    clock: &dyn Clock,
    stop: &Stop,
    progress: &mut dyn FnMut(Progress),
) -> Result<Connection, Error> {
    let (source, still) = source(from)?;
    let mut conn = pages(source, (from, to), stop, progress);
    if still.is_some_and(|still| still.check().is_err()) {
        // A process has opened it meanwhile: what was read without locks says nothing.
        drop(conn);
        folder::remove(to)?;
        remove_beside(to)?;
        conn = pages(open::reader(from)?, (from, to), stop, progress);
    }
    let conn = conn?;
    migrate::run(&conn, clock)?;
    Ok(conn)
}

/// Copies what a connection reads, page by page, to a file that is not there.
fn pages(
    source: Connection,
    (from, to): (&Path, &Path),
    stop: &Stop,
    progress: &mut dyn FnMut(Progress),
) -> Result<Connection, Error> {
    // Its owner's alone from the first byte on.
    folder::make_own(to)?;
    let mut conn =
        Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;")?;
    // One snapshot: without it every write of another process would begin the copy anew.
    source.execute_batch("BEGIN")?;
    is_ours(&source, from)?;
    let copy = Backup::new(&source, &mut conn)?;
    let mut waited = Waited::default();
    loop {
        let step = copy.step(limits::BACKUP_STEP_PAGES)?;
        let at = copy.progress();
        let pages = |count: i32| u64::from(count.unsigned_abs());
        progress(Progress { done: pages(at.pagecount - at.remaining), of: pages(at.pagecount) });
        stop.check()?;
        match waited.after(step) {
            Next::Done => break,
            Next::Piece => {}
            Next::Pause => std::thread::sleep(PAUSE),
            Next::GiveUp => {
                return Err(Error::Unavailable(format!("{} is locked by another process", from.display())));
            }
        }
    }
    drop(copy);
    drop(source);
    // One file, which needs no log beside it.
    conn.execute_batch("PRAGMA journal_mode = DELETE")?;
    Ok(conn)
}

/// A connection that reads the database. Where nothing stands beside it that belongs to it, no process has it open: it
/// is read as it stands, and still has to when it was read. A reader would make a log and could not remove it.
fn source(from: &Path) -> Result<(Connection, Option<Still>), Error> {
    if !from.is_file() {
        return Err(Error::Unavailable(format!("there is no database {}", from.display())));
    }
    let path = file::resolved(from)?;
    if [WAL, JOURNAL].iter().any(|end| beside(&path, end).exists()) {
        return Ok((open::reader(from)?, None));
    }
    let still = Still::of(&path);
    Ok((open::quiet_reader(&path)?, Some(still)))
}

fn is_ours(source: &Connection, from: &Path) -> Result<(), Error> {
    let application = source.query_row("PRAGMA application_id", [], |row| row.get::<_, i64>(0));
    match application {
        Ok(found) if found == migrate::APPLICATION => {
            // The read that the snapshot begins with.
            source.query_row("SELECT count(*) FROM meta", [], |row| row.get::<_, i64>(0))?;
            Ok(())
        }
        Ok(_) => Err(Error::Refused(format!("{} is not a database of this program", from.display()))),
        Err(error) => Err(Error::Refused(format!("{} is not a database: {error}", from.display()))),
    }
}

/// What SQLite's own check answers if it finds nothing.
const SOUND: &str = "ok";

/// The first thing that SQLite's own check finds.
fn checked(conn: &Connection) -> Result<String, Error> {
    Ok(conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?)
}

/// Checks a copy, closes it and makes it durable.
fn finished(conn: Connection, path: &Path) -> Result<Backed, Error> {
    let found = checked(&conn)?;
    if found != SOUND {
        // Rows that contradict themselves are copied as they are: without them no other job could be saved. What else
        // is wrong may stand behind the first of them.
        conn.pragma_update(None, "ignore_check_constraints", true)?;
        let damage = checked(&conn)?;
        if damage != SOUND {
            return Err(Error::Corrupt(format!("the copy does not pass SQLite's own check: {damage}")));
        }
        tracing::warn!(%found, "rows contradict themselves, and are copied as they are: check-consistency names them");
    }
    let (generation, jobs, unfinished) = conn.query_row(Query::MetaSummary.sql(), [], |row| {
        Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs(), row.get::<_, i64>(2)?.unsigned_abs()))
    })?;
    conn.close().map_err(|(_, error)| error)?;
    let bytes = folder::sync_file(path)?;
    Ok(Backed { bytes, generation, jobs, unfinished })
}

/// Whether a file is a database of this program, as far as its beginning says.
///
/// # Errors
/// It is none, or cannot be read.
pub fn recognise(file: &Path) -> Result<(), StoreError> {
    let recognised = source(file).and_then(|(conn, _still)| is_ours(&conn, file));
    recognised.map_err(|error| error.at("restore"))
}

/// A copy that can be put in the place of a database.
#[derive(Debug)]
pub struct Staged {
    /// What it holds.
    pub backed: Backed,
    /// The generation that its jobs go on in: above every one that is known here.
    pub generation: u32,
    /// The file.
    pub path: PathBuf,
    /// Held until the copy is in place: nobody opens the folder meanwhile.
    alone: Alone,
    database: PathBuf,
    /// The name that database and file had for the folder.
    folder: Option<u128>,
    part: Part,
    /// Which file the database was when this began.
    replaces: Option<(u64, u64)>,
}

/// Makes a usable copy of a backup beside the database that it is to replace. The database stays as it is, and nobody
/// can open it until this is dropped or put in place.
///
/// # Errors
/// A process has the database open, the file is no database of this program or a newer build's, or it cannot be
/// copied.
pub fn stage(
    file: &Path,
    database: &Path,
    clock: &dyn Clock,
    progress: &mut dyn FnMut(Progress),
) -> Result<Staged, StoreError> {
    staged(file, database, clock, progress).map_err(|error| error.at("restore"))
}

fn staged(
    file: &Path,
    database: &Path,
    clock: &dyn Clock,
    progress: &mut dyn FnMut(Progress),
) -> Result<Staged, Error> {
    let alone = seen::alone(database)?;
    let path = beside(database, "-restoring");
    if file::resolved(file).ok() == file::resolved(&path).ok() {
        return Err(Error::Refused(format!(
            "{} is where the copy is made; give the backup another name",
            file.display()
        )));
    }
    // What a restore that was cut short has left.
    folder::remove(&path)?;
    remove_beside(&path)?;
    let part = Part::at(path.clone());
    let conn = copied(file, &path, clock, &Stop::default(), progress)?;
    let (known, seen) = (known_of(database), alone.look());
    let before = [known.map(|known| known.generation), seen.map(|seen| seen.generation)];
    let mute = known.is_none() && seen.is_none() && (database.exists() || !alone.made);
    let own: u32 = conn.query_row(Query::MetaGeneration.sql(), [], |row| row.get(0))?;
    let before = before.into_iter().flatten().filter(|_| !aetheris_fault::planted!("restore-forgets-generations"));
    let highest = before.fold(own, u32::max);
    let step = if mute { limits::GENERATIONS_SKIPPED } else { 1 };
    let generation =
        highest.checked_add(step).ok_or_else(|| Error::Corrupt("there is no next generation".to_owned()))?;
    if mute {
        tracing::warn!(
            "neither the database that was there nor its aetheris.seen says how often it was restored: this one goes on in \
             generation {generation}, above any that can have been"
        );
    }
    // What is derived is derived anew: every job that is open is found by its status, and held.
    conn.execute(Query::RestoreListed.sql(), [])?;
    conn.execute(Query::RestoreBegun.sql(), [generation])?;
    let backed = finished(conn, &path)?;
    let folder = known.and_then(|known| known.folder).or(seen.map(|seen| seen.folder));
    let replaces = file::number(database).ok();
    Ok(Staged { alone, backed, database: database.to_owned(), folder, generation, part, path, replaces })
}

/// What a database says of itself, if it can be read: it may be damaged, which is why it is replaced.
fn known_of(database: &Path) -> Option<Known> {
    let (conn, _still) = source(database).ok()?;
    seen::known(&conn).or_else(|_| seen::generation_alone(&conn)).ok()
}

/// Copies the log of a database that nobody has open into it, and takes the log away.
fn whole(database: &Path) -> Result<(), Error> {
    let conn = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    wal::keep_log_on_close(&conn)?;
    wal::make_durable(&conn, database)?;
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    conn.close().map_err(|(_, error)| error)?;
    Ok(())
}

impl Staged {
    /// Puts the copy in the database's place. What was there is kept under another name, which is the answer. Nobody
    /// may have the copy open.
    ///
    /// # Errors
    /// A file cannot be renamed or synced. Whatever was done, no process opens what is half in place.
    pub fn put_in_place(self, now: Timestamp, custody: Custody) -> Result<Option<PathBuf>, StoreError> {
        self.renamed(now, custody).map_err(|error| error.at("restore"))
    }

    fn renamed(mut self, now: Timestamp, custody: Custody) -> Result<Option<PathBuf>, Error> {
        let folder = self.folder.unwrap_or(custody.folder);
        let conn = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0))?;
        let names = params![&folder.to_be_bytes()[..], &custody.opening.to_be_bytes()[..]];
        conn.execute(Query::FolderNamed.sql(), names)?;
        let known = seen::known(&conn)?;
        finished(conn, &self.path)?;
        remove_beside(&self.path)?;
        if let Some(owner) = Owner::of_database(&self.database) {
            // Whoever restores is often somebody else than who serves.
            folder::give(&self.path, owner)?;
        }
        let aside = self.aside(now)?;
        self.still_alone()?;
        // From here on only the copy may be opened here. A crash leaves the old database, or none, or the copy: the
        // first two are refused at the next start, and the restore can be made again.
        let before = self.alone.file.text()?;
        seen::announce(&self.alone.file, &known, folder, custody.opening)?;
        let placed = self.move_aside(&aside).and_then(|()| folder::rename(&self.path, &self.database));
        if let Err(error) = placed {
            return Err(match self.take_back(&before, &aside) {
                Ok(()) => Error::Refused(format!("{error}. Nothing was changed: the database is as it was")),
                Err(further) => Error::Refused(format!(
                    "{error}; and what was there could not be put back: {further}. Only this backup can be restored here \
                     now"
                )),
            });
        }
        self.part.done();
        folder::sync(&self.database)?;
        Ok(self.replaces.map(|_| aside))
    }

    /// Whether nobody has opened the folder since: not one that knows of its file, and no other.
    fn still_alone(&self) -> Result<(), Error> {
        if self.alone.file.is_in_place() && file::number(&self.database).ok() == self.replaces {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "another process opened {} during the restore: stop it, and restore again",
            self.database.display()
        )))
    }

    /// The name for the database that was there.
    fn aside(&self, now: Timestamp) -> Result<PathBuf, Error> {
        let stamp: String = now.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
        let aside = beside(&self.database, &format!(".before-restore-{stamp}"));
        match aside.exists() {
            true => Err(Error::Refused(format!("{} exists; try again", aside.display()))),
            false => Ok(aside),
        }
    }

    /// Puts the old database back in its place after an error, with what its folder has said of it.
    fn take_back(&self, before: &str, aside: &Path) -> Result<(), Error> {
        for part in [""].into_iter().chain(PARTS) {
            let (old, moved) = (beside(&self.database, part), beside(aside, part));
            if moved.exists() && !old.exists() {
                folder::rename(&moved, &old)?;
            }
        }
        folder::sync(&self.database)?;
        seen::say_again(&self.alone.file, before)
    }

    /// Gives the old database and its log other names.
    fn move_aside(&self, aside: &Path) -> Result<(), Error> {
        if self.replaces.is_none() {
            PARTS.iter().try_for_each(|part| folder::remove(&beside(&self.database, part)))?;
            return folder::sync(&self.database);
        }
        // One file, if it is sound, so that its name and its log's are not changed one after the other.
        if let Err(error) = whole(&self.database) {
            tracing::warn!(%error, "the log of the database that was there could not be copied into it");
        }
        // The log first: a database beside the log of another would be damaged by it.
        for part in PARTS.into_iter().chain([""]) {
            let old = beside(&self.database, part);
            if old.exists() {
                folder::rename(&old, &beside(aside, part))?;
            }
        }
        folder::sync(&self.database)
    }
}
