//! U: what became of a unit whose answer was lost.

use aetheris_core::event::{EncodedEvent, Event, JobCancelled};
use aetheris_core::id::{PermitId, SignalId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::ledger::LedgerTrigger;
use aetheris_core::plan::EffectClass;
use aetheris_core::time::Span;

use super::fencing::{Write, busy, evidence, unit};
use super::{Fixture, Run, fixture, snapshot};
use aetheris_store::unit::{Checkpoint, InboxWrite, LedgerWrite, NewEffect, Purpose, UnitOfWork};

/// Asks about a unit before it is written, after it, and after more was written.
async fn settles(f: Fixture, write: Write) {
    let run = busy(&f).await;
    let unit = unit(&f, run, write).await;
    if write == Write::ReclaimExpired {
        f.advance(fixture::TTL);
    }
    let before = snapshot::of_job(f.store(), run.job).await;
    assert_eq!(f.store().resolve_unknown(&unit).await.unwrap(), None);
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before, "asking changes nothing");
    let committed = f.ok(unit.clone()).await;
    assert_eq!(f.store().resolve_unknown(&unit).await.unwrap(), Some(committed));
    f.advance(Span::from_secs(1));
    let draft = f.draft(run.job, Purpose::Cancel, Guard::Outside).await;
    if !draft.state.status.is_terminal() {
        f.ok(draft.event(JobCancelled {}).done()).await;
        let settled = f.store().resolve_unknown(&unit).await.unwrap().unwrap();
        assert_eq!(settled.at, committed.at);
        assert_eq!(settled == committed, !unit.events.is_empty(), "place and head of its own last event");
    }
}

macro_rules! settled {
    ($($case:ident: $write:ident;)*) => {$(
        pub async fn $case(f: Fixture) {
            settles(f, Write::$write).await;
        }
    )*};
}

settled! {
    u1_a_permission_is_found: Permit;
    u1_a_record_is_found: Record;
    u1_an_end_is_found: Finish;
    u1_a_block_is_found: Block;
    u1_a_requeue_is_found: Requeue;
    u1_a_doubt_is_found: Doubt;
    u1_a_consumed_signal_is_found: Signal;
    u1_a_timer_is_found: Timer;
    u1_a_cancel_is_found: Cancel;
    u1_a_reclaim_is_found: ReclaimExpired;
    u1_a_reclaim_by_proof_is_found: ReclaimDead;
    u1_a_resolution_is_found: Resolve;
    u3_evidence_is_found: Deposit;
}

pub async fn u1_a_creation_is_found(f: Fixture) {
    let message = f.message();
    let unit = f.creation(&message);
    assert_eq!(f.store().resolve_unknown(&unit).await.unwrap(), None);
    let committed = f.ok(unit.clone()).await;
    f.take(message.job).await;
    assert_eq!(f.store().resolve_unknown(&unit).await.unwrap(), Some(committed));
}

pub async fn u2_a_refused_unit_is_not_found(f: Fixture) {
    let run = busy(&f).await;
    let (kept, lost) = (unit(&f, run, Write::Record).await, unit(&f, run, Write::Doubt).await);
    f.ok(kept.clone()).await;
    f.refused(lost.clone()).await;
    assert_eq!(f.store().resolve_unknown(&lost).await.unwrap(), None);
    assert!(f.store().resolve_unknown(&kept).await.unwrap().is_some());
}

pub async fn u2_an_equal_unit_of_another_author_is_not_this_one(f: Fixture) {
    let run = busy(&f).await;
    let (mine, theirs) = (unit(&f, run, Write::Finish).await, unit(&f, run, Write::Finish).await);
    f.ok(theirs).await;
    assert_eq!(f.store().resolve_unknown(&mine).await.unwrap(), None);
}

pub async fn u2_an_event_of_another_job_is_not_this_one(f: Fixture) {
    let (one, two) = (f.pending().await, f.pending().await);
    let unit = f.draft(one, Purpose::Cancel, Guard::Outside).await.event(JobCancelled {}).done();
    f.ok(unit.clone()).await;
    assert_eq!(f.store().resolve_unknown(&UnitOfWork { job: two, ..unit }).await.unwrap(), None);
}

fn eventless(f: &Fixture, run: Run) -> UnitOfWork {
    f.plain(run, Purpose::Record)
}

async fn found(f: &Fixture, unit: UnitOfWork) {
    assert_eq!(f.store().resolve_unknown(&unit).await.unwrap(), None);
    let committed = f.ok(unit.clone()).await;
    assert_eq!(f.store().resolve_unknown(&unit).await.unwrap(), Some(committed));
    // Written again, it changes nothing.
    let before = snapshot::of_job(f.store(), unit.job).await;
    drop(f.store().commit(unit.clone()).await);
    assert_eq!(snapshot::of_job(f.store(), unit.job).await, before);
    let again = f.store().resolve_unknown(&unit).await.unwrap();
    assert_eq!(again, Some(committed));
}

pub async fn u3_a_kept_signal_is_found(f: Fixture) {
    let run = f.running().await;
    let mut unit = UnitOfWork { guard: Guard::Outside, ..eventless(&f, run) };
    unit.inbox.push(InboxWrite::Receive {
        delivered: false,
        key: "k".to_owned(),
        payload: Json::null(),
        signal: SignalId::from_u128(1),
        wait_type: None,
    });
    found(&f, unit).await;
}

pub async fn u3_late_evidence_is_found(f: Fixture) {
    let run = f.running().await;
    let mut unit = UnitOfWork { guard: Guard::Outside, ..eventless(&f, run) };
    unit.evidence.push(evidence(PermitId::from_u128(1)));
    found(&f, unit).await;
}

pub async fn u3_an_effect_alone_is_found(f: Fixture) {
    let run = f.running().await;
    let draft = f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce);
    let call = draft.invocation("c");
    f.ok(draft.done()).await;
    let mut unit = eventless(&f, run);
    unit.effects.push(NewEffect {
        key: call.key,
        permit: call.permit,
        permit_id: call.permit_id,
        result: Json::null(),
    });
    found(&f, unit).await;
}

/// FINDINGS A27: the effect of somebody else answered for a deposit with another result.
pub async fn u3_another_authors_effect_is_not_this_one(f: Fixture) {
    let run = f.running().await;
    let draft = f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce);
    let call = draft.invocation("c");
    f.ok(draft.done()).await;
    let put = |result| {
        let mut unit = eventless(&f, run);
        unit.effects.push(NewEffect { key: call.key, permit: call.permit, permit_id: call.permit_id, result });
        unit
    };
    let (theirs, mine) = (put(Json::new(serde_json::json!({ "by": "them" }))), put(Json::null()));
    f.ok(theirs.clone()).await;
    assert_eq!(f.store().resolve_unknown(&mine).await.unwrap(), None);
    assert!(f.store().resolve_unknown(&theirs).await.unwrap().is_some());
}

pub async fn u3_a_permission_alone_is_found(f: Fixture) {
    let run = f.running().await;
    let draft = f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce);
    let mut unit = eventless(&f, run);
    unit.ledger = draft.unit.ledger;
    found(&f, unit).await;
}

pub async fn u3_another_authors_permission_is_not_this_one(f: Fixture) {
    let run = f.running().await;
    let mut units = Vec::new();
    for _ in 0..2 {
        let draft = f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce);
        units.push(UnitOfWork { ledger: draft.unit.ledger, ..eventless(&f, run) });
    }
    assert_ne!(units[0].ledger, units[1].ledger);
    f.ok(units[0].clone()).await;
    assert!(f.store().resolve_unknown(&units[0]).await.unwrap().is_some());
    assert_eq!(f.store().resolve_unknown(&units[1]).await.unwrap(), None);
}

pub async fn u3_a_unit_without_a_name_is_not_found_and_may_be_repeated(f: Fixture) {
    let run = f.running().await;
    let mut unit = eventless(&f, run);
    unit.checkpoint = Some(Checkpoint::from_bytes(3, b"{}".to_vec()));
    f.ok(unit.clone()).await;
    assert_eq!(f.store().resolve_unknown(&unit).await.unwrap(), None);
    let before = snapshot::of_job(f.store(), run.job).await;
    f.ok(unit).await;
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before);
}

pub async fn u4_settle_waits_for_a_write_in_flight(f: Fixture) {
    for round in 0..16 {
        let job = f.pending().await;
        let unit = f.draft(job, Purpose::Cancel, Guard::Outside).await.event(JobCancelled {}).done();
        // The write is on its way, its answer is not waited for.
        let commit = f.store().commit(unit.clone());
        let mut commit = Box::pin(commit);
        let early = std::future::poll_fn(|context| std::task::Poll::Ready(commit.as_mut().poll(context))).await;
        let settled = f.store().resolve_unknown(&unit).await.unwrap();
        let answer = match early {
            std::task::Poll::Ready(answer) => answer.unwrap(),
            std::task::Poll::Pending => commit.await.unwrap(),
        };
        assert_eq!(settled, Some(answer), "round {round}");
    }
}

pub async fn u1_a_unit_of_many_events_is_found_by_its_first(f: Fixture) {
    let run = f.running().await;
    let mut draft = f.of(run, Purpose::Record).await;
    for n in 0..20 {
        draft = draft.step(&format!("n{n}"), Json::null());
    }
    let unit = draft.done();
    let committed = f.ok(unit.clone()).await;
    assert_eq!((committed.seq, f.store().resolve_unknown(&unit).await.unwrap()), (43, Some(committed)));
    // A unit that only names an event in the middle of another is nobody's.
    let middle = unit.events[3].id;
    let cancelled = Event::from(JobCancelled {});
    let mut other = UnitOfWork::new(middle, run.job, Purpose::Cancel, run.guard());
    other.events = vec![EncodedEvent::new(f.ids.event(), &cancelled)];
    other.id = other.events[0].id;
    other.expected_seq = Some(committed.seq);
    assert_eq!(f.store().resolve_unknown(&other).await.unwrap(), None);
}

pub async fn u3_a_settled_permission_is_still_found(f: Fixture) {
    let run = f.running().await;
    let draft = f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce);
    let mut unit = eventless(&f, run);
    unit.ledger.clone_from(&draft.unit.ledger);
    f.ok(unit.clone()).await;
    let Some(LedgerWrite::Permit(asked)) = unit.ledger.first() else { panic!("a permission was asked for") };
    let (key, permit_id, trigger) = (asked.key, asked.permit_id, LedgerTrigger::NotSent);
    let settle = aetheris_core::ledger::Settle { key, permit_id, trigger };
    f.ledger(run, LedgerWrite::Settle(settle)).await.unwrap();
    assert!(f.store().resolve_unknown(&unit).await.unwrap().is_some());
}
