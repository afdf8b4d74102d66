//! The simulation held against itself: it repeats to the byte, and it finds what is planted.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

use aetheris_sim::seed::{self, Backend};

fn program(args: &[&str], bug: Option<&str>) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aetheris-sim"));
    command.args(args).env_remove("AETHERIS_BUG");
    if let Some(bug) = bug {
        command.env("AETHERIS_BUG", bug);
    }
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// Each process hashes with keys of its own: an order that depended on a hash map would differ.
#[test]
fn a_seed_repeats_to_the_byte_in_any_process() {
    let seeds: Vec<String> = (1..=20).map(|seed| seed.to_string()).collect();
    let args: Vec<&str> = std::iter::once("hashes").chain(seeds.iter().map(String::as_str)).collect();
    let (first, second) = (program(&args, None), program(&args, None));
    assert_eq!(first, second);
    assert_eq!(first.1.lines().count(), 20);
    seed::watch_panics();
    let here: String = (1..=20)
        .map(|seed| {
            let outcome = seed::run(seed, Backend::Memory).unwrap();
            format!("{seed} {} {}\n", outcome.trace_hash, outcome.trace.len())
        })
        .collect();
    assert_eq!(here, first.1);
}

#[test]
fn seeds_differ() {
    seed::watch_panics();
    assert_ne!(seed::run(1, Backend::Memory).unwrap().trace_hash, seed::run(2, Backend::Memory).unwrap().trace_hash);
}

/// A run must be long enough to be worth something: thirty seconds of virtual time, with jobs in it.
#[test]
fn runs_are_long_and_examine_something() {
    seed::watch_panics();
    let outcomes: Vec<_> = (1..=10).map(|seed| seed::run(seed, Backend::Memory).unwrap()).collect();
    let time: u64 = outcomes.iter().map(|outcome| outcome.time.as_secs()).sum();
    assert!(time >= 10 * 30, "{time} s");
    assert!(outcomes.iter().all(|outcome| outcome.tally.cases.values().sum::<u64>() > 0));
    assert!(outcomes.iter().map(|outcome| outcome.jobs).sum::<u64>() >= 10);
}

#[test]
fn a_planted_bug_is_found_and_told() {
    let (code, told) = program(&["hunt", "--seeds", "300"], Some("early-signal-refused"));
    assert_eq!(code, 6, "{told}");
    let last: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!(last["failed"], serde_json::json!(true));
    let seed = last["seed"].to_string();
    // The same seed tells the same, and without the bug nothing.
    let (code, story) = program(&["repeat", &seed], Some("early-signal-refused"));
    assert_eq!(code, 6);
    assert!(story.contains(last["what"].as_str().unwrap()), "{story}");
    assert_eq!(program(&["repeat", &seed], None).0, 0);
}

/// Seeds that once failed are numbers with a reason behind them.
#[test]
fn the_regressions_have_reasons() {
    let text = include_str!("../../regressions.txt");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (seed, reason) = line.split_once(' ').unwrap();
        seed.parse::<u64>().unwrap();
        assert!(reason.trim().len() > 10, "{line}");
    }
}

/// The production store does what its model does, to the byte.
#[test]
fn a_seed_tells_the_same_story_over_sqlite() {
    seed::watch_panics();
    for seed in 1..=20 {
        let outcome = seed::run(seed, Backend::Sqlite).unwrap();
        assert_eq!(outcome.tally.violations, Vec::<String>::new(), "seed {seed}");
        assert_eq!(outcome.tally.cases["STORES"], 1);
    }
}
