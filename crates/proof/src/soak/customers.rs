//! Who works with the program and looks on: customers who wait for their answers, readers, followers; and what their answers
//! must be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail, ensure};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use super::AGENTS;
use crate::http;
use crate::sse::{SseParser, differing};

/// Customers at work at once.
const CUSTOMERS: usize = 8;
/// How long any job may take: one that takes longer has been forgotten.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// A connection that nobody has used for so long is not used again: the server may be closing it.
const IDLE: Duration = Duration::from_secs(5);
/// One in so many jobs waits for a signal.
const SIGNALLED: u64 = 8;
/// One in so many jobs is followed; it is one that waits for a signal. Few enough that the 99th percentile is not theirs.
const FOLLOWED: u64 = 25 * SIGNALLED;
/// One in so many jobs calls both tools.
const CALLED: u64 = 20;
/// Jobs of a list that are looked at.
const LOOKED_AT: usize = 5;

/// What has been seen of the jobs, beside their answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside {
    /// Jobs that called both tools.
    pub(super) called: u64,
    /// Jobs that were followed to their end.
    pub(super) followed: u64,
    /// Jobs of lists that were looked at.
    pub(super) looked_at: u64,
}

/// How far a part goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    Moment(Duration),
    Number(u64),
}

/// Everybody, at one program.
pub(super) struct Customers {
    called: AtomicU64,
    followed: AtomicU64,
    http: Client,
    looked_at: AtomicU64,
    /// How many jobs have been sent.
    pub(super) next: AtomicU64,
    url: String,
}

impl Customers {
    pub(super) fn new(url: String) -> Result<Self> {
        let http = http::builder(PATIENCE * 2).pool_idle_timeout(IDLE).build()?;
        let [called, followed, looked_at, next] = [const { AtomicU64::new(0) }; 4];
        Ok(Self { called, followed, http, looked_at, next, url })
    }

    pub(super) fn beside(&self) -> Beside {
        let [called, followed, looked_at] =
            [&self.called, &self.followed, &self.looked_at].map(|count| count.load(Ordering::Relaxed));
        Beside { called, followed, looked_at }
    }

    /// Works through a part, with somebody who looks on. The latencies of its jobs.
    pub(super) async fn work(self: &Arc<Self>, until: Until) -> Result<(u64, u64)> {
        let work = (0..CUSTOMERS).map(|_| tokio::spawn(Arc::clone(self).one_after_the_other(until)));
        let work: Vec<_> = work.collect();
        self.look_on().await?;
        let mut times = Vec::new();
        for customer in work {
            times.extend(customer.await??);
        }
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        Ok((at(50), at(99)))
    }

    async fn one_after_the_other(self: Arc<Self>, until: Until) -> Result<Vec<u64>> {
        let mut times = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let over = match until {
                Until::Moment(moment) => SystemClock.boot() >= moment,
                Until::Number(last) => number >= last,
            };
            if over {
                // It was not sent.
                self.next.fetch_sub(1, Ordering::Relaxed);
                return Ok(times);
            }
            let began = SystemClock.boot();
            self.job(number).await.with_context(|| format!("job {number}"))?;
            times.push(u64::try_from((SystemClock.boot() - began).as_micros())?);
        }
    }

    /// One job, from its message to its answer.
    async fn job(&self, number: u64) -> Result<()> {
        let (asks, calls) = (number.is_multiple_of(SIGNALLED), number % CALLED == 1);
        let agent = match (asks, calls) {
            (true, _) => "asks",
            (_, true) => "calls",
            _ => "counts",
        };
        let wait = if asks { String::new() } else { format!("?wait={}s", PATIENCE.as_secs()) };
        let body = json!({ "message": { "n": number } }).to_string();
        let answer = self.good(&Method::POST, &format!("/api/agents/{agent}/message{wait}"), Some(&body)).await?;
        ensure!(asks || answer["status"] == "completed", "not done in {PATIENCE:?}: {answer}");
        let job = answer["job_id"].as_str().with_context(|| format!("no job in {answer}"))?;
        if number.is_multiple_of(FOLLOWED) {
            self.follow(job, Some(number)).await?;
        } else if asks {
            self.signal(job, number).await?;
        }
        if asks || calls {
            let done = self.get(&format!("/api/jobs/{job}?wait={}s", PATIENCE.as_secs())).await?;
            ensure!(done["status"] == "completed" && done["result"] == number, "not done in {PATIENCE:?}: {done}");
        }
        self.called.fetch_add(u64::from(agent == "calls"), Ordering::Relaxed);
        Ok(())
    }

    async fn signal(&self, job: &str, number: u64) -> Result<Value> {
        let signal = json!({ "correlation_key": format!("k-{number}"), "payload": number }).to_string();
        self.good(&Method::POST, &format!("/api/jobs/{job}/signal"), Some(&signal)).await
    }

    /// Reads a job's stream to its end, which comes after the job's own; it brings what is stored, and nothing else. Who has a
    /// number signals when the stream says that the job waits, and not before.
    async fn follow(&self, job: &str, number: Option<u64>) -> Result<()> {
        let path = format!("/api/jobs/{job}/events/stream");
        let mut answer = self.http.get(format!("{}{path}", self.url)).send().await?;
        ensure!(answer.status() == StatusCode::OK, "{path}: {}", answer.status());
        let (mut messages, mut told) = (SseParser::default(), Vec::new());
        while let Some(piece) = answer.chunk().await.with_context(|| format!("{path}, after {told:?}"))? {
            for event in messages.feed(&piece)? {
                if let Some(number) = number.filter(|_| event["type"] == "job_waiting") {
                    let taken = self.signal(job, number).await?;
                    ensure!(taken["status"] == "delivered", "the job waits, and a signal is answered by {taken}");
                }
                told.push(event);
            }
        }
        let page = self.get(&format!("/api/jobs/{job}/events")).await?;
        let stored = page["events"].as_array().with_context(|| format!("no events in {page}"))?;
        if let Some(wrong) = differing(stored, &told).or_else(|| incomplete(&told, true)) {
            bail!("{path}: {wrong}");
        }
        self.followed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What people look at meanwhile.
    async fn look_on(&self) -> Result<()> {
        let ready = self.get("/readyz").await?;
        ensure!(ready["ready"] == true, "/readyz: {ready}");
        for (path, list) in [
            ("/api/jobs?limit=50", "jobs"),
            ("/api/waits", "waits"),
            ("/api/in-doubt", "invocations"),
            ("/api/agents", "agents"),
            ("/api/jobs?status=completed&limit=20", "jobs"),
        ] {
            let answer = self.get(path).await?;
            let entries = answer[list].as_array().with_context(|| format!("{path}: no {list} in {answer}"))?;
            let right = match list {
                "agents" => entries.len() == AGENTS.len(),
                // No call has been lost.
                "invocations" => entries.is_empty(),
                _ => true,
            };
            ensure!(right, "{path}: {answer}");
            for job in entries.iter().filter(|_| list == "jobs").take(LOOKED_AT) {
                self.look_at(job, path.contains("completed")).await.context(path)?;
            }
        }
        Ok(())
    }

    /// Looks at a job of a list, which may be one of those that have completed only.
    async fn look_at(&self, job: &Value, only_done: bool) -> Result<()> {
        let id = job["id"].as_str().with_context(|| format!("no id in {job}"))?;
        let done = job["status"] == "completed";
        ensure!(done || !only_done, "it has not completed: {job}");
        for what in ABOUT {
            let answer = self.get(&format!("/api/jobs/{id}{what}")).await?;
            if let Some(wrong) = wrong(what, id, done, &answer) {
                bail!("/api/jobs/{id}{what}: {wrong}");
            }
        }
        if done {
            self.follow(id, None).await?;
        }
        self.looked_at.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.good(&Method::GET, path, None).await
    }

    /// Asks once. Whatever is not a good answer is an error.
    pub(super) async fn good(&self, method: &Method, path: &str, body: Option<&str>) -> Result<Value> {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_owned());
        }
        let answer = request.send().await.with_context(|| format!("{method} {path}"))?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| format!("{method} {path}: {status}"))?;
        ensure!(status.is_success(), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).with_context(|| format!("{method} {path}: {status} {text}"))
    }
}

/// What is asked about a job: its path goes on with these.
const ABOUT: [&str; 5] = ["", "/events", "/trace", "/steps", "/verify"];

/// What is wrong with an answer about a job. Of one that was not `done` when it was asked, less is known.
fn wrong(what: &str, id: &str, done: bool, answer: &Value) -> Option<String> {
    let completed = !done || answer["status"] == "completed";
    let steps = answer["steps"].as_array().map(Vec::as_slice);
    let ended = |steps: &[Value]| !done || !steps.is_empty() && steps.iter().all(|step| step["status"] == "completed");
    let right = match what {
        "" => answer["id"] == id && completed,
        "/events" => match answer["events"].as_array() {
            Some(events) => return incomplete(events, done),
            None => false,
        },
        "/trace" => answer["job_id"] == id && completed && steps.is_some_and(ended),
        "/steps" => steps.is_some_and(ended),
        _ => answer["valid"] == true,
    };
    (!right).then(|| answer.to_string())
}

/// What is wrong with the places of a job's events, or with how they end where it is `done`.
fn incomplete(events: &[Value], done: bool) -> Option<String> {
    let gap = events.iter().zip(1_u64..).find(|(event, place)| event["seq"] != *place);
    if let Some((event, place)) = gap {
        return Some(format!("in the place of event {place} is {event}"));
    }
    let ends = events.iter().filter(|event| event["type"] == "job_completed").count();
    let last = events.last().map_or(&Value::Null, |event| &event["type"]);
    let whole = if done { ends == 1 && last == "job_completed" } else { !events.is_empty() };
    (!whole)
        .then(|| format!("{} events, {ends} of them say that it has completed, and the last is {last}", events.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_about_a_job_are_judged_by_what_they_are_about() {
        let events = |kinds: &[&str]| -> Vec<Value> {
            kinds.iter().zip(1..).map(|(kind, seq)| json!({"seq": seq, "type": kind})).collect()
        };
        let whole = events(&["job_created", "job_completed"]);
        let steps = json!([{"status": "completed"}]);
        let good = [
            json!({"id": "job", "status": "completed"}),
            json!({ "events": whole }),
            json!({"job_id": "job", "status": "completed", "steps": steps}),
            json!({ "steps": steps }),
            json!({"valid": true}),
        ];
        let running = [
            json!({"id": "job", "status": "running"}),
            json!({ "events": whole[..1] }),
            json!({"job_id": "job", "status": "running", "steps": [{"status": "pending"}]}),
            json!({"steps": []}),
            json!({"valid": true}),
        ];
        for ((what, good), running) in ABOUT.iter().zip(&good).zip(&running) {
            assert_eq!(wrong(what, "job", true, good), None, "{what}");
            assert_eq!(wrong(what, "job", false, good), None, "{what}: it has completed since it was listed");
            assert_eq!(wrong(what, "job", false, running), None, "{what}");
            assert_eq!(wrong(what, "job", true, running).is_none(), *what == "/verify", "{what}");
            assert!(wrong(what, "job", false, &json!({"status": 500, "valid": false})).is_some(), "{what}");
        }
        assert!(wrong("", "other", true, &good[0]).is_some());
        assert!(wrong("/trace", "other", true, &good[2]).is_some());
        assert!(wrong("/steps", "job", true, &json!({"steps": []})).is_some());
        assert!(incomplete(&whole[1..], true).is_some(), "the first is missing");
        assert!(incomplete(&events(&["job_created", "job_completed", "job_claimed"]), true).is_some());
        assert!(incomplete(&events(&["job_completed", "job_completed"]), true).is_some());
        assert!(incomplete(&[], false).is_some());
    }
}
