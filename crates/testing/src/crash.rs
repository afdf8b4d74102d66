//! Crashes an agent everywhere: one run for each crossing between its process and the world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aetheris_core::event::EventKind;
use aetheris_core::id::{AgentName, JobId};
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::plan::WaitType;
use aetheris_core::state::{Ending, JobState};
use aetheris_runtime::OpError;
use aetheris_runtime::ops::{Signal, Submission};
use aetheris_store::NewAgent;
use serde_json::Value;

use crate::doubts::{Doubt, Verdict};
use crate::failed::Failed;
use crate::fleet::{Fleet, Trap};
use crate::gate::{Crossing, Fate};
use crate::reply::LATENCY;
use crate::report::{CrashReport, Tally};
use crate::script::{Outcome, Script, Waiting};
use crate::story::moment;
use crate::world::{self, TestWorld};

/// Runs the agent once without a crash. Then, for every crossing that this run had (before and after each
/// request to the store, each call of a tool, each question to a model), runs it again with a process that
/// dies exactly there, and a fresh process that takes over. After each run: the job has ended as without the
/// crash, or is in doubt where nobody could know better; every invariant holds over what is stored and what
/// the tools have seen; the script's own check passes.
///
/// Runs in virtual time on threads of its own, so it may be called from anywhere; the functions of a script
/// may be called by several of them at once.
///
/// # Errors
/// What does not hold, at which crossing, and the story of that run.
pub fn crash_everywhere(agent: &str, message: Value, script: &Script) -> Result<CrashReport, Failed> {
    everywhere(&Scene { agent: world::read_agent(agent)?, message, script }, Fate::Die)
}

/// The same with a process that is slow, not dead: it stands still at the crossing until its lease is over
/// and another process has taken its job, then goes on where it stood.
///
/// # Errors
/// As [`crash_everywhere`].
pub fn stop_everywhere(agent: &str, message: Value, script: &Script) -> Result<CrashReport, Failed> {
    everywhere(&Scene { agent: world::read_agent(agent)?, message, script }, Fate::Stop)
}

/// What is the same in every run.
struct Scene<'s> {
    agent: NewAgent,
    message: Value,
    script: &'s Script,
}

/// What one run has shown.
struct Played {
    cases: u64,
    crossings: Vec<(Duration, Crossing)>,
    outcome: Outcome,
}

/// A run that broke a promise: its words, and its story.
struct Broken {
    story: String,
    why: String,
}

fn everywhere(scene: &Scene<'_>, fate: Fate) -> Result<CrashReport, Failed> {
    let plain = apart(|| world::run(play(scene, fate, None))).map_err(|broken| broken.told("without any crash"))?;
    let places = places(&plain.crossings);
    let (crossings, chosen) = (plain.crossings.len(), places.len());
    let mut report = CrashReport { cases: 0, crossings, fate, left_out: crossings - chosen, rows: Vec::new() };
    let mut broken: Vec<(usize, Broken)> = Vec::new();
    for (place, played) in each_apart(&places, |place| world::run(play(scene, fate, Some((&plain, place))))) {
        match played {
            Ok(played) => {
                report.cases += played.cases;
                report.add(plain.crossings[place].1.to_string(), Tally::of(&played.outcome));
            }
            Err(one) => broken.push((place, one)),
        }
    }
    told(fate, &plain, chosen, broken).map_or(Ok(report), Err)
}

/// On a thread of its own: a runtime must not be made inside another one.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| joined(scope.spawn(work)))
}

/// Each place's work, on as many threads as there are processors; the answers in the order of the places.
fn each_apart<T: Send>(places: &[usize], work: impl Fn(usize) -> T + Sync) -> Vec<(usize, T)> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS_MAX);
    let work = &work;
    let mut done: Vec<(usize, T)> = std::thread::scope(|scope| {
        let share = |of: usize| places.iter().skip(of).step_by(threads).map(move |place| (*place, work(*place)));
        let started: Vec<_> = (0..threads).map(|of| scope.spawn(move || share(of).collect::<Vec<_>>())).collect();
        started.into_iter().flat_map(joined).collect()
    });
    done.sort_by_key(|(place, _)| *place);
    done
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

const THREADS_MAX: usize = 8;

/// The failure of all broken runs together: the first one's story, and where the others broke.
fn told(fate: Fate, plain: &Played, runs: usize, broken: Vec<(usize, Broken)>) -> Option<Failed> {
    let place = |place: usize| {
        let (at, crossing) = &plain.crossings[place];
        let what = if fate == Fate::Stop { "stands still" } else { "dies" };
        format!(
            "the process {what} {crossing} (crossing {} of {}, {})",
            place + 1,
            plain.crossings.len(),
            moment(*at).trim()
        )
    };
    let mut others = broken.iter().skip(1);
    let mut rest: Vec<String> =
        others.by_ref().take(OTHERS_TOLD_MAX).map(|(at, _)| format!("  {}", place(*at))).collect();
    let untold = others.count();
    if untold > 0 {
        rest.push(format!("  and {untold} more"));
    }
    let count = broken.len();
    let (at, first) = broken.into_iter().next()?;
    let mut text = format!("{count} of {runs} runs broke a promise. The first one, where {}", first.told(&place(at)));
    if !rest.is_empty() {
        text.push_str(&format!("\n\nThe others, where\n{}", rest.join("\n")));
    }
    Some(Failed::new(text))
}

const OTHERS_TOLD_MAX: usize = 9;
/// How often a script may answer one job: more is an answer that changes nothing.
const ANSWERS_MAX: usize = 1_000;
/// How long an operator waits who has no answer yet.
const OPERATOR_PAUSE: Duration = Duration::from_secs(1);

impl Broken {
    fn told(&self, wher: &str) -> Failed {
        let story = if self.story.is_empty() { String::new() } else { format!("\n\nWhat happened:\n{}", self.story) };
        Failed::new(format!("{wher}:\n{}{story}", self.why))
    }

    fn early(error: impl Into<Failed>) -> Self {
        Self { story: String::new(), why: error.into().to_string() }
    }
}

/// The crossings that are worth a run: all, but of equal ones between two steps only the first and the last.
fn places(crossings: &[(Duration, Crossing)]) -> Vec<usize> {
    let mut chosen = BTreeSet::new();
    let mut since: BTreeMap<&Crossing, (usize, usize)> = BTreeMap::new();
    for (place, (_, crossing)) in crossings.iter().enumerate() {
        since.entry(crossing).and_modify(|seen| seen.1 = place).or_insert((place, place));
        if is_step(crossing) {
            chosen.extend(std::mem::take(&mut since).into_values().flat_map(|(first, last)| [first, last]));
        }
    }
    chosen.extend(since.into_values().flat_map(|(first, last)| [first, last]));
    chosen.into_iter().collect()
}

/// Whether something of the job goes on here.
fn is_step(crossing: &Crossing) -> bool {
    use crate::gate::Call;
    match crossing {
        Crossing::ToTool(..) | Crossing::FromTool(..) | Crossing::ToModel | Crossing::FromModel => true,
        Crossing::ToStore(call) | Crossing::FromStore(call) => match call {
            Call::Commit(_) | Call::ResolveUnknown => true,
            Call::Agent | Call::Claim | Call::Heartbeat | Call::Read(_) => false,
        },
    }
}

/// One run from the message to the quiet after it, and whether it came out as it may.
async fn play(scene: &Scene<'_>, fate: Fate, crash: Option<(&Played, usize)>) -> Result<Played, Broken> {
    let script = scene.script;
    let (tools, models) = ((script.tools)(), (script.models)());
    let world = Arc::new(TestWorld::with_adapters(&tools, &models, |fakes| (script.adapter)(fakes)));
    let agent = world.put_agent(scene.agent.clone()).await.map_err(Broken::early)?;
    let trap = Trap::new(Arc::clone(world.clock()), fate, crash.map(|(_, place)| place));
    let fleet = Fleet::start(&world, &trap);
    let job = submit(&world, &fleet, agent, scene.message.clone()).await.map_err(Broken::early)?;
    let driven = drive(&world, &fleet, job, script).await;
    // The process that wrote the end is yet to see that it is written.
    tokio::time::sleep(LATENCY).await;
    let crossings = trap.seen();
    fleet.settle(&trap).await;
    while tools.in_flight() > 0 {
        tokio::time::sleep(OPERATOR_PAUSE).await;
    }
    let judged = match driven {
        Ok(()) => judge(&world, job, scene, crossings, crash).await,
        Err(failed) => Err(failed),
    };
    match judged {
        Ok(played) => Ok(played),
        Err(failed) => Err(Broken { story: told_story(&world, job, &trap, fate).await, why: failed.to_string() }),
    }
}

/// Whether a run came out as it may.
async fn judge(
    world: &TestWorld,
    job: JobId,
    scene: &Scene<'_>,
    crossings: Vec<(Duration, Crossing)>,
    crash: Option<(&Played, usize)>,
) -> Result<Played, Failed> {
    if let Some((plain, place)) = crash
        && crossings.get(..=place) != plain.crossings.get(..=place)
    {
        let why = "up to the crash this run differs from the one without it: tools, models and answers of a script \
                   must be deterministic";
        return Err(Failed::new(why));
    }
    let report = world.check().await?;
    let outcome = outcome(world, job).await?;
    if let Some((plain, _)) = crash {
        as_without_crash(&plain.outcome, &outcome, scene.script.results_differ)?;
    }
    (scene.script.check)(&outcome, world.tools()).map_err(Failed::new)?;
    let cases = report.lines.iter().map(|line| line.examined).sum();
    Ok(Played { cases, crossings, outcome })
}

fn as_without_crash(plain: &Outcome, found: &Outcome, results_differ: bool) -> Result<(), Failed> {
    let code = |outcome: &Outcome| outcome.error.as_ref().map(|error| error.code.clone());
    let same_result = results_differ || plain.result == found.result;
    // Nobody could know: that is a doubt, and no other end of the job.
    if found.in_doubt || (plain.status == found.status && code(plain) == code(found) && same_result) {
        return Ok(());
    }
    Err(Failed::new(format!("the job is {found}; without the crash it is {plain}")))
}

async fn told_story(world: &TestWorld, job: JobId, trap: &Trap, fate: Fate) -> String {
    let what = if fate == Fate::Stop { "stands still" } else { "dies" };
    let struck = trap.struck_at().map(|(at, crossing)| (at, format!("----- the process {what} {crossing}")));
    world.story_with(job, struck).await
}

/// Sends the message, again under the same client key where the process has died over it.
async fn submit(world: &TestWorld, fleet: &Fleet, agent: AgentName, message: Value) -> Result<JobId, OpError> {
    let client_key = Some("the message".to_owned());
    let submission =
        Submission { client_key: client_key.clone(), message: Some(Json::new(message)), ..Submission::default() };
    let submitted = fleet
        .ask(|rt| {
            let (agent, submission) = (agent.clone(), submission.clone());
            Box::pin(async move { rt.submit(&agent, submission).await })
        })
        .await?;
    world.note_submission(client_key, submitted.job);
    Ok(submitted.job)
}

/// What a job asks of the people around it.
enum Moment {
    Ended,
    Waits(Waiting),
    Doubts,
}

fn may_ask(status: JobStatus) -> bool {
    match status {
        // Nobody can be asked about a paused job: it goes on when its author resumes it.
        JobStatus::Pending | JobStatus::Running | JobStatus::Paused => false,
        JobStatus::Waiting | JobStatus::Parked => true,
        JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => true,
    }
}

fn ask_of(state: &JobState, left: &BTreeSet<String>) -> Option<Moment> {
    if state.status.is_terminal() {
        return Some(Moment::Ended);
    }
    let blocked = state.blocks.oldest()?;
    if blocked.doubt {
        return (blocked.wait_type == WaitType::Human).then_some(Moment::Doubts);
    }
    let key = blocked.correlation_key.clone().filter(|key| !left.contains(key))?;
    Some(Moment::Waits(Waiting { job: state.id, key, node: blocked.node.clone(), reason: blocked.reason.clone() }))
}

/// Answers what the job asks until it has ended, or is parked with a doubt that is left open.
async fn drive(world: &TestWorld, fleet: &Fleet, job: JobId, script: &Script) -> Result<(), Failed> {
    let mut left = BTreeSet::new();
    for _ in 0..ANSWERS_MAX {
        match world.watch_in(job, may_ask, |state| ask_of(state, &left)).await? {
            Moment::Ended => return Ok(()),
            Moment::Doubts => {
                if !answer_doubts(world, fleet, job, script).await? {
                    return Ok(());
                }
            }
            Moment::Waits(waiting) => match (script.waits)(&waiting) {
                Some(payload) => answer_wait(world, fleet, &waiting, Json::new(payload)).await?,
                None => {
                    left.insert(waiting.key);
                }
            },
        }
    }
    Err(Failed::new(format!("the script has answered {ANSWERS_MAX} times and the job has not ended")))
}

async fn answer_wait(world: &TestWorld, fleet: &Fleet, waiting: &Waiting, payload: Json) -> Result<(), Failed> {
    let (job, key) = (waiting.job, waiting.key.clone());
    let signal = Signal { correlation_key: key.clone(), payload: payload.clone(), wait_type: None };
    let answer = fleet
        .ask(|rt| {
            let signal = signal.clone();
            Box::pin(async move { rt.signal(job, signal).await })
        })
        .await;
    match answer {
        Ok(answer) => world.note_signal(job, &key, &payload, answer),
        // The wait has ended in another way meanwhile.
        Err(OpError::WaitOver(_) | OpError::JobFinished { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Whether the job can go on.
async fn answer_doubts(world: &TestWorld, fleet: &Fleet, job: JobId, script: &Script) -> Result<bool, Failed> {
    let mut goes_on = false;
    for doubt in world.doubts(job).await? {
        let verdict = (script.doubts)(&doubt);
        goes_on |= verdict != Verdict::Leave;
        match verdict.resolution(doubt.permit) {
            Some(resolution) => resolve(world, fleet, &doubt, resolution).await?,
            None if verdict == Verdict::NotYet => tokio::time::sleep(OPERATOR_PAUSE).await,
            None => {}
        }
    }
    Ok(goes_on)
}

async fn resolve(
    world: &TestWorld,
    fleet: &Fleet,
    doubt: &Doubt,
    resolution: aetheris_runtime::ops::Resolution,
) -> Result<(), Failed> {
    let (job, key) = (doubt.job, doubt.key);
    let answer = fleet
        .ask(|rt| {
            let resolution = resolution.clone();
            Box::pin(async move { rt.resolve(job, key, resolution).await })
        })
        .await;
    match answer {
        // A late answer of the tool, or the same words a moment earlier, have ended the doubt.
        Ok(_) | Err(OpError::StateConflict(_)) => Ok(()),
        Err(OpError::CanStillArrive(until)) => {
            let now = world.runtime().store.status().await?.now;
            tokio::time::sleep(until.since(now).to_std()).await;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

async fn outcome(world: &TestWorld, job: JobId) -> Result<Outcome, Failed> {
    let state = world.state(job).await?;
    let error = match &state.ending {
        Some(Ending::Failed { error, .. }) => Some(error.clone()),
        Some(Ending::Answered(_) | Ending::Cancelled) | None => None,
    };
    let given_up = error.as_ref().is_some_and(|error| error.code == "in_doubt_unresolved");
    let parked = !state.status.is_terminal();
    // A job is only called in doubt if its own history says so.
    let doubted = world.events(job).await?.iter().any(|event| event.kind() == EventKind::StepInDoubt);
    let result = match state.status {
        JobStatus::Completed => Some(world.result(job).await?),
        _ => None,
    };
    Ok(Outcome { error, in_doubt: doubted && (given_up || parked), result, status: state.status })
}
