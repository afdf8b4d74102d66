//! How long a copy that is made in pieces waits for the locks of others.

use aetheris_core::limits;
use rusqlite::backup::StepResult;

/// Times in a row that a piece found a lock.
#[derive(Debug, Default)]
pub(crate) struct Waited(u32);

/// What comes behind a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Done,
    GiveUp,
    Pause,
    Piece,
}

impl Waited {
    pub(crate) fn after(&mut self, step: StepResult) -> Next {
        match step {
            StepResult::Done => Next::Done,
            StepResult::More => {
                self.0 = 0;
                Next::Piece
            }
            StepResult::Busy | StepResult::Locked if self.0 < limits::BACKUP_WAITS_MAX => {
                self.0 += 1;
                Next::Pause
            }
            _ => Next::GiveUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A backup beside a busy store takes long, and is no worse for each lock that it had to wait for.
    #[test]
    fn a_copy_gives_up_where_it_gets_no_further_and_not_before() {
        let mut waited = Waited(0);
        for _ in 0..3 {
            for locked in 0..limits::BACKUP_WAITS_MAX {
                let step = if locked % 2 == 0 { StepResult::Busy } else { StepResult::Locked };
                assert_eq!(waited.after(step), Next::Pause);
            }
            assert_eq!(waited.after(StepResult::More), Next::Piece);
        }
        for _ in 0..limits::BACKUP_WAITS_MAX {
            assert_eq!(waited.after(StepResult::Busy), Next::Pause);
        }
        assert_eq!(waited.after(StepResult::Busy), Next::GiveUp);
        assert_eq!(waited.after(StepResult::Done), Next::Done);
    }
}
