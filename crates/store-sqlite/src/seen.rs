//! What a folder has seen of its database, in a small file beside it.
//!
//! A database that is put back from a copy knows nothing of what was done since: jobs would run on from there, and
//! call again under fences that were used. So database and file carry the name of the folder and of the last opening,
//! and the writer notes after each COMMIT how far the database has come. A database that is behind its file, or one
//! that was used and has no file, is refused; [`crate::restore()`] raises the generation and is the way back.
//!
//! ```text
//! opening   file: next = n · fsync  →  database: opening = n · COMMIT  →  file: opening = n · fsync
//! writing   COMMIT  →  file: writes = how far (no fsync: what is lost with the power is only the note)
//! ```
//!
//! The names of the opening change under the database's write lock, so that processes which open at once do not
//! overtake each other. Each holds a shared lock on the file while it lives; a restore holds it alone.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, params};

use crate::error::Trouble;
use crate::{file, open};

/// The file as it is first written: fixed places, so that a number is written over in place.
const FIRST: &str = "aetheris.seen 1\nfolder  ";
const FOLDER_AT: u64 = 24;
const OPENING_AT: u64 = 65;
const NEXT_AT: u64 = 106;
const WRITES_AT: u64 = 147;
const GENERATION_AT: u64 = 176;
/// Everything in it, in bytes.
const LENGTH: usize = 187;

/// How a process opens a database that it will write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Custody {
    /// The folder's name, where it has none yet.
    pub folder: u128,
    /// Whether its user says that the folder was moved: its original is gone.
    pub moved: bool,
    /// The name of this opening, never used before.
    pub opening: u128,
}

/// What the database says of its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Known {
    copied: bool,
    folder: Option<u128>,
    generation: u32,
    opening: Option<u128>,
    writes: u64,
}

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Content {
    folder: u128,
    pub(crate) generation: u32,
    next: u128,
    /// Zero until the first opening is through.
    opening: u128,
    writes: u64,
}

/// How an opening goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Under a name that is new to the file.
    Adopt(u128),
    /// The file and the database belong together.
    GoOn,
}

/// The file of a process that writes.
#[derive(Debug)]
pub(crate) struct Seen {
    file: File,
    path: PathBuf,
    /// The last number that could not be noted is told once.
    told: bool,
    writes: u64,
}

/// The file beside a database.
pub(crate) fn path_of(database: &Path) -> PathBuf {
    file::in_folder_of(database, "seen")
}

impl Seen {
    /// Opens a database under the custody of its folder.
    pub(crate) fn take(conn: &Connection, database: &Path, custody: Custody) -> Result<Self, Trouble> {
        let path = path_of(database);
        // Another process may be in the middle of a write.
        conn.busy_timeout(open::BUSY)?;
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let file = match begin(conn, database, custody) {
            Ok(file) => file,
            Err(trouble) => {
                // The first trouble is the one to report.
                drop(conn.execute_batch("ROLLBACK"));
                return Err(trouble);
            }
        };
        conn.execute_batch("COMMIT")?;
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let done = known(conn).and_then(|known| {
            put(&file, OPENING_AT, &name(known.opening.unwrap_or(0)))?;
            put(&file, WRITES_AT, &format!("{:020}", known.writes))?;
            put(&file, GENERATION_AT, &format!("{:010}", known.generation))?;
            synced(&file, &path)?;
            Ok(known.writes)
        });
        conn.execute_batch("ROLLBACK")?;
        conn.busy_timeout(Duration::ZERO)?;
        Ok(Self { file, path, told: false, writes: done? })
    }

    /// Notes how far the database has come. Nothing waits for the disk. Another process may have noted more: one that
    /// stood still since its COMMIT does not take that back.
    pub(crate) fn note(&mut self, writes: u64) {
        if writes <= self.writes {
            return;
        }
        self.writes = writes;
        if noted(&self.file).is_some_and(|noted| noted >= writes) {
            return;
        }
        if let Err(error) = put(&self.file, WRITES_AT, &format!("{writes:020}"))
            && !std::mem::replace(&mut self.told, true)
        {
            let path = self.path.display();
            tracing::warn!(%error, %path, "cannot note what the folder has seen: an older database would go unnoticed");
        }
    }
}

/// Decides, and tells the file which opening comes next. The transaction is open and is to be committed.
fn begin(conn: &Connection, database: &Path, custody: Custody) -> Result<File, Trouble> {
    let path = &path_of(database);
    let known = known(conn)?;
    let found = present(path)?;
    let content = found.as_ref().map(|file| read(file, path)).transpose()?.flatten();
    let start = decide(&known, content.as_ref(), custody, path)?;
    let next = name(custody.opening);
    let (file, folder) = match (start, found) {
        (Start::GoOn, Some(file)) => {
            hold(&file, path, custody.moved)?;
            let content = content.unwrap_or_default();
            if known.opening != Some(content.opening) {
                // An opening that was cut short after its COMMIT.
                put(&file, OPENING_AT, &name(content.next))?;
                synced(&file, path)?;
            }
            put(&file, NEXT_AT, &next)?;
            synced(&file, path)?;
            (file, content.folder)
        }
        (Start::Adopt(folder), file) => {
            let file = file.map_or_else(|| create(path, database), Ok)?;
            hold(&file, path, custody.moved)?;
            let none = name(0);
            let first = format!(
                "{FIRST}{}\nopening {none}\nnext    {next}\nwrites  {:020}\nlife    {:010}\n",
                name(folder),
                0,
                known.generation
            );
            put(&file, 0, &first)?;
            synced(&file, path)?;
            sync_folder(path)?;
            (file, folder)
        }
        (Start::GoOn, None) => return Err(Trouble::Invalid(format!("{} has gone while it was read", path.display()))),
    };
    aetheris_fault::crash_point!("store.seen.announced");
    let names = params![&folder.to_be_bytes()[..], &custody.opening.to_be_bytes()[..]];
    conn.execute("UPDATE meta SET folder = ?1, opening = ?2 WHERE id = 1", names)?;
    Ok(file)
}

/// Whether database and file belong together.
fn decide(known: &Known, seen: Option<&Content>, custody: Custody, path: &Path) -> Result<Start, Trouble> {
    let file = path.display();
    let refused = |why: String| {
        Err(Trouble::Refused(format!(
            "{why}. What was done since would be done again. `aetheris restore FILE` puts a backup in place and holds \
             its unfinished jobs; `--moved` says that this folder was moved and its original is gone"
        )))
    };
    if known.copied {
        return Err(Trouble::Refused(
            "it is a backup and not a database in use: `aetheris restore FILE --data DIR` puts it in place".to_owned(),
        ));
    }
    match (known.folder, seen) {
        (None, None) => Ok(Start::Adopt(custody.folder)),
        // The first opening of this folder was cut short.
        (None, Some(seen)) if seen.opening == 0 => Ok(Start::Adopt(seen.folder)),
        (None, Some(_)) => refused(format!(
            "{file} has seen another database here: this one is new, or older than the folder. To begin anew, take \
             the folder's files away, all of them"
        )),
        (Some(_), None) if custody.moved => Ok(Start::Adopt(custody.folder)),
        (Some(_), None) => {
            refused(format!("this database has been used before, but {file}, which belongs beside it, is missing"))
        }
        (Some(folder), Some(seen)) if folder != seen.folder && custody.moved => Ok(Start::Adopt(custody.folder)),
        (Some(folder), Some(seen)) if folder != seen.folder => {
            refused(format!("the database is not the one that {file} has seen: it comes from another folder"))
        }
        (Some(_), Some(seen)) => {
            let opened = known.opening == Some(seen.opening) || known.opening == Some(seen.next);
            if opened && known.writes >= seen.writes {
                return Ok(Start::GoOn);
            }
            refused(format!(
                "the database is older than what {file} has seen of it ({} writes here, {} seen): it was put back \
                 from a copy, and only a restore may do that",
                known.writes, seen.writes
            ))
        }
    }
}

fn known(conn: &Connection) -> Result<Known, Trouble> {
    let sql = "SELECT copied, folder, generation, opening, writes + (SELECT coalesce(max(num), 0) FROM events) \
               FROM meta WHERE id = 1";
    let id = |bytes: Option<Vec<u8>>| bytes.and_then(|bytes| bytes.try_into().ok()).map(u128::from_be_bytes);
    let known = conn.query_row(sql, [], |row| {
        Ok(Known {
            copied: row.get(0)?,
            folder: id(row.get(1)?),
            generation: row.get(2)?,
            opening: id(row.get(3)?),
            writes: row.get::<_, i64>(4)?.unsigned_abs(),
        })
    })?;
    Ok(known)
}

/// What the file beside a database says, for a restore. `None` where there is none, or none that can be read.
pub(crate) fn look(path: &Path) -> Option<Content> {
    let file = present(path).ok().flatten()?;
    read(&file, path).ok().flatten()
}

/// Holds the file alone: no process has the database open that knows of it. One that is damaged can be replaced, and one
/// that is a database by somebody's choice of names must not be.
pub(crate) fn alone(path: &Path) -> Result<Option<File>, Trouble> {
    let Some(file) = present(path)? else { return Ok(None) };
    if file::is_database(&file) {
        let path = path.display();
        return Err(Trouble::Refused(format!(
            "{path} is a database, and has the name of a file of the one that is restored: move it away first"
        )));
    }
    hold(&file, path, true)?;
    Ok(Some(file))
}

fn present(path: &Path) -> Result<Option<File>, Trouble> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, "opened", &error)),
    }
}

/// For whoever may write the database, and nobody else.
fn create(path: &Path, database: &Path) -> Result<File, Trouble> {
    let mode = std::fs::metadata(database).map_or(0o600, |found| found.permissions().mode() & 0o666);
    let made = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(mode).open(path);
    made.map_err(|error| failed(path, "made", &error))
}

fn hold(file: &File, path: &Path, alone: bool) -> Result<(), Trouble> {
    let held = if alone { file.try_lock().and_then(|()| file.try_lock_shared()) } else { file.try_lock_shared() };
    held.map_err(|error| match error {
        TryLockError::WouldBlock => Trouble::Refused(format!(
            "another process has the database open or is restoring it ({} is locked): end that one first",
            path.display()
        )),
        TryLockError::Error(error) => failed(path, "locked", &error),
    })
}

/// `None` for a file in which nothing stands yet.
fn read(mut file: &File, path: &Path) -> Result<Option<Content>, Trouble> {
    let mut text = String::new();
    let damaged = || {
        Trouble::Refused(format!("{} is damaged: it cannot be said whether the database is its newest", path.display()))
    };
    file.read_to_string(&mut text).map_err(|error| failed(path, "read", &error))?;
    if text.is_empty() {
        return Ok(None);
    }
    if text.len() != LENGTH || !text.starts_with(FIRST) {
        return Err(damaged());
    }
    let field = |at: u64, length: usize| {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        text.get(at..at.saturating_add(length)).unwrap_or_default()
    };
    let id = |at| u128::from_str_radix(field(at, 32), 16).map_err(|_| damaged());
    Ok(Some(Content {
        folder: id(FOLDER_AT)?,
        generation: field(GENERATION_AT, 10).parse().map_err(|_| damaged())?,
        next: id(NEXT_AT)?,
        opening: id(OPENING_AT)?,
        writes: field(WRITES_AT, 20).parse().map_err(|_| damaged())?,
    }))
}

fn name(id: u128) -> String {
    format!("{id:032x}")
}

fn put(file: &File, at: u64, text: &str) -> Result<(), Trouble> {
    file.write_all_at(text.as_bytes(), at)
        .map_err(|e| Trouble::Unavailable(format!("what the folder has seen cannot be written: {e}")))
}

/// The number that is noted, if it can be read.
fn noted(file: &File) -> Option<u64> {
    let mut text = [0; 20];
    file.read_exact_at(&mut text, WRITES_AT).ok()?;
    std::str::from_utf8(&text).ok()?.parse().ok()
}

fn synced(file: &File, path: &Path) -> Result<(), Trouble> {
    file.sync_data().map_err(|error| failed(path, "synced", &error))
}

/// Makes the names in the folder of a file durable.
pub(crate) fn sync_folder(path: &Path) -> Result<(), Trouble> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| failed(folder, "synced", &error))
}

fn failed(path: &Path, what: &str, error: &std::io::Error) -> Trouble {
    Trouble::Unavailable(format!("{} cannot be {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUSTODY: Custody = Custody { folder: 9, moved: false, opening: 99 };

    fn used(opening: u128, writes: u64) -> Known {
        Known { copied: false, folder: Some(1), generation: 1, opening: Some(opening), writes }
    }

    fn seen(opening: u128, next: u128, writes: u64) -> Content {
        Content { folder: 1, generation: 1, next, opening, writes }
    }

    fn says(known: Known, seen: Option<Content>, custody: Custody) -> Result<Start, String> {
        decide(&known, seen.as_ref(), custody, Path::new("d/aetheris.seen")).map_err(|trouble| trouble.to_string())
    }

    #[test]
    fn a_folder_is_adopted_once() {
        assert_eq!(says(Known::default(), None, CUSTODY), Ok(Start::Adopt(9)));
        // Cut short before the database knew of it.
        assert_eq!(says(Known::default(), Some(seen(0, 5, 0)), CUSTODY), Ok(Start::Adopt(1)));
        let again = says(Known::default(), Some(seen(5, 5, 0)), CUSTODY).unwrap_err();
        assert!(again.contains("aetheris restore") && again.contains("--moved"), "{again}");
    }

    #[test]
    fn an_opening_may_be_cut_short_anywhere() {
        for (opening, next) in [(5, 5), (5, 6), (4, 5)] {
            assert_eq!(says(used(5, 7), Some(seen(opening, next, 7)), CUSTODY), Ok(Start::GoOn), "{opening} {next}");
        }
        assert!(says(used(5, 7), Some(seen(6, 6, 7)), CUSTODY).is_err());
        assert!(says(used(5, 7), Some(seen(6, 7, 7)), CUSTODY).is_err());
    }

    #[test]
    fn an_older_database_is_refused_moved_or_not() {
        assert_eq!(says(used(5, 8), Some(seen(5, 5, 7)), CUSTODY), Ok(Start::GoOn));
        for moved in [false, true] {
            let older = says(used(5, 6), Some(seen(5, 5, 7)), Custody { moved, ..CUSTODY }).unwrap_err();
            assert!(older.contains("older than what d/aetheris.seen has seen"), "{older}");
            assert!(older.contains("aetheris restore") && older.contains("--moved"), "{older}");
        }
    }

    #[test]
    fn a_used_database_elsewhere_was_moved_or_is_a_copy() {
        let moved = Custody { moved: true, ..CUSTODY };
        for found in [None, Some(Content { folder: 2, ..seen(5, 5, 7) })] {
            let refused = says(used(5, 7), found, CUSTODY).unwrap_err();
            assert!(refused.contains("aetheris restore") && refused.contains("--moved"), "{refused}");
            assert_eq!(says(used(5, 7), found, moved), Ok(Start::Adopt(9)));
        }
        let copy = Known { copied: true, ..used(5, 7) };
        for custody in [CUSTODY, moved] {
            let refused = says(copy, Some(seen(5, 5, 7)), custody).unwrap_err();
            assert!(refused.contains("is a backup"), "{refused}");
        }
    }

    /// A folder whose database is there and was never opened.
    fn fresh(name: &str) -> (PathBuf, Connection) {
        let folder = std::env::temp_dir().join(format!("aetheris-seen-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let database = folder.join("aetheris.db");
        let conn = Connection::open(&database).unwrap();
        crate::migrate::run(&conn, &aetheris_store::system::SystemClock).unwrap();
        (database, conn)
    }

    #[test]
    fn two_openings_that_are_cut_short_one_after_the_other_leave_a_folder_that_opens() {
        let (database, conn) = fresh("twice");
        let custody = |opening| Custody { opening, ..CUSTODY };
        // After its COMMIT, and before the file says so.
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        drop(begin(&conn, &database, custody(1)).unwrap());
        conn.execute_batch("COMMIT").unwrap();
        // The next one before its COMMIT.
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        drop(begin(&conn, &database, custody(2)).unwrap());
        conn.execute_batch("ROLLBACK").unwrap();
        for opening in [3, 4] {
            drop(Seen::take(&conn, &database, custody(opening)).unwrap());
        }
        std::fs::remove_dir_all(database.parent().unwrap()).unwrap();
    }
}
