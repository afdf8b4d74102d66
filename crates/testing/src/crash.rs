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
use serde_json::Value;

use crate::doubts::{Doubt, Verdict};
use crate::failed::Failed;
use crate::fleet::{Fleet, Trap};
use crate::gate::{Crossing, Fate};
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
/// Runs in virtual time on a thread of its own, so it may be called from anywhere.
///
/// # Errors
/// What does not hold, at which crossing, and the story of that run.
pub fn crash_everywhere(agent: &str, message: Value, script: &Script) -> Result<CrashReport, Failed> {
    everywhere(&Scene { agent, message, script }, Fate::Die)
}

/// The same with a process that is slow, not dead: it stands still at the crossing until its lease is over
/// and another process has taken its job, then goes on where it stood.
///
/// # Errors
/// As [`crash_everywhere`].
pub fn stop_everywhere(agent: &str, message: Value, script: &Script) -> Result<CrashReport, Failed> {
    everywhere(&Scene { agent, message, script }, Fate::Stop)
}

/// What is the same in every run.
struct Scene<'s> {
    agent: &'s str,
    message: Value,
    script: &'s Script,
}

/// What one run has shown.
struct Played {
    cases: u64,
    crossings: Vec<(Duration, Crossing)>,
    outcome: Outcome,
    story: String,
}

/// A run that broke a promise: its words, and its story.
struct Broken {
    story: String,
    why: String,
}

fn everywhere(scene: &Scene<'_>, fate: Fate) -> Result<CrashReport, Failed> {
    let all = || {
        let plain = world::run(play(scene, fate, None));
        let plain = plain.map_err(|broken| broken.told("without any crash"))?;
        let places = places(&plain.crossings);
        let (crossings, chosen) = (plain.crossings.len(), places.len());
        let mut report = CrashReport { cases: 0, crossings, fate, left_out: crossings - chosen, rows: Vec::new() };
        let mut broken: Vec<(usize, Broken)> = Vec::new();
        for place in places {
            let played = world::run(play(scene, fate, Some(place)));
            match played.and_then(|played| judge(scene, &plain, place, &played).map(|tally| (tally, played.cases))) {
                Ok((tally, cases)) => {
                    report.cases += cases;
                    report.add(plain.crossings[place].1.to_string(), tally);
                }
                Err(one) => broken.push((place, one)),
            }
        }
        told(fate, &plain, chosen, broken).map_or(Ok(report), Err)
    };
    // A runtime must not be made inside another one.
    let ended = std::thread::scope(|scope| scope.spawn(all).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

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
            Call::Commit(_) | Call::Settle => true,
            Call::Agent | Call::Claim | Call::Heartbeat | Call::Read(_) => false,
        },
    }
}

/// Whether a run with a crash came out as it may.
fn judge(scene: &Scene<'_>, plain: &Played, place: usize, played: &Played) -> Result<Tally, Broken> {
    let broken = |why: String| Broken { story: played.story.clone(), why };
    let same = played.crossings.get(..=place) == plain.crossings.get(..=place);
    if !same {
        return Err(broken(
            "up to the crash this run differs from the one without it: tools, models and answers of a script \
             must be deterministic"
                .to_owned(),
        ));
    }
    let (expected, found) = (&plain.outcome, &played.outcome);
    if found.in_doubt {
        return Ok(Tally { in_doubt: 1, ..Tally::default() });
    }
    let code = |outcome: &Outcome| outcome.error.as_ref().map(|error| error.code.clone());
    let result = scene.script.results_differ || expected.result == found.result;
    if expected.status != found.status || code(expected) != code(found) || !result {
        return Err(broken(format!("the job is {found}; without the crash it is {expected}")));
    }
    Ok(match found.status {
        JobStatus::Completed => Tally { completed: 1, ..Tally::default() },
        JobStatus::Failed
        | JobStatus::Cancelled
        | JobStatus::Pending
        | JobStatus::Running
        | JobStatus::Waiting
        | JobStatus::Parked => Tally { failed: 1, ..Tally::default() },
    })
}

/// One run from the message to the quiet after it.
async fn play(scene: &Scene<'_>, fate: Fate, at: Option<usize>) -> Result<Played, Broken> {
    let script = scene.script;
    let (tools, models) = ((script.tools)(), (script.models)());
    let world = Arc::new(TestWorld::with_adapters(&tools, &models, |fakes| (script.adapter)(fakes)));
    let agent = world.put(scene.agent).await.map_err(Broken::early)?;
    let trap = Trap::new(Arc::clone(world.clock()), fate, at);
    let fleet = Fleet::start(&world, &trap);
    let job = submit(&world, &fleet, agent, scene.message.clone()).await.map_err(Broken::early)?;
    let driven = drive(&world, &fleet, job, script).await;
    let crossings = trap.seen();
    fleet.settle(&trap).await;
    while tools.in_flight() > 0 {
        tokio::time::sleep(OPERATOR_PAUSE).await;
    }
    let story = told_story(&world, job, &trap, fate).await;
    let broken = |why: Failed| Broken { story: story.clone(), why: why.to_string() };
    driven.map_err(broken)?;
    let report = world.check().await.map_err(broken)?;
    let outcome = outcome(&world, job).await.map_err(broken)?;
    (script.check)(&outcome, &tools).map_err(|why| broken(Failed::new(why)))?;
    let cases = report.lines.iter().map(|line| line.examined).sum();
    Ok(Played { cases, crossings, outcome, story })
}

async fn told_story(world: &TestWorld, job: JobId, trap: &Trap, fate: Fate) -> String {
    let what = if fate == Fate::Stop { "stands still" } else { "dies" };
    let struck = trap.struck_at().map(|(at, crossing)| format!("  {} ----- the process {what} {crossing}", moment(at)));
    let story = world.story(job).await;
    struck.map_or_else(|| story.clone(), |struck| format!("{story}\n{struck}"))
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

fn ask_of(state: &JobState, left: &BTreeSet<String>) -> Option<Moment> {
    if state.status.is_terminal() {
        return Some(Moment::Ended);
    }
    let blocked = state.blocked.as_ref()?;
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
        match world.watch(job, |state| ask_of(state, &left)).await? {
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
        match verdict.resolution() {
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
        Ok(()) | Err(OpError::StateConflict(_)) => Ok(()),
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
