//! One planted contradiction per query, at least: what is told is spoiled and chained again, or what is stored
//! is spoiled as it stands. Both checkers have to find it.

use aetheris_check::Invariant::{self, *};
use aetheris_check::history::Write;
use aetheris_check::witness::{WitnessKind, WitnessLine};
use aetheris_check::{AckedSignal, ClientHistory, SignalAck, Submission};
use aetheris_core::disproof::Grounds;
use aetheris_core::event::*;
use aetheris_core::hash::Hash;
use aetheris_core::id::*;
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::path::StepPath;
use aetheris_core::time::Timestamp;

use super::look;
use super::story::{self, JOB, Story, Told, whole};

/// Both find it, and neither finds more than the other: except after events that cannot be understood, where
/// the Rust checker says nothing else of the job.
async fn found(id: Invariant, story: &Story, spoil: &[&str]) {
    let checked = look(story, spoil).await;
    assert!(checked.rust.violated().contains(&id), "{id} is not violated in Rust:\n{}", checked.rust);
    assert!(checked.sql[&id].violated > 0, "{id} is not violated in SQL, {spoil:?}: {:#?}", checked.sql[&id]);
}

async fn in_story(id: Invariant, spoil: impl FnOnce(&mut Story)) {
    let mut story = whole();
    spoil(&mut story);
    found(id, &story, &[]).await;
}

async fn in_rows(id: Invariant, spoil: &str) {
    found(id, &whole(), &[spoil]).await;
}

#[tokio::test]
async fn ownership() {
    in_story(A2, |s| s.events.iter_mut().filter(|told| told.epoch == 4).for_each(|told| told.epoch = 3)).await;
    in_story(A2, |s| {
        let again = s.place(EventKind::JobClaimed);
        let second = s.events.iter().position(|told| told.epoch == 2).unwrap();
        s.events[second].event = s.events[again].event.clone();
    })
    .await;
    in_rows(A2, "UPDATE jobs SET epoch = 9").await;
    in_story(A3, |s| s.first(EventKind::JobWaiting).epoch = 1).await;
    in_story(A9, |s| {
        let event = JobRequeued { after_us: None, reason: RequeueReason::HolderDied }.into();
        let place = s.place(EventKind::WaitCompleted);
        s.events.insert(place, Told { at: 65, epoch: 2, event });
    })
    .await;
}

#[tokio::test]
async fn the_log() {
    in_rows(B1, "DELETE FROM events WHERE seq = 4").await;
    in_rows(B1, "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)").await;
    in_rows(B1, "UPDATE jobs SET seq = seq + 1").await;
    in_rows(B2, "UPDATE events SET id = (SELECT id FROM events WHERE seq = 5) WHERE seq = 4").await;
    in_story(B2, |s| s.history.writes.push(Write { event: EventId::from_u128(99), job: JOB, unknown: false })).await;
    in_rows(B4, "UPDATE events SET at = at + 1 WHERE seq = 3").await;
    in_rows(B4, "UPDATE events SET payload = payload || ' ' WHERE seq = 3").await;
    in_rows(B4, "UPDATE jobs SET head = zeroblob(32)").await;
    in_rows(B4, "UPDATE events SET kind = 200 WHERE seq = 6").await;
    in_story(B5, |s| s.events.push(Told { at: 220, epoch: 4, event: JobCancelled {}.into() })).await;
    in_rows(B5, "UPDATE jobs SET status = 0, listed = 0").await;
}

#[tokio::test]
async fn acknowledgements() {
    let job = JobId::from_u128(8);
    in_story(B3, |s| s.history.submissions.push(Submission { client_key: None, job })).await;
    in_story(B3, |s| {
        let signal = AckedSignal { ack: SignalAck::Kept, job, key: "k".to_owned(), payload_hash: None };
        s.history.signals.push(signal);
    })
    .await;
    in_story(B3, |s| {
        s.events.truncate(s.place(EventKind::JobRequeued));
        s.history.pauses = [JOB].into();
    })
    .await;
    in_story(D5, |s| s.history.submissions.push(Submission { client_key: Some("c".into()), job })).await;
}

#[tokio::test]
async fn bodies() {
    // A second body that says nothing of its permit, and calls that came again under theirs.
    in_story(C1, |s| s.witness.push(WitnessLine { permit: None, ..story::seen(WitnessKind::BodyStart, 26) })).await;
    for kind in [WitnessKind::BodyStart, WitnessKind::Refused, WitnessKind::Dropped] {
        in_story(C1, |s| s.witness.push(WitnessLine { acts: false, ..story::seen(kind, 26) })).await;
        let other = || WitnessLine { acts: false, permit: story::numbered(1, 2), ..story::seen(kind, 26) };
        in_story(C2, |s| s.witness.push(other())).await;
        let key = IdempotencyKey::derive(story::JOB, &StepPath::from("pay"), 1);
        in_story(C4, |s| s.witness.push(WitnessLine { acts: false, key, ..story::seen(kind, 26) })).await;
    }
    in_story(C2, |s| s.witness[0].permit = story::numbered(2, 1)).await;
    // Beside calls that name theirs, one that names none has none.
    in_story(C2, |s| s.witness[0].permit = None).await;
    in_story(C1, |s| {
        let place = s.place(EventKind::ToolInvocationFinished);
        let refused = story::finished(InvocationOutcome::RefusedRetryable).into();
        s.events.insert(place, Told { at: 22, epoch: 1, event: story::permit(2).into() });
        s.events.insert(place, Told { at: 22, epoch: 1, event: refused });
        s.witness.push(WitnessLine { permit: story::numbered(1, 2), ..story::seen(WitnessKind::BodyStart, 27) });
    })
    .await;
    // A proof that it had not happened is no person's word: a second body contradicts it.
    for (by, grounds) in [(Resolver::Reconcile, Grounds::Clock), (Resolver::Reconcile, Grounds::Refuses)] {
        in_story(C1, |s| {
            let node = || StepPath::from("pay");
            let doubted = StepInDoubt { node: node(), permit: 1, policy: 0, reason: "lost".to_owned() };
            let answer = InDoubtResolved {
                by,
                grounds: Some(grounds),
                node: node(),
                note: None,
                outcome: DoubtOutcome::DidNotHappen,
                permit: 1,
                result: None,
                settle_us: None,
                then: None,
            };
            let place = s.place(EventKind::ToolInvocationFinished);
            for event in [story::permit(2).into(), answer.into(), doubted.into()] {
                s.events.insert(place, Told { at: 22, epoch: 1, event });
            }
            s.witness.push(WitnessLine { permit: story::numbered(1, 2), ..story::seen(WitnessKind::BodyStart, 27) });
        })
        .await;
    }
    in_story(C2, |s| s.witness[0].at = Timestamp::from_micros(19)).await;
    in_story(C2, |s| s.witness[0].fence = Fence { generation: 1, epoch: 2 }).await;
    in_story(C2, |s| s.witness[0].job = JobId::from_u128(99)).await;
    in_story(C4, |s| s.witness[0].key = IdempotencyKey::derive(JOB, &StepPath::from("pay"), 1)).await;
    // Whether it sorts before the call's own or behind it.
    for key in [IdempotencyKey::from_u128(1), IdempotencyKey::from_u128(u128::MAX)] {
        let other = |key| WitnessLine { acts: false, key, ..story::seen(WitnessKind::Dropped, 26) };
        in_story(C4, |s| s.witness.push(other(key))).await;
    }
    in_story(C6, |s| s.witness[0].at = Timestamp::from_micros(31)).await;
    in_story(C7, |s| s.witness[1].result_hash = Some(Json::null().hash())).await;
}

#[tokio::test]
async fn outcomes() {
    for status in [0, 5, 6] {
        in_rows(C5, &format!("UPDATE ledger SET status = {status}")).await;
    }
    in_rows(C5, "DELETE FROM ledger").await;
    in_rows(C5, "UPDATE ledger SET deadline = deadline - 1").await;
    in_rows(C5, "UPDATE ledger SET lifetime = 999").await;
    in_rows(C5, "UPDATE ledger SET permit = 2").await;
    in_rows(C5, "UPDATE ledger SET node = 'ask'").await;
    in_rows(C5, "UPDATE ledger SET tool = 'ask'").await;
    in_rows(C5, "UPDATE ledger SET permit_id = zeroblob(16)").await;
    in_rows(C5, "UPDATE ledger SET status = 5, disproved = 1").await;
    in_story(C5, |s| {
        let place = s.place(EventKind::ToolInvocationFinished);
        s.events.insert(place, Told { at: 22, epoch: 1, event: story::permit(2).into() });
    })
    .await;
    in_story(C5, |s| {
        let place = s.place(EventKind::ToolInvocationFinished);
        let (by, node, outcome) = (Resolver::Operator, StepPath::from("pay"), DoubtOutcome::DidNotHappen);
        let event = InDoubtResolved {
            by,
            node,
            note: None,
            outcome,
            permit: 1,
            grounds: None,
            result: None,
            settle_us: None,
            then: None,
        }
        .into();
        s.events.insert(place, Told { at: 22, epoch: 1, event });
    })
    .await;
    in_rows(C7, "UPDATE effects SET result = 'null'").await;
    in_rows(C7, "UPDATE effects SET permit = 2").await;
    in_rows(
        C7,
        "INSERT INTO effects (job, key, permit, permit_id, at, result)
         SELECT job, key, 2, permit_id, at, result FROM effects",
    )
    .await;
    in_rows(C8, "DELETE FROM effects").await;
    in_rows(C8, "UPDATE ledger SET status = 4").await;
    in_story(C8, |s| {
        let place = s.place(EventKind::CommandCommitted);
        s.events.remove(place);
    })
    .await;
}

/// The story of a payment whose call came back like this, and whose job ended like that.
fn called(told: impl IntoIterator<Item = Event>) -> Story {
    let mut story = whole();
    story.events.truncate(story.place(EventKind::ToolInvocationFinished));
    story.events.extend(told.into_iter().map(|event| Told { at: 30, epoch: 1, event }));
    story.history = ClientHistory::default();
    story.witness.clear();
    story
}

/// A ledger row that contradicts the events in one way only.
#[tokio::test]
async fn ledger_rows() {
    use InvocationOutcome as I;
    let status = |code: u8| [format!("UPDATE ledger SET status = {code}"), "DELETE FROM effects".to_owned()];
    let doubted = || {
        let (node, reason) = (StepPath::from("pay"), "the answer was lost".to_owned());
        Event::from(StepInDoubt { node, permit: 1, policy: 0, reason })
    };
    let outcome = |outcome| Event::from(story::finished(outcome));
    let (committed, retryable, permanent, not_sent, given_up) = (1, 2, 3, 4, 6);
    for (told, code) in [
        (outcome(I::InDoubt), given_up),
        (outcome(I::NotSent), committed),
        (outcome(I::RefusedRetryable), not_sent),
        (doubted(), not_sent),
        (outcome(I::InDoubt), not_sent),
        (outcome(I::RefusedPermanent), retryable),
        (doubted(), retryable),
        (outcome(I::NotSent), permanent),
        (doubted(), permanent),
    ] {
        let spoil = status(code);
        found(C5, &called([told]), &spoil.each_ref().map(String::as_str)).await;
    }
    // An end gives up what nothing is known of.
    let spoil = status(given_up);
    let ended = called([outcome(I::InDoubt), JobCancelled {}.into()]);
    let checked = look(&ended, &spoil.each_ref().map(String::as_str)).await;
    assert_eq!(checked.sql[&C5].violations, [""; 0]);
    assert_eq!(checked.differences(), [""; 0]);
}

/// Only late evidence that contradicted, and that was not taken in, lets a job fail as a call had succeeded before.
#[tokio::test]
async fn a_success_before() {
    let error = Failure::new(SUCCEEDED_BEFORE, "an earlier call is known to have succeeded");
    let not_sent = story::finished(InvocationOutcome::NotSent);
    let story = called([not_sent.into(), JobFailed { error, node: None }.into()]);
    let late = |conflict: u8, at: i64, outcome: &str| {
        [
            "UPDATE ledger SET status = 4".to_owned(),
            format!("UPDATE effects SET at = {at}"),
            format!(
                "INSERT INTO evidence (job, permit_id, key, permit, conflict, at, node, outcome)
                 SELECT 1, permit_id, key, 1, {conflict}, 40, 'pay', '{{\"outcome\": \"{outcome}\", \"result\": {{}}}}'
                 FROM ledger"
            ),
        ]
    };
    for spoil in [late(0, 50, "success"), late(1, 30, "success"), late(1, 50, "refuse")] {
        found(C8, &story, &spoil.each_ref().map(String::as_str)).await;
    }
    let spoil = late(1, 50, "success");
    let checked = look(&story, &spoil.each_ref().map(String::as_str)).await;
    assert!(!checked.rust.violated().contains(&C8), "{}", checked.rust);
    assert_eq!(checked.sql[&C8].violations, [""; 0]);
    assert_eq!(checked.differences(), [""; 0]);
}

/// A step that ended by "did not happen" does not owe its job the success that came later.
#[tokio::test]
async fn a_success_after_a_disproof_is_not_owed() {
    let mut story = whole();
    let (by, node, outcome) = (Resolver::Operator, StepPath::from("pay"), DoubtOutcome::DidNotHappen);
    let answer = InDoubtResolved {
        by,
        node,
        note: None,
        outcome,
        permit: 1,
        grounds: None,
        result: None,
        settle_us: None,
        then: None,
    };
    let place = story.place(EventKind::CommandCommitted);
    story.events.remove(place);
    let completed = "UPDATE jobs SET status = 4, listed = 4";
    found(C8, &story, &[completed]).await;
    story.events.insert(place, Told { at: 30, epoch: 1, event: answer.into() });
    let checked = look(&story, &[completed]).await;
    assert!(!checked.rust.violated().contains(&C8), "{}", checked.rust);
    assert_eq!(checked.sql[&C8].violations, [""; 0]);
}

/// A doubt that operators are not shown.
#[test]
fn a_doubt_that_is_not_listed() {
    let evidence = crate::Evidence::new().unwrap();
    let doubt = "INSERT INTO ledger VALUES ('aa', 'bb', 'pay', 1, 'cc', 'in_doubt', 0, 9, 9, 'pay')";
    evidence.tables().execute_batch(doubt).unwrap();
    let history = aetheris_check::ClientHistory { quiet: true, ..Default::default() };
    evidence.load(&[], &history, &[]).unwrap();
    assert_eq!(evidence.check().unwrap()[&C5].violated, 1);
}

#[tokio::test]
async fn the_job_machine() {
    for (kind, from) in [
        (EventKind::JobRequeued, "removed"),
        (EventKind::NodeStarted, "removed"),
        (EventKind::JobWaiting, "removed"),
        (EventKind::JobClaimed, "twice"),
        (EventKind::NodeFinished, "twice"),
        (EventKind::WaitCompleted, "twice"),
        (EventKind::JobCreated, "twice"),
    ] {
        in_story(D1, |s| {
            let place = s.place(kind);
            if from == "removed" {
                s.events.remove(place);
            } else {
                let twice = s.events[place].clone();
                s.events.insert(place, twice);
            }
        })
        .await;
    }
    in_story(D5, |s| s.first(EventKind::PlanGenerated).at = 11).await;
    in_story(D7, |s| s.history.cancels = [JOB].into()).await;
    in_story(D8, |s| {
        let place = s.place(EventKind::PlanGenerated);
        let plan = s.events.remove(place);
        s.events.push(plan);
    })
    .await;
    in_story(D8, |s| {
        let place = s.place(EventKind::PlanGenerated);
        s.events.insert(place, Told { at: 10, epoch: 0, event: NodeStarted::new("$plan", 1).into() });
    })
    .await;
    in_story(D8, |s| {
        s.first(EventKind::JobCreated).event = JobCreated { planning: Some(Hash::of(b"p")), ..story::created() }.into();
        let place = s.place(EventKind::PlanGenerated);
        s.events.insert(place + 1, Told { at: 10, epoch: 0, event: NodeStarted::new("$plan", 1).into() });
    })
    .await;
    in_story(D8, |s| {
        let plan_hash = Hash::of(b"plan");
        let (planner, planner_version) = ("static".into(), "1".into());
        let plan = PlanGenerated { plan_hash, plan_version: 3, planner, planner_version };
        s.first(EventKind::PlanGenerated).event = plan.into();
    })
    .await;
}

#[tokio::test]
async fn a_cancel_that_ended_nothing() {
    let mut story = whole();
    story.events.truncate(story.place(EventKind::JobWaiting));
    let asked = JobCancelRequested { cause: EndCause::Cancel };
    story.events.push(Told { at: 61, epoch: 2, event: asked.into() });
    found(D7, &story, &[]).await;
    story.events.push(Told { at: 62, epoch: 2, event: JobCancelled {}.into() });
    let checked = look(&story, &[]).await;
    assert!(!checked.rust.violated().contains(&D7) && checked.sql[&D7].violated == 0);
    assert_eq!(checked.sql[&D7].examined, 1);
}

/// A signal that is kept, in a row of the inbox.
const KEPT: &str = "INSERT INTO inbox (signal, job, state, received_at, key, payload)
    VALUES (x'00000000000000000000000000000001', 1, 0, 5, 'k', '{\"booked\":true}')";

#[tokio::test]
async fn signals_and_waits() {
    in_story(E1, |s| s.history.signals[0].key = "other".into()).await;
    in_story(E1, |s| s.history.signals[0].payload_hash = Some(story::result().hash())).await;
    in_rows(E1, KEPT).await;
    in_rows(E1, &KEPT.replace("1, 0, 5, 'k'", "1, 1, 5, 'k'").replace("01', 1", "99', 1")).await;
    let mut waits = whole();
    waits.events.truncate(waits.place(EventKind::WaitCompleted));
    waits.history.signals.clear();
    found(E1, &waits, &[KEPT]).await;
    in_story(E2, |s| {
        let place = s.place(EventKind::WaitCompleted);
        let twice = s.events[place].clone();
        s.events.insert(place, twice);
    })
    .await;
    in_story(E2, |s| {
        let place = s.place(EventKind::WaitCompleted);
        s.events.remove(place);
    })
    .await;
    in_story(E2, |s| {
        let place = s.place(EventKind::JobWaiting);
        s.events.remove(place);
    })
    .await;
}

#[tokio::test]
async fn timers_and_leases() {
    in_story(E6, |s| s.first(EventKind::TimerFired).at = 189).await;
    in_story(E6, |s| {
        let run_at = Some(Timestamp::from_micros(s.first(EventKind::JobClaimed).at + 1));
        s.first(EventKind::JobCreated).event = JobCreated { run_at, ..story::created() }.into();
    })
    .await;
    in_story(E6, |s| {
        let place = s.place(EventKind::TimerFired);
        let twice = s.events[place].clone();
        s.events.insert(place, twice);
    })
    .await;
    in_story(E6, |s| {
        let delay = JobRequeued { after_us: Some(11), reason: RequeueReason::Retry };
        s.first(EventKind::JobRequeued).event = delay.into();
    })
    .await;
    in_rows(E7, "UPDATE jobs SET lease_until = 9, attempt = zeroblob(16), instance = zeroblob(16), worker = 'w'").await;
}
