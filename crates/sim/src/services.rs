//! The outside world of the simulation: tools and a model that outlive every process and log each body
//! themselves, and the network on the way to them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aetheris_check::witness::{WitnessKind, WitnessLine, parse_permit};
use aetheris_core::event::{Failure, FinishReason, Usage};
use aetheris_core::id::{IdempotencyKey, InstanceId, JobId};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::ledger::PermitNumber;
use aetheris_core::plan::EffectClass;
use aetheris_core::time::{Span, Timestamp};
use aetheris_runtime::ports::MODEL_HELD_BACK;
use aetheris_runtime::{Heard, ModelAnswer, ModelError, ModelRequest, Models, ToolCall, ToolOutcome, Tools};
use aetheris_store::Boxed;
use aetheris_testing::random::Random;
use serde_json::json;
use tokio::sync::oneshot;

use crate::fault_rates::FaultRates;
use crate::program::{Act, Kind, Program, Step, output_of};
use crate::recorder::{Leaving, Recorder};
use crate::strikes::{Blow, Site};
use crate::tell;
use crate::trace::Trace;
use crate::{loops, planners, rounds};

/// How much longer than its caller's timeout a call may stand in the service's queue: less than any program's `settle`.
pub const QUEUE_MS: u64 = 900;

/// What the service knows of one key.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// How often it has acted.
    pub acts: u32,
    /// How many calls have reached it.
    pub arrivals: u32,
    /// Calls that are on their way to it.
    pub on_the_way: u32,
    /// The highest permit that it refuses, with all before it.
    pub refused: Option<PermitNumber>,
    /// What it has answered or would answer.
    pub result: Option<String>,
}

#[derive(Default)]
struct State {
    /// Successes that have reached their caller, of calls that are in the ledger, and lookups that have found one.
    answers: BTreeMap<IdempotencyKey, usize>,
    /// Answers of `at_most_once` calls that have reached their caller.
    delivered: Vec<(JobId, IdempotencyKey, Fence)>,
    keys: BTreeMap<IdempotencyKey, Known>,
    lines: Vec<WitnessLine>,
    /// Questions to the model: when, and which.
    questions: Vec<(Asked, String)>,
    programs: BTreeMap<(String, String), Arc<Program>>,
}

/// Tools and models of the world.
pub struct Services {
    random: Mutex<Random>,
    state: Mutex<State>,
    store: Arc<Recorder>,
    trace: Trace,
    rates: FaultRates,
}

/// What the network does to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It arrives, and the answer comes back.
    Good,
    /// The connection is refused.
    NotSent,
    /// It is lost on the way.
    LostGoing,
    /// It arrives, and the connection breaks before the answer.
    Broken,
    /// It arrives, and the answer is lost in silence.
    Silent,
    /// It stands in the receiver's queue until its caller has given up, and arrives then.
    Queued,
}

impl Services {
    /// The services of a world.
    #[must_use]
    pub fn new(store: Arc<Recorder>, random: Random, rates: FaultRates, trace: Trace) -> Arc<Self> {
        let (random, state) = (Mutex::new(random), Mutex::default());
        Arc::new(Self { random, state, store, trace, rates })
    }

    /// Makes a program known: what its tools do.
    pub fn learn(&self, program: &Arc<Program>) {
        let key = (program.name.clone(), program.version.to_string());
        self.state().programs.insert(key, Arc::clone(program));
    }

    /// The witness log.
    #[must_use]
    pub fn lines(&self) -> Vec<WitnessLine> {
        self.state().lines.clone()
    }

    /// Answers of `at_most_once` calls that have reached their caller.
    #[must_use]
    pub fn delivered(&self) -> Vec<(JobId, IdempotencyKey, Fence)> {
        self.state().delivered.clone()
    }

    /// How many successes of a call have reached their caller, by its own answer or a lookup's.
    #[must_use]
    pub fn answers(&self, key: IdempotencyKey) -> usize {
        self.state().answers.get(&key).copied().unwrap_or(0)
    }

    /// A process stands still.
    pub fn process_stops(&self, instance: InstanceId) {
        self.store.process_stops(instance);
    }

    /// It goes on.
    pub fn process_goes_on(&self, instance: InstanceId) {
        self.store.process_goes_on(instance);
    }

    /// When the model was asked a question.
    #[must_use]
    pub fn asked(&self, prompt: &str) -> Vec<Asked> {
        self.state().questions.iter().filter(|(_, asked)| asked == prompt).map(|(at, _)| *at).collect()
    }

    /// What it knows of a key.
    #[must_use]
    pub fn known(&self, key: IdempotencyKey) -> Known {
        self.state().keys.get(&key).cloned().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random(&self) -> MutexGuard<'_, Random> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bodies are logged by the store's clock, so that they can be put in order with what was written.
    fn now(&self) -> Timestamp {
        self.store.outside_time()
    }

    fn way(&self, call: &ToolCall) -> Way {
        match self.rates.strikes.strike(Site::of_call(call.tool.effect)) {
            Some(Blow::NotSent) => return Way::NotSent,
            Some(Blow::LostGoing) => return Way::LostGoing,
            Some(Blow::Broken) => return Way::Broken,
            Some(Blow::Silent) => return Way::Silent,
            Some(Blow::Queued) => return Way::Queued,
            _ => {}
        }
        let mut random = self.random();
        if !self.rates.is_bad() || !random.chance(self.rates.network) {
            return Way::Good;
        }
        match random.below(4) {
            0 => Way::NotSent,
            1 => Way::LostGoing,
            2 => Way::Broken,
            _ => Way::Silent,
        }
    }

    fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random().between(from, to))
    }

    /// The step that a tool of its own is called for.
    fn step_of(&self, call: &ToolCall) -> Option<(usize, Step)> {
        let (place, program) = self.program_of(call)?;
        Some((place, program.steps.get(place).cloned()?))
    }

    /// The program of a step that a tool of its own is called for, and which step it is.
    fn program_of(&self, call: &ToolCall) -> Option<(usize, Arc<Program>)> {
        let place: usize = call.tool_name.as_str().strip_prefix('t')?.parse().ok()?;
        Some((place, self.program(call)?))
    }

    /// The program whose tool is called.
    fn program(&self, call: &ToolCall) -> Option<Arc<Program>> {
        let version = call.tool.version.clone()?;
        self.state().programs.get(&(call.agent.to_string(), version)).cloned()
    }

    /// What is known of a call that leaves its process.
    fn leaving(&self, call: &ToolCall) -> Leaving {
        let Some(program) = self.program(call) else { return Leaving::default() };
        let told = Some(Arc::clone(&program));
        let Some((place, _)) = self.program_of(call) else { return Leaving { program: told, ..Leaving::default() } };
        let leaves = program.steps.get(place).is_some_and(|step| step.leaves(place));
        let behind = || program.behind(place).into_iter().map(|need| format!("n{need}")).collect();
        let at_once = Some((program.parallel.max(1), program.calls_at_once(place)));
        Leaving { at_once, behind: leaves.then(behind), program: told }
    }

    fn act_of(&self, call: &ToolCall) -> Option<Act> {
        match self.step_of(call)?.1.kind {
            Kind::Tool { act, .. } => Some(act),
            Kind::Model | Kind::Wait { .. } | Kind::Timer(_) | Kind::Sleep(_) | Kind::Transform | Kind::Condition => {
                None
            }
        }
    }

    fn log(&self, kind: WitnessKind, call: &ToolCall, result: Option<&Json>) {
        let line = WitnessLine {
            kind,
            acts: call.tool.effect.is_ledger() && matches!(kind, WitnessKind::BodyStart | WitnessKind::BodyEnd),
            at: self.now(),
            attempt: call.try_number,
            fence: call.fence,
            input_hash: call.input.hash(),
            job: call.job,
            key: call.key,
            node: call.node.clone(),
            permit: call.permit,
            result_hash: result.map(Json::hash),
            tool: call.tool_name.to_string(),
        };
        tell!(self.trace, "world", "{} `{}` {kind:?} under {}", self.trace.name(call.job), call.tool_name, call.fence);
        self.state().lines.push(line);
    }

    /// Refuses this permit of the key and those before it from now on, as a service that is asked so does.
    pub fn refuse(&self, key: IdempotencyKey, permit: Option<PermitNumber>) {
        self.note(key, |known| known.refused = known.refused.max(permit));
    }

    fn note(&self, key: IdempotencyKey, change: impl FnOnce(&mut Known)) -> Known {
        let mut state = self.state();
        let known = state.keys.entry(key).or_default();
        change(known);
        known.clone()
    }

    /// A lookup: what became of a key, as far as the service knows.
    fn look(&self, call: &ToolCall) -> ToolOutcome {
        let Some(key) = asked_about(call) else {
            return ToolOutcome::RefusedPermanent(Failure::new("bad_lookup", "the lookup names no key"));
        };
        let refuses = call.tool.refuses;
        let permit =
            call.input.get("permit").and_then(serde_json::Value::as_str).and_then(|text| parse_permit(text).ok());
        let known = self.known(key);
        let unsure = self.rates.is_bad() && self.random().chance(100);
        let answer = if unsure {
            json!({ "outcome": "unknown" })
        } else if known.acts > 0 {
            json!({ "outcome": "happened", "result": known.result })
        } else {
            if refuses {
                self.refuse(key, permit);
            }
            json!({ "outcome": "did_not_happen" })
        };
        ToolOutcome::Done(Json::new(answer))
    }

    /// What happens at the service when a call arrives: the outcome, and whether the answer is sent.
    async fn serve(&self, call: &ToolCall, at_once: bool) -> (ToolOutcome, bool) {
        if ["look", "refuse"].iter().any(|name| call.tool_name.as_str().starts_with(name)) {
            return (self.look(call), true);
        }
        let Some(act) = self.act_of(call) else {
            return (ToolOutcome::RefusedPermanent(Failure::new("unknown_tool", "no such service")), true);
        };
        if self.known(call.key).refused.is_some_and(|refused| call.permit.is_none_or(|permit| permit <= refused)) {
            self.log(WitnessKind::Refused, call, None);
            let error = Failure::new("refused_permit", "410: this permit is refused");
            return (ToolOutcome::RefusedPermanent(error), true);
        }
        let arrival = self.note(call.key, |known| known.arrivals += 1).arrivals;
        match act {
            Act::Refuse => {
                self.log(WitnessKind::Refused, call, None);
                return (ToolOutcome::RefusedPermanent(Failure::new("refused_for_good", "never")), true);
            }
            Act::RefuseFirst(times) if arrival <= times => {
                self.log(WitnessKind::Refused, call, None);
                let retry_after = (times > 1).then(|| Span::from_millis(300));
                return (ToolOutcome::RefusedRetryable { error: Failure::new("busy", "later"), retry_after }, true);
            }
            Act::Good | Act::RefuseFirst(_) | Act::LoseFirst(_) | Act::SlowFirst(_) => {}
        }
        let input = call.input.get("v").and_then(serde_json::Value::as_str).unwrap_or_default();
        let result = output_of(call.tool_name.as_str(), input);
        self.note(call.key, |known| {
            known.acts += 1;
            known.result.get_or_insert_with(|| result.clone());
        });
        self.log(WitnessKind::BodyStart, call, None);
        let slow = matches!(act, Act::SlowFirst(times) if arrival <= times);
        let time = match (slow, at_once) {
            (true, _) => call.timeout + Duration::from_millis(700),
            (false, true) => Duration::ZERO,
            (false, false) => self.millis(0, 60),
        };
        tokio::time::sleep(time).await;
        let result = Json::new(result.into());
        self.log(WitnessKind::BodyEnd, call, Some(&result));
        let lost = matches!(act, Act::LoseFirst(times) if arrival <= times);
        (ToolOutcome::Done(result), !lost)
    }

    async fn send(self: Arc<Self>, call: ToolCall, way: Way, reply: oneshot::Sender<ToolOutcome>) {
        self.note(call.key, |known| known.on_the_way += 1);
        let longest = u64::try_from(call.timeout.as_millis()).unwrap_or(300);
        // A closed connection takes nothing back: what stands in the receiver's queue arrives, up to what settles.
        let once = call.tool.effect == EffectClass::AtMostOnce;
        let queued = way == Way::Queued || (once && self.rates.is_bad() && self.random().chance(100));
        // A function of the process itself may be done before the store has answered anything.
        let at_once = call.tool.effect == EffectClass::Pure && self.random().chance(500);
        let transit = match (self.rates.is_bad(), queued) {
            _ if at_once => Duration::ZERO,
            (_, true) => self.millis(longest, longest + QUEUE_MS),
            (true, false) => self.millis(0, longest.min(800)),
            (false, false) => self.millis(0, 3),
        };
        tokio::time::sleep(transit).await;
        self.note(call.key, |known| known.on_the_way -= 1);
        let (outcome, answers) = self.serve(&call, at_once).await;
        match way {
            Way::Good if answers => {
                let back = if at_once { Duration::ZERO } else { self.millis(0, 3) };
                tokio::time::sleep(back).await;
                // Nobody may be there to hear it any more.
                let _ = reply.send(outcome);
            }
            Way::Broken => {
                let error = Failure::new("connection_lost", "the connection broke after sending");
                let _ = reply.send(ToolOutcome::Unknown { error, retry_after: None, timeout: false });
            }
            // Kept open and silent until the caller's own timeout.
            Way::Good | Way::NotSent | Way::LostGoing | Way::Silent | Way::Queued => std::future::pending().await,
        }
    }

    /// An answer has reached its caller.
    fn arrived(&self, call: &ToolCall, outcome: &ToolOutcome) {
        if call.tool.effect.is_ledger() && matches!(outcome, ToolOutcome::Done(_)) {
            *self.state().answers.entry(call.key).or_default() += 1;
        }
        if let ToolOutcome::Done(answer) = outcome
            && answer.get("outcome").and_then(serde_json::Value::as_str) == Some("happened")
            && let Some(key) = asked_about(call)
        {
            *self.state().answers.entry(key).or_default() += 1;
        }
        if call.tool.effect == EffectClass::AtMostOnce && matches!(outcome, ToolOutcome::Done(_)) {
            self.state().delivered.push((call.job, call.key, call.fence));
        }
    }
}

/// The key that a lookup is about.
fn asked_about(call: &ToolCall) -> Option<IdempotencyKey> {
    call.input.get("idempotency_key").and_then(serde_json::Value::as_str)?.parse().ok()
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Services")
    }
}

/// When a model was asked.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// It had its answer ready, or its refusal.
    pub answered: Timestamp,
    /// The question left.
    pub left: Timestamp,
}

/// The services as the processes reach them.
#[derive(Debug, Clone)]
pub struct Outside(pub Arc<Services>);

impl Tools for Outside {
    fn call(&self, call: ToolCall) -> Boxed<'_, ToolOutcome> {
        let services = Arc::clone(&self.0);
        Box::pin(async move {
            let _out = services.store.call_leaves(&call, &services.leaving(&call), services.now());
            let way = services.way(&call);
            let timed_out = ToolOutcome::Unknown {
                error: Failure::new("timeout", "no answer in time"),
                retry_after: None,
                timeout: true,
            };
            let outcome = match way {
                Way::NotSent => {
                    let pause = services.millis(0, 20);
                    tokio::time::sleep(pause).await;
                    ToolOutcome::NotSent { error: Failure::new("not_sent", "connection refused"), permanent: false }
                }
                Way::LostGoing => {
                    tokio::time::sleep(call.timeout).await;
                    timed_out
                }
                Way::Good | Way::Broken | Way::Silent | Way::Queued => {
                    let (reply, answer) = oneshot::channel();
                    tokio::spawn(Arc::clone(&services).send(call.clone(), way, reply));
                    tokio::select! {
                        biased;
                        answer = answer => answer.unwrap_or(timed_out),
                        () = tokio::time::sleep(call.timeout) => timed_out,
                    }
                }
            };
            services.arrived(&call, &outcome);
            outcome
        })
    }
}

impl Models for Outside {
    fn complete<'a>(&'a self, request: ModelRequest, heard: Heard<'a>) -> Boxed<'a, Result<ModelAnswer, ModelError>> {
        let services = Arc::clone(&self.0);
        Box::pin(async move {
            let left = services.now();
            let pause = services.millis(1, 400);
            tokio::time::sleep(pause).await;
            let struck = services.rates.strikes.strike(Site::Question);
            let drawn = services.rates.is_bad() && services.random().chance(services.rates.network);
            let held = struck == Some(Blow::HeldBack) || (drawn && pause.as_millis().is_multiple_of(2));
            let asked = Asked { answered: services.now(), left };
            if held {
                // Nothing has left: what the provider may be asked is used up.
                let error = Failure::new(MODEL_HELD_BACK, "the provider's rate is used up");
                let retry_after = pause.as_millis().is_multiple_of(4).then(|| Span::from_std(pause * 20));
                return Err(ModelError { retry_after, ..ModelError::new(error, true) });
            }
            let mut state = services.state();
            let of_loop = !request.tools.is_empty();
            let planned = planners::asked_about(&request.prompt);
            let question = match (of_loop, &planned) {
                (true, _) => loops::question(&request.prompt, request.turns.len()),
                (false, Some(_)) => planners::question(&request.prompt, request.turns.len()),
                (false, None) => request.prompt.clone(),
            };
            state.questions.push((asked, question));
            if drawn || struck == Some(Blow::Busy) {
                let error = Failure::new("model_busy", "the model is busy");
                return Err(ModelError::new(error, true));
            }
            let (text, calls) = match rounds::asked_about(&request.prompt) {
                _ if of_loop => loops::say(&request),
                _ if planned.is_some() => {
                    let program = planned.and_then(|of| state.programs.get(&of));
                    (program.map(|program| planners::say(program, &request)).unwrap_or_default(), Vec::new())
                }
                Some(output) => (rounds::verdict_of(output), Vec::new()),
                None => (output_of("model", &request.prompt), Vec::new()),
            };
            let usage = Usage { completion_tokens: 5, prompt_tokens: 9, ..Usage::default() };
            heard(&text);
            let finish = if calls.is_empty() { FinishReason::End } else { FinishReason::Tool };
            Ok(ModelAnswer { calls, finish, model: request.model, text, usage })
        })
    }

    fn knows(&self, _model: &str) -> Result<(), String> {
        Ok(())
    }
}
