//! `aetheris-chaos --minutes M --store sqlite [--seed N]` lets real processes suffer for so long and checks
//! what is left. It needs `aetheris-faulted` beside it. Exit 0 clean, 6 something is wrong. `--bug NAME` plants a
//! bug of the zoo, which a run should find.

use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

use aetheris_proof::chaos::run::{Options, run};
use aetheris_proof::verdict;
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: aetheris-chaos --minutes M [--store sqlite] [--seed N] [--bug NAME]";
/// Set for a run that has a mount namespace of its own.
const INSIDE: &str = "AETHERIS_CHAOS_INSIDE";

/// Runs itself in a user and mount namespace of its own, where it may mount: a disk can be full there for it
/// alone. Nothing where it may mount already, is inside, or the system has no such thing.
fn in_a_namespace() -> Option<ExitCode> {
    if rustix::process::geteuid().is_root() || std::env::var_os(INSIDE).is_some() {
        return None;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]).env(INSIDE, "1");
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        return None;
    }
    let status = unshare().arg(std::env::current_exe().ok()?).args(std::env::args().skip(1)).status().ok()?;
    Some(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn main() -> Result<ExitCode> {
    if let Some(code) = in_a_namespace() {
        return Ok(code);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let options = options()?;
        writeln!(std::io::stderr(), "chaos on {}, seed {}, {:?}", options.store, options.seed, options.load)?;
        let judged = Box::pin(run(&options)).await?;
        write!(std::io::stdout(), "{}", judged.page)?;
        Ok(verdict(judged.clean))
    })
}

fn options() -> Result<Options> {
    let folder = std::env::current_exe()?.parent().context("no folder")?.to_owned();
    let out = folder.parent().context("no target folder")?.join("chaos");
    let program = folder.join("aetheris-faulted");
    let micros = SystemClock.wall().micros().unsigned_abs();
    let mut options =
        Options { bug: None, load: Duration::ZERO, seed: micros % 1_000_000, store: "sqlite".into(), out, program };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().context(USAGE)?;
        match name.as_str() {
            "--minutes" => options.load = Duration::from_secs_f64(value.parse::<f64>().context(USAGE)? * 60.0),
            "--seed" => options.seed = value.parse().context(USAGE)?,
            "--bug" => options.bug = Some(value),
            "--store" => options.store = value,
            _ => bail!(USAGE),
        }
    }
    if options.load.is_zero() {
        bail!(USAGE);
    }
    Ok(options)
}
