//! What the steps of a job were given, and what they gave.

use aetheris_core::json::Json;
use aetheris_core::path::StepPath;
use aetheris_core::step::StepStatus;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::jobs::JobErrorView;
use crate::schema;

/// Where a shown value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ValueOrigin {
    /// From the job's record.
    Recorded,
    /// Rendered again, from recorded values, for this answer.
    Rendered,
}

/// A value, or the beginning of one that is larger than was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValueView {
    /// How many bytes it has as JSON.
    pub bytes: u64,
    /// Why it cannot be rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Where it comes from.
    pub from: ValueOrigin,
    /// Its beginning, where it is too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The value, where it is small enough.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "Json::present")]
    #[schema(value_type = schema::Any)]
    pub value: Option<Json>,
}

/// A step with its values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepValuesView {
    /// Why it failed, or is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobErrorView>,
    /// What its first round was given and gave, where others have followed: `input` and `output` are those of the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_round: Option<RoundValuesView>,
    /// What it was given. A plain step's is not recorded: it is rendered again where that is asked for.
    pub input: Option<ValueView>,
    /// The node.
    #[schema(value_type = String)]
    pub node_id: StepPath,
    /// What it gave.
    pub output: Option<ValueView>,
    /// What it is doing.
    #[schema(value_type = schema::Step)]
    pub status: StepStatus,
}

/// What a round was given, and what it gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RoundValuesView {
    /// What it was given.
    pub input: Option<ValueView>,
    /// What it gave.
    pub output: Option<ValueView>,
}

/// A page of steps in the order of the plan; steps that have not begun are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepPage {
    /// Give it as `cursor` to have the next page; `null` at the end.
    pub next_cursor: Option<String>,
    /// The steps.
    pub steps: Vec<StepValuesView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_null_is_a_value() {
        let null: ValueView = serde_json::from_str(r#"{"bytes":4,"from":"recorded","value":null}"#).unwrap();
        assert_eq!(null.value, Some(Json::null()));
        let none: ValueView = serde_json::from_str(r#"{"bytes":4,"from":"recorded","text":"\"ab"}"#).unwrap();
        assert_eq!(none.value, None);
        let job = r#"{"agent":"a","agent_version":"1","created_at":"2026-11-21T09:30:00Z","epoch":0,"id":"job_01M7XZ5CJ7E4WSJSS650N53FT6",
            "status":"completed","updated_at":"2026-11-21T09:30:00Z","message":null,"result":null}"#;
        let job: crate::JobView = serde_json::from_str(job).unwrap();
        assert_eq!((job.message, job.result), (Some(Json::null()), Some(Json::null())));
    }
}
