//! A value built from templates.

use aetheris_core::json::Json;

use crate::run::facts;
use crate::run::prepared::Prepared;
use crate::run::view::View;

pub(super) fn prepare(view: &View<'_>, template: &Json) -> Prepared {
    match view.value(template) {
        Ok(output) => facts::start(view).then(facts::succeed(view, Some(output))),
        Err(error) => facts::fail_template(view, "its output", &error),
    }
}
