//! Whatever answer of the store is lost, once: no error passes for "no", and nothing is forgotten because of one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aetheris_core::id::AgentName;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::time::Span;
use aetheris_runtime::OpError;
use aetheris_runtime::ops::{Signal, SignalAnswer, Submission};
use aetheris_store::faulty::{Decide, Fault, Op};
use serde_json::json;

use crate::world::{Act, World, done, hold, unknown};

/// A call in which a process dies and that is looked up, two plain steps, the first of which is
/// written while the second runs, a call that may be made again, a wait for a person, a sleep.
const AGENT: &str = "agent: a
version: \"1\"
planner: static
deadline: 1h
tools:
  pay: { kind: function, function: f, on_in_doubt: [{ reconcile: ask, settle: 1s }, human] }
  ask: { kind: function, function: f, effect: pure }
  look: { kind: function, function: f, effect: pure }
  note: { kind: function, function: f, effect: idempotent }
plan:
  nodes:
    - { id: p, kind: tool, tool: pay }
    - { id: l, kind: tool, tool: look, needs: [p] }
    - { id: m, kind: tool, tool: look, needs: [l] }
    - { id: n, kind: tool, tool: note, needs: [m], retry: { max_attempts: 3, backoff: 10ms } }
    - { id: w, kind: wait, needs: [n], wait_type: human, correlation_key: k }
    - { id: s, kind: sleep, needs: [w], duration: 5s }
    - { id: t, kind: tool, tool: pay, needs: [s] }
";

/// How often a unit is sent before its author hears of it.
const SENDS: u64 = 12;
const CLAIMS: u64 = 8;

/// What is lost: so many calls of one operation, from the nth on.
#[derive(Debug, Clone, Copy)]
struct Lost {
    count: u64,
    fault: Fault,
    nth: u64,
    op: Op,
}

/// Counts what is asked.
struct Asked {
    counts: Arc<Mutex<BTreeMap<Op, u64>>>,
    lost: Vec<Lost>,
}

impl Decide for Asked {
    fn decide(&mut self, op: Op) -> Option<Fault> {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(op).or_default();
        *count += 1;
        let now = |lost: &&Lost| lost.op == op && (lost.nth..lost.nth + lost.count).contains(count);
        self.lost.iter().find(now).map(|lost| lost.fault)
    }
}

/// Asks until the store answers: any other error is a wrong answer.
async fn insist<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, OpError>) -> T {
    for _ in 0..=2 * SENDS {
        match ask().await {
            Ok(answer) => return answer,
            Err(OpError::Store(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    panic!("{what}: no answer");
}

fn message() -> Submission {
    let labels = BTreeMap::from([("of".to_owned(), "test".to_owned())]);
    Submission {
        client_key: Some("m".to_owned()),
        labels,
        message: Some(Json::new(json!("hi"))),
        ..Submission::default()
    }
}

/// The whole story, with everybody behind that store. How often it was asked what.
async fn story(lost: Vec<Lost>) -> BTreeMap<Op, u64> {
    let world = World::new();
    world.put(AGENT).await;
    let (held, reached, _) = hold(done(json!(null)));
    world.tools.next("pay", [held]);
    world.tools.next("note", [Act::Say(unknown("cut off"))]);
    let happened = || Act::Say(done(json!({ "outcome": "happened", "result": 7 })));
    world.tools.next("ask", (0..8).map(|_| happened()));
    // A process dies in the call.
    let (gone, agent) = (world.start("gone"), AgentName::from("a"));
    let job = world.rt.submit(&agent, message()).await.unwrap().job;
    reached.notified().await;
    gone.kill();
    let counts = Arc::default();
    let process = world.start_behind("w", Asked { counts: Arc::clone(&counts), lost: lost.clone() });
    let rt = &process.rt;
    assert_eq!(insist("submit", async || rt.submit(&agent, message()).await).await.job, job, "{lost:?}");
    world.until(job, &[JobStatus::Waiting]).await;
    insist("pause", async || rt.pause(job).await).await;
    world.until(job, &[JobStatus::Paused]).await;
    insist("resume", async || rt.resume(job).await).await;
    let answer = insist("signal", async || {
        let signal = Signal { correlation_key: "k".to_owned(), payload: Json::new(json!("yes")), wait_type: None };
        rt.signal(job, signal).await
    })
    .await;
    let ended = matches!(answer, SignalAnswer::Delivered | SignalAnswer::AlreadyDelivered { payload_matches: true });
    assert!(ended, "{lost:?}: {answer:?}");
    let state = world.done(job).await;
    assert_eq!(state.status, JobStatus::Completed, "{lost:?}: {:?}", world.kinds(job).await);
    assert_eq!((world.tools.count("pay"), world.result(job).await), (2, json!({})), "{lost:?}");
    assert_eq!(world.tools.count("note"), 2, "{lost:?}");
    process.kill();
    counts.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn whichever_answer_is_lost_the_job_ends_as_if_none_had_been() {
    let soon = Span::from_secs(2);
    for (op, times) in story(Vec::new()).await {
        // Claims come every tenth of a second while nothing can be claimed.
        let times = if op == Op::Claim { times.min(CLAIMS) } else { times };
        for nth in 1..=times {
            for fault in [Fault::Before, Fault::After, Fault::Lost, Fault::Late(soon), Fault::Delay(soon)] {
                story(vec![Lost { count: 1, fault, nth, op }]).await;
            }
            // More than the writer of a unit asks by itself.
            if let Op::Commit(_) = op {
                for fault in [Fault::Before, Fault::Lost] {
                    story(vec![Lost { count: SENDS + 1, fault, nth, op }]).await;
                }
                // It is there, and for a while nobody says so.
                for count in [1, SENDS, SENDS + 1] {
                    let unheard = Lost { count: 1, fault: Fault::After, nth, op };
                    let unseen = Lost { count, fault: Fault::Before, nth: 1, op: Op::ResolveUnknown };
                    story(vec![unheard, unseen]).await;
                }
            }
        }
    }
}
