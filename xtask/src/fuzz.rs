//! `cargo xtask fuzz`: builds the fuzzers of `fuzz/` with the coverage flags, which the stable compiler
//! has, and runs each for a while from the kept corpus. A finding leaves its input and ends the command
//! with a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::say;

/// What `cargo fuzz` sets without a sanitizer: the code is safe Rust, so that a panic, a hang or memory
/// beyond the bound is what can be found.
const FLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The time one input may take, in seconds, and the memory a fuzzer may have, in MiB.
const INPUT_SECONDS_MAX: u32 = 10;
const MEMORY_MIB_MAX: u32 = 2_048;
const INPUT_BYTES_MAX: u32 = 8_192;
const SECONDS_DEFAULT: u32 = 60;

/// What was asked for.
struct Asked {
    input: Option<PathBuf>,
    seconds: u32,
    target: Option<String>,
}

/// Runs the command; whether nothing was found.
pub(crate) fn run(root: &Path, arguments: &[String]) -> bool {
    match asked(arguments) {
        Ok(asked) => fuzz(root, &asked),
        Err(why) => {
            say(&format!("{why}\nusage: cargo xtask fuzz [--seconds N] [--target T] [--input FILE]"));
            false
        }
    }
}

fn asked(arguments: &[String]) -> Result<Asked, String> {
    let mut asked = Asked { input: None, seconds: SECONDS_DEFAULT, target: None };
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--seconds" => asked.seconds = value.parse().map_err(|_| format!("`{value}` is no number of seconds"))?,
            "--target" => asked.target = Some(value.clone()),
            "--input" => asked.input = Some(PathBuf::from(value)),
            _ => return Err(format!("unknown flag `{flag}`")),
        }
    }
    if asked.input.is_some() && asked.target.is_none() {
        return Err("--input needs --target".to_owned());
    }
    Ok(asked)
}

fn fuzz(root: &Path, asked: &Asked) -> bool {
    let folder = root.join("fuzz");
    let targets: Vec<String> =
        targets(&folder).into_iter().filter(|name| asked.target.as_ref().is_none_or(|only| only == name)).collect();
    if targets.is_empty() {
        say("there is no such target; the folders of fuzz/corpus name them");
        return false;
    }
    let Some(host) = host() else {
        say("`rustc -vV` does not name this machine");
        return false;
    };
    if !build(&folder, &host, &targets) {
        return false;
    }
    let binaries = folder.join("target").join(host).join("release");
    if let (Some(input), Some(target)) = (&asked.input, targets.first()) {
        return Command::new(binaries.join(target)).arg(input).status().is_ok_and(|status| status.success());
    }
    let mut clean = true;
    for target in targets {
        clean &= search(&folder, &binaries, &target, asked.seconds);
    }
    clean
}

/// The targets are the folders of the corpus; a test holds them to the list of the code.
fn targets(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("corpus")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn host() -> Option<String> {
    let out = Command::new("rustc").arg("-vV").output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

/// With `--target` the flags reach neither build scripts nor macros.
fn build(folder: &Path, host: &str, targets: &[String]) -> bool {
    say("── building the fuzzers");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "--locked", "--target", host]).current_dir(folder);
    for target in targets {
        cargo.args(["--bin", target]);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
    cargo.status().is_ok_and(|status| status.success())
}

/// One target for a while; whether nothing was found.
fn search(folder: &Path, binaries: &Path, target: &str, seconds: u32) -> bool {
    let corpus = folder.join("target").join("corpus").join(target);
    let found = folder.join("target").join("found");
    if fs::create_dir_all(&corpus).is_err() || fs::create_dir_all(&found).is_err() {
        say("the folders for inputs cannot be made");
        return false;
    }
    let kept = ["corpus", "regressions"].map(|kind| folder.join(kind).join(target));
    let out = Command::new(binaries.join(target))
        .arg(&corpus)
        .args(kept.iter().filter(|path| path.is_dir()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-artifact_prefix={}/{target}-", found.display()))
        .arg("-print_final_stats=1")
        .stdout(Stdio::null())
        .output();
    let Ok(out) = out else {
        say(&format!("{target}: cannot be started"));
        return false;
    };
    let log = String::from_utf8_lossy(&out.stderr);
    if out.status.success() {
        let executed = statistic(&log, "stat::number_of_executed_units:");
        say(&format!("{target:<14} {executed:>9} inputs in {seconds} s, {} covered, nothing found", covered(&log)));
        return true;
    }
    say(&log);
    say(&format!(
        "{target}: FOUND. Its input is named above. Again: cargo xtask fuzz --target {target} --input FILE. When it is \
         fixed, keep it: move it to fuzz/regressions/{target}/"
    ));
    false
}

fn statistic<'l>(log: &'l str, name: &str) -> &'l str {
    log.lines().find_map(|line| line.strip_prefix(name)).map_or("?", str::trim)
}

/// Edges of the code, from the last line of progress.
fn covered(log: &str) -> &str {
    let last = log.lines().rev().find_map(|line| line.split_once(" cov: "));
    last.and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or("?")
}
