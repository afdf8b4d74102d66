//! The project's own commands: `cargo xtask ci` is what a person and the CI run alike, `cargo xtask tidy`
//! checks what no compiler does. The standard library only.

mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask ci      format, tidy, clippy, every test: what has to pass before anything lands
cargo xtask tidy    dependency direction, lengths, files of the root
cargo xtask lint    format, tidy and clippy only
";

fn main() -> ExitCode {
    let root = root();
    let done = match std::env::args().nth(1).as_deref() {
        Some("ci") => lint(&root) && test(&root),
        Some("lint") => lint(&root),
        Some("tidy") => tidy::check(&root),
        Some(_) | None => {
            say(HELP);
            false
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

#[expect(clippy::print_stdout, reason = "a command line tool")]
fn say(text: &str) {
    println!("{text}");
}

fn lint(root: &Path) -> bool {
    run(root, &["fmt", "--all", "--check"])
        && step("tidy", || tidy::check(root))
        && run(root, &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
}

/// Every test. With cargo-nextest each runs in a process of its own; without it the standard runner
/// does.
fn test(root: &Path) -> bool {
    let nextest = Command::new("cargo").args(["nextest", "--version"]).output().is_ok_and(|out| out.status.success());
    if nextest {
        run(root, &["nextest", "run", "--workspace", "--locked", "--no-fail-fast"])
    } else {
        run(root, &["test", "--workspace", "--locked", "--no-fail-fast"])
    }
}

fn step(name: &str, body: impl FnOnce() -> bool) -> bool {
    say(&format!("── {name}"));
    body()
}

fn run(root: &Path, args: &[&str]) -> bool {
    step(&format!("cargo {}", args.join(" ")), || {
        let status = Command::new("cargo").args(args).current_dir(root).status();
        status.is_ok_and(|status| status.success())
    })
}
