//! What the payments service and whoever started it say to each other, one JSON object a line.

use serde::{Deserialize, Serialize};

use super::log::Booking;

/// A line on the service's stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// Book as ever, and hold the answers to refunds back until they are released.
    Hold,
    /// Answer.
    Release,
}

/// A line on the service's stdout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub(crate) enum Notice {
    /// It serves.
    Listening {
        /// Where.
        url: String,
    },
    /// Answers to refunds are held back from now on, or no longer.
    Holding {
        /// Which of the two.
        held: bool,
    },
    /// A refund is booked and on disk, and not answered yet.
    Booked {
        /// What was written.
        booking: Booking,
        /// The connection that asked for it.
        connection: u64,
    },
    /// A connection that asked for a refund is over.
    Closed {
        /// Whether the answer had been handed to the kernel, all of it, before.
        answered: bool,
        /// Whether the other side ended it.
        by_client: bool,
        /// Which.
        connection: u64,
    },
}
