//! J13: what outlives a process.

use aetheris_core::event::RequeueReason;
use aetheris_core::id::SessionId;
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard};
use aetheris_core::time::{Span, Timestamp};

use super::fencing::{WRITES, Write, busy, unit};
use super::fixture::{TTL, instance};
use super::{Durable, Fixture, Message, fixture, snapshot};
use aetheris_store::unit::{ClientKey, Purpose};
use aetheris_store::{LeaseRenewal, Refusal, Renewal};

pub async fn j13_every_kind_of_write_reads_the_same_after_opening_again(f: Fixture, harness: &dyn Durable) {
    let mut jobs = Vec::new();
    for write in WRITES {
        let run = busy(&f).await;
        let unit = unit(&f, run, write).await;
        if write == Write::ReclaimExpired {
            f.advance(TTL);
        }
        f.ok(unit).await;
        jobs.push(run.job);
        let session = Some(SessionId::new(format!("{write:?}")));
        jobs.push(f.create(&Message { deadline: Some(TTL), session, ..f.message() }).await);
        // None of them is to be what the next claims.
        f.claim(64).await;
    }
    let mut before = Vec::new();
    for job in &jobs {
        before.push(snapshot::of_job(f.store(), *job).await);
    }
    let overview = snapshot::overview(f.store(), &[instance()]).await;
    let f = f.reopen(harness).await;
    for (job, before) in jobs.iter().zip(before) {
        assert_eq!(snapshot::of_job(f.store(), *job).await, before);
    }
    assert_eq!(snapshot::overview(f.store(), &[instance()]).await, overview);
}

pub async fn j13_a_lease_outlives_the_store_that_gave_it(f: Fixture, harness: &dyn Durable) {
    let run = f.running().await;
    let f = f.reopen(harness).await;
    f.advance(Span::from_secs(1));
    assert!(f.renew(run).await);
    f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    assert_eq!(f.claim_ids(1).await, []);
    let leases = vec![LeaseRenewal { fence: Fence { epoch: 2, ..run.fence }, job: run.job }];
    let request = aetheris_store::Heartbeat { leases, ttl: TTL, worker: fixture::worker() };
    assert_eq!(f.store().heartbeat(request).await.unwrap(), [Renewal::Refused(run.job)]);
}

pub async fn j13_epochs_go_on_where_they_were(f: Fixture, harness: &dyn Durable) {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Requeue).await.requeue(RequeueReason::Draining, None).done()).await;
    let f = f.reopen(harness).await;
    assert_eq!(f.take(run.job).await.fence, Fence { epoch: 2, ..run.fence });
    let late = f.plain(run, Purpose::Record);
    assert!(matches!(f.refused(late).await, Refusal::Guard(_)));
}

pub async fn j13_the_clock_does_not_run_backwards(f: Fixture, harness: &dyn Durable) {
    let run = f.running().await;
    let at = f.now().await;
    f.clock.set_wall(Timestamp::from_micros(at.micros() - 60_000_000));
    let f = f.reopen(harness).await;
    assert_eq!(f.now().await, at);
    assert_eq!(f.ok(f.plain(run, Purpose::Record)).await.at, at);
}

/// Whatever was written last, and however long nothing else was: another boot knows nothing of what has passed.
pub async fn j13_no_reboot_takes_the_clock_back_behind_a_write(f: Fixture, harness: &dyn Durable) {
    let run = f.running().await;
    let mut f = f;
    for round in 0..4 {
        f.advance(Span::from_secs(3_600));
        let at = match round {
            0 => f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await.at,
            1 => f.ok(f.plain(run, Purpose::Record)).await.at,
            2 => {
                let draft = f.of(run, Purpose::Record).await.start("b");
                f.ok(draft.done()).await.at
            }
            _ => {
                f.pending().await;
                f.now().await
            }
        };
        f.clock.reboot();
        f.clock.set_wall(Timestamp::from_micros(at.micros() - 1_800_000_000));
        f = f.reopen(harness).await;
        assert!(f.now().await >= at, "{round}: {} and then {}", at, f.now().await);
    }
}

pub async fn j13_a_lost_answer_is_found(f: Fixture, harness: &dyn Durable) {
    let message = f.message();
    let (creation, lost) = (f.creation(&message), f.creation(&f.message()));
    let committed = f.ok(creation.clone()).await;
    let f = f.reopen(harness).await;
    assert_eq!(f.store().resolve_unknown(&creation).await.unwrap(), Some(committed));
    assert_eq!(f.store().resolve_unknown(&lost).await.unwrap(), None);
}

pub async fn j13_a_clients_key_is_remembered(f: Fixture, harness: &dyn Durable) {
    let client_key = Some(ClientKey { body_hash: aetheris_core::hash::Hash::ZERO, key: "k".to_owned() });
    let first = f.create(&Message { client_key: client_key.clone(), ..f.message() }).await;
    let f = f.reopen(harness).await;
    let again = f.creation(&Message { client_key, ..f.message() });
    assert_eq!(f.refused(again).await, Refusal::Duplicate(first));
}

pub async fn j13_a_second_opening_is_like_the_first(f: Fixture, harness: &dyn Durable) {
    let job = f.pending().await;
    let f = f.reopen(harness).await.reopen(harness).await;
    let run = f.take(job).await;
    let draft = f.draft(job, Purpose::Reclaim, Guard::Dead(run.fence, instance())).await;
    f.ok(draft.requeue(RequeueReason::HolderDied, None).done()).await;
    let f = f.reopen(harness).await;
    assert_eq!(f.state(job).await.reclaims, 1);
    // No opening begins another life: the fences of whoever lives hold.
    assert_eq!(f.store().status().await.unwrap().generation, run.fence.generation);
    assert_eq!(f.take(job).await.fence, Fence { generation: 1, epoch: 2 });
}
