//! Each invariant finds a violation that was planted for it, and nothing in a history that is whole.

mod planted;
mod rules;
mod story;

use crate::history::ClientHistory;
use crate::invariant::Invariant;
use crate::report::{Report, Tally};
use crate::witness::WitnessLine;
use crate::{Dossier, check_job};

/// A restore has begun it: the stories are of the one before.
const GENERATION: u32 = 2;

/// Evaluates one job, with what its tools have seen and its clients were told.
fn report(facts: &Dossier, witness: &[WitnessLine], history: &ClientHistory) -> Report {
    let mut tally = Tally::default();
    check_job(facts, GENERATION, (witness, crate::witness::names_permits(witness)), history, &mut tally);
    crate::acknowledged::exist(&[facts.row.id].into(), history, &mut tally);
    tally.into_report(1, facts.events.len() as u64)
}

#[test]
fn a_whole_history_is_clean_and_every_invariant_has_cases() {
    let story = story::whole();
    let found = report(&story.facts(), &story.witness, &story.history);
    assert!(found.is_clean(), "{found}");
    // The end of this job was not asked for, and it has no checkpoint: these have stories of their own.
    assert_eq!(found.unexamined(), [Invariant::D7, Invariant::F5], "{found}");
    assert!(!found.is_proof());
    assert!(found.excuse(&[Invariant::D7, Invariant::F5]).is_proof());
}

#[test]
fn a_report_is_readable_and_serializes() {
    let mut story = story::whole();
    story.witness.push(story.witness[0].clone());
    let found = report(&story.facts(), &story.witness, &story.history);
    let text = found.to_string();
    assert!(text.contains("VIOLATED once") && text.contains("NOT EXAMINED"), "{text}");
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["lines"][0]["id"], "A2");
}
