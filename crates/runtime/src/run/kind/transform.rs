//! A value built from templates.

use aetheris_core::event::StepResult;
use aetheris_core::json::Json;

use crate::run::prepared::Prepared;
use crate::run::step;
use crate::run::view::View;

pub(super) fn prepare(view: &View<'_>, template: &Json) -> Prepared {
    match view.value(template) {
        Ok(output) => view.start().then(step::succeed(view, StepResult::Success, Some(output), None, None)),
        Err(error) => step::fail_template(view, "its output", &error),
    }
}
