//! Golden folders: what earlier builds left behind is opened, verified and gone on with.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use aetheris_core::id::JobId;
use aetheris_proof::drive::client::Client;
use aetheris_proof::drive::process::{Launch, Running, Started};
use aetheris_store::system::{Clock as _, SystemClock};
use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

/// How long a folder may take to come to rest.
const BOUND: Duration = Duration::from_secs(60);

/// A job as the build that wrote it showed it.
#[derive(Deserialize)]
struct Kept {
    job: JobId,
    shown: BTreeMap<String, Value>,
}

struct Folder {
    client: Client,
    jobs: BTreeMap<String, Kept>,
    process: Box<Running>,
    scratch: aetheris_harness::Folder,
}

impl Folder {
    async fn open(name: &str) -> Self {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
        let scratch = aetheris_harness::Folder::new("golden");
        std::fs::copy(golden.join("aetheris.sqlite"), scratch.path().join("aetheris.db")).unwrap();
        std::fs::copy(golden.join("aetheris.lock"), scratch.path().join("aetheris.lock")).unwrap();
        // Builds that have it know by it that the folder is another one.
        let seen = golden.join("aetheris.seen");
        if seen.exists() {
            std::fs::copy(&seen, scratch.path().join("aetheris.seen")).unwrap();
        }
        let jobs = serde_json::from_slice(&std::fs::read(golden.join("expected.json")).unwrap()).unwrap();
        let process = start(scratch.path(), seen.exists()).await;
        let (_, url) = watch::channel(process.url().unwrap());
        Self { client: Client::new(url).unwrap(), jobs, process, scratch }
    }

    fn job(&self, label: &str) -> JobId {
        self.jobs[label].job
    }

    async fn resume(&self, label: &str) {
        let path = format!("/api/jobs/{}/resume", self.job(label));
        let (status, answer) = self.client.ask(&Method::POST, &path, None, None).await.unwrap();
        assert!(status.is_success(), "{label}: {answer}");
    }

    async fn ask(&self, path: &str) -> Value {
        self.client.ask(&Method::GET, path, None, None).await.unwrap().1
    }

    async fn signal(&self, label: &str, key: &str, payload: &Value) {
        let path = format!("/api/jobs/{}/signal", self.job(label));
        let body = json!({"correlation_key": key, "payload": payload}).to_string();
        let (status, answer) = self.client.ask(&Method::POST, &path, Some(&body), None).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{label}: {answer}");
    }

    /// Waits for a status; the job as it is then.
    async fn until(&self, label: &str, status: &str) -> Value {
        self.client.until(self.job(label), |job| job["status"] == status).await.unwrap()
    }
}

/// How long after its last event a folder is opened, whatever day it is: what it waits for is years away then as now.
const LATER_US: i64 = 3_600_000_000;

/// What takes the clock back to then.
fn offset(database: &Path) -> i64 {
    let conn = rusqlite::Connection::open(database).unwrap();
    let last: i64 = conn.query_row("SELECT max(at) FROM events", [], |row| row.get(0)).unwrap();
    last + LATER_US - SystemClock.wall().micros()
}

async fn start(data: &Path, moved: bool) -> Box<Running> {
    let clock = data.join("clock");
    std::fs::write(&clock, offset(&data.join("aetheris.db")).to_string()).unwrap();
    let env = vec![("AETHERIS_CLOCK_OFFSET".to_owned(), clock.display().to_string())];
    let args = ["dev", "--listen", "127.0.0.1:0", "--data"].map(str::to_owned);
    let moved = moved.then(|| "--moved".to_owned());
    let args = args.into_iter().chain([data.display().to_string()]).chain(moved).collect();
    let log = data.join("log");
    let launch = Launch { args, crash: None, env, log, program: crate::program() };
    match launch.start().await.unwrap() {
        Started::Ready(process) => process,
        Started::Killed => unreachable!("nothing kills it"),
    }
}

/// What had ended, or rests, is shown as it was, and every history verifies and replays.
async fn nothing_has_changed(folder: &Folder, at_rest: &[&str]) {
    for (label, kept) in &folder.jobs {
        let now = folder.client.job(kept.job).await.unwrap();
        let ended = ["completed", "failed", "cancelled"].map(Value::from).contains(&kept.shown["status"])
            || at_rest.contains(&label.as_str());
        for (field, was) in &kept.shown {
            let moves = !ended && ["status", "epoch", "usage", "error", "result", "waiting"].contains(&field.as_str());
            // Its tool calls are those that a budget counts since: tries of pure tools too.
            let more = field == "usage" && now[field]["tokens"] == was["tokens"];
            assert!(moves || more || now[field] == *was, "{label}: `{field}` was {was} and is {}", now[field]);
        }
        let verified = folder.ask(&format!("/api/jobs/{}/verify", kept.job)).await;
        assert_eq!(verified["valid"], true, "{label}: {verified}");
        let replayed = folder.ask(&format!("/api/jobs/{}/replay", kept.job)).await;
        assert_eq!(replayed["matches"], true, "{label}");
    }
}

async fn what_the_kernel_left_open_goes_on(folder: &Folder) {
    let yes = |label: &str| format!("yes-{}", folder.job(label));
    for label in ["parked", "behind"] {
        folder.until(label, "parked").await;
        folder.signal(label, &yes(label), &json!({"said": label})).await;
        assert_eq!(folder.until(label, "completed").await["result"], json!({"said": label}));
    }
    folder.signal("long", "end", &Value::Null).await;
    assert_eq!(folder.until("long", "completed").await["result"], "end");
    // A call that was in flight when its process was killed is in doubt, and asks.
    for label in ["in_flight", "resolved_not"] {
        folder.until(label, "parked").await;
        folder.client.resolve(folder.job(label)).await.unwrap();
        assert_eq!(folder.until(label, "completed").await["result"], json!({"by": "operator"}));
    }
    // One that may be repeated is, and nobody answers it any more.
    assert_eq!(folder.until("pure_in_flight", "failed").await["error"]["code"], "connection_refused");
    for (label, status) in [("asleep", "waiting"), ("kept", "waiting"), ("future", "pending"), ("backoff", "pending")] {
        folder.until(label, status).await;
    }
}

async fn what_the_repairs_left_open_goes_on(folder: &Folder) {
    let ask = |label: &str| format!("ask-{}", folder.job(label));
    // What a restore holds and what a person has paused stays so until somebody lets it go on.
    for label in ["held", "paused"] {
        folder.until(label, "paused").await;
        folder.resume(label).await;
    }
    for label in ["parked", "behind", "held", "paused"] {
        folder.until(label, "parked").await;
        folder.signal(label, &ask(label), &json!({"said": label})).await;
        assert_eq!(folder.until(label, "completed").await["result"], json!({"said": label}));
    }
    // Behind a checkpoint, or, if this build does not know its form, behind a longer fold.
    folder.signal("long-open", &ask("long-open"), &json!("end")).await;
    assert_eq!(folder.until("long-open", "completed").await["result"], "end of 7");
    for label in ["in-flight", "doubt"] {
        folder.until(label, "parked").await;
        folder.client.resolve(folder.job(label)).await.unwrap();
        assert_eq!(folder.until(label, "completed").await["result"], json!({"by": "operator"}));
    }
    assert_eq!(folder.until("pure-in-flight", "failed").await["error"]["code"], "connection_refused");
    for (label, status) in [("asleep", "waiting"), ("kept", "waiting"), ("future", "pending"), ("backoff", "pending")] {
        folder.until(label, status).await;
    }
}

async fn what_every_kind_left_open_goes_on(folder: &Folder) {
    what_the_repairs_left_open_goes_on(folder).await;
    let key = |label: &str, step: &str| format!("{}/{step}", folder.job(label));
    // A loop that has asked a person: what its turns and calls came to is not asked for again, as nobody is there to answer.
    folder.until("loop-open", "parked").await;
    folder.signal("loop-open", &key("loop-open", "one/1.0"), &json!({"said": "yes"})).await;
    assert_eq!(folder.until("loop-open", "completed").await["result"], "{\"said\":\"yes\"}");
    for (item, said) in [(1, "second"), (2, "third")] {
        let waits = |job: &Value| job["waits"].as_array().is_some_and(|waits| !waits.is_empty());
        folder.client.until(folder.job("map-open"), waits).await.unwrap();
        let step = format!("all[{item}]");
        let asked = |job: &Value| {
            job["waits"].as_array().is_some_and(|waits| waits.iter().any(|wait| wait["node_id"] == step.as_str()))
        };
        folder.client.until(folder.job("map-open"), asked).await.unwrap();
        folder.signal("map-open", &key("map-open", &step), &json!(said)).await;
    }
    assert_eq!(folder.until("map-open", "completed").await["result"], json!(["first", "second", "third"]));
    let child = folder.client.job(folder.job("parent")).await.unwrap()["steps"]["one"]["child"]["job_id"].clone();
    let (path, key_of_child) =
        (format!("/api/jobs/{}", child.as_str().unwrap()), format!("ask-{}", child.as_str().unwrap()));
    // A restore holds the child as well.
    if folder.ask(&path).await["status"] == "paused" {
        folder.client.ask(&Method::POST, &format!("{path}/resume"), None, None).await.unwrap();
    }
    let body = json!({"correlation_key": key_of_child, "payload": "from below"}).to_string();
    folder.client.ask(&Method::POST, &format!("{path}/signal"), Some(&body), None).await.unwrap();
    assert_eq!(folder.until("parent", "completed").await["result"], "from below");
    folder.signal("planning", &format!("plan-{}-1", folder.job("planning")), &json!({"approved": true})).await;
    assert_eq!(folder.until("planning", "completed").await["result"], "planned");
    folder.signal("refining", &key("refining", "one@1"), &json!({"fits": true})).await;
    assert_eq!(folder.until("refining", "completed").await["result"], json!({"fits": true}));
    folder.until("drawn", "pending").await;
}

/// Opens a folder, goes on with it, and checks it when its process has ended.
fn opened_and_gone_on_with(name: &str, at_rest: &[&str], goes_on: impl AsyncFn(&Folder)) {
    crate::block_on(async {
        let mut folder = Folder::open(name).await;
        let work = async {
            nothing_has_changed(&folder, at_rest).await;
            goes_on(&folder).await;
            nothing_has_changed(&folder, &[]).await;
        };
        tokio::select! {
            () = work => {}
            () = tokio::time::sleep(BOUND) => panic!("stuck for {BOUND:?}"),
        }
        folder.process.signal(Signal::TERM).unwrap();
        assert!(folder.process.wait().await.unwrap().success());
        let mut check = std::process::Command::new(crate::program());
        let found = check.args(["check-consistency", "--data"]).arg(folder.scratch.path()).output().unwrap();
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
    });
}

#[test]
fn what_the_kernel_left_behind_is_opened_verified_and_gone_on_with() {
    opened_and_gone_on_with("kernel", &["asleep", "future", "kept", "parked"], what_the_kernel_left_open_goes_on);
}

#[test]
fn what_every_kind_left_behind_is_opened_verified_and_gone_on_with() {
    let at_rest = [
        "asleep",
        "doubt",
        "drawn",
        "future",
        "held",
        "kept",
        "long-open",
        "loop-open",
        "parked",
        "paused",
        "planning",
        "refining",
    ];
    opened_and_gone_on_with("kinds", &at_rest, what_every_kind_left_open_goes_on);
}

#[test]
fn what_the_repairs_left_behind_is_opened_verified_and_gone_on_with() {
    let at_rest = ["asleep", "doubt", "future", "held", "kept", "long-open", "parked", "paused"];
    opened_and_gone_on_with("repairs", &at_rest, what_the_repairs_left_open_goes_on);
}
