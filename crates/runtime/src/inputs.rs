//! Inputs of plain steps, which are not stored: their templates name recorded values only, so rendering
//! them again gives what the step was given, within the same bounds.

use aetheris_core::json::Json;
use aetheris_core::plan::Node;
use aetheris_expr::Context;

use crate::load::Loaded;
use crate::{names, run};

/// The names of a job, from which the inputs of its steps are made.
#[derive(Debug)]
pub struct Inputs(Context);

impl Inputs {
    /// The names of a job as it is recorded.
    #[must_use]
    pub fn of_job(loaded: &Loaded) -> Self {
        Self(names::of(&loaded.state, &loaded.effects))
    }

    /// The input of a step that calls a tool or asks a model; nothing for other kinds.
    ///
    /// # Errors
    /// In words, why it cannot be rendered, which is why the step failed.
    #[must_use]
    pub fn render(&self, node: &Node) -> Option<Result<Json, String>> {
        run::input(&node.kind, &self.0).map(|input| input.map_err(|error| error.to_string()))
    }
}
