//! The list of cases against the numbered clauses of the contract.

use std::collections::BTreeSet;

use aetheris_store_conformance::CASES;

/// The clauses of the contract, by the numbers that its text gives them.
fn clauses() -> BTreeSet<String> {
    let text = include_str!("../../../store/CONTRACT.md");
    text.lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("**"))
        .map(|(number, _)| number.to_owned())
        .collect()
}

/// The clause that a case proves: the first part of its name.
fn clause_of(case: &str) -> String {
    case.split('_').next().unwrap_or_default().to_uppercase()
}

#[test]
fn every_clause_has_a_case_and_every_case_a_clause() {
    let clauses = clauses();
    let cited: BTreeSet<String> = CASES.iter().map(|case| clause_of(case)).collect();
    assert_eq!(clauses.difference(&cited).collect::<Vec<_>>(), Vec::<&String>::new(), "clauses without a case");
    assert_eq!(cited.difference(&clauses).collect::<Vec<_>>(), Vec::<&String>::new(), "cases without a clause");
}

#[test]
fn names_are_unique() {
    let unique: BTreeSet<_> = CASES.iter().collect();
    assert_eq!(unique.len(), CASES.len());
    assert!(CASES.len() >= 110, "{} cases", CASES.len());
}
