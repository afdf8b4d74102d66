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
    Refused(Refusal),
}

/// A promise: no call of that key is booked under that permit or an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Refusal {
    idempotency_key: String,
    permit: String,
}

/// What a caller asks for.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) attempt: String,
    pub(super) cents: i64,
    pub(super) fence: String,
    pub(super) idempotency_key: String,
    pub(super) order: String,
    pub(super) permit: String,
}

/// The log, open for appending.
#[derive(Debug)]
pub(super) struct BookingLog {
    bookings: Vec<Booking>,
    file: File,
    refusals: Vec<Refusal>,
}

impl BookingLog {
    /// Opens the log, and goes on where it ends.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        // The name of a new file is in its folder, which has to be on disk as well.
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)?.sync_all()?;
        }
        let mut log = Self { bookings: Vec::new(), file, refusals: Vec::new() };
        for entry in entries(path)? {
            match entry {
                Entry::Booked(booking) => log.bookings.push(booking),
                Entry::Refused(refusal) => log.refusals.push(refusal),
            }
        }
        Ok(log)
    }

    /// Books, whatever was booked before. What it returns is on disk; none where the permit is refused.
    pub(super) fn book(&mut self, wish: Wish) -> io::Result<Option<Booking>> {
        let Wish { attempt, cents, fence, idempotency_key, order, permit } = wish;
        let refuses =
            |refusal: &Refusal| refusal.idempotency_key == idempotency_key && covers(&refusal.permit, &permit);
        if self.refusals.iter().any(refuses) {
            return Ok(None);
        }
        let refund_id = format!("rf-{}", self.bookings.len() + 1);
        let booking =
            Booking { attempt, at: Timestamp::now().to_string(), cents, fence, idempotency_key, order, refund_id };
        self.write(&Entry::Booked(booking.clone()))?;
        self.bookings.push(booking.clone());
        Ok(Some(booking))
    }

    /// The first booking of a key; where there is none, none will come under this permit or an earlier one.
    pub(super) fn look_and_refuse(&mut self, key: &str, permit: &str) -> io::Result<Option<&Booking>> {
        if !self.bookings.iter().any(|booking| booking.idempotency_key == key) {
            let refusal = Refusal { idempotency_key: key.to_owned(), permit: permit.to_owned() };
            self.write(&Entry::Refused(refusal.clone()))?;
            self.refusals.push(refusal);
        }
        Ok(self.bookings.iter().find(|booking| booking.idempotency_key == key))
    }

    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_all()
    }
}

/// Whether a refusal of one permit refuses another: `generation.n` is compared as a pair. What is not of that form is
/// refused.
fn covers(refused: &str, asked: &str) -> bool {
    let pair = |text: &str| {
        let (generation, number) = text.split_once('.')?;
        Some((generation.parse::<u32>().ok()?, number.parse::<u32>().ok()?))
    };
    match (pair(refused), pair(asked)) {
        (Some(refused), Some(asked)) => asked <= refused,
        (None, _) | (_, None) => true,
    }
}

/// Every booking of a log.
///
/// # Errors
/// The file cannot be read, or a line of it is not an entry.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Booking>> {
    let booked = |entry| match entry {
        Entry::Booked(booking) => Some(booking),
        Entry::Refused(_) => None,
    };
    Ok(entries(path)?.into_iter().filter_map(booked).collect())
}

fn entries(path: &Path) -> io::Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}
