//! L10 to L12: leases that are over, and who takes jobs back.

use aetheris_core::event::RequeueReason;
use aetheris_core::id::{InstanceId, JobId};
use aetheris_core::lease::{Fence, Guard, GuardRefusal};
use aetheris_core::limits;
use aetheris_core::time::Span;

use super::fixture::{TTL, instance};
use super::{Fixture, Run};
use aetheris_store::Refusal;
use aetheris_store::unit::Purpose;

const TICK: Span = Span::from_micros(1);

async fn expired(f: &Fixture, limit: usize) -> Vec<(JobId, Fence)> {
    f.store().expired(None, limit).await.unwrap().iter().map(|lease| (lease.job, lease.fence)).collect()
}

pub async fn l10_a_lease_is_listed_from_its_end_on(f: Fixture) {
    let run = f.running().await;
    f.advance(TTL.minus(TICK));
    assert_eq!(f.store().expired(None, 8).await.unwrap(), []);
    f.advance(TICK);
    assert_eq!(expired(&f, 8).await, [(run.job, run.fence)]);
    f.reclaim(run).await;
    assert_eq!(f.store().expired(None, 8).await.unwrap(), []);
}

pub async fn l10_the_longest_over_comes_first(f: Fixture) {
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(f.running().await);
        f.advance(TICK);
    }
    // Renewed out of order: the ends no longer follow the ids.
    for place in [2, 0, 3] {
        assert!(f.renew(runs[place]).await);
        f.advance(TICK);
    }
    f.advance(TTL);
    let expected: Vec<_> = [1, 2, 0, 3].into_iter().map(|place| (runs[place].job, runs[place].fence)).collect();
    assert_eq!(expired(&f, 8).await, expected);
    assert_eq!(expired(&f, 2).await, expected[..2]);
    assert_eq!(expired(&f, 0).await, []);
    // Page by page, each after the last one of the page before.
    let (mut after, mut paged) = (None, Vec::new());
    while let Some(lease) = f.store().expired(after, 1).await.unwrap().pop() {
        paged.push((lease.job, lease.fence));
        after = Some(lease);
    }
    assert_eq!(paged, expected);
}

pub async fn l10_leases_that_end_together_are_all_paged(f: Fixture) {
    for _ in 0..5 {
        f.pending().await;
    }
    // One claim gives all of them at one moment.
    let claimed = f.claim(5).await.len();
    f.advance(TTL);
    let all = f.store().expired(None, 8).await.unwrap();
    assert!(claimed == 5 && all.len() == 5 && all.iter().all(|lease| lease.until == all[0].until));
    for limit in [1, 2, 4] {
        let (mut after, mut paged) = (None, Vec::new());
        loop {
            let page = f.store().expired(after, limit).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(*last);
            paged.extend(page);
        }
        assert_eq!(paged, all, "{limit} at a time");
    }
}

/// So many jobs, held by one claim.
async fn held(f: &Fixture, jobs: usize) {
    for _ in 0..jobs {
        f.pending().await;
    }
    assert_eq!(f.claim(jobs).await.len(), jobs);
}

pub async fn l10_a_page_of_expired_leases_is_bounded(f: Fixture) {
    held(&f, limits::SWEEP_ROWS_MAX + 1).await;
    f.advance(TTL);
    let first = f.store().expired(None, usize::MAX).await.unwrap();
    assert_eq!(first.len(), limits::SWEEP_ROWS_MAX);
    assert_eq!(f.store().expired(first.last().copied(), usize::MAX).await.unwrap().len(), 1);
}

pub async fn l11_a_page_of_held_jobs_is_bounded(f: Fixture) {
    held(&f, limits::SWEEP_ROWS_MAX + 1).await;
    let first = f.store().held_by(instance(), None, usize::MAX).await.unwrap();
    assert_eq!(first.len(), limits::SWEEP_ROWS_MAX);
    let after = first.last().map(|(job, _)| *job);
    assert_eq!(f.store().held_by(instance(), after, usize::MAX).await.unwrap().len(), 1);
}

pub async fn l11_held_jobs_are_listed_by_instance(f: Fixture) {
    let (other, mut mine, mut theirs) = (InstanceId::from_u128(8), Vec::new(), Vec::new());
    for place in 0..5 {
        f.pending().await;
        let mut request = f.request(1);
        if place % 2 == 1 {
            request.instance = other;
        }
        let claimed = f.store().claim(request).await.unwrap().pop().unwrap();
        let held = if place % 2 == 1 { &mut theirs } else { &mut mine };
        held.push((claimed.job, claimed.fence));
    }
    f.advance(TTL.plus(TTL));
    assert_eq!(f.store().held_by(instance(), None, 8).await.unwrap(), mine);
    assert_eq!(f.store().held_by(other, None, 8).await.unwrap(), theirs);
    assert_eq!(f.store().held_by(other, None, 1).await.unwrap(), theirs[..1]);
    assert_eq!(f.store().held_by(instance(), Some(mine[0].0), 8).await.unwrap(), mine[1..]);
    assert_eq!(f.store().held_by(InstanceId::from_u128(9), None, 8).await.unwrap(), []);
    let run = Run { fence: mine[0].1, job: mine[0].0 };
    f.ok(f.of(run, Purpose::Finish).await.complete().done()).await;
    assert_eq!(f.store().held_by(instance(), None, 8).await.unwrap(), mine[1..]);
}

/// By their ids, whichever lease ends first, and whatever they hold meanwhile.
pub async fn l11_held_jobs_are_paged_by_their_ids(f: Fixture) {
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(f.running().await);
        f.advance(TICK);
    }
    for place in [3, 0, 4, 1] {
        assert!(f.renew(runs[place]).await);
        f.advance(TICK);
    }
    let expected: Vec<_> = runs.iter().map(|run| (run.job, run.fence)).collect();
    for limit in 0..=6 {
        let (mut after, mut paged) = (None, Vec::new());
        loop {
            let page = f.store().held_by(instance(), after, limit).await.unwrap();
            assert!(page.len() <= limit);
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            paged.extend(page);
        }
        assert_eq!(paged, expected[..if limit == 0 { 0 } else { 5 }], "{limit} at a time");
    }
}

pub async fn l12_a_live_lease_is_not_taken_back(f: Fixture) {
    let run = f.running().await;
    let draft = f.draft(run.job, Purpose::Reclaim, Guard::Expired(run.fence)).await;
    let unit = draft.requeue(RequeueReason::LeaseExpired, None).done();
    let until = f.now().await.after(TTL);
    f.advance(TTL.minus(TICK));
    assert_eq!(f.refused(unit.clone()).await, Refusal::Guard(GuardRefusal::StillLive(until)));
    f.advance(TICK);
    f.ok(unit).await;
}

pub async fn l12_a_renewed_lease_is_not_taken_back(f: Fixture) {
    let run = f.running().await;
    f.advance(TTL.minus(TICK));
    let draft = f.draft(run.job, Purpose::Reclaim, Guard::Expired(run.fence)).await;
    let unit = draft.requeue(RequeueReason::LeaseExpired, None).done();
    assert!(f.renew(run).await);
    f.advance(TICK);
    assert!(matches!(f.refused(unit).await, Refusal::Guard(GuardRefusal::StillLive(_))));
}

pub async fn l12_proof_of_death_takes_a_live_lease_of_that_instance_only(f: Fixture) {
    let run = f.running().await;
    let other = f.draft(run.job, Purpose::Reclaim, Guard::Dead(run.fence, InstanceId::from_u128(8))).await;
    let wrong = other.requeue(RequeueReason::HolderDied, None).done();
    assert_eq!(f.refused(wrong).await, Refusal::Guard(GuardRefusal::OtherInstance(instance())));
    let draft = f.draft(run.job, Purpose::Reclaim, Guard::Dead(run.fence, instance())).await;
    f.ok(draft.requeue(RequeueReason::HolderDied, None).done()).await;
    assert_eq!(f.claim_ids(1).await, [run.job]);
}

pub async fn l12_of_sixteen_reclaimers_one_succeeds(f: Fixture) {
    let run = f.running().await;
    f.advance(TTL);
    let mut units = Vec::new();
    for _ in 0..16 {
        let draft = f.draft(run.job, Purpose::Reclaim, Guard::Expired(run.fence)).await;
        units.push(draft.requeue(RequeueReason::LeaseExpired, None).done());
    }
    let write = |unit| {
        let store = f.shared();
        tokio::spawn(async move { store.commit(unit).await.is_ok() })
    };
    let tasks: Vec<_> = units.into_iter().map(write).collect();
    let mut accepted = 0;
    for task in tasks {
        accepted += usize::from(task.await.unwrap());
    }
    assert_eq!(accepted, 1);
    assert_eq!(f.state(run.job).await.reclaims, 1);
}
