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

/// A case that stands in no list is never run.
#[test]
fn every_case_is_in_the_list() {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let list = std::fs::read_to_string(sources.join("list.rs")).unwrap();
    let listed: BTreeSet<&str> = list.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
    let mut cases = 0;
    for file in std::fs::read_dir(sources).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let functions = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
        // A case is named after its clause: a letter and a number.
        let is_case =
            |name: &&str| name.split('_').next().is_some_and(|id| id.len() > 1 && id[1..].parse::<u32>().is_ok());
        for case in functions.filter(is_case) {
            assert!(listed.contains(case), "{case} in {} is in no list", path.display());
            cases += 1;
        }
    }
    assert!(cases > 200, "{cases}");
}
