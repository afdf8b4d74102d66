//! Small searches: exhausted in seconds, and every planted mistake is found.

use std::sync::Arc;

use aetheris_model::bugs::Mutation;
use aetheris_model::config::Config;
use aetheris_model::laws::{Law, Sight, Tally, eventually, properties};
use aetheris_model::search::{Bound, run};

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
    assert!(Law::ALL.len() >= 20 && Sight::ALL.len() >= 15 && eventually().len() >= 4 && Mutation::ALL.len() >= 12);
}
