//! Each fault does what it says.

use std::sync::Arc;
use std::time::Duration;

use aetheris_core::time::{Span, Timestamp};

use aetheris_store::faulty::{Fault, FaultKind, FaultPlan, FaultyStore, Op};
use aetheris_store::memory::MemoryStore;
use aetheris_store::system::{Clock, ManualClock};
use aetheris_store::unit::Purpose;
use aetheris_store::{Boxed, CommitError, Scope, Store};
use aetheris_store_conformance::{Fixture, Harness, Opened};

/// Gives the same store to a fixture and to the test.
struct Given(Arc<FaultyStore>);

impl Harness for Given {
    fn open(&self, _clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
        let store: Arc<dyn Store> = self.0.clone();
        Box::pin(std::future::ready(Opened { keep: Box::new(()), store }))
    }
}

async fn faulty(plan: FaultPlan) -> (Fixture, Arc<MemoryStore>, Arc<FaultyStore>) {
    let clock = ManualClock::at(Timestamp::from_micros(1));
    let inner = Arc::new(MemoryStore::new(Arc::new(clock)));
    let store = Arc::new(FaultyStore::new(inner.clone(), plan));
    (Fixture::open(&Given(store.clone())).await, inner, store)
}

fn create(faults: impl IntoIterator<Item = Option<Fault>>) -> FaultPlan {
    FaultPlan::none().script(Op::Commit(Purpose::Create), faults)
}

#[tokio::test]
async fn before_fails_and_writes_nothing() {
    let (f, inner, store) = faulty(create([Some(Fault::Before)])).await;
    let unit = f.creation(&f.message());
    assert!(matches!(store.commit(unit.clone()).await, Err(CommitError::Failed(_))));
    assert_eq!(inner.job(Scope::System, unit.job).await.unwrap(), None);
    assert!(store.commit(unit).await.is_ok(), "the script is over");
    assert_eq!(store.counts().into_iter().collect::<Vec<_>>(), [((Op::Commit(Purpose::Create), FaultKind::Before), 1)]);
}

#[tokio::test]
async fn a_lost_answer_says_nothing_of_the_write() {
    let (f, inner, store) = faulty(create([Some(Fault::Lost), None, Some(Fault::After)])).await;
    let lost = f.creation(&f.message());
    assert!(matches!(store.commit(lost.clone()).await, Err(CommitError::Unknown(_))));
    assert_eq!(store.resolve_unknown(&lost).await.unwrap(), None);
    f.pending().await;
    let written = f.creation(&f.message());
    assert!(matches!(store.commit(written.clone()).await, Err(CommitError::Unknown(_))));
    assert!(inner.job(Scope::System, written.job).await.unwrap().is_some());
    assert!(store.resolve_unknown(&written).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn settle_waits_for_a_late_write() {
    let (f, inner, store) = faulty(create([Some(Fault::Late(Span::from_secs(3)))])).await;
    let unit = f.creation(&f.message());
    let begun = tokio::time::Instant::now();
    assert!(matches!(store.commit(unit.clone()).await, Err(CommitError::Unknown(_))));
    assert_eq!(inner.job(Scope::System, unit.job).await.unwrap(), None);
    assert!(store.resolve_unknown(&unit).await.unwrap().is_some());
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_before_the_write() {
    let (f, inner, store) = faulty(create([Some(Fault::Delay(Span::from_secs(3)))])).await;
    let unit = f.creation(&f.message());
    let (job, writer) = (unit.job, store.clone());
    let write = tokio::spawn(async move { writer.commit(unit).await });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(inner.job(Scope::System, job).await.unwrap(), None);
    assert!(write.await.unwrap().is_ok());
    assert_eq!(store.happened(FaultKind::Delay), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_may_have_happened() {
    let plan = FaultPlan::none().script(Op::Claim, [Some(Fault::After), Some(Fault::Late(Span::from_secs(1)))]);
    let (f, inner, store) = faulty(plan).await;
    let (first, second) = (f.pending().await, f.pending().await);
    assert!(store.claim(f.request(1)).await.is_err());
    assert!(inner.job(Scope::System, first).await.unwrap().unwrap().holder.is_some());
    assert!(store.claim(f.request(1)).await.is_err());
    assert!(inner.job(Scope::System, second).await.unwrap().unwrap().holder.is_none());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(inner.job(Scope::System, second).await.unwrap().unwrap().holder.is_some());
}

#[tokio::test]
async fn questions_and_renewals_fail_too() {
    let (f, _, store) = faulty(FaultPlan::none()).await;
    let run = f.running().await;
    store.replan(FaultPlan::none().script(Op::Read, [Some(Fault::Before)]).script(Op::Heartbeat, [Some(Fault::After)]));
    assert!(store.job(Scope::System, run.job).await.is_err());
    assert!(store.job(Scope::System, run.job).await.is_ok());
    let leases = vec![aetheris_store::LeaseRenewal { fence: run.fence, job: run.job }];
    let worker = aetheris_store_conformance::fixture::worker();
    let request = aetheris_store::Heartbeat { leases, ttl: Span::from_secs(60), worker };
    assert!(store.heartbeat(request).await.is_err());
    let until = store.job(Scope::System, run.job).await.unwrap().unwrap().holder.unwrap().lease_until;
    assert_eq!(until, Timestamp::from_micros(60_000_001), "it was renewed all the same");
}
