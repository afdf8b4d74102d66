//! Small searches: exhausted in seconds, and every planted mistake is found.

use std::sync::Arc;

use aetheris_model::bugs::Mutation;
use aetheris_model::config::{Config, Step};
use aetheris_model::laws::{Law, Sight, Tally, eventually, properties};
use aetheris_model::search::{Bound, run};

const WAIT: Step = Step::Wait { deadline: true, late: false };
const WHOLE: Bound = Bound { deep: false, first: false, limit: None, threads: 1 };

#[test]
fn every_law_holds_on_every_state_of_the_small_configuration() {
    let tally = Arc::new(Tally::default());
    let report = run(Config::small(), WHOLE, &tally);
    assert!(report.exhausted && report.breaches.is_empty(), "{}", report.text());
    assert!(report.unique > 30_000, "the search has shrunk: {}", report.text());
    assert!(tally.examined(Law::BodyOnce) > 10_000 && tally.seen(Sight::DoubtDisproved) > 0);
}

#[test]
fn every_law_holds_whenever_a_job_is_paused() {
    let tally = Arc::new(Tally::default());
    let report = run(Config::paused(), WHOLE, &tally);
    assert!(report.exhausted && report.breaches.is_empty(), "{}", report.text());
    for sight in [Sight::PauseOfHeld, Sight::Paused, Sight::Resumed, Sight::CancelOfHeld, Sight::SignalDelivered] {
        assert!(tally.seen(sight) > 0, "not seen: {}", report.text());
    }
}

#[test]
fn every_law_holds_whenever_the_deadline_comes() {
    let tally = Arc::new(Tally::default());
    let report = run(Config { unknown: 0, ..Config::hurried() }, WHOLE, &tally);
    assert!(report.exhausted && report.breaches.is_empty(), "{}", report.text());
    assert!(tally.examined(Law::DeadlineEnds) > 0 && tally.seen(Sight::DeadlineOfIdle) > 0);
}

#[test]
fn every_law_holds_whatever_signals_bring() {
    let tally = Arc::new(Tally::default());
    for (name, states, config) in Config::gate().into_iter().filter(|(name, ..)| name.starts_with("signals")) {
        let report = run(config, WHOLE, &tally);
        assert!(report.proves() && report.unique == states, "{name}: {}", report.text());
    }
    for law in [Law::FirstFitEnds, Law::FitDecides, Law::KeptStaysKnown] {
        assert!(tally.examined(law) > 10_000, "{}", law.as_str());
    }
    for sight in [Sight::MisfitAtTheDoor, Sight::MisfitKept, Sight::MisfitRefused, Sight::FitAfterMisfit] {
        assert!(tally.seen(sight) > 100, "{}", sight.as_str());
    }
}

#[test]
fn every_law_holds_whenever_the_moment_comes_that_a_job_was_sent_for() {
    let tally = Arc::new(Tally::default());
    let config = Config { lost: 0, ..Config::delayed() }.with(&[&[Step::Idempotent], &[WAIT]]);
    let report = run(config, WHOLE, &tally);
    assert!(report.proves(), "{}", report.text());
    assert!(tally.examined(Law::NotBeforeItsMoment) > 1_000);
    for sight in [Sight::TooEarly, Sight::MomentCame, Sight::CancelledEarly, Sight::PausedEarly] {
        assert!(tally.seen(sight) > 0, "{}", sight.as_str());
    }
}

#[test]
fn every_law_holds_in_a_session_whatever_becomes_of_the_first_job() {
    let tally = Arc::new(Tally::default());
    for config in [Config { pauses: 1, ..Config::session() }.with(&[&[WAIT]]), failing()] {
        let report = run(config, WHOLE, &tally);
        assert!(report.proves(), "{}", report.text());
    }
    assert!(tally.examined(Law::SessionInOrder) > 1_000);
    for sight in [Sight::HeldUp, Sight::SessionGoesOn, Sight::CancelOfHeld, Sight::CancelOfIdle, Sight::Resumed] {
        assert!(tally.seen(sight) > 0, "{}", sight.as_str());
    }
}

/// Two jobs of a session that fail when their call was refused twice. Nobody cancels.
fn failing() -> Config {
    Config { cancels: false, jobs: 2, lost: 0, session: true, ..Config::calm(&[&[Step::Idempotent]]) }
}

#[test]
fn a_job_that_is_held_up_for_ever_is_not_hidden_by_a_cancel_or_a_failure() {
    let mutation = Some(Mutation::SessionNeedsAnswer);
    let cancelled = Config { lost: 0, ..Config::session() }.with(&[&[WAIT]]);
    for config in [cancelled, failing()] {
        let report = run(Config { mutation, ..config }, WHOLE, &Arc::default());
        let laws: Vec<&str> = report.breaches.iter().map(|breach| breach.law).collect();
        assert!(laws.len() == 1 && laws[0].starts_with("H1"), "{laws:?}");
    }
}

#[test]
fn a_search_is_the_same_twice() {
    let size = || {
        let config = Config { unknown: 0, ..Config::small() };
        let report = run(config, WHOLE, &Arc::default());
        (report.unique, report.states)
    };
    assert_eq!(size(), size());
}

#[test]
fn every_planted_mistake_is_found_and_nothing_is_found_without_it() {
    for mutation in Mutation::ALL {
        let report = mutation.hunt();
        assert!(!report.breaches.is_empty(), "{} is not found in {} states", mutation.as_str(), report.unique);
        let clean = run(Config { mutation: None, ..mutation.config() }, WHOLE, &Arc::default());
        assert!(clean.breaches.is_empty(), "{} without the mistake: {}", mutation.as_str(), clean.text());
    }
}

#[test]
fn enough_is_asked() {
    assert_eq!(properties().len(), Law::ALL.len() + eventually().len());
    assert!(Law::ALL.len() >= 40 && Sight::ALL.len() >= 49 && eventually().len() >= 5 && Mutation::ALL.len() >= 40);
}

/// The law that each of these is planted for, and not another one that happens to notice.
#[test]
fn signals_moments_and_sessions_are_guarded_by_laws_of_their_own() {
    for (mutation, law) in [
        (Mutation::DoorTakesAll, Law::FitDecides),
        (Mutation::KeptMisfitTaken, Law::FitDecides),
        (Mutation::FitRefusedToo, Law::FitDecides),
        (Mutation::OnlyFirstLookedAt, Law::NoWaitOverKept),
        (Mutation::LastSignalWins, Law::FirstFitEnds),
        (Mutation::KeptReplaced, Law::KeptStaysKnown),
        (Mutation::DelayIgnored, Law::NotBeforeItsMoment),
        (Mutation::PauseForgetsMoment, Law::NotBeforeItsMoment),
        (Mutation::SessionHeldUpByHeld, Law::SessionInOrder),
        (Mutation::SessionPassesPaused, Law::SessionInOrder),
    ] {
        let report = mutation.hunt();
        let found = report.breaches.iter().any(|breach| breach.law == law.as_str());
        assert!(found, "{}: {}", mutation.as_str(), report.text());
    }
}
