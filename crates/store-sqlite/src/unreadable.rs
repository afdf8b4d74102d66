//! Rows that this build cannot read: lists and sweeps pass them over, so that they cost nobody else anything, and say so
//! once in a while, however often they are met.

use std::fmt;

use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_store::amiss::RawId;
use aetheris_store::repeats::Repeats;

use crate::error::Error;
use crate::fairness::ticks;

/// What this process logged lately.
static LOGGED: Repeats = Repeats::new();

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
            None => RawId(bytes).fmt(f),
        }
    }
}

/// A row, or nothing where it cannot be read. Any other error is returned.
pub(crate) fn passed_over<T>(read: Result<T, Error>, what: impl fmt::Display) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::Corrupt(why)) => {
            tell(what, &why);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Fills a page with rows that can be read, from behind a place on. `next` answers at most so many rows behind a place,
/// each with its own place.
pub(crate) fn page<P, T>(
    mut place: P,
    limit: usize,
    mut next: impl FnMut(&P, usize) -> Result<Vec<(P, Option<T>)>, Error>,
) -> Result<Vec<T>, Error> {
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
    if LOGGED.is_new(format!("{what}: {why}"), ticks()) {
        tracing::error!(why, "{what} cannot be read, and is passed over");
    }
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
        assert_eq!(Which::Call(&[9; 3]).to_string(), "090909");
    }

    #[test]
    fn other_trouble_is_not_passed_over() {
        assert_eq!(passed_over(Ok::<_, Error>(1), "x").unwrap(), Some(1));
        assert_eq!(passed_over(Err::<i32, _>(Error::Corrupt("y".to_owned())), "x").unwrap(), None);
        passed_over(Err::<i32, _>(Error::Invalid("y".to_owned())), "x").unwrap_err();
    }
}
