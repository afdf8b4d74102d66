//! The gate: everything that has to pass before anything lands, with the time that each part took. What a part that
//! failed said last stands at the end, where whoever reads only the end of a long log finds it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::say;

/// What the gate may take on two cores from a cold build; beyond it, it says so.
const BUDGET: Duration = Duration::from_secs(25 * 60);
/// How long what a part has said may be on its way when the part has ended.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How many of the last lines of a part are told again if it fails.
const TOLD_AGAIN: usize = 100;

/// A part: a name, and the command of this program that it is.
type Named = (&'static str, &'static str);

/// How many stages have to pass before others begin: the first is quick, and what the second builds is run by the others
/// (`--built`), which would else judge the programs of an earlier tree.
const NEEDED: usize = 2;

/// The stages, one after the other. Their lanes run beside each other, each part of a lane after the one before: chaos
/// mostly waits, and so does an installation. The simulation has the same seeds for everybody, so that a failure is the
/// change's; campaigns run fresh ones.
const STAGES: [&[&[Named]]; 5] = [
    &[&[("format, tidy, clippy", "lint")], &[("packages of API fuzz", "api-fuzz --prepare")]],
    &[&[("build of the tests", "test --no-run")]],
    &[&[("every test", "test")]],
    &[
        &[
            ("simulation", "sim --built run --seeds 8000 --from 100001"),
            ("simulation, SQLite", "sim --built run --seeds 1000 --from 100001 --any-marks --store sqlite"),
            ("search, simulation", "sim --built search"),
        ],
        &[("chaos", "chaos --built --minutes 3 --store sqlite")],
    ],
    &[
        &[("API fuzz", "api-fuzz --seconds 150"), ("API fuzz, kills", "api-fuzz --seconds 60 --kills")],
        &[
            ("API clients", "api-clients"),
            ("release", "release-check --built"),
            ("dependencies", "deny"),
            ("exhaustive search", "model --built gate"),
            ("soak", "soak --built --jobs 10000"),
        ],
    ],
];

struct Part {
    name: &'static str,
    command: &'static str,
    passed: bool,
    took: Duration,
    said_last: VecDeque<String>,
}

/// Runs every part. Whoever is refused by what all need sees that alone; else all are run, so that one look shows
/// everything that is wrong.
pub(crate) fn check(root: &Path) -> bool {
    let began = now();
    // Asked once: the path of a program that is built anew meanwhile says that it was deleted.
    let Ok(program) = std::env::current_exe() else { return false };
    let mut parts: Vec<Part> = Vec::new();
    for (place, stage) in STAGES.into_iter().enumerate() {
        parts.extend(run(root, &program, stage));
        if place < NEEDED && parts.iter().any(|part| !part.passed) {
            break;
        }
    }
    let failed: Vec<&Part> = parts.iter().filter(|part| !part.passed).collect();
    for part in &failed {
        say(&format!("\n── {} FAILED (cargo xtask {}); it said last:\n", part.name, part.command));
        for line in &part.said_last {
            say(line);
        }
    }
    say("");
    for part in &parts {
        let (verdict, seconds) = (if part.passed { "ok" } else { "FAILED" }, part.took.as_secs());
        say(&format!("{:<24}{verdict:<8}{:>3} min {:>2} s", part.name, seconds / 60, seconds % 60));
    }
    let took = began.elapsed();
    say(&format!("{:<24}{:<8}{:>3} min {:>2} s", "", "in all", took.as_secs() / 60, took.as_secs() % 60));
    if took > BUDGET {
        say(&format!("this is over its budget of {} minutes: make it faster", BUDGET.as_secs() / 60));
    }
    failed.is_empty()
}

/// Runs the lanes of a stage. What parts say that run beside others has their names before it.
fn run(root: &Path, program: &Path, lanes: &[&[Named]]) -> Vec<Part> {
    let named = lanes.len() > 1;
    let lane = |parts: &[Named]| parts.iter().map(|of| part(root, program, *of, named)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let running: Vec<_> = lanes.iter().map(|parts| scope.spawn(|| lane(parts))).collect();
        let ended = running.into_iter().zip(lanes).flat_map(|(running, parts)| {
            // A lane that broke off has failed.
            running.join().unwrap_or_else(|_| parts.iter().map(|of| failed(*of, "it broke off")).collect())
        });
        ended.collect()
    })
}

fn failed((name, command): Named, why: &str) -> Part {
    Part { name, command, passed: false, took: Duration::ZERO, said_last: VecDeque::from([why.to_owned()]) }
}

fn part(root: &Path, program: &Path, (name, command): Named, named: bool) -> Part {
    let began = now();
    let prefix = if named { format!("{name} │ ") } else { String::new() };
    let done = said(root, program, command, &prefix);
    let (passed, said_last) = done.unwrap_or_else(|error| (false, VecDeque::from([error.to_string()])));
    Part { name, command, passed, took: began.elapsed(), said_last }
}

/// What a part has said last.
type Last = Arc<Mutex<VecDeque<String>>>;

/// Runs a command of this program, passes on what it says, and keeps the end of it.
fn said(root: &Path, program: &Path, command: &str, prefix: &str) -> std::io::Result<(bool, VecDeque<String>)> {
    let mut child = Command::new(program)
        .args(command.split_whitespace())
        .current_dir(root)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let last = Last::default();
    let (ended, ends) = std::sync::mpsc::channel();
    if let Some(out) = child.stdout.take() {
        listen(out, (std::io::stdout(), prefix), &last, ended.clone());
    }
    if let Some(err) = child.stderr.take() {
        listen(err, (std::io::stderr(), prefix), &last, ended);
    }
    let status = child.wait()?;
    // Whoever has outlived the part and holds its pipes is not waited for.
    let mut open = 2;
    while open > 0 && ends.recv_timeout(LAST_WORDS).is_ok() {
        open -= 1;
    }
    let said_last = std::mem::take(&mut *last.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((status.success(), said_last))
}

fn listen(
    from: impl Read + Send + 'static,
    (to, prefix): (impl Write + Send + 'static, &str),
    last: &Last,
    ended: Sender<()>,
) {
    let (last, prefix) = (Arc::clone(last), prefix.to_owned());
    std::thread::spawn(move || {
        pass_on(from, (to, &prefix), &last);
        let _ = ended.send(());
    });
}

/// Passes on line by line. Whoever does not listen any more does not end the part.
fn pass_on(from: impl Read, (mut to, prefix): (impl Write, &str), last: &Mutex<VecDeque<String>>) {
    let (mut from, mut line) = (BufReader::new(from), Vec::new());
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // One write: another part's line does not fall into the middle of it.
        let _ = to.write_all(&[prefix.as_bytes(), &line].concat());
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == TOLD_AGAIN {
            last.pop_front();
        }
        last.push_back(text);
        line.clear();
    }
}

#[expect(clippy::disallowed_methods, reason = "how long the gate takes is told to people")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_what_a_part_says_is_kept_and_all_of_it_passed_on() {
        let all: String = (0..TOLD_AGAIN + 20).map(|number| format!("line {number}\n")).collect();
        let (mut passed_on, last) = (Vec::new(), Mutex::new(VecDeque::new()));
        pass_on(all.as_bytes(), (&mut passed_on, ""), &last);
        assert_eq!(String::from_utf8(passed_on).unwrap(), all);
        let mut named = Vec::new();
        pass_on(&b"a\nb\n"[..], (&mut named, "x | "), &Mutex::default());
        assert_eq!(named, b"x | a\nx | b\n");
        let last = last.into_inner().unwrap();
        assert_eq!((last.len(), last[0].as_str()), (TOLD_AGAIN, "line 20"));
    }
}
