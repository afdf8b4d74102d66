//! Makes a golden folder: jobs of every kind as this build leaves them, those that have ended and those that are open, and
//! what it shows of them. `tests/it/golden.rs` lets later builds go on with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aetheris_core::id::JobId;
use aetheris_core::state::JobState;
use aetheris_plain::hex;
use aetheris_runtime::load::Loaded;
use aetheris_store::{Scope, Store as _};
use aetheris_store_sqlite::{SqliteOptions, SqliteStore};
use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use reqwest::{Method, StatusCode};
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Map, Value, json};

use crate::drive::client::Client;
use crate::drive::fleet::Fleet;
use crate::drive::process::{Running, Started};
use crate::drive::stories::STORIES;

/// What is kept of a job as the build showed it.
const SHOWN: [&str; 12] = [
    "status",
    "result",
    "error",
    "epoch",
    "agent",
    "agent_version",
    "session_id",
    "message",
    "usage",
    "labels",
    "priority",
    "waiting",
];

/// Agents whose jobs are open when the process is killed: by name, with their files; `URL` stands for the witness.
const OPEN: [(&str, &str); 15] = [
    (
        "parked",
        "plan:\n  nodes:\n    - { id: ask, kind: wait, wait_type: human, correlation_key: \"ask-{{ job.id }}\", park: true, deadline: 9000h, on_deadline: { continue_with: { late: true } } }\n  answer: \"{{ nodes.ask.output }}\"\n",
    ),
    (
        "loop-open",
        "model: scripted/tools\ntools:\n  again: { kind: http, effect: idempotent, method: POST, url: URL/idempotent }\n  person: { kind: human, question: \"Well?\" }\nplan:\n  nodes:\n    - { id: one, kind: agent, prompt: '{\"n\": 6}', tools: [again, person] }\n  answer: \"{{ nodes.one.output }}\"\n",
    ),
    (
        "map-open",
        "tools:\n  person: { kind: human, question: \"{{ input.n }}?\" }\nplan:\n  nodes:\n    - { id: all, kind: map, over: [1, 2, 3], concurrency: 2, do: { kind: tool, tool: person, input: { n: \"{{ item }}\" } } }\n  answer: \"{{ nodes.all.output }}\"\n",
    ),
    (
        "parent",
        "plan:\n  nodes:\n    - { id: one, kind: job, agent: parked, message: {} }\n  answer: \"{{ nodes.one.output }}\"\n",
    ),
    (
        "planning",
        "model: scripted/echo\nplanner: llm\nplanning:\n  plan_review: human\n  prompt: '{\"nodes\": [{\"id\": \"one\", \"kind\": \"transform\", \"output\": \"planned\"}], \"answer\": \"{% raw %}{{ nodes.one.output }}{% endraw %}\"}'\n",
    ),
    (
        "refining",
        "tools:\n  person: { kind: human, question: \"{{ input.n }}?\" }\nplan:\n  nodes:\n    - { id: one, kind: tool, tool: person, input: { n: \"{{ round }} {{ feedback }}\" }, validate: { type: object, properties: { fits: { const: true } } } }\n  answer: \"{{ nodes.one.output }}\"\n",
    ),
    (
        "drawn",
        "retry: { max_attempts: 5, backoff: 24h, max_backoff: 24h, jitter: none }\ntools:\n  flaky: { kind: http, effect: idempotent, method: POST, url: \"URL/flaky?fail=9\" }\nplan:\n  nodes:\n    - { id: one, kind: tool, tool: flaky, input: { n: \"{{ uuid() }}\" } }\n",
    ),
    (
        "skips",
        "plan:\n  nodes:\n    - { id: no, kind: condition, when: \"message.is == 'other'\" }\n    - { id: never, kind: transform, output: 1, needs: [no] }\n    - { id: nor, kind: transform, output: 2, when: \"message.is == 'other'\" }\n  answer: \"{{ nodes.nor.output | default('skipped') }}\"\n",
    ),
    ("asleep", "plan:\n  nodes:\n    - { id: nap, kind: sleep, duration: 9000h }\n"),
    (
        "kept",
        "plan:\n  nodes:\n    - { id: nap, kind: sleep, duration: 9000h }\n    - { id: ask, kind: wait, wait_type: signal, correlation_key: \"ask-{{ job.id }}\", needs: [nap] }\n",
    ),
    (
        "backoff",
        "retry: { max_attempts: 5, backoff: 24h, max_backoff: 24h, jitter: none }\ntools:\n  flaky: { kind: http, effect: idempotent, method: POST, url: \"URL/flaky?fail=9\" }\nplan:\n  nodes:\n    - { id: one, kind: tool, tool: flaky, input: { n: 7 } }\n",
    ),
    (
        "doubt",
        "tools:\n  lost: { kind: http, effect: at_most_once, method: POST, url: \"URL/once?fail=9&status=500\", on_in_doubt: human }\nplan:\n  nodes:\n    - { id: one, kind: tool, tool: lost, input: { n: 1 } }\n  answer: \"{{ nodes.one.output }}\"\n",
    ),
    (
        "in-flight",
        "tools:\n  slow: { kind: http, effect: at_most_once, method: POST, url: \"URL/slow?ms=60000\", timeout: 90s, on_in_doubt: human }\nplan:\n  nodes:\n    - { id: one, kind: tool, tool: slow, input: { n: 1 } }\n  answer: \"{{ nodes.one.output }}\"\n",
    ),
    (
        "pure-in-flight",
        "tools:\n  slow: { kind: http, effect: pure, method: POST, url: \"URL/pure?ms=60000\", timeout: 90s }\nplan:\n  nodes:\n    - { id: one, kind: tool, tool: slow, input: { n: 1 } }\n",
    ),
    (
        "misfit",
        "tools:\n  read: { kind: http, effect: pure, method: POST, url: \"URL/pure?ms=400\" }\nplan:\n  nodes:\n    - { id: one, kind: tool, tool: read, input: { key: late } }\n    - { id: ask, kind: wait, wait_type: signal, correlation_key: \"{{ nodes.one.output.input.key }}-{{ job.id }}\", needs: [one],\n        schema: { type: object, required: [approved], properties: { approved: { type: boolean } } } }\n  answer: \"{{ nodes.ask.output.approved }}\"\n",
    ),
];

/// Steps of the long job that is open, two events each: more than those after which a checkpoint is written.
const LONG: u32 = 300;

/// How long a call is under way before the process is killed.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// Makes `NAME` below `golden` and its histories below `histories`, with the program under test.
///
/// # Errors
/// A job comes to another end than it must, or something cannot be written.
pub async fn make(program: PathBuf, golden: &Path, histories: &Path) -> Result<()> {
    for folder in [golden, histories] {
        ensure!(!folder.exists(), "{} is there: a golden folder is never changed", folder.display());
    }
    let maker = Maker { client: None, fleet: Fleet::new(program)?, jobs: BTreeMap::new() };
    maker.run(golden, histories).await
}

struct Maker {
    client: Option<Client>,
    fleet: Fleet,
    jobs: BTreeMap<String, JobId>,
}

impl Maker {
    async fn run(mut self, golden: &Path, histories: &Path) -> Result<()> {
        let agents = self.fleet.agents(STORIES)?;
        let mut process = self.start(&agents).await?;
        self.ended().await?;
        self.open().await?;
        process.signal(Signal::TERM)?;
        ensure!(process.wait().await?.success(), "the process did not end well\n{}", self.fleet.tail());
        self.restore().await?;
        let process = self.start(&agents).await?;
        self.go_on().await?;
        tokio::time::sleep(UNDER_WAY).await;
        let shown = self.shown().await?;
        kill(process).await?;
        std::fs::create_dir_all(golden)?;
        std::fs::write(golden.join("expected.json"), pretty(&shown)?)?;
        self.keep(golden)?;
        self.write_histories(histories).await
    }

    async fn start(&mut self, agents: &[PathBuf]) -> Result<Box<Running>> {
        let Started::Ready(process) = self.fleet.dev(agents, None).start().await? else { bail!("nothing kills it") };
        self.fleet.serve_at(&process)?;
        self.client = Some(self.fleet.client()?);
        Ok(process)
    }

    fn client(&self) -> Result<&Client> {
        self.client.as_ref().context("nothing was started yet")
    }

    /// Every story of the crash matrix, to its end.
    async fn ended(&mut self) -> Result<()> {
        let client = self.client()?.clone();
        let plays = STORIES.iter().flat_map(|story| {
            let client = &client;
            (0..story.jobs).map(move |number| async move {
                let label = format!("{}-{number}", story.agent);
                let history = story.play(client, &label).await.with_context(|| label.clone())?;
                let job = history.submissions.first().context("nothing was sent")?.job;
                anyhow::Ok((label, job))
            })
        });
        self.jobs.extend(try_join_all(plays).await?);
        Ok(())
    }

    /// What is not to end.
    async fn open(&mut self) -> Result<()> {
        let witness = self.fleet.witness_url();
        for (agent, file) in OPEN {
            self.client()?.put(agent, &format!("agent: {agent}\n{}", file.replace("URL", &witness))).await?;
        }
        self.client()?.put("long-open", &long()?).await?;
        for (label, agent, beside) in [
            ("parked", "parked", json!({"session_id": "s"})),
            ("behind", "parked", json!({"session_id": "s"})),
            ("paused", "parked", json!({})),
            ("held", "parked", json!({})),
            ("asleep", "asleep", json!({"deadline": "9100h"})),
            ("kept", "kept", json!({})),
            ("future", "parked", json!({"run_at": "2100-01-01T00:00:00Z"})),
            ("backoff", "backoff", json!({})),
            ("doubt", "doubt", json!({})),
            ("misfit", "misfit", json!({})),
            ("skips", "skips", json!({})),
            ("long-open", "long-open", json!({})),
            ("loop-open", "loop-open", json!({})),
            ("map-open", "map-open", json!({})),
            ("parent", "parent", json!({})),
            ("planning", "planning", json!({})),
            ("refining", "refining", json!({})),
            ("drawn", "drawn", json!({})),
        ] {
            self.send(label, agent, beside).await?;
        }
        self.signal("kept", &format!("ask-{}", self.job("kept")?), &json!({"early": [1, 2.5, null]})).await?;
        let late = format!("late-{}", self.job("misfit")?);
        self.signal("misfit", &late, &json!({"approved": "yes"})).await?;
        for label in ["parked", "paused", "held", "doubt", "loop-open", "map-open", "planning", "refining"] {
            self.until(label, "parked").await?;
        }
        // The first item, and the first round.
        let key = |label: &str, step: &str| anyhow::Ok(format!("{}/{step}", self.job(label)?));
        self.signal("map-open", &key("map-open", "all[0]")?, &json!("first")).await?;
        self.signal("refining", &key("refining", "one")?, &json!({"fits": false})).await?;
        self.client()?.until(self.job("refining")?, |seen| seen["steps"]["one"]["round"] == 1).await?;
        self.until("refining", "parked").await?;
        self.until("parent", "waiting").await?;
        self.client()?.until(self.job("drawn")?, |seen| seen["status"] == "pending" && seen["epoch"] != 0).await?;
        for label in ["asleep", "kept", "misfit", "long-open"] {
            self.until(label, "waiting").await?;
        }
        self.until("skips", "completed").await?;
        self.client()?.until(self.job("backoff")?, |seen| seen["status"] == "pending" && seen["epoch"] != 0).await?;
        self.act("paused", "pause").await
    }

    /// The database is put back, as after a disaster: in another generation, and all that is open is held.
    async fn restore(&self) -> Result<()> {
        let (data, file) = (self.fleet.data(), self.fleet.data().with_file_name("backup.db"));
        for command in ["backup", "restore"] {
            let mut run = tokio::process::Command::new(self.fleet.program());
            let ended = run.arg(command).arg(&file).arg("--data").arg(&data).output().await?;
            ensure!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
        }
        Ok(())
    }

    /// All but one go on, and calls are under way.
    async fn go_on(&mut self) -> Result<()> {
        for label in [
            "parked",
            "behind",
            "asleep",
            "kept",
            "future",
            "backoff",
            "doubt",
            "misfit",
            "long-open",
            "loop-open",
            "map-open",
            "parent",
            "planning",
            "refining",
            "drawn",
        ] {
            self.act(label, "resume").await?;
        }
        let late = format!("late-{}", self.job("misfit")?);
        self.signal("misfit", &late, &json!({"approved": true})).await?;
        self.until("misfit", "completed").await?;
        self.send("in-flight", "in-flight", json!({})).await?;
        self.send("pure-in-flight", "pure-in-flight", json!({})).await
    }

    fn job(&self, label: &str) -> Result<JobId> {
        self.jobs.get(label).copied().with_context(|| format!("{label} was not sent"))
    }

    async fn send(&mut self, label: &str, agent: &str, mut beside: Value) -> Result<()> {
        beside["message"] = json!({"is": label});
        beside["labels"] = json!({"golden": label});
        let path = format!("/api/agents/{agent}/message");
        let body = beside.to_string();
        let (status, answer) = self.client()?.ask(&Method::POST, &path, Some(&body), Some(label)).await?;
        let job = answer["job_id"].as_str().with_context(|| format!("{label}: {status} {answer}"))?.parse()?;
        self.jobs.insert(label.to_owned(), job);
        Ok(())
    }

    async fn signal(&self, label: &str, key: &str, payload: &Value) -> Result<()> {
        let body = json!({"correlation_key": key, "payload": payload}).to_string();
        let path = format!("/api/jobs/{}/signal", self.job(label)?);
        let (status, answer) = self.client()?.ask(&Method::POST, &path, Some(&body), None).await?;
        ensure!(status == StatusCode::OK || status == StatusCode::ACCEPTED, "{label}: {status} {answer}");
        Ok(())
    }

    async fn act(&self, label: &str, order: &str) -> Result<()> {
        let path = format!("/api/jobs/{}/{order}", self.job(label)?);
        let (status, answer) = self.client()?.ask(&Method::POST, &path, None, None).await?;
        ensure!(status.is_success(), "{order} of {label}: {status} {answer}");
        Ok(())
    }

    async fn until(&self, label: &str, status: &str) -> Result<()> {
        self.client()?.until(self.job(label)?, |seen| seen["status"] == status).await?;
        Ok(())
    }

    async fn shown(&self) -> Result<Value> {
        let mut all = Map::new();
        for (label, job) in &self.jobs {
            let seen = self.client()?.job(*job).await?;
            let shown: Map<String, Value> =
                SHOWN.iter().map(|field| ((*field).to_owned(), seen[*field].clone())).collect();
            all.insert(label.clone(), json!({"job": job, "shown": shown}));
        }
        Ok(Value::Object(all))
    }

    /// The folder as it was left, in one file for the database.
    fn keep(&self, golden: &Path) -> Result<()> {
        let data = self.fleet.data();
        let database = data.join("aetheris.db");
        let conn = Connection::open(&database)?;
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        drop(conn);
        std::fs::copy(&database, golden.join("aetheris.sqlite"))?;
        for beside in ["aetheris.lock", "aetheris.seen"] {
            std::fs::copy(data.join(beside), golden.join(beside))?;
        }
        Ok(())
    }

    /// Each history as its events stand in the database, and what this build folds it to.
    async fn write_histories(&self, histories: &Path) -> Result<()> {
        std::fs::create_dir_all(histories)?;
        let database = self.fleet.data().join("aetheris.db");
        let conn = Connection::open(&database)?;
        let store = SqliteStore::open(SqliteOptions::new(database))?;
        for (label, job) in &self.jobs {
            let state = Loaded::read(&store, &Scope::System, *job).await?.state;
            let kept = json!({"events": events(&conn, *job)?, "job": hex(&job.to_bytes()), "shown": folded(&state)});
            std::fs::write(histories.join(format!("{label}.json")), pretty(&kept)?)?;
        }
        ensure!(store.status().await?.generation == 2, "the store was not restored");
        Ok(())
    }
}

/// An agent whose jobs wait behind a checkpoint.
fn long() -> Result<String> {
    let mut file = "agent: long-open\nplan:\n  nodes:\n".to_owned();
    for node in 0..LONG {
        writeln!(file, "    - {{ id: n{node}, kind: transform, output: {node} }}")?;
    }
    file.push_str("    - { id: ask, kind: wait, wait_type: signal, correlation_key: \"ask-{{ job.id }}\" }\n");
    file.push_str("    - { id: end, kind: transform, output: \"{{ nodes.ask.output }} of {{ nodes.n7.output }}\", needs: [ask, n7] }\n");
    Ok(file)
}

async fn kill(mut process: Box<Running>) -> Result<()> {
    process.signal(Signal::KILL)?;
    process.wait().await?;
    Ok(())
}

fn pretty(value: &Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn events(conn: &Connection, job: JobId) -> Result<Vec<Value>> {
    let mut statement = conn.prepare(
        "SELECT at, epoch, generation, lower(hex(hash)), lower(hex(id)), kind, payload, schema_version, seq FROM events \
         WHERE job = (SELECT num FROM jobs WHERE id = ?1) ORDER BY seq",
    )?;
    let rows = statement.query_map([job.to_bytes()], |row| {
        let (hash, id, payload): (String, String, String) = (row.get(3)?, row.get(4)?, row.get(6)?);
        let (at, epoch, generation): (i64, u32, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (kind, version, seq): (u8, u16, u32) = (row.get(5)?, row.get(7)?, row.get(8)?);
        Ok(json!({
            "at": at, "epoch": epoch, "generation": generation, "hash": hash, "id": id, "kind": kind,
            "payload": payload, "schema_version": version, "seq": seq,
        }))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn folded(state: &JobState) -> Value {
    let steps: Map<String, Value> =
        state.steps.iter().map(|(node, step)| (node.to_string(), json!([step.status, step.tries]))).collect();
    json!({"seq": state.seq, "status": state.status.as_str(), "steps": steps})
}
