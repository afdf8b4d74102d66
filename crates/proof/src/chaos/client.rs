//! Clients that send every request until it is answered, drive their jobs and keep what they were told.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aetheris_check::{AckedSignal, ClientHistory, SignalAck, Submission};
use aetheris_core::id::JobId;
use aetheris_core::json::Json;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::asked::{self, Asked, LATER_MS};
use super::dice::Dice;
use super::holds::Hold;
use super::programs::{Program, SIGNAL_ADDS, SignalTime, Wait};
use crate::http::Http;

/// How long one request may take.
const REQUEST: Duration = Duration::from_millis(1_500);
/// The pause before the next try.
const PAUSE: Duration = Duration::from_millis(120);
/// How long a client goes on without an answer. What is done to an API is over in less, so that one that comes back
/// answers: longer than a start may take, and the drain before it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a job of a conversation may take from its turn to its end, without what its own steps wait for.
const TURN_MS: u64 = 5_000;
/// How often a client looks at its job.
const LOOK: Duration = Duration::from_millis(250);

/// What became of a job.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The agent.
    pub agent: String,
    /// What was asked for beside its message.
    pub asked: Asked,
    /// The job.
    pub job: JobId,
    /// The number that it was sent.
    pub n: i64,
    /// Whether it was left waiting for a human.
    pub left: bool,
    /// What the server shows of it at the end.
    pub view: Value,
    /// Whether its cancel was answered well.
    pub cancelled: bool,
}

/// Counts of what clients did.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests that were answered.
    pub answered: AtomicU64,
    /// Requests of which nothing is known.
    pub unknown: AtomicU64,
    /// Messages that were sent a second time under their key.
    pub resubmitted: AtomicU64,
    /// Signals that were sent a second time.
    pub repeated: AtomicU64,
    /// Jobs that were held still, and then let go on.
    pub held: AtomicU64,
    /// Doubts that were answered by an operator.
    pub resolved: AtomicU64,
    /// Messages and payloads that did not fit, and were refused.
    pub misfits: AtomicU64,
}

/// Everything that the clients of a run share.
pub struct Clients {
    /// What they did.
    pub counts: Counts,
    api: SocketAddr,
    /// The store's time.
    clock: Arc<dyn Clock>,
    history: Mutex<ClientHistory>,
    http: Http,
    patience: Duration,
    tools: String,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("api", &self.api).finish_non_exhaustive()
    }
}

impl Clients {
    /// Clients of the server behind `api`, who know the store's time; operators ask the tools at `tools` themselves.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn new(api: SocketAddr, clock: Arc<dyn Clock>, tools: String) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::patient_for(PATIENCE, api, clock, tools)?))
    }

    fn patient_for(patience: Duration, api: SocketAddr, clock: Arc<dyn Clock>, tools: String) -> Result<Self> {
        let (counts, history) = (Counts::default(), Mutex::default());
        Ok(Self { counts, api, clock, history, http: Http::new(REQUEST)?, patience, tools })
    }

    /// What all clients were told.
    #[must_use]
    pub fn history(&self) -> ClientHistory {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        ClientHistory { quiet: true, ..history.clone() }
    }

    /// The jobs that messages were answered with, from that place on: a message that is sent again is there again.
    #[must_use]
    pub fn submitted_after(&self, place: usize) -> Vec<JobId> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.submissions.iter().skip(place).map(|submission| submission.job).collect()
    }

    pub(super) fn told(&self, tell: impl FnOnce(&mut ClientHistory)) {
        tell(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Sends once. Nothing where no answer came that says anything about the request.
    async fn try_once(
        &self,
        method: &Method,
        path: &str,
        body: Option<&str>,
        key: Option<&str>,
    ) -> Option<(StatusCode, Value)> {
        let (status, text) = self.http.send(method, &format!("http://{}{path}", self.api), body, key).await?;
        serde_json::from_str(&text).ok().map(|value| (status, value))
    }

    /// Sends until there is an answer that is not the server's own trouble.
    ///
    /// # Errors
    /// There is none for longer than a server may be gone.
    pub async fn ask(
        &self,
        method: &Method,
        path: &str,
        body: Option<&str>,
        key: Option<&str>,
    ) -> Result<(StatusCode, Value)> {
        let began = SystemClock.boot();
        loop {
            if let Some(answer) = self.try_once(method, path, body, key).await {
                self.counts.answered.fetch_add(1, Ordering::Relaxed);
                return Ok(answer);
            }
            self.counts.unknown.fetch_add(1, Ordering::Relaxed);
            ensure!(SystemClock.boot() - began < self.patience, "{method} {path}: no answer for {:?}", self.patience);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Puts a version of a program.
    ///
    /// # Errors
    /// It is refused.
    pub async fn put(&self, program: &Program, tools: &str, version: i64) -> Result<()> {
        let source = program.source(tools, version);
        let path = format!("/api/agents/{}", program.agent);
        let (status, answer) = self.ask(&Method::PUT, &path, Some(&source), None).await?;
        ensure!(status.is_success(), "PUT {}: {status} {answer}", program.agent);
        Ok(())
    }

    /// Sends a message; the same key is the same message.
    ///
    /// # Errors
    /// It is refused.
    pub async fn submit(&self, agent: &str, key: &str, n: i64, asked: &Asked) -> Result<JobId> {
        let path = format!("/api/agents/{agent}/message");
        let body = asked.body(&json!({"n": n}));
        let (status, answer) = self.ask(&Method::POST, &path, Some(&body), Some(key)).await?;
        let job = answer["job_id"].as_str().with_context(|| format!("{path}: {status} {answer}"))?;
        let job: JobId = job.parse()?;
        self.told(|history| history.submissions.push(Submission { client_key: Some(key.to_owned()), job }));
        Ok(job)
    }

    /// The same key with another message, or with the same one and something else asked for, must be refused.
    async fn contradict(&self, agent: &str, key: &str, n: i64, asked: &Asked, dice: &mut Dice) -> Result<()> {
        let path = format!("/api/agents/{agent}/message");
        let body = match dice.chance(25) {
            true => asked.body(&asked::misfit()),
            false => asked.changed(dice).body(&json!({"n": n})),
        };
        let (status, answer) = self.ask(&Method::POST, &path, Some(&body), Some(key)).await?;
        ensure!(status == StatusCode::CONFLICT, "the key {key} with {body}: {status} {answer}");
        Ok(())
    }

    /// A message that does not fit its agent's schema must be refused, and makes no job.
    async fn misfit(&self, agent: &str, key: &str, asked: &Asked) -> Result<()> {
        let (path, key) = (format!("/api/agents/{agent}/message"), format!("{key}-misfit"));
        let body = asked.body(&asked::misfit());
        let (status, answer) = self.ask(&Method::POST, &path, Some(&body), Some(&key)).await?;
        let refused = status == StatusCode::BAD_REQUEST && answer["code"] == "invalid_payload";
        ensure!(refused, "a message that does not fit, to {agent}: {status} {answer}");
        self.counts.misfits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A payload that does not fit its wait's schema is refused, or told that another one counts.
    async fn slip(&self, job: JobId, node: &str) -> Result<()> {
        let body = json!({"correlation_key": format!("{node}-{job}"), "payload": {"n": "many"}}).to_string();
        let (status, answer) = self.ask(&Method::POST, &format!("/api/jobs/{job}/signal"), Some(&body), None).await?;
        match (status, answer["code"].as_str()) {
            (StatusCode::BAD_REQUEST, Some("invalid_payload")) => {
                self.counts.misfits.fetch_add(1, Ordering::Relaxed);
            }
            (StatusCode::CONFLICT, Some("wait_over" | "job_finished")) => {}
            (StatusCode::OK, _) if answer["payload_matches"] == false => {}
            _ => bail!("a payload that does not fit, for {node} of {job}: {status} {answer}"),
        }
        Ok(())
    }

    /// What the server shows of a job.
    ///
    /// # Errors
    /// It has none, or no answer for longer than a server may be gone.
    pub async fn view(&self, job: JobId) -> Result<Value> {
        let (status, view) = self.ask(&Method::GET, &format!("/api/jobs/{job}"), None, None).await?;
        ensure!(status == StatusCode::OK, "{job}: {status} {view}");
        Ok(view)
    }

    /// Sends a signal. What is refused because the wait or the job is over is an answer as well.
    async fn signal(&self, job: JobId, node: &str) -> Result<()> {
        let payload = json!({"n": SIGNAL_ADDS});
        let payload_hash = Some(Json::new(payload.clone()).hash());
        let key = format!("{node}-{job}");
        let body = json!({"correlation_key": key, "payload": payload}).to_string();
        let (status, answer) = self.ask(&Method::POST, &format!("/api/jobs/{job}/signal"), Some(&body), None).await?;
        let ack = match (status, answer["code"].as_str()) {
            (StatusCode::OK, _) => SignalAck::Delivered,
            (StatusCode::ACCEPTED, _) => SignalAck::Kept,
            (StatusCode::CONFLICT, Some("wait_over" | "job_finished")) => return Ok(()),
            _ => bail!("signal {key}: {status} {answer}"),
        };
        self.told(|history| history.signals.push(AckedSignal { ack, job, key, payload_hash }));
        Ok(())
    }

    async fn cancel(&self, job: JobId) -> Result<bool> {
        let (status, answer) = self.ask(&Method::POST, &format!("/api/jobs/{job}/cancel"), None, None).await?;
        if status == StatusCode::CONFLICT {
            return Ok(false);
        }
        ensure!(status.is_success(), "cancel of {job}: {status} {answer}");
        self.told(|history| {
            history.cancels.insert(job);
        });
        Ok(true)
    }

    /// An operator who asks the tool itself and answers the job's doubt; may have to come back.
    async fn resolve(&self, job: JobId) -> Result<()> {
        let (_, list) = self.ask(&Method::GET, &format!("/api/in-doubt?job={job}"), None, None).await?;
        let wanted = job.to_string();
        let all = list["invocations"].as_array().cloned().unwrap_or_default();
        let Some(row) = all.iter().find(|row| row["job_id"] == wanted.as_str()) else { return Ok(()) };
        let Some(key) = row["invocation"].as_str() else { return Ok(()) };
        // Where the tool says no, it refuses the call from then on, so that the answer counts at once.
        let ask = json!({"idempotency_key": key, "permit": row["sent_permit"]}).to_string();
        let settle = format!("{}/settle", self.tools);
        let Some((_, said)) = self.http.send(&Method::POST, &settle, Some(&ask), None).await else { return Ok(()) };
        let said: Value = serde_json::from_str(&said).unwrap_or_default();
        let mut answer = match said["outcome"].as_str() {
            Some("happened") => json!({"outcome": "happened", "result": said["result"], "note": "in the tool's log"}),
            Some("did_not_happen") => {
                json!({"outcome": "did_not_happen", "note": "refused by the tool", "refused": true})
            }
            _ => return Ok(()),
        };
        // What was looked at: held up on its way, the answer is not to be taken for a later permit.
        answer["permit"] = row["permit"].clone();
        let (status, body) = self
            .ask(&Method::POST, &format!("/api/jobs/{job}/in-doubt/{key}"), Some(&answer.to_string()), None)
            .await?;
        // Too early, or answered meanwhile, by a request of ours whose answer was lost.
        ensure!(status.is_success() || status == StatusCode::CONFLICT, "resolve of {job}: {status} {body}");
        self.counts.resolved.fetch_add(u64::from(status.is_success()), Ordering::Relaxed);
        Ok(())
    }

    /// Whether the server answers a request of its own.
    pub async fn is_ready(&self) -> bool {
        self.try_once(&Method::GET, "/readyz", None, None).await.is_some_and(|(status, _)| status == StatusCode::OK)
    }
}

/// What a client does with one job.
struct Script<'s> {
    asked: &'s Asked,
    clients: &'s Clients,
    dice: Dice,
    hold: Option<Hold>,
    job: JobId,
    program: &'s Program,
    signalled: BTreeMap<&'s str, bool>,
}

/// What a client is to send, and then to drive to its end.
pub struct Errand {
    asked: Asked,
    dice: Dice,
    hold: Option<Hold>,
    key: String,
    n: i64,
}

impl Errand {
    /// Draws one message of a program; of a conversation it draws two, of which the second is sent while the first is on
    /// its way. Of one whose first job waits for a human for ever there would be no end.
    #[must_use]
    pub fn draw(program: &Program, clients: &Clients, mut dice: Dice, key: &str) -> Vec<Self> {
        let session = (!program.waits_for_ever() && dice.chance(20)).then(|| key.to_owned());
        let count = if session.is_some() { 2 } else { 1 };
        let mut errands = Vec::new();
        for number in 1..=count {
            let n = i64::try_from(dice.within(1..1_000)).unwrap_or(1);
            let asked = Asked { session: session.clone(), ..Asked::draw(&mut dice, clients.clock.wall()) };
            let key = if number == 1 { key.to_owned() } else { format!("{key}-{number}") };
            let mut own = Dice::new(dice.roll(), 5);
            errands.push(Self { asked, hold: Hold::draw(&mut own), dice: own, key, n });
        }
        errands
    }

    /// How long its job may stand still without anybody's fault, with those that it waits for.
    #[must_use]
    pub fn idle_ms(errands: &[Self], program: &Program) -> u64 {
        // A store whose clock is behind goes on at nine tenths.
        let later = |errand: &Self| errand.asked.run_at.map_or(0, |_| LATER_MS * 10 / 9);
        let held = |errand: &Self| errand.hold.map_or(0, Hold::idle_ms);
        errands.iter().map(|errand| program.idle_ms + later(errand) + held(errand)).sum::<u64>()
            + TURN_MS * (errands.len() as u64 - 1)
    }
}

/// Sends messages one after the other, and drives each job to its end, or to where it is left.
///
/// # Errors
/// The server refused what it should have taken, or took what it should have refused.
pub async fn drive(clients: &Clients, program: &Program, errands: Vec<Errand>) -> Result<Vec<Outcome>> {
    let mut plays = Vec::new();
    for mut errand in errands {
        let job = send(clients, program, &mut errand).await?;
        plays.push(follow(clients, program, errand, job));
    }
    try_join_all(plays).await
}

/// Sends a message, sometimes twice, and beside it what must be refused.
async fn send(clients: &Clients, program: &Program, errand: &mut Errand) -> Result<(JobId, bool)> {
    let Errand { asked, dice, key, n, .. } = errand;
    if program.strict && dice.chance(15) {
        clients.misfit(&program.agent, key, asked).await?;
    }
    let job = clients.submit(&program.agent, key, *n, asked).await?;
    let again = dice.chance(12);
    if again {
        clients.counts.resubmitted.fetch_add(1, Ordering::Relaxed);
        let second = clients.submit(&program.agent, key, *n, asked).await?;
        ensure!(second == job, "the key {key} was answered with {job} and {second}");
    }
    if dice.chance(10) {
        clients.contradict(&program.agent, key, *n, asked, dice).await?;
    }
    Ok((job, again))
}

async fn follow(clients: &Clients, program: &Program, errand: Errand, (job, again): (JobId, bool)) -> Result<Outcome> {
    let Errand { asked, dice, hold, key, n } = errand;
    let mut script = Script { asked: &asked, clients, dice, hold, job, program, signalled: BTreeMap::new() };
    let outcome = script.play(n).await?;
    if again {
        let third = clients.submit(&program.agent, &key, n, &asked).await?;
        ensure!(third == job, "the key {key} was answered with {job} and, after its end, {third}");
    }
    Ok(outcome)
}

impl<'s> Script<'s> {
    async fn play(&mut self, n: i64) -> Result<Outcome> {
        let early = self.program.waits.iter().filter(|wait| wait.time == SignalTime::Early);
        for wait in early.collect::<Vec<_>>() {
            self.signal(wait).await?;
        }
        let cancel_in = self.dice.chance(6).then(|| self.dice.within(0..10));
        let (mut looks, mut cancelled, mut was_held) = (0, false, false);
        loop {
            let view = self.clients.view(self.job).await?;
            let ended = is_terminal(&view);
            let left = !ended && self.is_left(&view);
            if ended || left {
                self.afterwards(ended).await?;
                let (agent, job) = (self.program.agent.clone(), self.job);
                return Ok(Outcome { agent, asked: self.asked.clone(), job, n, left, view, cancelled });
            }
            if cancel_in.is_some_and(|at| looks >= at) && !cancelled {
                cancelled = self.clients.cancel(self.job).await?;
            }
            if !cancelled && let Some(hold) = self.hold.take_if(|hold| hold.is_due(looks)) {
                was_held = true;
                hold.perform(self.clients, self.job).await?;
            } else if self.hold.is_none() {
                Hold::let_go(self.clients, self.job, &view, was_held).await?;
            }
            self.answer(&view).await?;
            looks += 1;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether it waits for the human who does not come.
    fn is_left(&self, view: &Value) -> bool {
        let node = view["waiting"]["node_id"].as_str();
        let doubt = view["waiting"]["doubt"] == true;
        !doubt
            && self.program.waits.iter().any(|wait| Some(wait.node.as_str()) == node && wait.time == SignalTime::Never)
    }

    /// Answers what the job waits for.
    async fn answer(&mut self, view: &Value) -> Result<()> {
        let waiting = &view["waiting"];
        if waiting["doubt"] == true && waiting["wait_type"] == "human" {
            return self.clients.resolve(self.job).await;
        }
        let node = waiting["node_id"].as_str().unwrap_or_default();
        let wait = self.program.waits.iter().find(|wait| wait.node == node && wait.time == SignalTime::AtWait);
        if let Some(wait) = wait
            && (wait.late.is_none() || self.dice.chance(30))
        {
            self.signal(wait).await?;
        }
        Ok(())
    }

    async fn signal(&mut self, wait: &'s Wait) -> Result<()> {
        if wait.strict && self.dice.chance(30) {
            self.clients.slip(self.job, &wait.node).await?;
        }
        self.clients.signal(self.job, &wait.node).await?;
        if self.dice.chance(25) {
            self.clients.counts.repeated.fetch_add(1, Ordering::Relaxed);
            self.clients.signal(self.job, &wait.node).await?;
        }
        self.signalled.insert(&wait.node, true);
        Ok(())
    }

    /// What was delivered once is answered well for ever.
    async fn afterwards(&mut self, ended: bool) -> Result<()> {
        if !ended || !self.dice.chance(20) {
            return Ok(());
        }
        for node in self.signalled.keys() {
            self.clients.counts.repeated.fetch_add(1, Ordering::Relaxed);
            self.clients.signal(self.job, node).await?;
        }
        Ok(())
    }
}

/// Whether a job has ended.
#[must_use]
pub fn is_terminal(view: &Value) -> bool {
    matches!(view["status"].as_str(), Some("completed" | "failed" | "cancelled"))
}

impl Outcome {
    /// What is wrong with how the job ended, if anything is.
    #[must_use]
    pub fn problem(&self, program: &Program) -> Option<String> {
        let status = self.view["status"].as_str().unwrap_or_default();
        let code = self.view["error"]["code"].as_str().unwrap_or_default();
        let version = self.view["agent_version"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
        let answer = self.view["result"].as_i64();
        let fine = match status {
            "completed" => {
                program.completes
                    && !program.waits_for_ever()
                    && answer.is_some_and(|answer| program.may_answer(self.n, version, answer))
            }
            // Whether a deadline was due is told by what is stored.
            "failed" if code == "deadline_exceeded" => true,
            "failed" => program.codes.contains(code),
            "cancelled" => self.cancelled,
            _ => self.left,
        };
        let Self { agent, job, n, .. } = self;
        (!fine).then(|| {
            let (result, error) = (&self.view["result"], &self.view["error"]);
            format!("{agent} {job} (n {n}, version {version}) ended {status}, answer {result}, error {error}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_api_that_does_not_come_back_is_not_waited_for_for_ever() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let patience = Duration::from_millis(200);
        let clients = Clients::patient_for(patience, nobody, Arc::new(SystemClock), String::new()).unwrap();
        let error = clients.put(&Program::slow(), "http://127.0.0.1:9", 1).await.unwrap_err();
        assert!(error.to_string().contains("PUT /api/agents/chaos-slow: no answer"), "{error}");
        assert!(clients.counts.unknown.load(Ordering::Relaxed) >= 2);
    }
}
