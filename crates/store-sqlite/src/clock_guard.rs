//! Which clocks the processes of one file have. They take the store's time from one boot clock, so a second process
//! with another one, in a time namespace of its own or moved from another machine, is refused while the first lives:
//! each would take the other's marks for those of an earlier boot, and the store's clock would run away.
//!
//! Whoever has the file open holds a shared lock on a file beside it, which names the clocks of those who do. Only
//! who is alone changes what stands there.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use aetheris_core::id::BootId;

use crate::error::Error;
use crate::fairness::ticks;
use crate::file::{CLOCK, beside};
use crate::folder;

/// How long opening waits for another process that is just looking.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(2);

/// This process among those that have the file open, for as long as it lives.
#[derive(Debug)]
pub(crate) struct ClockGuard {
    _held: File,
}

impl ClockGuard {
    /// Joins those who have the file open, or is the first of them.
    pub(crate) fn take(database: &Path, clocks: BootId) -> Result<Self, Error> {
        let path = beside(database, CLOCK);
        let failed = |e: io::Error| Error::Unavailable(format!("{} cannot be used: {e}", path.display()));
        let mut file = folder::shared(&path, database).map_err(failed)?;
        if file.try_lock().is_ok() {
            write(&mut file, clocks).map_err(failed)?;
        }
        // From an exclusive lock to a shared one there is a moment without: what stands there is read afterwards.
        let until = ticks() + PATIENCE;
        while let Err(error) = file.try_lock_shared() {
            if ticks() >= until {
                return Err(failed(error.into()));
            }
            std::thread::sleep(LOOK);
        }
        match read(&mut file).map_err(failed)? {
            Some(found) if found == clocks || aetheris_fault::planted!("any-boot-clock") => Ok(Self { _held: file }),
            Some(found) => Err(Error::Refused(format!(
                "another process has this database open and has other clocks ({found}; this one: {clocks}): run both \
                 under the same boot of one machine and in the same time namespace"
            ))),
            None => Err(Error::Unavailable(format!("{} cannot be read", path.display()))),
        }
    }
}

fn write(file: &mut File, clocks: BootId) -> io::Result<()> {
    file.rewind()?;
    file.write_all(&clocks.to_bytes())?;
    file.set_len(u64::try_from(clocks.to_bytes().len()).unwrap_or(0))
}

fn read(file: &mut File) -> io::Result<Option<BootId>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(BootId::from_slice(&bytes))
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    #[test]
    fn processes_with_other_clocks_are_refused_while_one_lives() {
        let folder = Folder::new("clock");
        let database = folder.join("aetheris.db");
        let (here, there) = (BootId::from_u128(1), BootId::from_u128(2));
        let first = ClockGuard::take(&database, here).unwrap();
        let second = ClockGuard::take(&database, here).unwrap();
        drop(first);
        let error = ClockGuard::take(&database, there).unwrap_err().to_string();
        assert!(error.contains("other clocks") && error.contains(&here.to_string()), "{error}");
        drop(second);
        let moved = ClockGuard::take(&database, there).unwrap();
        assert!(ClockGuard::take(&database, here).is_err());
        drop(moved);
    }
}
