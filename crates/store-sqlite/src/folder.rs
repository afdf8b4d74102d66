//! The files of a database's folder that SQLite does not know, and the names of all. Whatever is done to them goes
//! through here, in an order that a power cut may break off anywhere: a test is told of each step
//! ([`aetheris_fault::files`]).

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use aetheris_fault::files::{Done, tell};
use rustix::fs::OFlags;

use crate::error::Error;

/// How often a file is opened that another process is just taking away.
const OPENINGS_MAX: u32 = 100;

/// Whose a file is, and who else may read and write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    gid: u32,
    mode: u32,
    uid: u32,
}

impl Owner {
    /// Of a file that is there.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self { gid: found.gid(), mode: found.mode() & 0o666, uid: found.uid() })
    }

    /// Of a database or, where there is none, of what stands in its folder: that is for its owner, and for its group where
    /// the folder is.
    pub(crate) fn of_database(database: &Path) -> Option<Self> {
        Self::of(database).or_else(|| Self::of(of(database)).map(|folder| Self { mode: folder.mode & 0o660, ..folder }))
    }

    /// Gives a file to the same. Whoever may not do that keeps it, and a group that is not theirs gets nothing of it.
    /// Whether they have it.
    pub(crate) fn give(self, file: &File) -> bool {
        // A file's owner may give it to a group of its own; only root may do more.
        if fchown(file, Some(self.uid), Some(self.gid)).is_err() {
            drop(fchown(file, None, Some(self.gid)));
        }
        let Ok(found) = file.metadata() else { return false };
        let mode = if found.gid() == self.gid { self.mode } else { self.mode & !0o070 };
        // Some file systems know of no owners and modes.
        let set = file.set_permissions(Permissions::from_mode(mode)).is_ok();
        set && found.gid() == self.gid && (found.uid() == self.uid || mode & 0o060 == 0o060)
    }
}

/// For whom a file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// For those who have another one.
    Owner(Owner),
    /// For whoever makes it, and whom else the process's umask lets.
    Process,
}

impl For {
    /// For those who have the database, if it is there.
    pub(crate) fn users_of(database: &Path) -> Self {
        Owner::of(database).map_or(Self::Process, Self::Owner)
    }

    /// Right after a file was made.
    fn give(self, file: &File) {
        match self {
            // Who cannot give it to them is the one who can be told, when they do not come in.
            Self::Owner(owner) => drop(owner.give(file)),
            Self::Process => {}
        }
    }
}

/// Who else may have a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Nobody, for as long as it is held.
    Alone,
    /// Nobody at this moment, and others from then on.
    AloneAtFirst,
    /// Others who share it.
    Shared,
}

/// An open file of the folder, locked.
#[derive(Debug)]
pub(crate) struct Held {
    file: File,
    path: PathBuf,
}

impl Held {
    /// Takes a file, if it is there or is to be made. Whether it was made.
    ///
    /// A lock is on a file and not on its name: one that has lost its name meanwhile is let go, and the next one taken.
    pub(crate) fn take(path: &Path, hold: Hold, make: Option<For>) -> Result<Option<(Self, bool)>, Error> {
        for _ in 0..OPENINGS_MAX {
            let (file, made) = match open(path)? {
                Some(file) => (file, false),
                None => match make.map(|users| create(path, 0o644, users)).transpose()? {
                    Some(Some(file)) => (file, true),
                    // Another process has made it.
                    Some(None) => continue,
                    None => return Ok(None),
                },
            };
            let held = Self { file, path: path.to_owned() };
            held.lock(hold)?;
            if held.is_in_place() {
                return Ok(Some((held, made)));
            }
        }
        Err(Error::Unavailable(format!("{} keeps being removed", path.display())))
    }

    fn lock(&self, hold: Hold) -> Result<(), Error> {
        let locked = match hold {
            Hold::Alone => self.file.try_lock(),
            Hold::AloneAtFirst => self.file.try_lock().and_then(|()| self.file.try_lock_shared()),
            Hold::Shared => self.file.try_lock_shared(),
        };
        locked.map_err(|error| match error {
            TryLockError::WouldBlock => Error::Refused(format!(
                "another process has the database open or is restoring it ({} is locked): end that one first",
                self.path.display()
            )),
            TryLockError::Error(error) => failed(&self.path, "cannot be locked", &error),
        })
    }

    /// Whether the name still is this file's.
    pub(crate) fn is_in_place(&self) -> bool {
        let number = |found: std::fs::Metadata| (found.dev(), found.ino());
        self.file.metadata().map(number).ok() == std::fs::metadata(&self.path).map(number).ok()
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Everything in it.
    pub(crate) fn text(&self) -> Result<String, Error> {
        let mut text = Vec::new();
        let mut file = &self.file;
        let read = file.rewind().and_then(|()| file.read_to_end(&mut text));
        read.map_err(|error| failed(&self.path, "cannot be read", &error))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Writes in place, from here on.
    pub(crate) fn put(&self, at: u64, text: &str) -> Result<(), Error> {
        self.file.write_all_at(text.as_bytes(), at).map_err(|error| failed(&self.path, "cannot be written", &error))?;
        tell(Done::Wrote(&self.path, at, text.as_bytes()));
        Ok(())
    }

    /// Cuts off what stands behind this length, if anything does.
    pub(crate) fn shorten(&self, length: u64) -> Result<(), Error> {
        if self.file.metadata().is_ok_and(|found| found.len() <= length) {
            return Ok(());
        }
        self.file.set_len(length).map_err(|error| failed(&self.path, "cannot be cut", &error))?;
        tell(Done::Resized(&self.path, length));
        Ok(())
    }

    /// Makes durable what was written.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|error| failed(&self.path, "cannot be synced", &error))?;
        tell(Done::Synced(&self.path));
        Ok(())
    }

    /// Removes the file if it is empty and nobody else has it: one that was made for what came to nothing.
    pub(crate) fn leave_no_trace(&self) {
        let empty = self.file.metadata().is_ok_and(|found| found.len() == 0);
        if empty && self.file.try_lock().is_ok() && self.is_in_place() {
            // What it was made for has failed, and that is what is told.
            drop(remove(&self.path));
        }
    }
}

fn open(path: &Path) -> Result<Option<File>, Error> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, "cannot be opened", &error)),
    }
}

/// `None` where another process was first.
fn create(path: &Path, mode: u32, users: For) -> Result<Option<File>, Error> {
    match OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path) {
        Ok(file) => {
            users.give(&file);
            tell(Done::Made(path));
            Ok(Some(file))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(failed(path, "cannot be made", &error)),
    }
}

/// Opens what the processes of a database share, and makes it where there is none: for all who have the database.
pub(crate) fn shared(path: &Path, database: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened,
    }
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            For::users_of(database).give(&file);
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => options.open(path),
        failed => failed,
    }
}

/// Gives a file that this process has made to others, durably. Whoever may write in the folder could have put a link
/// there meanwhile, to what is not theirs.
pub(crate) fn give(path: &Path, owner: Owner) -> Result<(), Error> {
    let no_link = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let opened = OpenOptions::new().read(true).custom_flags(no_link).open(path);
    let given = opened.and_then(|file| {
        let given = file.metadata()?.nlink() == 1 && owner.give(&file);
        file.sync_all().map(|()| given)
    });
    if !given.map_err(|error| failed(path, "cannot be given away", &error))? {
        tracing::warn!(
            "{} cannot be given to whom the database before it belonged, or its folder (user {}, group {}): give it to \
             them with chown before they open it",
            path.display(),
            owner.uid,
            owner.gid
        );
    }
    Ok(())
}

/// Makes an empty file for its owner alone, where there is none.
pub(crate) fn make_own(path: &Path) -> Result<(), Error> {
    match create(path, 0o600, For::Process)? {
        Some(_) => Ok(()),
        None => Err(Error::Unavailable(format!("{} cannot be made: it is there", path.display()))),
    }
}

/// Makes durable what was written to a file by whoever. Its length, in bytes.
pub(crate) fn sync_file(path: &Path) -> Result<u64, Error> {
    let synced = File::open(path).and_then(|file| {
        file.sync_all()?;
        file.metadata()
    });
    let found = synced.map_err(|error| failed(path, "cannot be synced", &error))?;
    tell(Done::Synced(path));
    Ok(found.len())
}

/// Gives a file another name, in the place of whatever has it.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::rename(from, to)
        .map_err(|e| Error::Unavailable(format!("{} cannot be renamed to {}: {e}", from.display(), to.display())))?;
    tell(Done::Renamed { from, to });
    Ok(())
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Ok(()) => {
            tell(Done::Removed(path));
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(path, "cannot be removed", &error)),
    }
}

/// The folder that a file is in.
pub(crate) fn of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in the folder of a file durable.
pub(crate) fn sync(path: &Path) -> Result<(), Error> {
    let folder = of(path);
    File::open(folder).and_then(|open| open.sync_all()).map_err(|error| failed(folder, "cannot be synced", &error))?;
    tell(Done::SyncedFolder(folder));
    Ok(())
}

pub(crate) fn failed(path: &Path, what: &str, error: &std::io::Error) -> Error {
    Error::Unavailable(format!("{} {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    /// A lock is on a file: one that has lost its name to another keeps nobody from that.
    #[test]
    fn a_held_file_knows_whether_its_name_is_still_its_own() {
        let folder = Folder::new("held");
        let [path, other] = ["lock", "other"].map(|name| folder.join(name));
        let (held, made) = Held::take(&path, Hold::Alone, Some(For::Process)).unwrap().unwrap();
        assert!(made && held.is_in_place());
        std::fs::write(&other, "").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(!held.is_in_place());
        assert!(Held::take(&path, Hold::Alone, None).unwrap().is_some(), "another may have the name's file");
        std::fs::remove_file(&path).unwrap();
        assert!(!held.is_in_place());
    }

    /// Whoever may write in a folder could have a restore give them what is not theirs.
    #[test]
    fn a_file_with_another_name_and_a_link_are_not_given_away() {
        let folder = Folder::new("given");
        let [file, second, link] = ["file", "second", "link"].map(|name| folder.join(name));
        make_own(&file).unwrap();
        let mode = || std::fs::metadata(&file).unwrap().mode() & 0o777;
        let owner = Owner { mode: 0o640, ..Owner::of(&file).unwrap() };
        std::fs::hard_link(&file, &second).unwrap();
        give(&file, owner).unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::remove_file(&second).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(give(&link, owner).is_err());
        assert_eq!(mode(), 0o600);
        give(&file, owner).unwrap();
        assert_eq!(mode(), 0o640);
        assert!(make_own(&file).is_err());
    }
}
