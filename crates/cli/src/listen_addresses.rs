//! Where the processes of one database listen, so that no tool of any of them calls one of them.
//!
//! Beside the database is a folder with one file for each process that listens: its addresses, under an
//! exclusive lock that it holds for as long as it lives. The kernel releases the lock with the process, however
//! that ends, so that a file which nobody locks says nothing. No clock is asked.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aetheris_adapters::OwnAddresses;
use aetheris_core::id::InstanceId;
use aetheris_core::limits;

use crate::error::Error;
use crate::folder::LIVE;

/// What this process says of itself, and what it reads of the others.
#[derive(Debug, Default)]
pub(crate) struct ListenAddresses {
    /// Where all processes of the database look; none for a store in memory, which is one process's own.
    folder: Option<PathBuf>,
    own: Mutex<Own>,
}

#[derive(Debug, Default)]
struct Own {
    addresses: Vec<SocketAddr>,
    /// The file and its lock.
    held: Option<(File, PathBuf)>,
}

impl ListenAddresses {
    /// Of the processes of a database.
    pub(crate) fn beside(database: &Path) -> Self {
        Self { folder: Some(crate::wiring::in_folder_of(database, LIVE)), own: Mutex::default() }
    }

    /// Says where this process is about to listen. When this returns, every process of the database knows.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn announce(&self, instance: InstanceId, address: SocketAddr) -> Result<(), Error> {
        let mut own = self.own();
        own.addresses.push(address);
        let Some(folder) = &self.folder else { return Ok(()) };
        let failed = |e| anyhow::anyhow!("{}: this process cannot say where it listens: {e}", folder.display());
        own.held = Some(publish(folder, instance, &own.addresses).map_err(failed)?);
        Ok(())
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnAddresses for ListenAddresses {
    fn listening(&self) -> io::Result<Vec<SocketAddr>> {
        let mut all = self.own().addresses.clone();
        for path in self.folder.as_deref().map(files).transpose()?.unwrap_or_default() {
            let Some(mut file) = existing(&path)? else { continue };
            match file.try_lock_shared() {
                // Nobody holds it: its process is dead.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    file.read_to_string(&mut text)?;
                    all.extend(serde_json::from_str::<Vec<SocketAddr>>(&text)?);
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(all)
    }
}

impl Drop for ListenAddresses {
    fn drop(&mut self) {
        if let Some((_, path)) = self.own().held.take() {
            // Without its lock it says nothing: whoever starts next removes it.
            let _left_behind = std::fs::remove_file(path);
        }
    }
}

/// Writes the file under a name that nobody looks at, and gives it its name when it is locked and complete.
fn publish(folder: &Path, instance: InstanceId, addresses: &[SocketAddr]) -> io::Result<(File, PathBuf)> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    remove_dead(folder)?;
    let (unseen, path) = (folder.join(format!(".{instance}")), folder.join(instance.to_string()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&unseen)?;
    file.lock()?;
    file.write_all(&serde_json::to_vec(addresses)?)?;
    std::fs::rename(&unseen, &path)?;
    Ok((file, path))
}

fn remove_dead(folder: &Path) -> io::Result<()> {
    for path in files(folder)? {
        if existing(&path)?.is_some_and(|file| file.try_lock().is_ok()) {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
    }
    Ok(())
}

fn existing(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
        if paths.len() > limits::LISTENERS_MAX {
            return Err(io::Error::other(format!("{} has too many files", folder.display())));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_never_the_database_itself() {
        let folder = |name: &str| ListenAddresses::beside(Path::new(name)).folder.clone().unwrap();
        assert_eq!(folder("d/aetheris.db"), Path::new("d/aetheris.live"));
        assert_eq!(folder("d/aetheris.live"), Path::new("d/aetheris.live-live"));
        assert_eq!(folder("d/aetheris.sqlite"), Path::new("d/aetheris.sqlite-live"));
    }

    #[test]
    fn every_process_of_a_database_knows_where_the_live_ones_listen() {
        let folder = std::env::temp_dir().join(format!("aetheris-listen-{}", std::process::id()));
        let database = folder.join("aetheris.db");
        let [a, b]: [SocketAddr; 2] = ["127.0.0.1:1111", "[::]:2222"].map(|text| text.parse().unwrap());
        let worker = ListenAddresses::beside(&database);
        assert_eq!(worker.listening().unwrap(), []);
        let (first, second) = (ListenAddresses::beside(&database), ListenAddresses::beside(&database));
        first.announce(InstanceId::from_u128(1), a).unwrap();
        second.announce(InstanceId::from_u128(2), b).unwrap();
        let known = |of: &ListenAddresses| {
            let mut all = of.listening().unwrap();
            all.sort_unstable();
            all.dedup();
            all
        };
        for process in [&worker, &first, &second] {
            assert_eq!(known(process), [a, b]);
        }
        // Ended in good order: its file is gone. Killed: its file is there, and nobody holds it.
        drop(first);
        assert_eq!(known(&worker), [b]);
        let held = second.own().held.take().unwrap();
        drop((second, held));
        assert_eq!((known(&worker), std::fs::read_dir(folder.join("aetheris.live")).unwrap().count()), (vec![], 1));
        let third = ListenAddresses::beside(&database);
        third.announce(InstanceId::from_u128(3), a).unwrap();
        assert_eq!(std::fs::read_dir(folder.join("aetheris.live")).unwrap().count(), 1);
        let alone = ListenAddresses::default();
        alone.announce(InstanceId::from_u128(4), b).unwrap();
        assert_eq!((known(&worker), known(&alone)), (vec![a], vec![b]));
        drop(third);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_no_answer() {
        let folder = std::env::temp_dir().join(format!("aetheris-listen-bad-{}", std::process::id()));
        let process = ListenAddresses::beside(&folder.join("aetheris.db"));
        let path = folder.join("aetheris.live");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("inst"), b"nonsense").unwrap();
        assert_eq!(process.listening().unwrap(), [], "nobody holds it");
        let held = File::open(path.join("inst")).unwrap();
        held.lock().unwrap();
        assert!(process.listening().is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
