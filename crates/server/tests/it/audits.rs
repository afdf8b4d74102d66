//! Replay, verification and trace of jobs that are large, that go on meanwhile, or whose books are wrong.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aetheris_core::limits;
use aetheris_core::state::JobState;
use aetheris_runtime::draft::Draft;
use aetheris_store::system::SystemIds;
use aetheris_store::{Checkpoint, ErrorKind, History, Purpose, Scope, StoreError};
use axum::body::Body;
use axum::http::Request;
use futures_util::poll;
use serde_json::Value;
use tokio::sync::oneshot;
use tower::ServiceExt;

use crate::bed::{Bed, Reply, finished, started};
use crate::between::Between;
use crate::evidence::completed;

/// A waiting job that is cancelled behind such an answer to a question of this name, 0 for the first.
async fn cancelled_behind((question, place): (&'static str, usize), what: &str) -> Reply {
    let bed = Bed::with_agents().await;
    let job = bed.waiting().await;
    let (router, asked, cancel) = (bed.router.clone(), AtomicUsize::new(0), format!("/api/jobs/{job}/cancel"));
    let store = Between::then(Arc::clone(&bed.store), move |name| {
        let now = name == question && asked.fetch_add(1, Ordering::SeqCst) == place;
        let request = now.then(|| router.clone().oneshot(Request::post(&cancel).body(Body::empty()).unwrap()))?;
        Some(Box::pin(async { assert_eq!(request.await.unwrap().status(), 202) }))
    });
    let seen = Bed::on(bed.clock.clone(), Arc::new(store), |state| state);
    let reply = seen.get(&format!("/api/jobs/{job}/{what}")).await;
    let row = bed.store.job(Scope::System, job.parse().unwrap()).await.unwrap().unwrap();
    assert!(row.status.is_terminal(), "{question} is not asked");
    reply
}

#[tokio::test]
async fn a_job_that_goes_on_while_it_is_verified_is_sound() {
    // The first look is for how long it is, the second one for all that is compared.
    for (answer, seen) in [
        (("glance", 0), true),
        (("job", 0), true),
        (("timers", 0), true),
        (("glance", 1), false),
        (("events", 0), false),
    ] {
        let verify = cancelled_behind(answer, "verify").await;
        assert_eq!(verify.is(200)["valid"], true, "{answer:?}: {}", verify.text);
        let replay = cancelled_behind(answer, "replay").await;
        assert_eq!(replay.is(200)["matches"], true, "{answer:?}: {}", replay.text);
        let cancelled = replay.body["state"]["status"] == "cancelled";
        assert_eq!(cancelled, seen, "{answer:?}: {}", replay.text);
    }
}

#[tokio::test]
async fn a_trace_is_of_the_moment_at_which_its_row_was_read() {
    let trace = cancelled_behind(("job", 0), "trace").await;
    let view = trace.is(200);
    assert_eq!((&view["status"], &view["ended_at"]), (&"parked".into(), &Value::Null));
    assert_eq!(view["runs"][0]["ended_by"], "job_waiting");
}

/// The history from a checkpoint on, which is of so many events and is this.
fn from(history: &mut History, seq: u64, checkpoint: &Checkpoint) {
    history.events.retain(|event| event.seq > seq);
    history.checkpoint = Some(checkpoint.clone());
}

/// The state after so many events.
fn at(history: &History, seq: u64) -> JobState {
    JobState::fold(history.row.id, history.events.iter().filter(|event| event.seq <= seq)).unwrap()
}

/// What a verification finds of a sound job whose books are changed, and what a replay answers of it.
async fn told(change: impl Fn(&mut History) + Clone + Send + Sync + 'static) -> (Vec<(String, String)>, (u16, Value)) {
    let bed = Bed::with_agents().await;
    let job = completed(&bed).await;
    let store = Between::changed(Arc::clone(&bed.store), change);
    let seen = Bed::on(bed.clock.clone(), Arc::new(store), |state| state);
    let verify = seen.get(&format!("/api/jobs/{job}/verify")).await;
    let checks = verify.is(200)["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let found = checks.map(|check| (text(&check["name"]), text(&check["detail"]))).collect();
    let replay = seen.get(&format!("/api/jobs/{job}/replay")).await;
    (found, (replay.status.as_u16(), replay.body["matches"].clone()))
}

#[tokio::test]
async fn a_sound_checkpoint_is_met_wherever_it_is() {
    let (found, (status, matches)) = told(|_| ()).await;
    assert_eq!((found, status, matches), (vec![], 200, true.into()));
    for seq in 1..=10 {
        let (found, (status, matches)) = told(move |history| {
            let seq = seq.min(history.row.seq);
            let checkpoint = Checkpoint::of(seq, &at(history, seq));
            from(history, seq, &checkpoint);
        })
        .await;
        assert_eq!((found, status, matches), (vec![], 200, true.into()), "{seq}");
    }
}

#[tokio::test]
async fn every_wrong_checkpoint_is_found() {
    const DIFFERS: &str = "the state from the newest checkpoint differs from the one folded from the first event";
    let other = |seq: u64| {
        move |history: &mut History| {
            let seq = seq.min(history.row.seq);
            let state = JobState { priority: 7, ..at(history, seq) };
            from(history, seq, &Checkpoint::of(seq, &state));
        }
    };
    for seq in [3, 1_000] {
        let (found, (status, matches)) = told(other(seq)).await;
        assert_eq!(found, [("replay".to_owned(), DIFFERS.to_owned())]);
        assert_eq!((status, matches), (200, false.into()), "{seq}");
    }
    // The newest checkpoint is of an event that is not there.
    let ahead = |history: &mut History| {
        let last = history.row.seq;
        let state = JobState { seq: last + 1, ..at(history, last) };
        from(history, last + 1, &Checkpoint::of(last + 1, &state));
    };
    let (found, (status, matches)) = told(ahead).await;
    assert_eq!(found, [("replay".to_owned(), DIFFERS.to_owned())]);
    assert_eq!((status, matches), (200, false.into()));
    // One that lacks an event, and one that nobody can read.
    let late = |history: &mut History| {
        let state = at(history, 2);
        from(history, 3, &Checkpoint::of(3, &state));
    };
    let broken = |history: &mut History| from(history, 3, &Checkpoint::from_bytes(3, b"{".to_vec()));
    for (found, says) in [(told(late).await, "event 4 follows event 2"), (told(broken).await, "cannot be read")] {
        let (found, (status, _)) = found;
        assert!(found.len() == 1 && found[0].0 == "replay" && found[0].1.contains(says), "{found:?}");
        assert_eq!(status, 500);
    }
}

/// A job of so many MiB, in outputs of one each.
async fn job_of(bed: &Bed, mib: usize) -> String {
    const OF_A_UNIT: usize = 20;
    let plan: String = (0..mib).map(|n| format!("    - {{ id: n{n}, kind: transform, output: 1 }}\n")).collect();
    bed.call("PUT", "/api/agents/large", format!("agent: large\nplan:\n  nodes:\n{plan}")).await.is(201);
    let job = bed.send("large", "1").await;
    let hand = bed.claim().await;
    for first in (0..mib).step_by(OF_A_UNIT) {
        hand.write(Purpose::Record, |draft: &mut Draft| {
            for n in first..mib.min(first + OF_A_UNIT) {
                let (node, output) = (format!("n{n}"), "x".repeat(limits::PAYLOAD_BYTES_MAX - 1_024));
                draft.push(&SystemIds, started(&node)).unwrap();
                draft.push(&SystemIds, finished(&node, Some(output.into()))).unwrap();
            }
        })
        .await;
    }
    job
}

/// The most memory that this process has had since it was last asked, and what it has now, in MiB.
#[cfg(target_os = "linux")]
fn memory_mib() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel counts");
    std::fs::write("/proc/self/clear_refs", "5").expect("it counts anew");
    let read = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is counted");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("in kibibytes") / 1_024
    };
    (read("VmHWM:"), read("VmRSS:"))
}

/// However many ask at once. A job was in memory three times for each of two of them.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_large_job_is_in_memory_once_while_it_is_verified_and_once_more_in_its_replays_answer() {
    const MIB: usize = 40;
    let bed = Bed::new();
    let job = job_of(&bed, MIB).await;
    for (what, most) in [("verify", 3 * MIB / 2), ("replay", 7 * MIB / 2)] {
        let path = format!("/api/jobs/{job}/{what}");
        // On a busy machine the other may be told to come again, each time after ten seconds.
        let ask = async || {
            for _ in 0..6 {
                let answer = bed.raw(Request::get(&path).body(Body::empty()).unwrap()).await;
                if answer.status() != axum::http::StatusCode::SERVICE_UNAVAILABLE {
                    return answer;
                }
            }
            panic!("{path}: there is no place for a minute");
        };
        let (_, before) = memory_mib();
        let (one, other) = tokio::join!(ask(), ask());
        assert_eq!((one.status(), other.status()), (axum::http::StatusCode::OK, axum::http::StatusCode::OK));
        let (peak, _) = memory_mib();
        assert!(peak - before <= most, "{what}: {} MiB more for a job of {MIB} MiB", peak - before);
    }
}

/// A bed on the store of another, whose first answer to a question of this name is held back: when it is, and what is to
/// be dropped for it to go on. A look at an unreadable one tells of damage.
fn held_back(bed: &Bed, question: &'static str, unreadable: bool) -> (Bed, oneshot::Receiver<()>, oneshot::Sender<()>) {
    let (begun, told) = oneshot::channel();
    // Whoever holds the other end lets it go on by being gone.
    let (go_on, held) = oneshot::channel::<()>();
    let first = Mutex::new(Some((begun, held)));
    let store = Between::then(Arc::clone(&bed.store), move |name| {
        let (begun, held) = first.lock().unwrap().take_if(|_| name == question)?;
        Some(Box::pin(async move {
            begun.send(()).unwrap();
            drop(held.await);
        }))
    });
    let store = store.failing(move |name| {
        let damaged = unreadable && name == "glance";
        damaged.then(|| StoreError::new(ErrorKind::Corrupt, "glance", "the checkpoint cannot be read"))
    });
    (Bed::on(bed.clock.clone(), Arc::new(store), |state| state), told, go_on)
}

/// Asks for a large job, while another request has its place: each waits for it, and is told to come again.
async fn all_wait_in_vain(bed: &Bed, large: &str) {
    tokio::time::pause();
    let mut others = ["verify", "replay"].map(|what| {
        let path = format!("/api/jobs/{large}/{what}");
        Box::pin(async move { bed.get(&path).await })
    });
    for other in &mut others {
        assert!(poll!(other.as_mut()).is_pending());
    }
    tokio::time::advance(limits::ANSWER_PATIENCE.to_std() + Duration::from_secs(1)).await;
    for other in others {
        let refused = other.await;
        assert!(refused.problem(503, "overloaded").contains("another large job"), "{}", refused.text);
        assert_eq!(refused.headers["retry-after"], "1");
    }
    tokio::time::resume();
}

#[tokio::test]
async fn one_large_job_is_verified_at_a_time_and_small_ones_beside_it() {
    let bed = Bed::with_agents().await;
    let large = job_of(&bed, 1).await;
    let small = bed.send("pay", "1").await;
    let (bed, told, go_on) = held_back(&bed, "history", false);
    let path = format!("/api/jobs/{large}/verify");
    let (one, ()) = tokio::join!(bed.get(&path), async {
        told.await.unwrap();
        bed.get(&format!("/api/jobs/{small}/verify")).await.is(200);
        bed.get(&format!("/api/jobs/{small}/replay")).await.is(200);
        all_wait_in_vain(&bed, &large).await;
        drop(go_on);
    });
    assert_eq!(one.is(200)["valid"], true);
}

/// What cannot be looked at may be of any size.
#[tokio::test]
async fn one_job_that_cannot_be_read_is_verified_at_a_time() {
    let bed = Bed::with_agents().await;
    let job = bed.send("pay", "1").await;
    let (bed, told, go_on) = held_back(&bed, "events", true);
    let path = format!("/api/jobs/{job}/verify");
    let (one, ()) = tokio::join!(bed.get(&path), async {
        told.await.unwrap();
        all_wait_in_vain(&bed, &job).await;
        drop(go_on);
    });
    assert_eq!(one.is(200)["valid"], false);
}
