//! `aetheris prove` holds without a bug and names what a planted bug breaks.

use aetheris_harness::Folder;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long processes may take until they are there, and until they are gone.
const START: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(10);

/// Runs experiments of `prove` beside a folder.
fn prove(folder: &Path, bug: Option<&str>, only: &[&str]) -> Output {
    let mut command = Command::new(crate::program());
    command.args(["prove", "--quick", "--json", "--data"]).arg(folder);
    for name in only {
        command.args(["--only", name]);
    }
    command.env_remove("AETHERIS_BUG").env_remove("AETHERIS_CRASH");
    command.envs(bug.map(|bug| ("AETHERIS_BUG", bug)));
    command.output().unwrap()
}

#[expect(clippy::panic, reason = "a test fails by it, with what the program said")]
fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The names of the guarantees that do not hold.
fn broken(report: &Value) -> Vec<&str> {
    let rows = report["guarantees"].as_array().unwrap().iter();
    rows.filter(|row| row["verdict"] == "does_not_hold").map(|row| row["guarantee"].as_str().unwrap()).collect()
}

#[test]
fn experiments_hold_and_leave_nothing_behind() {
    let scratch = Folder::new("prove");
    let data = scratch.path().join("data");
    let output = prove(&data, None, &["calls", "signals", "folder", "chain"]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(report["proved"], true);
    for name in ["permitted-once", "body-once", "ends-once", "conditions", "audit"] {
        let row = report["guarantees"].as_array().unwrap().iter().find(|row| row["guarantee"] == name).unwrap();
        assert!(row["cases"].as_u64().unwrap() > 0 && row["verdict"] == "holds", "{row:#}");
    }
    assert!(!data.exists(), "the folder was made for this and goes with it");
}

#[test]
fn planted_bugs_are_named() {
    let bugs = [
        ("client-key-ignored", "accepted", "nothing-lost"),
        ("doubt-forgotten", "calls", "body-once"),
        ("early-signal-refused", "signals", "ends-once"),
    ];
    for (bug, only, guarantee) in bugs {
        let scratch = Folder::new("prove-bug");
        let output = prove(&scratch.path().join("data"), Some(bug), &[only]);
        let report = report(&output);
        assert_eq!(output.status.code(), Some(6), "{bug}: {report:#}");
        assert!(broken(&report).contains(&guarantee), "{bug}: {:?}", broken(&report));
        let evidence = report["evidence"].as_str().unwrap();
        assert!(Path::new(evidence).join(only).join("witness.log").exists(), "{evidence}");
    }
}

/// The processes that an ended `prove` has started, by the folder in their arguments.
fn left(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let commands = processes.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    commands.filter(|command| command.contains(&folder)).collect()
}

/// Waits until something holds that the system tells of real processes; whether it came to that in time.
fn within(bound: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let mut waited = Duration::ZERO;
    while !holds() {
        if waited >= bound {
            return false;
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
    true
}

#[test]
fn its_processes_end_with_it_even_by_sigkill() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        let scratch = Folder::new("prove-killed");
        let data = scratch.path().join("data");
        let mut command = Command::new(crate::program());
        // A worker with a call in it is there for as long as a lease lasts.
        command.args(["prove", "--only", "slow", "--data"]).arg(&data);
        let mut proving = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        let children = || left(&data).iter().filter(|command| command.contains("\0worker\0")).count();
        let begun = within(START, || children() >= 2 || proving.try_wait().unwrap().is_some());
        if !begun {
            proving.kill().unwrap();
        }
        assert!(begun && proving.try_wait().unwrap().is_none(), "{signal:?}: its workers were never there");
        rustix::process::kill_process(rustix::process::Pid::from_child(&proving), signal).unwrap();
        assert!(within(END, || proving.try_wait().unwrap().is_some()), "{signal:?}: it has not ended");
        within(END, || left(&data).is_empty());
        assert_eq!(left(&data), Vec::<String>::new(), "{signal:?}");
    }
}
