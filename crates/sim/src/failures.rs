//! With which errors jobs of a program may fail.

use aetheris_core::event::{ChildOutcome, Failure, SUCCEEDED_BEFORE};
use aetheris_core::plan::EffectClass;
use aetheris_runtime::load::Loaded;

use crate::children;
use crate::clients::Order;
use crate::program::{Act, Kind, Policy, Program};

/// Whether a job of a program may fail with this error.
pub(crate) fn may_fail(order: &Order, error: &Failure, loaded: &Loaded) -> bool {
    let program: &Program = &order.program;
    let tools = || {
        program.steps.iter().filter_map(|step| match &step.kind {
            Kind::Tool { act, class, policies, .. } => Some((*act, *class, policies)),
            Kind::Model | Kind::Wait { .. } | Kind::Timer(_) | Kind::Sleep(_) | Kind::Transform | Kind::Condition => {
                None
            }
        })
    };
    match error.code.as_str() {
        "refused_for_good" => tools().any(|(act, ..)| act == Act::Refuse),
        // A refusal that only the ledger has kept is told in its own words.
        "refused" => tools().any(|(act, ..)| act == Act::Refuse || matches!(act, Act::RefuseFirst(_))),
        "busy" => tools().any(|(act, ..)| matches!(act, Act::RefuseFirst(_))),
        "not_sent" => tools().next().is_some(),
        "budget_exceeded" => program.budget.is_some(),
        "rejected" => {
            let planned = program.planner.is_model() && error.message.starts_with("no plan was accepted");
            !program.judged.is_empty() || planned
        }
        // Nobody cancels a child by itself. Whether one had a reason to fail is examined with it.
        "child_failed" => loaded.state.steps.values().any(|step| {
            let end = step.child.as_deref().and_then(|child| child.end.as_ref());
            matches!(end, Some(ChildOutcome::Failed { .. }))
        }),
        "template_error" => {
            let of_items = program.children.iter().any(|place| program.maps.contains_key(place));
            of_items && children::has_unasked(&order.message) && error.message.starts_with("item 1:")
        }
        "critic_failed" => program.judged.values().any(|judging| judging.critic),
        "timeout" | "model_busy"
            if !program.loops.is_empty()
                || program.planner.is_model()
                || program.steps.iter().any(|step| step.kind == Kind::Model) =>
        {
            true
        }
        "connection_lost" | "timeout" => tools().any(|(_, class, _)| class != EffectClass::AtMostOnce),
        "in_doubt_unresolved" => {
            let once =
                |class, policies: &[Policy]| class == EffectClass::AtMostOnce && !policies.contains(&Policy::Human);
            // A loop says so of an idempotent call as well, one of whose tries may have had its effect.
            let looped = !program.loops.is_empty();
            tools().any(|(_, class, policies)| once(class, policies) || (looped && class == EffectClass::Idempotent))
        }
        // An answer to a doubt ends the try; the last one, or a person who says so, ends the step. A paused job's doubt can be
        // answered by a person whatever its policies say.
        "did_not_happen" => {
            let said = error.message.contains("a person said so");
            tools().any(|(_, class, policies)| class == EffectClass::AtMostOnce && (said || !policies.is_empty()))
        }
        // A success that arrives all the same, after the next permit was given: that came after such an answer or, of
        // an idempotent tool, after a lost lease.
        SUCCEEDED_BEFORE => tools().any(|(_, class, policies)| match class {
            EffectClass::AtMostOnce => !policies.is_empty(),
            EffectClass::Idempotent => true,
            EffectClass::Pure => false,
        }),
        "refused_permit" => tools().any(|(_, class, policies)| {
            let refuses = |policy: &Policy| matches!(policy, Policy::Refuse | Policy::Human);
            class == EffectClass::AtMostOnce && policies.iter().any(refuses)
        }),
        "wait_timed_out" => program.steps.iter().any(|step| matches!(step.kind, Kind::Wait { go_on: false, .. })),
        "deadline" => program.people.values().any(|person| person.deadline.is_some()),
        "deadline_exceeded" => order.deadline.is_some(),
        "attempts_exhausted" => loaded.state.reclaims >= 2,
        _ => false,
    }
}
