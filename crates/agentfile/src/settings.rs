//! Small settings that stand at several places: retry policies, budgets, models.

use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::Budget;
use aetheris_core::retry::{Jitter, OnTimeout, RetryPolicy};
use aetheris_schema::Schema;

use crate::error::{Code, Errors};
use crate::read::Item;

/// Beyond this a back-off reaches every cap at once.
const FACTOR_MAX: f64 = 1000.0;

/// A retry policy; what it does not say is taken from `base`.
pub(crate) fn retry(item: &Item<'_>, base: &RetryPolicy, errors: &mut Errors) -> RetryPolicy {
    let mut policy = base.clone();
    let Some(mut fields) = item.fields(errors) else { return policy };
    let jitters = [("full", Jitter::Full), ("none", Jitter::None)];
    let timeouts = [("retry", OnTimeout::Retry), ("fail", OnTimeout::Fail)];
    if let Some(tries) = fields.take("max_attempts").and_then(|item| item.small(1, limits::RETRY_ATTEMPTS_MAX, errors))
    {
        policy.max_attempts = tries;
    }
    if let Some(backoff) = fields.take("backoff").and_then(|item| item.span(true, limits::BACKOFF_MAX, errors)) {
        policy.backoff = backoff;
    }
    if let Some(factor) = fields.take("factor").and_then(|item| item.decimal(1.0, FACTOR_MAX, errors)) {
        policy.factor = factor;
    }
    if let Some(most) = fields.take("max_backoff").and_then(|item| item.span(true, limits::BACKOFF_MAX, errors)) {
        policy.max_backoff = most;
    }
    if let Some(jitter) = fields.take("jitter").and_then(|item| item.choice(&jitters, &[], errors)) {
        policy.jitter = jitter;
    }
    if let Some(on_timeout) = fields.take("on_timeout").and_then(|item| item.choice(&timeouts, &[], errors)) {
        policy.on_timeout = on_timeout;
    }
    fields.finish(errors);
    policy
}

/// A budget.
pub(crate) fn budget(item: &Item<'_>, errors: &mut Errors) -> Budget {
    let Some(mut fields) = item.fields(errors) else { return Budget::default() };
    let max_tokens = fields.take("max_tokens").and_then(|item| item.integer(0, u64::MAX, errors));
    let max_tool_calls = fields.take("max_tool_calls").and_then(|item| item.small(0, u32::MAX, errors));
    if let Some(item) = fields.take("on_exceeded") {
        item.choice(&[("fail", ())], &["park"], errors);
    }
    fields.refuse(&["max_cost_usd"], errors);
    fields.finish(errors);
    Budget { max_tokens, max_tool_calls }
}

/// A JSON Schema, and what it can be asked.
pub(crate) fn schema(item: &Item<'_>, errors: &mut Errors) -> Option<(Json, Schema)> {
    let json = item.json(errors)?;
    match Schema::compile_within(&json, &mut errors.schemas) {
        Ok(schema) => Some((json, schema)),
        Err(problems) => {
            for problem in problems {
                let place = item.at(&problem.path);
                place.wrong(errors, Code::BadSchema, problem.message);
            }
            None
        }
    }
}

/// `provider/model`.
pub(crate) fn model(item: &Item<'_>, errors: &mut Errors) -> Option<String> {
    let text = item.text(errors)?;
    let complete = text.split_once('/').is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty());
    if !complete || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        item.wrong(errors, Code::BadValue, "must be written `provider/model`");
    }
    Some(text.to_owned())
}
