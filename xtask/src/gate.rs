//! The gate: everything that has to pass before anything lands, with the time that each part took.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::{api_fuzz, chaos, lint, release, run, say, sim, supply, test};

/// What the gate may take on two cores from a cold build; beyond it, it says so.
const BUDGET: Duration = Duration::from_secs(45 * 60);

struct Part {
    name: &'static str,
    passed: bool,
    took: Duration,
}

/// Runs every part. Whoever is refused by the first, which is quick, sees that alone; else all are run, so
/// that one look shows everything that is wrong.
pub(crate) fn check(root: &Path) -> bool {
    let began = now();
    let mut parts = vec![part("format, tidy, clippy", || lint(root))];
    if parts.iter().all(|part| part.passed) {
        parts.push(part("every test", || test(root)));
        // The same seeds for everybody, so that a failure is the change's; campaigns run fresh ones.
        parts.push(part("simulation", || sim(root, &words("run --seeds 12000 --from 100001"))));
        parts.push(part("exhaustive search", || {
            run(root, &["run", "--package", "aetheris-model", "--locked", "--quiet", "--", "gate"])
        }));
        parts.push(part("chaos", || chaos(root, &words("--minutes 3 --store sqlite")) == 0));
        parts.push(part("API fuzz", || api_fuzz::run(root, &words("--seconds 240"))));
        parts.push(part("API fuzz, kills", || api_fuzz::run(root, &words("--seconds 60 --kills"))));
        parts.push(part("release", || release::check(root, &[])));
        parts.push(part("dependencies", || supply::check(root)));
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
    parts.iter().all(|part| part.passed)
}

fn part(name: &'static str, body: impl FnOnce() -> bool) -> Part {
    let began = now();
    let passed = body();
    Part { name, passed, took: began.elapsed() }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[expect(clippy::disallowed_methods, reason = "how long the gate takes is told to people")]
fn now() -> Instant {
    Instant::now()
}
