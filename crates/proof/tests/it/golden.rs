//! Golden folders: what earlier builds left behind is opened, verified and gone on with.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use aetheris_core::id::JobId;
use aetheris_proof::drive::client::Client;
use aetheris_proof::drive::process::{Launch, Running, Started};
use aetheris_proof::scratch::Scratch;
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
    scratch: Scratch,
}

impl Folder {
    async fn open(name: &str) -> Self {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
        let scratch = Scratch::new("golden").unwrap();
        for (from, to) in [("aetheris.sqlite", "aetheris.db"), ("aetheris.lock", "aetheris.lock")] {
            std::fs::copy(golden.join(from), scratch.path().join(to)).unwrap();
        }
        let jobs = serde_json::from_slice(&std::fs::read(golden.join("expected.json")).unwrap()).unwrap();
        let process = start(scratch.path()).await;
        let (_, url) = watch::channel(process.url().unwrap());
        Self { client: Client::new(url).unwrap(), jobs, process, scratch }
    }

    fn job(&self, label: &str) -> JobId {
        self.jobs[label].job
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

async fn start(data: &Path) -> Box<Running> {
    let args = ["dev", "--listen", "127.0.0.1:0", "--data"].map(str::to_owned);
    let args = args.into_iter().chain([data.display().to_string()]).collect();
    let log = data.join("log");
    let launch = Launch { args, crash: None, env: Vec::new(), log, program: crate::program() };
    match launch.start().await.unwrap() {
        Started::Ready(process) => process,
        Started::Killed => unreachable!("nothing kills it"),
    }
}

/// What had ended is shown as it was, and every history verifies and replays.
async fn nothing_has_changed(folder: &Folder) {
    for (label, kept) in &folder.jobs {
        let now = folder.client.job(kept.job).await.unwrap();
        let ended = ["completed", "failed", "cancelled"].map(Value::from).contains(&kept.shown["status"]);
        for (field, was) in &kept.shown {
            let moves = !ended && ["status", "epoch", "usage", "error", "result"].contains(&field.as_str());
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

async fn what_was_open_goes_on(folder: &Folder) {
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

#[test]
fn what_the_kernel_left_behind_is_opened_verified_and_gone_on_with() {
    crate::block_on(async {
        let mut folder = Folder::open("kernel").await;
        let work = async {
            nothing_has_changed(&folder).await;
            what_was_open_goes_on(&folder).await;
            nothing_has_changed(&folder).await;
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
