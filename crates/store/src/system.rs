//! Clocks and entropy: the only file of the library crates that reads them.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aetheris_core::hash::Hash;
use aetheris_core::id::{BootId, IdSource};
use aetheris_core::time::{BootMoment, Span, Timestamp};

/// The clocks of a process. A simulator brings its own.
pub trait Clock: Send + Sync {
    /// Time since boot, sleep included: what a holder measures its lease with.
    fn boot(&self) -> Duration;
    /// Which boot clock that is: moments of another one cannot be compared with it.
    fn boot_id(&self) -> BootId;
    /// The boot clock's moment, with its name.
    fn boot_moment(&self) -> BootMoment {
        BootMoment { at: Span::from_std(self.boot()), of: self.boot_id() }
    }
    /// The wall clock: what an embedded store makes its own clock of.
    fn wall(&self) -> Timestamp;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// The boot clock of this machine since its start, as this process's time namespace shows it. Where the kernel does not
/// say which it is, it is taken for one that nobody else has.
fn machine_boot_id() -> BootId {
    static OF_THIS_PROCESS: OnceLock<BootId> = OnceLock::new();
    *OF_THIS_PROCESS.get_or_init(|| {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let namespace = std::fs::read_link("/proc/self/ns/time");
        let known = boot_id_of(boot, namespace, std::fs::read_to_string("/proc/self/timens_offsets"));
        known.unwrap_or_else(|| BootId::from_u128(SystemIds.secret()))
    })
}

/// The boot clock of a boot in a time namespace, as the kernel names the two, and by how much it is ahead there: the
/// number of a namespace is given again when it has gone.
fn boot_id_of(boot: io::Result<String>, namespace: io::Result<PathBuf>, offsets: io::Result<String>) -> Option<BootId> {
    let namespace = match namespace {
        // A kernel without time namespaces has one boot clock for all.
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        found => format!("{} {}", found.ok()?.display(), boot_offset(&offsets.ok()?)?),
    };
    let name = format!("{} {namespace}", boot.ok()?.trim());
    let hash = Hash::of(name.as_bytes());
    let (half, _) = hash.as_bytes().split_at(16);
    BootId::from_slice(half)
}

/// What the kernel adds to the boot clock in a time namespace: seconds and nanoseconds.
fn boot_offset(offsets: &str) -> Option<String> {
    let line = offsets.lines().find_map(|line| line.trim_start().strip_prefix("boottime"))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

impl Clock for SystemClock {
    fn boot_id(&self) -> BootId {
        machine_boot_id()
    }

    fn boot(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Duration::new(seconds, nanos)
    }

    fn wall(&self) -> Timestamp {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
        #[cfg(feature = "faults")]
        let micros = micros.saturating_add(aetheris_fault::wall_offset_us());
        Timestamp::from_micros(micros)
    }
}

/// Clocks that move only when they are told to, for tests. Clones are the same clock.
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    boot_id: Arc<AtomicU64>,
    boot_us: Arc<AtomicU64>,
    wall_us: Arc<AtomicI64>,
}

impl ManualClock {
    /// A clock that stands at a moment.
    #[must_use]
    pub fn at(wall: Timestamp) -> Self {
        let clock = Self::default();
        clock.set_wall(wall);
        clock
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Span) {
        self.boot_us.fetch_add(by.micros(), Ordering::SeqCst);
        self.wall_us.fetch_add(by.micros_i64(), Ordering::SeqCst);
    }

    /// Starts the machine again: another boot clock, which begins at nothing.
    pub fn reboot(&self) {
        self.boot_id.fetch_add(1, Ordering::SeqCst);
        self.boot_us.store(0, Ordering::SeqCst);
    }

    /// Sets the wall clock alone, forwards or back.
    pub fn set_wall(&self, wall: Timestamp) {
        self.wall_us.store(wall.micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn boot_id(&self) -> BootId {
        BootId::from_u128(self.boot_id.load(Ordering::SeqCst).into())
    }

    fn boot(&self) -> Duration {
        Duration::from_micros(self.boot_us.load(Ordering::SeqCst))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(self.wall_us.load(Ordering::SeqCst))
    }
}

/// Identifiers from the machine's entropy: UUID version 7 where order helps, version 4 where secrecy
/// does.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl IdSource for SystemIds {
    #[expect(clippy::disallowed_methods, reason = "the one place that makes them")]
    fn ordered(&self) -> u128 {
        uuid::Uuid::now_v7().as_u128()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that makes them")]
    fn secret(&self) -> u128 {
        uuid::Uuid::new_v4().as_u128()
    }
}

/// Clocks and identifiers of one process, handed to everything that authors facts.
#[derive(Clone)]
pub struct System {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The identifiers.
    pub ids: Arc<dyn IdSource>,
}

impl System {
    /// The machine's own.
    #[must_use]
    pub fn machine() -> Self {
        Self { clock: Arc::new(SystemClock), ids: Arc::new(SystemIds) }
    }
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("System")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_clock_is_that_of_one_boot_and_one_namespace() {
        const NONE: &str = "monotonic           0         0\nboottime            0         0\n";
        let of = |boot: &str, namespace: &str, offsets: &str| {
            boot_id_of(Ok(boot.to_owned()), Ok(PathBuf::from(namespace)), Ok(offsets.to_owned()))
        };
        let this = of("6f1c\n", "time:[1]", NONE);
        assert!(this.is_some());
        assert_eq!(of("6f1c", "time:[1]", NONE), this);
        assert_ne!(of("6f1c", "time:[2]", NONE), this, "`unshare -T --boottime` sets another one");
        assert_ne!(of("6f1d", "time:[1]", NONE), this);
        for ahead in ["monotonic 0 0\nboottime 3600 0\n", "boottime 0 1\n", "boottime -3600 0\n"] {
            assert_ne!(of("6f1c", "time:[1]", ahead), this, "the number of one that has gone is given again: {ahead}");
        }
        assert_eq!((of("6f1c", "time:[1]", ""), of("6f1c", "time:[1]", "monotonic 0 0\n")), (None, None));
        let gone = || -> io::Result<String> { Err(io::ErrorKind::NotFound.into()) };
        assert_eq!(boot_id_of(Ok("6f1c".to_owned()), Ok(PathBuf::from("time:[1]")), gone()), None);
        let kind = |kind: io::ErrorKind| boot_id_of(Ok("6f1c".to_owned()), Err(kind.into()), gone());
        assert!(kind(io::ErrorKind::NotFound).is_some(), "a kernel without such namespaces");
        assert_eq!(kind(io::ErrorKind::PermissionDenied), None);
        assert_eq!(boot_id_of(Err(io::ErrorKind::NotFound.into()), Ok(PathBuf::new()), Ok(NONE.to_owned())), None);
        assert_eq!(SystemClock.boot_id(), SystemClock.boot_id());
    }
}
