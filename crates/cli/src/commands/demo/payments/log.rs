//! The service's own log: append-only, one JSON object a line, on disk before anything is answered.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A refund that the service has booked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Booking {
    /// The try of the step, as the caller counts.
    pub(crate) attempt: String,
    /// When, by the service's clock.
    pub(crate) at: String,
    /// How much.
    pub(crate) cents: i64,
    /// The caller's fencing token. This service records it and does not check it.
    pub(crate) fence: String,
    /// The caller's key. This service records it and does not look for it.
    pub(crate) idempotency_key: String,
    /// For which order.
    pub(crate) order: String,
    /// The refund's name.
    pub(crate) refund_id: String,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Entry {
    Booked(Booking),
}

/// What a caller asks for.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) attempt: String,
    pub(super) cents: i64,
    pub(super) fence: String,
    pub(super) idempotency_key: String,
    pub(super) order: String,
}

/// The log, open for appending.
#[derive(Debug)]
pub(super) struct BookingLog {
    bookings: Vec<Booking>,
    file: File,
}

impl BookingLog {
    /// Opens the log, and goes on where it ends.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        // The name of a new file is in its folder, which has to be on disk as well.
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { bookings: read(path)?, file })
    }

    /// Books, whatever was booked before. What it returns is on disk.
    pub(super) fn book(&mut self, wish: Wish) -> io::Result<Booking> {
        let Wish { attempt, cents, fence, idempotency_key, order } = wish;
        let refund_id = format!("rf-{}", self.bookings.len() + 1);
        let booking =
            Booking { attempt, at: Timestamp::now().to_string(), cents, fence, idempotency_key, order, refund_id };
        let mut line = serde_json::to_vec(&Entry::Booked(booking.clone()))?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_all()?;
        self.bookings.push(booking.clone());
        Ok(booking)
    }

    /// The first booking of a key.
    pub(super) fn by_key(&self, key: &str) -> Option<&Booking> {
        self.bookings.iter().find(|booking| booking.idempotency_key == key)
    }
}

/// Every booking of a log.
///
/// # Errors
/// The file cannot be read, or a line of it is not an entry.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Booking>> {
    let text = std::fs::read_to_string(path)?;
    let entry = |line| serde_json::from_str(line).map(|Entry::Booked(booking)| booking).map_err(io::Error::from);
    text.lines().map(entry).collect()
}
