//! The plan of a job is that of the first rule whose condition holds for its message.

use aetheris_core::event::Failure;
use aetheris_core::json::Json;
use aetheris_core::plan::{Plan, Rule};
use aetheris_expr::{ExprError, Scope};
use serde_json::json;

use crate::aside::rendered;
use crate::run::facts;
use crate::run::prepared::Prepared;
use crate::run::view::View;

/// Error code: no rule holds.
pub(crate) const NO_RULE: &str = "no_rule";

pub(super) fn prepare(view: &View<'_>, rules: &[Rule]) -> Prepared {
    match choose(rules, view.names) {
        Ok(Some(place)) => facts::start(view).then(facts::succeed(view, Some(Json::new(json!({ "rule": place }))))),
        Ok(None) => facts::fail(view, Failure::new(NO_RULE, none_holds(rules))),
        Err(Unclear { error, place }) => facts::fail_template(view, &format!("`rules[{place}].when`"), &error),
    }
}

/// A rule that neither holds nor does not.
pub(crate) struct Unclear {
    /// Why.
    pub(crate) error: ExprError,
    /// Its place among the rules.
    pub(crate) place: usize,
}

/// The first rule that holds.
///
/// # Errors
/// The condition of one before it cannot be evaluated: it neither holds nor does not.
pub(crate) fn choose(rules: &[Rule], names: Scope<'_>) -> Result<Option<usize>, Unclear> {
    for (place, rule) in rules.iter().enumerate() {
        let holds = match &rule.when {
            Some(when) => rendered(names, |texts| texts.holds(when)),
            None => Ok(true),
        };
        match holds {
            Ok(true) => return Ok(Some(place)),
            Ok(false) => {}
            Err(_) if aetheris_fault::planted!("unclear-rule-does-not-hold") => {}
            Err(error) => return Err(Unclear { error, place }),
        }
    }
    Ok(None)
}

/// What is said of a message for which no rule holds.
pub(crate) fn none_holds(rules: &[Rule]) -> String {
    let none = match rules.len() {
        1 => "the agent's only rule does not hold".to_owned(),
        count => format!("none of the agent's {count} rules holds"),
    };
    format!("{none} for the message; a last rule without `when` holds for every message")
}

/// The plan of the rule that was chosen.
pub(in crate::run) fn made(planning: &Plan, answer: &Json) -> Option<Plan> {
    let place = usize::try_from(answer.get("rule")?.as_u64()?).ok()?;
    planning.rules().get(place).map(|rule| planning.with(rule.graph.clone()))
}
