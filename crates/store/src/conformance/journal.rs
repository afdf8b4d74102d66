//! J: the journal.

use aetheris_core::chain::Header;
use aetheris_core::event::EventKind;
use aetheris_core::hash::Hash;
use aetheris_core::id::JobId;
use aetheris_core::json::Json;

use super::{Fixture, snapshot};
use crate::unit::Purpose;
use crate::{CommitError, EventRow, Refusal};

/// A job with units, claims and a release behind it.
async fn worked(f: &Fixture) -> JobId {
    let run = f.running().await;
    f.ok(f.of(run, Purpose::Record).await.step("a", Json::null()).done()).await;
    f.advance(super::fixture::TTL);
    f.reclaim(run).await;
    let run = f.take(run.job).await;
    f.ok(f.of(run, Purpose::Finish).await.step("b", Json::null()).complete().done()).await;
    run.job
}

pub async fn j1_places_are_dense_over_units_and_claims(f: Fixture) {
    let job = worked(&f).await;
    let rows = snapshot::events(f.store(), job).await;
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), (1..=rows.len() as u64).collect::<Vec<_>>());
    let kinds: Vec<_> = rows.iter().map(|row| row.kind_name()).collect();
    let expected = "job_created plan_generated job_claimed node_started node_finished job_requeued job_claimed \
                    node_started node_finished job_completed";
    assert_eq!(kinds.join(" "), expected);
    assert_eq!(f.store().job(job).await.unwrap().unwrap().seq, rows.len() as u64);
}

pub async fn j1_one_of_sixteen_units_with_one_expectation_is_accepted(f: Fixture) {
    let run = f.running().await;
    let mut tasks = Vec::new();
    for writer in 0..16 {
        let unit = f.of(run, Purpose::Record).await.step(&format!("n{writer}"), Json::null()).done();
        let store = f.shared();
        tasks.push(tokio::spawn(async move { store.commit(unit).await }));
    }
    let mut accepted = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => accepted += 1,
            Err(CommitError::Refused(Refusal::Sequence { expected: 3, actual: 5 })) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(accepted, 1);
    assert_eq!(snapshot::events(f.store(), run.job).await.len(), 5);
}

/// The chain as it follows from what is stored.
pub(super) fn verify(job: JobId, rows: &[EventRow]) -> Hash {
    rows.iter().fold(Hash::ZERO, |previous, row| {
        assert_eq!(Hash::of(&row.payload), row.payload_hash, "payload of event {}", row.seq);
        let header = Header {
            job,
            seq: row.seq,
            id: row.id,
            kind: row.kind,
            schema_version: row.schema_version,
            fence: row.fence,
            at: row.at,
            payload_hash: row.payload_hash,
        };
        assert_eq!(header.chain(&previous), row.hash, "chain of event {}", row.seq);
        row.hash
    })
}

pub async fn j3_the_chain_verifies_from_stored_bytes(f: Fixture) {
    let job = worked(&f).await;
    let rows = snapshot::events(f.store(), job).await;
    assert!(rows.iter().any(|row| row.kind == EventKind::JobClaimed.code()));
    let head = verify(job, &rows);
    assert_eq!(f.store().job(job).await.unwrap().unwrap().head, head);
}
