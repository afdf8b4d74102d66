//! A large job: whoever looks at it holds up nobody else.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use aetheris_core::event::{EncodedEvent, Event, NodeFinished, RequeueReason, StepResult};
use aetheris_core::json::Json;
use aetheris_core::plan::EffectClass;
use aetheris_store::{Checkpoint, Glance, InboxWrite, Purpose, Scope, UnitOfWork};
use aetheris_store_conformance::{Fixture, Run};

use crate::folder::Folders;

fn list(numbers: u64) -> Json {
    Json::new(serde_json::Value::from((0..numbers).map(|n| n % 10).collect::<Vec<_>>()))
}

/// Appends so many results with so many numbers each. The store does not look into events.
async fn append(fixture: &Fixture, run: Run, results: u64, numbers: u64) {
    let event = Event::from(NodeFinished { output: Some(list(numbers)), ..NodeFinished::new("n", StepResult::Pure) });
    let mut seq = fixture.store().job(Scope::System, run.job).await.unwrap().unwrap().seq;
    for _ in 0..results {
        let id = fixture.ids.event();
        let mut unit = UnitOfWork::new(id, run.job, Purpose::Record, run.guard());
        unit.events.push(EncodedEvent::new(id, &event));
        unit.expected_seq = Some(seq);
        seq = fixture.ok(unit).await.seq;
    }
}

/// Whether a look finds all of a job's history. It answers on the thread that asks, before anything else may happen there.
async fn is_short(fixture: &Fixture, run: Run) -> bool {
    let mut glance = pin!(fixture.store().glance(Scope::System, run.job));
    let found = match glance.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(found) => found.unwrap(),
        Poll::Pending => None,
    };
    let history = fixture.store().history(Scope::System, run.job, false).await.unwrap().unwrap();
    assert!(found.is_some(), "a look waits for another thread");
    match found.unwrap() {
        Glance::Short(found) => {
            assert_eq!(*found, history);
            true
        }
        Glance::Long => false,
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_look_at_a_large_history_reads_nothing_of_it() {
    let fixture = Fixture::open(&Folders).await;
    let run = fixture.running().await;
    append(&fixture, run, 3, 10).await;
    assert!(is_short(&fixture, run).await);
    // Each is within what one look may bring, and together they are not.
    append(&fixture, run, 1, 100_000).await;
    assert!(is_short(&fixture, run).await);
    append(&fixture, run, 1, 100_000).await;
    assert!(!is_short(&fixture, run).await);
}

#[tokio::test(flavor = "current_thread")]
async fn a_look_at_a_history_of_many_events_reads_nothing_of_it() {
    let fixture = Fixture::open(&Folders).await;
    let run = fixture.running().await;
    let seq = fixture.state(run.job).await.seq;
    append(&fixture, run, aetheris_core::limits::LOOK_EVENTS_MAX - seq, 1).await;
    assert!(is_short(&fixture, run).await);
    append(&fixture, run, 1, 1).await;
    assert!(!is_short(&fixture, run).await);
}

#[tokio::test(flavor = "current_thread")]
async fn kept_signals_count_as_part_of_the_history() {
    let fixture = Fixture::open(&Folders).await;
    let job = fixture.pending().await;
    let mut unit = fixture.draft(job, Purpose::Signal, aetheris_core::lease::Guard::Outside).await.done();
    for n in 1..=4 {
        unit.inbox.push(InboxWrite::Receive {
            delivered: false,
            key: "k".to_owned(),
            payload: list(50_000),
            signal: aetheris_core::id::SignalId::from_u128(n),
            wait_type: None,
        });
    }
    fixture.ok(unit).await;
    let claimed = fixture.claim(1).await.pop().unwrap();
    assert!(claimed.history.is_none(), "a claim loads no more than it would of events");
    assert!(!is_short(&fixture, Run { fence: claimed.fence, job }).await);
}

#[tokio::test(flavor = "current_thread")]
async fn effects_count_as_part_of_the_history() {
    let fixture = Fixture::open(&Folders).await;
    let run = fixture.running().await;
    let draft = fixture.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce);
    fixture.ok(draft.done()).await;
    let draft = fixture.of(run, Purpose::Record).await.committed("c", list(150_000));
    fixture.ok(draft.requeue(RequeueReason::Draining, None).done()).await;
    let claimed = fixture.claim(1).await.pop().unwrap();
    assert!(claimed.history.is_none(), "a claim loads no more than it would of events");
    assert!(!is_short(&fixture, run).await);
    let history = fixture.store().history(Scope::System, run.job, false).await.unwrap().unwrap();
    assert_eq!(history.effects[0].result, list(150_000));
}

/// As many events as come with a claim, and one or two fewer or more: whole, or not at all.
#[tokio::test(flavor = "current_thread")]
async fn a_claim_brings_a_whole_history_or_none() {
    let fixture = Fixture::open(&Folders).await;
    let most = aetheris_core::limits::CLAIM_EVENTS_MAX;
    for events in most - 2..=most + 2 {
        let run = fixture.running().await;
        let seq = async || fixture.store().job(Scope::System, run.job).await.unwrap().unwrap().seq;
        // The requeue and the claim are the last two.
        while seq().await < events - 2 {
            let (node, draft) = (seq().await.to_string(), fixture.of(run, Purpose::Record).await);
            let left = events - 2 - seq().await;
            fixture.ok(if left > 1 { draft.step(&node, list(1)) } else { draft.start(&node) }.done()).await;
        }
        fixture.advance(aetheris_store_conformance::fixture::TTL);
        fixture.reclaim(run).await;
        let claimed = fixture.claim(1).await.pop().unwrap();
        let (row, history) = (fixture.store().job(Scope::System, run.job).await.unwrap().unwrap(), claimed.history);
        assert_eq!(row.seq, events);
        assert_eq!(history.is_some(), events <= most, "{events}");
        assert!(history.is_none_or(|history| history.events.len() as u64 == events), "{events}");
    }
}

/// A job with so many events comes without its history, unless a checkpoint has most of them and is small itself.
#[tokio::test(flavor = "current_thread")]
async fn a_claim_brings_what_came_since_a_checkpoint() {
    let fixture = Fixture::open(&Folders).await;
    let bytes = aetheris_core::limits::LOOK_BYTES_MAX;
    for (state, brought) in [(None, false), (Some(10), true), (Some(bytes), false), (Some(bytes - 100), false)] {
        let run = fixture.running().await;
        for n in 0..aetheris_core::limits::CLAIM_EVENTS_MAX {
            fixture.ok(fixture.of(run, Purpose::Record).await.step(&n.to_string(), list(1)).done()).await;
        }
        let seq = fixture.store().job(Scope::System, run.job).await.unwrap().unwrap().seq;
        if let Some(bytes) = state {
            let mut unit = fixture.plain(run, Purpose::Record);
            unit.checkpoint = Some(Checkpoint::from_bytes(seq, vec![b'x'; bytes]));
            fixture.ok(unit).await;
        }
        fixture.advance(aetheris_store_conformance::fixture::TTL);
        fixture.reclaim(run).await;
        let history = fixture.claim(1).await.pop().unwrap().history;
        // The requeue and the claim.
        let since = history.map(|history| (history.checkpoint.map(|newest| newest.seq), history.events.len()));
        assert_eq!(since, brought.then_some((Some(seq), 2)), "{state:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_check_reads_every_job_once_in_readings_of_any_size() {
    let fixture = Fixture::open(&Folders).await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(fixture.pending().await);
    }
    for size in 1..=7 {
        let (mut from, mut seen) = (0, Vec::new());
        loop {
            let found = fixture.store().dossiers(from, from + size).await.unwrap();
            seen.extend(found.jobs.iter().map(|job| job.as_ref().unwrap().row.id));
            from = found.next;
            if from >= found.end {
                break;
            }
        }
        assert_eq!(seen, all, "{size} at a time");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_check_reads_every_job_once_however_large_some_are() {
    let fixture = Fixture::open(&Folders).await;
    let mut all = Vec::new();
    for n in 0..7 {
        let run = fixture.running().await;
        // Every second one fills a reading by itself.
        if n % 2 == 1 {
            let each = u64::try_from(aetheris_core::limits::PAYLOAD_BYTES_MAX / 4).unwrap();
            append(&fixture, run, 17, each).await;
        }
        all.push(run.job);
    }
    let (mut from, mut seen, mut readings) = (0, Vec::new(), 0);
    loop {
        let found = fixture.store().dossiers(from, from + 64).await.unwrap();
        seen.extend(found.jobs.iter().map(|job| job.as_ref().unwrap().row.id));
        readings += 1;
        if found.next >= found.end {
            break;
        }
        from = found.next;
    }
    assert_eq!(seen, all);
    assert!(readings >= 4, "{readings} readings: the bound was not reached");
}

/// Whatever fills it, to the last byte: events, effects, kept signals and the checkpoint all count.
#[tokio::test(flavor = "current_thread")]
async fn a_reading_of_a_check_ends_with_the_job_that_fills_it() {
    for (missing, jobs) in [(0, 1), (1, 2)] {
        let fixture = Fixture::open(&Folders).await;
        let run = fixture.running().await;
        fixture.ok(fixture.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
        fixture.ok(fixture.of(run, Purpose::Record).await.committed("c", list(5_000)).done()).await;
        let mut unit = UnitOfWork::new(fixture.ids.event(), run.job, Purpose::Signal, run.guard());
        unit.inbox.push(InboxWrite::Receive {
            delivered: false,
            key: "key".to_owned(),
            payload: list(3_000),
            signal: aetheris_core::id::SignalId::from_u128(1),
            wait_type: None,
        });
        fixture.ok(unit).await;
        let found = fixture.store().dossiers(0, 64).await.unwrap().jobs.pop().unwrap().unwrap();
        let bytes = found.events.iter().map(|event| event.payload.len()).sum::<usize>()
            + found.effects.iter().map(|effect| effect.result.canonical().len()).sum::<usize>()
            + found.kept.iter().map(|kept| kept.key.len() + kept.payload.canonical().len()).sum::<usize>();
        let rest = aetheris_core::limits::DOSSIERS_BYTES_MAX - bytes - missing;
        let mut unit = UnitOfWork::new(fixture.ids.event(), run.job, Purpose::Record, run.guard());
        unit.checkpoint = Some(Checkpoint::from_bytes(found.row.seq, vec![b'x'; rest]));
        fixture.ok(unit).await;
        fixture.pending().await;
        let reading = fixture.store().dossiers(0, 64).await.unwrap();
        assert_eq!(reading.jobs.len(), jobs, "{missing} bytes are missing");
        let others = fixture.store().dossiers(reading.next, 64).await.unwrap();
        assert_eq!(others.jobs.len(), 2 - jobs);
    }
}
