//! The acts. Each has a stage of its own and ends with what its witnesses say.

mod in_flight;
mod slow;
mod window;

use super::finding::Finding;
use super::stage::Stage;
use crate::commands::process_control::Fault;

/// An act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Killed while the call was in flight.
    InFlight,
    /// Killed between the tool's result and its commit.
    Window,
    /// Stopped for longer than its lease, and then going on.
    Slow,
}

impl Act {
    pub(super) const ALL: [Self; 3] = [Self::InFlight, Self::Window, Self::Slow];

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::InFlight => 1,
            Self::Window => 2,
            Self::Slow => 3,
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::InFlight => "Act 1: kill -9 while the refund is in flight",
            Self::Window => "Act 2: kill -9 between the tool's answer and its commit",
            Self::Slow => "Act 3: slow, not dead: a worker sleeps through its lease and wakes up again",
        }
    }

    /// What would go wrong where a step without a recorded result is simply run again.
    pub(super) const fn naive(self) -> &'static str {
        match self {
            Self::InFlight => "naive at-least-once finds no recorded result and sends the refund again: 2 bookings",
            Self::Window => "naive at-least-once has lost the answer with the process and calls again: 2 bookings",
            Self::Slow => "naive at-least-once takes silence for death and calls again: 2 bookings",
        }
    }

    /// What was done to which process.
    pub(super) const fn interrupted(self) -> &'static str {
        match self {
            Self::InFlight => "dev, call in flight",
            Self::Window => "dev, before its commit",
            Self::Slow => "worker-a, past its lease",
        }
    }

    /// Plays it.
    ///
    /// # Errors
    /// Something that was to happen has not.
    pub(super) async fn play(self, stage: &Stage<'_>) -> Result<Finding, Fault> {
        match self {
            Self::InFlight => in_flight::play(stage).await,
            Self::Window => window::play(stage).await,
            Self::Slow => slow::play(stage).await,
        }
    }
}

/// The agent of the first two acts.
const REFUND: &str = include_str!("../../../../demo/refund.yaml");
/// The agent of the third.
const PATIENT: &str = include_str!("../../../../demo/refund-patient.yaml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_are_accepted_and_name_the_address_that_is_replaced() {
        for text in [REFUND, PATIENT] {
            assert_eq!(text.matches("http://127.0.0.1:9000/").count(), 3);
            aetheris_agentfile::parse(text).unwrap();
        }
        let differ = REFUND.lines().zip(PATIENT.lines()).filter(|(a, b)| a != b && !a.starts_with('#')).count();
        assert_eq!(differ, 1, "the files differ in the policy only");
    }
}
