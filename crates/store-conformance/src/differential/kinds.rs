//! What jobs write whose plans have more than calls and waits: children and what is promised for them, plans that a run has
//! made, questions to people, turns and calls of loops, further rounds, and drawn values.

use aetheris_core::event::{
    ChildStarted, Drawn, Failure, JobWaiting, Judge, ModelRecord, NodeFinished, NodeRefining, NodeStarted,
    PlanGenerated, StepResult, ToolAsked, Turn, Usage, ValueRecorded, Verdict,
};
use aetheris_core::hash::Hash;
use aetheris_core::id::{AgentName, JobId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::lease::Guard;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, OnParentEnd, WaitType};
use aetheris_core::projection::Promise;
use aetheris_core::state::JobState;
use aetheris_core::step::StepStatus;
use aetheris_store::unit::{ChildOf, ExpectedSignals, Purpose, UnitOfWork};
use aetheris_store::{PlanDocument, PromiseRow};

use super::actions::{LIVE_MAX, Written};
use super::steps::nodes;
use super::world::World;
use crate::fixture::{Message, create_unit, plan};

/// The node that is a loop.
const LOOP: &str = "n5";
/// The node whose output is judged.
const JUDGED: &str = "n6";
/// The turns of the loop.
pub(super) const TURNS: u32 = 3;
/// The rounds of the node that is judged.
const ROUNDS: u32 = 3;

/// What a run writes of one of these kinds.
pub(super) fn step_of_kind(world: &mut World<'_>, state: JobState) -> Option<Written> {
    if state.end_requested.is_some() {
        return None;
    }
    if state.plan.is_none() {
        return state.planning.is_some().then(|| made(world, state));
    }
    match world.random.below(6) {
        0 => ask(world, state),
        1 => child(world, state),
        2 => round(world, state),
        3 => value(world, state),
        _ => turn(world, state),
    }
}

/// The first call of a turn of the loop.
pub(super) fn call_of(turn: u32) -> String {
    format!("{LOOP}/{turn}.0")
}

/// Whether a job has no plan yet, and none that it makes itself.
pub(super) fn is_unplanned(state: &JobState) -> bool {
    state.plan.is_none() && state.planning.is_none()
}

/// A job's plan is recorded, by its own run that has made it or from outside: one that is there, or a new one.
pub(super) fn made(world: &mut World<'_>, state: JobState) -> Written {
    let made = plan(&format!("made {}", world.random.below(5)));
    let document = PlanDocument { hash: made.hash(), plan: made.clone() };
    let generated = PlanGenerated {
        plan_hash: made.hash(),
        plan_version: 1,
        planner: "llm".to_owned(),
        planner_version: "1".to_owned(),
    };
    let own = state.planning.is_some();
    let guard = if own { Guard::Run(state.fence) } else { Guard::Outside };
    let draft = world.draft(state, Purpose::Record, guard);
    let planned = |draft: crate::Draft| {
        let path = StepPath::planning();
        draft.event(NodeStarted::new(path.clone(), 1)).event(NodeFinished::new(path, StepResult::Pure))
    };
    let draft = if own { planned(draft) } else { draft }.event(generated);
    ("plan", draft.with(|unit| unit.plan = Some(document)).done())
}

/// Several questions at once.
fn ask(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let mut fresh = nodes(&state, |step, _| step == StepStatus::Pending);
    fresh.retain(|node| !state.waits.contains_key(&format!("{}/{node}", state.id)));
    fresh.truncate(1 + world.random.below(3));
    let job = state.id;
    let guard = Guard::Run(state.fence);
    let key = |node: &String| format!("{job}/{node}");
    let waiting = |node: &String| JobWaiting {
        correlation_key: Some(key(node)),
        doubt: false,
        node: StepPath::from(node.as_str()),
        park: true,
        reason: Some("a question".to_owned()),
        wait_type: WaitType::Human,
    };
    let draft = fresh.iter().fold(world.draft(state, Purpose::Block, guard), |draft, node| draft.start(node));
    let draft = fresh.iter().fold(draft, |draft, node| draft.event(waiting(node)));
    let expected = fresh.iter().map(|node| ExpectedSignals { count: 0, key: key(node) }).collect();
    let draft = draft.with(|unit| unit.expected_signals = expected);
    (!fresh.is_empty()).then(|| ("ask", draft.done()))
}

/// A step asks for a child, which is promised with it.
fn child(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let fresh = nodes(&state, |step, _| step == StepStatus::Pending);
    let node = world.random.pick(&fresh)?.clone();
    let started = ChildStarted {
        agent: AgentName::new(format!("agent {}", world.random.below(3))),
        agent_version: "1".to_owned(),
        child: JobId::from_u128(world.ids.next()),
        deadline_us: None,
        depth: state.child_depth(),
        message: Json::new(serde_json::json!({ "n": world.random.below(9) })),
        node: StepPath::from(node.as_str()),
        on_parent_end: [OnParentEnd::Cancel, OnParentEnd::Leave][world.random.below(2)],
        parent_deadline: None,
        plan_hash: Hash::of(b"its plan"),
        planner: "static".to_owned(),
        session: None,
        sessions: Vec::new(),
        waits: world.random.one_in(2),
    };
    let guard = Guard::Run(state.fence);
    Some(("child", world.draft(state, Purpose::Record, guard).start(&node).event(started).done()))
}

/// What is promised is kept: a child is created, or something else is done for a job, or nothing for one that is gone.
pub(super) async fn keep(world: &mut World<'_>) -> Option<Written> {
    let rows = world.a.outbox(None, 50).await.unwrap();
    let kept = world.kept.last().cloned().filter(|_| world.random.one_in(8));
    let PromiseRow { author, num, promise, .. } = kept.or_else(|| world.random.pick(&rows).cloned())?;
    world.kept = vec![PromiseRow { author, num, promise: promise.clone() }];
    let kept_by = |world: &World<'_>, job| {
        let mut unit = UnitOfWork::new(world.ids.event(), job, Purpose::Deliver, Guard::Outside);
        unit.delivers = vec![num];
        Some(("keep", unit))
    };
    let (child, node) = match promise {
        // It is not needed any more.
        Promise::CreateChild { .. } if world.live.len() >= LIVE_MAX => return kept_by(world, author),
        Promise::CreateChild { child, node, .. } => (child, node),
        other => return kept_by(world, other.target(author)),
    };
    let mut unit = create_unit(&world.ids, &of_child(world, child));
    if let Some(new) = &mut unit.create {
        let on_parent_end = if world.random.one_in(4) { OnParentEnd::Leave } else { OnParentEnd::Cancel };
        // Now and then of a job that has ended.
        let parent = world.random.pick(&world.jobs).copied().filter(|_| world.random.one_in(4)).unwrap_or(author);
        new.parent = Some(ChildOf { job: parent, node, on_parent_end });
    }
    unit.delivers = vec![num];
    Some(("create_child", unit))
}

/// The message of a child.
fn of_child(world: &World<'_>, child: JobId) -> Message {
    Message {
        agent: AgentName::from("agent 0"),
        client_key: None,
        deadline: None,
        job: child,
        labels: std::collections::BTreeMap::new(),
        message: Json::null(),
        plan: world.plans.first().map(|plan| plan.hash()),
        planning: None,
        priority: 0,
        run_at: None,
        session: None,
        tenant: aetheris_core::id::TenantId::default(),
    }
}

/// An output is rejected, and the work is done again.
fn round(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let base = StepPath::from(JUDGED);
    let step = state.steps.get(&base);
    let so_far = step.map_or(0, |step| step.round);
    let open = matches!(state.step_status(&base), StepStatus::Pending | StepStatus::Refining);
    if !open {
        return None;
    }
    let (guard, path) = (Guard::Run(state.fence), base.in_round(so_far));
    let gave = |verdict| NodeFinished {
        output: Some(Json::new(serde_json::json!({ "round": so_far }))),
        verdict,
        ..NodeFinished::new(path.clone(), StepResult::Pure)
    };
    let draft = world.draft(state, Purpose::Record, guard).event(NodeStarted::new(path.clone(), 1));
    if so_far == ROUNDS {
        return Some(("round", draft.event(gave(None)).done()));
    }
    let again = NodeRefining { by: Judge::Schema, feedback: "not so".to_owned(), node: base, round: so_far + 1 };
    Some(("round", draft.event(gave(Some(Verdict::Reject))).event(again).done()))
}

/// A step that draws what nobody can compute again.
fn value(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let fresh = nodes(&state, |step, _| step == StepStatus::Pending);
    let node = world.random.pick(&fresh)?.clone();
    let values = vec![Drawn::Now, Drawn::Random(0.25), Drawn::Uuid("9f0c1a52-7f5d-4b7e-8a55-0d7f0f3c2b11".to_owned())];
    let drawn = ValueRecorded { node: StepPath::from(node.as_str()), values };
    let guard = Guard::Run(state.fence);
    let draft = world.draft(state, Purpose::Record, guard).start(&node).event(drawn);
    Some(("value", draft.finish(&node, Some(Json::null()), StepResult::Pure).done()))
}

/// A loop begins, its model asks for a call, the call is permitted or told to have failed, and the next turn begins.
fn turn(world: &mut World<'_>, state: JobState) -> Option<Written> {
    let base = StepPath::from(LOOP);
    let begins = state.step_status(&base) == StepStatus::Pending;
    if !begins && state.step_status(&base) != StepStatus::Running {
        return None;
    }
    let status = |path: &str| state.step_status(&StepPath::from(path));
    let next = (0..TURNS).find(|turn| status(&format!("{LOOP}/{turn}")) == StepStatus::Pending);
    let before = next.unwrap_or(TURNS).checked_sub(1).map(call_of);
    let guard = Guard::Run(state.fence);
    match before {
        Some(call) if status(&call) == StepStatus::Pending => {
            let told = world.random.one_in(3);
            let draft = world.draft(state, if told { Purpose::Record } else { Purpose::Permit }, guard);
            if !told {
                return Some(("call_of_turn", draft.call(&call, EffectClass::AtMostOnce).done()));
            }
            let failed = NodeFinished {
                absorbed: true,
                error: Some(Failure::new("unknown_tool", "there is no such tool")),
                told: true,
                ..NodeFinished::new(StepPath::from(call.as_str()), StepResult::PermanentFailure)
            };
            Some(("call_of_turn", draft.start(&call).event(failed).done()))
        }
        Some(call) if !status(&call).is_terminal() => None,
        _ => {
            let next = next?;
            let path = StepPath::from(format!("{LOOP}/{next}").as_str());
            let draft = world.draft(state, Purpose::Record, guard);
            let draft =
                if begins { draft.event(NodeStarted { turns: true, ..NodeStarted::new(base, 1) }) } else { draft };
            let said = NodeFinished {
                model: Some(Box::new(record())),
                output: Some(Json::new(serde_json::json!("I call it"))),
                turn: Some(Box::new(Turn { calls: vec![asked()], reply: None })),
                ..NodeFinished::new(path.clone(), StepResult::Pure)
            };
            Some(("turn", draft.event(NodeStarted::new(path, 1)).event(said).done()))
        }
    }
}

fn asked() -> ToolAsked {
    let tool = Some(ToolName::from("tool"));
    ToolAsked { arguments: "{}".to_owned(), id: "c".to_owned(), name: "tool".to_owned(), provider: None, tool }
}

fn record() -> ModelRecord {
    let usage = Usage { completion_tokens: 3, prompt_tokens: 7, ..Usage::default() };
    ModelRecord { finish: None, parameters: None, model: "m".to_owned(), prompt_hash: Hash::of(b"p"), usage }
}
