//! The waits that a job has not reached, and what a wait takes: for signals that come before them.

use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{AgentNode, CompiledPlan, HumanTool, Node, NodeKind, Step, WaitType, Work};
use aetheris_core::schedule;
use aetheris_core::signal::Upcoming;
use aetheris_core::state::{JobState, StepState};
use aetheris_core::step::StepStatus;
use aetheris_expr::{Context, Round, Scope};

use crate::aside::rendered;
use crate::load::Loaded;
use crate::names;
use crate::run::{asking_step, review};

/// What a wait takes.
#[derive(Debug, Clone, Copy)]
pub struct Takes<'p> {
    /// What the payload must fit.
    pub schema: Option<&'p Json>,
    /// What ends it.
    pub wait_type: WaitType,
}

impl<'p> Takes<'p> {
    fn of(plan: &'p CompiledPlan, work: &'p Work) -> Option<Self> {
        match &work.kind {
            NodeKind::Wait(wait) => Some(Self { schema: wait.schema.as_ref(), wait_type: wait.wait_type }),
            NodeKind::Tool { .. } => asked_in(plan, work).map(Self::from),
            NodeKind::Review => Some(Self { schema: Some(review::schema()), wait_type: WaitType::Human }),
            NodeKind::Agent(_)
            | NodeKind::Condition
            | NodeKind::Job(_)
            | NodeKind::Critic(_)
            | NodeKind::Llm(_)
            | NodeKind::Map(_)
            | NodeKind::Plan(_)
            | NodeKind::Rules(_)
            | NodeKind::Sleep(_)
            | NodeKind::Transform(_) => None,
        }
    }

    /// What the wait of a step takes. Which tool a call of a loop asks with is known from the job's state; without, only where
    /// the loop has no other.
    #[must_use]
    pub fn at(plan: &'p CompiledPlan, state: Option<&JobState>, path: &StepPath) -> Option<Self> {
        match state {
            Some(state) => Self::of(plan, schedule::step_at(state, plan, path)?.work),
            None if path.is_outside_loop() => Self::of(plan, plan.step_of(path, None)?.work),
            None => {
                let agent = plan.step_of(&path.of_loop(), None)?.work.agent()?;
                let mut people = people(plan, agent);
                people.next().filter(|_| people.next().is_none()).map(Self::from)
            }
        }
    }
}

impl<'p> From<&'p HumanTool> for Takes<'p> {
    fn from(human: &'p HumanTool) -> Self {
        Self { schema: human.schema.as_ref(), wait_type: WaitType::Human }
    }
}

/// The question to a person, if work is one.
fn asked_in<'p>(plan: &'p CompiledPlan, work: &Work) -> Option<&'p HumanTool> {
    plan.tool_of(work)?.1.kind.human()
}

/// The questions to people that the model of a loop may ask.
fn people<'p>(plan: &'p CompiledPlan, agent: &'p AgentNode) -> impl Iterator<Item = &'p HumanTool> {
    agent.tools.iter().filter_map(|tool| plan.tool(tool)?.kind.human())
}

/// The waits that a job has not reached.
#[derive(Default)]
pub(super) struct Ahead<'p> {
    /// What each takes, as far as that is known.
    takes: Vec<Option<Takes<'p>>>,
    /// Each, in the same order.
    pub(super) waits: Vec<Upcoming>,
}

impl<'p> Ahead<'p> {
    /// What the wait takes that a key names for certain.
    pub(super) fn named(&self, key: &str) -> Option<Takes<'p>> {
        let place = self.waits.iter().position(|wait| wait.key.as_deref() == Some(key))?;
        self.takes.get(place).copied().flatten()
    }

    fn push(&mut self, key: Option<String>, wait_type: WaitType, takes: Option<Takes<'p>>) {
        self.takes.push(takes);
        self.waits.push(Upcoming { key, wait_type });
    }
}

/// The waits that the job has not reached, with their keys where these can be computed already. All keys have
/// the work of one value together: one that is beyond it is not known yet, so that a signal for it is kept. Of the questions of
/// tools, of which there may be many thousands, only the one that `named` names is looked for.
pub(super) fn upcoming<'p>(loaded: &Loaded, plan: Option<&'p CompiledPlan>, named: &str) -> Option<Ahead<'p>> {
    let plan = plan?;
    let early = !aetheris_fault::planted!("early-key-counts");
    let names = Context { early, ..names::of(&loaded.state, &loaded.effects) };
    let first = Scope { round: Some(Round { feedback: "", number: 0 }), ..Scope::from(&names) };
    let mut ahead = rendered(first, |texts| {
        let mut ahead = Ahead::default();
        for node in plan.ordered() {
            let NodeKind::Wait(wait) = &node.work.kind else { continue };
            let Some(template) = &wait.correlation_key else { continue };
            let takes = Takes::of(plan, &node.work);
            if is_ahead(loaded.state.step_of(&node.id)) {
                // One that has started sees as open what has ended since.
                let seen = loaded.state.step_of(&node.id).is_none_or(|step| step.open.is_empty());
                let key = seen.then(|| texts.render(template).ok()).flatten();
                ahead.push(key, wait.wait_type, takes);
            }
            // The key of a further round is not known before it.
            if may_be_refined(&loaded.state, node) {
                ahead.push(None, wait.wait_type, takes);
            }
        }
        ahead
    });
    if let Some(takes) = asked_by_tool(&loaded.state, plan, named) {
        ahead.push(Some(named.to_owned()), WaitType::Human, takes);
    }
    Some(ahead)
}

/// Whether a step has not begun to wait. One that has started and not blocked yet, as after a drain, has not either.
fn is_ahead(step: Option<&StepState>) -> bool {
    let Some(step) = step else { return true };
    match step.status {
        StepStatus::Pending => true,
        StepStatus::Running => step.wait_end.is_none() && !aetheris_fault::planted!("begun-wait-refuses"),
        StepStatus::Retrying
        | StepStatus::Waiting
        | StepStatus::InDoubt
        | StepStatus::Validating
        | StepStatus::Refining
        | StepStatus::Completed
        | StepStatus::Failed
        | StepStatus::Skipped
        | StepStatus::Rejected => false,
    }
}

/// Whether a node has not ended, and has a round left that may follow.
fn may_be_refined(state: &JobState, node: &Node) -> bool {
    let path = StepPath::from(&node.id);
    let left = Step::from(node).is_judged() && state.newest_round(&path).round() < node.work.max_refines();
    left && !state.step_status(&path).is_terminal()
}

/// Whether a key names a question that a tool may still ask, and what is known of its answer.
fn asked_by_tool<'p>(state: &JobState, plan: &'p CompiledPlan, key: &str) -> Option<Option<Takes<'p>>> {
    let path = asking_step(state.id, key)?;
    let node = plan.node(path.node()).filter(|_| !path.is_critic())?;
    let of_loop = path.of_loop();
    let open = |path: &StepPath| !state.step_status(path).is_terminal();
    let items = state.items_of(&path).filter(|_| path.item().is_some());
    let is_item = items.zip(path.item()).is_none_or(|(items, item)| item < items.count && items.stopped_by.is_none());
    if !open(&node.id.clone().into()) || !open(&of_loop.base()) || !open(&of_loop) || !is_item {
        return None;
    }
    let whole = plan.step_of(&of_loop, None).filter(|step| of_loop.round() == 0 || step.is_judged())?;
    if path.is_outside_loop() {
        let takes = Takes::from(asked_in(plan, whole.work)?);
        return is_ahead(state.steps.get(&path)).then_some(Some(takes));
    }
    let (turn, agent) = (path.turn().filter(|_| path.call().is_some())?, whole.work.agent()?);
    people(plan, agent).next()?;
    let turns = state.turns_of(&of_loop);
    if turns.is_some_and(|turns| turns.failed_by.is_some() || turns.said) {
        return None;
    }
    match turns.is_some_and(|turns| turn < turns.ended) {
        true => {
            let takes = Takes::of(
                plan,
                schedule::step_at(state, plan, &path).filter(|_| state.asked_of(&path).is_some())?.work,
            )?;
            is_ahead(state.steps.get(&path)).then_some(Some(takes))
        }
        // What the model will ask for is not known.
        false => (turn < agent.max_turns).then_some(None),
    }
}
