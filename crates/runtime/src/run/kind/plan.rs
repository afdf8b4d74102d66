//! A model makes the plan of a job. Its answer is judged by the reader of agent files, and then by a person where the agent says
//! so; a plan that is rejected is asked for again, with what was wrong with it. What was answered is on record before anything else
//! is asked, and the plan itself before anything of it runs.

use aetheris_agentfile::FileError;
use aetheris_core::event::{Judge, NodeFinished, StepResult, Verdict};
use aetheris_core::id::ToolName;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{AnswerFormat, Plan, PlanNode, Tool};
use aetheris_expr::ExprError;
use serde_json::json;

use super::agent::too_long;
use super::llm;
use crate::aside::aside;
use crate::draft::Fact;
use crate::names;
use crate::ports::{ModelAnswer, ModelError, ModelRequest, PastTurn};
use crate::run::prepared::{Asked, Next, Prepared, TryFailed};
use crate::run::view::View;
use crate::run::{facts, judge};

/// Mistakes of a plan that a model is told.
const MISTAKES_TOLD: usize = 20;

pub(super) fn prepare(view: &View<'_>, planner: &PlanNode) -> Prepared {
    match request(view, planner) {
        Ok(request) => match too_long(&request.turns) {
            Some(error) => facts::fail(view, error),
            None => facts::start(view).perform(llm::ask(request, AnswerFormat::Json)),
        },
        Err(error) => facts::fail_template(view, "its prompt", &error),
    }
}

fn request(view: &View<'_>, planner: &PlanNode) -> Result<ModelRequest, ExprError> {
    let prompt = view.text(&planner.prompt)?;
    let before = (0..view.path.round()).map(|round| past(view, round)).collect();
    let request = ModelRequest::new(&planner.model, prompt, view.timeout());
    let system = Some(instructions(view.plan.plan(), planner));
    Ok(ModelRequest { format: AnswerFormat::Json, system, turns: before, ..request })
}

/// A plan that was rejected, and why.
fn past(view: &View<'_>, round: u32) -> PastTurn {
    let base = view.path.base();
    let output = names::of_round(view.state, &view.rows.effects, &base.in_round(round)).unwrap_or_else(Json::null);
    let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
    let told = view.state.steps.get(&base.in_round(round + 1)).and_then(|step| step.feedback.clone());
    PastTurn { calls: Vec::new(), reply: told.filter(|_| !aetheris_fault::planted!("planner-not-told")), text }
}

/// What a planner is told of plans: their form, and the tools that there are.
fn instructions(planning: &Plan, planner: &PlanNode) -> String {
    let schema = aetheris_agentfile::plan_schema(Some(&planner.kinds));
    let tool = |(name, tool): (&ToolName, &Tool)| {
        json!({
            "name": name, "effect": tool.effect, "description": tool.description, "input_schema": tool.input_schema,
            "output_schema": tool.output_schema, "asks_a_person": tool.kind.human().is_some(),
        })
    };
    let tools: Vec<_> = planning.tools.iter().map(tool).collect();
    format!(
        "You plan work. Answer with one JSON object and nothing else: a plan, which fits the JSON Schema below and has at most {} \
         nodes. Nothing of it has run yet. A node runs once all nodes in its `needs` have ended, and its templates, as in \
         {{{{ nodes.ID.output }}}}, may name those alone, directly or through others; {{{{ message }}}} is the message. Call no tools \
         but these: {}\n\nJSON Schema of the plan: {schema}",
        planner.max_nodes,
        json!(tools)
    )
}

/// What the answer of the planner means.
pub(super) fn conclude(view: &View<'_>, answer: Result<ModelAnswer, ModelError>, asked: Asked, took: u64) -> Prepared {
    let answer = match answer {
        Ok(answer) => answer,
        Err(failed) => return llm::failed(view, failed, asked, took),
    };
    let model = Some(llm::used(&answer, &asked));
    let (output, wrong) = match llm::output(AnswerFormat::Json, &answer.text) {
        Ok(output) => {
            let wrong = made(view.plan.plan(), &output).err();
            (output, wrong)
        }
        // Text that is too long for a record is no answer.
        Err(wrong) => match llm::output(AnswerFormat::Text, &answer.text) {
            Ok(text) => (text, Some(wrong.message)),
            Err(error) => return llm::try_failed(TryFailed::new(error, None, true), model, took),
        },
    };
    let end = NodeFinished::new(view.path.clone(), StepResult::Pure);
    let end = NodeFinished { model, output: Some(output.clone()), took_us: Some(took), ..end };
    match wrong.filter(|_| !aetheris_fault::planted!("plan-not-judged")) {
        None => judge::end(view, end, || output),
        Some(wrong) => {
            aetheris_fault::sometimes!(PlanRejected);
            let end = NodeFinished { verdict: Some(Verdict::Reject), ..end };
            Prepared::of([Fact::of(end)]).next(Next::Rejected(Judge::Schema, wrong))
        }
    }
}

/// Goes on with a plan that was rejected when its run ended.
pub(in crate::run) fn follow(view: &View<'_>) -> Prepared {
    let output = names::of_round(view.state, &view.rows.effects, &view.path).unwrap_or_else(Json::null);
    let wrong = made(view.plan.plan(), &output).err().unwrap_or_default();
    Prepared::default().next(Next::Rejected(Judge::Schema, wrong))
}

/// The plan that an answer of the planner is, or what is wrong with it.
///
/// # Errors
/// It is none that the agent may have.
pub(in crate::run) fn made(planning: &Plan, answer: &Json) -> Result<Plan, String> {
    if !answer.is_object() {
        return Err("the plan must be one JSON object".to_owned());
    }
    aside(|| aetheris_agentfile::parse_plan(&answer.to_string(), planning)).map_err(|mistakes| {
        let told = mistakes.iter().take(MISTAKES_TOLD).map(|FileError { path, message, .. }| match path.as_str() {
            "" => message.clone(),
            path => format!("{path}: {message}"),
        });
        let told = told.collect::<Vec<_>>().join("; ");
        let more = mistakes.len().saturating_sub(MISTAKES_TOLD);
        let told = if more > 0 { format!("{told}; and {more} more") } else { told };
        limits::cut(told, limits::FEEDBACK_BYTES_MAX)
    })
}
