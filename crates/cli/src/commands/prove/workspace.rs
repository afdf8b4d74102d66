//! Where an experiment happens: a folder, its tools, the processes of this program that share it, and what
//! their clients were told.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aetheris_api::{
    CancelAnswer, EventPage, EventView, InDoubtList, InDoubtView, JobView, MessageAnswer, MessageRequest,
    SignalRequest, SignalResult, SignalStatus, TraceView,
};
use aetheris_check::witness::names_permits;
use aetheris_check::{AckedSignal, ClientHistory, Report, SignalAck, Submission, WitnessLine, check_store};
use aetheris_core::id::JobId;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_store::system::System;
use serde_json::{Value, json};

use super::agents::Agent;
use super::cases::Cases;
use super::plan::Plan;
use super::tools::Tools;
use crate::client::Client;
use crate::commands::process_control::{Fault, Process, Surroundings, within_of};
use crate::error::Error;
use crate::wiring;

/// Between two looks at a job.
const LOOK: Duration = Duration::from_millis(25);
/// What a step may take on a machine that has much else to do.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Where an experiment happens.
pub(super) struct Workspace<'p> {
    /// What it has looked at.
    pub(super) cases: Cases,
    pub(super) folder: PathBuf,
    /// What clients were told.
    pub(super) history: ClientHistory,
    pub(super) plan: &'p Plan,
    processes: u32,
    pub(super) tools: Tools,
}

/// A server and how it is spoken to.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) process: Process,
}

impl<'p> Workspace<'p> {
    /// A new folder, and tools.
    ///
    /// # Errors
    /// Either cannot be made.
    pub(super) async fn new(plan: &'p Plan, folder: PathBuf) -> Result<Self, Fault> {
        for folder in [&folder, &folder.join("data")] {
            std::fs::create_dir(folder).map_err(|error| setup(folder, &error))?;
        }
        let tools = Tools::start(&folder.join("witness.log")).await?;
        let history = ClientHistory::default();
        Ok(Self { cases: Cases::default(), folder, history, plan, processes: 0, tools })
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(super) fn database(&self) -> PathBuf {
        self.data().join("aetheris.db")
    }

    /// Starts `aetheris dev` on the folder, with these agents.
    ///
    /// # Errors
    /// It does not come to serve.
    pub(super) async fn dev(&mut self, agents: &[Agent]) -> Result<Server, Fault> {
        let process = self.start_dev(agents)?;
        serving(process, "aetheris dev: listening on ").await
    }

    /// The same, without waiting for anything.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start_dev(&mut self, agents: &[Agent]) -> Result<Process, Fault> {
        let config = self.config()?;
        let mut args: Vec<PathBuf> = ["dev", "--config"].map(PathBuf::from).to_vec();
        args.extend([config, "--data".into(), self.data(), "--listen".into(), "127.0.0.1:0".into()]);
        for agent in agents {
            let file = self.write(&format!("{}.yaml", agent.name()), &self.agent(*agent))?;
            args.extend(["--agent".into(), file]);
        }
        self.start("dev", &args)
    }

    /// Starts `aetheris serve` on the database and puts these agents.
    ///
    /// # Errors
    /// It does not come to serve, or refuses one.
    pub(super) async fn serve(&mut self, agents: &[Agent]) -> Result<Server, Fault> {
        let process = self.start_serve()?;
        let server = serving(process, "aetheris serve: listening on ").await?;
        for agent in agents {
            let text = self.agent(*agent);
            let put = server.client.put_file::<Value>(&["api", "agents", agent.name()], text).await;
            put.map_err(|error| Fault::api(&format!("the agent `{}`", agent.name()), error))?;
        }
        Ok(server)
    }

    /// The same, without waiting for anything.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start_serve(&mut self) -> Result<Process, Fault> {
        let config = self.config()?;
        self.start("serve", &["serve".into(), "--config".into(), config])
    }

    /// Starts `aetheris worker` on the database.
    ///
    /// # Errors
    /// It does not get ready.
    pub(super) async fn worker(&mut self) -> Result<Process, Fault> {
        let config = self.config()?;
        let mut process = self.start("worker", &["worker".into(), "--config".into(), config])?;
        process.line("the worker is ready", |line| line.starts_with("aetheris worker: ready").then_some(())).await?;
        Ok(process)
    }

    /// Starts this program; what it writes is kept.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(&mut self, name: &str, args: &[PathBuf]) -> Result<Process, Fault> {
        self.processes += 1;
        let args: Vec<&OsStr> = args.iter().map(|arg| arg.as_os_str()).collect();
        let name = format!("{name} {}", self.processes);
        Process::start(&name, &self.plan.program, &args, &self.folder, Surroundings::Inherited)
    }

    fn agent(&self, agent: Agent) -> String {
        agent.file(&self.tools.url, self.plan.held_s())
    }

    fn config(&self) -> Result<PathBuf, Fault> {
        self.write("config.yaml", &self.plan.settings(&self.database()).to_string())
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Fault> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|error| setup(&path, &error))?;
        Ok(path)
    }

    /// Sends jobs of an agent, one after the other, each with a key of its own.
    ///
    /// # Errors
    /// One is not accepted.
    pub(super) async fn send(&mut self, server: &Server, agent: Agent, count: usize) -> Result<Vec<JobId>, Fault> {
        let mut jobs = Vec::new();
        for _ in 0..count {
            let key = format!("{}-{}", agent.name(), self.history.submissions.len());
            let job = send(&server.client, agent, &key).await.map_err(|error| Fault::api("a message", error))?;
            self.accepted(&key, job);
            jobs.push(job);
        }
        Ok(jobs)
    }

    /// A message was acknowledged.
    pub(super) fn accepted(&mut self, key: &str, job: JobId) {
        self.history.submissions.push(Submission { client_key: Some(key.to_owned()), job });
    }

    /// A signal was acknowledged. Its payload is kept where the answer says that it is the one that ended the wait.
    pub(super) fn signalled(&mut self, job: JobId, key: &str, answer: SignalResult, payload: &Value) {
        let ack = match answer.status {
            SignalStatus::Delivered | SignalStatus::AlreadyDelivered => SignalAck::Delivered,
            SignalStatus::Kept => SignalAck::Kept,
        };
        let payload_hash = answer.payload_matches.then(|| Json::new(payload.clone()).hash());
        self.history.signals.push(AckedSignal { ack, job, key: key.to_owned(), payload_hash });
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// It is refused.
    pub(super) async fn cancel(&mut self, server: &Server, job: JobId) -> Result<(), Fault> {
        let path = ["api", "jobs", &job.to_string(), "cancel"];
        let answer = server.client.post::<CancelAnswer>(&path, &json!({}), &[]).await;
        answer.map_err(|error| Fault::api("a cancel", error))?;
        self.history.cancels.insert(job);
        Ok(())
    }

    /// Every invariant over the store, the witness's log and what clients were told.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) async fn check(&self) -> Result<Report, Fault> {
        check(&self.database(), &self.tools, &self.history).await
    }
}

/// Every invariant over a database.
///
/// # Errors
/// It cannot be read.
pub(super) async fn check(database: &Path, tools: &Tools, history: &ClientHistory) -> Result<Report, Fault> {
    let failed = |error: String| Fault::Setup(format!("{} cannot be checked: {error}", database.display()));
    let store = wiring::open_sqlite(database, &System::machine()).map_err(|error| failed(error.to_string()))?;
    let lines = tools.lines();
    if lines.iter().any(WitnessLine::is_act) && !names_permits(&lines) {
        return Err(Fault::Setup("tools have acted, and no call named its permit".to_owned()));
    }
    check_store(store.as_ref(), &lines, history).await.map_err(|error| failed(error.to_string()))
}

async fn serving(mut process: Process, words: &str) -> Result<Server, Fault> {
    let url = process.line("the server listens", |line| line.strip_prefix(words).map(str::to_owned)).await?;
    let client = Client::new(url.trim()).map_err(|error| Fault::api("the server's own address", error))?;
    Ok(Server { client, process })
}

/// Sends a message under a key.
///
/// # Errors
/// It is not acknowledged.
pub(super) async fn send(client: &Client, agent: Agent, key: &str) -> Result<JobId, Error> {
    let request = MessageRequest::new(&Json::new(json!({ "n": 1 })));
    let path = ["api", "agents", agent.name(), "message"];
    Ok(client.post::<MessageAnswer>(&path, &request, &[("idempotency-key", key)]).await?.body.job_id)
}

/// Sends a signal.
///
/// # Errors
/// It is not acknowledged.
pub(super) async fn signal(client: &Client, job: JobId, key: &str, payload: &Value) -> Result<SignalResult, Error> {
    let request = SignalRequest {
        correlation_key: Some(key.to_owned()),
        payload: Some((&Json::new(payload.clone())).into()),
        wait_type: None,
    };
    Ok(client.post::<SignalResult>(&["api", "jobs", &job.to_string(), "signal"], &request, &[]).await?.body)
}

/// A job as the server shows it.
///
/// # Errors
/// It does not.
pub(super) async fn job(client: &Client, job: JobId) -> Result<JobView, Fault> {
    let view = client.get::<JobView>(&["api", "jobs", &job.to_string()], &[]).await;
    Ok(view.map_err(|error| Fault::api(&format!("the job {job}"), error))?.body)
}

/// Looks at a job until it is as wanted.
///
/// # Errors
/// It does not come to that in `max`; the fault says where it stands.
pub(super) async fn until(
    client: &Client,
    id: JobId,
    (what, max): (&str, Duration),
    is_it: impl Fn(&JobView) -> bool,
) -> Result<JobView, Fault> {
    let seen = std::cell::RefCell::new(None);
    let looking = async {
        loop {
            let view = job(client, id).await?;
            if is_it(&view) {
                return Ok(view);
            }
            seen.replace(Some((view.status, view.waiting.map(|waiting| waiting.node_id))));
            tokio::time::sleep(LOOK).await;
        }
    };
    let looked = within_of(max, what, looking).await;
    looked.map_err(|_| {
        let (status, waits) = seen.take().map_or(("unknown", None), |(status, waits)| (status.as_str(), waits));
        let waits = waits.map_or_else(String::new, |node| format!(", waits at `{node}`"));
        Fault::NotInTime { what: format!("{what} (job {id} is {status}{waits})") }
    })?
}

/// Looks at jobs until all have ended.
///
/// # Errors
/// One does not in `max`.
pub(super) async fn ended(client: &Client, jobs: &[JobId], max: Duration) -> Result<Vec<JobView>, Fault> {
    let mut views = Vec::new();
    for id in jobs {
        views.push(until(client, *id, ("every job ends", max), |view| view.status.is_terminal()).await?);
    }
    Ok(views)
}

/// Looks at jobs until they wait for a signal, a person or time.
///
/// # Errors
/// One does not in time.
pub(super) async fn waiting(client: &Client, jobs: &[JobId]) -> Result<(), Fault> {
    for id in jobs {
        until(client, *id, ("every job waits", PATIENCE), |view| view.waiting.is_some() || view.status.is_terminal())
            .await?;
    }
    Ok(())
}

/// All events of a job.
///
/// # Errors
/// The server does not tell them.
pub(super) async fn events(client: &Client, job: JobId) -> Result<Vec<EventView>, Fault> {
    let mut events: Vec<EventView> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq).to_string();
        let path = ["api", "jobs", &job.to_string(), "events"];
        let page = client.get::<EventPage>(&path, &[("after", &after)]).await;
        let page = page.map_err(|error| Fault::api("a job's events", error))?.body;
        let last = page.events.is_empty() || page.next_after.is_none();
        events.extend(page.events);
        if last {
            return Ok(events);
        }
    }
}

/// Events of one kind.
pub(super) fn count(events: &[EventView], kind: &str) -> usize {
    events.iter().filter(|event| event.kind == kind).count()
}

/// The trace of a job.
///
/// # Errors
/// The server does not tell it.
pub(super) async fn trace(client: &Client, job: JobId) -> Result<TraceView, Fault> {
    let trace = client.get::<TraceView>(&["api", "jobs", &job.to_string(), "trace"], &[]).await;
    Ok(trace.map_err(|error| Fault::api("a job's trace", error))?.body)
}

/// The call of a job in the list of those in doubt.
///
/// # Errors
/// The server does not tell the list.
pub(super) async fn doubt(client: &Client, job: JobId) -> Result<Option<InDoubtView>, Fault> {
    let list = client.get::<InDoubtList>(&["api", "in-doubt"], &[]).await;
    let list = list.map_err(|error| Fault::api("the list of calls in doubt", error))?.body;
    Ok(list.invocations.into_iter().find(|call| call.job_id == job))
}

/// Whether a job is completed with this answer.
pub(super) fn answered(view: &JobView, answer: &Value) -> bool {
    view.status == JobStatus::Completed && view.result.as_ref().is_some_and(|result| result.value() == answer)
}

/// How a job ended, in words.
pub(super) fn end(view: &JobView) -> String {
    let error = view.error.as_ref().map_or_else(String::new, |error| format!(" ({})", error.code));
    let result = view.result.as_ref().map_or_else(String::new, |result| format!(", answer {}", result.value()));
    format!("job {} is {}{error}{result}", view.id, view.status.as_str())
}

fn setup(path: &Path, error: &std::io::Error) -> Fault {
    Fault::Setup(format!("{} cannot be made: {error}", path.display()))
}

/// The late answers of a job, as soon as there are any.
///
/// # Errors
/// There are none in `max`.
pub(super) async fn until_late(
    client: &Client,
    job: JobId,
    max: Duration,
) -> Result<Vec<aetheris_api::EvidenceView>, Fault> {
    let looking = async {
        loop {
            let late = trace(client, job).await?.evidence;
            if !late.is_empty() {
                return Ok(late);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    within_of(max, &format!("a late answer of {job} is kept"), looking).await?
}
