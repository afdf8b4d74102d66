//! Whether what is stored of a job adds up. The checks are functions over rows; only [`job`] asks the
//! store. Nothing is ever changed.

use std::collections::BTreeMap;

use aetheris_api::CheckView;
use aetheris_core::chain::Header;
use aetheris_core::hash::Hash;
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::{LedgerRow, LedgerStatus};
use aetheris_core::state::{Invocation, JobState, StepState};
use aetheris_runtime::ops::{Books, RecordedResult, Refold, Unfolded};
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
fn settled(books: &Result<Books, String>, refold: &Refold) -> CheckView {
    let what = "rows of ledger and effects agree with the events";
    match (&refold.state, books) {
        (Err(Unfolded::Illegal { why, .. }), Ok(_)) => check("ledger", 0, "", vec![why.to_string()]),
        (Err(unreadable @ Unfolded::Unreadable { .. }), _) => {
            check("ledger", 0, "", vec![unreadable.error().to_string()])
        }
        (_, Err(why)) => check("ledger", 0, "", vec![why.clone()]),
        (Ok(state), Ok(books)) => {
            let rows = u64::try_from(books.ledger.len() + books.effects.len()).unwrap_or(u64::MAX);
            check("ledger", rows, what, ledger(state, &books.ledger, &books.effects, &refold.results))
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

/// What the stored bytes of a stream say, event by event: places, payloads, chain, readability.
#[derive(Debug)]
pub struct Chain {
    broken: Vec<String>,
    count: u64,
    gaps: Vec<String>,
    head: Hash,
    job: JobId,
    payloads: Vec<String>,
    seq: u64,
    unreadable: Vec<String>,
}

impl Chain {
    /// Before the first event.
    #[must_use]
    pub fn new(job: JobId) -> Self {
        let none = Vec::new;
        let (broken, gaps, payloads, unreadable) = (none(), none(), none(), none());
        Self { broken, count: 0, gaps, head: Hash::ZERO, job, payloads, seq: 0, unreadable }
    }

    /// Takes in the next stored event.
    pub fn push(&mut self, row: &EventRow) {
        let seq = row.seq;
        if seq != self.seq + 1 {
            self.gaps.push(format!("event {seq} follows event {}", self.seq));
        }
        if Hash::of(&row.payload) != row.payload_hash {
            self.payloads.push(format!("the payload of event {seq} is not what its hash says"));
        }
        if let Err(error) = row.decode() {
            self.unreadable.push(format!("event {seq}: {error}"));
        }
        let header = Header {
            job: self.job,
            seq,
            id: row.id,
            kind: row.kind,
            schema_version: row.schema_version,
            fence: row.fence,
            at: row.at,
            payload_hash: row.payload_hash,
        };
        if header.chain(&self.head) != row.hash {
            self.broken.push(format!("the hash of event {seq} does not follow from its fields and the event before"));
        }
        self.count += 1;
        self.head = row.hash;
        self.seq = seq;
    }

    /// What was found, with the row's own word about the end of the stream.
    #[must_use]
    pub fn checks(self, row: &JobRow) -> Vec<CheckView> {
        let mut head = Vec::new();
        if self.seq != row.seq {
            head.push(format!("the row says that event {} is the last one, the stream ends at {}", row.seq, self.seq));
        }
        if self.head != row.head {
            head.push("the row's head is not the hash of the last event".to_owned());
        }
        vec![
            check("sequence", self.count, "events without gap or repetition", self.gaps),
            check("payloads", self.count, "payloads are what their hashes say", self.payloads),
            check("chain", self.count, "events, each chained to the one before", self.broken),
            check("head", self.seq, "is the last event, by the row and by the stream", head),
            check("readable", self.count, "events can be read", self.unreadable),
        ]
    }
}

/// What calls brought, by permit: the hashes of it.
type Effects = BTreeMap<(IdempotencyKey, u32), Hash>;

/// What ledger and effects say otherwise than the events.
#[must_use]
pub fn ledger(state: &JobState, ledger: &[LedgerRow], effects: &Effects, results: &[RecordedResult]) -> Vec<String> {
    let mut found = Vec::new();
    let rows: BTreeMap<IdempotencyKey, &LedgerRow> = ledger.iter().map(|row| (row.key, row)).collect();
    let called = state.steps.values().filter_map(|step| Some((step, step.invocation.as_ref()?)));
    let called: BTreeMap<IdempotencyKey, (&StepState, &Invocation)> =
        called.map(|(step, call)| (call.key, (step, call))).collect();
    for (step, call) in called.values() {
        match rows.get(&call.key) {
            Some(row) => found.extend(differences((step, call), row, state.status)),
            None => found.push(format!("invocation {} is in the events and not in the ledger", call.key)),
        }
    }
    for row in rows.values() {
        if !called.contains_key(&row.key) {
            found.push(format!("invocation {} is in the ledger and not in the events", row.key));
        }
        let effect = effects.contains_key(&(row.key, row.permit));
        if effect != (row.status == LedgerStatus::Committed) {
            let has = if effect { "has an effect" } else { "has no effect" };
            found.push(format!("invocation {} is {} and {has}", row.key, row.status.as_str()));
        }
    }
    let stray = effects.keys().filter(|(key, _)| !rows.contains_key(key));
    found.extend(stray.map(|(key, _)| format!("the effect of {key} has no row in the ledger")));
    found.extend(results.iter().filter_map(|recorded| other_result(state, effects, recorded)));
    found
}

/// A recorded command whose effect is not the one that was recorded.
fn other_result(state: &JobState, effects: &Effects, recorded: &RecordedResult) -> Option<String> {
    let call = state.steps.get(&recorded.node)?.invocation.as_ref()?;
    let same = effects.get(&(call.key, call.permit)) == Some(&recorded.result_hash);
    (!same).then(|| format!("event {} records another result than the effect of {} has", recorded.seq, call.key))
}

/// What the ledger says otherwise than the events of one invocation, in a job of this status.
fn differences((step, call): (&StepState, &Invocation), row: &LedgerRow, job: JobStatus) -> Vec<String> {
    let mut found = Vec::new();
    if (row.permit, row.permit_id) != (call.permit, call.permit_id) {
        found.push(format!("the ledger is at permit {} of {}, the events at {}", row.permit, call.key, call.permit));
    }
    if row.input_hash != call.input.hash() {
        found.push(format!("the ledger has other arguments of {} than the events", call.key));
    }
    if row.class != call.class || row.deadline != call.deadline {
        found.push(format!("the ledger has another class or deadline of {} than the events", call.key));
    }
    if !step.fits(row.status, row.disproved, job) {
        let disproved = if row.disproved { " and disproved" } else { "" };
        found.push(format!(
            "the ledger has {} as {}{disproved}, the events as {:?} in a step that is {}",
            call.key,
            row.status.as_str(),
            call.phase,
            step.status.as_str()
        ));
    }
    found
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
