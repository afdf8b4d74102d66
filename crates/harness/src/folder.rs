//! Folders that go with their owner.

use std::io::ErrorKind;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new and empty folder; dropping it removes it with everything in it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// One where the system keeps what is temporary, with a name that says whose it is.
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::within(&std::env::temp_dir(), name)
    }

    /// One in memory, where the machine has such a place: for suites of logic, in which nothing is lost when a machine stops.
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn in_memory(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::within(memory, name) } else { Self::new(name) }
    }

    /// # Panics
    /// A test that has no folder cannot go on.
    #[expect(clippy::panic, reason = "a test has nobody to tell")]
    fn within(parent: &Path, name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("aetheris-{name}-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // A process that was killed has left its folders, and another one may get its number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{} cannot be made: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_behind_is_not_taken_for_new() {
        let first = Folder::new("left");
        let (name, number) = first.path().to_str().unwrap().rsplit_once('-').unwrap();
        let number: u32 = number.parse().unwrap();
        // Other tests of this process make folders too.
        let left: Vec<Folder> = (1..9).map(|next| Folder(format!("{name}-{}", number + next).into())).collect();
        for folder in &left {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("witness.log"), "a line").unwrap();
        }
        let second = Folder::new("left");
        assert!(left.iter().all(|left| left.path() != second.path()));
        assert_eq!(std::fs::read_dir(&second).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_goes_with_its_owner_and_with_what_is_in_it() {
        for folder in [Folder::new("gone"), Folder::in_memory("gone")] {
            let path = folder.path().to_owned();
            std::fs::write(folder.join("a"), "a").unwrap();
            drop(folder);
            assert!(!path.exists());
        }
    }
}
