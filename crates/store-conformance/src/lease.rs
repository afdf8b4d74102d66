//! L: claims, renewals, releases and reclaims.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::{
    Event, Failure, JobCancelled, JobFailed, JobPaused, JobResumed, PauseReason, RequeueReason, WaitCompleted, WaitEnd,
};
use aetheris_core::id::{JobId, WorkerId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard, Holder};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::time::Span;

use super::fixture::{TTL, instance, stands, worker};
use super::{Fixture, Message, Run, snapshot};
use aetheris_store::unit::Purpose;
use aetheris_store::{Heartbeat, LeaseRenewal, Refusal, Renewal, Scope};

const TICK: Span = Span::from_micros(1);

pub async fn l1_a_claim_writes_owner_epoch_and_event(f: Fixture) {
    let job = f.create(&Message { run_at: Some(f.now().await), ..f.message() }).await;
    let before = f.store().job(Scope::System, job).await.unwrap().unwrap();
    assert_eq!((before.fence, before.holder), (Fence { generation: 1, epoch: 0 }, None));
    let request = f.request(1);
    let (attempt_id, event) = (request.ids[0].attempt, request.ids[0].event);
    let claimed = f.store().claim(request).await.unwrap().pop().unwrap();
    let row = f.store().job(Scope::System, job).await.unwrap().unwrap();
    let lease_until = f.now().await.after(TTL);
    assert_eq!(row.fence, Fence { generation: 1, epoch: 1 });
    assert_eq!(row.holder, Some(Holder { attempt_id, instance: instance(), lease_until, worker: worker() }));
    assert_eq!((row.status, row.not_before, row.seq), (JobStatus::Running, None, before.seq + 1));
    assert_eq!((claimed.fence, claimed.lease_until), (row.fence, lease_until));
    let last = snapshot::events(f.store(), job).await.pop().unwrap();
    assert_eq!((last.seq, last.id, last.fence, last.at), (row.seq, event, row.fence, row.updated_at));
    let Event::JobClaimed(said) = last.decode().unwrap().event else { panic!("{}", last.kind_name()) };
    assert_eq!((said.attempt_id, said.instance, said.worker), (attempt_id, instance(), worker()));
}

pub async fn l1_every_claim_has_the_next_epoch(f: Fixture) {
    let mut run = f.running().await;
    for epoch in 2..6 {
        f.ok(f.of(run, Purpose::Requeue).await.requeue(RequeueReason::Draining, None).done()).await;
        run = f.take(run.job).await;
        assert_eq!(run.fence, Fence { generation: 1, epoch });
    }
    assert_eq!(f.state(run.job).await.fence, run.fence);
}

pub async fn l1_a_delayed_job_is_claimable_from_its_moment_on(f: Fixture) {
    let at = f.now().await.after(Span::from_secs(60));
    let job = f.create(&Message { run_at: Some(at), ..f.message() }).await;
    assert_eq!(f.store().job(Scope::System, job).await.unwrap().unwrap().not_before, Some(at));
    f.advance(Span::from_secs(60).minus(TICK));
    assert_eq!(f.claim_ids(1).await, []);
    f.advance(TICK);
    assert_eq!(f.claim_ids(1).await, [job]);
}

pub async fn l1_a_backed_off_job_is_claimable_from_its_moment_on(f: Fixture) {
    let run = f.running().await;
    let delay = Span::from_secs(5);
    let unit = f.of(run, Purpose::Requeue).await.requeue(RequeueReason::Retry, Some(delay)).done();
    let at = f.ok(unit).await.at;
    let row = f.store().job(Scope::System, run.job).await.unwrap().unwrap();
    assert_eq!((row.not_before, row.status), (Some(at.after(delay)), JobStatus::Pending));
    f.advance(delay.minus(TICK));
    assert_eq!(f.claim_ids(1).await, []);
    f.advance(TICK);
    assert_eq!(f.claim_ids(1).await, [run.job]);
}

pub async fn l1_an_expired_lease_alone_makes_nothing_claimable(f: Fixture) {
    let run = f.running().await;
    f.advance(TTL.plus(TTL));
    assert_eq!(f.claim_ids(1).await, []);
    f.reclaim(run).await;
    assert_eq!(f.claim_ids(1).await, [run.job]);
}

/// A job that was running and has left that.
async fn left(f: &Fixture, status: JobStatus) -> JobId {
    let run = f.running().await;
    let draft = f.of(run, Purpose::Finish).await;
    let unit = match status {
        JobStatus::Waiting => draft.wait("w", "key", WaitType::Signal, false),
        JobStatus::Parked => draft.wait("w", "key", WaitType::Human, true),
        JobStatus::Completed => draft.complete(),
        JobStatus::Failed => draft.event(JobFailed { error: Failure::new("broken", "broken"), node: None }),
        JobStatus::Cancelled => draft.event(JobCancelled {}),
        JobStatus::Paused => draft.pause(),
        JobStatus::Pending | JobStatus::Running => panic!("a job that has left"),
    };
    f.ok(unit.done()).await;
    let row = f.store().job(Scope::System, run.job).await.unwrap().unwrap();
    assert_eq!((row.status, row.holder), (status, None));
    f.advance(Span::from_secs(24 * 3600));
    assert_eq!(f.claim_ids(8).await, []);
    assert_eq!(f.store().expired(None, 8).await.unwrap(), []);
    run.job
}

pub async fn l1_a_waiting_job_is_not_claimed(f: Fixture) {
    left(&f, JobStatus::Waiting).await;
}

pub async fn l1_a_parked_job_is_not_claimed(f: Fixture) {
    left(&f, JobStatus::Parked).await;
}

pub async fn l1_a_paused_job_is_not_claimed(f: Fixture) {
    left(&f, JobStatus::Paused).await;
}

/// Held by a restore, and by whoever pauses it then: the status is the same, and the row says who.
pub async fn l1_a_pause_is_taken_over(f: Fixture) {
    let job = f.pending().await;
    let hold = JobPaused { reason: PauseReason::Restored };
    f.ok(f.draft(job, Purpose::Pause, Guard::Outside).await.event(hold).done()).await;
    f.advance(Span::from_secs(1));
    let taken = f.draft(job, Purpose::Pause, Guard::Outside).await.event(JobResumed {}).pause().done();
    let at = f.ok(taken).await.at;
    let row = f.store().job(Scope::System, job).await.unwrap().unwrap();
    assert_eq!((row.status, row.paused), (JobStatus::Paused, Some((PauseReason::Operator, at))));
    assert!(f.store().claim(f.request(1)).await.unwrap().is_empty());
}

pub async fn l1_a_completed_job_is_not_claimed(f: Fixture) {
    left(&f, JobStatus::Completed).await;
}

pub async fn l1_a_failed_job_is_not_claimed(f: Fixture) {
    left(&f, JobStatus::Failed).await;
}

pub async fn l1_a_cancelled_job_is_not_claimed(f: Fixture) {
    left(&f, JobStatus::Cancelled).await;
}

async fn contend(f: &Fixture, claimers: usize, slots: usize) -> Vec<Vec<JobId>> {
    let mut tasks = Vec::new();
    for claimer in 0..claimers {
        let mut request = f.request(slots);
        request.worker = WorkerId::new(format!("worker {claimer}"));
        let store = f.shared();
        tasks.push(tokio::spawn(async move { store.claim(request).await.unwrap() }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap().into_iter().map(|claimed| claimed.job).collect());
    }
    all
}

pub async fn l2_sixteen_contenders_share_without_a_double(f: Fixture) {
    let mut jobs = BTreeSet::new();
    for _ in 0..40 {
        jobs.insert(f.pending().await);
    }
    let taken: Vec<JobId> = contend(&f, 16, 4).await.into_iter().flatten().collect();
    assert_eq!(taken.len(), 40, "as many as there are");
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), jobs);
    for job in jobs {
        let rows = snapshot::events(f.store(), job).await;
        assert_eq!(rows.iter().filter(|row| row.kind_name() == "job_claimed").count(), 1);
    }
}

pub async fn l2_nobody_goes_away_empty_while_there_is_one(f: Fixture) {
    for _ in 0..16 {
        f.pending().await;
    }
    assert!(contend(&f, 16, 1).await.iter().all(|taken| taken.len() == 1));
    assert!(contend(&f, 16, 1).await.iter().all(Vec::is_empty));
}

pub async fn l4_a_renewal_counts_from_now(f: Fixture) {
    let run = f.running().await;
    f.advance(Span::from_secs(10));
    assert!(f.renew(run).await);
    let row = f.store().job(Scope::System, run.job).await.unwrap().unwrap();
    assert_eq!(row.holder.unwrap().lease_until, f.now().await.after(TTL));
}

pub async fn l4_the_last_microsecond_is_not_too_late(f: Fixture) {
    let run = f.running().await;
    f.advance(TTL.minus(TICK));
    assert!(f.renew(run).await);
    f.advance(TTL.minus(TICK));
    assert!(f.renew(run).await);
}

pub async fn l4_at_its_end_a_lease_is_over(f: Fixture) {
    let run = f.running().await;
    let before = snapshot::of_job(f.store(), run.job).await;
    f.advance(TTL);
    assert!(!f.renew(run).await);
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before);
}

pub async fn l4_an_older_epoch_is_refused(f: Fixture) {
    let old = f.running().await;
    f.ok(f.of(old, Purpose::Requeue).await.requeue(RequeueReason::Draining, None).done()).await;
    let new = f.take(old.job).await;
    assert!(!f.renew(old).await);
    assert!(f.renew(new).await);
}

pub async fn l4_another_generation_is_refused(f: Fixture) {
    let run = f.running().await;
    for generation in [0, 2] {
        assert!(!f.renew(Run { fence: Fence { generation, ..run.fence }, ..run }).await);
    }
}

pub async fn l4_another_worker_is_refused(f: Fixture) {
    let run = f.running().await;
    let leases = vec![LeaseRenewal { fence: run.fence, job: run.job }];
    let request = Heartbeat { leases, ttl: TTL, worker: WorkerId::from("other") };
    assert_eq!(f.store().heartbeat(request).await.unwrap(), [Renewal::Refused(run.job)]);
}

pub async fn l4_a_released_job_is_refused(f: Fixture) {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Requeue).await.requeue(RequeueReason::Draining, None).done()).await;
    assert!(!f.renew(run).await);
}

pub async fn l4_an_unknown_job_is_refused(f: Fixture) {
    let fence = Fence { generation: 1, epoch: 1 };
    assert!(!f.renew(Run { fence, job: JobId::from_u128(5) }).await);
}

pub async fn l4_each_lease_is_decided_alone_and_in_order(f: Fixture) {
    let (first, second, third) = (f.running().await, f.running().await, f.running().await);
    f.ok(f.of(second, Purpose::Finish).await.complete().done()).await;
    f.ask_end(third.job).await;
    let lease = |run: Run| LeaseRenewal { fence: run.fence, job: run.job };
    let leases = vec![lease(third), lease(second), lease(first)];
    f.advance(Span::from_secs(3));
    let answers = f.store().heartbeat(Heartbeat { leases, ttl: TTL, worker: worker() }).await.unwrap();
    let sent_at = Duration::from_secs(3);
    let expected = [
        Renewal::Renewed { end_requested: true, job: third.job, sent_at },
        Renewal::Refused(second.job),
        Renewal::Renewed { end_requested: false, job: first.job, sent_at },
    ];
    assert_eq!(answers, expected);
}

pub async fn l5_an_expired_run_still_records(f: Fixture) {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
    f.advance(TTL.plus(TTL));
    f.ok(f.of(run, Purpose::Record).await.committed("c", Json::null()).done()).await;
}

pub async fn l5_an_expired_run_gets_no_permission(f: Fixture) {
    let run = f.running().await;
    f.advance(TTL.minus(TICK));
    f.ok(f.of(run, Purpose::Permit).await.call("c", EffectClass::Idempotent).done()).await;
    f.advance(TICK);
    let unit = f.of(run, Purpose::Permit).await.permit("c", EffectClass::Idempotent).done();
    let before = snapshot::of_job(f.store(), run.job).await;
    assert_eq!(f.refused(unit).await, Refusal::LeaseExpired);
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before);
}

pub async fn l5_only_the_holders_run_gets_permissions(f: Fixture) {
    let run = f.running().await;
    let mut unit = f.of(run, Purpose::Permit).await.call("c", EffectClass::Idempotent).done();
    unit.guard = Guard::Outside;
    assert_eq!(f.refused(unit.clone()).await, Refusal::LeaseExpired);
    unit.guard = Guard::Dead(run.fence, instance());
    assert_eq!(f.refused(unit).await, Refusal::LeaseExpired);
}

pub async fn l6_a_requeued_job_is_claimable_at_once(f: Fixture) {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Requeue).await.requeue(RequeueReason::Draining, None).done()).await;
    assert_eq!(f.store().job(Scope::System, run.job).await.unwrap().unwrap().holder, None);
    assert_eq!(f.claim_ids(1).await, [run.job]);
}

pub async fn l6_a_signal_right_after_blocking_is_picked_up_at_once(f: Fixture) {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Block).await.wait("w", "key", WaitType::Signal, true).done()).await;
    let by = WaitEnd::Signal { payload: Json::null(), signal: aetheris_core::id::SignalId::from_u128(3) };
    let completed = WaitCompleted { by, node: StepPath::from("w") };
    f.ok(f.draft(run.job, Purpose::Signal, Guard::Outside).await.event(completed).done()).await;
    assert_eq!(f.claim_ids(1).await, [run.job]);
}

pub async fn l6_a_unit_that_keeps_the_lease_leaves_the_holder(f: Fixture) {
    let run = f.running().await;
    let holder = f.store().job(Scope::System, run.job).await.unwrap().unwrap().holder;
    f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    f.ask_end(run.job).await;
    assert_eq!(f.store().job(Scope::System, run.job).await.unwrap().unwrap().holder, holder);
}

pub async fn l7_higher_priority_comes_first_then_the_older_job(f: Fixture) {
    let mut jobs = Vec::new();
    for priority in [0, 5, -3, 5, 0, i32::MAX, i32::MIN] {
        jobs.push((priority, f.create(&Message { priority, ..f.message() }).await));
        f.advance(TICK);
    }
    jobs.sort_by_key(|(priority, job)| (std::cmp::Reverse(*priority), *job));
    let expected: Vec<JobId> = jobs.into_iter().map(|(_, job)| job).collect();
    assert_eq!(f.claim_ids(3).await, expected[..3]);
    assert_eq!(f.claim_ids(9).await, expected[3..]);
}

pub async fn l7_age_is_of_the_job_and_not_of_its_last_write(f: Fixture) {
    let first = f.running().await;
    let second = f.pending().await;
    f.advance(Span::from_secs(1));
    f.ok(f.of(first, Purpose::Requeue).await.requeue(RequeueReason::Draining, None).done()).await;
    assert_eq!(f.claim_ids(2).await, [first.job, second]);
}

pub async fn l7_one_job_per_pair_of_ids(f: Fixture) {
    for _ in 0..5 {
        f.pending().await;
    }
    assert_eq!(f.claim(0).await, []);
    assert_eq!(f.claim(2).await.len(), 2);
    assert_eq!(f.claim(8).await.len(), 3);
}

pub async fn l7_a_claim_is_bounded(f: Fixture) {
    for _ in 0..=limits::CLAIM_JOBS_MAX {
        f.pending().await;
    }
    assert_eq!(f.claim(limits::CLAIM_JOBS_MAX + 8).await.len(), limits::CLAIM_JOBS_MAX);
    assert_eq!(f.claim(8).await.len(), 1);
}

pub async fn l9_without_linger_nothing_is_answered_at_once(f: Fixture) {
    f.create(&Message { run_at: Some(f.now().await.after(TTL)), ..f.message() }).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(f.claim(4).await, []);
    assert!(begun.elapsed() < Duration::from_secs(2));
}

/// Claims with a long linger while something happens.
async fn lingering(f: Arc<Fixture>, happens: impl Future<Output = JobId> + Send) {
    let mut request = f.request(2);
    request.linger = Span::from_secs(60);
    let store = f.shared();
    let mut claim = store.claim(request);
    stands(&mut claim).await;
    // A claim behind it has been answered: the first one has looked by then.
    assert_eq!(f.claim(1).await, []);
    let begun = tokio::time::Instant::now();
    let job = happens.await;
    let claimed = claim.await.unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.job).collect::<Vec<_>>(), [job]);
    assert!(begun.elapsed() < Duration::from_secs(20), "it was not woken");
}

pub async fn l9_a_lingering_claim_gets_a_new_job(f: Fixture) {
    let f = Arc::new(f);
    let create = f.clone();
    lingering(f, async move { create.pending().await }).await;
}

pub async fn l9_a_lingering_claim_gets_a_requeued_job(f: Fixture) {
    let run = f.running().await;
    let f = Arc::new(f);
    let requeue = f.clone();
    let happens = async move {
        let draft = requeue.of(run, Purpose::Requeue).await;
        requeue.ok(draft.requeue(RequeueReason::Draining, None).done()).await;
        run.job
    };
    lingering(f, happens).await;
}

pub async fn l9_a_lingering_claim_gets_the_next_of_a_session(f: Fixture) {
    let session = Some(aetheris_core::id::SessionId::from("s"));
    let first = f.create(&Message { session: session.clone(), ..f.message() }).await;
    let second = f.create(&Message { session, ..f.message() }).await;
    let run = f.take(first).await;
    let f = Arc::new(f);
    let finish = f.clone();
    let happens = async move {
        finish.ok(finish.of(run, Purpose::Finish).await.complete().done()).await;
        second
    };
    lingering(f, happens).await;
}

pub async fn l9_a_lingering_claim_gets_a_job_whose_moment_comes(f: Fixture) {
    let delay = Span::from_millis(200);
    let job = f.create(&Message { run_at: Some(f.now().await.after(delay)), ..f.message() }).await;
    let f = Arc::new(f);
    let clock = f.clock.clone();
    let happens = async move {
        clock.advance(delay);
        job
    };
    lingering(f, happens).await;
}

pub async fn l9_a_linger_ends_empty(f: Fixture) {
    f.create(&Message { run_at: Some(f.now().await.after(TTL)), ..f.message() }).await;
    let mut request = f.request(1);
    request.linger = Span::from_millis(60);
    let begun = tokio::time::Instant::now();
    assert_eq!(f.store().claim(request).await.unwrap(), []);
    assert!(begun.elapsed() >= Duration::from_millis(50), "it has not waited");
}

pub async fn l13_a_claims_answer_is_what_was_written(f: Fixture) {
    let jobs = [f.pending().await, f.pending().await];
    f.advance(Span::from_secs(2));
    let request = f.request(2);
    let attempts: Vec<_> = request.ids.iter().map(|ids| ids.attempt).collect();
    let claimed = f.store().claim(request).await.unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.job).collect::<Vec<_>>(), jobs);
    for (claimed, attempt) in claimed.into_iter().zip(attempts) {
        let row = f.store().job(Scope::System, claimed.job).await.unwrap().unwrap();
        let holder = row.holder.clone().unwrap();
        assert_eq!((claimed.attempt_id, claimed.fence), (attempt, row.fence));
        assert_eq!((holder.attempt_id, holder.lease_until), (attempt, claimed.lease_until));
        assert_eq!(claimed.sent_at, Duration::from_secs(2));
        if let Some(history) = claimed.history {
            assert_eq!(Some(history), f.store().history(Scope::System, claimed.job, false).await.unwrap());
        }
    }
}
