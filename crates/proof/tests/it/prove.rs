//! `aetheris prove` holds without a bug and names what a planted bug breaks.

use std::path::Path;
use std::process::{Command, Output};

use aetheris_proof::scratch::Scratch;
use serde_json::Value;

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
    let scratch = Scratch::new("prove").unwrap();
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
        let scratch = Scratch::new("prove-bug").unwrap();
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

#[test]
fn its_processes_end_with_it_even_by_sigkill() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        let scratch = Scratch::new("prove-killed").unwrap();
        let data = scratch.path().join("data");
        let mut command = Command::new(crate::program());
        // A worker with a call in it is there for as long as a lease lasts.
        command.args(["prove", "--only", "slow", "--data"]).arg(&data);
        let mut proving = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        let children = || left(&data).iter().filter(|command| command.contains("\0worker\0")).count();
        // Real processes: they are there when the system says so.
        while children() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&proving), signal).unwrap();
        proving.wait().unwrap();
        let until = std::time::Duration::from_secs(10);
        let mut waited = std::time::Duration::ZERO;
        while !left(&data).is_empty() && waited < until {
            std::thread::sleep(std::time::Duration::from_millis(20));
            waited += std::time::Duration::from_millis(20);
        }
        assert_eq!(left(&data), Vec::<String>::new(), "{signal:?}");
    }
}
