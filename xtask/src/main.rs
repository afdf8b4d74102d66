//! The project's own commands: `cargo xtask ci` is what a person and the CI run alike, `cargo xtask tidy`
//! checks what no compiler does. The standard library only.

mod api_clients;
mod api_fuzz;
mod fuzz;
mod gate;
mod mutants;
mod release;
mod security;
mod shipped;
mod supply;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask ci      lint, every test, simulation, exhaustive search, chaos, API fuzz, API clients, release-check, deny: what has
                    to pass before anything lands
cargo xtask test    every test; --no-run builds them alone
cargo xtask tidy    dependency direction, lengths, files of the root
cargo xtask lint    format, tidy and clippy only
cargo xtask soak    one `dev` for long: --jobs N | --minutes M; fails if anything of it grows that should not
cargo xtask sim     the simulation: run --seeds N | repeat SEED | search | hunt | hashes SEED...; run --help for more
cargo xtask model   the exhaustive search: gate | campaign | bugs; --help for more
cargo xtask fuzz    every fuzzer for a while: [--seconds N] [--target T] [--input FILE]
cargo xtask api-fuzz  schemathesis against servers: [--seconds N] [--max-examples N] [--seed N] [--generators N] [--prepare]
                    [--workers N] [--kills]
cargo xtask api-clients  the OpenAPI document, validated by others; a Python and a TypeScript client made of it drive a job
cargo xtask chaos   --minutes M --store sqlite [--seed N]: real processes under faults, judged by two checkers;
                    exit 6 if something is wrong; the page is also in target/chaos
cargo xtask deny    licences, bans, duplicates and sources of every dependency; with cargo-deny too where it is installed
cargo xtask mutants [--in-diff COMMIT] [arguments of cargo-mutants]: whether unit tests notice changes of the code; with
                    --in-diff alone, also what has changed in the large crates
cargo xtask mutants sample [--seed N | --whole | --file PREFIX] [--min PERCENT] [CRATE...]  the same for the large crates and all
                    their tests: a part of each, every part, or what is in some files; some minutes for a crate, then one to three
                    seconds a mutant; --help for more
cargo xtask release-check [--release]  crash points, planted bugs and their variables are not in the shipped program

sim, soak, model, chaos and release-check build what they run. With --built they take what the build of every test has left.
";

fn main() -> ExitCode {
    let root = root();
    let done = match std::env::args().nth(1).as_deref() {
        Some("chaos") => return ExitCode::from(chaos(&root, &arguments())),
        Some("sim") => sim(&root, &arguments()),
        Some("soak") => {
            prover(&root, ("aetheris-proof", "dev"), &["aetheris-soak", "aetheris-faulted"], &arguments()) == 0
        }
        Some("model") => model(&root, &arguments()),
        Some("ci") => gate::check(&root),
        Some("lint") => lint(&root),
        Some("test") => test(&root, &arguments()),
        Some("tidy") => tidy::check(&root),
        Some("deny") => supply::check(&root),
        Some("mutants") => mutants::run(&root, &arguments()),
        Some("release-check") => release::check(&root, &arguments()),
        Some("fuzz") => fuzz::run(&root, &arguments()),
        Some("api-clients") => api_clients::run(&root),
        Some("api-fuzz") => api_fuzz::run(&root, &arguments()),
        Some("help" | "--help" | "-h") => {
            say(HELP);
            true
        }
        Some(other) => {
            say(&format!("{HELP}\n`{other}` is none of them"));
            false
        }
        None => {
            say(HELP);
            false
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What stands behind the name of the command.
fn arguments() -> Vec<String> {
    std::env::args().skip(2).collect()
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
fn test(root: &Path, arguments: &[String]) -> bool {
    let nextest = Command::new("cargo").args(["nextest", "--version"]).output().is_ok_and(|out| out.status.success());
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    let mut command = [runner, &["--workspace", "--locked"]].concat();
    // Half as many tests again as processors: many wait for real time.
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let threads = (processors + processors.div_ceil(2)).to_string();
    match arguments {
        [] if nextest => command.extend(["--no-fail-fast", "--test-threads", threads.as_str()]),
        [] => command.push("--no-fail-fast"),
        [only] if only == "--no-run" => command.push("--no-run"),
        _ => {
            say(HELP);
            return false;
        }
    }
    run(root, &command)
}

/// Builds the program with its faults and the tool that hurts it, and runs the latter. Its exit code.
fn chaos(root: &Path, arguments: &[String]) -> u8 {
    prover(root, ("aetheris-proof", "dev"), &["aetheris-chaos", "aetheris-faulted"], arguments)
}

/// The simulation; by itself, where it may run for hours, optimised.
fn sim(root: &Path, arguments: &[String]) -> bool {
    prover(root, ("aetheris-sim", "proof"), &["aetheris-sim"], arguments) == 0
}

/// The exhaustive search.
fn model(root: &Path, arguments: &[String]) -> bool {
    prover(root, ("aetheris-model", "dev"), &["aetheris-model"], arguments) == 0
}

/// Takes the programs as the build of all tests has left them: by itself, a package has fewer features and would be built
/// once more.
const BUILT: &str = "--built";

/// Builds programs of a package and runs the first. Its exit code.
fn prover(root: &Path, (package, profile): (&str, &str), programs: &[&str], arguments: &[String]) -> u8 {
    let (built, arguments): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|argument| *argument == BUILT);
    let mut build = vec!["build", "--quiet", "--locked", "--profile", profile, "--package", package];
    build.extend(programs.iter().flat_map(|program| ["--bin", program]));
    let Some(program) = programs.first().filter(|_| !built.is_empty() || run(root, &build)) else { return 1 };
    let folder = if profile == "dev" || !built.is_empty() { "debug" } else { profile };
    let program = target_dir(root).join(folder).join(program);
    match Command::new(&program).args(arguments).current_dir(root).status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        Err(error) => {
            say(&format!("{}: {error}", program.display()));
            1
        }
    }
}

/// Where cargo puts what it builds.
fn target_dir(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from))
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
