//! Calls in doubt as people see them: the ledger's row, and what the job's history tells of the doubt, found from its
//! newest event back and without folding it.

use aetheris_core::event::{DoubtOutcome, Event, EventKind, InvocationOutcome, Recorded};
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::ledger::LedgerRow;
use aetheris_core::limits;
use aetheris_core::time::Timestamp;

use crate::query::{EventRow, Evidence, WaitRow};
use crate::rules;
use crate::scope::Scope;

/// Which doubts are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DoubtFilter {
    /// Behind this place.
    pub after: Option<DoubtCursor>,
    /// Of this job.
    pub job: Option<JobId>,
    /// At most so many; bounded by [`aetheris_core::limits::PAGE_JOBS_MAX`].
    pub limit: usize,
    /// On whose behalf.
    pub scope: Scope,
    /// Those that were given up, or that their job's end has left in doubt; or in doubt in a job that goes on. Without
    /// it, all that are in doubt.
    pub unresolved: Option<bool>,
}

impl DoubtFilter {
    /// Whether a row of the ledger, of a job in this state, is asked for.
    #[must_use]
    pub fn wants(&self, row: &LedgerRow, job: JobStatus) -> bool {
        let listed = match self.unresolved {
            Some(true) => rules::unresolved(row, job),
            Some(false) => rules::in_doubt(row) && !job.is_terminal(),
            None => rules::in_doubt(row),
        };
        listed
            && self.job.is_none_or(|asked| asked == row.job)
            && self.after.is_none_or(|after| after < DoubtCursor::of(row))
    }
}

/// A place in the list of doubts, which has the longest unchanged first and equal moments by key. A row that is changed
/// moves behind all others, so that whoever goes on from a place misses none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DoubtCursor {
    /// When the call's row was last changed.
    pub updated_at: Timestamp,
    /// The call.
    pub key: IdempotencyKey,
}

impl DoubtCursor {
    /// Where a row of the ledger stands.
    #[must_use]
    pub const fn of(row: &LedgerRow) -> Self {
        Self { updated_at: row.updated_at, key: row.key }
    }
}

/// A page of calls in doubt, oldest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DoubtPage {
    /// The calls.
    pub doubts: Vec<DoubtRow>,
    /// The last of them, where there are more behind it.
    pub next: Option<DoubtCursor>,
    bytes: usize,
}

impl DoubtPage {
    /// Whether it has its `limit`, or inputs and late evidence of [`limits::PAGE_ROWS_BYTES_MAX`] bytes: what comes is of the
    /// next page.
    #[must_use]
    pub fn is_full(&self, limit: usize) -> bool {
        self.doubts.len() >= limit.min(limits::PAGE_JOBS_MAX) || self.bytes >= limits::PAGE_ROWS_BYTES_MAX
    }

    /// Takes the next call; of a page that is full it is the next one's: false.
    pub fn take(&mut self, doubt: DoubtRow, limit: usize) -> bool {
        if self.is_full(limit) {
            self.next = self.doubts.last().map(|last| DoubtCursor::of(&last.call));
            return false;
        }
        let late = doubt.evidence.iter().map(|late| &late.outcome);
        self.bytes += late.chain(&doubt.told.input).map(Json::memory).sum::<usize>();
        self.doubts.push(doubt);
        true
    }
}

/// A call in doubt.
#[derive(Debug, Clone, PartialEq)]
pub struct DoubtRow {
    /// The call.
    pub call: LedgerRow,
    /// What arrived for it too late to be its effect.
    pub evidence: Vec<Evidence>,
    /// What its job's history tells of it.
    pub told: Told,
    /// Its job, and since and until when that waits, if it does.
    pub wait: WaitRow,
}

/// What a job's history tells of a doubt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Told {
    /// The answer, if there is one.
    pub answer: Option<DoubtOutcome>,
    /// The doubt itself.
    pub asked: Option<Asked>,
    /// What the call was given.
    pub input: Option<Json>,
    /// Why the outcome is unknown of a try that is made again by itself, about which nobody is asked; for people.
    pub unknown: Option<String>,
}

/// A doubt, as its newest event has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The place in the tool's list of policies that is tried now.
    pub policy: u32,
    /// Why the outcome is unknown, for people.
    pub reason: String,
    /// When the doubt began.
    pub since: Timestamp,
}

impl Told {
    /// The kinds of events that tell of doubts.
    pub const KINDS: [EventKind; 4] = [
        EventKind::ToolInvocationStarted,
        EventKind::ToolInvocationFinished,
        EventKind::StepInDoubt,
        EventKind::InDoubtResolved,
    ];

    /// Takes in an event older than all before. Whether an older one can tell more. One that cannot be read tells
    /// nothing: its call is listed all the same, with what the others tell.
    pub fn take(&mut self, call: &LedgerRow, row: &EventRow) -> bool {
        // What tells of every call may be another's.
        let Ok(Recorded { event, .. }) = row.decode() else { return true };
        if let Event::StepInDoubt(doubt) = &event
            && (&doubt.node, doubt.permit) == (&call.node, call.permit)
        {
            let newest = || Asked { policy: doubt.policy, reason: doubt.reason.clone(), since: row.at };
            self.asked.get_or_insert_with(newest).since = row.at;
        }
        if let Event::InDoubtResolved(answer) = &event
            && (&answer.node, answer.permit) == (&call.node, call.permit)
        {
            self.answer.get_or_insert(answer.outcome);
        }
        if let Event::ToolInvocationFinished(tried) = &event
            && (&tried.node, tried.permit, tried.outcome) == (&call.node, call.permit, InvocationOutcome::InDoubt)
        {
            let said = || tried.error.as_ref().map(|error| error.message.clone());
            self.unknown = self.unknown.take().or_else(said).filter(|_| self.asked.is_none());
        }
        // Recorded with the first permit, and used again by every further one.
        if let Event::ToolInvocationStarted(start) = event
            && start.key == call.key
            && let Some(input) = start.input
        {
            self.input = Some(input);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::event::{
        EncodedEvent, Failure, InDoubtResolved, Resolver, Source, StepInDoubt, ToolInvocationFinished,
        ToolInvocationStarted,
    };
    use aetheris_core::hash::Hash;
    use aetheris_core::id::{EventId, PermitId, ToolName};
    use aetheris_core::lease::Fence;
    use aetheris_core::ledger::LedgerStatus;
    use aetheris_core::path::StepPath;
    use aetheris_core::plan::EffectClass;

    use super::*;

    fn row(seq: u64, event: impl Into<Event>) -> EventRow {
        let encoded = EncodedEvent::new(EventId::from_u128(u128::from(seq)), &event.into());
        EventRow {
            at: Timestamp::from_micros(i64::try_from(seq).unwrap()),
            fence: Fence::default(),
            hash: Hash::ZERO,
            id: encoded.id,
            kind: encoded.kind.code(),
            payload: encoded.payload.clone(),
            payload_hash: encoded.payload_hash,
            schema_version: encoded.schema_version,
            seq,
        }
    }

    fn call() -> LedgerRow {
        LedgerRow {
            boot: None,
            class: EffectClass::AtMostOnce,
            deadline: Timestamp::from_micros(0),
            disproved: false,
            fence: Fence::default(),
            input_hash: Hash::ZERO,
            job: JobId::from_u128(1),
            key: IdempotencyKey::from_u128(1),
            lifetime: None,
            node: StepPath::from("a"),
            permit: 1,
            permit_id: PermitId::from_u128(1),
            seen: None,
            status: LedgerStatus::InDoubt,
            tool: ToolName::from("t"),
            updated_at: Timestamp::from_micros(0),
        }
    }

    #[test]
    fn doubts_are_those_that_were_asked_for() {
        let places = [(4, 9), (5, 0), (5, 1), (5, 2), (6, 0)];
        let row = LedgerRow { updated_at: Timestamp::from_micros(5), ..call() };
        let place =
            |(at, key)| DoubtCursor { updated_at: Timestamp::from_micros(at), key: IdempotencyKey::from_u128(key) };
        let behind: Vec<bool> = places
            .into_iter()
            .map(|at| DoubtFilter { after: Some(place(at)), ..DoubtFilter::default() }.wants(&row, JobStatus::Running))
            .collect();
        assert_eq!(behind, [true, true, false, false, false]);
        for (job, wanted) in [(1, true), (2, false)] {
            let filter = DoubtFilter { job: Some(JobId::from_u128(job)), ..DoubtFilter::default() };
            assert_eq!(filter.wants(&row, JobStatus::Running), wanted);
        }
        for job in JobStatus::ALL {
            for status in LedgerStatus::ALL {
                for disproved in [false, true] {
                    let row = LedgerRow { disproved, status, ..call() };
                    let doubted = status == LedgerStatus::InDoubt && !disproved;
                    let left = (job.is_terminal() && doubted) || status == LedgerStatus::FailedUnresolved;
                    let wants = |unresolved| DoubtFilter { unresolved, ..DoubtFilter::default() }.wants(&row, job);
                    let expected = (doubted, left, doubted && !job.is_terminal());
                    assert_eq!((wants(None), wants(Some(true)), wants(Some(false))), expected, "{job:?} {status:?}");
                }
            }
        }
    }

    /// Whatever a row brings counts: what its call was given, and what came too late.
    #[test]
    fn a_page_of_doubts_ends_by_its_bytes_wherever_they_stand() {
        let text = |bytes: usize| Json::new("x".repeat(bytes).into());
        let (job, _) = crate::query::tests::restored();
        let doubt = |key: u128, input: usize, late: usize| {
            let call = LedgerRow { key: IdempotencyKey::from_u128(key), ..call() };
            let evidence = Evidence {
                at: Timestamp::default(),
                conflict: false,
                key: call.key,
                node: call.node.clone(),
                outcome: text(late),
                permit: 1,
                permit_id: call.permit_id,
            };
            let (told, since) = (Told { input: Some(text(input)), ..Told::default() }, Timestamp::default());
            let wait = WaitRow { deadline: None, row: job.clone(), since };
            DoubtRow { call, evidence: vec![evidence], told, wait }
        };
        let (all, half) = (limits::PAGE_ROWS_BYTES_MAX, limits::PAGE_ROWS_BYTES_MAX / 2);
        for (input, late, limit, taken) in
            [(all, 0, 9, 1), (0, all, 9, 1), (half, half, 9, 1), (half, 0, 9, 2), (0, half, 9, 2), (0, 0, 3, 3)]
        {
            let mut page = DoubtPage::default();
            let keys: Vec<u128> = (1..9).take_while(|key| page.take(doubt(*key, input, late), limit)).collect();
            assert_eq!(keys.len(), taken, "{input} and {late} bytes, at most {limit}");
            let last = page.doubts.last().map(|last| DoubtCursor::of(&last.call));
            assert_eq!((page.next, page.doubts.len()), (last, taken));
        }
    }

    /// An answer, or an outcome that is not known, of another permit or node says nothing of this call.
    #[test]
    fn what_is_told_of_another_call_is_not_told_of_this_one() {
        let call = LedgerRow { permit: 2, ..call() };
        let node = |name: &str| StepPath::from(name);
        let answer = |name: &str, permit| InDoubtResolved {
            by: Resolver::Operator,
            grounds: None,
            node: node(name),
            note: None,
            outcome: DoubtOutcome::DidNotHappen,
            permit,
            result: None,
            settle_us: None,
            then: None,
        };
        let doubt = |name: &str, permit| StepInDoubt { node: node(name), permit, policy: 0, reason: "why".to_owned() };
        let tried = |name: &str, permit, outcome| ToolInvocationFinished {
            error: Some(Failure::new("code", "no answer")),
            node: node(name),
            outcome,
            permit,
            source: Source::Executed,
        };
        let (unknown, refused) = (InvocationOutcome::InDoubt, InvocationOutcome::RefusedRetryable);
        let mut told = Told::default();
        for other in [
            row(9, answer("a", 1)),
            row(8, answer("b", 2)),
            row(7, doubt("a", 1)),
            row(6, doubt("b", 2)),
            row(5, tried("a", 1, unknown)),
            row(4, tried("b", 2, unknown)),
            row(3, tried("a", 2, refused)),
        ] {
            assert!(told.take(&call, &other));
            assert_eq!(told, Told::default(), "{other:?}");
        }
        assert!(told.take(&call, &row(2, tried("a", 2, unknown))));
        assert_eq!(told.unknown.as_deref(), Some("no answer"));
        // Where somebody is asked, that is told instead.
        let mut told = Told::default();
        assert!(told.take(&call, &row(3, doubt("a", 2))) && told.take(&call, &row(2, tried("a", 2, unknown))));
        assert_eq!((told.unknown, told.asked.map(|asked| asked.reason)), (None, Some("why".to_owned())));
    }

    /// Between the answer and the beginning of a doubt, and behind both: whichever kind cannot be read, what the others
    /// tell is told.
    #[test]
    fn an_event_that_cannot_be_read_hides_nothing_that_others_tell() {
        let (node, call) = (StepPath::from("a"), call());
        let doubt = |policy| StepInDoubt { node: node.clone(), permit: 1, policy, reason: format!("policy {policy}") };
        let answer = InDoubtResolved {
            by: Resolver::Operator,
            grounds: None,
            node: node.clone(),
            note: None,
            outcome: DoubtOutcome::Unresolved,
            permit: 1,
            result: None,
            settle_us: None,
            then: None,
        };
        let asked = Asked { policy: 1, reason: "policy 1".to_owned(), since: Timestamp::from_micros(2) };
        let input = Some(Json::new(serde_json::json!({ "order": 7 })));
        let start = ToolInvocationStarted {
            effect: EffectClass::AtMostOnce,
            input: input.clone(),
            key: call.key,
            lifetime_us: 1,
            node: node.clone(),
            permit: 1,
            permit_id: call.permit_id,
            tool: call.tool.clone(),
            tool_version: None,
        };
        let expected = Told { answer: Some(DoubtOutcome::Unresolved), asked: Some(asked), input, unknown: None };
        for kind in Told::KINDS {
            let broken = |seq| EventRow { kind: kind.code(), payload: b"{".to_vec(), ..row(seq, doubt(0)) };
            let newest_first = [
                broken(7),
                row(6, answer.clone()),
                broken(5),
                row(4, doubt(1)),
                row(2, doubt(0)),
                row(1, start.clone()),
                broken(0),
            ];
            let mut told = Told::default();
            let read: Vec<u64> =
                newest_first.iter().map_while(|row| told.take(&call, row).then_some(row.seq)).collect();
            assert_eq!(told, expected, "{kind:?}");
            assert_eq!(read, [7, 6, 5, 4, 2], "nothing is older than the beginning of the call");
        }
    }
}
