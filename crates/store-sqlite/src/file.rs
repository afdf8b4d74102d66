//! The file itself: where it may be, whose it is, and whether it is still the one that was opened.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use aetheris_store::FileHealth;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::Error;
use crate::migrate::APPLICATION;
use crate::{folder, open};

/// The first bytes of every database file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The length of its header.
const HEADER: usize = 100;
/// Where the header has the application's number, most significant byte first.
const APPLICATION_AT: usize = 68;

/// SQLite's log.
pub(crate) const WAL: &str = "-wal";
/// The log's index.
pub(crate) const SHM: &str = "-shm";
/// The journal of a database without a log.
pub(crate) const JOURNAL: &str = "-journal";
/// Which clocks its processes have ([`crate::clock_guard`]).
pub(crate) const CLOCK: &str = "-clock";
/// Who waits for the next transaction ([`crate::fairness`]).
pub(crate) const TURN: &str = "-turn";

/// What a database is lost or damaged without: it moves with the database.
pub(crate) const PARTS: [&str; 3] = [JOURNAL, WAL, SHM];
/// What the names of the files that are the database's own have behind its name. What belongs to the folder is not among
/// them ([`in_folder_of`]).
pub const ENDINGS: [&str; 5] = [JOURNAL, WAL, SHM, CLOCK, TURN];

/// The folder in which processes say where they listen: see [`in_folder_of`], as for all of these.
pub const LIVE: &str = "live";
/// The file whose lock a process has that wants the folder for itself.
pub const LOCK: &str = "lock";
/// The file that names a process.
pub const PID: &str = "pid";
/// How far the database was seen to be written ([`crate::seen`]).
pub(crate) const SEEN: &str = "seen";
/// What a folder has of its own beside its database.
const FOLDERS_OWN: [&str; 4] = [LIVE, LOCK, PID, SEEN];

/// Whether a file begins as a database does.
pub(crate) fn is_database(file: &File) -> bool {
    let mut first = [0; MAGIC.len()];
    file.read_exact_at(&mut first, 0).is_ok() && first == *MAGIC
}

/// The path of what belongs to a database's folder: `aetheris.seen` for `aetheris.db`, `jobs.sqlite-seen` for
/// `jobs.sqlite`. Those of two databases are never the same.
#[must_use]
pub fn in_folder_of(database: &Path, kind: &str) -> PathBuf {
    if database.extension().is_some_and(|extension| extension == "db") {
        return database.with_extension(kind);
    }
    beside(database, &format!("-{kind}"))
}

/// Whether a path is of a name that a database, its store or the processes of its folder use themselves, or may use one
/// day: they would write over what stands there, or remove it.
pub(crate) fn is_name_of(database: &Path, path: &Path) -> Result<bool, Error> {
    let (database, path) = (resolved(database)?, resolved(path)?);
    let own = |path: &Path| -> Option<bool> {
        let (name, of) = (path.file_name()?.to_str()?, database.file_name()?.to_str()?);
        let kind = name.strip_prefix("aetheris.").is_some_and(|kind| FOLDERS_OWN.contains(&kind));
        Some(kind || name == of || name.strip_prefix(of).is_some_and(|ending| ending.starts_with('-')))
    };
    let stated = FOLDERS_OWN.iter().any(|kind| in_folder_of(&database, kind) == path);
    Ok(stated || (path.parent() == database.parent() && own(&path).unwrap_or(false)))
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Nothing, or a file without a byte or a table.
    Nobody,
    /// A database of this program.
    Ours,
}

/// Looks whose file it is, without changing a byte of it.
pub(crate) fn whose(path: &Path) -> Result<Whose, Error> {
    let mut header = Vec::with_capacity(HEADER);
    let bytes = match File::open(path) {
        Ok(file) => file.take(u64::try_from(HEADER).unwrap_or(0)).read_to_end(&mut header),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Whose::Nobody),
        Err(error) => Err(error),
    };
    bytes.map_err(|e| Error::Unavailable(format!("{} cannot be read: {e}", path.display())))?;
    if header.is_empty() {
        return Ok(Whose::Nobody);
    }
    // Cut off while it was made: the journal says that it was empty, and SQLite empties it again.
    if header.iter().all(|byte| *byte == 0) && has_journal(path) {
        return Ok(Whose::Nobody);
    }
    let number = header.get(APPLICATION_AT..APPLICATION_AT + 4);
    let Some(number) = number.filter(|_| header.len() == HEADER && header.starts_with(MAGIC)) else {
        return Err(Error::Corrupt("the file is no SQLite database, or its beginning is damaged".to_owned()));
    };
    let number = number.iter().fold(0, |number, byte| number << 8 | i64::from(*byte));
    if number == APPLICATION {
        return Ok(Whose::Ours);
    }
    // A database that was never copied out of its log has the number only there.
    if number == 0 { look_inside(path) } else { Err(foreign()) }
}

fn foreign() -> Error {
    Error::Refused("the file is a database of another program".to_owned())
}

/// One statement, so one moment: whose number it has, and how many tables.
const OF_WHOM: &str = "SELECT (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_master)";

fn look_inside(path: &Path) -> Result<Whose, Error> {
    let conn = quiet(path)?;
    // What makes a new database may be committed between two looks: tables without a number would be another program's.
    let (number, tables) = conn.query_row(OF_WHOM, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
    match (number == APPLICATION, tables) {
        (true, _) => Ok(Whose::Ours),
        (false, 0) => Ok(Whose::Nobody),
        (false, _) => Err(foreign()),
    }
}

/// A connection that cannot write and makes no file.
pub(crate) fn quiet(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let path = &resolved(path)?;
    let (log, index) = (beside(path, WAL), beside(path, SHM));
    // Looked at in this order a database that is being closed is not taken for one, its log goes before its index; and
    // looked at twice, one that is being opened is not either: its index is there before anything is in its log.
    let without_index = || !index.exists();
    if without_index() && fs::metadata(&log).is_ok_and(|log| log.len() > 0) && without_index() {
        return Err(Error::Unavailable(format!(
            "{} is there without {}: copy both, or run `aetheris backup` on this folder, which makes the index again",
            log.display(),
            index.display()
        )));
    }
    let conn = if index.exists() && log.exists() {
        Connection::open_with_flags(path, flags)?
    } else {
        let uri = format!("file:{}?immutable=1", escaped(path));
        Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?
    };
    conn.busy_timeout(open::BUSY)?;
    Ok(conn)
}

/// Whether a transaction that was cut short is to be taken back before the database is read.
pub(crate) fn has_journal(path: &Path) -> bool {
    fs::metadata(beside(path, JOURNAL)).is_ok_and(|journal| journal.len() > 0)
}

/// A connection that reads the database with its log, and changes and makes nothing. Whether it reads without locks:
/// then it has read one state only if the file was still (`Still`).
pub(crate) fn undisturbed(path: &Path) -> Result<(Connection, bool), Error> {
    let (log, index) = (beside(path, WAL), beside(path, SHM));
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) && !index.exists() {
        return without_index(path).map(|conn| (conn, false));
    }
    let unlocked = !(index.exists() && log.exists());
    quiet(path).map(|conn| (conn, unlocked))
}

/// The log of a process that has ended tells what it has without its index too: whoever has the database alone keeps
/// the index in memory.
fn without_index(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    // The log stays as it is when this is closed.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA query_only = ON")?;
    Ok(conn)
}

/// A path as it stands in a URI.
fn escaped(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let bytes = path.as_os_str().as_bytes().iter();
    bytes.map(|byte| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The file of that ending beside a database.
pub(crate) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Removes every file beside a database.
pub(crate) fn remove_beside(database: &Path) -> Result<(), Error> {
    ENDINGS.iter().try_for_each(|ending| folder::remove(&beside(database, ending)))
}

/// Where a database really stands: SQLite follows links, and its log stands beside what they lead to.
pub(crate) fn resolved(path: &Path) -> Result<PathBuf, Error> {
    let unreadable =
        |what: &Path, e: &io::Error| Error::Unavailable(format!("cannot look at the folder {}: {e}", what.display()));
    if path.is_symlink() || path.exists() {
        return fs::canonicalize(path)
            .map_err(|e| Error::Unavailable(format!("{} leads to nothing that can be opened: {e}", path.display())));
    }
    let folder = folder::of(path);
    let folder = fs::canonicalize(folder).map_err(|e| unreadable(folder, &e))?;
    Ok(folder.join(path.file_name().unwrap_or_default()))
}

/// The database and its log as they were opened. SQLite goes on writing into a file that was removed or moved
/// away, and all that it then calls durable is lost with the process.
#[derive(Debug, Clone)]
pub(crate) struct Identity(Vec<(PathBuf, (u64, u64))>);

impl Identity {
    /// Of a database that is open: its log is there.
    pub(crate) fn of(database: &Path) -> Result<Self, Error> {
        Self::all([database.to_owned(), beside(&resolved(database)?, WAL)])
    }

    /// Of a database that is only read: there may be no log.
    pub(crate) fn alone(database: &Path) -> Result<Self, Error> {
        Self::all([database.to_owned()])
    }

    fn all<const PARTS: usize>(paths: [PathBuf; PARTS]) -> Result<Self, Error> {
        let parts = paths.into_iter().map(|path| {
            let number = number(&path);
            let number = number.map_err(|e| Error::Unavailable(format!("cannot look at {}: {e}", path.display())))?;
            Ok((path, number))
        });
        parts.collect::<Result<_, Error>>().map(Self)
    }

    /// What stands there now, of the database or else of its log.
    pub(crate) fn look(&self) -> FileHealth {
        let parts = self.0.iter().map(|(path, opened)| match number(path) {
            Ok(found) if found == *opened => FileHealth::AsOpened,
            Ok(_) => FileHealth::Replaced,
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileHealth::Gone,
            Err(error) => FileHealth::Unknown(error.to_string()),
        });
        let mut parts = parts;
        parts.find(|found| *found != FileHealth::AsOpened).unwrap_or(FileHealth::AsOpened)
    }

    /// Nothing that was written is durable where another file stands, or none.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let what = match self.look() {
            FileHealth::AsOpened | FileHealth::Unknown(_) => return Ok(()),
            FileHealth::Gone | FileHealth::Replaced if aetheris_fault::planted!("lost-file-unnoticed") => return Ok(()),
            FileHealth::Gone => "was removed or moved away",
            FileHealth::Replaced => "was replaced by another file",
        };
        let path = self.0.first().map(|(path, _)| path.display().to_string()).unwrap_or_default();
        Err(Error::Moved(format!("{path} (or its log) {what} while it was in use: nothing more can be saved")))
    }
}

/// A file that nobody had open when it was looked at.
#[derive(Debug)]
pub(crate) struct Still {
    path: PathBuf,
    then: Option<(i64, i64, u64)>,
}

impl Still {
    /// As it is now.
    pub(crate) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), then: changed(path) }
    }

    /// Whether it is as it was, and nobody has it open.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !beside(&self.path, WAL).exists() && changed(&self.path) == self.then {
            return Ok(());
        }
        let path = self.path.display();
        Err(Error::Unavailable(format!("{path} was opened by another process while it was read: run it again")))
    }
}

/// When a file was last written, and its length.
fn changed(path: &Path) -> Option<(i64, i64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.mtime(), found.mtime_nsec(), found.len()))
}

/// Device and file number, and nothing else: this is asked after every COMMIT, and whoever asks Linux (6.13 and later)
/// for the times of a file makes its next write take an exact time, which the next sync has to put on the disk too.
pub(crate) fn number(path: &Path) -> io::Result<(u64, u64)> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO);
        if let Ok(found) = found
            && found.stx_mask & StatxFlags::INO.bits() != 0
        {
            return Ok((makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino));
        }
    }
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_databases_of_a_folder_never_share_a_file() {
        let of = |database: &str, kind| in_folder_of(Path::new(database), kind).display().to_string();
        assert_eq!(of("d/aetheris.db", "seen"), "d/aetheris.seen");
        assert_eq!(of("d/jobs.sqlite", "seen"), "d/jobs.sqlite-seen");
        assert_eq!(of("d/jobs.DB", "live"), "d/jobs.DB-live");
        let plain =
            ["a", "a.db", "a.DB", "a.Db", "A.db", "A.DB", "a.db.db", "a.db.DB", "a.sqlite", "a.SQLITE", "a.sqlite.db"];
        // Somebody may call a database as the file of another is called.
        let odd = ["a.seen", "a-seen", "a.db-seen", "a.DB-seen", "a.live"];
        let databases = || plain.into_iter().chain(odd);
        let files = databases().flat_map(|database| ["seen", "live"].map(|kind| of(database, kind)));
        let files: std::collections::BTreeSet<String> = files.collect();
        assert_eq!(files.len(), 2 * databases().count());
        assert!(plain.into_iter().all(|database| !files.contains(database)), "{files:?}");
    }

    #[test]
    fn a_path_in_a_uri_means_itself() {
        assert_eq!(escaped(Path::new("/a b/c?d#e%/é.db")), "/a%20b/c%3Fd%23e%25/%C3%A9.db");
    }
}
