//! What outlives a process.

use aetheris_core::json::Json;
use aetheris_core::time::Span;

use super::{Durable, Fixture, fixture, snapshot};
use crate::unit::Purpose;

pub async fn j13_what_was_answered_reads_the_same_after_opening_again(f: Fixture, harness: &dyn Durable) {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    let before = snapshot::of_job(f.store(), run.job).await;
    let overview = snapshot::overview(f.store(), &[fixture::instance()]).await;
    let f = f.reopen(harness).await;
    assert_eq!(snapshot::of_job(f.store(), run.job).await, before);
    assert_eq!(snapshot::overview(f.store(), &[fixture::instance()]).await, overview);
    f.advance(Span::from_secs(1));
    assert!(f.renew(run).await, "the lease is still this run's");
}
