use aetheris_core::hash::Hash;
use aetheris_core::job::JobStatus;
use aetheris_core::state::JobState;
use aetheris_server::verify::{self, Chain};
use aetheris_store::{EventRow, History, JobRow};

use crate::bed::Bed;

async fn completed(bed: &Bed) -> String {
    let job = bed.send("pay", "5").await;
    let hand = bed.claim().await;
    hand.called("send", serde_json::json!({"receipt": 9})).await;
    hand.complete("send").await;
    job
}

#[tokio::test]
async fn a_sound_job_replays_and_verifies() {
    let bed = Bed::with_agents().await;
    let doubted = bed.doubted().await.0;
    for job in [completed(&bed).await, bed.waiting().await, doubted, bed.send("pay", "1").await] {
        let replay = bed.get(&format!("/api/jobs/{job}/replay")).await;
        assert_eq!(replay.is(200)["matches"], true, "{}", replay.text);
        assert_eq!(replay.body["state_hash"], replay.body["live_state_hash"]);
        assert_eq!(replay.body["state"]["id"], job.as_str());
        assert_eq!(replay.body["events"], replay.body["state"]["seq"]);
        let verify = bed.get(&format!("/api/jobs/{job}/verify")).await;
        assert_eq!(verify.is(200)["valid"], true, "{}", verify.text);
        let names: Vec<_> =
            verify.body["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["sequence", "payloads", "chain", "head", "readable", "replay", "ledger"]);
    }
}

#[tokio::test]
async fn a_trace_tells_the_runs_and_where_results_came_from() {
    let bed = Bed::with_agents().await;
    let job = completed(&bed).await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    let view = trace.is(200);
    assert_eq!(view["runs"][0]["ended_by"], "job_completed");
    let step = &view["steps"][0];
    assert_eq!((step["node_id"].as_str(), step["kind"].as_str()), (Some("send"), Some("tool")));
    assert_eq!((step["source"].as_str(), step["result"].as_str()), (Some("executed"), Some("side_effect_committed")));
    assert_eq!((step["tool"]["version"].as_str(), step["tool"]["permits"].as_u64()), (Some("2"), Some(1)));
    assert_eq!(step["attempts"].as_array().unwrap().len(), 1);

    let job = bed.waiting().await;
    bed.call("POST", &format!("/api/jobs/{job}/signal"), r#"{"correlation_key": "ok-7", "payload": null}"#)
        .await
        .is(200);
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    assert_eq!(trace.is(200)["steps"][0]["ended_by"], "signal");
    assert_eq!(trace.body["steps"][1]["needs"], serde_json::json!(["ask"]));
    assert_eq!(trace.body["runs"][0]["ended_by"], "job_waiting");
}

/// A step whose outcome was unknown waits by its policy, which is not how it ends.
#[tokio::test]
async fn a_call_in_doubt_is_not_ended_by_time() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "1").await;
    bed.claim().await.doubt_and_wait("send").await;
    let trace = bed.get(&format!("/api/jobs/{job}/trace")).await;
    assert_eq!(trace.is(200)["steps"][0]["doubts"].as_array().unwrap().len(), 1);
    assert_eq!(trace.body["steps"][0]["ended_by"], serde_json::Value::Null);
}

async fn stored(bed: &Bed, job: &str) -> (Vec<EventRow>, History) {
    let id = job.parse().unwrap();
    let rows = bed.store.events(id, 0, 1_000).await.unwrap();
    (rows, bed.store.history(id, true).await.unwrap().unwrap())
}

/// The names of the checks that a changed stream fails.
fn failed(rows: &[EventRow], row: &JobRow) -> Vec<String> {
    let mut chain = Chain::new(row.id);
    rows.iter().for_each(|event| chain.push(event));
    chain.checks(row).into_iter().filter(|check| !check.ok).map(|check| check.name).collect()
}

#[tokio::test]
async fn every_change_of_a_stored_stream_is_found() {
    let bed = Bed::with_agents().await;
    let (rows, history) = stored(&bed, &completed(&bed).await).await;
    let row = &history.row;
    assert_eq!(failed(&rows, row), [""; 0]);
    let with = |change: fn(&mut Vec<EventRow>)| {
        let mut changed = rows.clone();
        change(&mut changed);
        failed(&changed, row)
    };
    assert_eq!(with(|rows| drop(rows.remove(3))), ["sequence", "chain"]);
    assert_eq!(with(|rows| drop(rows.pop())), ["head"]);
    assert_eq!(with(|rows| rows.swap(2, 3)), ["sequence", "chain"]);
    assert_eq!(with(|rows| rows[0].payload[5] ^= 1), ["payloads", "readable"]);
    assert_eq!(with(|rows| rows[1].fence.epoch += 1), ["chain"]);
    assert_eq!(with(|rows| rows[4].schema_version += 1), ["chain", "readable"]);
    assert_eq!(with(|rows| rows[4].kind = 200), ["chain", "readable"]);
    assert_eq!(with(|rows| rows[2].hash = Hash::ZERO), ["chain"]);
    // A forger who computes the payload's hash anew breaks the chain instead.
    assert_eq!(
        with(|rows| {
            rows[0].payload = rows[0].payload.iter().map(|b| if *b == b'5' { b'6' } else { *b }).collect();
            rows[0].payload_hash = Hash::of(&rows[0].payload);
        }),
        ["chain"]
    );
    let mut other = row.clone();
    other.head = Hash::ZERO;
    assert_eq!(failed(&rows, &other), ["head"]);
}

#[tokio::test]
async fn every_disagreement_of_ledger_and_events_is_found() {
    let bed = Bed::with_agents().await;
    let (_, history) = stored(&bed, &completed(&bed).await).await;
    let state = JobState::fold(history.row.id, &history.events).unwrap();
    assert_eq!(state.status, JobStatus::Completed);
    let with = |change: fn(&mut History)| {
        let mut changed = history.clone();
        change(&mut changed);
        verify::ledger(&state, &changed)
    };
    assert_eq!(with(|_| {}), [""; 0]);
    for (change, says) in [
        ((|h| h.effects.clear()) as fn(&mut History), "has no effect"),
        (|h| h.ledger.clear(), "not in the ledger"),
        (|h| h.effects[0].result = serde_json::json!(1).into(), "another result"),
        (|h| h.ledger[0].status = aetheris_core::ledger::LedgerStatus::NotSent, "has an effect"),
        (|h| h.ledger[0].permit = 2, "permit 2"),
        (|h| h.ledger[0].input_hash = Hash::ZERO, "other arguments"),
        (|h| h.ledger[0].key = aetheris_core::id::IdempotencyKey::from_u128(1), "not in the events"),
    ] {
        let found = with(change);
        assert!(found.iter().any(|text| text.contains(says)), "{says}: {found:?}");
    }
}
