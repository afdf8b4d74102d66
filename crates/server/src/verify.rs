//! Whether what is stored of a job adds up: the questions of the check of whole stores, asked of one job, and its replay.
//! Nothing is ever changed.

use aetheris_api::CheckView;
use aetheris_check::calls;
use aetheris_check::stream::{Flaw, Stream};
use aetheris_core::id::JobId;
use aetheris_runtime::ops::{Books, Refold, Unfolded};
use aetheris_runtime::{OpError, Runtime};
use aetheris_store::{ErrorKind, EventRow, JobRow, StoreError};

/// Differences that one check names.
const NAMED_MAX: usize = 5;

/// Verifies a job: its books, and its events up to them. Whatever is written meanwhile is no part of it.
///
/// # Errors
/// No such job, or the store cannot be asked. What it has and cannot be read is a finding instead.
pub async fn job(runtime: &Runtime, job: JobId) -> Result<Vec<CheckView>, OpError> {
    let store = runtime.store.as_ref();
    let mut books = match Books::read(store, &runtime.scope, job).await {
        Ok(books) => Ok(books),
        Err(error) => Err(finding(error)?),
    };
    let (row, mut refold) = match &mut books {
        Ok(books) => (books.row.clone(), Refold::of(books)),
        Err(_) => {
            let row = store.job(runtime.scope.clone(), job).await?.ok_or(OpError::JobNotFound(job))?;
            let refold = Refold::until(job, row.seq);
            (row, refold)
        }
    };
    let mut chain = Chain::new(job);
    refold.read(store, |event| chain.push(event)).await?;
    let mut checks = chain.checks(&row);
    checks.push(replayed(runtime, &books, &refold).await?);
    checks.push(settled(&books, &refold));
    Ok(checks)
}

/// Whether the events fold to what is live.
async fn replayed(runtime: &Runtime, books: &Result<Books, String>, refold: &Refold) -> Result<CheckView, OpError> {
    let books = match books {
        Ok(books) => books,
        Err(why) => return Ok(check("replay", 0, "", vec![why.clone()])),
    };
    let what = "events fold to the state, the row and the timers";
    match runtime.compared(books, refold).await {
        Ok(compared) => {
            let events = refold.state.as_ref().map_or(0, |state| state.seq);
            Ok(check("replay", events, what, compared.differences))
        }
        Err(error) => finding(error).map(|why| check("replay", 0, "", vec![why])),
    }
}

/// Whether ledger and effects say the same as the events.
fn settled(read: &Result<Books, String>, refold: &Refold) -> CheckView {
    let what = "rows of ledger and effects agree with the events";
    match (&refold.state, read) {
        (Err(Unfolded::Illegal { why, .. }), Ok(_)) => check("ledger", 0, "", vec![why.to_string()]),
        (Err(unreadable @ Unfolded::Unreadable { .. }), _) => {
            check("ledger", 0, "", vec![unreadable.error().to_string()])
        }
        (_, Err(why)) => check("ledger", 0, "", vec![why.clone()]),
        (Ok(state), Ok(Books { effects, ledger, .. })) => {
            let rows = u64::try_from(ledger.len() + effects.len()).unwrap_or(u64::MAX);
            let results = refold.results.iter().map(|found| (found.seq, &found.node, found.result_hash));
            let mut found = calls::differences(state, ledger);
            found.extend(calls::of_effects(state, ledger, effects, results));
            check("ledger", rows, what, found)
        }
    }
}

/// What was found, where it is a finding; an error, where the store could not be asked.
fn finding(error: OpError) -> Result<String, OpError> {
    match error {
        OpError::Corrupt(_) | OpError::Store(StoreError { kind: ErrorKind::Corrupt, .. }) => Ok(error.to_string()),
        other => Err(other),
    }
}

fn check(name: &str, count: u64, what: &str, found: Vec<String>) -> CheckView {
    let ok = found.is_empty();
    let detail = if ok {
        format!("{count} {what}")
    } else {
        let more = found.len().saturating_sub(NAMED_MAX);
        let mut text = found.into_iter().take(NAMED_MAX).collect::<Vec<_>>().join("; ");
        if more > 0 {
            text.push_str(&format!("; and {more} more"));
        }
        text
    };
    CheckView { detail, name: name.to_owned(), ok }
}

/// What the stored bytes of a stream say, in the words of the checks.
#[derive(Debug)]
pub struct Chain {
    broken: Vec<String>,
    gaps: Vec<String>,
    stream: Stream,
    payloads: Vec<String>,
    unreadable: Vec<String>,
}

impl Chain {
    /// Before the first event.
    #[must_use]
    pub const fn new(job: JobId) -> Self {
        let none = Vec::new;
        Self { broken: none(), gaps: none(), stream: Stream::new(job), payloads: none(), unreadable: none() }
    }

    /// Takes in the next stored event.
    pub fn push(&mut self, row: &EventRow) {
        for flaw in self.stream.take(row, &row.decode()) {
            let found = match flaw {
                Flaw::Gap(_) => &mut self.gaps,
                Flaw::Payload => &mut self.payloads,
                Flaw::Chain => &mut self.broken,
                Flaw::Unreadable(_) | Flaw::Form => &mut self.unreadable,
            };
            found.push(format!("event {}: {flaw}", row.seq));
        }
    }

    /// What was found, with the row's own word about the end of the stream.
    #[must_use]
    pub fn checks(self, row: &JobRow) -> Vec<CheckView> {
        let mut head = Vec::new();
        if self.stream.seq != row.seq {
            head.push(format!(
                "the row says that event {} is the last one, the stream ends at {}",
                row.seq, self.stream.seq
            ));
        }
        if self.stream.head != row.head {
            head.push("the row's head is not the hash of the last event".to_owned());
        }
        vec![
            check("sequence", self.stream.count, "events without gap or repetition", self.gaps),
            check("payloads", self.stream.count, "payloads are what their hashes say", self.payloads),
            check("chain", self.stream.count, "events, each chained to the one before", self.broken),
            check("head", self.stream.seq, "is the last event, by the row and by the stream", head),
            check("readable", self.stream.count, "events can be read", self.unreadable),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_names_some_of_what_it_found_and_counts_the_others() {
        let found = |count: usize| (1..=count).map(|n| format!("d{n}")).collect::<Vec<_>>();
        let said = |count| {
            let check = check("c", 9, "rows agree", found(count));
            (check.ok, check.detail)
        };
        assert_eq!(said(0), (true, "9 rows agree".to_owned()));
        assert_eq!(said(1), (false, "d1".to_owned()));
        assert_eq!(said(NAMED_MAX), (false, "d1; d2; d3; d4; d5".to_owned()));
        assert_eq!(said(NAMED_MAX + 1), (false, "d1; d2; d3; d4; d5; and 1 more".to_owned()));
        assert_eq!(said(NAMED_MAX + 7), (false, "d1; d2; d3; d4; d5; and 7 more".to_owned()));
    }

    #[test]
    fn what_cannot_be_read_is_a_finding_and_a_store_that_cannot_be_asked_is_none() {
        let store = |kind| OpError::Store(StoreError::new(kind, "read", "x"));
        for error in [OpError::Corrupt("x".to_owned()), store(ErrorKind::Corrupt)] {
            let found = finding(error).unwrap();
            assert!(found.contains('x'), "{found}");
        }
        for kind in [ErrorKind::Unavailable, ErrorKind::Full, ErrorKind::Invalid] {
            finding(store(kind)).unwrap_err();
        }
        finding(OpError::JobNotFound(JobId::from_u128(1))).unwrap_err();
    }
}
