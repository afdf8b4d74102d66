//! Schemas of the core's types, for the OpenAPI document. Names come from the types themselves, so
//! that the document cannot differ from what is accepted.

use std::borrow::Cow;

use aetheris_core::event::{DoubtOutcome, EndCause, Judge, PauseReason, Resolver, Source, StepResult, Verdict};
use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::limits;
use aetheris_core::plan::{EffectClass, OnParentEnd, WaitType};
use aetheris_core::step::StepStatus;
use utoipa::openapi::schema::{AdditionalProperties, Object, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// The form of durations.
pub const SPAN_PATTERN: &str = "^[0-9]{1,9}(us|ms|s|m|h|d)$";

macro_rules! schemas {
    ($($(#[$doc:meta])* $name:ident as $shown:literal = $schema:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let object: Object = $schema;
                RefOr::T(Schema::Object(object))
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($shown)
            }
        }
    )*};
}

schemas! {
    /// An agent's name.
    Agent as "AgentName" = pattern("An agent's name.", "^[a-z0-9-]{1,64}$");
    /// An agent's file, as far as clients must know it to send one.
    AgentFile as "AgentFile" = agent_file();
    /// Any JSON value.
    Any as "Json" = ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some("Any JSON value.")).build();
    /// The wait that a signal names.
    CorrelationKey as "CorrelationKey" = bounded(1, limits::CORRELATION_KEY_CHARS_MAX);
    /// What repeating a call would do.
    Effect as "EffectClass" = names([EffectClass::Pure, EffectClass::Idempotent, EffectClass::AtMostOnce].map(EffectClass::as_str));
    /// Why the holder of a job was asked to stop.
    End as "EndCause" = names([EndCause::Cancel, EndCause::Deadline, EndCause::Pause].map(|cause| match cause {
        EndCause::Cancel => "cancel",
        EndCause::Deadline => "deadline",
        EndCause::Pause => "pause",
    }));
    /// A digest.
    Digest as "Hash" = pattern("A SHA-256 digest.", "^[0-9a-f]{64}$");
    /// The id of an invocation.
    Invocation as "InvocationId" = pattern("The id of an invocation.", "^key_[0-7][0-9A-HJKMNP-TV-Z]{25}$");
    /// A job's id.
    Job as "JobId" = pattern("A job's id.", "^job_[0-7][0-9A-HJKMNP-TV-Z]{25}$");
    /// What a job is doing.
    Status as "JobStatus" = names(JobStatus::ALL.map(JobStatus::as_str));
    /// Why a job is held still.
    Pause as "PauseReason" = names(PauseReason::ALL.map(PauseReason::as_str));
    /// Labels as they may be sent.
    Labels as "Labels" = labels();
    /// What is known of an invocation.
    Ledger as "LedgerStatus" = names(LedgerStatus::ALL.map(LedgerStatus::as_str));
    /// An operator's words.
    Note as "Note" = text().min_length(Some(1)).max_length(Some(limits::NOTE_CHARS_MAX)).pattern(Some(r"\S")).build();
    /// How a step ended.
    Result as "StepResult" = names(RESULTS.map(result));
    /// The name of a conversation.
    Session as "SessionId" = bounded(1, limits::LABEL_CHARS_MAX);
    /// A duration.
    Duration as "Duration" = duration();
    /// Where a result came from.
    Origin as "Source" = names([Source::Executed, Source::CaughtUp, Source::Reconciled, Source::Resolved].map(Source::as_str));
    /// What became of a call whose outcome was unknown.
    Doubt as "DoubtOutcome" = names(DoubtOutcome::ALL.map(DoubtOutcome::as_str));
    /// Who answered a doubt.
    Answerer as "Resolver" = names(Resolver::ALL.map(Resolver::as_str));
    /// What was said of an output.
    Judged as "Verdict" = names(Verdict::ALL.map(Verdict::as_str));
    /// What becomes of a child job when its parent ends.
    OnParent as "OnParentEnd" = names([OnParentEnd::Cancel, OnParentEnd::Leave].map(OnParentEnd::as_str));
    /// Who rejected an output.
    Rejecter as "Judge" = names(Judge::ALL.map(Judge::as_str));
    /// What a step is doing.
    Step as "StepStatus" = names(StepStatus::ALL.map(StepStatus::as_str));
    /// A moment.
    Time as "Time" = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).description(Some("A moment, in UTC.")).build();
    /// What ends a wait.
    Wait as "WaitType" = names([WaitType::Child, WaitType::Human, WaitType::Signal, WaitType::Timer, WaitType::Webhook].map(WaitType::as_str));
}

const RESULTS: [StepResult; 5] = [
    StepResult::Success,
    StepResult::Pure,
    StepResult::SideEffectCommitted,
    StepResult::RetryableFailure,
    StepResult::PermanentFailure,
];

const fn result(result: StepResult) -> &'static str {
    match result {
        StepResult::Success => "success",
        StepResult::Pure => "pure",
        StepResult::SideEffectCommitted => "side_effect_committed",
        StepResult::RetryableFailure => "retryable_failure",
        StepResult::PermanentFailure => "permanent_failure",
    }
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn pattern(description: &str, pattern: &str) -> Object {
    text().description(Some(description)).pattern(Some(pattern)).build()
}

fn bounded(least: usize, most: usize) -> Object {
    let least = Some(least).filter(|least| *least > 0);
    text().min_length(least).max_length(Some(most)).build()
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Object {
    text().enum_values(Some(names)).build()
}

fn duration() -> Object {
    let description = "A duration: a whole number and its unit.";
    let examples = ["250ms", "30s", "24h"].map(|text| serde_json::json!(text));
    text().description(Some(description)).pattern(Some(SPAN_PATTERN)).examples(examples).build()
}

fn agent_file() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("An agent's file; `/api/schema/agent` has the whole of its form."))
        .property("agent", Agent::schema())
        .required("agent")
        .property("plan", ObjectBuilder::new().schema_type(Type::Object))
        .required("plan")
        .build()
}

fn labels() -> Object {
    let value = text().max_length(Some(limits::LABEL_CHARS_MAX));
    let key = text().min_length(Some(1)).max_length(Some(limits::LABEL_CHARS_MAX)).pattern(Some("^[^:=]+$"));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property_names(Some(key.build()))
        .additional_properties(Some(AdditionalProperties::from(value)))
        .max_properties(Some(limits::LABELS_MAX))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_function_of_the_core_are_those_that_it_writes() {
        for known in RESULTS {
            assert_eq!(serde_json::to_value(known).unwrap(), result(known));
        }
        assert_eq!(
            serde_json::to_value([EndCause::Cancel, EndCause::Deadline, EndCause::Pause]).unwrap(),
            serde_json::json!(["cancel", "deadline", "pause"])
        );
    }
}
