//! A copy that is being made, under a name of its own until it is whole; and how a backup ends before that.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aetheris_fault::files::{Done, tell};
use aetheris_store::system::Clock;
use rusqlite::{Connection, InterruptHandle};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::error::Error;
use crate::file::{ENDINGS, beside, remove_beside};
use crate::folder;

/// What stands between the name of a backup and the number of the process that makes it.
const PART: &str = "-part-";

/// A copy that is being made: gone again if it is not finished.
#[derive(Debug)]
pub(crate) struct Part {
    done: bool,
    pub(crate) path: PathBuf,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.done {
            // What led here is what is told.
            drop(folder::remove(&self.path));
            drop(remove_beside(&self.path));
        }
    }
}

impl Part {
    /// At a path that nobody else uses.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { done: false, path }
    }

    /// Of a backup. A number of a process alone would be another one's in another container.
    pub(crate) fn of(file: &Path, clock: &dyn Clock) -> Self {
        Self::at(beside(file, &format!("{PART}{}-{}", std::process::id(), clock.wall().micros())))
    }

    /// It has its final name.
    pub(crate) fn done(&mut self) {
        self.done = true;
    }

    /// Gives it its final name, unless a file has it.
    pub(crate) fn named(&mut self, file: &Path) -> Result<(), Error> {
        named(&self.path, file, |from, to| renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE))
            .map_err(|error| Error::Unavailable(format!("{} cannot be named: {error}", file.display())))?;
        tell(Done::Renamed { from: &self.path, to: file });
        self.done();
        Ok(())
    }
}

/// Gives a copy its name. Fails where somebody has made such a file since, instead of writing over it. Not every file
/// system can rename so (NFS and most of FUSE cannot): a second name fails there likewise, and the first is removed.
fn named(part: &Path, file: &Path, rename: impl FnOnce(&Path, &Path) -> Result<(), Errno>) -> Result<(), Errno> {
    match rename(part, file) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::link(part, file)?;
            rustix::fs::unlink(part)
        }
        renamed => renamed,
    }
}

/// Removes what backups to the same file have left whose processes are gone: those that were killed, or lost with the
/// power. What cannot be looked at or removed is left, and hinders nobody.
pub(crate) fn remove_abandoned(file: &Path) {
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return };
    let Ok(entries) = std::fs::read_dir(folder::of(file)) else { return };
    for entry in entries.filter_map(Result::ok) {
        let entry = entry.file_name();
        let made_by = entry.to_str().and_then(|entry| made_by(entry.strip_prefix(name)?));
        if made_by.is_some_and(is_gone) {
            drop(folder::remove(&folder::of(file).join(&entry)));
        }
    }
}

/// The process that has made a part, by what its name has behind the backup's: a number, when it began (builds before
/// did not say), and maybe what SQLite adds.
fn made_by(behind: &str) -> Option<i32> {
    let numbers = behind.strip_prefix(PART)?;
    let numbers = ENDINGS.iter().find_map(|ending| numbers.strip_suffix(ending)).unwrap_or(numbers);
    let (process, began) = numbers.split_once('-').unwrap_or((numbers, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(process) && digits(began) { process.parse().ok() } else { None }
}

/// Whether a process has ended. This one makes one backup at a time: its number was another's before.
fn is_gone(process: i32) -> bool {
    if u32::try_from(process).is_ok_and(|process| process == std::process::id()) {
        return true;
    }
    Pid::from_raw(process).is_none_or(|process| says_gone(test_kill_process(process)))
}

/// What the kernel says of a signal that is not sent: one that may not be sent, because the process is another user's, has
/// somebody who would get it.
fn says_gone(asked: Result<(), Errno>) -> bool {
    if aetheris_fault::planted!("other-users-are-gone") { asked.is_err() } else { asked == Err(Errno::SRCH) }
}

/// Asks a backup to end. It does at its next piece, or in the middle of its check; nothing is left of it.
#[derive(Default)]
pub struct Stop {
    asked: AtomicBool,
    checked: Mutex<Option<InterruptHandle>>,
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stop").field(&self.is_asked()).finish()
    }
}

impl Stop {
    /// Asks.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        if let Some(handle) = self.handle().as_ref() {
            handle.interrupt();
        }
    }

    /// Whether it was asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    fn handle(&self) -> MutexGuard<'_, Option<InterruptHandle>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends whoever goes on all the same.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_asked() { Err(Error::Unavailable("it was stopped".to_owned())) } else { Ok(()) }
    }

    /// Breaks off what this connection does from now on when it is asked.
    pub(crate) fn watch(&self, conn: &Connection) -> Result<(), Error> {
        *self.handle() = Some(conn.get_interrupt_handle());
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    #[test]
    fn a_process_of_another_user_is_there() {
        assert_eq!([Ok(()), Err(Errno::PERM), Err(Errno::SRCH)].map(says_gone), [false, false, true]);
    }

    /// NFS and most of FUSE answer so to every rename with a condition; a backup usually stands there.
    #[test]
    fn a_copy_gets_its_name_where_no_rename_can_spare_a_file() {
        let folder = Folder::new("named");
        let [part, file] = ["part", "file"].map(|name| folder.join(name));
        for error in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
            std::fs::write(&part, "copy").unwrap();
            named(&part, &file, |_, _| Err(error)).unwrap();
            assert_eq!((std::fs::read(&file).unwrap(), part.exists()), (b"copy".to_vec(), false));
            std::fs::write(&part, "another").unwrap();
            assert_eq!(named(&part, &file, |_, _| Err(error)), Err(Errno::EXIST));
            assert_eq!(std::fs::read(&file).unwrap(), b"copy");
            std::fs::remove_file(&file).unwrap();
        }
        assert_eq!(named(&part, &file, |_, _| Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert!(!file.exists());
    }

    #[test]
    fn a_part_names_its_process_and_nothing_else_is_one() {
        for (name, process) in [
            ("-part-12", Some(12)),
            ("-part-12-journal", Some(12)),
            ("-part-12-1780000000000000", Some(12)),
            ("-part-12-1780000000000000-wal", Some(12)),
            ("-part-", None),
            ("-part-12-", None),
            ("-part-+12", None),
            ("-part-12-notes", None),
            ("-part-12.txt", None),
            ("-part-99999999999", None),
            ("", None),
        ] {
            assert_eq!(made_by(name), process, "{name}");
        }
    }
}
