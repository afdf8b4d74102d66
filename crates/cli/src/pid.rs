//! The number of the process that has a data folder, where people and scripts can read it.

use std::path::{Path, PathBuf};

use crate::folder::pid_name;

/// The file, for as long as the process runs; after a kill it stays until the next start. Only whoever
/// holds the folder's lock may have one.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes it. Nothing depends on it: where it cannot be written, that is only said.
    pub(crate) fn write(folder: &Path) -> Self {
        let path = folder.join(pid_name());
        if let Err(error) = std::fs::write(&path, format!("{}\n", std::process::id())) {
            tracing::warn!(%error, path = %path.display(), "the process's number could not be written");
        }
        Self { path }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // It may have been taken away already.
        let _gone = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    #[test]
    fn the_number_is_there_for_as_long_as_its_process_has_the_folder() {
        let folder = Folder::new("pid");
        let path = folder.join(pid_name());
        // What a kill has left is written over.
        std::fs::write(&path, "a number of long ago\n").unwrap();
        let file = PidFile::write(&folder);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());
        std::fs::remove_dir(&folder).unwrap();
    }
}
