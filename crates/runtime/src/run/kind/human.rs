//! A tool that asks a person. The step waits for a signal as a wait does, and what the signal brings is what the tool answers.
//! Nothing leaves the process, so that nothing of it is ever in doubt.

use aetheris_core::event::{Failure, JobWaiting, WaitCompleted, WaitEnd};
use aetheris_core::id::JobId;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{HumanTool, WaitType};
use aetheris_core::step::StepStatus;
use aetheris_expr::{Context, ExprError};

use super::wait;
use crate::aside::rendered;
use crate::draft::Fact;
use crate::run::facts;
use crate::run::prepared::Prepared;
use crate::run::view::View;

/// Error code: nobody answered in time.
const DEADLINE: &str = "deadline";

/// What a signal must name that answers the question of a step. No two questions have one name.
#[must_use]
fn correlation_key(job: JobId, path: &StepPath) -> String {
    if aetheris_fault::planted!("questions-share-a-key") {
        return format!("{job}/{}", path.node());
    }
    format!("{job}/{path}")
}

/// The step that a key of this form names, if it is one of this job.
#[must_use]
pub(crate) fn asking_step(job: JobId, key: &str) -> Option<StepPath> {
    key.strip_prefix(&job.to_string())?.strip_prefix('/').map(StepPath::from)
}

/// Asks a person, or goes on with what came of it.
pub(super) fn prepare(view: &View<'_>, human: &HumanTool, input: impl FnOnce() -> Result<Json, ExprError>) -> Prepared {
    match view.step().and_then(|step| step.wait_end.as_deref()) {
        // The payload is stored in `wait_completed` and not a second time.
        Some(WaitEnd::Signal { .. }) => {
            aetheris_fault::sometimes!(QuestionAnswered);
            aetheris_fault::sometimes!(QuestionOfModelAnswered, view.path.call().is_some());
            return facts::succeed(view, None);
        }
        Some(WaitEnd::Time) if aetheris_fault::planted!("silence-is-an-answer") => return facts::succeed(view, None),
        Some(WaitEnd::Time | WaitEnd::Dropped) => {
            aetheris_fault::sometimes!(QuestionOverdue);
            let within = human.deadline.map(|deadline| format!(" within {deadline}")).unwrap_or_default();
            return facts::fail(view, Failure::new(DEADLINE, format!("nobody answered the question{within}")));
        }
        None => {}
    }
    let input = match input() {
        Ok(input) => input,
        Err(error) => return facts::fail_template(view, "its input", &error),
    };
    let question = match question(view, human, input) {
        Ok(question) => question,
        Err(error) => return facts::fail_template(view, "the tool's question", &error),
    };
    let waiting = JobWaiting {
        correlation_key: Some(correlation_key(view.state.id, &view.path)),
        doubt: false,
        node: view.path.clone(),
        park: true,
        reason: Some(limits::cut(question, limits::WAIT_REASON_BYTES_MAX)),
        wait_type: WaitType::Human,
    };
    wait::reach(view, waiting, human.deadline, human.schema.as_ref())
}

fn question(view: &View<'_>, human: &HumanTool, input: Json) -> Result<String, ExprError> {
    let names = Context { input: Some(input), job: view.names.names.job.clone(), ..Context::default() };
    rendered(&names, |texts| texts.render(&human.question))
}

/// Nobody waits for the answer of a step any more that is given up.
pub(in crate::run) fn dropped(view: &View<'_>) -> Prepared {
    let planted = aetheris_fault::planted!("question-not-withdrawn");
    let waits = view.status() == StepStatus::Waiting && view.state.blocks.of(&view.path).is_some() && !planted;
    aetheris_fault::sometimes!(QuestionDropped, waits);
    let node = view.path.clone();
    Prepared::of(waits.then(|| Fact::of(WaitCompleted { by: WaitEnd::Dropped, node })).into_iter().collect::<Vec<_>>())
}
