//! The recovery table over its whole domain.

use aetheris_core::event::InvocationOutcome;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::plan::EffectClass;
use aetheris_core::recovery::{AfterDisproof, Decision, EffectSeen, LedgerSeen, StepEvidence, decide};

fn all() -> Vec<(StepEvidence, Option<EffectSeen>, Option<LedgerSeen>)> {
    let called = |class| StepEvidence::Called { permit: 2, class };
    let told = [
        StepEvidence::NotStarted,
        StepEvidence::StartedPlain,
        called(EffectClass::AtMostOnce),
        called(EffectClass::Idempotent),
        StepEvidence::Doubted { permit: 2 },
        StepEvidence::Happened { permit: 2 },
        StepEvidence::Disproved { permit: 2, next: AfterDisproof::EndTry },
        StepEvidence::Disproved { permit: 2, next: AfterDisproof::NextTry },
        StepEvidence::Disproved { permit: 2, next: AfterDisproof::Begun },
        StepEvidence::Retryable,
        StepEvidence::Succeeded,
        StepEvidence::Ended,
    ];
    let permits = [1, 2, 3];
    let effects: Vec<_> = std::iter::once(None).chain(permits.map(|permit| Some(EffectSeen { permit }))).collect();
    let rows =
        permits.into_iter().flat_map(|permit| LedgerStatus::ALL.map(|status| Some(LedgerSeen { permit, status })));
    let ledgers: Vec<_> = std::iter::once(None).chain(rows).collect();
    let mut cases = Vec::new();
    for told in told {
        for effect in &effects {
            for ledger in &ledgers {
                cases.push((told, *effect, *ledger));
            }
        }
    }
    cases
}

#[test]
fn an_open_at_most_once_call_is_never_run_again_by_recovery() {
    for (told, effect, ledger) in all() {
        let decision = decide(told, effect, ledger);
        let open =
            matches!(told, StepEvidence::Called { class: EffectClass::AtMostOnce, .. } | StepEvidence::Doubted { .. });
        if open {
            assert!(
                !matches!(decision, Decision::Run | Decision::CallAgain | Decision::NextTry),
                "{told:?} {effect:?} {ledger:?}"
            );
        }
    }
}

#[test]
fn what_has_a_current_effect_is_never_run() {
    for (told, effect, ledger) in all() {
        let current = effect == Some(EffectSeen { permit: 2 });
        let asks = matches!(
            told,
            StepEvidence::Called { .. }
                | StepEvidence::Doubted { .. }
                | StepEvidence::Happened { .. }
                | StepEvidence::Disproved { .. }
                | StepEvidence::NotStarted
        );
        if current && asks {
            let decision = decide(told, effect, ledger);
            assert!(matches!(decision, Decision::CatchUp | Decision::Corrupt(_)), "{told:?} {ledger:?}: {decision:?}");
        }
    }
}

#[test]
fn only_refusals_that_prove_that_nothing_happened_become_outcomes() {
    for (told, effect, ledger) in all() {
        if let Decision::CatchUpOutcome(outcome) = decide(told, effect, ledger) {
            assert!(matches!(
                outcome,
                InvocationOutcome::NotSent | InvocationOutcome::RefusedRetryable | InvocationOutcome::RefusedPermanent
            ));
            assert_eq!(ledger.map(|row| row.permit), Some(2));
        }
    }
}
