//! The machine under the store: what its disk says of fsync, and whether its clocks agree. Only notes: a disk
//! that lies cannot be caught from a running machine.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use aetheris_core::time::Timestamp;
use aetheris_store::system::{Clock, SystemClock};
use rusqlite::Connection;
use serde::Serialize;

use super::plan::Plan;
use crate::error::Error;

/// A disk that is faster than this has hardly reached anything that survives a power cut, unless its cache
/// does.
const FSYNC_SUSPECT: Duration = Duration::from_micros(50);
/// Clocks that differ by less are not worth a word.
const DRIFT_TOLD: Duration = Duration::from_secs(1);
/// A file system that is memory.
const TMPFS: u64 = 0x0102_1994;

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Machine {
    /// The file system, by its number.
    pub(super) file_system: String,
    /// The median of an fsync after 4 KiB.
    pub(super) fsync_p50_us: u64,
    pub(super) fsync_p99_us: u64,
    /// The median of a bare commit, with the settings of the store.
    pub(super) commit_p50_us: u64,
    pub(super) commit_p99_us: u64,
    /// How many of each.
    pub(super) rounds: usize,
    /// What is worth a look.
    pub(super) notes: Vec<String>,
    #[serde(skip)]
    began: (Timestamp, Duration),
}

impl Machine {
    /// Measures in a folder of the user's file system.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub(super) fn measure(plan: &Plan, folder: &Path) -> Result<Self, Error> {
        let rounds = plan.rounds(500, 150);
        let fsyncs = fsyncs(&folder.join("fsync"), rounds)
            .map_err(|error| anyhow::anyhow!("{} cannot be written: {error}", folder.display()))?;
        let commits = commits(&folder.join("commits.db"), rounds).map_err(anyhow::Error::from)?;
        let found = rustix::fs::statfs(folder).map_err(|error| anyhow::anyhow!("{}: {error}", folder.display()))?;
        let kind = u64::try_from(found.f_type).unwrap_or_default();
        let mut machine = Self {
            file_system: name(kind),
            fsync_p50_us: percentile(&fsyncs, 50),
            fsync_p99_us: percentile(&fsyncs, 99),
            commit_p50_us: percentile(&commits, 50),
            commit_p99_us: percentile(&commits, 99),
            rounds,
            notes: Vec::new(),
            began: (SystemClock.wall(), SystemClock.boot()),
        };
        machine.look_at_disk(kind);
        machine.look_at_file_time(&folder.join("fsync"));
        Ok(machine)
    }

    fn look_at_disk(&mut self, kind: u64) {
        if kind == TMPFS {
            self.notes.push("the file system is tmpfs: it is memory, and nothing of it outlives a reboot".to_owned());
        }
        if Duration::from_micros(self.fsync_p50_us) < FSYNC_SUSPECT {
            let per_second = 1_000_000 / self.fsync_p50_us.max(1);
            self.notes.push(format!(
                "an fsync takes {} µs (about {per_second} a second): unless the disk's cache survives a power cut, it \
                 may say \"written\" too early, as virtual disks do. What it loses then is lost",
                self.fsync_p50_us
            ));
        }
    }

    /// The clock of the file system against this machine's.
    fn look_at_file_time(&mut self, file: &Path) {
        let Ok(stat) = rustix::fs::stat(file) else { return };
        let written = Timestamp::from_micros(stat.st_mtime.saturating_mul(1_000_000));
        let now = SystemClock.wall();
        let apart = now.since(written).max(written.since(now)).to_std();
        if apart > Duration::from_secs(5) {
            self.notes.push(format!("files get times that are {} s away from this machine's clock", apart.as_secs()));
        }
    }

    /// The wall clock against the clock that only counts, over the whole run.
    pub(super) fn look_at_clocks(&mut self) {
        let (wall, boot) = (SystemClock.wall(), SystemClock.boot());
        let walked = wall.since(self.began.0).to_std();
        let passed = boot.saturating_sub(self.began.1);
        let drift = walked.max(passed).saturating_sub(walked.min(passed));
        if drift > DRIFT_TOLD || wall < self.began.0 {
            self.notes.push(format!(
                "the wall clock was moved during the run: it says that {:.1} s passed, and {:.1} s did. Leases and \
                 timers follow it: an expiry may be early or late, never unsafe",
                walked.as_secs_f64(),
                passed.as_secs_f64()
            ));
        }
    }
}

fn name(kind: u64) -> String {
    let known = match kind {
        0xEF53 => "ext2/3/4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x2FC1_2FC1 => "zfs",
        0x794C_7630 => "overlayfs",
        0xF2F5_2010 => "f2fs",
        TMPFS => "tmpfs",
        _ => return format!("file system {kind:#x}"),
    };
    known.to_owned()
}

fn fsyncs(path: &Path, rounds: usize) -> std::io::Result<Vec<u64>> {
    let mut file = File::create(path)?;
    let page = [7_u8; 4_096];
    let mut taken = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        file.write_all(&page)?;
        let began = SystemClock.boot();
        file.sync_data()?;
        taken.push(since(began));
    }
    taken.sort_unstable();
    Ok(taken)
}

fn commits(path: &Path, rounds: usize) -> Result<Vec<u64>, rusqlite::Error> {
    let conn = Connection::open(path)?;
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (a BLOB)")?;
    let mut insert = conn.prepare("INSERT INTO t VALUES (zeroblob(300))")?;
    let mut taken = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let began = SystemClock.boot();
        insert.execute([])?;
        taken.push(since(began));
    }
    taken.sort_unstable();
    Ok(taken)
}

fn since(began: Duration) -> u64 {
    u64::try_from(SystemClock.boot().saturating_sub(began).as_micros()).unwrap_or(u64::MAX)
}

/// Sorted figures to a percentile; nothing is zero.
pub(in crate::commands) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(fsync_p50_us: u64, began: (Timestamp, Duration)) -> Machine {
        Machine {
            file_system: name(0xEF53),
            fsync_p50_us,
            fsync_p99_us: 0,
            commit_p50_us: 0,
            commit_p99_us: 0,
            rounds: 1,
            notes: Vec::new(),
            began,
        }
    }

    #[test]
    fn a_disk_that_is_too_fast_and_memory_are_told() {
        let now = (SystemClock.wall(), SystemClock.boot());
        let mut slow = machine(900, now);
        slow.look_at_disk(0xEF53);
        assert_eq!(slow.notes, Vec::<String>::new());
        let mut fast = machine(10, now);
        fast.look_at_disk(TMPFS);
        assert!(fast.notes[0].contains("tmpfs") && fast.notes[1].contains("100000 a second"), "{:?}", fast.notes);
    }

    #[test]
    fn a_clock_that_was_moved_is_told() {
        let boot = SystemClock.boot();
        let mut steady = machine(900, (SystemClock.wall(), boot));
        steady.look_at_clocks();
        assert_eq!(steady.notes, Vec::<String>::new());
        let hour = i64::from(3_600_u32) * 1_000_000;
        for (by, told) in [(hour, "it says that 3600.0 s passed"), (-hour, "it says that 0.0 s passed")] {
            let mut moved = machine(900, (Timestamp::from_micros(SystemClock.wall().micros() - by), boot));
            moved.look_at_clocks();
            assert!(moved.notes.len() == 1 && moved.notes[0].contains(told), "{by}: {:?}", moved.notes);
        }
    }

    #[test]
    fn percentiles() {
        assert_eq!((percentile(&[1, 2, 3, 4], 50), percentile(&[1, 2, 3, 4], 99), percentile(&[], 50)), (3, 4, 0));
    }
}
