//! Threads and tasks that a process cannot live without, and how it ends when one of them does.
//!
//! A process of which one part has stopped is worse than one that has ended: it answers, holds leases and does
//! nothing. What has ended is started again by whoever runs it, and recovers from what is on the disk.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::limits;

/// Called with the name of what has stopped unexpectedly; not meant to return.
pub type OnDeath = Arc<dyn Fn(&str) + Send + Sync>;

/// The exit status of a process of which a vital thread or task has ended: `EX_SOFTWARE` of sysexits.
pub const EXIT_DIED: i32 = 70;

/// Held by a thread as long as it does its work. Dropped without having been released, by a panic or an early
/// return, it tells.
pub struct Vital {
    name: String,
    on_death: Option<OnDeath>,
}

impl Vital {
    /// Watches over what is called so.
    #[must_use]
    pub fn new(name: impl Into<String>, on_death: &OnDeath) -> Self {
        Self { name: name.into(), on_death: Some(Arc::clone(on_death)) }
    }

    /// It ends because it was asked to.
    pub fn release(mut self) {
        self.on_death = None;
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        if let Some(on_death) = self.on_death.take() {
            on_death(&self.name);
        }
    }
}

impl std::fmt::Debug for Vital {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vital").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Ends the process with this status. That is decided first: whatever `say` does, be it that it panics or that
/// nobody reads what it says, the process ends within [`limits::LOG_LAST_WORDS_MAX`] and a moment.
#[expect(clippy::exit, reason = "nothing that this process would say or do can be relied on any more")]
pub fn end_process(status: i32, say: impl FnOnce()) -> ! {
    struct Exit(i32);
    impl Drop for Exit {
        fn drop(&mut self) {
            std::process::exit(self.0);
        }
    }
    let exit = Exit(status);
    let patience = limits::LOG_LAST_WORDS_MAX.to_std() + Duration::from_millis(500);
    let watchdog = std::thread::Builder::new().name("last-words".to_owned()).spawn(move || {
        std::thread::sleep(patience);
        std::process::exit(status);
    });
    // Without it nothing may be begun that may not end.
    if watchdog.is_ok() {
        say();
    }
    drop(exit);
    std::process::exit(status)
}

/// What a store does by itself when a thread of it has ended: one line on stderr, and the end of the process.
pub fn die(name: &str) {
    end_process(EXIT_DIED, || {
        use std::io::Write as _;
        let line =
            format!("error: the thread `{name}` stopped unexpectedly; exiting so the process can be restarted\n");
        let _unheard = std::io::stderr().write_all(line.as_bytes());
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn what_ends_unasked_or_panics_is_told_and_what_was_released_is_not() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let on_death: OnDeath = {
            let told = Arc::clone(&told);
            Arc::new(move |name| told.lock().unwrap().push(name.to_owned()))
        };
        Vital::new("asked", &on_death).release();
        drop(Vital::new("returned", &on_death));
        let vital = Vital::new("panicked", &on_death);
        let thread = std::thread::spawn(move || {
            let _vital = vital;
            panic!("a panic that a test wants");
        });
        assert!(thread.join().is_err());
        assert_eq!(*told.lock().unwrap(), ["returned", "panicked"]);
    }
}
