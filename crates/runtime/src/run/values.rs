//! Values that nobody can compute again: what the templates of a step ask for beside what is recorded, on the way into the
//! record.

use std::cell::{Cell, RefCell};

use aetheris_core::event::{Draw, Drawn, EventKind, ValueRecorded};
use aetheris_core::path::StepPath;
use aetheris_core::state::Values;
use aetheris_expr::{Draws, ExprError, Scope, Texts};

use super::prepared::{Next, Prepared};
use super::view::View;
use super::{facts, judge};
use crate::aside::rendered;
use crate::draft::Fact;

/// What one decision about a step has drawn.
#[derive(Debug, Default)]
pub struct Drawing {
    /// What is not recorded yet, in the order in which it was asked for.
    fresh: RefCell<Vec<Drawn>>,
    /// How many values were given out.
    given: Cell<usize>,
    /// The step's moment was asked for, and is not recorded.
    wants_now: Cell<bool>,
}

impl View<'_> {
    /// Renders templates that may ask for such values.
    pub(super) fn drawing<T>(&self, render: impl Fn(&mut Texts<'_>) -> Result<T, ExprError>) -> Result<T, ExprError> {
        let none = Values::default();
        let recorded = self.state.steps.get(&drawn_for(&self.path)).map_or(&none, |step| &step.values);
        let ids = self.ids;
        let chance = move || ids.secret();
        let draws = Draws::new(recorded, self.drawing.given.get(), Some(&chance));
        let made = rendered(
            Scope { draws: Some(&draws), judged: judge::seen(self, self.judged.as_ref()), ..self.names },
            render,
        );
        let (given, fresh) = draws.end();
        self.drawing.given.set(self.drawing.given.get() + given);
        self.drawing.fresh.borrow_mut().extend(fresh);
        if matches!(made, Err(ExprError::Unrecorded { draw: Draw::Now })) {
            self.drawing.wants_now.set(true);
        }
        made
    }
}

/// The step that values are drawn for: a loop is given its own once, for all of its turns.
fn drawn_for(path: &StepPath) -> StepPath {
    if aetheris_fault::planted!("loop-drawn-for-anew") {
        return path.clone();
    }
    path.of_loop()
}

/// Puts on record what a decision has drawn, with its facts and before what they lead to. A moment is the store's to give:
/// it is recorded first, and the step decided anew.
pub(super) fn record(view: &View<'_>, prepared: Prepared) -> Prepared {
    let node = drawn_for(&view.path);
    if view.drawing.wants_now.get() {
        let recorded = ValueRecorded { node, values: vec![Drawn::Now] };
        return facts::start(view).and(Fact::of(recorded)).next(Next::Record);
    }
    let values = view.drawing.fresh.take();
    let starts = prepared.facts.iter().position(|fact| fact.event.kind() == EventKind::NodeStarted);
    let begun = starts.is_some() || view.is_under_way();
    if values.is_empty() || !begun || aetheris_fault::planted!("drawn-values-forgotten") {
        return prepared;
    }
    let mut prepared = prepared;
    prepared.facts.insert(starts.map_or(0, |start| start + 1), Fact::of(ValueRecorded { node, values }));
    prepared
}
