//! L3: who is not the holder writes nothing, whatever it would write.

use aetheris_core::event::{Failure, JobCancelled, JobFailed, RequeueReason, TimerId, TimerSet};
use aetheris_core::id::{IdempotencyKey, JobId, PermitId, SignalId};
use aetheris_core::json::Json;
use aetheris_core::lease::{Guard, GuardRefusal};
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::time::{Span, Timestamp};

use super::{Fixture, Run, fixture, snapshot};
use aetheris_store::unit::{Checkpoint, InboxWrite, Purpose, UnitOfWork};
use aetheris_store::{Evidence, Refusal, Scope};

/// A write of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    Permit,
    Record,
    Finish,
    Block,
    Requeue,
    Doubt,
    Signal,
    Timer,
    Cancel,
    Pause,
    ReclaimExpired,
    ReclaimDead,
    Deposit,
    Resolve,
    Checkpoint,
}

/// Every write.
pub const WRITES: [Write; 15] = [
    Write::Permit,
    Write::Record,
    Write::Finish,
    Write::Block,
    Write::Requeue,
    Write::Doubt,
    Write::Signal,
    Write::Timer,
    Write::Cancel,
    Write::Pause,
    Write::ReclaimExpired,
    Write::ReclaimDead,
    Write::Deposit,
    Write::Resolve,
    Write::Checkpoint,
];

/// In which way a writer is not the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Someone has claimed the job since.
    Epoch,
    /// The store has had another life.
    Generation,
    /// Nobody holds the job.
    Released,
}

/// The signal that is kept for jobs of [`busy`].
fn kept(job: JobId) -> SignalId {
    SignalId::from_u128(job.as_u128() ^ 1)
}

/// A run with a call under way, and a signal that is kept.
pub async fn busy(f: &Fixture) -> Run {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
    let mut unit = UnitOfWork::new(f.ids.event(), run.job, Purpose::Signal, Guard::Outside);
    unit.inbox.push(InboxWrite::Receive {
        delivered: false,
        key: "early".to_owned(),
        payload: Json::null(),
        signal: kept(run.job),
        wait_type: None,
    });
    f.ok(unit).await;
    run
}

/// Evidence of some older permit.
pub fn evidence(permit_id: PermitId) -> Evidence {
    Evidence {
        at: Timestamp::default(),
        conflict: false,
        key: IdempotencyKey::from_u128(1),
        node: StepPath::from("c"),
        outcome: Json::new(serde_json::json!({ "outcome": "committed", "result": null })),
        permit: 1,
        permit_id,
    }
}

/// A unit that the holder of a job of [`busy`] could write.
pub async fn unit(f: &Fixture, run: Run, write: Write) -> UnitOfWork {
    match write {
        Write::Permit => f.of(run, Purpose::Permit).await.call("p", EffectClass::AtMostOnce).done(),
        Write::Record => f.of(run, Purpose::Record).await.committed("c", Json::null()).done(),
        Write::Finish => {
            let failed = JobFailed { error: Failure::new("broken", "it is broken"), node: None };
            f.of(run, Purpose::Finish).await.event(failed).done()
        }
        Write::Block => f.of(run, Purpose::Block).await.wait("w", "key", WaitType::Signal, false).done(),
        Write::Requeue => {
            f.of(run, Purpose::Requeue).await.requeue(RequeueReason::Retry, Some(Span::from_secs(1))).done()
        }
        Write::Doubt => f.of(run, Purpose::Doubt).await.doubt("c").done(),
        Write::Signal => {
            let draft = f.of(run, Purpose::Signal).await.step("w", Json::null());
            draft.with(|unit| unit.inbox.push(InboxWrite::Consume(kept(run.job)))).done()
        }
        Write::Timer => {
            let set = TimerSet { after_us: 1, timer: TimerId::Deadline };
            f.of(run, Purpose::Timer).await.event(set).done()
        }
        Write::Cancel => f.of(run, Purpose::Cancel).await.event(JobCancelled {}).done(),
        Write::Pause => f.of(run, Purpose::Pause).await.pause().done(),
        Write::ReclaimExpired | Write::ReclaimDead => {
            let dead = write == Write::ReclaimDead;
            let guard = if dead { Guard::Dead(run.fence, fixture::instance()) } else { Guard::Expired(run.fence) };
            let reason = if dead { RequeueReason::HolderDied } else { RequeueReason::LeaseExpired };
            f.draft(run.job, Purpose::Reclaim, guard).await.requeue(reason, None).done()
        }
        Write::Deposit => {
            let mut unit = f.plain(run, Purpose::Deposit);
            unit.evidence.push(evidence(PermitId::from_u128(f.ids.next())));
            unit
        }
        Write::Resolve => {
            let draft = f.of(run, Purpose::Resolve).await.doubt("c");
            draft.resolve("c", aetheris_core::event::DoubtOutcome::Happened).done()
        }
        Write::Checkpoint => {
            let mut unit = f.plain(run, Purpose::Record);
            unit.checkpoint = Some(Checkpoint::from_bytes(f.state(run.job).await.seq, b"{}".to_vec()));
            unit
        }
    }
}

async fn refused(f: Fixture, write: Write, stale: Stale) {
    let run = busy(&f).await;
    let mut unit = unit(&f, run, write).await;
    let mut given = run.fence;
    match stale {
        Stale::Epoch | Stale::Released => {
            f.advance(fixture::TTL);
            f.reclaim(run).await;
        }
        Stale::Generation => {
            given.generation += 1;
            unit.guard = match unit.guard {
                Guard::Run(_) => Guard::Run(given),
                Guard::Expired(_) => Guard::Expired(given),
                Guard::Dead(_, instance) => Guard::Dead(given, instance),
                Guard::Outside | Guard::Due(_) => unit.guard,
            };
        }
    }
    let current = if stale == Stale::Epoch { f.take(run.job).await.fence } else { run.fence };
    let before = snapshot::of_job(f.store(), run.job).await;
    let held = stale != Stale::Released;
    assert_eq!(f.refused(unit).await, Refusal::Guard(GuardRefusal::Stale { given, current, held }));
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before);
}

macro_rules! fenced {
    ($($case:ident: $write:ident, $stale:ident;)*) => {$(
        pub async fn $case(f: Fixture) {
            refused(f, Write::$write, Stale::$stale).await;
        }
    )*};
}

fenced! {
    l3_an_older_epoch_takes_no_permission: Permit, Epoch;
    l3_an_older_epoch_records_nothing: Record, Epoch;
    l3_an_older_epoch_does_not_finish: Finish, Epoch;
    l3_an_older_epoch_does_not_block: Block, Epoch;
    l3_an_older_epoch_does_not_requeue: Requeue, Epoch;
    l3_an_older_epoch_does_not_doubt: Doubt, Epoch;
    l3_an_older_epoch_consumes_no_signal: Signal, Epoch;
    l3_an_older_epoch_sets_no_timer: Timer, Epoch;
    l3_an_older_epoch_does_not_cancel: Cancel, Epoch;
    l3_an_older_epoch_does_not_pause: Pause, Epoch;
    l3_an_older_epoch_is_not_reclaimed: ReclaimExpired, Epoch;
    l3_an_older_epoch_is_not_reclaimed_by_proof: ReclaimDead, Epoch;
    l3_an_older_epoch_deposits_nothing: Deposit, Epoch;
    l3_an_older_epoch_resolves_nothing: Resolve, Epoch;
    l3_an_older_epoch_keeps_no_checkpoint: Checkpoint, Epoch;
    l3_another_generation_takes_no_permission: Permit, Generation;
    l3_another_generation_records_nothing: Record, Generation;
    l3_another_generation_does_not_finish: Finish, Generation;
    l3_another_generation_does_not_block: Block, Generation;
    l3_another_generation_does_not_requeue: Requeue, Generation;
    l3_another_generation_does_not_doubt: Doubt, Generation;
    l3_another_generation_consumes_no_signal: Signal, Generation;
    l3_another_generation_sets_no_timer: Timer, Generation;
    l3_another_generation_does_not_cancel: Cancel, Generation;
    l3_another_generation_does_not_pause: Pause, Generation;
    l3_another_generation_is_not_reclaimed: ReclaimExpired, Generation;
    l3_another_generation_is_not_reclaimed_by_proof: ReclaimDead, Generation;
    l3_another_generation_deposits_nothing: Deposit, Generation;
    l3_another_generation_resolves_nothing: Resolve, Generation;
    l3_another_generation_keeps_no_checkpoint: Checkpoint, Generation;
    l3_a_released_run_takes_no_permission: Permit, Released;
    l3_a_released_run_records_nothing: Record, Released;
    l3_a_released_run_does_not_finish: Finish, Released;
    l3_a_released_run_does_not_block: Block, Released;
    l3_a_released_run_does_not_requeue: Requeue, Released;
    l3_a_released_run_does_not_doubt: Doubt, Released;
    l3_a_released_run_consumes_no_signal: Signal, Released;
    l3_a_released_run_sets_no_timer: Timer, Released;
    l3_a_released_run_does_not_cancel: Cancel, Released;
    l3_a_released_run_does_not_pause: Pause, Released;
    l3_a_released_run_is_not_reclaimed: ReclaimExpired, Released;
    l3_a_released_run_is_not_reclaimed_by_proof: ReclaimDead, Released;
    l3_a_released_run_deposits_nothing: Deposit, Released;
    l3_a_released_run_resolves_nothing: Resolve, Released;
    l3_a_released_run_keeps_no_checkpoint: Checkpoint, Released;
}

pub async fn l3_the_holder_writes_each_of_them(f: Fixture) {
    for write in WRITES {
        let run = busy(&f).await;
        let unit = unit(&f, run, write).await;
        if write == Write::ReclaimExpired {
            f.advance(fixture::TTL);
        }
        f.ok(unit).await;
        // Whatever was requeued is not to be the next that is claimed.
        let draft = f.draft(run.job, Purpose::Cancel, Guard::Outside).await;
        if !draft.state.status.is_terminal() {
            f.ok(draft.event(JobCancelled {}).done()).await;
        }
    }
}

pub async fn l3_nobody_holds_a_job_that_is_not_there(f: Fixture) {
    let message = f.message();
    let mut unit = f.creation(&message);
    unit.guard = Guard::Run(aetheris_core::lease::Fence { generation: 1, epoch: 1 });
    let refusal = f.refused(unit).await;
    assert!(matches!(refusal, Refusal::Guard(GuardRefusal::Stale { held: false, .. })), "{refusal:?}");
    assert_eq!(f.store().job(Scope::System, message.job).await.unwrap(), None);
}
