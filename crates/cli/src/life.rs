//! Whether a process that a file names still lives, by what the kernel says of it.

use std::time::Duration;

use aetheris_store::system::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};

/// How often a process that seems to live is looked at again: one that is just ending has given its locks back
/// before it is gone.
const LOOKS: u32 = 40;
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// A process, named so that no other is ever taken for it: a number alone comes back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Life {
    /// The boot of the machine that it belongs to.
    #[serde(default)]
    boot: String,
    /// When it began, in the kernel's ticks since the boot.
    #[serde(default)]
    began: u64,
    /// Its number.
    pid: u32,
}

impl Life {
    /// This process.
    pub(crate) fn own() -> Self {
        Self::of(std::process::id())
    }

    pub(crate) fn of(pid: u32) -> Self {
        Self { boot: boot(), began: began(pid).unwrap_or(0), pid }
    }

    /// Its number, for people.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it lives at this moment, as far as can be known.
    pub(crate) fn lives(&self) -> bool {
        self.began != 0 && self.boot == boot() && began(self.pid) == Some(self.began)
    }

    /// Whether it is another process of this machine and lives on. Whatever cannot be known counts as ended.
    pub(crate) fn is_another_alive(&self) -> bool {
        let known = self.began != 0 && !self.boot.is_empty();
        let other = known && self.pid != std::process::id() && self.boot == boot();
        let lives = || began(self.pid) == Some(self.began);
        for _ in 0..LOOKS {
            if !other || !lives() {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }
}

/// The boot clock that moments are told by here: another one of the same machine shows other moments for the same
/// process.
fn boot() -> String {
    SystemClock.boot_id().to_string()
}

/// When a process began that has not ended. One that only waits to be noticed by its parent has.
fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have spaces and brackets: what counts comes after it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_it_has_ended_noticed_or_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let life = Life::of(child.id());
        assert!(life.is_another_alive());
        assert!(!Life { began: life.began + 1, ..life.clone() }.is_another_alive());
        assert!(!Life { boot: "another".to_owned(), ..life.clone() }.is_another_alive());
        child.kill().unwrap();
        // Nobody has asked yet how it ended.
        assert!(!life.is_another_alive());
        child.wait().unwrap();
        assert!(!life.is_another_alive());
        assert!(!Life::own().is_another_alive());
    }
}
