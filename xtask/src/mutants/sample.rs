//! `cargo xtask mutants sample`: crates too large to be mutated whole in one sitting.
//!
//! The mutants of a crate are dealt into parts of at least [`SAMPLE`], one by one, so that each part is spread over the
//! whole crate. A seed picks one part; `--night` runs every part that has no result yet and can be cut off at any time.
//! The same commit and seed give the same mutants.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Outcome, prepared, read};
use crate::{say, step};

/// Mutants of a part, at least, where the crate has as many.
const SAMPLE: usize = 60;
/// Percent of a sample that must be caught.
const CAUGHT_MIN: usize = 85;
const CONFIG: &str = ".cargo/mutants-sample.toml";
/// The crates that are sampled, each with those whose tests have to notice. `core` and the rules of the store are mutated
/// whole.
const CRATES: [Sampled; 6] = [
    // The worker's tests drive every step of the runtime and every sweep of the scheduler in virtual time.
    Sampled { name: "runtime", tested_by: &["aetheris-runtime", "aetheris-worker"] },
    Sampled { name: "worker", tested_by: &["aetheris-worker"] },
    Sampled { name: "scheduler", tested_by: &["aetheris-scheduler", "aetheris-worker"] },
    Sampled { name: "store-sqlite", tested_by: &["aetheris-store-sqlite"] },
    Sampled { name: "server", tested_by: &["aetheris-server"] },
    Sampled { name: "adapters", tested_by: &["aetheris-adapters"] },
];

#[derive(Clone, Copy)]
struct Sampled {
    name: &'static str,
    tested_by: &'static [&'static str],
}

struct Asked {
    seed: usize,
    night: bool,
    crates: Vec<Sampled>,
}

/// Arguments: `[--seed N] [--night] [CRATE...]`; without a crate all six.
pub(super) fn run(root: &Path, arguments: &[String]) -> bool {
    let asked = match asked(arguments) {
        Ok(asked) => asked,
        Err(trouble) => {
            say(&format!("mutants sample: {trouble}"));
            return false;
        }
    };
    let Some(tool) = prepared(root) else { return false };
    let mut good = true;
    for sampled in &asked.crates {
        let name = sampled.name;
        let Some(mutants) = count(root, &tool, name) else {
            say(&format!("mutants sample: the mutants of {name} cannot be listed"));
            return false;
        };
        let parts = parts(mutants);
        say(&format!("{name}: {mutants} mutants in {parts} parts"));
        let wanted = if asked.night { 0..parts } else { asked.seed % parts..asked.seed % parts + 1 };
        let mut seen = Outcome::default();
        for part in wanted {
            match of_part(root, &tool, sampled, (part, parts)) {
                Some(outcome) => seen.add(outcome),
                None => return false,
            }
        }
        good &= told(name, &seen);
    }
    good
}

fn asked(arguments: &[String]) -> Result<Asked, String> {
    let mut asked = Asked { seed: 0, night: false, crates: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--night" => asked.night = true,
            "--seed" => {
                let seed = rest.next().and_then(|text| text.parse().ok());
                asked.seed = seed.ok_or("--seed wants a whole number")?;
            }
            name => match CRATES.iter().find(|known| known.name == name) {
                Some(known) => asked.crates.push(*known),
                None => {
                    let known = CRATES.map(|known| known.name).join(", ");
                    return Err(format!("{name} is not sampled; there are {known}"));
                }
            },
        }
    }
    if asked.crates.is_empty() {
        asked.crates.extend(CRATES);
    }
    Ok(asked)
}

/// As many parts as leave at least [`SAMPLE`] mutants in each.
fn parts(mutants: usize) -> usize {
    (mutants / SAMPLE).max(1)
}

fn count(root: &Path, tool: &Path, name: &str) -> Option<usize> {
    let mut command = Command::new(tool);
    command.args(["mutants", "--list", "--config", CONFIG, "--package", &package(name)]).current_dir(root);
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().count())
}

fn package(name: &str) -> String {
    format!("aetheris-{name}")
}

/// Runs one part, or takes its result from an earlier run on the same commit. `None` if cargo-mutants could not run.
fn of_part(root: &Path, tool: &Path, sampled: &Sampled, (part, parts): (usize, usize)) -> Option<Outcome> {
    let name = sampled.name;
    let folder = folder(root, name, (part, parts))?;
    let (results, done) = (folder.join("mutants.out"), folder.join("done"));
    if done.exists() {
        return Some(read(&results));
    }
    let shard = format!("{part}/{parts}");
    let ended = step(&format!("cargo mutants --package {} --shard {shard}", package(name)), || {
        let mut command = super::command(root, tool, &folder);
        command.args(["--config", CONFIG, "--package", &package(name), "--shard", &shard, "--sharding", "round-robin"]);
        super::unoptimised(&mut command, &package(name));
        for tests in sampled.tested_by {
            command.args(["--test-package", tests]);
        }
        super::ended_well(command.env("NEXTEST_PROFILE", "mutants"))
    });
    (ended && fs::write(&done, "").is_ok()).then(|| read(&results))
}

/// Where the result of a part is kept: by commit, as another commit has other mutants.
fn folder(root: &Path, name: &str, (part, parts): (usize, usize)) -> Option<PathBuf> {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).current_dir(root).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    let folder = root.join("target/mutants/sample").join(commit.trim()).join(format!("{name}-{part}-of-{parts}"));
    fs::create_dir_all(&folder).ok()?;
    Some(folder)
}

/// Prints what came of a crate; whether enough was caught.
fn told(name: &str, seen: &Outcome) -> bool {
    for mutant in &seen.missed {
        say(&format!("mutants: missed {mutant}"));
    }
    let (low, high) = interval(seen.noticed(), seen.all());
    say(&format!(
        "{name}: {} noticed of {} that build ({} by a timeout; {} do not build): {:.1} %, 95 % interval {low:.1} to {high:.1} %",
        seen.noticed(),
        seen.all(),
        seen.timeout,
        seen.unviable,
        percent(seen.noticed(), seen.all()),
    ));
    enough(seen)
}

fn enough(seen: &Outcome) -> bool {
    seen.all() > 0 && seen.noticed() * 100 >= seen.all() * CAUGHT_MIN
}

#[expect(clippy::cast_precision_loss, reason = "some thousand mutants at most")]
fn percent(part: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

/// Wilson's score interval, 95 %, in percent: it stays within 0 and 100 and holds for small samples near either end.
#[expect(clippy::cast_precision_loss, reason = "some thousand mutants at most")]
fn interval(caught: usize, all: usize) -> (f64, f64) {
    if all == 0 {
        return (0.0, 100.0);
    }
    let (z, n) = (1.96_f64, all as f64);
    let share = caught as f64 / n;
    let middle = share + z * z / (2.0 * n);
    let half = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 100.0 / (1.0 + z * z / n);
    ((middle - half).max(0.0) * scale, ((middle + half) * scale).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_sixty_mutants_or_all_there_are() {
        for (mutants, wanted) in [(0, 1), (1, 1), (59, 1), (119, 1), (120, 2), (1_000, 16)] {
            assert_eq!(parts(mutants), wanted, "{mutants}");
        }
    }

    #[test]
    fn the_interval_is_wilsons() {
        // From the table of Newcombe (1998) for the score method: 81 of 263, 15 of 148, 0 of 20.
        for ((caught, all), (low, high)) in
            [((81, 263), (25.53, 36.62)), ((15, 148), (6.24, 16.05)), ((0, 20), (0.0, 16.11))]
        {
            let (found_low, found_high) = interval(caught, all);
            assert!((found_low - low).abs() < 0.02, "{caught}/{all}: {found_low}");
            assert!((found_high - high).abs() < 0.02, "{caught}/{all}: {found_high}");
        }
    }

    #[test]
    fn a_sample_is_good_from_85_percent_on_and_never_when_empty() {
        let of = |caught: usize, missed: usize| Outcome {
            caught,
            missed: vec!["crates/x/src/y.rs:1:1: replace a with b".to_owned(); missed],
            ..Outcome::default()
        };
        assert!(enough(&of(85, 15)));
        assert!(!enough(&of(84, 16)));
        assert!(!enough(&of(0, 0)));
    }

    #[test]
    fn what_is_not_sampled_is_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(
            asked(&words("--seed 7 runtime server"))
                .is_ok_and(|asked| asked.seed == 7 && asked.crates.iter().map(|one| one.name).eq(["runtime", "server"]))
        );
        for wrong in ["core", "--seed", "--seed x", "--nights"] {
            assert!(asked(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
