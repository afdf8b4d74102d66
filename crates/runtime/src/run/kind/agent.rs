//! A loop: a model and tools by turns, until the model has the last word. Each turn and each call is a step of its own, recorded
//! like any other, so that no recorded question is asked again and no recorded call is made again. What a model is told is put
//! together from what is recorded, in every turn anew.
//!
//! ```text
//! n: begins ─► n/0: asks ─┬─ calls ─► n/0.0, n/0.1, … ─► n/1: asks with what they came to ─► …
//!                         ├─ a last word that does not fit ─► n/1: asks again
//!                         └─ the last word ─► n: ends with it
//! ```
//!
//! A model is told of a call's failure only where the call is known not to have had its effect. Any other failure ends the loop.

use std::collections::BTreeSet;

use aetheris_core::event::{Failure, NodeFinished, StepResult, ToolAsked, Turn};
use aetheris_core::id::ToolName;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{AgentNode, AnswerFormat, OnLimit};
use aetheris_core::schedule::{self, LoopEnd, Stage};
use aetheris_core::schema::{self, Violation};
use aetheris_core::state::{Invocation, Output, TurnsState};
use aetheris_core::step::StepStatus;
use aetheris_expr::ExprError;
use serde_json::{Map, Value, json};

use super::{llm, tool};
use crate::draft::Fact;
use crate::names;
use crate::ports::{ModelAnswer, ModelError, ModelRequest, PastCall, PastTurn, ToolOffer};
use crate::run::budget::over_budget;
use crate::run::facts;
use crate::run::judge::VIOLATIONS_TOLD;
use crate::run::prepared::{Asked, Body, Check, InputGiven, Next, Prepared, TryFailed, Whose};
use crate::run::view::View;

/// What a model is told that may call no tool any more.
const LAST_WORD: &str = "No further tool call is possible. Answer now with what you know.";
/// Error code: nobody could say what became of a call.
const UNRESOLVED: &str = "in_doubt_unresolved";
/// Error code: the loop has used up its turns or tokens.
const LIMIT: &str = "loop_limit";
/// Bytes of a name that a model calls, which are kept.
const NAME_KEPT_MAX: usize = 256;
/// Error code: the model has asked too often for what it may not have.
const MISTAKES: &str = "loop_mistakes";

/// # Errors
/// The history contradicts itself.
pub(super) fn prepare(view: &View<'_>, agent: &AgentNode) -> Result<Prepared, Failure> {
    match (view.path.turn(), view.path.call()) {
        (Some(_), Some(_)) => unknown_tool(view, agent),
        (Some(turn), None) => ask(view, agent, turn),
        (None, _) => whole(view, agent),
    }
}

/// The loop itself: it begins, and ends when its turns have.
fn whole(view: &View<'_>, agent: &AgentNode) -> Result<Prepared, Failure> {
    let Some(turns) = view.state.turns_of(&view.path) else { return Ok(facts::start(view)) };
    match schedule::stage(agent, turns) {
        Stage::Asks(_) | Stage::Calls => Err(view.corrupt("its turns have not ended")),
        Stage::Ends(LoopEnd::Failed) => fail_with_part(view, turns),
        Stage::Ends(LoopEnd::Limit) => Ok(facts::fail(view, at_limit(view, agent, turns, turns.tokens))),
        Stage::Ends(LoopEnd::Mistakes) => {
            let message = format!(
                "the model made {} invalid calls (unknown tools, or arguments that do not fit their `input_schema`); a loop may make \
                 {}. Look at the failed calls in `aetheris trace`, and make the tools' `description` and `input_schema` clearer",
                turns.mistakes,
                limits::LOOP_MISTAKES_MAX
            );
            Ok(facts::fail(view, Failure::new(MISTAKES, message)))
        }
        Stage::Ends(LoopEnd::Said) => {
            let said = said_in(view, turns.ended.saturating_sub(1));
            let output = match &agent.schema {
                None => Ok(Json::new(said.into())),
                Some(_) => llm::output(AnswerFormat::Json, &said),
            };
            let output = output.map_err(|_| view.corrupt("its last word is not the JSON that it was taken for"))?;
            Ok(facts::succeed(view, Some(output)))
        }
    }
}

/// Why a loop ends that has used so many tokens.
fn at_limit(view: &View<'_>, agent: &AgentNode, turns: &TurnsState, tokens: u64) -> Failure {
    let used = match agent.max_tokens.filter(|_| agent.has_used_up(tokens)) {
        Some(max) => format!("{tokens} of {max} tokens"),
        None => format!("its {} turns", agent.max_turns),
    };
    let newest = view.state.steps.get(&view.path.at_turn(turns.ended.saturating_sub(1))).and_then(|step| step.turn());
    let message = match newest.and_then(|turn| turn.reply.as_ref()) {
        Some(reply) => format!("the loop used {used}, and its final answer was not accepted: {reply}"),
        None if turns.mistakes > 0 => format!(
            "the loop used {used} without a final answer; {} of its calls were refused (unknown tools, or arguments that do not fit): \
             look at the failed calls in `aetheris trace`",
            turns.mistakes
        ),
        None => format!(
            "the loop used {used} without a final answer; raise `max_turns` or `max_tokens`, or set `on_limit: answer`"
        ),
    };
    Failure::new(LIMIT, message)
}

/// The loop fails as its turn or call has, and with the job if that has used up what it may.
fn fail_with_part(view: &View<'_>, turns: &TurnsState) -> Result<Prepared, Failure> {
    let no_error = || view.corrupt("the part that has ended it has no error");
    let path = turns.failed_by.as_ref().ok_or_else(no_error)?;
    let part = view.state.steps.get(path).ok_or_else(no_error)?;
    let error = part.error.as_ref().ok_or_else(no_error)?;
    let what = match view.state.asked_of(path).and_then(|asked| asked.tool.as_ref()) {
        Some(tool) => format!("call `{path}` of `{tool}`"),
        None => format!("turn {}", path.turn().unwrap_or_default()),
    };
    let of_job = view.absorbs() && !part.absorbed;
    // Whatever the last try came to, an earlier one may have had its effect.
    let unknown = |call: &Invocation| call.may_have_happened() && !call.has_happened();
    let unknown = part.invocation.as_deref().is_some_and(unknown) && !of_job && !part.given_up;
    let error = match unknown && error.code != UNRESOLVED {
        true => Failure::new(UNRESOLVED, format!("{what} may have had its effect: {} ({})", error.message, error.code)),
        false => Failure::new(&error.code, format!("{what}: {}", error.message)),
    };
    let failed = TryFailed { given_up: part.given_up, of_job, ..TryFailed::new(error, None, false) };
    Ok(facts::fail_after(view, StepResult::PermanentFailure, failed))
}

/// Asks the model. Between two tries of a turn the loop may have used up its tokens.
fn ask(view: &View<'_>, agent: &AgentNode, turn: u32) -> Result<Prepared, Failure> {
    let turns = view.state.turns_of(&view.path).ok_or_else(|| view.corrupt("its loop has not begun"))?;
    if agent.has_used_up(turns.tokens) && agent.on_limit == OnLimit::Fail {
        return Ok(facts::fail(view, at_limit(view, agent, turns, turns.tokens)));
    }
    let may_call = schedule::may_call(agent, turns, turn);
    aetheris_fault::sometimes!(LastWordAsked, !may_call);
    let turns = conversation(view, turn)?;
    if let Some(error) = too_long(&turns) {
        return Ok(facts::fail(view, error));
    }
    Ok(match request(view, agent, turns, may_call) {
        Ok(request) => {
            let format = request.format;
            facts::start(view).perform(llm::ask(request, format))
        }
        Err(error) => facts::fail_template(view, "its prompt", &error),
    })
}

/// What was said before a turn.
fn conversation(view: &View<'_>, turn: u32) -> Result<Vec<PastTurn>, Failure> {
    let mut turns = (0..turn).map(|turn| past(view, turn)).collect::<Result<Vec<PastTurn>, Failure>>()?;
    if aetheris_fault::planted!("conversation-forgets-a-turn") {
        turns.truncate(1);
    }
    Ok(turns)
}

/// A conversation that is longer than is sent: each question copies all of it.
pub(super) fn too_long(turns: &[PastTurn]) -> Option<Failure> {
    let of_call = |call: &PastCall| call.asked.arguments.len() + call.result.len();
    let of_turn = |turn: &PastTurn| {
        turn.text.len() + turn.reply.as_ref().map_or(0, String::len) + turn.calls.iter().map(of_call).sum::<usize>()
    };
    let (bytes, max) = (turns.iter().map(of_turn).sum::<usize>(), limits::CONVERSATION_BYTES_MAX);
    (bytes > max).then(|| {
        let message = format!("the conversation has {bytes} bytes; at most {max} are sent");
        Failure::new("conversation_too_long", message)
    })
}

fn request(
    view: &View<'_>,
    agent: &AgentNode,
    mut turns: Vec<PastTurn>,
    may_call: bool,
) -> Result<ModelRequest, ExprError> {
    let prompt = view.text(&agent.prompt)?;
    let own = agent.system.as_ref().map(|system| view.text(system)).transpose()?;
    let system = llm::with_form(own, agent.schema.as_ref());
    let offer = |name: &ToolName| {
        let tool = view.plan.tool(name)?;
        let (description, input_schema) = (tool.description.clone(), tool.input_schema.clone());
        Some(ToolOffer { description, input_schema, name: AgentNode::name_for_model(name) })
    };
    let may_call = may_call || aetheris_fault::planted!("last-word-may-call");
    if let Some(newest) = turns.last_mut().filter(|_| !may_call) {
        let before = newest.reply.take().map(|reply| format!("{reply}\n\n")).unwrap_or_default();
        newest.reply = Some(format!("{before}{LAST_WORD}"));
    }
    Ok(ModelRequest {
        format: agent.schema.as_ref().map_or(AnswerFormat::Text, llm::format_for),
        max_tokens: agent.max_answer_tokens,
        may_call,
        system,
        tools: agent.tools.iter().filter_map(offer).collect(),
        turns,
        ..ModelRequest::new(&agent.model, prompt, view.timeout())
    })
}

/// What a turn has said, and what its calls came to, as it is recorded.
fn past(view: &View<'_>, turn: u32) -> Result<PastTurn, Failure> {
    let path = view.path.at_turn(turn);
    let told = view.state.steps.get(&path).and_then(|step| step.turn());
    let (asked, reply) = told.map_or((&[][..], None), |turn| (&turn.calls[..], turn.reply.clone()));
    let calls = (0..).zip(asked).map(|(call, asked)| came_to(view, &view.path.at_call(turn, call), asked));
    let mut calls = calls.collect::<Result<Vec<PastCall>, Failure>>()?;
    if aetheris_fault::planted!("results-in-another-order") {
        calls.reverse();
    }
    Ok(PastTurn { calls, reply, text: said_in(view, turn) })
}

fn said_in(view: &View<'_>, turn: u32) -> String {
    let step = view.state.steps.get(&view.path.at_turn(turn));
    match step.and_then(|step| step.output.as_ref()) {
        Some(Output::Inline(text)) => text.as_str().unwrap_or_default().to_owned(),
        Some(Output::Effect(_) | Output::Items) | None => String::new(),
    }
}

/// What a call came to, as its model is told it.
fn came_to(view: &View<'_>, path: &StepPath, asked: &ToolAsked) -> Result<PastCall, Failure> {
    let step = view.state.steps.get(path);
    aetheris_fault::sometimes!(ModelToldOfFailure, step.is_some_and(|step| step.status == StepStatus::Failed));
    let error = step.filter(|step| step.status == StepStatus::Failed).and_then(|step| step.error.as_ref());
    let result = match error {
        Some(error) => format!("error: {} ({})", error.message, error.code),
        None => {
            let output = names::of_round(view.state, &view.rows.effects, path);
            let output = output.ok_or_else(|| view.corrupt(&format!("the effect of `{path}` is missing")))?;
            output.as_str().map_or_else(|| output.to_string(), str::to_owned)
        }
    };
    Ok(PastCall { asked: asked.clone(), failed: error.is_some(), result: cut(result) })
}

/// A result that is not longer than a model is told.
fn cut(result: String) -> String {
    let bytes = result.len();
    if bytes <= limits::RESULT_TOLD_BYTES_MAX {
        return result;
    }
    let beginning = limits::cut(result, limits::RESULT_TOLD_BYTES_MAX);
    format!("{beginning}\n[cut: {bytes} bytes in all]")
}

/// What the model's answer means: calls, a last word, or neither.
pub(super) fn conclude(
    view: &View<'_>,
    agent: &AgentNode,
    answer: Result<ModelAnswer, ModelError>,
    asked: Asked,
    took: u64,
) -> Prepared {
    let answer = match answer {
        Ok(answer) => answer,
        Err(failed) => return llm::failed(view, failed, asked, took),
    };
    let used = Some(llm::used(&answer, &asked));
    let turn = match turn(view, agent, &answer) {
        Ok(turn) => turn,
        Err(error) => return llm::try_failed(TryFailed::new(error, None, true), used, took),
    };
    let output = match llm::output(AnswerFormat::Text, &answer.text) {
        Ok(output) => output,
        Err(error) => return llm::try_failed(TryFailed::new(error, None, true), used, took),
    };
    let end = NodeFinished::new(view.path.clone(), StepResult::Pure);
    let end =
        NodeFinished { model: used, output: Some(output), took_us: Some(took), turn: Some(Box::new(turn)), ..end };
    let is_last_word = end.turn.as_ref().is_some_and(|turn| turn.is_last_word());
    let judged = is_last_word && !aetheris_fault::planted!("last-word-not-judged");
    let Some(schema) = agent.schema.as_ref().filter(|_| judged) else { return Prepared::of([Fact::of(end)]) };
    match llm::output(AnswerFormat::Json, &answer.text) {
        Ok(output) => {
            let check = Check { end: Some(end), output, schema: schema.clone(), whose: Whose::Loop };
            Prepared::default().next(Next::Check(Box::new(check)))
        }
        Err(error) => Prepared::of([Fact::of(replied(end, error.message))]),
    }
}

/// A last word that its schema was asked about.
pub(in crate::run) fn last_word(end: NodeFinished, found: &[Violation]) -> Prepared {
    aetheris_fault::sometimes!(LastWordRejected, !found.is_empty());
    let end = match found {
        [] => end,
        _ => replied(end, format!("your answer does not fit: {}", schema::first(found, VIOLATIONS_TOLD))),
    };
    Prepared::of([Fact::of(end)])
}

fn replied(end: NodeFinished, reply: String) -> NodeFinished {
    let reply = Some(limits::cut(reply, limits::FEEDBACK_BYTES_MAX));
    NodeFinished { turn: Some(Box::new(Turn { calls: Vec::new(), reply })), ..end }
}

/// What an answer asks for.
fn turn(view: &View<'_>, agent: &AgentNode, answer: &ModelAnswer) -> Result<Turn, Failure> {
    let refused = |code: &str, message: String| Err(Failure::new(code, message));
    let (number, asked) = (view.path.turn().unwrap_or_default(), answer.calls.len());
    let may_call = view.state.turns_of(&view.path).is_some_and(|turns| schedule::may_call(agent, turns, number));
    if asked > 0 && !may_call {
        return refused("model_called_tool", "the model was asked for its last word and called a tool".to_owned());
    }
    if asked == 0 && answer.text.trim().is_empty() {
        return refused("model_answer_empty", "the model said nothing and called no tool".to_owned());
    }
    if asked > limits::TURN_CALLS_MAX {
        let message = format!("the model asked for {asked} calls at once; at most {} are made", limits::TURN_CALLS_MAX);
        return refused("too_many_tool_calls", message);
    }
    let large = answer.calls.iter().find(|call| call.arguments.len() > limits::PAYLOAD_BYTES_MAX);
    if let Some(call) = large {
        let (name, bytes, max) = (cut_name(&call.name), call.arguments.len(), limits::PAYLOAD_BYTES_MAX);
        let message = format!("the model called `{name}` with {bytes} bytes of arguments; at most {max} are accepted");
        return refused("result_refused", message);
    }
    let mut ids = ids_before(view, number);
    let meant = |(place, call): (usize, &ToolAsked)| {
        let id = unused_id(&call.id, &format!("call_{number}_{place}"), &ids);
        ids.insert(id.clone());
        let mut tool = agent.meant(&call.name).cloned();
        if aetheris_fault::planted!("model-calls-any-tool") {
            let mut all = view.plan.plan().tools.keys();
            tool = all.find(|tool| AgentNode::name_for_model(tool) == call.name).cloned();
        }
        let name = limits::cut(call.name.clone(), NAME_KEPT_MAX);
        ToolAsked { id, name, tool, ..call.clone() }
    };
    Ok(Turn { calls: answer.calls.iter().enumerate().map(meant).collect(), reply: None })
}

/// The names of all calls before a turn.
fn ids_before(view: &View<'_>, turn: u32) -> BTreeSet<String> {
    let turns = (0..turn).filter_map(|turn| view.state.steps.get(&view.path.at_turn(turn))?.turn());
    turns.flat_map(|turn| turn.calls.iter().map(|call| call.id.clone())).collect()
}

/// The name of a call that goes back with its result. Providers refuse a conversation in which two calls have one name, or one
/// has a name of another form than theirs.
fn unused_id(id: &str, other: &str, used: &BTreeSet<String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let fits = !id.is_empty() && id.len() <= limits::NAME_BYTES_MAX && id.chars().all(plain);
    let mut unused = if fits { id.to_owned() } else { other.to_owned() };
    if used.contains(&unused) {
        other.clone_into(&mut unused);
    }
    while used.contains(&unused) {
        unused.push('_');
    }
    unused
}

/// Why a turn is not asked again whose tries have used up the tokens of its loop.
pub(in crate::run) fn over_limit_after(view: &View<'_>, used: u64) -> Option<Failure> {
    let agent = view.work.agent().filter(|agent| view.path.is_turn() && agent.on_limit == OnLimit::Fail)?;
    let turns = view.state.turns_of(&view.path)?;
    let tokens = turns.tokens.saturating_add(used);
    agent.has_used_up(tokens).then(|| at_limit(view, agent, turns, tokens))
}

/// A call of a tool that the loop has: its arguments are judged first, then it is made like any other.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn call(view: &View<'_>, name: &ToolName) -> Result<Prepared, Failure> {
    aetheris_fault::sometimes!(CallsBeside, view.state.turns_of(&view.path).is_some_and(|turns| turns.open.len() > 1));
    let input = match arguments(asked(view)?) {
        Ok(input) => input,
        Err(why) => return Ok(refuse(view, "invalid_arguments", why)),
    };
    let schema = view.plan.tool(name).and_then(|tool| tool.input_schema.clone());
    match schema.filter(|_| view.status() == StepStatus::Pending && !aetheris_fault::planted!("arguments-not-judged")) {
        Some(schema) => {
            let given = InputGiven { asked: asked(view)?.clone(), input, schema };
            Ok(Prepared::default().perform(Body::CheckInput(Box::new(given))))
        }
        None => tool::prepare(view, name, || Ok(input)),
    }
}

/// The arguments of a call were judged.
///
/// # Errors
/// The history contradicts itself.
pub(in crate::run) fn input_checked(view: &View<'_>, misfits: &[Violation]) -> Result<Prepared, Failure> {
    if !misfits.is_empty() {
        let why = format!("the arguments do not fit: {}", schema::first(misfits, VIOLATIONS_TOLD));
        return Ok(refuse(view, "invalid_arguments", why));
    }
    let name = asked(view)?.tool.as_ref().ok_or_else(|| view.corrupt("it calls no tool"))?;
    let input = arguments(asked(view)?).map_err(|_| view.corrupt("its arguments were judged and are no JSON"))?;
    // While they were judged, others may have used up what is left.
    match over_budget(view).filter(|_| !aetheris_fault::planted!("judged-call-asks-no-budget")) {
        Some(exceeded) => Ok(facts::fail_job(view, exceeded)),
        None => tool::prepare(view, name, || Ok(input)),
    }
}

fn asked<'v>(view: &'v View<'_>) -> Result<&'v ToolAsked, Failure> {
    view.state.asked_of(&view.path).ok_or_else(|| view.corrupt("no turn has asked for it"))
}

/// What a model gives to a tool: an object. Models write nothing at all where a tool needs nothing.
fn arguments(asked: &ToolAsked) -> Result<Json, String> {
    if asked.arguments.trim().is_empty() {
        return Ok(Json::new(Value::Object(Map::new())));
    }
    match Json::parse(asked.arguments.as_bytes()) {
        Ok(input) if input.is_object() => Ok(input),
        Ok(_) => Err("the arguments must be a JSON object".to_owned()),
        Err(error) => Err(format!("the arguments are not JSON: {error}")),
    }
}

/// What a call is given, for people.
pub(crate) fn given(asked: &ToolAsked) -> Json {
    arguments(asked).unwrap_or_else(|_| Json::new(json!(asked.arguments)))
}

fn unknown_tool(view: &View<'_>, agent: &AgentNode) -> Result<Prepared, Failure> {
    let names: Vec<String> = agent.tools.iter().map(|tool| format!("`{}`", AgentNode::name_for_model(tool))).collect();
    let have = if names.is_empty() { "there are none".to_owned() } else { format!("there are {}", names.join(", ")) };
    let why = format!("there is no tool `{}`; {have}", cut_name(&asked(view)?.name));
    Ok(refuse(view, "unknown_tool", why))
}

/// A name that a model made up, as it is shown.
fn cut_name(name: &str) -> String {
    let shown: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    limits::cut(shown, limits::NAME_BYTES_MAX)
}

/// A call that is not made, since the model has made a mistake: it is told so.
fn refuse(view: &View<'_>, code: &str, why: String) -> Prepared {
    aetheris_fault::sometimes!(CallRefused);
    facts::fail(view, Failure::new(code, why))
}

/// Whether the model is told of a failure. What is unknown is never told.
pub(in crate::run) fn is_told(view: &View<'_>) -> bool {
    let of_call = view.path.call().is_some() && aetheris_fault::planted!("model-told-of-a-doubt");
    view.state.may_be_told(&view.path) || of_call
}
