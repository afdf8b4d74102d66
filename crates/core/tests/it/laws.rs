//! Laws of the values that everything else is built on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aetheris_core::hash::Hash;
use aetheris_core::id::{AttemptId, IdempotencyKey, InstanceId, JobId, NodeId, WorkerId};
use aetheris_core::json::Json;
use aetheris_core::lease::{Fence, Guard, Holder, admit};
use aetheris_core::limits;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{Budget, GraphError, Node, NodeKind, PLAN_SCHEMA_VERSION, Plan};
use aetheris_core::retry::{Jitter, OnTimeout, RetryPolicy};
use aetheris_core::time::{Span, Timestamp};
use proptest::prelude::*;
use proptest::string::string_regex;
use serde_json::Value;

/// Texts of a pattern, which is read once: a bare `"..."` is read again for every case.
fn texts(pattern: &str) -> impl Strategy<Value = String> + Clone + use<> {
    string_regex(pattern).unwrap().boxed()
}

/// Any JSON value, with the numbers and texts that canonical forms stumble over.
fn value() -> impl Strategy<Value = Value> {
    let double =
        prop_oneof![any::<f64>(), (-400i32..400).prop_map(|e| 10f64.powi(e)), Just(-0.0), Just(1e20), Just(1e21)];
    let text = prop_oneof![texts("[a-z]{0,3}"), texts("\\PC{0,4}"), any::<String>()];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        double.prop_filter_map("finite", |double| serde_json::Number::from_f64(double).map(Value::Number)),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(text.clone(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn policy() -> impl Strategy<Value = RetryPolicy> {
    let span = || prop_oneof![Just(0), 0..=5_000_000u64, 0..=limits::BACKOFF_MAX.micros()].prop_map(Span::from_micros);
    let factor = prop_oneof![Just(1.0), 1.0..=1000.0f64];
    (span(), factor, any::<bool>(), 1..=100u32, span()).prop_map(
        |(backoff, factor, full, max_attempts, max_backoff)| {
            let jitter = if full { Jitter::Full } else { Jitter::None };
            RetryPolicy { backoff, factor, jitter, max_attempts, max_backoff, on_timeout: OnTimeout::Retry }
        },
    )
}

fn plan(nodes: &[(u8, Vec<u8>)]) -> Arc<Plan> {
    let name = |n: &u8| NodeId::new(format!("n{n}"));
    let node = |(id, needs): &(u8, Vec<u8>)| Node {
        needs: needs.iter().map(name).collect(),
        ..Node::new(name(id), NodeKind::Condition)
    };
    Arc::new(Plan {
        answer: None,
        budget: Budget::default(),
        nodes: nodes.iter().map(node).collect(),
        retry: RetryPolicy::default(),
        schema_version: PLAN_SCHEMA_VERSION,
        max_parallel_steps: None,
        step_timeout: None,
        tools: BTreeMap::new(),
    })
}

/// Moments with a year of four digits, in microseconds.
const CALENDAR: std::ops::Range<i64> = -62_135_596_800_000_000..253_402_207_200_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::CASES))]

    /// A key stands for one call of one step of one job, and for nothing else.
    #[test]
    fn a_key_is_a_function_of_its_three_parts(a in (0u128..4, texts("[ab]{0,3}"), 0u32..3), b in (0u128..4, texts("[ab]{0,3}"), 0u32..3)) {
        let key = |(job, node, call): &(u128, String, u32)| IdempotencyKey::derive(JobId::from_u128(*job), &StepPath::from(node.as_str()), *call);
        prop_assert_eq!(key(&a) == key(&b), a == b);
        prop_assert_eq!(key(&a).to_string().parse::<IdempotencyKey>().unwrap(), key(&a));
    }

    /// What is canonical is accepted, is the same value, and is canonical still.
    #[test]
    fn canonical_bytes_are_a_fixed_point_that_is_accepted(value in value()) {
        let json = Json::new(value.clone());
        let canonical = json.canonical();
        let again = Json::parse(&canonical);
        prop_assert_eq!(again.as_ref(), Ok(&json));
        prop_assert_eq!(again.unwrap().canonical(), canonical.clone());
        let loose = serde_json::to_vec_pretty(&value).unwrap();
        if let Ok(read) = Json::parse(&loose) {
            prop_assert_eq!(read.canonical(), canonical);
            prop_assert_eq!(read, json);
        }
    }

    /// A double keeps every bit through its canonical text.
    #[test]
    fn doubles_are_exact(bits in any::<u64>()) {
        let double = f64::from_bits(bits);
        prop_assume!(double.is_finite());
        let text = Json::new(Value::from(double)).to_string();
        prop_assert_eq!(text.parse::<f64>().unwrap(), double, "{}", text);
    }

    /// Delays grow with the tries up to the cap, jitter stays below them, and nothing stays nothing.
    #[test]
    fn delays_are_bounded_and_grow(policy in policy(), tries in 1u32..200, random in any::<u64>(), asked in proptest::option::of(any::<u64>())) {
        let cap = policy.max_backoff.min(limits::BACKOFF_MAX);
        let plain = RetryPolicy { jitter: Jitter::None, ..policy.clone() };
        let full = plain.delay(tries, 0, None);
        prop_assert!(full <= cap && plain.delay(tries + 1, 0, None) >= full);
        prop_assert_eq!(plain.delay(1, 0, None), policy.backoff.min(cap));
        prop_assert!(policy.delay(tries, random, None) <= full);
        if policy.backoff == Span::ZERO {
            prop_assert_eq!(full, Span::ZERO);
        }
        if let Some(asked) = asked {
            prop_assert_eq!(policy.delay(tries, random, Some(Span::from_micros(asked))), Span::from_micros(asked).min(cap));
        }
        prop_assert!(!policy.allows_another(policy.max_attempts) && (tries >= policy.max_attempts || policy.allows_another(tries)));
    }

    /// A graph is executed in an order that respects it, or refused for a reason that is true.
    #[test]
    fn graphs_are_ordered_or_refused_for_a_true_reason(nodes in proptest::collection::vec((0u8..8, proptest::collection::vec(0u8..9, 0..4)), 1..9)) {
        let plan = plan(&nodes);
        match plan.compile() {
            Ok(compiled) => {
                let mut done = BTreeSet::new();
                for node in compiled.ordered() {
                    prop_assert!(node.needs.iter().all(|need| done.contains(need)));
                    // Ties in the order of the file: nothing earlier in it could have come now.
                    let earlier = plan.nodes.iter().take_while(|other| other.id != node.id);
                    for other in earlier.filter(|other| !done.contains(&other.id)) {
                        prop_assert!(!other.needs.iter().all(|need| done.contains(need)));
                    }
                    done.insert(node.id.clone());
                }
                prop_assert_eq!(done.len(), nodes.len());
            }
            Err(errors) => {
                prop_assert!(!errors.is_empty());
                for error in errors {
                    let of = |id: &NodeId| plan.nodes.iter().filter(|node| node.id == *id).collect::<Vec<_>>();
                    match error {
                        GraphError::BadJoin { .. } => prop_assert!(false, "no join was drawn: {error}"),
                        GraphError::BadId(id) => prop_assert!(false, "{} is a name", id),
                        GraphError::DuplicateId(id) => prop_assert!(of(&id).len() > 1),
                        GraphError::UnknownNeed { node, need } => {
                            prop_assert!(of(&need).is_empty() && of(&node).iter().any(|node| node.needs.contains(&need)));
                        }
                        GraphError::BadCritic(_)
                        | GraphError::NeedsCritic { .. }
                        | GraphError::UnknownCritic { .. }
                        | GraphError::MapRefines(_)
                        | GraphError::RepeatsEffect { .. } => prop_assert!(false, "nothing is judged: {error}"),
                        GraphError::BadItemKind { .. } => prop_assert!(false, "no map was drawn: {error}"),
                        GraphError::UnknownTool { .. } | GraphError::ToolNamesClash { .. } => {
                            prop_assert!(false, "no node calls a tool");
                        }
                        GraphError::Cycle(circle) => {
                            for pair in circle.windows(2) {
                                prop_assert!(of(&pair[1])[0].needs.contains(&pair[0]), "{:?}", circle);
                            }
                            prop_assert!(circle.len() > 1 && circle.first() == circle.last());
                        }
                    }
                }
            }
        }
    }

    /// Texts are read as one value or refused, and what is written is read as itself.
    #[test]
    fn texts_of_values_are_exact(bits in any::<u128>(), micros in any::<u64>(), at in any::<i64>(), calendar in CALENDAR, hex in texts("[0-9a-fA-F]{64}"), text in texts("[0-9a-fA-F+]{62,65}|\\PC{0,30}")) {
        let id = JobId::from_u128(bits);
        prop_assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        prop_assert_eq!(JobId::from_slice(&id.to_bytes()), Some(id));
        let span = Span::from_micros(micros);
        prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        let moment = Timestamp::from_micros(calendar);
        prop_assert_eq!(moment.to_string().parse::<Timestamp>(), Ok(moment));
        let later = moment.after(span);
        prop_assert_eq!(later.to_string().parse::<Timestamp>(), Ok(later));
        let moment = Timestamp::from_micros(at);
        prop_assert!(moment.after(span) >= moment && moment.since(moment.after(span)) == Span::ZERO);
        prop_assert_eq!(hex.parse::<Hash>().unwrap().to_string(), hex.to_lowercase());
        if let Ok(hash) = text.parse::<Hash>() {
            prop_assert_eq!(hash.to_string(), text.to_lowercase());
        }
    }

    /// A run writes under the newest fence of a held job and under no other.
    #[test]
    fn only_the_current_fence_is_admitted(given in (0u32..3, 0u32..3), current in (0u32..3, 0u32..3), held in any::<bool>(), until in 0i64..9, now in 0i64..9) {
        let fence = |(generation, epoch)| Fence { generation, epoch };
        let holder = held.then(|| Holder {
            attempt_id: AttemptId::from_u128(1),
            instance: InstanceId::from_u128(2),
            lease_until: Timestamp::from_micros(until),
            worker: WorkerId::from("w"),
        });
        let now = Timestamp::from_micros(now);
        let holds = held && given == current;
        let admitted = |guard| admit(guard, fence(current), holder.as_ref(), now).is_ok();
        prop_assert_eq!(admitted(Guard::Run(fence(given))), holds);
        prop_assert_eq!(admitted(Guard::Expired(fence(given))), holds && now.micros() >= until);
        prop_assert_eq!(admitted(Guard::Dead(fence(given), InstanceId::from_u128(2))), holds);
        prop_assert!(!admitted(Guard::Dead(fence(given), InstanceId::from_u128(3))));
    }
}
