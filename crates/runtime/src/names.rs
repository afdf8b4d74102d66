//! What templates of a plan may name, from a job's state.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::event::{Answer, WaitEnd};
use aetheris_core::id::{IdempotencyKey, NodeId};
use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{Node, NodeKind, Step, Work};
use aetheris_core::state::{Child, ItemsState, JobState, Output, StepState};
use aetheris_core::step::StepStatus;
use aetheris_expr::{Context, Ended, Item, JobNames, Place, Round, Rounds, Scope, Standing};
use aetheris_store::EffectRow;
use serde_json::{Value, json};

/// The names of a job: its message, itself, and how nodes have ended.
#[must_use]
pub fn of(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>) -> Context {
    let mut nodes = BTreeMap::new();
    // Parts of what a node does have no names of their own.
    for (path, step) in state.steps.iter().filter(|(path, _)| path.is_whole()) {
        if let Some(ended) = ended(state, (path, step), effects) {
            nodes.insert(path.node().clone(), ended);
        }
    }
    Context {
        early: false,
        env: None,
        input: None,
        job: Some(JobNames { agent: state.agent.clone(), id: state.id, session: state.session.clone() }),
        message: Some(state.message.clone()),
        nodes,
    }
}

/// The output of one step; `null` where it has none.
#[must_use]
pub fn output(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>, path: &StepPath) -> Json {
    let ended = known(state, effects, path);
    ended.as_ref().and_then(Ended::output).cloned().unwrap_or_else(Json::null)
}

/// The answer of a job, wherever it stands.
#[must_use]
pub fn answer(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>, answer: &Answer) -> Json {
    match answer {
        Answer::Node(node) => output(state, effects, &node.into()),
        Answer::Value(value) => value.clone(),
    }
}

/// How one step has ended, once it has.
pub(crate) fn known(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>, path: &StepPath) -> Option<Ended> {
    state.steps.get(path).and_then(|step| ended(state, (path, step), effects))
}

/// What a step sees: what was open when it started is so for all of its tries.
pub(crate) fn seen_by<'n>(names: &'n Context, open: Option<&'n BTreeSet<NodeId>>, item: Option<Item<'n>>) -> Scope<'n> {
    let all = Scope { item, ..Scope::from(names) };
    match open {
        Some(open) if !aetheris_fault::planted!("late-branch-seen") => Scope { open, ..all },
        Some(_) | None => all,
    }
}

/// The round of a step as its templates see it, if its output is judged.
pub(crate) fn round<'s>(state: &'s JobState, step: &Step<'_>) -> Option<Round<'s>> {
    if !step.node.is_judged() {
        return None;
    }
    let whole = Step { path: step.path.of_loop(), ..step.clone() };
    let feedback = state.steps.get(&whole.path).and_then(|step| step.feedback.as_deref());
    whole.is_judged().then(|| Round { feedback: feedback.unwrap_or_default(), number: step.path.round() })
}

/// The nodes that the templates of a node name, those of its work for items and of its critic among them; but for its condition,
/// which is asked before it starts.
pub(crate) fn named_in(node: &Node, critic: Option<&Node>) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    named_by(&node.work, None, &mut found);
    if let Some(critic) = critic {
        named_by(&critic.work, None, &mut found);
    }
    if let Some(map) = node.work.map() {
        let standing = Standing { item: Some(&map.name), ..Place::Plan.into() };
        named_by(&map.each, standing.item, &mut found);
        let asked = map.each.when.as_ref().map(|when| aetheris_expr::check_condition(when, standing));
        found.extend(asked.and_then(Result::ok).map(|names| names.nodes).unwrap_or_default());
    }
    found
}

fn named_by(work: &Work, item: Option<&str>, found: &mut BTreeSet<NodeId>) {
    let rounds = if work.kind.judges() { Rounds::OfCritic } else { Rounds::Own };
    let standing = Standing { draws: true, item, place: Place::Plan, rounds };
    let mut text = |text: &str| {
        found.extend(aetheris_expr::check_template(text, standing).map(|names| names.nodes).unwrap_or_default());
    };
    let mut values = Vec::new();
    match &work.kind {
        NodeKind::Map(map) => values.push(map.over.value()),
        NodeKind::Transform(value) | NodeKind::Tool { input: value, .. } => values.push(value.value()),
        NodeKind::Agent(agent) => {
            [Some(&agent.prompt), agent.system.as_ref()].into_iter().flatten().for_each(|part| text(part))
        }
        NodeKind::Critic(llm) | NodeKind::Llm(llm) => {
            [Some(&llm.prompt), llm.system.as_ref()].into_iter().flatten().for_each(|part| text(part))
        }
        NodeKind::Job(job) => {
            [Some(&job.agent), job.session.as_ref()].into_iter().flatten().for_each(|part| text(part));
            values.push(job.message.value());
        }
        NodeKind::Wait(wait) => {
            [&wait.correlation_key, &wait.reason].into_iter().flatten().for_each(|part| text(part));
        }
        NodeKind::Plan(planner) => text(&planner.prompt),
        NodeKind::Condition | NodeKind::Review | NodeKind::Rules(_) | NodeKind::Sleep(_) => {}
    }
    while let Some(value) = values.pop() {
        match value {
            Value::String(part) => text(part),
            Value::Array(items) => values.extend(items),
            Value::Object(entries) => values.extend(entries.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// What the items of a map came to, in their order; where it collects failures, with a word for each.
fn of_items(
    state: &JobState,
    node: &NodeId,
    items: &ItemsState,
    effects: &BTreeMap<IdempotencyKey, EffectRow>,
) -> Option<Json> {
    let item = |place: u32| {
        let ended = known(state, effects, &StepPath::of_item(node.clone(), place))?;
        let output = || ended.output().map_or(Value::Null, |output| output.value().clone());
        Some(match &ended {
            Ended::Completed(_) | Ended::Skipped if !items.collect => output(),
            Ended::Completed(_) | Ended::Skipped => json!({ "ok": true, "output": output() }),
            Ended::Failed(error) => {
                json!({ "ok": false, "error": { "code": error.code, "message": error.message } })
            }
        })
    };
    let mut list = (0..items.count).map(item).collect::<Option<Vec<Value>>>()?;
    if aetheris_fault::planted!("items-in-another-order") {
        list.reverse();
    }
    Some(Json::new(Value::Array(list)))
}

fn ended(
    state: &JobState,
    (path, step): (&StepPath, &StepState),
    effects: &BTreeMap<IdempotencyKey, EffectRow>,
) -> Option<Ended> {
    match step.status {
        StepStatus::Skipped => Some(Ended::Skipped),
        StepStatus::Completed => {
            // What its last round gave, which was not rejected.
            let round = (step.round > 0).then(|| path.in_round(step.round));
            let mut newest = round.as_ref().map_or(Some((path, step)), |round| state.steps.get_key_value(round));
            if aetheris_fault::planted!("first-round-is-the-output") {
                newest = None;
            }
            if aetheris_fault::planted!("critics-word-is-the-output")
                && let Some(critic) = state.steps.get_key_value(&path.in_round(step.round).critic())
            {
                return gave(state, effects, critic).map(Ended::Completed);
            }
            gave(state, effects, newest.unwrap_or((path, step))).map(Ended::Completed)
        }
        StepStatus::Failed => step.error.as_deref().cloned().map(Ended::Failed),
        StepStatus::Pending
        | StepStatus::Running
        | StepStatus::Retrying
        | StepStatus::Waiting
        | StepStatus::InDoubt
        | StepStatus::Validating
        | StepStatus::Refining
        | StepStatus::Rejected => None,
    }
}

/// The error code of a step whose every round was rejected.
pub const REJECTED: &str = "rejected";

/// The output that one round has given, whatever was said of it.
#[must_use]
pub fn of_round(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>, path: &StepPath) -> Option<Json> {
    state.steps.get(path).and_then(|step| gave(state, effects, (path, step)))
}

/// What a step has given by itself, whatever has become of it.
pub(crate) fn gave(
    state: &JobState,
    effects: &BTreeMap<IdempotencyKey, EffectRow>,
    (path, step): (&StepPath, &StepState),
) -> Option<Json> {
    match &step.output {
        Some(Output::Inline(value)) => Some(value.clone()),
        Some(Output::Items) => of_items(state, path.node(), step.items.as_deref()?, effects),
        Some(Output::Effect(key)) => effects.get(key).map(|effect| effect.result.clone()),
        None => Some(Json::null()),
    }
}

/// The output of a step that is to end, which its end does not tell: what its items came to, what a signal brought, or what its
/// child answered.
pub(crate) fn untold(state: &JobState, effects: &BTreeMap<IdempotencyKey, EffectRow>, path: &StepPath) -> Json {
    let step = state.steps.get(path);
    let items = step.and_then(|step| step.items.as_deref());
    let list = items.and_then(|items| of_items(state, path.node(), items, effects));
    let payload = || match step.and_then(|step| step.wait_end.as_deref()) {
        Some(WaitEnd::Signal { payload, .. }) => Some(payload.clone()),
        Some(WaitEnd::Dropped | WaitEnd::Time) | None => None,
    };
    let answered = || step.and_then(|step| step.child.as_deref()).and_then(Child::result).cloned();
    list.or_else(payload).or_else(answered).unwrap_or_else(Json::null)
}

#[cfg(test)]
mod tests {
    use aetheris_core::event::Failure;
    use aetheris_core::id::JobId;

    use super::*;

    /// Whoever goes on with a job names what its run before has named.
    #[test]
    fn nodes_are_named_by_how_they_have_ended() {
        let one = Json::new(1.into());
        let error = Failure::new("no", "never");
        let well = |value: &Json| Some(Ended::Completed(value.clone()));
        let key = IdempotencyKey::from_u128(1);
        let effect = EffectRow { at: Default::default(), key, permit: 1, result: Json::new(2.into()) };
        let effects = BTreeMap::from([(key, effect)]);
        for (status, kept, named) in [
            (StepStatus::Completed, Some(Output::Inline(one.clone())), well(&one)),
            (StepStatus::Completed, Some(Output::Effect(key)), well(&Json::new(2.into()))),
            (StepStatus::Completed, Some(Output::Effect(IdempotencyKey::from_u128(9))), None),
            (StepStatus::Completed, None, well(&Json::null())),
            (StepStatus::Skipped, None, Some(Ended::Skipped)),
            (StepStatus::Failed, None, Some(Ended::Failed(error.clone()))),
            (StepStatus::Running, Some(Output::Inline(one.clone())), None),
            (StepStatus::Pending, None, None),
        ] {
            let mut state = JobState::new(JobId::from_u128(1));
            let step = StepState { error: Some(Box::new(error.clone())), output: kept, status, ..StepState::default() };
            state.steps.insert("n".into(), step);
            assert_eq!(of(&state, &effects).nodes.get("n"), named.as_ref(), "{status:?}");
            let value = named.as_ref().and_then(Ended::output).cloned();
            assert_eq!(output(&state, &effects, &"n".into()), value.unwrap_or_else(Json::null), "{status:?}");
        }
    }

    /// Items have no names of their own: the map's is the list of them, in their order.
    #[test]
    fn a_map_is_named_by_the_list_of_its_items() {
        let mut state = JobState::new(JobId::from_u128(1));
        let done = |output| StepState { output, status: StepStatus::Completed, ..StepState::default() };
        let items =
            ItemsState { begun: 11, collect: false, count: 11, lost_by: None, open: BTreeSet::new(), stopped_by: None };
        let map = StepState { items: Some(Box::new(items)), ..done(Some(Output::Items)) };
        state.steps.insert("m".into(), map);
        for item in 0..11 {
            state.steps.insert(StepPath::of_item("m".into(), item), done(Some(Output::Inline(Json::new(item.into())))));
        }
        let named = of(&state, &BTreeMap::new()).nodes;
        let list: Vec<u32> = (0..11).collect();
        assert_eq!(named, BTreeMap::from([("m".into(), Ended::Completed(Json::new(list.into())))]));
        // One whose output is not at hand makes no list.
        state.steps.remove(&"m[3]".into());
        assert_eq!(of(&state, &BTreeMap::new()).nodes, BTreeMap::new());
    }

    /// A branch that has ended since is as open as it was.
    #[test]
    fn what_was_open_when_a_step_started_stays_so_for_it() {
        let mut names = Context::default();
        for node in ["a", "b"] {
            names.nodes.insert(node.into(), Ended::Completed(Json::null()));
        }
        let open = ["a".into()].into();
        let said = |scope| aetheris_expr::render_text("{{ nodes.a.open }} {{ nodes.b.open }}", scope).unwrap();
        assert_eq!(said(seen_by(&names, Some(&open), None)), "true false");
        for all in [None, Some(&BTreeSet::new())] {
            assert_eq!(said(seen_by(&names, all, None)), "false false");
        }
    }

    /// A round's templates name nodes like any other, and what a critic names is seen by its node.
    #[test]
    fn the_templates_of_rounds_and_critics_name_nodes() {
        let own = Json::new(json!("{{ feedback }} {{ nodes.a.output }}"));
        let node = Node::new("n", NodeKind::Transform(own));
        let asks = aetheris_core::plan::LlmNode {
            format: aetheris_core::plan::AnswerFormat::Json,
            max_tokens: None,
            model: "s/m".to_owned(),
            prompt: "{{ output }} {{ round }} {{ nodes.b.output }}".to_owned(),
            schema: None,
            system: None,
            temperature: None,
        };
        let critic = Node::new("c", NodeKind::Critic(asks));
        assert_eq!(named_in(&node, None), ["a".into()].into());
        assert_eq!(named_in(&node, Some(&critic)), ["a".into(), "b".into()].into());
    }

    /// Of a loop as well: its prompt and its system text are rendered in every turn, and are to be the same.
    #[test]
    fn the_templates_of_a_loop_name_nodes() {
        let system = Some("{{ nodes.b.output }}".to_owned());
        let agent = aetheris_core::plan::AgentNode::new("s/m", "{{ nodes.a.output }}");
        let node = Node::new("n", NodeKind::Agent(aetheris_core::plan::AgentNode { system, ..agent }));
        assert_eq!(named_in(&node, None), ["a".into(), "b".into()].into());
    }

    #[test]
    fn the_templates_of_a_node_name_nodes() {
        let json = |value| Json::new(value);
        let wait = aetheris_core::plan::WaitNode {
            correlation_key: Some("{{ nodes.a.output }}".to_owned()),
            deadline: None,
            on_deadline: aetheris_core::plan::OnDeadline::Fail,
            park: false,
            reason: Some("{{ nodes.b.failed }}".to_owned()),
            schema: None,
            wait_type: aetheris_core::plan::WaitType::Human,
        };
        let input =
            json(serde_json::json!({ "x": ["{{ nodes.a.open }}", { "y": "{{ nodes.b.error.code }}" }], "n": 1 }));
        for (kind, named) in [
            (NodeKind::Wait(wait), &["a", "b"][..]),
            (NodeKind::Tool { input: input.clone(), tool: "t".into() }, &["a", "b"]),
            (NodeKind::Transform(input), &["a", "b"]),
            (NodeKind::Condition, &[]),
        ] {
            let mut node = Node::new("n", kind);
            node.work.when = Some("nodes.c.failed".to_owned());
            let found: Vec<String> = named_in(&node, None).iter().map(ToString::to_string).collect();
            assert_eq!(found, named, "{:?}", node.work.kind);
        }
    }
}
