//! When the next checkpoint of a job is due.

use aetheris_core::limits;
use aetheris_store::Checkpoint;

/// The newest checkpoint of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastCheckpoint {
    /// Its bytes.
    bytes: usize,
    /// Its place; 0 where there is none.
    seq: u64,
}

impl LastCheckpoint {
    /// This one.
    #[must_use]
    pub fn of(checkpoint: &Checkpoint) -> Self {
        Self { bytes: checkpoint.state.len(), seq: checkpoint.seq }
    }

    /// Its place; 0 where there is none.
    #[must_use]
    pub const fn seq(self) -> u64 {
        self.seq
    }

    /// The place from which on the next one is due. A large one is followed by more events, up to a quarter of those before
    /// it, so that all checkpoints of a job together stay in proportion to its history, and so does what is left to be folded.
    pub(crate) fn due(self) -> u64 {
        let paid = u64::try_from(self.bytes / limits::CHECKPOINT_BYTES_PER_EVENT).unwrap_or(u64::MAX);
        let even = if aetheris_fault::planted!("checkpoints-at-even-places") { 0 } else { paid };
        self.seq + every().max(even.min(self.seq / 4))
    }
}

/// How many events lie between two checkpoints at least.
pub(super) fn every() -> u64 {
    aetheris_fault::tuned!(CheckpointEvents, limits::CHECKPOINT_EVENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state grows with its history: the checkpoints of a long job are written the rarer, the larger they are, so that all
    /// of them together are a few times its last.
    #[test]
    fn the_checkpoints_of_a_job_stay_in_proportion_to_its_history() {
        for of_event in [100, 400, 4_000] {
            let (mut last, mut written, mut count) = (LastCheckpoint::default(), 0, 0_u64);
            for seq in 1..=limits::JOB_EVENTS_MAX {
                if seq >= last.due() {
                    let bytes = of_event * usize::try_from(seq).unwrap();
                    last = LastCheckpoint { bytes, seq };
                    (written, count) = (written + bytes, count + 1);
                }
            }
            let history = of_event * usize::try_from(limits::JOB_EVENTS_MAX).unwrap();
            assert!(written < 7 * history, "{of_event}: {written} bytes of checkpoints for {history} of state");
            assert!(count > 20, "{of_event}: {count} checkpoints");
        }
        assert_eq!(LastCheckpoint::default().due(), limits::CHECKPOINT_EVENTS);
        assert_eq!(LastCheckpoint { bytes: 10_000, seq: 60_000 }.due(), 60_000 + limits::CHECKPOINT_EVENTS);
        assert_eq!(LastCheckpoint { bytes: 1_024_000, seq: 60_000 }.due(), 62_000);
        assert_eq!(LastCheckpoint { bytes: 64 << 20, seq: 60_000 }.due(), 75_000);
    }
}
