use aetheris_check::WitnessKind;
use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::time::Span;

use super::tools::Tools;
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

/// The plan for a configuration and a command line.
fn planned(yaml: &str, given: &ProveArgs) -> Result<Plan, Error> {
    let file = Some((Path::new("aetheris.yaml"), yaml));
    let config = crate::config::from_text(file, &crate::config::Environment::default(), &flags(given)).unwrap();
    Plan::new(given, &config)
}

fn nothing_given() -> ProveArgs {
    ProveArgs { config: None, data: None, quick: false, lease_ttl: None, only: Vec::new(), report: None, keep: false }
}

#[test]
fn the_users_settings_hold_and_what_differs_is_told() {
    let yaml = "worker: { lease_ttl: 20s, heartbeat: 5s, slots: 7, max_attempts: 60, poll_interval: 300ms }\n\
                jobstore: { sqlite: { path: /srv/jobs/jobs.db } }\n";
    let plan = planned(yaml, &nothing_given()).unwrap();
    assert_eq!(plan.beside, Path::new("/srv/jobs"));
    let settings = plan.settings(Path::new("/elsewhere/aetheris.db"));
    assert_eq!(settings["jobstore"]["sqlite"]["path"], "/elsewhere/aetheris.db");
    for (key, value) in [("lease_ttl", json!("20s")), ("heartbeat", json!("5s")), ("poll_interval", json!("300ms"))] {
        assert_eq!(settings["worker"][key], value);
    }
    assert_eq!((plan.slots, plan.notes.len()), (7, 1), "{:?}", plan.notes);

    let quick = planned(yaml, &ProveArgs { quick: true, ..nothing_given() }).unwrap();
    let settings = quick.settings(Path::new("/elsewhere/aetheris.db"));
    assert_eq!((&settings["worker"]["lease_ttl"], &settings["worker"]["heartbeat"]), (&json!("4s"), &json!("1s")));
    assert!(quick.notes[0].contains("4s instead of 20s, because of --quick"), "{:?}", quick.notes);

    let one_slot = planned("worker: { slots: 1 }\n", &nothing_given()).unwrap();
    assert!(one_slot.notes.iter().any(|note| note.contains("worker.slots is 2 instead of 1")), "{:?}", one_slot.notes);
}

#[test]
fn every_planned_configuration_is_one_that_the_program_takes() {
    for (lease, quick) in [(None, false), (None, true), (Some(Span::from_secs(1)), false)] {
        let plan = planned("", &ProveArgs { lease_ttl: lease, quick, ..nothing_given() }).unwrap();
        let text = plan.settings(Path::new("/elsewhere/aetheris.db")).to_string();
        let file = Some((Path::new("config.yaml"), text.as_str()));
        crate::config::from_text(file, &crate::config::Environment::default(), &[]).unwrap();
    }
}

#[test]
fn memory_cannot_be_proved_over_a_kill() {
    let refused = planned("jobstore: { type: memory }\n", &nothing_given()).err().unwrap();
    assert_eq!(refused.exit(), Exit::Usage);
    let data = ProveArgs { data: Some("/srv/data".into()), ..nothing_given() };
    assert_eq!(planned("jobstore: { type: memory }\n", &data).unwrap().beside, Path::new("/srv/data"));
}

/// A call that is sent again under its permit has to be seen, also where the first broke off before anything acted.
#[tokio::test]
async fn the_tools_log_a_call_that_they_break_off() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-broken-off").unwrap();
    let log = folder.path().join("witness.jsonl");
    let tools = Tools::start(&log).await.unwrap();
    let (job, key) = (JobId::from_u128(7), IdempotencyKey::derive(JobId::from_u128(7), &"pay".into(), 0));
    let unnamed = || {
        let call = reqwest::Client::new().post(format!("{}/act?early=1", tools.url)).body("{}");
        let call = call.header("aetheris-job", job.to_string()).header("idempotency-key", key.to_string());
        call.header("aetheris-node", "pay").header("aetheris-attempt", "1").header("aetheris-fence", "1.1")
    };
    let call = || unnamed().header("aetheris-permit", "1.1").send();
    // It breaks off in the middle of its answer, or before.
    async { call().await?.bytes().await }.await.unwrap_err();
    assert_eq!(call().await.unwrap().status(), 200);
    let lines = aetheris_check::witness::parse(&std::fs::read_to_string(&log).unwrap()).unwrap();
    let kinds: Vec<WitnessKind> = lines.iter().filter(|line| line.is_arrival()).map(|line| line.kind).collect();
    assert_eq!(kinds, [WitnessKind::Dropped, WitnessKind::BodyStart]);
    assert_eq!(lines[0].permit, lines[1].permit);
    assert!(lines[0].permit.is_some() && !lines[0].is_act());
    // What names no permit is seen as well: a tool that knows nothing of permits would act.
    assert_eq!(unnamed().send().await.unwrap().status(), 200);
    assert!(tools.lines().iter().any(|line| line.permit.is_none() && line.is_act()));
}

/// A report takes the place of a report: whoever names their database or agent file by mistake keeps it.
#[test]
fn a_report_is_written_over_no_other_file() {
    let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-report").unwrap();
    let file = |name: &str| folder.path().join(name);
    let check = |file: &Path| ReportFile(file).check();
    check(&file("new.md")).unwrap();
    assert!(!file("new.md").exists(), "nothing is left where nothing is proved");
    for (name, text) in [("old.md", "# aetheris prove\n\nold"), ("empty.md", "")] {
        std::fs::write(file(name), text).unwrap();
        check(&file(name)).unwrap();
        assert_eq!(std::fs::read_to_string(file(name)).unwrap(), text);
    }
    for (name, text) in [
        ("refund.yaml", "agent: refund\n"),
        ("short", "#"),
        ("notes.md", "# aetheris proven by hand"),
        ("aetheris.db", "SQLite format 3\0"),
    ] {
        std::fs::write(file(name), text).unwrap();
        let refused = check(&file(name)).unwrap_err();
        assert!(refused.to_string().contains("is no report of `prove`"), "{refused}");
        assert_eq!((refused.exit(), std::fs::read_to_string(file(name)).unwrap()), (Exit::Usage, text.to_owned()));
    }
    check(Path::new("/dev/null")).unwrap();
    assert!(check(&file("no/such.md")).is_err());
    // A link that leads nowhere stays, and nothing is made where it leads.
    std::os::unix::fs::symlink(file("nowhere.md"), file("link.md")).unwrap();
    assert!(check(&file("link.md")).is_err());
    assert!(file("link.md").is_symlink() && !file("nowhere.md").exists());
    // What comes there while the experiments run stays too.
    ReportFile(&file("old.md")).write("# aetheris prove\n\nnew").unwrap();
    assert_eq!(std::fs::read_to_string(file("old.md")).unwrap(), "# aetheris prove\n\nnew");
    assert!(ReportFile(&file("notes.md")).write("# aetheris prove\n").is_err());
    std::fs::write(file("old.md.part"), "theirs").unwrap();
    assert!(ReportFile(&file("old.md")).write("# aetheris prove\n").is_err());
    assert_eq!(std::fs::read_to_string(file("old.md.part")).unwrap(), "theirs");
    std::fs::remove_file(file("old.md.part")).unwrap();
    assert!(std::fs::read_dir(folder.path()).unwrap().all(|one| !one.unwrap().path().ends_with(".part")));
}
