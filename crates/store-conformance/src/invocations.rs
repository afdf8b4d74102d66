//! E6, E8 and E9: effects, evidence and the list of doubts.

use aetheris_core::event::{
    DoubtOutcome, Failure, InvocationOutcome, JobCancelled, Source, StepResult, ToolInvocationFinished,
};
use aetheris_core::id::{JobId, PermitId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::{LedgerRefusal, LedgerStatus, LedgerTrigger};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::EffectClass;
use aetheris_core::state::Invocation;
use aetheris_core::time::Span;

use super::draft::LIFETIME;
use super::fencing::evidence;
use super::{Fixture, Run, snapshot};
use aetheris_store::unit::{NewEffect, Purpose, UnitOfWork};
use aetheris_store::{Asked, DoubtCursor, DoubtFilter, DoubtPage, DoubtRow, EffectRow, Evidence, Refusal, Scope, Told};

fn text(text: &str) -> Json {
    Json::new(serde_json::json!(text))
}

/// A run that has called a tool, and the call.
async fn called(f: &Fixture, class: EffectClass) -> (Run, Invocation) {
    let run = f.running().await;
    let draft = f.of(run, Purpose::Permit).await.call("c", class);
    let invocation = draft.invocation("c");
    f.ok(draft.done()).await;
    (run, invocation)
}

async fn effects(f: &Fixture, run: Run) -> Vec<EffectRow> {
    f.store().history(Scope::System, run.job, false).await.unwrap().unwrap().effects
}

/// A unit that puts an outcome and nothing else.
fn put(f: &Fixture, run: Run, of: &Invocation, result: &str) -> UnitOfWork {
    let mut unit = f.plain(run, Purpose::Record);
    let effect = NewEffect { key: of.key, permit: of.permit, permit_id: of.permit_id, result: text(result) };
    unit.effects.push(effect);
    unit
}

pub async fn e6_an_effect_is_recorded_with_its_events_and_ledger(f: Fixture) {
    let (run, call) = called(&f, EffectClass::AtMostOnce).await;
    f.advance(Span::from_secs(1));
    let at = f.ok(f.of(run, Purpose::Record).await.committed("c", text("paid")).done()).await.at;
    let history = f.store().history(Scope::System, run.job, false).await.unwrap().unwrap();
    assert_eq!(history.effects, [EffectRow { at, key: call.key, permit: 1, result: text("paid") }]);
    assert_eq!(history.ledger[0].status, LedgerStatus::Committed);
}

pub async fn e6_an_effect_put_again_stays_the_first(f: Fixture) {
    let (run, call) = called(&f, EffectClass::AtMostOnce).await;
    f.ok(f.of(run, Purpose::Record).await.committed("c", text("first")).done()).await;
    let before = effects(&f, run).await;
    f.advance(Span::from_secs(1));
    f.ok(put(&f, run, &call, "second")).await;
    assert_eq!(effects(&f, run).await, before);
}

pub async fn e6_an_effect_of_an_older_permit_is_refused(f: Fixture) {
    let (run, first) = called(&f, EffectClass::Idempotent).await;
    f.ok(f.of(run, Purpose::Permit).await.permit("c", EffectClass::Idempotent).done()).await;
    let before = snapshot::of_job(f.store(), run.job).await;
    let expected = LedgerRefusal::OtherPermit { key: first.key, asked: 1, current: 2, status: LedgerStatus::Started };
    assert_eq!(f.refused(put(&f, run, &first, "late")).await, Refusal::Ledger(expected));
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before);
}

pub async fn e6_an_effect_without_an_invocation_is_refused(f: Fixture) {
    let (run, call) = called(&f, EffectClass::AtMostOnce).await;
    let key = aetheris_core::id::IdempotencyKey::from_u128(5);
    let unit = put(&f, run, &Invocation { key, ..call }, "nothing");
    assert_eq!(f.refused(unit).await, Refusal::Ledger(LedgerRefusal::Missing(key)));
}

pub async fn e6_number_and_id_of_the_permit_must_both_fit(f: Fixture) {
    let (run, call) = called(&f, EffectClass::AtMostOnce).await;
    for wrong in
        [Invocation { permit: 2, ..call.clone() }, Invocation { permit_id: PermitId::from_u128(5), ..call.clone() }]
    {
        let refused = f.refused(put(&f, run, &wrong, "wrong")).await;
        assert!(matches!(refused, Refusal::Ledger(LedgerRefusal::OtherPermit { .. })), "{refused:?}");
    }
    assert_eq!(effects(&f, run).await, []);
}

pub async fn e6_the_units_own_permission_counts(f: Fixture) {
    let run = f.running().await;
    let draft = f.of(run, Purpose::Record).await.call("c", EffectClass::AtMostOnce).committed("c", text("at once"));
    f.ok(draft.done()).await;
    assert_eq!(effects(&f, run).await.len(), 1);
}

pub async fn e6_an_effect_of_each_call_is_kept(f: Fixture) {
    let run = f.running().await;
    for node in ["a", "b", "c"] {
        f.ok(f.of(run, Purpose::Permit).await.call(node, EffectClass::AtMostOnce).done()).await;
        f.ok(f.of(run, Purpose::Record).await.committed(node, text(node)).done()).await;
    }
    let mut results: Vec<String> = effects(&f, run).await.iter().map(|row| row.result.to_string()).collect();
    results.sort_unstable();
    assert_eq!(results, ["\"a\"", "\"b\"", "\"c\""]);
}

/// In whatever order they came: the same for everybody who reads them.
pub async fn e6_effects_come_by_call_and_permit_and_the_newest_is_that_of_its_call(f: Fixture) {
    let run = f.running().await;
    let mut expected = Vec::new();
    for (permit, order) in [(1, ["c", "a", "b"]), (2, ["b", "c", "a"]), (3, ["a", "c", "b"])] {
        for node in order {
            let draft = f.of(run, Purpose::Permit).await;
            let draft = if permit == 1 { draft.start(node) } else { draft }.permit(node, EffectClass::Idempotent);
            let call = draft.invocation(node);
            f.ok(draft.done()).await;
            f.advance(Span::from_micros(1));
            let result = format!("{permit} of {node}");
            let at = f.ok(put(&f, run, &call, &result)).await.at;
            expected.push(EffectRow { at, key: call.key, permit, result: text(&result) });
            let newest = f.store().effect(Scope::System, run.job, call.key).await.unwrap();
            assert_eq!(newest.as_ref(), expected.last(), "{result}");
        }
    }
    expected.sort_by_key(|effect| (effect.key, effect.permit));
    for full in [false, true] {
        assert_eq!(f.store().history(Scope::System, run.job, full).await.unwrap().unwrap().effects, expected);
    }
    // Those of a moment belong to it.
    for since in expected.iter().map(|effect| effect.at) {
        let behind = f.store().history_behind(Scope::System, run.job, 0, since).await.unwrap().unwrap();
        let rest: Vec<_> = expected.iter().filter(|effect| effect.at >= since).cloned().collect();
        assert_eq!(behind.effects, rest);
    }
}

/// A unit that puts evidence from outside.
fn deposit(f: &Fixture, run: Run, evidence: Evidence) -> UnitOfWork {
    let mut unit = UnitOfWork::new(f.ids.event(), run.job, Purpose::Deposit, Guard::Outside);
    unit.evidence.push(evidence);
    unit
}

pub async fn e8_evidence_is_kept_once_with_the_stores_time(f: Fixture) {
    let (run, call) = called(&f, EffectClass::AtMostOnce).await;
    let first = Evidence { key: call.key, conflict: true, ..evidence(PermitId::from_u128(1)) };
    let at = f.ok(deposit(&f, run, first.clone())).await.at;
    f.advance(Span::from_secs(1));
    let again = Evidence { outcome: text("other"), conflict: false, ..first.clone() };
    f.ok(deposit(&f, run, again)).await;
    assert_eq!(f.store().evidence(Scope::System, run.job).await.unwrap(), [Evidence { at, ..first }]);
    assert_eq!(effects(&f, run).await, []);
}

pub async fn e8_evidence_comes_in_the_order_it_came(f: Fixture) {
    let (run, _) = called(&f, EffectClass::AtMostOnce).await;
    for permit in [3, 1, 2] {
        f.ok(deposit(&f, run, evidence(PermitId::from_u128(permit)))).await;
        f.advance(Span::from_micros(1));
    }
    let rows = f.store().evidence(Scope::System, run.job).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.permit_id.as_u128()).collect::<Vec<_>>(), [3, 1, 2]);
    // That of one moment keeps an order too.
    for permit in [6, 4, 5] {
        f.ok(deposit(&f, run, evidence(PermitId::from_u128(permit)))).await;
    }
    let rows = f.store().evidence(Scope::System, run.job).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.permit_id.as_u128()).collect::<Vec<_>>(), [3, 1, 2, 4, 5, 6]);
}

pub async fn e8_evidence_of_an_ended_job_is_kept(f: Fixture) {
    let (run, _) = called(&f, EffectClass::AtMostOnce).await;
    f.ok(f.of(run, Purpose::Cancel).await.event(JobCancelled {}).done()).await;
    f.ok(deposit(&f, run, evidence(PermitId::from_u128(1)))).await;
    assert_eq!(f.store().evidence(Scope::System, run.job).await.unwrap().len(), 1);
}

pub async fn e9_doubts_are_listed_until_they_have_an_answer(f: Fixture) {
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(called(&f, EffectClass::AtMostOnce).await.0);
    }
    let jobs = || async { f.store().in_doubt(8).await.unwrap().into_iter().map(|row| row.job).collect::<Vec<_>>() };
    assert_eq!(jobs().await, []);
    for place in [1, 0, 2] {
        f.advance(Span::from_micros(1));
        f.ok(f.of(runs[place], Purpose::Doubt).await.doubt("c").done()).await;
    }
    assert_eq!(jobs().await, [runs[1].job, runs[0].job, runs[2].job]);
    assert_eq!(f.store().in_doubt(1).await.unwrap().len(), 1);
    assert_eq!(f.store().in_doubt(0).await.unwrap(), []);
    f.ok(f.of(runs[0], Purpose::Resolve).await.resolve("c", DoubtOutcome::Happened).done()).await;
    assert_eq!(jobs().await, [runs[1].job, runs[2].job]);
    f.advance(LIFETIME);
    f.ok(f.of(runs[1], Purpose::Resolve).await.resolve("c", DoubtOutcome::DidNotHappen).done()).await;
    assert_eq!(jobs().await, [runs[2].job]);
    f.ok(f.of(runs[2], Purpose::Resolve).await.resolve("c", DoubtOutcome::Unresolved).done()).await;
    assert_eq!(jobs().await, []);
}

pub async fn e9_a_cancelled_jobs_doubt_stays_on_the_list(f: Fixture) {
    let (run, _) = called(&f, EffectClass::AtMostOnce).await;
    f.ok(f.of(run, Purpose::Doubt).await.doubt("c").event(JobCancelled {}).done()).await;
    assert_eq!(f.store().in_doubt(8).await.unwrap().len(), 1);
}

pub async fn e9_what_a_jobs_end_leaves_unresolved_stays_listed(f: Fixture) {
    let (cancelled, _) = called(&f, EffectClass::AtMostOnce).await;
    let (given_up, _) = called(&f, EffectClass::AtMostOnce).await;
    let listed = || async { f.store().unresolved(8).await.unwrap().into_iter().map(|row| row.job).collect::<Vec<_>>() };
    f.ok(f.of(given_up, Purpose::Doubt).await.doubt("c").done()).await;
    assert_eq!(listed().await, []);
    // Its job goes on over it, or will end.
    f.ok(f.of(given_up, Purpose::Record).await.resolve("c", DoubtOutcome::Unresolved).done()).await;
    assert_eq!(listed().await, [given_up.job]);
    f.advance(Span::from_micros(1));
    f.ok(f.of(cancelled, Purpose::Cancel).await.doubt("c").event(JobCancelled {}).done()).await;
    assert_eq!(listed().await, [given_up.job, cancelled.job]);
    f.ok(f.of(given_up, Purpose::Cancel).await.event(JobCancelled {}).done()).await;
    assert_eq!(listed().await, [given_up.job, cancelled.job]);
    assert_eq!(f.store().unresolved(1).await.unwrap().len(), 1);
    // Whatever the end was: a job may complete over a step that was given up.
    let (completed, _) = called(&f, EffectClass::AtMostOnce).await;
    f.advance(Span::from_micros(1));
    f.ok(f.of(completed, Purpose::Doubt).await.doubt("c").done()).await;
    let given_up_too = f.of(completed, Purpose::Record).await.resolve("c", DoubtOutcome::Unresolved);
    f.ok(given_up_too.finish("c", None, StepResult::PermanentFailure).complete().done()).await;
    assert_eq!(listed().await, [given_up.job, cancelled.job, completed.job]);
}

pub async fn e9_other_outcomes_are_no_doubts(f: Fixture) {
    for outcome in
        [InvocationOutcome::RefusedPermanent, InvocationOutcome::RefusedRetryable, InvocationOutcome::NotSent]
    {
        let (run, _) = called(&f, EffectClass::AtMostOnce).await;
        f.ok(f.of(run, Purpose::Record).await.not_done("c", outcome).done()).await;
    }
    assert_eq!(f.store().in_doubt(8).await.unwrap(), []);
}

/// Each of them, whatever is asked for.
pub async fn e9_a_page_of_doubts_is_bounded(f: Fixture) {
    let (run, most) = (f.running().await, limits::PAGE_JOBS_MAX);
    for unit in 0..=most / 25 {
        let mut draft = f.of(run, Purpose::Doubt).await;
        for n in 0..if unit < most / 25 { 25 } else { 1 } {
            let node = format!("n{unit}.{n}");
            draft = draft.call(&node, EffectClass::AtMostOnce).doubt(&node);
        }
        f.ok(draft.done()).await;
    }
    let listed = async |unresolved| {
        let all = DoubtFilter { limit: usize::MAX, unresolved, ..DoubtFilter::default() };
        let page = f.store().doubts(all.clone()).await.unwrap();
        let rest = f.store().doubts(DoubtFilter { after: page.next, ..all }).await.unwrap();
        assert_eq!(page.next.is_some(), !rest.doubts.is_empty() && rest.next.is_none());
        (page.doubts.len(), rest.doubts.len())
    };
    for unresolved in [None, Some(false)] {
        assert_eq!(listed(unresolved).await, (most, 1), "{unresolved:?}");
    }
    assert_eq!(f.store().in_doubt(usize::MAX).await.unwrap().len(), most);
    f.ok(f.of(run, Purpose::Cancel).await.event(JobCancelled {}).done()).await;
    assert_eq!(listed(Some(true)).await, (most, 1));
    assert_eq!(f.store().unresolved(usize::MAX).await.unwrap().len(), most);
}

async fn doubts(f: &Fixture, unresolved: Option<bool>, job: Option<JobId>) -> Vec<DoubtRow> {
    f.store().doubts(DoubtFilter { job, limit: 8, unresolved, ..DoubtFilter::default() }).await.unwrap().doubts
}

/// What the calls of these cases are given.
fn given() -> Option<Json> {
    Some(Json::new(serde_json::json!({ "node": "c" })))
}

pub async fn q8_doubts_say_what_their_history_tells(f: Fixture) {
    let (run, call) = called(&f, EffectClass::AtMostOnce).await;
    let (other, _) = called(&f, EffectClass::AtMostOnce).await;
    let since = f.ok(f.of(run, Purpose::Doubt).await.doubt("c").done()).await.at;
    f.advance(Span::from_secs(1));
    f.ok(f.of(run, Purpose::Doubt).await.asks("c", 1, "the lookup knows nothing").done()).await;
    f.advance(Span::from_secs(1));
    f.ok(f.of(other, Purpose::Doubt).await.doubt("c").done()).await;
    f.ok(deposit(&f, run, evidence(PermitId::from_u128(1)))).await;
    let found = doubts(&f, None, None).await;
    let rows: Vec<_> = found.iter().map(|doubt| (doubt.call.job, doubt.wait.row.id)).collect();
    assert_eq!(rows, [(run.job, run.job), (other.job, other.job)]);
    let asked = Asked { policy: 1, reason: "the lookup knows nothing".to_owned(), since };
    let input = given();
    assert_eq!(found[0].told, Told { asked: Some(asked.clone()), input: input.clone(), ..Told::default() });
    assert_eq!(found[1].told.asked.as_ref().map(|asked| asked.policy), Some(0));
    assert_eq!((found[0].call.key, found[1].evidence.len()), (call.key, 0));
    assert_eq!(doubts(&f, None, Some(run.job)).await, found[..1]);
    assert_eq!(doubts(&f, None, Some(JobId::from_u128(5))).await, []);
    f.ok(f.of(run, Purpose::Cancel).await.resolve("c", DoubtOutcome::Unresolved).event(JobCancelled {}).done()).await;
    let left = doubts(&f, Some(true), None).await;
    let answer = Some(DoubtOutcome::Unresolved);
    assert_eq!(left[0].told, Told { answer, asked: Some(asked), input, unknown: None });
}

/// Of every try that was made, the one whose outcome is unknown now.
pub async fn q8_a_call_that_is_tried_again_says_why_its_outcome_is_unknown(f: Fixture) {
    let (run, _) = called(&f, EffectClass::Idempotent).await;
    let (other, _) = called(&f, EffectClass::Idempotent).await;
    let unheard = async |run: Run, permit: u32, message: Option<&str>| {
        let tried = ToolInvocationFinished {
            error: message.map(|message| Failure::new("timeout", message)),
            node: StepPath::from("c"),
            outcome: InvocationOutcome::InDoubt,
            permit,
            source: Source::Executed,
        };
        f.advance(Span::from_micros(1));
        f.ok(f.of(run, Purpose::Record).await.event(tried).settle("c", LedgerTrigger::Doubt).done()).await;
    };
    let told = async || doubts(&f, None, None).await.into_iter().map(|doubt| doubt.told).collect::<Vec<_>>();
    // Recorded with the first permit, and the same for every further one.
    let says = |message: &str| Told { input: given(), unknown: Some(message.to_owned()), ..Told::default() };
    unheard(run, 1, Some("the connection was lost")).await;
    assert_eq!(told().await, [says("the connection was lost")]);
    unheard(other, 1, Some("no answer came")).await;
    assert_eq!(told().await, [says("the connection was lost"), says("no answer came")]);
    f.ok(f.of(run, Purpose::Permit).await.permit("c", EffectClass::Idempotent).done()).await;
    unheard(run, 2, None).await;
    assert_eq!(told().await, [says("no answer came"), Told { input: given(), ..Told::default() }]);
}

/// The calls of one job are told apart by node and permit, and listed oldest doubt first in whatever order they were made.
pub async fn q8_doubts_of_one_job_are_told_each_by_its_own(f: Fixture) {
    let run = f.running().await;
    for node in ["c", "d", "e"] {
        f.ok(f.of(run, Purpose::Permit).await.call(node, EffectClass::AtMostOnce).done()).await;
    }
    let mut expected = Vec::new();
    for (node, reason) in [("e", "e was lost"), ("c", "c was lost"), ("d", "d was lost")] {
        f.advance(Span::from_micros(1));
        let doubt = f.of(run, Purpose::Doubt).await.asks(node, 0, reason).settle(node, LedgerTrigger::Doubt);
        let (key, since) = (doubt.invocation(node).key, f.ok(doubt.done()).await.at);
        expected.push((key, Some(Asked { policy: 0, reason: reason.to_owned(), since }), None));
    }
    let told = async |filter: DoubtFilter| -> Vec<_> {
        let found = paged(&f, filter).await.into_iter();
        found.map(|doubt| (doubt.call.key, doubt.told.asked, doubt.told.answer)).collect()
    };
    let all = DoubtFilter { limit: 1, ..DoubtFilter::default() };
    for limit in 1..=4 {
        for job in [None, Some(run.job)] {
            assert_eq!(told(DoubtFilter { job, limit, ..all.clone() }).await, expected, "{limit} of {job:?}");
        }
    }
    // What is told of one changes nothing of the others.
    f.ok(f.of(run, Purpose::Doubt).await.asks("c", 1, "the lookup of c knows nothing").done()).await;
    expected[1].1.as_mut().unwrap().policy = 1;
    expected[1].1.as_mut().unwrap().reason = "the lookup of c knows nothing".to_owned();
    f.ok(f.of(run, Purpose::Resolve).await.resolve("d", DoubtOutcome::Unresolved).event(JobCancelled {}).done()).await;
    expected[2].2 = Some(DoubtOutcome::Unresolved);
    let mut left = told(DoubtFilter { job: Some(run.job), unresolved: Some(true), ..all.clone() }).await;
    left.sort_by_key(|(_, asked, _)| asked.as_ref().map(|asked| asked.since));
    assert_eq!(left, expected);
    // So is what came too late for one of them.
    let late = Evidence { key: expected[1].0, ..evidence(PermitId::from_u128(77)) };
    f.ok(deposit(&f, run, late)).await;
    let with: Vec<_> =
        doubts(&f, Some(true), Some(run.job)).await.into_iter().filter(|doubt| !doubt.evidence.is_empty()).collect();
    assert_eq!(with.iter().map(|doubt| doubt.call.key).collect::<Vec<_>>(), [expected[1].0]);
}

pub async fn q8_doubts_are_found_by_whether_their_job_goes_on(f: Fixture) {
    let (ended, _) = called(&f, EffectClass::AtMostOnce).await;
    let (open, _) = called(&f, EffectClass::AtMostOnce).await;
    f.ok(f.of(ended, Purpose::Doubt).await.doubt("c").event(JobCancelled {}).done()).await;
    f.advance(Span::from_micros(1));
    f.ok(f.of(open, Purpose::Doubt).await.doubt("c").done()).await;
    for (unresolved, expected) in
        [(None, vec![ended.job, open.job]), (Some(false), vec![open.job]), (Some(true), vec![ended.job])]
    {
        let jobs = |found: Vec<DoubtRow>| found.into_iter().map(|doubt| doubt.call.job).collect::<Vec<_>>();
        assert_eq!(jobs(doubts(&f, unresolved, None).await), expected, "{unresolved:?}");
        for job in [ended.job, open.job] {
            let of_job: Vec<_> = expected.iter().copied().filter(|listed| *listed == job).collect();
            assert_eq!(jobs(doubts(&f, unresolved, Some(job)).await), of_job, "{unresolved:?}");
        }
    }
    let one = DoubtFilter { limit: 1, ..DoubtFilter::default() };
    assert_eq!(f.store().doubts(one).await.unwrap().doubts.len(), 1);
}

/// A list of doubts, read in pages of so many.
async fn paged(f: &Fixture, mut filter: DoubtFilter) -> Vec<DoubtRow> {
    let mut read: Vec<DoubtRow> = Vec::new();
    loop {
        let page = f.store().doubts(filter.clone()).await.unwrap();
        assert!(page.doubts.len() <= filter.limit);
        read.extend(page.doubts);
        let last = read.last().map(|doubt| DoubtCursor::of(&doubt.call));
        assert!(page.next.is_none() || page.next == last);
        if page.next.is_none() {
            return read;
        }
        filter.after = page.next;
    }
}

pub async fn q8_a_page_of_doubts_ends_by_the_bytes_of_its_evidence(f: Fixture) {
    let mut jobs = Vec::new();
    for place in 0..4_u8 {
        let (run, call) = called(&f, EffectClass::AtMostOnce).await;
        f.ok(f.of(run, Purpose::Doubt).await.doubt("c").done()).await;
        let large = text(&"x".repeat(limits::PAGE_ROWS_BYTES_MAX / 2));
        let late = evidence(PermitId::from_u128(u128::from(place)));
        f.ok(deposit(&f, run, Evidence { key: call.key, outcome: large, ..late })).await;
        f.advance(Span::from_micros(1));
        jobs.push(run.job);
    }
    let all = DoubtFilter { limit: 9, ..DoubtFilter::default() };
    let page = f.store().doubts(all.clone()).await.unwrap();
    let of = |doubts: &[DoubtRow]| doubts.iter().map(|doubt| doubt.call.job).collect::<Vec<_>>();
    assert_eq!((of(&page.doubts), page.next.is_some()), (jobs[..2].to_vec(), true));
    assert_eq!(of(&paged(&f, all).await), jobs);
}

pub async fn q8_doubts_come_in_pages_without_gap_or_repetition(f: Fixture) {
    for place in 0..9_u64 {
        let (run, _) = called(&f, EffectClass::AtMostOnce).await;
        let doubt = f.of(run, Purpose::Doubt).await.doubt("c");
        f.ok(if place.is_multiple_of(3) { doubt.event(JobCancelled {}).done() } else { doubt.done() }).await;
        // Calls of one moment keep an order too.
        f.advance(Span::from_micros(place / 4));
    }
    for (unresolved, count) in [(None, 9), (Some(false), 6), (Some(true), 3)] {
        let whole = DoubtFilter { limit: 99, unresolved, ..DoubtFilter::default() };
        let page = f.store().doubts(whole.clone()).await.unwrap();
        assert_eq!((page.doubts.len(), page.next), (count, None));
        let places: Vec<_> = page.doubts.iter().map(|doubt| DoubtCursor::of(&doubt.call)).collect();
        assert!(places.is_sorted() && places.windows(2).any(|two| two[0].updated_at == two[1].updated_at));
        for limit in 1..=10 {
            assert_eq!(
                paged(&f, DoubtFilter { limit, ..whole.clone() }).await,
                page.doubts,
                "{limit} of {unresolved:?}"
            );
        }
        let first = &page.doubts[0].call;
        let of_job = DoubtFilter { job: Some(first.job), limit: 1, unresolved, ..DoubtFilter::default() };
        assert_eq!(paged(&f, of_job.clone()).await, page.doubts[..1]);
        let behind = DoubtFilter { after: Some(DoubtCursor::of(first)), ..of_job };
        assert_eq!(f.store().doubts(behind).await.unwrap(), DoubtPage::default());
        let after = Some(places[count / 2]);
        let rest = f.store().doubts(DoubtFilter { after, ..whole }).await.unwrap();
        assert_eq!(rest.doubts, page.doubts[count / 2 + 1..]);
    }
    let none = f.store().doubts(DoubtFilter::default()).await.unwrap();
    assert_eq!(none, DoubtPage::default(), "a limit of nothing gives nothing");
}
