//! What the writer remembers of its last write and its last claim, for those who ask how the store is.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aetheris_core::limits;
use aetheris_core::time::Span;
use aetheris_store::{ErrorKind, FailedWrite};

use crate::error::Error;

/// What can fail while the rest works.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Claim,
    Write,
}

/// The last failure of each part, until it works again.
#[derive(Debug, Default)]
pub(crate) struct Vitals {
    claim: Mutex<Option<Failed>>,
    write: Mutex<Option<Failed>>,
}

#[derive(Debug, Clone)]
struct Failed {
    at: Duration,
    error: String,
    kind: ErrorKind,
}

impl Vitals {
    /// It failed at this moment of the boot clock. A write that is itself wrong says nothing about the store. A claim
    /// brings nothing that could be wrong: where one fails, no job is given until it works again.
    pub(crate) fn failed(&self, part: Part, error: &Error, at: Duration) {
        let kind = error.kind();
        let counts = match part {
            Part::Claim => true,
            Part::Write => kind != ErrorKind::Invalid,
        };
        if counts {
            *self.part(part) = Some(Failed { at, error: error.to_string(), kind });
        }
    }

    /// It worked.
    pub(crate) fn worked(&self, part: Part) {
        *self.part(part) = None;
    }

    /// Whether trying a write would tell more than is known: the last one failed for a reason that may be over.
    /// A disk is full until it has room again, even where one more page finds a place.
    pub(crate) fn may_be_over(&self, has_room: impl FnOnce() -> bool) -> bool {
        let kind = self.part(Part::Write).as_ref().map(|failed| failed.kind);
        match kind {
            None | Some(ErrorKind::Corrupt | ErrorKind::Invalid) => false,
            Some(ErrorKind::Unavailable) => true,
            Some(ErrorKind::Full) => has_room(),
        }
    }

    /// The failure, if it has not worked since.
    pub(crate) fn last(&self, part: Part, now: Duration) -> Option<FailedWrite> {
        let failed = self.part(part).clone()?;
        let age = Span::from_std(now.saturating_sub(failed.at));
        Some(FailedWrite { age, error: failed.error, kind: failed.kind })
    }

    fn part(&self, part: Part) -> MutexGuard<'_, Option<Failed>> {
        let part = match part {
            Part::Claim => &self.claim,
            Part::Write => &self.write,
        };
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The room on the file system of a folder, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    free: u64,
    wanted: u64,
}

impl Room {
    /// As it is now. Where it cannot be asked there is room, and a write finds out.
    pub(crate) fn of(folder: &Path) -> Self {
        rustix::fs::statvfs(folder).map_or(Self { free: u64::MAX, wanted: 0 }, |found| Self {
            free: found.f_bavail.saturating_mul(found.f_frsize),
            wanted: wanted(found.f_blocks.saturating_mul(found.f_frsize)),
        })
    }

    /// Whether a disk that was full is not any more.
    pub(crate) fn is_there(self) -> bool {
        self.free >= self.wanted
    }

    /// What to say of a disk that has too little.
    pub(crate) fn lacking(self) -> Option<String> {
        const MIB: u64 = 1024 * 1024;
        let Self { free, wanted } = self;
        let size =
            |bytes: u64| if bytes < MIB { format!("{} KiB", bytes / 1024) } else { format!("{} MiB", bytes / MIB) };
        (!self.is_there()).then(|| format!("it counts as full until {} are free, and {} are", size(wanted), size(free)))
    }
}

/// The room that a disk of a size must have before it is not full any more: a few of the largest units, but no more than
/// a small disk can have beside its database.
fn wanted(size: u64) -> u64 {
    limits::ROOM_BYTES_MIN.min(size / limits::ROOM_PART_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_remembered_until_it_works_again_and_a_wrong_request_is_none() {
        let (vitals, now) = (Vitals::default(), Duration::from_secs(100));
        vitals.failed(Part::Write, &Error::Invalid("no such column".to_owned()), now);
        assert_eq!(vitals.last(Part::Write, now), None);
        vitals.failed(Part::Claim, &Error::Corrupt("a row".to_owned()), now);
        assert_eq!((vitals.last(Part::Write, now), vitals.may_be_over(|| true)), (None, false));
        let failed = vitals.last(Part::Claim, now + Duration::from_secs(7)).unwrap();
        assert_eq!((failed.age, failed.kind, failed.error.as_str()), (Span::from_secs(7), ErrorKind::Corrupt, "a row"));
        vitals.worked(Part::Claim);
        assert_eq!(vitals.last(Part::Claim, now), None);
        vitals.failed(Part::Claim, &Error::Invalid("no row lets it through".to_owned()), now);
        assert_eq!(vitals.last(Part::Claim, now).unwrap().kind, ErrorKind::Invalid);
    }

    #[test]
    fn a_full_disk_is_tried_again_when_it_has_room_and_a_damaged_one_by_real_writes_only() {
        let (vitals, now) = (Vitals::default(), Duration::ZERO);
        let full = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None);
        vitals.failed(Part::Write, &full.into(), now);
        assert!(!vitals.may_be_over(|| false) && vitals.may_be_over(|| true));
        vitals.failed(Part::Write, &Error::Unavailable("busy".to_owned()), now);
        assert!(vitals.may_be_over(|| false));
        vitals.failed(Part::Write, &Error::Corrupt("a page".to_owned()), now);
        assert!(!vitals.may_be_over(|| true));
    }

    #[test]
    fn a_small_disk_can_have_the_room_that_is_wanted_of_it() {
        const MIB: u64 = 1024 * 1024;
        assert_eq!((wanted(6 * MIB), wanted(100_000 * MIB)), (6 * MIB / 16, 16 * MIB));
        let room = Room { free: 3 * MIB, wanted: wanted(100_000 * MIB) };
        assert!(!room.is_there());
        assert_eq!(room.lacking().as_deref(), Some("it counts as full until 16 MiB are free, and 3 MiB are"));
        let small = Room { free: 3 * MIB, wanted: wanted(6 * MIB) };
        assert!(small.is_there() && small.lacking().is_none());
        assert!(Room::of(Path::new("/nowhere/at/all")).is_there());
        // To the byte, and in words that do not say that nothing is there.
        let room = |free| Room { free, wanted: MIB };
        assert!(room(MIB).is_there() && room(MIB).lacking().is_none());
        let lacking = room(MIB - 1).lacking();
        assert_eq!(lacking.as_deref(), Some("it counts as full until 1 MiB are free, and 1023 KiB are"));
    }
}
