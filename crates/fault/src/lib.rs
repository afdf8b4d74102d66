//! Where a process can be made to die, where a known bug can be planted and how its wall clock can be made
//! to jump: for the proof that the runtime survives the first and the last, and its tests catch the second.
//!
//! Without the feature `faults` every function here is empty and constant, and no name of a point or
//! a bug reaches the binary. The release is built without it.

pub mod files;
pub mod marks;

/// Ends the process with SIGKILL, stops it with SIGSTOP, or panics, if this point was asked for by name and has
/// been reached often enough. `AETHERIS_CRASH=name@hit@kill` (or `@stop`, `@panic`) asks.
#[macro_export]
macro_rules! crash_point {
    ($($name:tt)*) => {{
        #[cfg(feature = "faults")]
        $crate::reached(format_args!($($name)*));
        #[cfg(not(feature = "faults"))]
        let _ = || format!($($name)*);
    }};
}

/// Whether a bug of the zoo is planted: `AETHERIS_BUG=name`. Constant `false` in a release.
#[macro_export]
macro_rules! planted {
    ($name:literal) => {{
        #[cfg(feature = "faults")]
        let planted = $crate::is_planted($name);
        #[cfg(not(feature = "faults"))]
        let planted = false;
        planted
    }};
}

#[cfg(feature = "faults")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    enum Mode {
        Kill,
        Panic,
        Stop,
    }

    struct Order {
        point: String,
        hit: u32,
        mode: Mode,
        seen: AtomicU32,
    }

    #[expect(clippy::disallowed_methods, reason = "test builds only; it is asked from outside the process")]
    fn order() -> Option<&'static Order> {
        static ORDER: OnceLock<Option<Order>> = OnceLock::new();
        ORDER
            .get_or_init(|| {
                let text = std::env::var("AETHERIS_CRASH").ok()?;
                let mut parts = text.rsplitn(3, '@');
                let mode = parts.next()?.to_owned();
                let hit = parts.next()?.parse().ok()?;
                let point = parts.next()?.to_owned();
                let mode = match mode.as_str() {
                    "stop" => Mode::Stop,
                    "panic" => Mode::Panic,
                    _ => Mode::Kill,
                };
                Some(Order { point, hit, mode, seen: AtomicU32::new(0) })
            })
            .as_ref()
    }

    /// Dies or stops here if this hit of this point was asked for. The name comes as it stands in the
    /// program's text: made into a `String` by the caller, a short one would become an instruction's operand,
    /// and no search of a binary could find it (`cargo xtask release-check`).
    #[inline(never)]
    #[expect(clippy::panic, reason = "test builds only; it is what was asked for")]
    pub fn reached(point: std::fmt::Arguments<'_>) {
        let Some(order) = order().filter(|order| point.to_string() == order.point) else {
            return;
        };
        if order.seen.fetch_add(1, Ordering::SeqCst) + 1 != order.hit {
            return;
        }
        let signal = match order.mode {
            Mode::Kill => rustix::process::Signal::KILL,
            Mode::Panic => panic!("the panic that was asked for at `{point}`"),
            Mode::Stop => rustix::process::Signal::STOP,
        };
        // A process that cannot signal itself must not go on as if the point did not exist.
        if rustix::process::kill_process(rustix::process::getpid(), signal).is_err() {
            std::process::abort();
        }
    }

    /// How far the wall clock of this process is to be off, in microseconds: what the file says that
    /// `AETHERIS_CLOCK_OFFSET` names. Nothing where there is none. It is read at every look, so that the
    /// clock can jump while the process runs.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "test builds only; it is asked from outside the process")]
    pub fn wall_offset_us() -> i64 {
        static FILE: OnceLock<Option<String>> = OnceLock::new();
        let file = FILE.get_or_init(|| std::env::var("AETHERIS_CLOCK_OFFSET").ok()).as_deref();
        let text = file.and_then(|file| std::fs::read_to_string(file).ok());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Whether this bug was asked for.
    #[expect(clippy::disallowed_methods, reason = "test builds only; it is asked from outside the process")]
    pub fn is_planted(bug: &str) -> bool {
        static BUG: OnceLock<Option<String>> = OnceLock::new();
        BUG.get_or_init(|| std::env::var("AETHERIS_BUG").ok()).as_deref() == Some(bug)
    }
}

#[cfg(feature = "faults")]
pub use armed::{is_planted, reached, wall_offset_us};
