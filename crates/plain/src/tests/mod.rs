//! Each query finds a contradiction that was planted for it, the Rust checker finds the same, and neither finds
//! anything in a history that is whole.

mod moves;
mod planted;
mod story;

use std::collections::BTreeMap;

use aetheris_check::Invariant;

use self::story::Story;
use super::evidence::QUERIES;
use super::{Checked, copy_sqlite};

/// Writes a story into a database file, spoils the file and lets both checkers look.
async fn look(story: &Story, spoil: &[&str]) -> Checked {
    let bed = story::Bed::new(story);
    bed.execute(spoil);
    let copy = |tables: &_| copy_sqlite(&bed.file(), tables);
    Checked::new(copy, bed.store().as_ref(), &story.witness, &story.history).await.unwrap()
}

#[tokio::test]
async fn in_a_whole_history_both_find_the_same_cases_and_nothing_wrong() {
    let checked = look(&story::whole(), &[]).await;
    assert!(checked.rust.is_clean(), "{}", checked.rust);
    assert_eq!(checked.violations(), [""; 0]);
    assert_eq!(checked.differences(), [""; 0]);
    // This job's end was not asked for: D7 has a story of its own.
    let none: Vec<_> = checked.sql.iter().filter(|(_, found)| found.examined == 0).map(|(id, _)| *id).collect();
    assert_eq!(none, [Invariant::D7]);
}

#[test]
fn every_invariant_but_the_two_folds_has_a_query() {
    let queries: BTreeMap<_, _> = QUERIES.iter().copied().collect();
    let missing: Vec<_> = Invariant::ALL.iter().filter(|id| !queries.contains_key(id)).collect();
    assert_eq!(missing, [&Invariant::B7, &Invariant::F5]);
}
