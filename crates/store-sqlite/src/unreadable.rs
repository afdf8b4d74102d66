//! Rows that this build cannot read: lists and sweeps pass them over, so that they cost nobody else anything, and say so
//! once in a while, however often they are met.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::limits;

use crate::error::Trouble;
use crate::turn::ticks;

/// What was told of lately, and when.
static TOLD: Mutex<Option<BTreeMap<String, Instant>>> = Mutex::new(None);

/// Which row cannot be read, for whoever looks for it: bytes that should be an id are told as they are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    Call(&'a [u8]),
    Job(&'a [u8]),
}

impl fmt::Display for Which<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, bytes) = match self {
            Self::Call(bytes) => (IdempotencyKey::from_slice(bytes).map(|key| key.to_string()), bytes),
            Self::Job(bytes) => (JobId::from_slice(bytes).map(|job| job.to_string()), bytes),
        };
        match id {
            Some(id) => f.write_str(&id),
            None => bytes.iter().take(limits::UNREADABLE_ID_BYTES_TOLD).try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// A row, or nothing where it cannot be read. Other trouble is an error.
pub(crate) fn passed_over<T>(read: Result<T, Trouble>, what: impl fmt::Display) -> Result<Option<T>, Trouble> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Trouble::Corrupt(why)) => {
            tell(what, &why);
            Ok(None)
        }
        Err(trouble) => Err(trouble),
    }
}

/// Fills a page with rows that can be read, from behind a place on. `next` answers at most so many rows behind a place,
/// each with its own place.
pub(crate) fn page<P, T>(
    mut place: P,
    limit: usize,
    mut next: impl FnMut(&P, usize) -> Result<Vec<(P, Option<T>)>, Trouble>,
) -> Result<Vec<T>, Trouble> {
    let mut page = Vec::new();
    loop {
        let wanted = limit - page.len();
        let found = next(&place, wanted)?;
        let more = found.len() == wanted;
        for (at, row) in found {
            place = at;
            page.extend(row);
        }
        if !more || page.len() == limit {
            return Ok(page);
        }
    }
}

/// Says that a row was passed over, unless it was said a short time ago.
fn tell(what: impl fmt::Display, why: &str) {
    if is_new(&format!("{what}: {why}"), ticks()) {
        tracing::error!(why, "{what} cannot be read, and is passed over");
    }
}

fn is_new(text: &str, now: Instant) -> bool {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let told = told.get_or_insert_default();
    if told.contains_key(text) || told.len() >= limits::UNREADABLE_TOLD_MAX {
        told.retain(|_, at| now.saturating_duration_since(*at) < limits::SWEEP_BACKOFF_MAX.to_std());
    }
    let new = !told.contains_key(text) && told.len() < limits::UNREADABLE_TOLD_MAX;
    if new {
        told.insert(text.to_owned(), now);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_as_people_know_it_or_by_its_bytes() {
        let job = JobId::from_u128(7);
        assert_eq!(Which::Job(&job.to_bytes()).to_string(), job.to_string());
        assert!(Which::Call(&[9; 16]).to_string().starts_with("key_"));
        assert_eq!(Which::Job(&[0xab; 3]).to_string(), "ababab");
        assert_eq!(Which::Call(&[0; 99]).to_string().len(), 2 * limits::UNREADABLE_ID_BYTES_TOLD);
    }

    #[test]
    fn a_row_is_told_of_once_in_a_while_and_other_trouble_is_not_passed_over() {
        let now = ticks();
        let later = now + limits::SWEEP_BACKOFF_MAX.to_std();
        let said = ["a", "b"].map(|text| [is_new(text, now), is_new(text, now), is_new(text, later)]);
        assert_eq!(said, [[true, false, true]; 2]);
        assert_eq!(passed_over(Ok::<_, Trouble>(1), "x").unwrap(), Some(1));
        assert_eq!(passed_over(Err::<i32, _>(Trouble::Corrupt("y".to_owned())), "x").unwrap(), None);
        passed_over(Err::<i32, _>(Trouble::Invalid("y".to_owned())), "x").unwrap_err();
    }

    #[test]
    fn further_rows_are_told_of_when_the_first_are_long_ago() {
        let now = ticks();
        assert!((0..limits::UNREADABLE_TOLD_MAX).all(|n| is_new(&format!("row {n}"), now)));
        assert!(!is_new("one more", now));
        assert!(is_new("one more", now + limits::SWEEP_BACKOFF_MAX.to_std()));
    }
}
