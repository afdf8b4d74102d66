//! The people around the processes: customers that send messages and signals and repeat what was not
//! answered.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aetheris_check::{ClientHistory, Submission};
use aetheris_core::id::{AgentName, JobId, TenantId};
use aetheris_core::json::Json;
use aetheris_core::plan::WaitType;
use aetheris_core::step::StepStatus;
use aetheris_core::time::Span;
use aetheris_runtime::load::Loaded;
use aetheris_runtime::ops::{PauseAnswer, Signal, SignalAnswer, Submission as Message, Submitted};
use aetheris_runtime::{OpError, Runtime};
use aetheris_store::{NewAgent, Scope};
use aetheris_testing::random::Random;
use aetheris_testing::time::BEGINNING;
use aetheris_testing::world::acked;

use crate::children;
use crate::people::Errand;
use crate::processes::{Processes, Stage};
use crate::program::{Kind, Program};
use crate::strikes::Blow;
use crate::tally::Tally;
use crate::tell;

/// A job as its customer sees it.
#[derive(Debug, Clone)]
pub struct Order {
    /// Whether it was to be cancelled.
    pub cancelled: bool,
    /// The whole job's deadline in milliseconds: the message's, or the program's.
    pub deadline: Option<u64>,
    /// The job.
    pub job: JobId,
    /// The message.
    pub message: String,
    /// What it runs.
    pub program: Arc<Program>,
}

/// What all clients share.
#[derive(Clone)]
pub struct Clients {
    pub(crate) processes: Processes,
    found: Arc<Mutex<Tally>>,
    history: Arc<Mutex<ClientHistory>>,
    orders: Arc<Mutex<Vec<Order>>>,
    programs: Arc<Vec<Vec<Arc<Program>>>>,
    pub(crate) stage: Stage,
    /// On whose behalf.
    tenant: TenantId,
}

/// Whoever else there is: with agents, keys and sessions of the same names.
const NEIGHBOUR: &str = "neighbour";

/// How long a client waits for an answer before it asks someone else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(12);

/// How far ahead a message may be sent for later, in milliseconds.
pub(crate) const RUN_AT_MAX: u64 = 8_000;

/// The longest deadline that a message brings, in milliseconds.
pub(crate) const DEADLINE_MAX: u64 = 60_000;

/// The longest that a job is held still, in milliseconds.
pub(crate) const PAUSE_MAX: u64 = 20_000;

impl Clients {
    /// The clients of a run; `programs` are the versions of each agent.
    #[must_use]
    pub fn new(stage: Stage, processes: Processes, programs: Vec<Vec<Arc<Program>>>) -> Self {
        Self {
            processes,
            found: Arc::default(),
            history: Arc::default(),
            orders: Arc::default(),
            programs: Arc::new(programs),
            stage,
            tenant: TenantId::default(),
        }
    }

    /// The processes that they reach.
    #[must_use]
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// What was told to them and is not so.
    #[must_use]
    pub fn found(&self) -> Tally {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn case(&self, id: &'static str, holds: bool, what: impl FnOnce() -> String) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).case(id, holds, what);
    }

    /// What they were told.
    #[must_use]
    pub fn history(&self) -> ClientHistory {
        self.told().clone()
    }

    /// The jobs that were accepted.
    #[must_use]
    pub fn orders(&self) -> Vec<Order> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, ClientHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same on behalf of somebody else.
    pub(crate) fn on_behalf_of(&self, tenant: TenantId) -> Self {
        Self { tenant, ..self.clone() }
    }

    /// A process that answers, on behalf of the client's tenant.
    fn reach(&self, random: &mut Random) -> Option<Runtime> {
        self.processes.reach(random).map(|rt| rt.of(self.tenant.clone()))
    }

    /// Asks until somebody answers something certain.
    pub(crate) async fn ask<T, F>(
        &self,
        random: &mut Random,
        what: &str,
        call: impl Fn(Runtime) -> F,
    ) -> Result<T, OpError>
    where
        F: Future<Output = Result<T, OpError>>,
    {
        loop {
            if let Some(rt) = self.reach(random) {
                let answer = tokio::select! {
                    biased;
                    answer = call(rt) => Some(answer),
                    () = tokio::time::sleep(PATIENCE) => None,
                };
                match answer {
                    Some(Err(OpError::Store(_) | OpError::StateConflict(_))) | None => {
                        tell!(self.stage.trace, "client", "{what}: no answer, once more");
                    }
                    Some(answer) => return answer,
                }
            }
            tokio::time::sleep(Duration::from_millis(random.between(50, 900))).await;
        }
    }

    /// Puts the next version of an agent, which both tenants have.
    pub async fn put(&self, program: &Program) {
        self.put_file(&program.name, program.version, program.file()).await;
    }

    /// Puts the agent whose jobs are children.
    pub async fn put_child(&self) {
        self.put_file("child", 1, children::FILE.to_owned()).await;
    }

    async fn put_file(&self, name: &str, version: u32, file: String) {
        match aetheris_agentfile::parse(&file) {
            Ok(agent) => {
                let agent = Arc::new(agent);
                for tenant in [TenantId::default(), NEIGHBOUR.into()] {
                    let new = NewAgent { agent: Arc::clone(&agent), source: file.clone(), tenant };
                    let stored = self.stage.store.put_agent(new).await.is_ok();
                    tell!(self.stage.trace, "client", "puts {name} version {version}: {stored}");
                }
            }
            Err(errors) => tell!(self.stage.trace, "client", "REFUSED {name}: {errors:?}"),
        }
    }

    /// One customer: sends a message, then whatever its job waits for, and perhaps a cancel.
    pub async fn customer(mut self, number: u64, mut random: Random) {
        tokio::time::sleep(Duration::from_millis(random.between(0, 15_000))).await;
        let agent = usize::try_from(random.below(u64::try_from(self.programs.len()).unwrap_or(1))).unwrap_or(0);
        let Some(versions) = self.programs.get(agent) else { return };
        let Some(name) = versions.first().map(|program| AgentName::from(program.name.as_str())) else { return };
        let text = format!("m{number}");
        let neighbours = random.chance(250);
        if neighbours {
            self.tenant = NEIGHBOUR.into();
        }
        // A neighbour takes the name that the customer before it may have: a name within its tenant.
        let key = random.chance(800).then(|| format!("c{}", number + u64::from(!neighbours)));
        let mut message = self.message(key.clone(), &text, &mut random).await;
        let strikes = self.stage.rates.strikes.clone();
        if strikes.are_planned() {
            (message.deadline, message.run_at) = (None, None);
            strikes.arm();
        }
        if versions.iter().all(|program| program.strict) && random.chance(300) {
            self.unfit(&name, &message, &mut random).await;
        }
        let deadline = message.deadline.map(|deadline| deadline.micros() / 1_000);
        let sent = || message.clone();
        let submitted = match &key {
            // Sent again and again under its name until it is accepted.
            Some(_) => self.ask(&mut random, "submit", |rt| submit(rt, name.clone(), sent())).await.ok().map(|s| s.job),
            // Without a name it is sent once, and whoever hears nothing does not know.
            None => match self.reach(&mut random) {
                Some(rt) => tokio::select! {
                    biased;
                    answer = submit(rt, name.clone(), sent()) => answer.ok().map(|submitted| submitted.job),
                    () = tokio::time::sleep(PATIENCE) => None,
                },
                None => None,
            },
        };
        let Some(job) = submitted else { return };
        tell!(self.stage.trace, "client", "{} accepted", self.stage.trace.name(job));
        self.told().submissions.push(Submission { client_key: self.named(key.as_ref()), job });
        if key.is_some() && random.chance(200) {
            // A client that has lost the answer.
            self.once_more(&name, job, &message, &mut random).await;
        }
        if key.is_some() && random.chance(150) {
            self.another(&name, job, message, &mut random).await;
        }
        self.follow(job, (text, deadline), versions, random).await;
    }

    /// A client's name with whatever it is a name within.
    fn named(&self, key: Option<&String>) -> Option<String> {
        key.map(|key| format!("{}/{key}", self.tenant))
    }

    /// Asks for a job as somebody whose it is not: it is not there, and nothing becomes of it.
    async fn guess(self, job: JobId, mut random: Random) {
        tokio::time::sleep(Duration::from_millis(random.between(0, 25_000))).await;
        let own = self.tenant == TenantId::default();
        let guesser = Self { tenant: if own { NEIGHBOUR.into() } else { TenantId::default() }, ..self };
        let missing = |answer: &Result<(), OpError>| matches!(answer, Err(OpError::JobNotFound(of)) if *of == job);
        for act in ["cancel", "pause", "resume", "signal"] {
            let answer = guesser
                .ask(&mut random, act, |rt| async move {
                    let signal = Signal { correlation_key: "k".to_owned(), payload: Json::null(), wait_type: None };
                    match act {
                        "cancel" => rt.cancel(job).await.map(drop),
                        "pause" => rt.pause(job).await.map(drop),
                        "resume" => rt.resume(job).await.map(drop),
                        _ => rt.signal(job, signal).await.map(drop),
                    }
                })
                .await;
            guesser.case("T8", missing(&answer), || {
                format!("{}: another tenant's {act} was told {answer:?}", guesser.stage.trace.name(job))
            });
        }
    }

    /// A message that is not what its agent says a message must be: it makes no job and uses up no key.
    async fn unfit(&self, agent: &AgentName, message: &Message, random: &mut Random) {
        let unfit = Message { message: Some(Json::new("unfit".to_owned().into())), ..message.clone() };
        let answer = self.ask(random, "submit what does not fit", |rt| submit(rt, agent.clone(), unfit.clone())).await;
        self.case("T6", matches!(answer, Err(OpError::InvalidPayload { .. })), || {
            format!("a message that does not fit its agent's schema was told {answer:?}")
        });
    }

    /// A message with whatever may be said beside it.
    async fn message(&self, client_key: Option<String>, text: &str, random: &mut Random) -> Message {
        let now = self.stage.store.status().await.map(|status| status.now).unwrap_or_default();
        let labels = (0..random.below(3)).map(|label| (format!("l{label}"), format!("v{}", random.below(2))));
        let labels = labels.collect();
        Message {
            client_key,
            deadline: random.chance(60).then(|| Span::from_millis(random.between(2_000, DEADLINE_MAX))),
            labels,
            message: Some(Json::new(text.to_owned().into())),
            priority: i32::try_from(random.below(3)).unwrap_or(0) - 1,
            run_at: random.chance(250).then(|| now.after(Span::from_millis(random.below(RUN_AT_MAX)))),
            session: random.chance(300).then(|| "s".into()),
        }
    }

    /// The same message again: the same job, and what that is doing.
    async fn once_more(&self, agent: &AgentName, job: JobId, message: &Message, random: &mut Random) {
        tokio::time::sleep(Duration::from_millis(random.below(20_000))).await;
        let status =
            async || self.stage.store.job(Scope::System, job).await.ok().flatten().map(|row| (row.seq, row.status));
        let before = status().await;
        let again = self.ask(random, "submit again", |rt| submit(rt, agent.clone(), message.clone())).await;
        let Ok(again) = again else { return };
        let client_key = self.named(message.client_key.as_ref());
        self.told().submissions.push(Submission { client_key, job: again.job });
        let after = status().await;
        if before == after {
            let told = Some(again.status) == after.map(|(_, status)| status);
            self.case("T1", told && !again.created, || {
                format!("{}: a repeated message was told {again:?}, and it is {after:?}", self.stage.trace.name(job))
            });
        }
    }

    /// Another message under the same name, different in one thing: it is refused.
    async fn another(&self, agent: &AgentName, job: JobId, mut message: Message, random: &mut Random) {
        match random.below(6) {
            0 => message.deadline = message.deadline.map_or(Some(Span::from_secs(3_600)), |_| None),
            5 => message.message = Some(Json::new("m".to_owned().into())),
            1 => drop(message.labels.insert("l0".to_owned(), "other".to_owned())),
            2 => message.priority += 1,
            3 => message.run_at = message.run_at.map_or(Some(BEGINNING), |_| None),
            _ => message.session = message.session.map_or_else(|| Some("s".into()), |_| None),
        }
        let answer = self.ask(random, "submit another", |rt| submit(rt, agent.clone(), message.clone())).await;
        self.case("T2", matches!(answer, Err(OpError::IdempotencyConflict(of)) if of == job), || {
            format!("{}: another message under its name was told {answer:?}", self.stage.trace.name(job))
        });
    }

    async fn follow(
        &self,
        job: JobId,
        (message, deadline): (String, Option<u64>),
        versions: &[Arc<Program>],
        mut random: Random,
    ) {
        let row = self.stage.store.job(Scope::System, job).await.ok().flatten();
        let version = row.map(|row| row.agent_version).unwrap_or_default();
        let Some(program) = versions.iter().find(|program| program.version.to_string() == version) else { return };
        let strikes = &self.stage.rates.strikes;
        let cancelled = if strikes.are_planned() { strikes.plan(Blow::Cancel) } else { random.chance(80) };
        let deadline = deadline.or(program.deadline);
        let order = Order { cancelled, deadline, job, message: message.clone(), program: Arc::clone(program) };
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order.clone());
        // As long as one key cannot be computed any other may be it.
        let late = program.steps.iter().any(|step| matches!(step.kind, Kind::Wait { keyed_by: Some(_), .. }));
        // As long as there is no plan, any may.
        let late = late || program.planner.is_model();
        let mut errands: Vec<Errand> = Vec::new();
        for (place, step) in program.steps.iter().enumerate() {
            let (deadline, wait) = match step.kind {
                Kind::Wait { deadline, human, strict, .. } => (deadline, (human, late, strict)),
                Kind::Tool { .. }
                | Kind::Model
                | Kind::Timer(_)
                | Kind::Sleep(_)
                | Kind::Transform
                | Kind::Condition => {
                    continue;
                }
            };
            if deadline.is_some() && random.chance(300) {
                continue;
            }
            let key = program.key(place, &message);
            for turn in 0..random.between(1, 2) {
                let clients = self.clone();
                let (key, random) = (key.clone(), random.fork());
                errands.push(Box::pin(clients.send_signal(job, key, turn, wait, random)));
            }
        }
        errands.extend(self.meddlers(&order));
        // What is planned draws nothing: the same happens beside it in each run.
        let beside = strikes.are_planned().then(|| random.fork());
        let fork = |random: &mut Random| beside.clone().unwrap_or_else(|| random.fork());
        if cancelled {
            errands.push(Box::pin(self.clone().cancel(job, fork(&mut random))));
        }
        let paused = if strikes.are_planned() { strikes.plan(Blow::Pause) } else { random.chance(150) };
        if paused {
            errands.push(Box::pin(self.clone().pause_and_resume(job, fork(&mut random))));
        }
        if random.chance(100) {
            errands.push(Box::pin(self.clone().guess(job, random.fork())));
        }
        futures_util::future::join_all(errands).await;
    }

    /// Holds the job still for a while. Whoever pauses it sees to it that it goes on.
    async fn pause_and_resume(self, job: JobId, mut random: Random) {
        match &self.stage.rates.strikes {
            strikes if strikes.are_planned() && !strikes.pause_comes().await => return,
            strikes if strikes.are_planned() => {}
            _ => tokio::time::sleep(Duration::from_millis(random.between(0, 25_000))).await,
        }
        let answer = self.ask(&mut random, "pause", |rt| async move { rt.pause(job).await }).await;
        tell!(self.stage.trace, "client", "{} pause: {answer:?}", self.stage.trace.name(job));
        if let Ok(PauseAnswer::Now | PauseAnswer::Requested) = answer {
            self.told().pauses.insert(job);
        }
        tokio::time::sleep(Duration::from_millis(random.between(0, PAUSE_MAX))).await;
        let answer = self.ask(&mut random, "resume", |rt| async move { rt.resume(job).await }).await;
        tell!(self.stage.trace, "client", "{} resume: {answer:?}", self.stage.trace.name(job));
    }

    async fn send_signal(
        self,
        job: JobId,
        key: String,
        turn: u64,
        (human, late, strict): (bool, bool, bool),
        mut random: Random,
    ) {
        tokio::time::sleep(Duration::from_millis(random.between(0, 25_000))).await;
        if (late || strict) && random.chance(400) {
            self.slip(job, &key, (human, late, strict), &mut random).await;
            tokio::time::sleep(Duration::from_millis(random.between(0, 3_000))).await;
        }
        let payload = Json::new(format!("p{turn}-{key}").into());
        let wait_type = match random.below(10) {
            0..=6 => None,
            _ if human => Some(WaitType::Human),
            _ => Some(WaitType::Signal),
        };
        let signal = Signal { correlation_key: key.clone(), payload: payload.clone(), wait_type };
        let answer = self
            .ask(&mut random, "signal", |rt| {
                let signal = signal.clone();
                async move { rt.signal(job, signal).await }
            })
            .await;
        tell!(self.stage.trace, "client", "{} signal {key}: {answer:?}", self.stage.trace.name(job));
        if let Err(OpError::WrongCorrelationKey { .. }) = &answer {
            let node = key.split('-').next().unwrap_or_default().replace('k', "n");
            let loaded = Loaded::read(self.stage.store.as_ref(), &Scope::System, job).await;
            let skipped =
                loaded.is_ok_and(|loaded| loaded.state.step_status(&node.as_str().into()) == StepStatus::Skipped);
            self.case("T5", skipped, || format!("{}: {answer:?}, which is in its plan", self.stage.trace.name(job)));
        } else {
            self.case("T5", true, String::new);
        }
        if let Ok(answer) = answer {
            self.told().signals.push(acked(job, &key, &payload, answer));
        }
    }

    /// A signal that cannot end its wait: its payload does not fit, or it claims another type. It is refused, or kept while
    /// nobody can know; either way it is in nobody's way.
    async fn slip(&self, job: JobId, key: &str, (human, late, strict): (bool, bool, bool), random: &mut Random) {
        let wrong = if human { WaitType::Signal } else { WaitType::Human };
        let (payload, wait_type) = match strict {
            true => (Json::new(7.into()), None),
            false => (Json::new("p-of-another".to_owned().into()), Some(wrong)),
        };
        let signal = Signal { correlation_key: key.to_owned(), payload: payload.clone(), wait_type };
        let answer = self
            .ask(random, "signal by mistake", |rt| {
                let signal = signal.clone();
                async move { rt.signal(job, signal).await }
            })
            .await;
        tell!(self.stage.trace, "client", "{} signal {key} by mistake: {answer:?}", self.stage.trace.name(job));
        let known = matches!(answer, Ok(SignalAnswer::Kept { payload_matches: true })) && !late;
        self.case("T7", !matches!(answer, Ok(SignalAnswer::Delivered)) && !known, || {
            format!("{}: a signal for `{key}` that cannot end its wait was told {answer:?}", self.stage.trace.name(job))
        });
        if let Ok(answer) = answer {
            self.told().signals.push(acked(job, key, &payload, answer));
        }
    }

    async fn cancel(self, job: JobId, mut random: Random) {
        match &self.stage.rates.strikes {
            strikes if strikes.are_planned() && !strikes.cancel_comes().await => return,
            strikes if strikes.are_planned() => {}
            _ => tokio::time::sleep(Duration::from_millis(random.between(0, 30_000))).await,
        }
        let answer = self.ask(&mut random, "cancel", |rt| async move { rt.cancel(job).await }).await;
        tell!(self.stage.trace, "client", "{} cancel: {answer:?}", self.stage.trace.name(job));
        if answer.is_ok() {
            self.told().cancels.insert(job);
        }
    }
}

async fn submit(rt: Runtime, agent: AgentName, message: Message) -> Result<Submitted, OpError> {
    rt.submit(&agent, message).await
}
