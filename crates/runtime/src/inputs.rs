//! Inputs of plain steps, which are not stored: their templates name recorded values only, so rendering
//! them again gives what the step was given, within the same bounds.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::id::NodeId;
use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{MapNode, Step};
use aetheris_core::state::Values;
use aetheris_expr::{Context, Draws, Item, Scope};

use crate::load::Loaded;
use crate::{names, run};

/// The names of a job, from which the inputs of its steps are made.
#[derive(Debug)]
pub struct Inputs {
    names: Context,
    /// What was open when a step started.
    open: BTreeMap<StepPath, BTreeSet<NodeId>>,
    /// What was drawn for a step.
    values: BTreeMap<StepPath, Values>,
}

impl Inputs {
    /// The names of a job as it is recorded.
    #[must_use]
    pub fn of_job(loaded: &Loaded) -> Self {
        let eager = loaded.state.steps.iter().filter(|(_, step)| !step.open.is_empty());
        let open = eager.map(|(path, step)| (path.clone(), step.open.clone())).collect();
        let drawn = loaded.state.steps.iter().filter(|(_, step)| step.values != Values::default());
        let values = drawn.map(|(path, step)| (path.clone(), step.values.clone())).collect();
        Self { names: names::of(&loaded.state, &loaded.effects), open, values }
    }

    /// The list of a map, as it was when the map began.
    fn list(&self, map: &MapNode, open: Option<&BTreeSet<NodeId>>) -> Result<Vec<Json>, String> {
        let value = aetheris_expr::render(&map.over, names::seen_by(&self.names, open, None));
        run::items(&value.map_err(|error| error.to_string())?).map_err(|refused| refused.message)
    }

    /// The input of a step that calls a tool or asks a model; nothing for other kinds.
    ///
    /// # Errors
    /// In words, why it cannot be rendered, which is why the step failed.
    #[must_use]
    pub fn render(&self, step: &Step<'_>) -> Option<Result<Json, String>> {
        let open = self.open.get(&StepPath::from(&step.node.id));
        let of_map = step.node.work.map().zip(step.path.item());
        let list = match of_map.map(|(map, _)| self.list(map, open)).transpose() {
            Ok(list) => list.unwrap_or_default(),
            Err(error) => return Some(Err(error)),
        };
        let item = of_map.and_then(|(map, index)| {
            let value = list.get(usize::try_from(index).ok()?)?;
            Some(Item { index, name: &map.name, value })
        });
        let none = Values::default();
        let draws = Draws::new(self.values.get(&step.path).unwrap_or(&none), 0, None);
        let seen = Scope { draws: Some(&draws), ..names::seen_by(&self.names, open, item) };
        run::input(&step.work.kind, seen).map(|input| input.map_err(|error| error.to_string()))
    }
}
