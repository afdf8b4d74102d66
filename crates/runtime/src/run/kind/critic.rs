//! What a model says of the output of another node. Its answer is a verdict, and no output for anybody.

use aetheris_core::event::{NodeFinished, StepResult, Verdict};
use aetheris_core::plan::{AnswerFormat, LlmNode};

use super::llm;
use crate::draft::Fact;
use crate::ports::{ModelAnswer, ModelError};
use crate::run::judge::CriticAnswer;
use crate::run::prepared::{Asked, Prepared};
use crate::run::view::View;

pub(super) fn prepare(view: &View<'_>, critic: &LlmNode) -> Prepared {
    llm::prepare(view, &asking(critic))
}

/// What it is asked, with the form of the answer behind its own system text: an author need not write that down.
pub(super) fn asking(critic: &LlmNode) -> LlmNode {
    let own = critic.system.as_ref().map(|own| format!("{own}\n\n")).unwrap_or_default();
    LlmNode { system: Some(format!("{own}{FORM}")), ..critic.clone() }
}

/// Behind the system text of every critic.
const FORM: &str = "Answer with one JSON object and nothing else: {\"verdict\": \"pass\"} if it is to be accepted, or \
                    {\"verdict\": \"reject\", \"feedback\": \"what to change\"}.";

pub(super) fn conclude(view: &View<'_>, answer: Result<ModelAnswer, ModelError>, asked: Asked, took: u64) -> Prepared {
    let answer = match answer {
        Ok(answer) => answer,
        Err(failed) => return llm::failed(view, failed, asked, took),
    };
    let used = llm::used(&answer, &asked);
    let said = CriticAnswer::read(llm::output(AnswerFormat::Json, &answer.text));
    aetheris_fault::sometimes!(CriticRejects, said.verdict == Verdict::Reject);
    let end = NodeFinished::new(view.path.clone(), StepResult::Pure);
    let (model, output) = (Some(used), Some(said.output()));
    Prepared::of([Fact::of(NodeFinished { model, output, took_us: Some(took), verdict: Some(said.verdict), ..end })])
}
