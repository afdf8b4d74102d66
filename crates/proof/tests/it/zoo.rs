//! Every planted bug is caught, and no scenario finds anything without one.

use std::process::Command;

use aetheris_proof::zoo::BUGS;
use aetheris_proof::zoo::scenarios::Scenario;

#[test]
fn every_planted_bug_is_caught_and_nothing_is_found_without_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_aetheris-zoo")).arg("table").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(BUGS.len() >= 45);
}

#[test]
fn every_scenario_and_every_bug_has_a_name_of_its_own() {
    for scenario in Scenario::ALL {
        assert_eq!(Scenario::parse(scenario.as_str()), Some(*scenario));
    }
    let mut names: Vec<&str> = BUGS.iter().map(|bug| bug.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), BUGS.len());
}
