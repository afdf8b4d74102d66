//! Inputs of plain steps, which are not stored: their templates name recorded values only, so rendering
//! them again gives what the step was given, within the same bounds.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::id::NodeId;
use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::plan::Node;
use aetheris_expr::Context;

use crate::load::Loaded;
use crate::{names, run};

/// The names of a job, from which the inputs of its steps are made.
#[derive(Debug)]
pub struct Inputs {
    names: Context,
    /// What was open when a step started.
    open: BTreeMap<StepPath, BTreeSet<NodeId>>,
}

impl Inputs {
    /// The names of a job as it is recorded.
    #[must_use]
    pub fn of_job(loaded: &Loaded) -> Self {
        let eager = loaded.state.steps.iter().filter(|(_, step)| !step.open.is_empty());
        let open = eager.map(|(path, step)| (path.clone(), step.open.clone())).collect();
        Self { names: names::of(&loaded.state, &loaded.effects), open }
    }

    /// The input of a step that calls a tool or asks a model; nothing for other kinds.
    ///
    /// # Errors
    /// In words, why it cannot be rendered, which is why the step failed.
    #[must_use]
    pub fn render(&self, node: &Node) -> Option<Result<Json, String>> {
        let seen = names::seen_by(&self.names, self.open.get(&StepPath::from(&node.id)));
        run::input(&node.kind, seen).map(|input| input.map_err(|error| error.to_string()))
    }
}
