//! What a search covers: programs, actors and how often each kind of trouble may strike.

use std::collections::BTreeMap;
use std::sync::Arc;

use aetheris_core::id::ToolName;
use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{
    Budget, CompiledPlan, DoubtPolicy, EffectClass, Node, NodeKind, OnDeadline, PLAN_SCHEMA_VERSION, Plan, Reconcile,
    Tool, ToolKind, WaitNode, WaitType,
};
use aetheris_core::retry::{Jitter, RetryPolicy};
use aetheris_core::time::Span;
use aetheris_expr::{Context, Ended};

use crate::bugs::Mutation;
use crate::signal::Word;

/// The most steps of one job.
pub const STEPS_MAX: usize = 3;

/// One step of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An `at_most_once` tool, and what is done when its outcome is unknown.
    Once(&'static [Doubts]),
    /// An idempotent tool; its refusals lead to a further try.
    Idempotent,
    /// A wait for a signal, with a deadline or without.
    Wait {
        /// Whether time ends it too.
        deadline: bool,
        /// Whether its key is not known before the step ahead of it has completed.
        late: bool,
    },
}

/// An entry of a tool's list of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubts {
    /// Wait for a late answer.
    Wait,
    /// Ask a pure tool.
    Reconcile,
    /// Ask a person.
    Human,
}

const ONCE: Step = Step::Once(&[Doubts::Human]);
const ASKED: Step = Step::Once(&[Doubts::Wait, Doubts::Reconcile]);
const IDEMPOTENT: Step = Step::Idempotent;
const WAIT: Step = Step::Wait { deadline: true, late: false };
const FOREVER: Step = Step::Wait { deadline: false, late: false };
const LATE: Step = Step::Wait { deadline: true, late: true };

/// A job's plan.
#[derive(Debug, Clone)]
pub struct Program {
    /// What templates may name: a node's output is the place after it, so that a late key is rendered as [`wait_key`].
    pub names: Context,
    /// The compiled plan, as production executes it.
    pub plan: CompiledPlan,
    /// Its steps.
    pub steps: Vec<Step>,
    /// Paths of its steps, by place.
    pub paths: Vec<StepPath>,
    /// The plan without its budget, for a mistake that does not ask it.
    pub unbounded: CompiledPlan,
}

/// The bounds of a search.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many calls a job may make.
    pub budget: Option<u32>,
    /// Whether someone may cancel each job.
    pub cancels: bool,
    /// Processes that may die.
    pub crashes: u8,
    /// Whether each job has a deadline, which may come at any moment.
    pub deadlines: bool,
    /// Jobs at once; each begins with any of the programs.
    pub jobs: u8,
    /// Whether jobs may be sent for later: each is, or is not. Their moment comes at any time.
    pub later: bool,
    /// Calls or answers that are lost on the way.
    pub lost: u8,
    /// The planted mistake, if any.
    pub mutation: Option<Mutation>,
    /// How often someone pauses each job; a paused one is resumed at some moment.
    pub pauses: u8,
    /// What jobs may do.
    pub programs: Vec<Program>,
    /// Whether a dead holder may be proved dead, beside its lease expiring.
    pub proof: bool,
    /// Whether the jobs belong to one session, in their order.
    pub session: bool,
    /// Signals that are sent to each job.
    pub signals: u8,
    /// How often a run is so slow that its lease runs short.
    pub slow: u8,
    /// Whether an operation from outside may look at one moment and write at a later one.
    pub slow_outside: bool,
    /// Commits of runs whose outcome is unknown.
    pub unknown: u8,
    /// What signals may bring.
    pub words: &'static [Word],
    /// Workers.
    pub workers: u8,
}

impl Config {
    /// One job of the given programs, two workers, no trouble yet.
    #[must_use]
    pub fn calm(programs: &[&[Step]]) -> Self {
        Self {
            budget: None,
            cancels: false,
            crashes: 0,
            deadlines: false,
            jobs: 1,
            later: false,
            lost: 1,
            mutation: None,
            pauses: 0,
            programs: programs.iter().filter_map(|steps| program(steps, None)).collect(),
            proof: false,
            session: false,
            signals: 0,
            slow: 0,
            slow_outside: false,
            unknown: 0,
            words: &[Word::First],
            workers: 2,
        }
    }

    /// What CI exhausts, with names: 2 workers, 1 job, 2 steps, 2 crashes, 1 signal, 1 unknown commit; and each
    /// further kind of trouble with as much of the rest as can be exhausted. The number pins how many states it has: a
    /// guard that another one covers breaks no law when it is lost, and only the number shows it.
    #[must_use]
    pub fn gate() -> Vec<(&'static str, usize, Self)> {
        let base = Self { crashes: 2, proof: true, signals: 1, unknown: 1, ..Self::calm(&[]) };
        let slow = Self { crashes: 1, slow: 1, unknown: 0, ..base.clone() };
        let mut configs = vec![
            ("crashes, at_most_once and wait", 137_046, base.clone().with(&[&[ONCE, WAIT]])),
            ("crashes, wait and at_most_once", 149_921, base.clone().with(&[&[WAIT, ONCE]])),
            ("crashes, idempotent and wait", 206_410, base.with(&[&[IDEMPOTENT, FOREVER]])),
            ("slow, at_most_once", 240_858, slow.clone().with(&[&[ONCE], &[ASKED]])),
            ("slow, idempotent", 102_941, slow.clone().with(&[&[IDEMPOTENT]])),
            ("slow, wait", 2_926, Self { signals: 2, unknown: 1, ..slow.clone() }.with(&[&[WAIT]])),
            (
                "races from outside",
                98_967,
                Self { slow: 0, slow_outside: true, cancels: true, ..slow }.with(&[&[ONCE, WAIT]]),
            ),
            ("everything, one step", 31_239, Self::small()),
            ("pauses, one step", 53_962, Self::paused()),
            ("deadlines, one step", 222_789, Self::hurried()),
            (
                "budgets, one step",
                148_553,
                Self { slow: 1, ..Self::frugal(1) }.with(&[&[ONCE], &[ASKED], &[IDEMPOTENT]]),
            ),
            ("budgets, two steps", 45_736, Self::frugal(2).with(&[&[ASKED, IDEMPOTENT]])),
        ];
        configs.extend(Self::of_signals());
        configs.extend(Self::of_moments());
        configs.extend(Self::of_sessions());
        configs
    }

    fn of_signals() -> [(&'static str, usize, Self); 3] {
        let crash = |signals| Self { crashes: 1, ..Self::unfit(signals) };
        [
            ("signals that fit or not", 59_562, Self { slow_outside: true, ..crash(3) }.with(&[&[WAIT, LATE]])),
            ("signals, pauses", 16_139, Self { cancels: true, pauses: 1, ..crash(2) }.with(&[&[WAIT, LATE]])),
            ("signals, idempotent and wait", 57_616, Self { lost: 0, ..crash(3) }.with(&[&[IDEMPOTENT, LATE]])),
        ]
    }

    fn of_moments() -> [(&'static str, usize, Self); 2] {
        let calm = Self { lost: 0, ..Self::delayed() };
        let crash = Self { crashes: 1, deadlines: true, ..calm.clone() };
        let outside = Self { signals: 1, slow_outside: true, ..calm };
        [
            ("for later, deadlines", 25_962, crash.with(&[&[ONCE], &[WAIT]])),
            ("for later, races from outside", 9_166, outside.with(&[&[ONCE], &[WAIT]])),
        ]
    }

    fn of_sessions() -> [(&'static str, usize, Self); 5] {
        let calm = Self { lost: 0, ..Self::session() };
        let crash = Self { crashes: 1, ..calm.clone() };
        let slow = Self { cancels: false, slow: 1, ..calm.clone() };
        [
            ("session, at_most_once", 60_912, crash.clone().with(&[&[ONCE]])),
            ("session, pauses", 56_866, Self { pauses: 1, signals: 1, ..crash }.with(&[&[WAIT]])),
            ("session, failures", 8_584, calm.clone().with(&[&[IDEMPOTENT]])),
            ("session, for later", 20_808, Self { later: true, ..calm }.with(&[&[ONCE], &[WAIT]])),
            ("session, slow", 31_913, slow.with(&[&[ONCE]])),
        ]
    }

    /// More than can be exhausted in a gate: 3 workers, 2 jobs, 3 steps, 3 crashes.
    #[must_use]
    pub fn campaign() -> Self {
        Self {
            cancels: true,
            crashes: 3,
            jobs: 2,
            pauses: 1,
            proof: true,
            signals: 1,
            slow: 2,
            slow_outside: true,
            unknown: 2,
            workers: 3,
            ..Self::calm(&[&[IDEMPOTENT, WAIT, ONCE], &[ASKED, WAIT, IDEMPOTENT]])
        }
    }

    /// One step per job and a little of every trouble: a few seconds.
    #[must_use]
    pub fn small() -> Self {
        Self {
            cancels: true,
            signals: 2,
            slow_outside: true,
            unknown: 1,
            ..Self::calm(&[&[Step::Once(&[Doubts::Wait, Doubts::Reconcile, Doubts::Human])], &[IDEMPOTENT], &[WAIT]])
        }
    }

    /// One step per job, which is paused at any moment, cancelled, signalled, and loses its worker.
    #[must_use]
    pub fn paused() -> Self {
        let trouble = Self { cancels: true, crashes: 1, pauses: 1, signals: 1, ..Self::calm(&[]) };
        trouble.with(&[&[ONCE], &[IDEMPOTENT], &[WAIT]])
    }

    /// One step per job, whose deadline comes at any moment.
    #[must_use]
    pub fn hurried() -> Self {
        let trouble =
            Self { crashes: 1, deadlines: true, signals: 1, slow_outside: true, unknown: 1, ..Self::calm(&[]) };
        trouble.with(&[&[ONCE], &[IDEMPOTENT], &[WAIT]])
    }

    /// So many signals, some of which fit no wait; with the late wait of a program, several of one key are kept.
    #[must_use]
    pub fn unfit(signals: u8) -> Self {
        Self { signals, words: &[Word::First, Word::Second, Word::Misfit], ..Self::calm(&[]) }
    }

    /// A job that may be sent for later, and is cancelled and paused at any moment.
    #[must_use]
    pub fn delayed() -> Self {
        Self { cancels: true, later: true, pauses: 1, ..Self::calm(&[]) }
    }

    /// Two jobs of one session, each of which is cancelled at any moment.
    #[must_use]
    pub fn session() -> Self {
        Self { cancels: true, jobs: 2, session: true, ..Self::calm(&[]) }
    }

    /// Jobs that may make so many calls.
    #[must_use]
    pub fn frugal(most: u32) -> Self {
        Self { budget: Some(most), crashes: 1, unknown: 1, ..Self::calm(&[]) }
    }

    /// The same with other programs.
    #[must_use]
    pub fn with(self, programs: &[&[Step]]) -> Self {
        let budget = self.budget;
        Self { programs: programs.iter().filter_map(|steps| program(steps, budget)).collect(), ..self }
    }

    /// Whether this mistake is planted.
    #[must_use]
    pub fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}

impl Step {
    /// What repeating its call would do; `None` for waits.
    #[must_use]
    pub const fn class(self) -> Option<EffectClass> {
        match self {
            Self::Once(_) => Some(EffectClass::AtMostOnce),
            Self::Idempotent => Some(EffectClass::Idempotent),
            Self::Wait { .. } => None,
        }
    }
}

/// The correlation key of the wait at a place.
#[must_use]
pub fn wait_key(node: u8) -> String {
    format!("k{node}")
}

/// Its template where it has the output of the step before in it.
fn late_key(node: u8) -> String {
    format!("k{{{{ nodes.n{}.output }}}}", node.saturating_sub(1))
}

fn program(steps: &[Step], max_tool_calls: Option<u32>) -> Option<Program> {
    let paths: Vec<StepPath> = (0..steps.len()).map(|place| StepPath::from(format!("n{place}").as_str())).collect();
    let retry = RetryPolicy { jitter: Jitter::None, max_attempts: 2, ..RetryPolicy::default() };
    let mut tools = BTreeMap::new();
    let mut list = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        let tool = ToolName::from(format!("t{place}").as_str());
        let kind = match step {
            Step::Wait { deadline, late } => NodeKind::Wait(WaitNode {
                correlation_key: u8::try_from(place).ok().map(if *late { late_key } else { wait_key }),
                deadline: deadline.then(|| Span::from_secs(60)),
                on_deadline: OnDeadline::ContinueWith(Json::null()),
                park: false,
                reason: None,
                schema: Some(Word::schema()),
                wait_type: WaitType::Signal,
            }),
            Step::Once(_) | Step::Idempotent => NodeKind::Tool { input: Json::null(), tool: tool.clone() },
        };
        if let Some(effect) = step.class() {
            tools.insert(tool, made(effect, *step));
        }
        let needs = place.checked_sub(1).map(|before| paths[before].node().clone()).into_iter().collect();
        // An idempotent tool's back-off is a long one: the job is given back.
        let long = RetryPolicy { backoff: Span::from_secs(10), ..retry.clone() };
        let mut node = Node { needs, ..Node::new(paths[place].node().clone(), kind) };
        node.work.retry = matches!(step, Step::Idempotent).then_some(long);
        list.push(node);
    }
    tools.insert(ToolName::from("ask"), made(EffectClass::Pure, Step::Idempotent));
    let plan = Plan {
        answer: None,
        budget: Budget { max_tool_calls, ..Budget::default() },
        nodes: list,
        retry,
        schema_version: PLAN_SCHEMA_VERSION,
        max_parallel_steps: None,
        step_timeout: None,
        tools,
    };
    let unbounded = Arc::new(Plan { budget: Budget::default(), ..plan.clone() }).compile().ok()?;
    let plan = Arc::new(plan).compile().ok()?;
    let output =
        |(place, path): (usize, &StepPath)| (path.node().clone(), Ended::Completed(Json::new((place + 1).into())));
    let names = Context { nodes: paths.iter().enumerate().map(output).collect(), ..Context::default() };
    Some(Program { names, plan, steps: steps.to_vec(), paths, unbounded })
}

/// Asks a tool whose answer counts as soon as the call can no longer arrive.
#[must_use]
pub fn asks_at_once() -> Reconcile {
    Reconcile { settle: Some(Span::ZERO), ..Reconcile::by("ask") }
}

fn made(effect: EffectClass, step: Step) -> Tool {
    let policies = match step {
        Step::Once(policies) => policies,
        Step::Idempotent | Step::Wait { .. } => &[],
    };
    let on_in_doubt = policies.iter().map(|policy| match policy {
        Doubts::Wait => DoubtPolicy::Wait(Span::from_secs(60)),
        Doubts::Reconcile => DoubtPolicy::Reconcile(asks_at_once()),
        Doubts::Human => DoubtPolicy::Human,
    });
    Tool { on_in_doubt: on_in_doubt.collect(), ..Tool::new(effect, ToolKind::Function("modelled".to_owned())) }
}
