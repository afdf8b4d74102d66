//! What a folder has seen of its database, in a small file beside it.
//!
//! A database that is put back from a copy knows nothing of what was done since: jobs would run on from there, and
//! call again under fences that were used. So database and file carry the name of the folder and of the last opening,
//! and the writer notes after each COMMIT how far the database has come. A database that is behind its file, or one
//! that was used and has no file, is refused; [`crate::stage`] raises the generation and is the way back.
//!
//! ```text
//! opening   file: next = n · fsync  →  database: opening = n · COMMIT  →  file: opening = n · fsync
//! writing   COMMIT  →  file: writes = how far (no fsync: what is lost with the power is only the note)
//! restoring file: everything of the restored one · fsync  →  the database's name is changed · fsync
//! ```
//!
//! An opening that is refused changes nothing: the file is taken ([`enter`]) and asked before the database is made,
//! brought up to date or written, and again under its write lock, where the answer counts ([`Seen::take`]). The names of
//! the opening change under that lock, so that processes which open at once do not overtake each other. Each holds a
//! shared lock on the file while it lives; a restore holds it alone.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, params};

use crate::error::Error;
use crate::file::{self, Still, Whose};
use crate::folder::{self, For, Held, Hold, Owner};
use crate::queries::Query;
use crate::{migrate, open};

mod content;

pub(crate) use content::{Content, Known};
use content::{GENERATION_AT, LENGTH, NEXT_AT, OPENING_AT, Start, WRITES_AT, decide, name, read};

/// The first schema that knows of folders.
const FOLDER_SINCE: i64 = 2;

/// How often an opening looks again where another process opens the database at the same time.
const LOOKS_MAX: u32 = 20;
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(10);

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

/// What a look at a database has found that other processes may be opening.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// No database, or one without a table.
    Absent,
    There(Known),
    /// It cannot be said without changing something, or another process is in the middle of it.
    Unsure,
}

/// The file of a process that writes.
#[derive(Debug)]
pub(crate) struct Seen {
    file: Held,
    /// The last number that could not be noted is told once.
    told: bool,
    writes: u64,
}

/// The file beside a database.
pub(crate) fn path_of(database: &Path) -> PathBuf {
    file::in_folder_of(database, file::SEEN)
}

/// A folder whose file is taken, and which is opened next. Dropped before that, what was made for it is gone again.
#[derive(Debug)]
pub(crate) struct Entered {
    custody: Custody,
    database: PathBuf,
    /// `None` once it is the store's.
    file: Option<Held>,
    made: bool,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.made) {
            file.leave_no_trace();
        }
    }
}

/// Takes the folder of a database, if it may be opened. Nothing is changed where it may not.
pub(crate) fn enter(database: &Path, custody: Custody) -> Result<Entered, Error> {
    let path = path_of(database);
    let hold = if custody.moved { Hold::AloneAtFirst } else { Hold::Shared };
    let found = Held::take(&path, hold, None)?;
    ask(database, custody, || look_at(database))?;
    let (file, made) = match found {
        Some(found) => found,
        None => Held::take(&path, hold, Some(For::users_of(database)))?
            .ok_or_else(|| Error::Unavailable(format!("{} cannot be made", path.display())))?,
    };
    Ok(Entered { custody, database: database.to_owned(), file: Some(file), made })
}

impl Entered {
    /// Asks once more, through the connection that will write and before it does: SQLite has mended by now what it had
    /// to, and what could not be read quietly.
    pub(crate) fn ask(&self, conn: &Connection) -> Result<(), Error> {
        ask(&self.database, self.custody, || known_by(conn))
    }
}

/// Refuses a database that does not belong to its folder's file. While other processes open it, database and file are
/// not read at one moment: what is said then counts only if the file's names are what they were. Who is not refused is
/// asked again under the write lock.
fn ask(database: &Path, custody: Custody, mut look: impl FnMut() -> Result<Look, Error>) -> Result<(), Error> {
    let path = path_of(database);
    for _ in 0..LOOKS_MAX {
        let before = content_at(&path)?;
        let known = match look()? {
            Look::Absent => None,
            Look::There(known) => Some(known),
            Look::Unsure => return Ok(()),
        };
        let Err(refused) = decide(known.as_ref(), before.as_ref(), custody, &path) else { return Ok(()) };
        let after = content_at(&path)?;
        let names = |content: Content| (content.folder, content.opening, content.next);
        if before.map(names) == after.map(names) {
            return Err(refused);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// What a database says of itself, without a change to it or beside it.
fn look_at(database: &Path) -> Result<Look, Error> {
    if file::whose(database)? == Whose::Nobody {
        return Ok(Look::Absent);
    }
    let path = file::resolved(database)?;
    // What was cut short is taken back first, which is a change.
    if file::has_journal(&path) {
        return Ok(Look::Unsure);
    }
    let still = Still::of(&path);
    let (conn, unlocked) = match file::undisturbed(&path) {
        Ok(opened) => opened,
        Err(_) => return Ok(Look::Unsure),
    };
    let look = match known_by(&conn) {
        // Whatever is wrong with the file, the connection that is to write says it.
        Err(Error::Sql(_)) => Look::Unsure,
        look => look?,
    };
    if unlocked && still.check().is_err() {
        return Ok(Look::Unsure);
    }
    Ok(look)
}

fn known_by(conn: &Connection) -> Result<Look, Error> {
    if migrate::not_newer(conn)? == 0 {
        return Ok(Look::Absent);
    }
    known(conn).map(Look::There)
}

/// Refuses the database of a newer build. Nothing is changed.
pub(crate) fn refuse_newer(database: &Path) -> Result<(), Error> {
    look_at(database).map(drop)
}

impl Seen {
    /// Opens a database under the custody of its folder.
    pub(crate) fn take(conn: &Connection, mut entered: Entered) -> Result<Self, Error> {
        // Another process may be in the middle of a write.
        conn.busy_timeout(open::BUSY)?;
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let file = match begin(conn, &mut entered) {
            Ok(file) => file,
            Err(error) => {
                // The first error is the one to report.
                drop(conn.execute_batch("ROLLBACK"));
                return Err(error);
            }
        };
        conn.execute_batch("COMMIT")?;
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let done = known(conn).and_then(|known| {
            file.put(OPENING_AT, &name(known.opening.unwrap_or(0)))?;
            file.put(WRITES_AT, &format!("{:020}", known.writes))?;
            file.put(GENERATION_AT, &format!("{:010}", known.generation))?;
            file.sync()?;
            Ok(known.writes)
        });
        conn.execute_batch("ROLLBACK")?;
        conn.busy_timeout(Duration::ZERO)?;
        Ok(Self { file, told: false, writes: done? })
    }

    /// Notes how far the database has come. Nothing waits for the disk. Another process may have noted more: one that
    /// stood still since its COMMIT does not take that back.
    pub(crate) fn note(&mut self, writes: u64) {
        if writes <= self.writes {
            return;
        }
        self.writes = writes;
        if noted(self.file.file()).is_some_and(|noted| noted >= writes) {
            return;
        }
        if let Err(error) = self.file.put(WRITES_AT, &format!("{writes:020}"))
            && !std::mem::replace(&mut self.told, true)
        {
            tracing::warn!(%error, "cannot note what the folder has seen: an older database would go unnoticed");
        }
    }
}

/// Decides, and tells the file which opening comes next. The transaction is open and is to be committed.
fn begin(conn: &Connection, entered: &mut Entered) -> Result<Held, Error> {
    let custody = entered.custody;
    let gone = || Error::Unavailable(format!("{} was taken away meanwhile", path_of(&entered.database).display()));
    let mut file = entered.file.take().ok_or_else(gone)?;
    if !file.is_in_place() {
        // Whoever had made it for an opening that came to nothing has taken it away.
        let made = Held::take(file.path(), Hold::Shared, Some(For::users_of(&entered.database)))?;
        file = made.ok_or_else(gone)?.0;
    }
    let known = known(conn)?;
    let content = content(&file)?;
    let start = match decide(Some(&known), content.as_ref(), custody, file.path()) {
        Ok(start) => start,
        Err(refused) => {
            entered.file = Some(file);
            return Err(refused);
        }
    };
    let folder = match start {
        Start::GoOn => {
            let content = content.unwrap_or_default();
            if known.opening != Some(content.opening) {
                // An opening that was cut short after its COMMIT.
                file.put(OPENING_AT, &name(content.next))?;
                file.sync()?;
            }
            file.put(NEXT_AT, &name(custody.opening))?;
            file.sync()?;
            content.folder
        }
        Start::Adopt(folder) => {
            let content =
                Content { folder, generation: known.generation, next: custody.opening, opening: 0, writes: 0 };
            write(&file, content)?;
            folder
        }
    };
    aetheris_fault::crash_point!("store.seen.announced");
    let names = params![&folder.to_be_bytes()[..], &custody.opening.to_be_bytes()[..]];
    conn.execute(Query::FolderNamed.sql(), names)?;
    Ok(file)
}

/// Has the file say that of all databases only this one belongs here, which is about to get its place. From here on
/// whatever else stands there is refused.
pub(crate) fn announce(file: &Held, known: &Known, folder: u128, opening: u128) -> Result<(), Error> {
    write(file, Content { folder, generation: known.generation, next: opening, opening, writes: known.writes })
}

/// Has the file say what it said before an announcement that came to nothing, whatever that was.
pub(crate) fn say_again(file: &Held, text: &str) -> Result<(), Error> {
    file.put(0, text)?;
    file.shorten(u64::try_from(text.len()).unwrap_or(0))?;
    file.sync()
}

/// Writes all of the file, and makes it durable.
fn write(file: &Held, content: Content) -> Result<(), Error> {
    file.put(0, &content.text())?;
    file.shorten(u64::try_from(LENGTH).unwrap_or(0))?;
    file.sync()?;
    folder::sync(file.path())
}

/// What a database says of its folder. One of the first schema says nothing.
pub(crate) fn known(conn: &Connection) -> Result<Known, Error> {
    let id = |bytes: Option<Vec<u8>>| bytes.and_then(|bytes| bytes.try_into().ok()).map(u128::from_be_bytes);
    if migrate::not_newer(conn)? < FOLDER_SINCE {
        return generation_alone(conn);
    }
    let known = conn.query_row(Query::FolderKnown.sql(), [], |row| {
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

/// How often a database was restored, where that is all it can say: it is a newer build's, or its events are damaged.
pub(crate) fn generation_alone(conn: &Connection) -> Result<Known, Error> {
    let generation = conn.query_row(Query::MetaGeneration.sql(), [], |row| row.get(0))?;
    Ok(Known { generation, ..Known::default() })
}

/// The file of a folder that is restored, held alone: no process has the database open, and none opens it. It is made
/// where there is none, and gone again where the restore comes to nothing.
#[derive(Debug)]
pub(crate) struct Alone {
    pub(crate) file: Held,
    pub(crate) made: bool,
}

impl Drop for Alone {
    fn drop(&mut self) {
        if self.made {
            self.file.leave_no_trace();
        }
    }
}

/// Takes the file alone. One that is damaged can be replaced, and one that is a database by somebody's choice of names
/// must not be.
pub(crate) fn alone(database: &Path) -> Result<Alone, Error> {
    let path = path_of(database);
    let refuse_database = |file: &File| match file::is_database(file) {
        false => Ok(()),
        true => Err(Error::Refused(format!(
            "{} is a database, and has the name of a file of the one that is restored: move it away first",
            path.display()
        ))),
    };
    let users = Owner::of_database(database).map_or(For::Process, For::Owner);
    let taken = Held::take(&path, Hold::Alone, Some(users))?;
    let (file, made) = taken.ok_or_else(|| Error::Unavailable(format!("{} cannot be made", path.display())))?;
    refuse_database(file.file())?;
    Ok(Alone { file, made })
}

impl Alone {
    /// What the file says. `None` where nothing stands in it that can be read.
    pub(crate) fn look(&self) -> Option<Content> {
        content(&self.file).ok().flatten()
    }
}

fn content_at(path: &Path) -> Result<Option<Content>, Error> {
    match std::fs::read(path) {
        Ok(text) => read(&String::from_utf8_lossy(&text), path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::Unavailable(format!("{} cannot be read: {error}", path.display()))),
    }
}

fn content(file: &Held) -> Result<Option<Content>, Error> {
    read(&file.text()?, file.path())
}

/// The number that is noted, if it can be read.
fn noted(file: &File) -> Option<u64> {
    let mut text = [0; 20];
    file.read_exact_at(&mut text, WRITES_AT).ok()?;
    std::str::from_utf8(&text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    const CUSTODY: Custody = Custody { folder: 9, moved: false, opening: 99 };

    /// A folder whose database is there and was never opened.
    fn fresh() -> (Folder, PathBuf, Connection) {
        let folder = Folder::new("seen");
        let database = folder.join("aetheris.db");
        let conn = Connection::open(&database).unwrap();
        migrate::mark(&conn).unwrap();
        migrate::run(&conn, &aetheris_store::system::SystemClock).unwrap();
        (folder, database, conn)
    }

    /// One that stood still since its COMMIT, while another went on.
    #[test]
    fn what_another_process_has_noted_is_not_taken_back() {
        let (_folder, database, conn) = fresh();
        conn.execute("UPDATE meta SET writes = 4, generation = 3", []).unwrap();
        let open = |opening| Seen::take(&conn, enter(&database, Custody { opening, ..CUSTODY }).unwrap()).unwrap();
        let [mut slow, mut quick] = [1, 2].map(open);
        let noted = || content_at(&path_of(&database)).unwrap().unwrap();
        assert_eq!((noted().writes, noted().generation, noted().opening), (4, 3, 2));
        for (writes, late, expected) in
            [(10, false, 10), (12, false, 12), (11, true, 12), (9, true, 12), (13, true, 13)]
        {
            if late { &mut slow } else { &mut quick }.note(writes);
            assert_eq!(noted().writes, expected, "{writes}");
        }
        std::fs::remove_dir_all(database.parent().unwrap()).unwrap();
    }

    #[test]
    fn two_openings_that_are_cut_short_one_after_the_other_leave_a_folder_that_opens() {
        let (_folder, database, conn) = fresh();
        let enter = |opening| enter(&database, Custody { opening, ..CUSTODY }).unwrap();
        // After its COMMIT, and before the file says so.
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        drop(begin(&conn, &mut enter(1)).unwrap());
        conn.execute_batch("COMMIT").unwrap();
        // The next one before its COMMIT.
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        drop(begin(&conn, &mut enter(2)).unwrap());
        conn.execute_batch("ROLLBACK").unwrap();
        for opening in [3, 4] {
            drop(Seen::take(&conn, enter(opening)).unwrap());
        }
        std::fs::remove_dir_all(database.parent().unwrap()).unwrap();
    }
}
