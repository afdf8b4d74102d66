//! How many files this process may have open, and how they are shared out.

use aetheris_core::limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's soft limit of open files to the hard one, and says what it is then. Connections, tools and
/// the store need one each, and the usual soft limit of 1,024 is for programs that use `select`.
#[must_use]
pub(crate) fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(limits::OPEN_FILES_MAX).min(limits::OPEN_FILES_MAX);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    // Where it is forbidden, what there is has to do.
    if raised.is_ok() { wanted } else { current }
}

/// Connections that may be served at once with so many open files: half of them, less what the store needs. The other
/// half is for the tools.
pub(crate) fn connections_max(open_files: u64) -> usize {
    let half = usize::try_from(open_files / 2).unwrap_or(usize::MAX);
    half.saturating_sub(limits::STORE_FILES_MAX).clamp(limits::CONNECTIONS_MIN, limits::CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_store_and_the_tools() {
        for (files, connections) in [(0, 16), (256, 64), (1_024, 448), (4_096, 1_984), (65_536, 16_384)] {
            assert_eq!(connections_max(files), connections, "{files}");
        }
        assert_eq!(connections_max(u64::MAX), 16_384);
    }

    #[test]
    fn the_soft_limit_of_open_files_is_raised() {
        let before = getrlimit(Resource::Nofile);
        let raised = raise();
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.current.unwrap_or(u64::MAX), raised);
        let wanted = before.maximum.unwrap_or(u64::MAX).min(limits::OPEN_FILES_MAX);
        assert!(raised >= wanted && after.maximum == before.maximum, "{before:?} {after:?}");
    }
}
