//! A private folder for as long as it is needed.

use std::fs::DirBuilder;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names that are tried.
const NAMES_MAX: u32 = 1_000;

/// How often a folder is tried to be removed while files appear in it, and the pause between two tries.
const REMOVALS_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// A new folder that only its owner can look into; dropping it removes it with everything in it.
pub(in crate::commands) struct Folder {
    keep: bool,
    path: PathBuf,
}

impl Folder {
    /// Makes one in `parent`, with a name that begins as asked.
    pub(in crate::commands) fn make_in(parent: &Path, name: &str) -> Result<Self> {
        for number in 0..NAMES_MAX {
            let path = parent.join(format!("{name}-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { keep: false, path }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::AlreadyExists, format!("no free name in {}", parent.display())))
    }

    pub(in crate::commands) fn path(&self) -> &Path {
        &self.path
    }

    /// It stays.
    pub(in crate::commands) fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        let mut removed = std::fs::remove_dir_all(&self.path);
        // A process that was just killed may still have made a file meanwhile.
        for _ in 0..REMOVALS_MAX {
            match &removed {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => std::thread::sleep(PAUSE),
                Ok(()) | Err(_) => break,
            }
            removed = std::fs::remove_dir_all(&self.path);
        }
        if let Err(error) = removed {
            tracing::warn!(%error, folder = %self.path.display(), "the folder could not be removed");
        }
    }
}

/// A folder in which others are made for a while. It is made where it is not there, and removed again when this is dropped,
/// unless something stays in it.
pub(in crate::commands) struct ParentFolder {
    made: Option<PathBuf>,
}

impl ParentFolder {
    pub(in crate::commands) fn make(folder: &Path) -> Result<Self> {
        let made = (!folder.exists()).then(|| folder.to_owned());
        std::fs::create_dir_all(folder)?;
        Ok(Self { made })
    }
}

impl Drop for ParentFolder {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            let _not_empty = std::fs::remove_dir(made);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_parent_that_was_made_goes_unless_something_stays_in_it() {
        let top = Folder::make_in(&std::env::temp_dir(), "aetheris-parent").unwrap();
        let parent = top.path().join("parent");
        drop(ParentFolder::make(&parent).unwrap());
        assert!(!parent.exists());
        let made = ParentFolder::make(&parent).unwrap();
        std::fs::write(parent.join("a"), "a").unwrap();
        drop(made);
        std::fs::remove_file(parent.join("a")).unwrap();
        drop(ParentFolder::make(&parent).unwrap());
        assert!(parent.exists(), "it was there before");
    }

    #[test]
    fn is_private_and_goes_with_its_content_unless_it_is_kept() {
        let mut folder = Folder::make_in(&std::env::temp_dir(), "aetheris-folder").unwrap();
        let path = folder.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("a"), "a").unwrap();
        folder.keep();
        drop(folder);
        assert!(path.join("a").exists());
        drop(Folder { keep: false, path: path.clone() });
        assert!(!path.exists());
    }
}
