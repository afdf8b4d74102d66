//! A log that a process has left, written again as it is. After a sync that failed, the system may hold for written what never
//! reached the disk; a second writing makes it reach it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use aetheris_fault::files::{Asked, Done, ask, tell};

use crate::error::Error;
use crate::folder::failed;

/// How much is written again at once: whoever keeps others from the log meanwhile does so for no longer.
pub(crate) const PIECE: usize = 1 << 20;
/// The head of a log has salts that change when it begins anew.
const HEAD: usize = 32;

/// A log of which a part is written again.
pub(crate) struct Rewriting {
    at: u64,
    end: u64,
    file: File,
    head: [u8; HEAD],
    path: PathBuf,
}

impl Rewriting {
    /// Of what a log has now; `None` if there is none.
    pub(crate) fn begin(log: &Path) -> Result<Option<Self>, Error> {
        let file = match OpenOptions::new().read(true).write(true).open(log) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| failed(log, "cannot be opened", &error))?,
        };
        let end = file.metadata().map_err(|error| failed(log, "cannot be looked at", &error))?.len();
        let mut this = Self { at: 0, end, file, head: [0; HEAD], path: log.to_owned() };
        this.head = this.head_now()?;
        Ok((end > 0).then_some(this))
    }

    /// The head, as far as there is one.
    fn head_now(&self) -> Result<[u8; HEAD], Error> {
        let mut head = [0; HEAD];
        self.file.read_at(&mut head, 0).map_err(|error| failed(&self.path, "cannot be read", &error))?;
        Ok(head)
    }

    /// Writes the next piece again. Whether more is to follow: not once the log has begun anew, since what it has then was
    /// written after the failure, behind a copy of all that it had before. Nobody may change the log meanwhile.
    pub(crate) fn piece(&mut self) -> Result<bool, Error> {
        if self.head_now()? != self.head {
            return Ok(false);
        }
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(PIECE);
        let mut piece = vec![0; left];
        let read =
            self.file.read_at(&mut piece, self.at).map_err(|error| failed(&self.path, "cannot be read", &error))?;
        let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else { return Ok(false) };
        let written = ask(Asked::Write(&self.path)).and_then(|()| self.file.write_all_at(bytes, self.at));
        written.map_err(|error| failed(&self.path, "cannot be written", &error))?;
        tell(Done::Wrote(&self.path, self.at, bytes));
        self.at += u64::try_from(read).unwrap_or(0);
        Ok(self.at < self.end)
    }

    /// Makes durable what was written again.
    pub(crate) fn sync(self) -> Result<(), Error> {
        let synced = ask(Asked::Sync(&self.path)).and_then(|()| self.file.sync_data());
        synced.map_err(|error| failed(&self.path, "cannot be synced", &error))?;
        tell(Done::Synced(&self.path));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    #[test]
    fn a_log_is_written_again_piece_by_piece_until_it_begins_anew() {
        let folder = Folder::new("rewrite");
        let log = folder.join("log");
        assert!(Rewriting::begin(&log).unwrap().is_none());
        std::fs::write(&log, "").unwrap();
        assert!(Rewriting::begin(&log).unwrap().is_none());
        let bytes: Vec<u8> = (0..2 * PIECE + 7).map(|at| u8::try_from(at % 251).unwrap()).collect();
        std::fs::write(&log, &bytes).unwrap();
        let mut again = Rewriting::begin(&log).unwrap().unwrap();
        // What comes behind it meanwhile is its author's to sync.
        std::fs::OpenOptions::new()
            .append(true)
            .open(&log)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"more"))
            .unwrap();
        assert_eq!([again.piece().unwrap(), again.piece().unwrap(), again.piece().unwrap()], [true, true, false]);
        assert_eq!(again.at, again.end);
        again.sync().unwrap();
        assert!(std::fs::read(&log).unwrap() == [&bytes[..], b"more"].concat());

        let mut again = Rewriting::begin(&log).unwrap().unwrap();
        assert!(again.piece().unwrap());
        let anew: Vec<u8> = bytes.iter().rev().copied().collect();
        std::fs::write(&log, &anew).unwrap();
        assert!(!again.piece().unwrap(), "what was read is not written over another log");
        assert!(std::fs::read(&log).unwrap() == anew);
    }
}
