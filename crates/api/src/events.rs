//! The forms of events, for the OpenAPI document: one schema for each kind and its payload, told apart by `type`.
//!
//! The table stands beside the payloads of the core and is held to them by a test: the same kinds, the same fields, and
//! of each the same that must be there.

mod models;

use std::borrow::Cow;
use std::collections::BTreeMap;

use aetheris_core::disproof::Grounds;
use aetheris_core::event::{
    BranchStatus, DoubtOutcome, EventKind, InvocationOutcome, Judge, RequeueReason, Resolver, SkipReason, Then,
};
use utoipa::openapi::schema::{
    AdditionalProperties, AnyOfBuilder, ArrayBuilder, Discriminator, Object, ObjectBuilder, OneOfBuilder, Schema, Type,
};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::schema;

type Form = RefOr<Schema>;

/// A field of a payload: its name, whether it is always there, what it holds.
type Field = (&'static str, bool, fn() -> Form);

const MUST: bool = true;
const MAY: bool = false;

/// What each kind of event says.
const PAYLOADS: &[(EventKind, &[Field])] = &[
    (
        EventKind::JobCreated,
        &[
            ("agent", MUST, text),
            ("agent_version", MUST, text),
            ("execution_version", MUST, text),
            ("labels", MAY, texts),
            ("message", MUST, any),
            ("parent", MAY, parent),
            ("planning", MAY, named::<schema::Digest>),
            ("priority", MAY, whole),
            ("run_at", MAY, named::<schema::Time>),
            ("session", MAY, text),
            ("tenant", MAY, text),
        ],
    ),
    (
        EventKind::PlanGenerated,
        &[
            ("plan_hash", MUST, named::<schema::Digest>),
            ("plan_version", MUST, count),
            ("planner", MUST, text),
            ("planner_version", MUST, text),
        ],
    ),
    (EventKind::JobClaimed, &[("attempt_id", MUST, text), ("instance", MUST, text), ("worker", MUST, text)]),
    (EventKind::JobRequeued, &[("after_us", MAY, count), ("reason", MUST, requeue_reason)]),
    (
        EventKind::JobWaiting,
        &[
            ("correlation_key", MAY, text),
            ("doubt", MAY, yes_or_no),
            ("node", MUST, text),
            ("park", MAY, yes_or_no),
            ("reason", MAY, text),
            ("wait_type", MUST, named::<schema::Wait>),
        ],
    ),
    (EventKind::WaitCompleted, &[("by", MUST, wait_end), ("node", MUST, text)]),
    (EventKind::JobCancelRequested, &[("cause", MUST, named::<schema::End>)]),
    (EventKind::JobCompleted, &[("answer", MUST, answer)]),
    (EventKind::JobFailed, &[("error", MUST, failure), ("node", MAY, text)]),
    (EventKind::JobCancelled, &[]),
    (
        EventKind::NodeStarted,
        &[
            ("items", MAY, items),
            ("needs", MAY, needs),
            ("node", MUST, text),
            ("try", MUST, count),
            ("turns", MAY, yes_or_no),
        ],
    ),
    (
        EventKind::NodeFinished,
        &[
            ("absorbed", MAY, yes_or_no),
            ("error", MAY, failure),
            ("given_up", MAY, yes_or_no),
            ("model", MAY, models::model),
            ("node", MUST, text),
            ("output", MAY, any),
            ("result", MUST, named::<schema::Result>),
            ("told", MAY, yes_or_no),
            ("took_us", MAY, count),
            ("turn", MAY, turn),
            ("verdict", MAY, named::<schema::Judged>),
        ],
    ),
    (
        EventKind::NodeRetryScheduled,
        &[("after_us", MUST, count), ("error", MUST, failure), ("model", MAY, models::model), ("node", MUST, text)],
    ),
    (EventKind::NodeSkipped, &[("node", MUST, text), ("reason", MUST, skip_reason)]),
    (
        EventKind::ToolInvocationStarted,
        &[
            ("effect", MUST, named::<schema::Effect>),
            ("input", MAY, any),
            ("key", MUST, text),
            ("lifetime_us", MUST, count),
            ("node", MUST, text),
            ("permit", MUST, count),
            ("permit_id", MUST, text),
            ("tool", MUST, text),
            ("tool_version", MAY, text),
        ],
    ),
    (
        EventKind::ToolInvocationFinished,
        &[
            ("error", MAY, failure),
            ("node", MUST, text),
            ("outcome", MUST, outcome),
            ("permit", MUST, count),
            ("source", MAY, named::<schema::Origin>),
        ],
    ),
    (EventKind::CommandCommitted, &[("node", MUST, text), ("result_hash", MUST, named::<schema::Digest>)]),
    (EventKind::TimerSet, &[("after_us", MUST, count), ("timer", MUST, text)]),
    (EventKind::TimerFired, &[("timer", MUST, text)]),
    (
        EventKind::StepInDoubt,
        &[("node", MUST, text), ("permit", MUST, count), ("policy", MUST, count), ("reason", MUST, text)],
    ),
    (
        EventKind::InDoubtResolved,
        &[
            ("by", MUST, resolver),
            ("grounds", MAY, grounds),
            ("node", MUST, text),
            ("note", MAY, text),
            ("outcome", MUST, doubt_outcome),
            ("permit", MUST, count),
            ("result", MAY, any),
            ("settle_us", MAY, count),
            ("then", MAY, then),
        ],
    ),
    (EventKind::JobPaused, &[("reason", MUST, named::<schema::Pause>)]),
    (EventKind::JobResumed, &[]),
    (
        EventKind::SignalRefused,
        &[
            ("correlation_key", MUST, text),
            ("node", MUST, text),
            ("payload_hash", MUST, named::<schema::Digest>),
            ("signal", MUST, text),
            ("violations", MUST, violations),
        ],
    ),
    (EventKind::JobPauseRequested, &[]),
    (EventKind::ValueRecorded, &[("node", MUST, text), ("values", MUST, drawn)]),
    (
        EventKind::NodeRefining,
        &[("by", MUST, judge), ("feedback", MUST, text), ("node", MUST, text), ("round", MUST, count)],
    ),
    (
        EventKind::ChildStarted,
        &[
            ("agent", MUST, text),
            ("agent_version", MUST, text),
            ("child", MUST, text),
            ("deadline_us", MAY, count),
            ("depth", MUST, count),
            ("message", MUST, any),
            ("node", MUST, text),
            ("on_parent_end", MUST, named::<schema::OnParent>),
            ("parent_deadline", MAY, named::<schema::Time>),
            ("plan_hash", MUST, named::<schema::Digest>),
            ("planner", MUST, text),
            ("session", MAY, text),
            ("sessions", MAY, digests),
            ("waits", MAY, yes_or_no),
        ],
    ),
    (EventKind::ChildEnded, &[("child", MUST, text), ("node", MUST, text), ("outcome", MUST, child_outcome)]),
];

/// An event of any kind.
#[derive(Debug)]
pub enum AnyEvent {}

impl PartialSchema for AnyEvent {
    fn schema() -> Form {
        let mut kinds = OneOfBuilder::new();
        let mut mapping = BTreeMap::new();
        for (kind, _) in PAYLOADS {
            let form = Ref::from_schema_name(event_name(*kind));
            mapping.insert(kind.as_str().to_owned(), form.ref_location.clone());
            kinds = kinds.item(form);
        }
        let mapping = mapping.into_iter().collect::<Vec<_>>();
        kinds
            .item(Ref::from_schema_name(OTHER))
            .description(Some("An immutable fact of a job's stream. Its `type` says what its `payload` has."))
            .discriminator(Some(Discriminator::with_mapping("type", mapping)))
            .into()
    }
}

impl ToSchema for AnyEvent {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("EventView")
    }

    fn schemas(schemas: &mut Vec<(String, Form)>) {
        for (kind, fields) in PAYLOADS {
            let payload = payload_name(*kind);
            schemas
                .push((event_name(*kind), event(&names_of([kind.as_str()]), Ref::from_schema_name(&payload).into())));
            schemas.push((payload, object(fields, &format!("What `{}` says.", kind.as_str())).into()));
        }
        for (name, form) in [
            reference::<schema::Any>(),
            reference::<schema::Digest>(),
            reference::<schema::Effect>(),
            reference::<schema::End>(),
            reference::<schema::Origin>(),
            reference::<schema::Pause>(),
            reference::<schema::Result>(),
            reference::<schema::Judged>(),
            reference::<schema::Time>(),
            reference::<schema::Wait>(),
        ] {
            schemas.push((name, form));
        }
        let unknown = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^unknown_[0-9]+$")).build();
        schemas.push((OTHER.to_owned(), event(&unknown, any())));
    }
}

/// What this build does not know.
const OTHER: &str = "OtherEvent";

fn camel(kind: EventKind) -> String {
    let upper = |word: &str| word[..1].to_uppercase() + &word[1..];
    kind.as_str().split('_').map(upper).collect()
}

fn event_name(kind: EventKind) -> String {
    format!("{}Event", camel(kind))
}

fn payload_name(kind: EventKind) -> String {
    format!("{}Payload", camel(kind))
}

/// What every event has, with the type and the payload of one kind.
fn event(kind: &Object, payload: Form) -> Form {
    let described = |text: &str, form: ObjectBuilder| form.description(Some(text)).build();
    let fields: [(&str, Form); 10] = [
        ("at", named::<schema::Time>()),
        (
            "epoch",
            described("The claim under which it was written, or the last one where its author had none.", number())
                .into(),
        ),
        ("generation", described("The number of the store's life.", number()).into()),
        ("hash", named::<schema::Digest>()),
        ("id", described("Its author's name for it.", ObjectBuilder::new().schema_type(Type::String)).into()),
        ("payload", payload),
        ("payload_hash", named::<schema::Digest>()),
        ("schema_version", described("The version of its payload's schema.", number()).into()),
        ("seq", described("Its place: 1, 2, … without gaps.", number()).into()),
        ("type", kind.clone().into()),
    ];
    let whole = fields.into_iter().fold(ObjectBuilder::new().schema_type(Type::Object), |object, (name, form)| {
        object.property(name, form).required(name)
    });
    whole.into()
}

fn object(fields: &[Field], description: &str) -> Object {
    let object = ObjectBuilder::new().schema_type(Type::Object).description(Some(description));
    let all = fields.iter().fold(object, |object, (name, must, form)| {
        let object = object.property(*name, form());
        if *must { object.required(*name) } else { object }
    });
    all.build()
}

fn named<T: ToSchema>() -> Form {
    Ref::from_schema_name(T::name()).into()
}

fn reference<T: ToSchema>() -> (String, Form) {
    (T::name().into_owned(), T::schema())
}

fn any() -> Form {
    named::<schema::Any>()
}

fn text() -> Form {
    ObjectBuilder::new().schema_type(Type::String).into()
}

fn texts() -> Form {
    let values = AdditionalProperties::from(ObjectBuilder::new().schema_type(Type::String));
    ObjectBuilder::new().schema_type(Type::Object).additional_properties(Some(values)).into()
}

fn number() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0))
}

fn count() -> Form {
    number().into()
}

fn whole() -> Form {
    ObjectBuilder::new().schema_type(Type::Integer).into()
}

fn yes_or_no() -> Form {
    ObjectBuilder::new().schema_type(Type::Boolean).into()
}

fn names_of<'a>(names: impl IntoIterator<Item = &'a str>) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).build()
}

fn requeue_reason() -> Form {
    names_of(RequeueReason::ALL.map(RequeueReason::as_str)).into()
}

fn violations() -> Form {
    let one =
        object(&[("message", MUST, text), ("path", MUST, text)], "Where a value does not fit its schema, and how.");
    ArrayBuilder::new().items(one).into()
}

fn skip_reason() -> Form {
    names_of(SkipReason::ALL.map(SkipReason::as_str)).into()
}

fn items() -> Form {
    object(&[("collect", MAY, yes_or_no), ("count", MUST, count)], "What a map works through.").into()
}

/// Values that nobody can compute again: a moment is that of its event.
fn drawn() -> Form {
    let one = OneOfBuilder::new()
        .item(names_of(["now"]))
        .item(object(&[("random", MUST, fraction)], "From 0 up to, and not including, 1."))
        .item(object(&[("uuid", MUST, text)], "Version 4."));
    ArrayBuilder::new().items(one).into()
}

fn fraction() -> Form {
    ObjectBuilder::new().schema_type(Type::Number).into()
}

fn needs() -> Form {
    let values =
        AdditionalProperties::from(RefOr::T(Schema::from(names_of(BranchStatus::ALL.map(BranchStatus::as_str)))));
    ObjectBuilder::new().schema_type(Type::Object).additional_properties(Some(values)).into()
}

fn outcome() -> Form {
    names_of(OUTCOMES.map(|(_, name)| name)).into()
}

const OUTCOMES: [(InvocationOutcome, &str); 5] = [
    (InvocationOutcome::Committed, "committed"),
    (InvocationOutcome::RefusedRetryable, "refused_retryable"),
    (InvocationOutcome::RefusedPermanent, "refused_permanent"),
    (InvocationOutcome::NotSent, "not_sent"),
    (InvocationOutcome::InDoubt, "in_doubt"),
];

fn digests() -> Form {
    ArrayBuilder::new().items(named::<schema::Digest>()).into()
}

fn parent() -> Form {
    let fields: &[Field] = &[
        ("depth", MUST, count),
        ("job", MUST, text),
        ("node", MUST, text),
        ("on_parent_end", MUST, named::<schema::OnParent>),
        ("sessions", MAY, digests),
        ("waits", MAY, yes_or_no),
    ];
    object(fields, "The job whose step asked for it.").into()
}

fn child_outcome() -> Form {
    let completed = object(&[("completed", MUST, child_result)], "The child completed.");
    let failed = object(&[("failed", MUST, child_error)], "The child failed.");
    AnyOfBuilder::new().item(completed).item(failed).item(names_of(["cancelled"])).into()
}

fn child_result() -> Form {
    object(&[("result", MUST, any)], "The answer.").into()
}

fn child_error() -> Form {
    object(&[("error", MUST, failure)], "Why.").into()
}

fn judge() -> Form {
    names_of(Judge::ALL.map(Judge::as_str)).into()
}

fn resolver() -> Form {
    names_of(Resolver::ALL.map(Resolver::as_str)).into()
}

fn grounds() -> Form {
    names_of([Grounds::Clock, Grounds::OperatorRefused, Grounds::Refuses].map(Grounds::as_str)).into()
}

fn then() -> Form {
    names_of(Then::ALL.map(Then::as_str)).into()
}

fn doubt_outcome() -> Form {
    names_of(DoubtOutcome::ALL.map(DoubtOutcome::as_str)).into()
}

fn failure() -> Form {
    object(&[("code", MUST, text), ("message", MUST, text)], "Why it failed: a stable code, and a text for people.")
        .into()
}

fn turn() -> Form {
    let fields: [Field; 2] = [("calls", MAY, calls), ("reply", MAY, text)];
    let said =
        "What a turn of a loop came to beside its text: the calls that it asks for, or what the model is told instead.";
    object(&fields, said).into()
}

fn calls() -> Form {
    let fields: [Field; 5] = [
        ("arguments", MUST, text),
        ("id", MUST, text),
        ("name", MUST, text),
        ("provider", MAY, any),
        ("tool", MAY, text),
    ];
    let call = object(&fields, "A call that a model has asked for; without `tool` its loop has none of that name.");
    ArrayBuilder::new().items(call).into()
}

fn signal() -> Form {
    object(&[("payload", MUST, any), ("signal", MUST, text)], "What a signal brought.").into()
}

fn wait_end() -> Form {
    let by_signal = object(&[("signal", MUST, signal)], "A signal.");
    AnyOfBuilder::new().item(by_signal).item(names_of(["dropped", "time"])).into()
}

fn answer() -> Form {
    let node = object(&[("node", MUST, text)], "It is this node's output.");
    let value = object(&[("value", MUST, any)], "It is this value.");
    AnyOfBuilder::new().item(node).item(value).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use aetheris_core::event::codec;

    use super::*;

    /// What the parser of a kind says of a payload.
    fn refusal(kind: EventKind, payload: &str) -> String {
        codec::decode(kind.code(), kind.schema_version(), payload.as_bytes())
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    /// The names that stand in backticks behind `mark`.
    fn named_behind(text: &str, mark: &str) -> BTreeSet<String> {
        let names = text.split_once(mark).map(|(_, names)| names).unwrap_or_default();
        names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn every_kind_has_a_form_and_every_form_the_fields_of_its_kind() {
        let known: Vec<EventKind> = PAYLOADS.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(known, EventKind::ALL, "a kind without a form here, or in another place");
        for (kind, fields) in PAYLOADS {
            let told = refusal(*kind, r#"{"~": 0}"#);
            let expected = named_behind(&told, "expected");
            let found: BTreeSet<String> = fields.iter().map(|(name, _, _)| (*name).to_owned()).collect();
            assert_eq!(found, expected, "{}: {told}", kind.as_str());
        }
    }

    #[test]
    fn what_a_form_holds_to_be_there_is_there() {
        for (kind, fields) in PAYLOADS {
            let missing = named_behind(&refusal(*kind, "{}"), "missing field");
            let first: BTreeSet<String> =
                fields.iter().find(|(_, must, _)| *must).map(|(name, _, _)| (*name).to_owned()).into_iter().collect();
            assert!(first.is_empty() == missing.is_empty(), "{}: {missing:?}", kind.as_str());
            assert!(missing.iter().all(|name| fields.iter().any(|(field, must, _)| field == name && *must)));
        }
    }

    #[test]
    fn names_without_a_function_of_the_core_are_those_that_it_writes() {
        for (outcome, name) in OUTCOMES {
            assert_eq!(serde_json::to_value(outcome).unwrap(), name);
        }
    }
}
