//! What events say of models' calls.

use aetheris_core::event::FinishReason;
use utoipa::openapi::schema::{ObjectBuilder, Type};

use super::{Field, Form, MAY, MUST, count, named, names_of, object, text};
use crate::schema;

fn usage() -> Form {
    let fields: [Field; 4] = [
        ("cached_tokens", MAY, count),
        ("completion_tokens", MUST, count),
        ("prompt_tokens", MUST, count),
        ("reasoning_tokens", MAY, count),
    ];
    object(&fields, "What a model call used.").into()
}

pub(super) fn model() -> Form {
    let fields: [Field; 5] = [
        ("finish", MAY, finish),
        ("model", MUST, text),
        ("parameters", MAY, parameters),
        ("prompt_hash", MUST, named::<schema::Digest>),
        ("usage", MUST, usage),
    ];
    object(&fields, "Which model answered what.").into()
}

fn finish() -> Form {
    names_of(FinishReason::ALL.map(FinishReason::as_str)).into()
}

fn parameters() -> Form {
    let fields: [Field; 4] = [
        ("format", MAY, || names_of(["json", "text"]).into()),
        ("max_tokens", MAY, count),
        ("model", MUST, text),
        ("temperature", MAY, || ObjectBuilder::new().schema_type(Type::Number).into()),
    ];
    object(&fields, "How the model was asked.").into()
}
