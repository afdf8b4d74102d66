use super::*;

fn done(experiment: Experiment, cases: Cases) -> Done {
    Done {
        examined: cases.examined(),
        folder: experiment.id(),
        invariants: Vec::new(),
        name: experiment.id(),
        notes: Vec::new(),
        seconds: 1.0,
        verdict: verdict(experiment, &cases),
        what: experiment.what(),
        cases,
    }
}

fn all_good(experiment: Experiment) -> Cases {
    let mut cases = Cases::default();
    for guarantee in experiment.proves() {
        cases.case(*guarantee, true, String::new);
    }
    cases
}

#[test]
fn every_row_of_the_table_has_an_experiment() {
    for guarantee in Guarantee::ALL {
        assert!(Experiment::ALL.iter().any(|one| one.proves().contains(guarantee)), "{}", guarantee.id());
    }
}

#[test]
fn one_bad_case_a_missing_one_and_a_violation_are_no_proof() {
    let good = || Experiment::ALL.iter().map(|one| done(*one, all_good(*one))).collect::<Vec<Done>>();
    let proof = |done: &[Done]| Report::is_proof(&report::rows(done, true), done, &[]);
    assert!(proof(&good()));

    let mut bad = good();
    let mut cases = all_good(Experiment::Calls);
    cases.case(Guarantee::BodyOnce, false, || "two bodies".to_owned());
    bad[1] = done(Experiment::Calls, cases);
    assert!(!proof(&bad));
    let rows = report::rows(&bad, true);
    let row = rows.iter().find(|row| row.guarantee == Guarantee::BodyOnce).unwrap();
    assert_eq!((row.verdict, row.failures.as_slice()), (Verdict::DoesNotHold, &["two bodies".to_owned()][..]));

    let mut missing = good();
    missing[1] = done(Experiment::Calls, Cases::default());
    assert!(!proof(&missing));

    let mut violated = good();
    let mut cases = all_good(Experiment::Lock);
    cases.contradicted(Guarantee::Fenced, "invariant A3".to_owned());
    violated[9] = done(Experiment::Lock, cases);
    assert!(!proof(&violated));
}

#[test]
fn a_part_proves_its_part_and_says_so() {
    let part = vec![done(Experiment::Folder, all_good(Experiment::Folder))];
    let rows = report::rows(&part, false);
    assert!(Report::is_proof(&rows, &part, &[]));
    let asked: Vec<&str> =
        rows.iter().filter(|row| row.verdict != Verdict::NotAsked).map(|row| row.guarantee.id()).collect();
    assert_eq!(asked, ["conditions"]);
}

#[test]
fn experiments_are_chosen_by_part_of_their_name() {
    let ids = |only: &[&str]| {
        let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
        chosen(&only).map(|chosen| chosen.iter().map(|one| one.id()).collect::<Vec<_>>())
    };
    assert_eq!(ids(&[]).unwrap().len(), Experiment::ALL.len());
    assert_eq!(ids(&["chain", "doub"]).unwrap(), ["doubts", "chain"]);
    assert!(ids(&["chian"]).unwrap_err().to_string().contains("there are accepted"));
}
