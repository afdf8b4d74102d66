//! J14 and J15: a look at a history that may be long, and what has come behind one that is known.

use aetheris_core::id::{JobId, SignalId};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::plan::EffectClass;
use aetheris_core::time::{Span, Timestamp};

use super::Fixture;
use super::journal::checkpoint;
use aetheris_store::unit::{InboxWrite, NewEffect, Purpose};
use aetheris_store::{Glance, History, Scope};

async fn is_short(f: &Fixture, job: JobId) -> bool {
    match f.store().glance(Scope::System, job).await.unwrap().unwrap() {
        Glance::Long => false,
        Glance::Short(found) => {
            assert_eq!(Some(*found), f.store().history(Scope::System, job, false).await.unwrap());
            true
        }
    }
}

pub async fn j14_a_glance_brings_a_history_of_few_events(f: Fixture) {
    assert_eq!(f.store().glance(Scope::System, JobId::from_u128(1)).await.unwrap(), None);
    let run = f.running().await;
    let events = async || f.store().job(Scope::System, run.job).await.unwrap().unwrap().seq;
    while events().await < limits::LOOK_EVENTS_MAX {
        assert!(is_short(&f, run.job).await);
        let node = events().await.to_string();
        f.ok(f.of(run, Purpose::Record).await.start(&node).done()).await;
    }
    assert!(is_short(&f, run.job).await);
    let seq = events().await;
    f.ok(f.of(run, Purpose::Record).await.start("more").done()).await;
    assert!(!is_short(&f, run.job).await);
    // What a checkpoint has need not be read.
    f.ok(checkpoint(&f, run, seq, "{}")).await;
    assert!(is_short(&f, run.job).await);
}

pub async fn j14_a_glance_brings_a_history_of_few_bytes(f: Fixture) {
    let part = || Json::new("x".repeat(limits::LOOK_BYTES_MAX * 5 / 8).into());
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Record).await.step("a", part()).done()).await;
    assert!(is_short(&f, run.job).await);
    f.ok(f.of(run, Purpose::Record).await.step("b", part()).done()).await;
    assert!(!is_short(&f, run.job).await);
    let seq = f.store().job(Scope::System, run.job).await.unwrap().unwrap().seq;
    f.ok(checkpoint(&f, run, seq - 1, "small")).await;
    assert!(is_short(&f, run.job).await);
    f.ok(checkpoint(&f, run, seq, &"x".repeat(limits::LOOK_BYTES_MAX + 1))).await;
    assert!(!is_short(&f, run.job).await);
    let job = f.pending().await;
    for (n, short) in [(1, true), (2, false)] {
        let mut unit = f.draft(job, Purpose::Signal, Guard::Outside).await.done();
        let (key, signal) = (n.to_string(), SignalId::from_u128(n));
        unit.inbox.push(InboxWrite::Receive { delivered: false, key, payload: part(), signal, wait_type: None });
        f.ok(unit).await;
        assert_eq!(is_short(&f, job).await, short);
    }
}

/// Whatever fills the last byte: events, a checkpoint, an effect, or a signal with its key.
pub async fn j14_a_glance_brings_as_many_bytes_as_it_may_and_not_one_more(f: Fixture) {
    for (part, more) in (0..4).flat_map(|part| [(part, 0), (part, 1)]) {
        let run = f.running().await;
        let draft = f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce);
        let call = draft.invocation("c");
        f.ok(draft.done()).await;
        let seq = f.store().job(Scope::System, run.job).await.unwrap().unwrap().seq;
        // A checkpoint has all events before; the rest is a quarter each.
        let quarter = limits::LOOK_BYTES_MAX / 4;
        let sized = |of: usize| if of == part { quarter + more } else { quarter };
        // A text is in quotes.
        let value = |bytes: usize| Json::new("x".repeat(bytes - 2).into());
        f.ok(checkpoint(&f, run, seq, &"x".repeat(sized(0)))).await;
        f.fill(run, sized(1)).await;
        let mut unit = f.plain(run, Purpose::Record);
        let (key, permit, permit_id, result) = (call.key, call.permit, call.permit_id, value(sized(2)));
        unit.effects.push(NewEffect { key, permit, permit_id, result });
        f.ok(unit).await;
        let mut unit = f.plain(run, Purpose::Signal);
        let (key, payload) = ("key".to_owned(), value(sized(3) - 3));
        let (signal, wait_type) = (SignalId::from_u128(1), None);
        unit.inbox.push(InboxWrite::Receive { delivered: false, key, payload, signal, wait_type });
        f.ok(unit).await;
        let found = f.store().glance(Scope::System, run.job).await.unwrap().unwrap();
        assert_eq!(matches!(found, Glance::Short(_)), more == 0, "part {part}");
        let mut unit = f.plain(run, Purpose::Signal);
        unit.inbox.push(InboxWrite::Consume(SignalId::from_u128(1)));
        f.ok(unit).await;
        assert!(
            matches!(f.store().glance(Scope::System, run.job).await.unwrap().unwrap(), Glance::Short(_)),
            "part {part}"
        );
    }
    // A checkpoint by itself as well.
    for (bytes, short) in [(limits::LOOK_BYTES_MAX, true), (limits::LOOK_BYTES_MAX + 1, false)] {
        let run = f.running().await;
        f.ok(checkpoint(&f, run, 3, &"x".repeat(bytes))).await;
        let found = f.store().glance(Scope::System, run.job).await.unwrap().unwrap();
        assert_eq!(matches!(found, Glance::Short(_)), short, "{bytes}");
    }
}

/// Whatever is written between two looks.
pub async fn j15_a_history_is_carried_on_from_an_event(f: Fixture) {
    assert_eq!(
        f.store().history_behind(Scope::System, JobId::from_u128(1), 0, Timestamp::default()).await.unwrap(),
        None
    );
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
    f.ok(f.of(run, Purpose::Record).await.committed("c", Json::null()).done()).await;
    f.advance(Span::from_secs(1));
    f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    let full = async || f.store().history(Scope::System, run.job, true).await.unwrap().unwrap();
    let before = full().await;
    let behind =
        async |seq, since| f.store().history_behind(Scope::System, run.job, seq, since).await.unwrap().unwrap();
    let nothing = behind(before.row.seq, before.row.updated_at).await;
    assert_eq!((nothing.events.len(), nothing.effects.len(), &nothing.row), (0, 0, &before.row));
    f.ok(f.of(run, Purpose::Permit).await.call("d", EffectClass::AtMostOnce).done()).await;
    f.ok(f.of(run, Purpose::Record).await.committed("d", Json::null()).done()).await;
    f.ok(checkpoint(&f, run, before.row.seq + 1, "not asked for")).await;
    let behind = behind(before.row.seq, before.row.updated_at).await;
    let mut carried = History { row: behind.row, ledger: behind.ledger, kept: behind.kept, ..before };
    carried.events.extend(behind.events);
    carried.effects.extend(behind.effects);
    carried.effects.sort_unstable_by_key(|effect| (effect.key, effect.permit));
    assert_eq!((&carried, behind.checkpoint), (&full().await, None));
}
