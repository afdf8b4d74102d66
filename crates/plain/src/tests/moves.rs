//! D1, move by move: which events may follow which. Both checkers come to the same.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_check::Invariant::D1;
use aetheris_core::disproof::Grounds;
use aetheris_core::event::*;
use aetheris_core::hash::Hash;
use aetheris_core::id::{EventId, JobId};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, OnParentEnd, WaitType};
use aetheris_core::state::JobState;
use aetheris_core::time::Timestamp;
use rusqlite::params;

use super::look;
use super::story::{self, Story, Told, claimed, finished, node_finished, permit, waiting};
use crate::Evidence;

/// A history from its events: each claim begins an epoch, and each event is of a moment of its own.
fn history(events: &[Event]) -> Story {
    let (mut epoch, mut told) = (0, Vec::new());
    for (at, event) in (10..).zip(events) {
        let mut event = event.clone();
        if matches!(event, Event::JobClaimed(_)) {
            epoch += 1;
            event = claimed(epoch).into();
        }
        told.push(Told { at, epoch, event });
    }
    Story { events: told, ..story::whole() }
}

async fn judged(what: &str, events: &[Event], legal: bool) {
    let checked = look(&history(events), &[]).await;
    let (rust, sql) = (checked.violated(D1) == 0, checked.sql[&D1].violated == 0);
    assert_eq!((rust, sql), (legal, legal), "{what}: {:?}\n{}", checked.sql[&D1], checked.rust);
}

/// How a story goes on from a moment, and whether that may be.
type Case = (&'static str, fn() -> Vec<Event>, bool);

fn paused() -> Event {
    JobPaused { reason: PauseReason::Operator }.into()
}

fn restored() -> Event {
    JobPaused { reason: PauseReason::Restored }.into()
}

fn asked() -> Event {
    JobPauseRequested {}.into()
}

fn resumed() -> Event {
    JobResumed {}.into()
}

fn claim() -> Event {
    claimed(0).into()
}

fn failed() -> Event {
    let error = Failure::new("a", "b");
    JobFailed { error, node: None }.into()
}

fn started(number: u32) -> Event {
    NodeStarted::new("pay", number).into()
}

fn again() -> Event {
    let error = Failure::new("a", "b");
    NodeRetryScheduled { after_us: 1, error, model: None, node: StepPath::from("pay") }.into()
}

fn over() -> Event {
    WaitCompleted { by: WaitEnd::Time, node: StepPath::from("ask") }.into()
}

fn misfit(key: &str) -> Event {
    SignalRefused {
        correlation_key: key.to_owned(),
        node: StepPath::from("ask"),
        payload_hash: story::result().hash(),
        signal: aetheris_core::id::SignalId::from_u128(9),
        violations: Vec::new(),
    }
    .into()
}

fn ended(result: StepResult) -> Event {
    let failed = !result.is_success();
    let error = failed.then(|| Failure::new("a", "b"));
    NodeFinished { error, ..node_finished("pay", result) }.into()
}

fn resolved(by: Resolver, outcome: DoubtOutcome) -> Event {
    let happened = outcome == DoubtOutcome::Happened;
    InDoubtResolved {
        note: None,
        by,
        grounds: (outcome == DoubtOutcome::DidNotHappen).then_some(Grounds::Clock),
        node: StepPath::from("pay"),
        outcome,
        permit: 1,
        result: happened.then(story::result),
        settle_us: None,
        then: None,
    }
    .into()
}

/// Each is the story of a job that was just made.
const JOBS: &[Case] = &[
    ("claimed", || vec![claim()], true),
    ("held still, and not claimed", || vec![paused(), claim()], false),
    ("held still twice", || vec![paused(), paused()], false),
    ("set going that was not held still", || vec![resumed()], false),
    ("held still and set going", || vec![paused(), resumed(), claim()], true),
    ("held still, failed", || vec![paused(), failed()], true),
    ("held still, cancelled", || vec![paused(), JobCancelled {}.into()], true),
    ("held still, cancelled, set going", || vec![paused(), JobCancelled {}.into(), resumed()], false),
    ("a pause is asked for of nobody", || vec![asked()], false),
    ("a pause is asked for twice", || vec![claim(), asked(), asked()], false),
    ("a holder pauses unasked", || vec![claim(), paused()], false),
    ("a holder pauses when asked", || vec![claim(), asked(), paused(), resumed(), claim()], true),
    (
        "what was asked of one holder is not asked of the next",
        || vec![claim(), asked(), paused(), resumed(), claim(), paused()],
        false,
    ),
    ("a restored job has no holder", || vec![claim(), restored(), resumed(), claim()], true),
];

/// Each is the story of a job that waits for the key `k`.
const WAITS: &[Case] = &[
    ("it ends", || vec![over(), claim()], true),
    ("it ends twice", || vec![over(), over()], false),
    ("it is claimed", || vec![claim()], false),
    ("it is held still, ends, is set going", || vec![paused(), over(), resumed(), claim()], true),
    ("it is held still, ends, is claimed", || vec![paused(), over(), claim()], false),
    ("it is held still and set going, and waits", || vec![paused(), resumed(), claim()], false),
    ("it is held still and set going, and ends", || vec![paused(), resumed(), over(), claim()], true),
    ("it is held still and ends twice", || vec![paused(), over(), over()], false),
    ("a kept signal does not fit", || vec![misfit("k"), over()], true),
    ("a kept signal does not fit while it is held still", || vec![paused(), misfit("k")], true),
    ("one of another key", || vec![misfit("j")], false),
    ("one after the end", || vec![over(), misfit("k")], false),
];

/// Each is the story of a step that has just started.
const STEPS: &[Case] = &[
    ("it fails", || vec![ended(StepResult::PermanentFailure)], true),
    ("it starts again unannounced", || vec![started(2)], false),
    ("another try", || vec![again(), started(2)], true),
    ("another try is announced twice", || vec![again(), again()], false),
    (
        "another try is announced, and its budget is used up",
        || vec![again(), ended(StepResult::PermanentFailure)],
        true,
    ),
    ("another try is announced, and it succeeds without it", || vec![again(), ended(StepResult::Pure)], false),
    (
        "another try is announced, and it is skipped",
        || vec![again(), NodeSkipped { node: StepPath::from("pay"), reason: SkipReason::Condition }.into()],
        false,
    ),
];

/// Each is the story of a call whose outcome is unknown and waits for a person.
const DOUBTS: &[Case] = &[
    ("it happened", || vec![resolved(Resolver::Operator, DoubtOutcome::Happened), claim()], true),
    (
        "it did not",
        || vec![resolved(Resolver::Operator, DoubtOutcome::DidNotHappen), again(), claim(), started(2)],
        true,
    ),
    (
        "it did not, the budget is used up",
        || {
            let no = resolved(Resolver::Operator, DoubtOutcome::DidNotHappen);
            vec![no, again(), claim(), ended(StepResult::PermanentFailure)]
        },
        true,
    ),
    (
        "it did not, while the job is held still",
        || vec![paused(), resolved(Resolver::Operator, DoubtOutcome::DidNotHappen), again(), resumed(), claim()],
        true,
    ),
    (
        "it did not, while the job is held still, and is claimed",
        || vec![paused(), resolved(Resolver::Operator, DoubtOutcome::DidNotHappen), again(), claim()],
        false,
    ),
    (
        "it did not, and then it did",
        || {
            let no = resolved(Resolver::Operator, DoubtOutcome::DidNotHappen);
            vec![no, again(), resolved(Resolver::LateDeposit, DoubtOutcome::Happened), claim()]
        },
        true,
    ),
    (
        "it did not, and then a person says that it did",
        || {
            let no = resolved(Resolver::Operator, DoubtOutcome::DidNotHappen);
            vec![no, again(), resolved(Resolver::Operator, DoubtOutcome::Happened)]
        },
        false,
    ),
    (
        "the job ends, and then a person answers",
        || vec![JobCancelled {}.into(), resolved(Resolver::Operator, DoubtOutcome::Happened)],
        true,
    ),
    (
        "the job ends, and then a policy answers",
        || vec![JobCancelled {}.into(), resolved(Resolver::Policy, DoubtOutcome::Unresolved)],
        false,
    ),
];

async fn all(before: &[Event], cases: &[Case]) {
    for (what, then, legal) in cases {
        let events: Vec<Event> = before.iter().cloned().chain(then()).collect();
        judged(what, &events, *legal).await;
    }
}

fn made() -> Vec<Event> {
    vec![story::created().into(), story::planned().into()]
}

fn in_step() -> Vec<Event> {
    [made(), vec![claim(), started(1)]].concat()
}

#[tokio::test]
async fn of_a_job() {
    all(&made(), JOBS).await;
}

#[tokio::test]
async fn of_a_wait() {
    let ask = NodeStarted::new("ask", 1).into();
    let wait = waiting("ask", Some("k"), WaitType::Signal).into();
    all(&[made(), vec![claim(), ask, wait]].concat(), WAITS).await;
}

#[tokio::test]
async fn of_a_step() {
    all(&in_step(), STEPS).await;
}

fn in_doubt() -> Vec<Event> {
    let doubt = StepInDoubt { node: StepPath::from("pay"), permit: 1, policy: 0, reason: "a".to_owned() }.into();
    let wait = JobWaiting { doubt: true, ..waiting("pay", None, WaitType::Human) }.into();
    [in_step(), vec![permit(1).into(), doubt, wait]].concat()
}

#[tokio::test]
async fn of_a_doubt() {
    all(&in_doubt(), DOUBTS).await;
}

/// What comes of a disproof is written with it. Only the second checker sees that: the state of the first is the same.
#[tokio::test]
async fn another_try_is_announced_with_what_it_follows_from() {
    let no = resolved(Resolver::Operator, DoubtOutcome::DidNotHappen);
    let checked = look(&history(&[in_doubt(), vec![no, paused(), again()]].concat()), &[]).await;
    assert_eq!((checked.violated(D1), checked.sql[&D1].violated), (0, 1));
}

/// A kind of event that the table does not know would be one that no history may have.
#[test]
fn the_table_knows_every_kind_of_event() {
    let (_, table) = include_str!("../../sql/d1.sql").split_once("SELECT job || ' ' || seq AS place").unwrap();
    for kind in EventKind::ALL {
        assert!(table.contains(&format!("WHEN '{}' THEN", kind.as_str())), "{}", kind.as_str());
    }
}

/// Writes a history as the events of a job; whether the reducer takes all of it.
fn write(evidence: &Evidence, job: &str, events: &[Event]) -> bool {
    let (mut state, mut takes) = (JobState::new(story::JOB), true);
    for (seq, told) in (1..).zip(history(events).events) {
        let encoded = EncodedEvent::new(EventId::from_u128(u128::from(seq)), &told.event);
        let payload = std::str::from_utf8(&encoded.payload).unwrap();
        let row = params![job, i64::try_from(seq).unwrap(), told.event.kind().as_str(), told.at, payload];
        let insert = "INSERT INTO events (job, seq, kind, at, payload) VALUES (?1, ?2, ?3, ?4, ?5)";
        evidence.tables().prepare_cached(insert).unwrap().execute(row).unwrap();
        let (at, fence) = (Timestamp::from_micros(told.at), Fence { generation: 1, epoch: told.epoch });
        let recorded = Recorded { seq, id: encoded.id, fence, at, hash: Hash::ZERO, event: told.event };
        takes = takes && state.replay(&recorded).is_ok();
    }
    takes
}

/// Every event behind every moment: where the reducer takes it, the query does, and where not, not. The reducer alone does
/// not ask that what comes of a disproof is written with it.
#[test]
fn both_tables_agree_about_every_event_at_every_moment() {
    let (evidence, mut takes) = (Evidence::new().unwrap(), BTreeMap::new());
    for (moment, before) in moments().into_iter().chain(moments_of_rounds().into_iter().chain(moments_of_children())) {
        assert!(write(&evidence, moment, &before), "{moment}");
        takes.insert(moment.to_owned(), true);
        for event in every_event() {
            let job = format!("{moment} | {event:?}");
            let events: Vec<Event> = before.iter().cloned().chain([event]).collect();
            takes.insert(job.clone(), write(&evidence, &job, &events));
        }
    }
    let query =
        format!("SELECT DISTINCT place FROM (\n{}\n) WHERE violation IS NOT NULL", include_str!("../../sql/d1.sql"));
    let mut refused = evidence.tables().prepare(&query).unwrap();
    let places = refused.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let refused: BTreeSet<String> = places.map(|place| place.unwrap().rsplit_once(' ').unwrap().0.to_owned()).collect();
    assert!(takes.len() > 1_000 && refused.len() > 500, "{} of {}", refused.len(), takes.len());
    let late = |job: &str| job.starts_with("disproved, again | NodeFinished") && !job.contains("Pure");
    let differ: Vec<_> = takes.iter().filter(|(job, takes)| **takes == refused.contains(*job) && !late(job)).collect();
    assert!(differ.is_empty(), "{} differ, and whether the reducer takes them: {differ:#?}", differ.len());
}

fn retrying() -> Event {
    JobRequeued { after_us: Some(5), reason: RequeueReason::Retry }.into()
}

fn doubt_waits() -> Event {
    JobWaiting { doubt: true, ..waiting("pay", None, WaitType::Human) }.into()
}

/// A job that is blocked on the doubt about `pay`, and on the wait `ask` beside it.
fn two_waits() -> Vec<Event> {
    let doubt = StepInDoubt { node: StepPath::from("pay"), permit: 1, policy: 0, reason: "a".to_owned() }.into();
    let ask = NodeStarted::new("ask", 1).into();
    let beside = vec![permit(1).into(), doubt, ask, doubt_waits(), waiting("ask", Some("k"), WaitType::Signal).into()];
    [in_step(), beside].concat()
}

fn started_at(path: &str) -> Event {
    NodeStarted::new(path, 1).into()
}

fn gave(path: &str, verdict: Verdict) -> Event {
    NodeFinished { verdict: Some(verdict), ..node_finished(path, StepResult::Pure) }.into()
}

fn refining(path: &str, round: u32) -> Event {
    NodeRefining { by: Judge::Critic, feedback: "no".to_owned(), node: StepPath::from(path), round }.into()
}

/// The output of `ask` is judged, and then.
fn in_rounds(verdict: Verdict, then: &[Event]) -> Vec<Event> {
    [made(), vec![claim(), started_at("ask"), gave("ask", verdict)], then.to_vec()].concat()
}

fn moments_of_rounds() -> Vec<(&'static str, Vec<Event>)> {
    vec![
        ("an output is judged", in_rounds(Verdict::Pending, &[])),
        ("a critic is asked", in_rounds(Verdict::Pending, &[started_at("ask/critic")])),
        (
            "a critic has rejected",
            in_rounds(Verdict::Pending, &[started_at("ask/critic"), gave("ask/critic", Verdict::Reject)]),
        ),
        (
            "a critic has passed",
            in_rounds(Verdict::Pending, &[started_at("ask/critic"), gave("ask/critic", Verdict::Pass)]),
        ),
        ("a round is due", in_rounds(Verdict::Reject, &[refining("ask", 1)])),
        ("in a round", in_rounds(Verdict::Reject, &[refining("ask", 1), started_at("ask@1")])),
        (
            "a round is judged",
            in_rounds(Verdict::Reject, &[refining("ask", 1), started_at("ask@1"), gave("ask@1", Verdict::Pending)]),
        ),
        ("a further round is due", {
            let rejected = gave("ask@1", Verdict::Reject);
            in_rounds(Verdict::Reject, &[refining("ask", 1), started_at("ask@1"), rejected, refining("ask", 2)])
        }),
    ]
}

fn asks_child(node: &str, waits: bool) -> Event {
    ChildStarted {
        agent: "other".into(),
        agent_version: "1".to_owned(),
        child: JobId::from_u128(7),
        deadline_us: None,
        depth: 1,
        message: Json::null(),
        node: node.into(),
        on_parent_end: OnParentEnd::Cancel,
        plan_hash: Hash::ZERO,
        planner: "static".to_owned(),
        session: None,
        sessions: Vec::new(),
        parent_deadline: None,
        waits,
    }
    .into()
}

fn child_ended(node: &str) -> Event {
    ChildEnded { child: JobId::from_u128(7), node: node.into(), outcome: ChildOutcome::Cancelled }.into()
}

fn waits_for_child() -> Event {
    waiting("ask", None, WaitType::Child).into()
}

fn moments_of_children() -> Vec<(&'static str, Vec<Event>)> {
    let of = |then: &[Event]| [made(), vec![claim(), started_at("ask")], then.to_vec()].concat();
    let asked_for = || asks_child("ask", true);
    let cancel = JobCancelRequested { cause: EndCause::Cancel }.into();
    vec![
        ("a child is asked for", of(&[asked_for()])),
        ("a child is not waited for", of(&[asks_child("ask", false)])),
        ("a child is asked for, and a cancel", of(&[asked_for(), cancel])),
        ("a child is asked for, and it is requeued", of(&[asked_for(), requeued()])),
        ("a child is asked for, and it is paused", of(&[asked_for(), asked(), paused()])),
        ("a child has ended before it was waited for", of(&[asked_for(), child_ended("ask")])),
        ("a child is waited for", of(&[asked_for(), waits_for_child()])),
        ("a child is waited for, paused", of(&[asked_for(), waits_for_child(), paused()])),
        ("a child has ended", of(&[asked_for(), waits_for_child(), child_ended("ask")])),
        ("a child has ended, claimed", of(&[asked_for(), waits_for_child(), child_ended("ask"), claim()])),
        ("a child has ended, paused", of(&[asked_for(), waits_for_child(), paused(), child_ended("ask")])),
    ]
}

fn moments() -> Vec<(&'static str, Vec<Event>)> {
    let waits = |node: &str| {
        let start = NodeStarted::new(node, 1).into();
        [made(), vec![claim(), start, waiting(node, Some("k"), WaitType::Signal).into()]].concat()
    };
    let cancel = || JobCancelRequested { cause: EndCause::Cancel }.into();
    let no = || resolved(Resolver::Operator, DoubtOutcome::DidNotHappen);
    let and = |before: Vec<Event>, then: Vec<Event>| [before, then].concat();
    let skipped = NodeSkipped { node: StepPath::from("pay"), reason: SkipReason::Condition }.into();
    vec![
        ("nothing", Vec::new()),
        ("made", made()),
        ("claimed", and(made(), vec![claim()])),
        ("paused", and(made(), vec![paused()])),
        ("requeued", and(made(), vec![claim(), requeued()])),
        ("a pause is asked for", and(in_step(), vec![asked()])),
        ("a cancel is asked for", and(in_step(), vec![cancel()])),
        ("a pause, then a cancel", and(in_step(), vec![asked(), cancel()])),
        ("in a step", in_step()),
        ("called", and(in_step(), vec![permit(1).into()])),
        ("called, which may be repeated", and(in_step(), vec![idempotent(1).into()])),
        ("called, and a cancel is asked for", and(in_step(), vec![permit(1).into(), cancel()])),
        ("answered", and(in_step(), vec![permit(1).into(), finished(InvocationOutcome::Committed).into()])),
        ("refused", and(in_step(), vec![permit(1).into(), finished(InvocationOutcome::RefusedRetryable).into()])),
        ("retrying", and(in_step(), vec![again()])),
        ("a step has ended", and(in_step(), vec![ended(StepResult::Pure)])),
        ("a step has failed", and(in_step(), vec![ended(StepResult::PermanentFailure)])),
        ("a step was skipped", and(made(), vec![claim(), skipped])),
        ("waiting", waits("ask")),
        ("waiting, paused", and(waits("ask"), vec![paused()])),
        ("waited", and(waits("ask"), vec![over()])),
        ("waited, and in the next step", and(waits("ask"), vec![over(), claim(), started(1)])),
        ("in doubt", and(in_step(), vec![permit(1).into(), in_doubt().remove(in_step().len() + 1)])),
        ("a person is asked", in_doubt()),
        ("a person is asked, paused", and(in_doubt(), vec![paused()])),
        ("disproved", and(in_doubt(), vec![no()])),
        ("disproved, again", and(in_doubt(), vec![no(), again()])),
        ("disproved, again, claimed", and(in_doubt(), vec![no(), again(), claim()])),
        ("two waits", two_waits()),
        ("two waits, paused", and(two_waits(), vec![paused()])),
        ("two waits, paused, one over", and(two_waits(), vec![paused(), over()])),
        ("two waits, paused, one over, set going", and(two_waits(), vec![paused(), over(), resumed()])),
        ("two waits, one over", and(two_waits(), vec![over()])),
        ("two waits, one answered", and(two_waits(), vec![resolved(Resolver::Operator, DoubtOutcome::Happened)])),
        ("two waits, one over, claimed", and(two_waits(), vec![over(), claim()])),
        ("two waits, one over, claimed, paused", and(two_waits(), vec![over(), claim(), asked(), paused()])),
        ("two waits, one over, claimed, paused, set going", {
            and(two_waits(), vec![over(), claim(), asked(), paused(), resumed()])
        }),
        ("two waits, one over, claimed, waiting again", and(two_waits(), vec![over(), claim(), doubt_waits()])),
        ("two waits, and a try is due", and(two_waits(), vec![retrying()])),
        ("two waits, and a try is due, claimed", and(two_waits(), vec![retrying(), claim()])),
        ("two waits, and the job is cancelled", and(two_waits(), vec![JobCancelled {}.into()])),
        ("completed", and(in_step(), vec![ended(StepResult::Pure), completed()])),
        ("failed", and(in_step(), vec![failed()])),
        ("cancelled in doubt", and(in_doubt(), vec![JobCancelled {}.into()])),
    ]
}

fn rate_limited() -> Event {
    JobRequeued { after_us: Some(5), reason: RequeueReason::RateLimited }.into()
}

fn waited(node: &str, by: WaitEnd) -> Event {
    WaitCompleted { by, node: StepPath::from(node) }.into()
}

fn every_event() -> Vec<Event> {
    let mut all = vec![
        story::created().into(),
        story::planned().into(),
        claim(),
        requeued(),
        retrying(),
        rate_limited(),
        waiting("ask", Some("k"), WaitType::Signal).into(),
        waiting("ask", Some("k"), WaitType::Human).into(),
        paused(),
        restored(),
        asked(),
        resumed(),
        failed(),
        completed(),
        JobCancelled {}.into(),
        JobCancelRequested { cause: EndCause::Cancel }.into(),
        JobCancelRequested { cause: EndCause::Deadline }.into(),
        NodeStarted::new("ask", 1).into(),
        started(1),
        started(2),
        again(),
        over(),
        waited("pay", WaitEnd::Time),
        misfit("k"),
        misfit("j"),
        permit(1).into(),
        permit(2).into(),
        idempotent(2).into(),
        NodeSkipped { node: StepPath::from("pay"), reason: SkipReason::Condition }.into(),
        waiting("pay", Some("k"), WaitType::Signal).into(),
        JobWaiting { doubt: true, ..waiting("pay", None, WaitType::Human) }.into(),
        JobWaiting { doubt: true, ..waiting("ask", None, WaitType::Human) }.into(),
        StepInDoubt { node: StepPath::from("pay"), permit: 1, policy: 0, reason: "a".to_owned() }.into(),
        CommandCommitted { node: StepPath::from("pay"), result_hash: story::result().hash() }.into(),
        StepInDoubt { node: StepPath::from("pay"), permit: 2, policy: 0, reason: "a".to_owned() }.into(),
        ToolInvocationFinished { permit: 7, ..finished(InvocationOutcome::Committed) }.into(),
        TimerSet { after_us: 1, timer: TimerId::Deadline }.into(),
        waiting("pay", Some("other"), WaitType::Signal).into(),
        ValueRecorded { node: StepPath::from("pay"), values: vec![Drawn::uuid(7)] }.into(),
        started_at("ask@1"),
        asks_child("ask", true),
        asks_child("pay", false),
        child_ended("ask"),
        child_ended("pay"),
        waits_for_child(),
        started_at("ask/critic"),
        NodeSkipped { node: StepPath::from("ask@1"), reason: SkipReason::Condition }.into(),
    ];
    all.extend(OUTCOMES.map(|outcome| finished(outcome).into()));
    for result in [StepResult::Pure, StepResult::RetryableFailure, StepResult::PermanentFailure] {
        all.push(ended(result));
        let other = NodeFinished { node: StepPath::from("ask"), ..node_finished("pay", result) };
        all.push(other.into());
    }
    for (path, round) in [("ask", 1), ("ask", 2), ("ask@1", 1)] {
        all.push(refining(path, round));
    }
    for path in ["ask", "ask@1", "ask/critic"] {
        for verdict in [Verdict::Pass, Verdict::Pending, Verdict::Reject] {
            all.push(gave(path, verdict));
        }
    }
    all.extend(["pay", "ask"].map(|node| waited(node, WaitEnd::Dropped)));
    for by in [Resolver::Operator, Resolver::Policy, Resolver::Reconcile, Resolver::LateDeposit] {
        all.extend(DoubtOutcome::ALL.map(|outcome| resolved(by, outcome)));
        all.push(of_permit(9, resolved(by, DoubtOutcome::Happened)));
    }
    nothing_is_missing(&all);
    all
}

/// Of a timer that fires E6 asks whether it was set.
fn nothing_is_missing(all: &[Event]) {
    let drawn: BTreeSet<EventKind> = all.iter().map(Event::kind).collect();
    let missing: Vec<_> = EventKind::ALL.iter().copied().filter(|kind| !drawn.contains(kind)).collect();
    assert_eq!(missing, [EventKind::TimerFired]);
}

const OUTCOMES: [InvocationOutcome; 5] = [
    InvocationOutcome::Committed,
    InvocationOutcome::InDoubt,
    InvocationOutcome::NotSent,
    InvocationOutcome::RefusedPermanent,
    InvocationOutcome::RefusedRetryable,
];

/// An answer about another permit.
fn of_permit(permit: u32, event: Event) -> Event {
    match event {
        Event::InDoubtResolved(resolved) => InDoubtResolved { permit, ..resolved }.into(),
        other => other,
    }
}

fn idempotent(number: u32) -> ToolInvocationStarted {
    ToolInvocationStarted { effect: EffectClass::Idempotent, ..permit(number) }
}

fn requeued() -> Event {
    JobRequeued { after_us: None, reason: RequeueReason::Retry }.into()
}

fn completed() -> Event {
    JobCompleted { answer: Answer::Value(aetheris_core::json::Json::null()) }.into()
}
