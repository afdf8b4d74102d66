//! A durable pause: the job waits for time alone, holding neither lease nor slot.

use aetheris_core::event::JobWaiting;
use aetheris_core::json::Json;
use aetheris_core::plan::WaitType;
use aetheris_core::time::Span;

use super::wait;
use crate::run::facts;
use crate::run::prepared::{Arrival, Prepared, Reached};
use crate::run::view::View;

pub(super) fn prepare(view: &View<'_>, duration: Span) -> Prepared {
    if view.step().is_some_and(|step| step.wait_end.is_some()) {
        return facts::succeed(view, Some(Json::null()));
    }
    let waiting = JobWaiting {
        correlation_key: None,
        doubt: false,
        node: view.path.clone(),
        park: false,
        reason: Some(format!("sleeping for {duration}")),
        wait_type: WaitType::Timer,
    };
    let reached = Reached { kept: Vec::new(), lasts: Some(duration), waiting };
    wait::block(view, reached, Arrival::default())
}
