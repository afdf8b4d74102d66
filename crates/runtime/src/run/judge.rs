//! What becomes of an output that is judged: by the schema of its step, then by a critic. A rejected one is followed by
//! another round of the same work, up to `max_refines` times.
//!
//! ```text
//! output ─► schema ─┬─ does not fit ──────────────────► rejected ─┬─ node_refining: the next round
//!                   └─ fits ─┬─ no critic: completed              └─ no round left: failed
//!                            └─ validating ─► critic ─┬─ reject ──► rejected
//!                                                     └─ pass: completed, with the critic's own end
//! ```

use aetheris_core::event::{Failure, Judge, ModelRecord, NodeFinished, NodeRefining, StepResult, Verdict};
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::NodeKind;
use aetheris_core::schema::{self, Violation};
use aetheris_core::step::StepStatus;
use aetheris_expr::Judged;
use serde_json::{Value, json};

use super::prepared::{Check, Next, Prepared, TryFailed, Whose};
use super::view::View;
use super::{facts, kind};
use crate::draft::Fact;
use crate::names;

/// Error code: the critic failed.
const CRITIC_FAILED: &str = "critic_failed";
/// Error code: a model has answered what does not fit the schema of the question.
const ANSWER_MISFIT: &str = "model_answer_misfit";
/// Error code: a tool has answered what does not fit its schema.
const OUTPUT_MISMATCH: &str = "output_mismatch";
/// What a critic is to answer.
const VERDICT_FORM: &str = r#"{"verdict": "pass"} or {"verdict": "reject", "feedback": "..."}"#;
/// Violations that are told to the next round, or to a model.
pub(super) const VIOLATIONS_TOLD: usize = 20;

/// The end of a try that has given an output.
pub(super) fn end(view: &View<'_>, end: NodeFinished, output: impl FnOnce() -> Json) -> Prepared {
    match tools_schema(view).filter(|_| !aetheris_fault::planted!("tools-answer-not-judged")) {
        Some(schema) => check(end, output(), schema, Whose::Tool),
        None => by_step(view, end, output),
    }
}

/// What the tool of a step says of its answers.
fn tools_schema<'v>(view: &'v View<'_>) -> Option<&'v Json> {
    view.plan.tool_of(view.work).and_then(|(_, tool)| tool.output_schema.as_ref())
}

/// The same of an output that fits what its tool answers.
fn by_step(view: &View<'_>, end: NodeFinished, output: impl FnOnce() -> Json) -> Prepared {
    match &view.work.validate {
        Some(schema) if !aetheris_fault::planted!("schema-not-asked") => check(end, output(), schema, Whose::Step),
        Some(_) | None => Prepared::of([for_critic(view, end)]),
    }
}

/// The answer of a model that was told its form.
pub(super) fn model_said(
    view: &View<'_>,
    output: Json,
    model: Option<Box<ModelRecord>>,
    took_us: u64,
    schema: &Json,
) -> Prepared {
    let end = NodeFinished::new(view.path.clone(), StepResult::Pure);
    let end = NodeFinished { model, output: Some(output.clone()), took_us: Some(took_us), ..end };
    check(end, output, schema, Whose::Question)
}

fn check(end: NodeFinished, output: Json, schema: &Json, whose: Whose) -> Prepared {
    let check = Check { end: Some(end), output, schema: schema.clone(), whose };
    Prepared::default().next(Next::Check(Box::new(check)))
}

fn for_critic(view: &View<'_>, end: NodeFinished) -> Fact {
    if aetheris_fault::planted!("critic-not-asked") {
        return Fact::of(end);
    }
    let verdict = view.plan.critic_of(view.node, &view.path).map(|_| Verdict::Pending);
    Fact::of(NodeFinished { verdict, ..end })
}

/// What follows once the schema was asked.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn checked(view: &View<'_>, check: Check, found: &[Violation]) -> Result<Prepared, Failure> {
    let Check { end, output, whose, .. } = check;
    match (whose, end) {
        (Whose::Loop, Some(end)) => Ok(kind::agent::last_word(end, found)),
        (Whose::Tool | Whose::Question, end) if !found.is_empty() => Ok(misfit(end, whose, found)),
        (Whose::Tool | Whose::Question, Some(end)) => Ok(by_step(view, end, || output)),
        (Whose::Tool, None) => again(view, view.work.validate.as_ref().map(|schema| (schema, Whose::Step))),
        (Whose::Step, Some(end)) if found.is_empty() => Ok(Prepared::of([for_critic(view, end)])),
        (Whose::Loop | Whose::Question, None) => Err(view.corrupt("nothing judges its output")),
        (Whose::Step, None) if found.is_empty() => Err(view.corrupt("its output was rejected, and fits its schema")),
        (Whose::Step, end) => {
            aetheris_fault::sometimes!(SchemaRejects);
            let end = end.map(|end| Fact::of(NodeFinished { verdict: Some(Verdict::Reject), ..end }));
            let facts: Vec<Fact> = end.into_iter().collect();
            Ok(Prepared::of(facts).next(Next::Rejected(Judge::Schema, schema::first(found, VIOLATIONS_TOLD))))
        }
    }
}

/// The try has failed. A tool has answered what it never does, for all that its author knows: another call would tell no more.
/// A model may answer something else. An effect is on record before its step fails.
fn misfit(end: Option<NodeFinished>, whose: Whose, found: &[Violation]) -> Prepared {
    let found = schema::first(found, VIOLATIONS_TOLD);
    let of_model = whose == Whose::Question;
    let error = match of_model {
        true => Failure::new(ANSWER_MISFIT, format!("the model's answer does not fit its `schema`: {found}")),
        false => Failure::new(OUTPUT_MISMATCH, format!("the tool's answer does not fit its `output_schema`: {found}")),
    };
    let failed = TryFailed::new(error, None, of_model);
    match end {
        Some(end) if end.result != StepResult::SideEffectCommitted => {
            let NodeFinished { model, took_us, .. } = end;
            Prepared::default().next(Next::TryFailed(TryFailed { model, took_us, ..failed }))
        }
        end => {
            let end = end.map(|end| Fact::of(NodeFinished { verdict: Some(Verdict::Reject), ..end }));
            Prepared::of(end.into_iter().collect::<Vec<Fact>>()).next(Next::TryFailed(failed))
        }
    }
}

/// Goes on with a step that has an output which was rejected, or about which its critic has said what it says.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn follow(view: &View<'_>) -> Result<Prepared, Failure> {
    let verdict = view.step().and_then(|step| step.verdict);
    if verdict == Some(Verdict::Reject) && matches!(view.work.kind, NodeKind::Plan(_)) {
        return Ok(kind::plan::follow(view));
    }
    match verdict {
        Some(Verdict::Reject) => {
            let of_tool = tools_schema(view).map(|schema| (schema, Whose::Tool));
            again(view, of_tool.or(view.work.validate.as_ref().map(|schema| (schema, Whose::Step))))
        }
        Some(Verdict::Pending) => {
            let critic = view.path.critic();
            let said = view.state.steps.get(&critic).filter(|step| step.status == StepStatus::Completed);
            let said = said.ok_or_else(|| view.corrupt("its critic has not said anything"))?;
            let output = names::gave(view.state, &view.rows.effects, (&critic, said));
            let feedback = output.as_ref().and_then(|output| output.value().get("feedback")?.as_str());
            Ok(rejected(view, Judge::Critic, feedback.unwrap_or_default()))
        }
        Some(Verdict::Pass) | None => Err(view.corrupt("nothing judges its output")),
    }
}

/// A schema is asked once more about an output that was rejected: what was wrong with it is not on record.
fn again(view: &View<'_>, by: Option<(&Json, Whose)>) -> Result<Prepared, Failure> {
    let (schema, whose) = by.ok_or_else(|| view.corrupt("nothing judges its output"))?;
    let output = names::of_round(view.state, &view.rows.effects, &view.path).unwrap_or_else(Json::null);
    let check = Check { end: None, output, schema: schema.clone(), whose };
    Ok(Prepared::default().next(Next::Check(Box::new(check))))
}

/// Another round follows, if one is left.
pub(super) fn rejected(view: &View<'_>, by: Judge, feedback: &str) -> Prepared {
    let round = view.path.round() + 1;
    let mut most = view.work.max_refines();
    if aetheris_fault::planted!("one-round-too-many") {
        most += 1;
    }
    let left = round <= most;
    if left && !view.is_stopped() {
        let mut feedback = limits::cut(feedback.to_owned(), limits::FEEDBACK_BYTES_MAX);
        if aetheris_fault::planted!("feedback-forgotten") {
            feedback.clear();
        }
        return Prepared::of([Fact::of(NodeRefining { by, feedback, node: view.path.base(), round })]);
    }
    let of_person = by == Judge::Critic;
    let by = match (by, &view.node.critic) {
        (Judge::Critic, Some(critic)) => format!("critic `{critic}`"),
        (Judge::Critic | Judge::Schema, _) => by.as_str().to_owned(),
    };
    let max = view.work.max_refines();
    let message = match round {
        _ if view.path.is_planning() => {
            let last = if of_person { "a person rejected the last one" } else { "the last one was not valid" };
            format!("no plan was accepted in {round} of {} attempts; {last}: {feedback}", max + 1)
        }
        _ if left => format!("its output was rejected by its {by}, and its map has failed: {feedback}"),
        1 => format!("its output was rejected by its {by}, and is not made again (max_refines: {max}): {feedback}"),
        _ => format!(
            "its output was rejected in each of its {round} rounds (max_refines: {max}), the last time by its {by}: {feedback}"
        ),
    };
    // What would have had another round is no failure of its own.
    let failed = TryFailed { given_up: left, ..TryFailed::new(Failure::new(names::REJECTED, message), None, false) };
    facts::fail_after(view, StepResult::PermanentFailure, failed)
}

/// What a step fails with whose critic has failed.
pub(super) fn critic_failed(view: &View<'_>, error: &Failure) -> Failure {
    let critic = view.node.critic.as_ref().map_or("", |critic| critic.as_str());
    Failure::new(CRITIC_FAILED, format!("critic `{critic}` failed: {} ({})", error.message, error.code))
}

impl View<'_> {
    /// What a critic's step is asked about.
    pub(super) fn judged_output(&self) -> Option<Json> {
        names::of_round(self.state, &self.rows.effects, &self.path.judged()?)
    }
}

/// What a critic is asked about, as its templates see it.
pub(super) fn seen<'j>(view: &View<'_>, output: Option<&'j Json>) -> Option<Judged<'j>> {
    output.map(|output| Judged { output, round: view.path.round() })
}

/// The answer of a critic.
#[derive(Debug, PartialEq)]
pub(super) struct CriticAnswer {
    pub(super) feedback: String,
    pub(super) verdict: Verdict,
}

impl CriticAnswer {
    /// Reads an answer of the form `{"verdict": "pass" | "reject", "feedback": …}`; whatever cannot be read rejects.
    pub(super) fn read(answer: Result<Json, Failure>) -> Self {
        let unread = |why: String| Self { feedback: why, verdict: Verdict::Reject };
        let no_verdict = |why: &str| unread(format!("the critic did not answer {VERDICT_FORM}: {why}"));
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if aetheris_fault::planted!("unread-verdict-passes") => {
                return Self { feedback: error.message, verdict: Verdict::Pass };
            }
            Err(error) => return no_verdict(&error.message),
        };
        let feedback = match answer.value().get("feedback") {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => other.to_string(),
        };
        match answer.value().get("verdict").and_then(Value::as_str) {
            Some("pass") => Self { feedback, verdict: Verdict::Pass },
            Some("reject") if feedback.is_empty() => unread("the critic rejected it and did not say why".to_owned()),
            Some("reject") => Self { feedback, verdict: Verdict::Reject },
            Some(_) | None => {
                let said = limits::cut(answer.to_string(), limits::MODEL_WORDS_QUOTED_MAX);
                no_verdict(&format!("it said {said}"))
            }
        }
    }

    /// What is recorded of it.
    pub(super) fn output(&self) -> Json {
        let feedback = limits::cut(self.feedback.clone(), limits::FEEDBACK_BYTES_MAX);
        Json::new(json!({ "feedback": feedback, "verdict": self.verdict.as_str() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: Value) -> (String, Verdict) {
        let CriticAnswer { feedback, verdict } = CriticAnswer::read(Ok(Json::new(answer)));
        (feedback, verdict)
    }

    #[test]
    fn only_a_clear_pass_passes() {
        assert_eq!(read(json!({ "verdict": "pass" })), (String::new(), Verdict::Pass));
        assert_eq!(read(json!({ "verdict": "pass", "feedback": "good" })), ("good".to_owned(), Verdict::Pass));
        for odd in [json!({}), json!("pass"), json!({ "verdict": "PASS" }), json!({ "verdict": true }), json!(["pass"])]
        {
            let (feedback, verdict) = read(odd.clone());
            assert_eq!(verdict, Verdict::Reject, "{odd}");
            assert!(feedback.starts_with("the critic did not answer "), "{feedback}");
        }
        let said = CriticAnswer::read(Err(Failure::new("model_answer_not_json", "it said: yes")));
        assert_eq!(
            (said.verdict, &*said.feedback),
            (
                Verdict::Reject,
                "the critic did not answer {\"verdict\": \"pass\"} or {\"verdict\": \"reject\", \"feedback\": \"...\"}: it said: yes"
            )
        );
    }

    #[test]
    fn a_rejection_says_why() {
        assert_eq!(read(json!({ "verdict": "reject", "feedback": "too long" })).0, "too long");
        assert_eq!(read(json!({ "verdict": "reject", "feedback": ["a", 1] })).0, "[\"a\",1]");
        for none in [json!({ "verdict": "reject" }), json!({ "verdict": "reject", "feedback": "" })] {
            assert_eq!(read(none).0, "the critic rejected it and did not say why");
        }
        let long = CriticAnswer { feedback: "x".repeat(limits::FEEDBACK_BYTES_MAX + 1), verdict: Verdict::Reject };
        assert!(long.output().to_string().len() < limits::FEEDBACK_BYTES_MAX + 100);
    }

    #[test]
    fn a_round_is_told_what_did_not_fit_and_where() {
        let violation = |path: &str| Violation { message: "is wrong".to_owned(), path: path.to_owned() };
        assert_eq!(schema::first(&[violation(""), violation("/a")], VIOLATIONS_TOLD), "is wrong; /a: is wrong");
        let many: Vec<Violation> = (0..VIOLATIONS_TOLD + 2).map(|at| violation(&format!("/{at}"))).collect();
        let told = schema::first(&many, VIOLATIONS_TOLD);
        assert!(told.ends_with("/19: is wrong; and 2 more"), "{told}");
    }
}
