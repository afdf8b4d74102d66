//! Inputs of plain steps, which are not stored: their templates name recorded values only, so rendering
//! them again gives what the step was given, within the same bounds.

use std::collections::BTreeSet;

use aetheris_core::id::NodeId;
use aetheris_core::json::Json;
use aetheris_core::plan::{MapNode, Node, Step};
use aetheris_core::state::StepState;
use aetheris_expr::{Context, Draws, Item, Judged, Scope};

use crate::load::Loaded;
use crate::{names, run};

/// The names of a job, from which the inputs of its steps are made.
#[derive(Debug)]
pub struct Inputs<'l> {
    loaded: &'l Loaded,
    names: Context,
}

impl<'l> Inputs<'l> {
    /// The names of a job as it is recorded.
    #[must_use]
    pub fn of_job(loaded: &'l Loaded) -> Self {
        Self { loaded, names: names::of(&loaded.state, &loaded.effects) }
    }

    /// The list of a map, as it was when the map began.
    fn list(&self, node: &Node, map: &MapNode, open: Option<&BTreeSet<NodeId>>) -> Result<Vec<Json>, String> {
        let round = names::round(&self.loaded.state, &Step::from(node));
        let value = aetheris_expr::render(&map.over, Scope { round, ..names::seen_by(&self.names, open, None) });
        run::items(&value.map_err(|error| error.to_string())?).map_err(|refused| refused.message)
    }

    /// The input of a step that calls a tool or asks a model; nothing for other kinds.
    ///
    /// # Errors
    /// In words, why it cannot be rendered, which is why the step failed.
    #[must_use]
    pub fn render(&self, step: &Step<'_>) -> Option<Result<Json, String>> {
        let state = &self.loaded.state;
        if let Some(asked) = state.asked_of(&step.path) {
            return Some(Ok(run::given(asked)));
        }
        // A turn is given the whole conversation, of which each part is shown where it stands.
        if !step.path.is_outside_loop() {
            return None;
        }
        let open = state.step_of(&step.node.id).map(|step| &step.open);
        let of_map = step.node.work.map().zip(step.path.item());
        let list = match of_map.map(|(map, _)| self.list(step.node, map, open)).transpose() {
            Ok(list) => list.unwrap_or_default(),
            Err(error) => return Some(Err(error)),
        };
        let item = of_map.and_then(|(map, index)| {
            let value = list.get(usize::try_from(index).ok()?)?;
            Some(Item { index, name: &map.name, value })
        });
        let none = StepState::default();
        let told = state.steps.get(&step.path).unwrap_or(&none);
        let draws = Draws::new(&told.values, 0, None);
        let round = names::round(state, step);
        let of_critic = step.path.judged().and_then(|judged| state.steps.get_key_value(&judged));
        let output = of_critic.and_then(|judged| names::gave(state, &self.loaded.effects, judged));
        let judged = output.as_ref().map(|output| Judged { output, round: step.path.round() });
        let seen = Scope { draws: Some(&draws), judged, round, ..names::seen_by(&self.names, open, item) };
        run::input(&step.work.kind, seen).map(|input| input.map_err(|error| error.to_string()))
    }
}
