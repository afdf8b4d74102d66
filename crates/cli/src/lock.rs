//! The lock on a data folder, and what it proves.
//!
//! A `dev` process holds an exclusive lock on `DIR/aetheris.lock` for as long as it lives; the kernel
//! releases it with the process, however that ends, and no child inherits it. Its file names the
//! instances whose jobs may still be held: whoever gets the lock knows that they are dead, and takes
//! their jobs back at once instead of waiting for leases (SPEC §4, proof of death).
//!
//! `serve` and `restore` share the lock among themselves, so that no `dev` works beside them, and write nothing into
//! the file.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use aetheris_core::id::InstanceId;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::folder::lock_name;
use crate::life::Life;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    /// Those that held the folder and may still hold jobs, oldest first; the last is the holder.
    instances: Vec<InstanceId>,
    /// The holder's process.
    #[serde(flatten)]
    holder: Life,
}

/// An exclusive hold on a data folder.
#[derive(Debug)]
pub(crate) struct DataLock {
    file: File,
    instance: InstanceId,
    path: PathBuf,
    predecessors: Vec<InstanceId>,
}

impl DataLock {
    /// Takes the folder for this instance; its name is durable in the file when this returns.
    ///
    /// # Errors
    /// Another process holds it, or the file cannot be written.
    pub(crate) fn take(folder: &Path, instance: InstanceId) -> Result<Self, Error> {
        let (path, mut file) = opened(folder)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held_by_another(folder, &mut file)),
            Err(TryLockError::Error(e)) => return Err(failed(folder, "locked", &e)),
        }
        aetheris_fault::crash_point!("start.locked");
        let before = read(&mut file).unwrap_or_default();
        refuse_copy(folder, &before.holder)?;
        let predecessors = before.instances;
        let mut lock = Self { file, instance, path, predecessors };
        lock.write()?;
        if let Ok(open) = File::open(folder) {
            open.sync_all().map_err(|e| failed(folder, "synced", &e))?;
        }
        Ok(lock)
    }

    /// The instances that are proved dead and whose jobs are to be taken back.
    #[must_use]
    pub(crate) fn predecessors(&self) -> &[InstanceId] {
        &self.predecessors
    }

    /// Their jobs are taken back: the file names this instance alone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn forget_predecessors(&mut self) -> Result<(), Error> {
        self.predecessors.clear();
        self.write()
    }

    fn write(&mut self) -> Result<(), Error> {
        let mut instances = self.predecessors.clone();
        instances.push(self.instance);
        let content = Content { instances, holder: Life::own() };
        let text = serde_json::to_vec(&content).map_err(anyhow::Error::from)?;
        let emptied = self.file.rewind().and_then(|()| self.file.set_len(0));
        aetheris_fault::crash_point!("start.lock.emptied");
        let written = emptied.and_then(|()| self.file.write_all(&text));
        aetheris_fault::crash_point!("start.lock.written");
        let synced = written.and_then(|()| self.file.sync_all());
        Ok(synced.map_err(|e| anyhow::anyhow!("{} cannot be written: {e}", self.path.display()))?)
    }
}

/// A hold on a data folder that is shared with others of its kind, and with no `dev`.
#[derive(Debug)]
pub(crate) struct SharedLock {
    file: File,
    path: PathBuf,
}

impl SharedLock {
    /// Takes the folder.
    ///
    /// # Errors
    /// A `dev` process holds it, it is the copy of one in use, or the file cannot be locked.
    pub(crate) fn take(folder: &Path) -> Result<Self, Error> {
        let (path, mut file) = opened(folder)?;
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held_by_dev(folder, &mut file)),
            Err(TryLockError::Error(e)) => return Err(failed(folder, "locked", &e)),
        }
        refuse_copy(folder, &read(&mut file).unwrap_or_default().holder)?;
        Ok(Self { file, path })
    }

    /// Takes back a folder that was made for what came to nothing, unless somebody else has come to it.
    pub(crate) fn leave_no_trace(self) {
        if self.file.try_lock().is_ok() {
            let _gone = std::fs::remove_file(&self.path);
            let _empty = self.path.parent().map(std::fs::remove_dir);
        }
    }
}

/// The file of a folder; both are made where they are missing.
fn opened(folder: &Path) -> Result<(PathBuf, File), Error> {
    crate::folder::make(folder).map_err(|e| failed(folder, "made", &e))?;
    let file = crate::folder::open(folder, &lock_name()).map_err(|e| failed(folder, "locked", &e))?;
    Ok((folder.join(lock_name()), file))
}

fn failed(folder: &Path, what: &str, error: &std::io::Error) -> Error {
    Error::Internal(anyhow::anyhow!("{} cannot be {what}: {error}", folder.display()))
}

/// Its holder's lock is on another file: this folder was copied while that process used the original.
fn refuse_copy(folder: &Path, holder: &Life) -> Result<(), Error> {
    if holder.is_another_alive() { Err(copied(folder, holder)) } else { Ok(()) }
}

/// What the file says; `None` where it is empty or damaged: then leases expire as usual.
fn read(file: &mut File) -> Option<Content> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn held_by_another(folder: &Path, file: &mut File) -> Error {
    let by = holder(file);
    Error::Conflict(format!(
        "{} is in use by another `aetheris dev`, a `serve` or a `restore`{by}. Stop that one, or give this one its own folder with --data; \
         `aetheris worker --config FILE` shares a database on purpose",
        folder.display()
    ))
}

fn held_by_dev(folder: &Path, file: &mut File) -> Error {
    let by = holder(file);
    Error::Conflict(format!(
        "{} is in use by `aetheris dev`{by}, which serves it alone: stop that one first",
        folder.display()
    ))
}

/// The holder that the file names, for people, if it lives.
fn holder(file: &mut File) -> String {
    let holder = read(file).map(|content| content.holder).filter(Life::lives);
    holder.map_or_else(String::new, |holder| format!(" (process {})", holder.pid()))
}

fn copied(folder: &Path, holder: &Life) -> Error {
    Error::Conflict(format!(
        "{} is a copy of a folder that process {} uses now: both would do the same jobs. End that process and take the \
         original away, or make a copy with `aetheris backup FILE` and put it in place with `aetheris restore`",
        folder.display(),
        holder.pid()
    ))
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    #[test]
    fn a_second_holder_is_refused_and_a_successor_learns_of_the_dead() {
        let folder = Folder::new("second");
        let [first, second, third] = [1, 2, 3].map(InstanceId::from_u128);
        let lock = DataLock::take(&folder, first).unwrap();
        assert_eq!(lock.predecessors(), []);
        let refused = DataLock::take(&folder, second).unwrap_err();
        assert!(refused.to_string().contains("in use by another"), "{refused}");
        drop(lock);
        // Killed before it has taken its predecessor's jobs back: both are named.
        drop(DataLock::take(&folder, second).unwrap());
        let mut lock = DataLock::take(&folder, third).unwrap();
        assert_eq!(lock.predecessors(), [first, second]);
        lock.forget_predecessors().unwrap();
        drop(lock);
        assert_eq!(DataLock::take(&folder, first).unwrap().predecessors(), [third]);
    }

    #[test]
    fn servers_share_a_folder_and_no_dev_works_beside_them() {
        let folder = Folder::new("servers");
        let [first, second] = [1, 2].map(InstanceId::from_u128);
        let dev = DataLock::take(&folder, first).unwrap();
        let refused = SharedLock::take(&folder).unwrap_err();
        let words = format!("is in use by `aetheris dev` (process {})", std::process::id());
        assert!(refused.exit() == crate::exit::Exit::Conflict && refused.to_string().contains(&words), "{refused}");
        drop(dev);
        let servers = [SharedLock::take(&folder).unwrap(), SharedLock::take(&folder).unwrap()];
        for server in servers {
            let refused = DataLock::take(&folder, second).unwrap_err();
            assert!(refused.to_string().contains("a `serve` or a `restore`"), "{refused}");
            drop(server);
        }
        // What the dead have left is still there.
        assert_eq!(DataLock::take(&folder, second).unwrap().predecessors(), [first]);
    }

    #[test]
    fn a_folder_that_was_made_in_vain_is_gone_again() {
        let folder = Folder::new("vain");
        let made = folder.join("data");
        SharedLock::take(&made).unwrap().leave_no_trace();
        assert!(!made.exists());
        let (one, other) = (SharedLock::take(&made).unwrap(), SharedLock::take(&made).unwrap());
        one.leave_no_trace();
        assert!(made.join(lock_name()).exists());
        std::fs::write(made.join("file"), "").unwrap();
        other.leave_no_trace();
        assert!(made.join("file").exists() && !made.join(lock_name()).exists());
    }

    #[test]
    fn a_new_folder_is_its_owners_alone_and_an_old_one_stays_as_it_is() {
        use std::os::unix::fs::PermissionsExt;
        let parent = Folder::new("private");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let made = parent.join("a/b");
        drop(DataLock::take(&made, InstanceId::from_u128(1)).unwrap());
        assert_eq!((mode(&made), mode(&parent.join("a"))), (0o700, 0o700));
        let shared = parent.join("shared");
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o750)).unwrap();
        drop(DataLock::take(&shared, InstanceId::from_u128(1)).unwrap());
        assert_eq!(mode(&shared), 0o750);
    }

    /// A folder that is copied while it is in use has a lock of its own, which nobody holds: that its file names a
    /// process which lives proves that it is a copy, and not that the process is dead.
    #[test]
    fn a_copy_of_a_folder_in_use_is_refused_until_its_holder_has_ended() {
        let folder = Folder::new("copied");
        let mut holder = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let first = InstanceId::from_u128(1);
        let content = Content { instances: vec![first], holder: Life::of(holder.id()) };
        std::fs::write(folder.join("aetheris.lock"), serde_json::to_vec(&content).unwrap()).unwrap();
        let refused =
            [DataLock::take(&folder, InstanceId::from_u128(2)).unwrap_err(), SharedLock::take(&folder).unwrap_err()];
        for refused in refused.map(|refused| refused.to_string()) {
            assert!(refused.contains("is a copy of a folder that process"), "{refused}");
        }
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(DataLock::take(&folder, InstanceId::from_u128(2)).unwrap().predecessors(), [first]);
    }

    /// As the builds before wrote it.
    #[test]
    fn a_file_without_the_holders_beginning_names_the_dead_as_ever() {
        let folder = Folder::new("before");
        let first = InstanceId::from_u128(1);
        let text = format!("{{\"instances\": [\"{first}\"], \"pid\": 1}}");
        std::fs::write(folder.join("aetheris.lock"), text).unwrap();
        assert_eq!(DataLock::take(&folder, InstanceId::from_u128(2)).unwrap().predecessors(), [first]);
    }

    #[test]
    fn a_damaged_file_proves_nothing() {
        let folder = Folder::new("damaged");
        std::fs::write(folder.join("aetheris.lock"), b"{\"instances\": [\"inst_").unwrap();
        assert_eq!(DataLock::take(&folder, InstanceId::from_u128(1)).unwrap().predecessors(), []);
    }
}
