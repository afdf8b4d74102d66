//! Where the benchmark keeps its databases: it leaves nothing behind, whenever it is stopped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::process_control::{Folder, ParentFolder};
use crate::error::Error;

/// A folder with one folder for each part that is measured. Files are made in a part's folder only, so that nothing
/// can be made any more once the folders are gone.
pub(crate) struct Place {
    folder: PathBuf,
    /// What removes it, and then the folder in which it was made, if that was made too; `None` when it is gone.
    made: Mutex<Option<(Folder, ParentFolder)>>,
}

impl Place {
    /// A new folder in this one, which is made, and removed again, where it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn make(parent: &Path) -> io::Result<Self> {
        let made_too = ParentFolder::make(parent)?;
        let made = Folder::make_in(parent, "aetheris-bench")?;
        Ok(Self { folder: made.path().to_owned(), made: Mutex::new(Some((made, made_too))) })
    }

    /// Makes the folder of a part, if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn folder(&self, part: &str) -> Result<PathBuf, Error> {
        self.within(part, |folder| Ok(folder.to_owned()))
    }

    /// Makes the folder of a part, if it is not there, and does what would make it again if it were gone: it is not
    /// removed meanwhile.
    ///
    /// # Errors
    /// The folder cannot be made, or what is done in it fails.
    pub(crate) fn within<T>(&self, part: &str, make: impl FnOnce(&Path) -> Result<T, Error>) -> Result<T, Error> {
        let _stays = self.lock();
        let folder = self.folder.join(part);
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(anyhow::Error::from(error).into()),
            Ok(()) | Err(_) => make(&folder),
        }
    }

    /// Removes the folder. Whoever wants a part afterwards waits for as long as the answer is held.
    pub(super) fn remove(&self) -> MutexGuard<'_, Option<(Folder, ParentFolder)>> {
        let mut made = self.lock();
        drop(made.take());
        made
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Folder, ParentFolder)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(made: io::Result<()>) -> Result<(), Error> {
        made.map_err(|error| anyhow::Error::from(error).into())
    }

    #[test]
    fn a_part_is_not_made_while_the_folder_goes_and_not_after() {
        let top = Folder::make_in(&std::env::temp_dir(), "aetheris-place").unwrap();
        let made = Folder::make_in(top.path(), "made").unwrap();
        let place = Place {
            folder: made.path().to_owned(),
            made: Mutex::new(Some((made, ParentFolder::make(top.path()).unwrap()))),
        };
        place.within("a", |folder| done(std::fs::write(folder.join("file"), ""))).unwrap();
        std::thread::scope(|scope| {
            let gone = place.remove();
            let late = scope.spawn(|| place.within("b", |folder| done(std::fs::create_dir_all(folder))));
            assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 0);
            drop(gone);
            late.join().unwrap().unwrap_err();
        });
        assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_the_user_has_named_stays_as_it_was() {
        let top = Folder::make_in(&std::env::temp_dir(), "aetheris-place").unwrap();
        let named = top.path().join("mine");
        std::fs::create_dir(&named).unwrap();
        std::fs::write(named.join("aetheris.db"), "theirs").unwrap();
        for _ in 0..2 {
            let place = Place::make(&named).unwrap();
            place.within("replay", |folder| done(std::fs::write(folder.join("aetheris.db"), ""))).unwrap();
            drop(place.remove());
        }
        let left: Vec<_> = std::fs::read_dir(&named).unwrap().map(|left| left.unwrap().file_name()).collect();
        assert_eq!(left, ["aetheris.db"]);
        assert_eq!(std::fs::read_to_string(named.join("aetheris.db")).unwrap(), "theirs");
    }
}
