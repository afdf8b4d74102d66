//! Folders that go away with their owner.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// A fresh folder, removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("aetheris-{name}-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left behind by a killed process that had the same number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("making {}", path.display())),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
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
        let first = Scratch::new("left").unwrap();
        let (name, number) = first.path().to_str().unwrap().rsplit_once('-').unwrap();
        let number: u32 = number.parse().unwrap();
        let left = Scratch(format!("{name}-{}", number + 1).into());
        std::fs::create_dir(left.path()).unwrap();
        std::fs::write(left.path().join("witness.log"), "a line").unwrap();
        let second = Scratch::new("left").unwrap();
        assert_ne!(second.path(), left.path());
        assert_eq!(std::fs::read_dir(second.path()).unwrap().count(), 0);
    }
}
