//! Schemas of the core's types, for the OpenAPI document. Names come from the types themselves, so
//! that the document cannot differ from what is accepted.

use aetheris_core::job::JobStatus;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::limits;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_core::step::StepStatus;
use utoipa::openapi::schema::{AdditionalProperties, Object, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{KnownFormat, SchemaFormat};

/// The form of durations.
const SPAN_PATTERN: &str = "^[0-9]{1,9}(us|ms|s|m|h|d)$";
const ID_BODY: &str = "_[0-7][0-9A-HJKMNP-TV-Z]{25}$";

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn or_null(mut object: Object) -> Object {
    if let SchemaType::Type(base) = &object.schema_type {
        object.schema_type = SchemaType::Array(vec![base.clone(), Type::Null]);
    }
    if let Some(values) = &mut object.enum_values {
        values.push(serde_json::Value::Null);
    }
    object
}

/// Any JSON value.
#[must_use]
pub fn any() -> Schema {
    utoipa::openapi::schema::empty()
}

/// A moment.
#[must_use]
pub fn time() -> Object {
    text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).build()
}

/// A moment, or nothing.
#[must_use]
pub fn time_or_null() -> Object {
    or_null(time())
}

/// A duration.
#[must_use]
pub fn span() -> Object {
    text().pattern(Some(SPAN_PATTERN)).examples([serde_json::json!("30s")]).build()
}

/// A duration, or nothing.
#[must_use]
pub fn span_or_null() -> Object {
    or_null(span())
}

/// A job's id.
#[must_use]
pub fn job_id() -> Object {
    text().pattern(Some(format!("^job{ID_BODY}"))).build()
}

/// The id of an invocation.
#[must_use]
pub fn invocation() -> Object {
    text().pattern(Some(format!("^key{ID_BODY}"))).build()
}

/// An agent's name.
#[must_use]
pub fn agent_name() -> Object {
    text().pattern(Some("^[a-z0-9-]{1,64}$")).build()
}

/// A text of an object's field, at least one byte long.
#[must_use]
pub fn session_or_null() -> Object {
    or_null(text().min_length(Some(1)).max_length(Some(32)).build())
}

/// Labels as they may be sent: within the bounds in bytes whatever the characters.
#[must_use]
pub fn labels() -> Object {
    let short = |bytes: usize| text().max_length(Some(bytes / 4));
    let key = short(limits::LABEL_BYTES_MAX).min_length(Some(1)).build();
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property_names(Some(key))
        .additional_properties(Some(AdditionalProperties::from(short(limits::LABEL_BYTES_MAX))))
        .max_properties(Some(limits::LABELS_MAX))
        .build()
}

/// A digest.
#[must_use]
pub fn hash() -> Object {
    text().pattern(Some("^[0-9a-f]{64}$")).build()
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Object {
    text().enum_values(Some(names)).build()
}

/// What a job is doing.
#[must_use]
pub fn job_status() -> Object {
    names(JobStatus::ALL.map(JobStatus::as_str))
}

/// What a step is doing.
#[must_use]
pub fn step_status() -> Object {
    names(StepStatus::ALL.map(StepStatus::as_str))
}

/// What is known of an invocation.
#[must_use]
pub fn ledger_status() -> Object {
    names(LedgerStatus::ALL.map(LedgerStatus::as_str))
}

/// What repeating a call would do.
#[must_use]
pub fn effect_class() -> Object {
    names([EffectClass::Pure, EffectClass::Idempotent, EffectClass::AtMostOnce].map(EffectClass::as_str))
}

/// What ends a wait.
#[must_use]
pub fn wait_type() -> Object {
    names([WaitType::Human, WaitType::Signal, WaitType::Timer, WaitType::Webhook].map(WaitType::as_str))
}

/// What ends a wait, or nothing.
#[must_use]
pub fn wait_type_or_null() -> Object {
    or_null(wait_type())
}

/// The wait that a signal names.
#[must_use]
pub fn correlation_key() -> Object {
    text().min_length(Some(1)).max_length(Some(limits::CORRELATION_KEY_BYTES_MAX / 4)).build()
}

/// An operator's words, or nothing.
#[must_use]
pub fn note_or_null() -> Object {
    or_null(text().max_length(Some(limits::NOTE_BYTES_MAX / 4)).build())
}
