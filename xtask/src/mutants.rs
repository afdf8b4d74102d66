//! `cargo xtask mutants`: whether the unit tests notice when the code is changed.
//!
//! cargo-mutants is built once into `target/tools`. `.cargo/mutants.toml` says what is left out and why;
//! `docs/mutants.md` has the results. The large crates are `aetheris-mutants`' (`crates/mutants`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{say, step};

const VERSION: &str = "27.1.0";
/// Percent of the mutants that must be caught.
const CAUGHT_MIN: usize = 90;
/// Where none may be missed: who may act, write, call and answer.
const NONE_MISSED: [&str; 6] = [
    "crates/core/src/lease.rs",
    "crates/core/src/ledger.rs",
    "crates/core/src/signal.rs",
    "crates/store/src/decide.rs",
    "crates/store/src/rules.rs",
    "crates/store/src/unit.rs",
];
/// Survivors that no test can find and that the patterns of the configuration do not reach. Both stand inside a
/// planted bug, which is constant false without the feature `faults`; the zoo runs them.
const EXPLAINED: [&str; 2] = [
    "delete field permit from struct PermitRequest expression in grant",
    "delete field permit_id from struct Settle expression in settle",
];
/// What is mutated when nothing else is asked for.
const DEFAULT: [&str; 12] = [
    "--package",
    "aetheris-core",
    "--package",
    "aetheris-store",
    "--file",
    "crates/core/src/**/*.rs",
    "--file",
    "crates/store/src/decide.rs",
    "--file",
    "crates/store/src/rules.rs",
    "--file",
    "crates/store/src/unit.rs",
];

/// Arguments: `--in-diff REV` mutates only what has changed since a commit; everything else goes to
/// cargo-mutants, as `--package aetheris-store --file crates/store/src/rules.rs` or `--shard 0/8`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> bool {
    if let Some((first, rest)) = arguments.split_first()
        && first == "sample"
    {
        return sample(root, rest);
    }
    let Some(tool) = prepared(root) else { return false };
    let mut args: Vec<String> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--in-diff" {
            let Some(diff) = rest.next().and_then(|revision| diff_since(root, revision)) else {
                say("mutants: --in-diff wants a commit");
                return false;
            };
            args.extend(["--in-diff".to_owned(), diff]);
        } else {
            args.push(argument.clone());
        }
    }
    if !args.iter().any(|arg| arg == "--package" || arg == "-p") {
        args.extend(DEFAULT.map(str::to_owned));
    }
    let output = root.join("target/mutants");
    // What an earlier run has left is no result of this one.
    let results = output.join("mutants.out");
    if results.exists() && fs::remove_dir_all(&results).is_err() {
        say("mutants: the results of an earlier run cannot be removed");
        return false;
    }
    let done = step(&format!("cargo mutants {}", args.join(" ")), || {
        let mut command = command(root, &tool, &output);
        let names = args.iter().zip(args.iter().skip(1)).filter(|(flag, _)| *flag == "--package" || *flag == "-p");
        names.for_each(|(_, package)| unoptimised(&mut command, package));
        ended_well(command.args(&args))
    });
    let since = arguments.iter().position(|argument| argument == "--in-diff").and_then(|at| arguments.get(at + 1));
    let rest = match since {
        Some(revision) if arguments.len() == 2 => beside(root, revision),
        Some(_) | None => true,
    };
    done && judge(&results, since.is_some()) && rest
}

/// The files of the large crates that have changed since a commit: all of their mutants.
fn beside(root: &Path, revision: &str) -> bool {
    let diff = Command::new("git").args(["diff", "--name-only", revision, "--", "crates"]).current_dir(root).output();
    let Ok(diff) = diff else { return false };
    let names = String::from_utf8_lossy(&diff.stdout).into_owned();
    let files: Vec<&str> = names.lines().filter(|name| is_of_a_large_crate(name)).collect();
    let arguments: Vec<String> = files.iter().flat_map(|file| ["--file".to_owned(), (*file).to_owned()]).collect();
    files.is_empty() || sample(root, &arguments)
}

/// Whether it is production code that is not mutated whole here, nor of a crate that only proves.
fn is_of_a_large_crate(name: &str) -> bool {
    const PROVES: [&str; 11] = [
        "check",
        "disk",
        "fault",
        "fuzzing",
        "model",
        "mutants",
        "plain",
        "proof",
        "sim",
        "store-conformance",
        "testing",
    ];
    let Some((krate, file)) = name.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
        return false;
    };
    let tests =
        file == "tests.rs" || file.starts_with("tests/") || file.contains("/tests/") || file.ends_with("/tests.rs");
    name.ends_with(".rs") && krate != "core" && !PROVES.contains(&krate) && !NONE_MISSED.contains(&name) && !tests
}

/// The large crates: a part of their mutants, or all, with all their tests.
fn sample(root: &Path, arguments: &[String]) -> bool {
    let asks = arguments.iter().any(|argument| argument == "--help" || argument == "-h");
    let tool = if asks { Some(PathBuf::new()) } else { prepared(root) };
    let Some(tool) = tool else { return false };
    let arguments: Vec<String> = ["--tool".to_owned(), tool.to_string_lossy().into_owned()]
        .into_iter()
        .chain(arguments.iter().cloned())
        .collect();
    crate::prover(root, ("aetheris-mutants", "dev"), &["aetheris-mutants"], &arguments) == 0
}

/// The tool's path, once it is built.
fn prepared(root: &Path) -> Option<PathBuf> {
    let tools = root.join("target/tools");
    let tool = tools.join("bin/cargo-mutants");
    (tool.exists() || install(root, &tools)).then_some(tool)
}

/// cargo-mutants with what every run of it has in common; its results go to `mutants.out` in `output`.
fn command(root: &Path, tool: &Path, output: &Path) -> Command {
    let mut command = Command::new(tool);
    command.args(["mutants", "--jobs", "1", "--no-shuffle", "--colors", "never", "--output"]).arg(output);
    // Nobody debugs a mutant; a build takes a third less.
    command.env("CARGO_PROFILE_DEV_DEBUG", "none").env("CARGO_PROFILE_TEST_DEBUG", "none");
    // A mutant is one function of a crate: from the build of the one before it, it takes a tenth of the time.
    command.env("CARGO_INCREMENTAL", "1");
    // The copy that is mutated is another one each time; what it depends on is built once.
    command.env("CARGO_TARGET_DIR", root.join("target/mutants/build")).current_dir(root);
    command
}

/// Builds the crate that is mutated without optimisation: it is built for each mutant, and its tests run once.
fn unoptimised(command: &mut Command, package: &str) {
    command.arg(format!("--cargo-arg=--config=profile.dev.package.{package}.opt-level=0"));
}

/// Whether every mutant was tried. 2: some were missed; 3: some took too long. What that means is judged by the caller.
fn ended_well(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| matches!(status.code(), Some(0 | 2 | 3)))
}

/// What came of the mutants of a run.
#[derive(Default)]
struct Outcome {
    caught: usize,
    timeout: usize,
    missed: Vec<String>,
    unviable: usize,
}

impl Outcome {
    fn noticed(&self) -> usize {
        self.caught + self.timeout
    }

    /// Those that build.
    fn all(&self) -> usize {
        self.noticed() + self.missed.len()
    }
}

/// Reads what came of every mutant, without those that are explained.
fn read(results: &Path) -> Outcome {
    let list = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(results.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let mut missed = list("missed.txt");
    missed.retain(|mutant| !EXPLAINED.iter().any(|explained| mutant.ends_with(explained)));
    Outcome {
        caught: list("caught.txt").len(),
        timeout: list("timeout.txt").len(),
        missed,
        unviable: list("unviable.txt").len(),
    }
}

fn install(root: &Path, tools: &Path) -> bool {
    step(&format!("cargo install cargo-mutants {VERSION}"), || {
        let mut command = Command::new("cargo");
        command.args(["install", "cargo-mutants", "--locked", "--version", VERSION, "--root"]).arg(tools);
        command.arg("--target-dir").arg(tools.join("build")).current_dir(root);
        command.status().is_ok_and(|status| status.success())
    })
}

fn diff_since(root: &Path, revision: &str) -> Option<String> {
    let path = root.join("target/mutants-in.diff");
    let output = Command::new("git").args(["diff", revision, "--", "crates"]).current_dir(root).output().ok()?;
    (output.status.success() && fs::write(&path, output.stdout).is_ok()).then(|| path.to_string_lossy().into_owned())
}

/// Whether what came of every mutant is good enough. A change may have nothing that can be mutated.
fn judge(results: &Path, of_a_change: bool) -> bool {
    let seen = read(results);
    let (noticed, all, missed) = (seen.noticed(), seen.all(), &seen.missed);
    for mutant in missed {
        say(&format!("mutants: missed {mutant}"));
    }
    for mutant in missed.iter().filter(|mutant| in_fences(mutant)) {
        say(&format!("mutants: none may be missed here: {mutant}"));
    }
    say(&format!(
        "mutants: {all} that build: {noticed} noticed ({} of them by a timeout), {} missed; {} do not build",
        seen.timeout,
        missed.len(),
        seen.unviable
    ));
    if all == 0 && !of_a_change {
        say("mutants: nothing was mutated");
    }
    good(noticed, missed, of_a_change)
}

fn in_fences(mutant: &str) -> bool {
    NONE_MISSED.iter().any(|file| mutant.starts_with(file))
}

fn good(noticed: usize, missed: &[String], of_a_change: bool) -> bool {
    let all = noticed + missed.len();
    (all > 0 || of_a_change) && noticed * 100 >= all * CAUGHT_MIN && !missed.iter().any(|mutant| in_fences(mutant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_mutated_is_good_only_where_a_change_has_nothing() {
        assert!(!good(0, &[], false));
        assert!(good(0, &[], true));
    }

    #[test]
    fn what_has_changed_in_a_large_crate_is_mutated_too() {
        for (name, wanted) in [
            ("crates/runtime/src/run/step.rs", true),
            ("crates/store/src/claim.rs", true),
            ("crates/store/src/rules.rs", false),
            ("crates/core/src/job.rs", false),
            ("crates/sim/src/oracle.rs", false),
            ("crates/worker/tests/it/life.rs", false),
            ("crates/cli/src/tests/fields.rs", false),
            ("crates/store-sqlite/src/claim.sql", false),
        ] {
            assert_eq!(is_of_a_large_crate(name), wanted, "{name}");
        }
    }

    #[test]
    fn most_are_caught_and_all_where_it_matters() {
        let missed = |file: &str| [format!("{file}:1:1: replace a with b")];
        assert!(good(9, &missed("crates/core/src/id.rs"), false));
        assert!(!good(8, &missed("crates/core/src/id.rs"), false));
        assert!(!good(99, &missed("crates/core/src/lease.rs"), true));
    }
}
