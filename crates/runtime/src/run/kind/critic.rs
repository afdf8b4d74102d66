//! What a model says of the output of another node. Its answer is a verdict, and no output for anybody.

use aetheris_core::event::{NodeFinished, StepResult, Verdict};
use aetheris_core::plan::{AnswerFormat, LlmNode};

use super::llm;
use crate::draft::Fact;
use crate::ports::{ModelAnswer, ModelError};
use crate::run::judge::Said;
use crate::run::prepared::{Asked, Prepared};
use crate::run::view::View;

pub(super) fn prepare(view: &View<'_>, critic: &LlmNode) -> Prepared {
    llm::prepare(view, critic)
}

pub(super) fn conclude(view: &View<'_>, answer: Result<ModelAnswer, ModelError>, asked: Asked, took: u64) -> Prepared {
    let answer = match answer {
        Ok(answer) => answer,
        Err(failed) => return llm::failed(view, failed, asked, took),
    };
    let used = llm::used(&answer, &asked);
    let said = Said::read(llm::output(AnswerFormat::Json, &answer.text));
    aetheris_fault::sometimes!(CriticRejects, said.verdict == Verdict::Reject);
    let end = NodeFinished::new(view.path.clone(), StepResult::Pure);
    let (model, output) = (Some(used), Some(said.output()));
    Prepared::of([Fact::of(NodeFinished { model, output, took_us: Some(took), verdict: Some(said.verdict), ..end })])
}
