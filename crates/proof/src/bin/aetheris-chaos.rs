//! `aetheris-chaos --minutes M --store sqlite [--seed N]` lets real processes suffer for so long and checks
//! what is left. It needs `aetheris-faulted` beside it. Exit 0 clean, 6 something is wrong.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use aetheris_proof::chaos::run::{Options, run};
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: aetheris-chaos --minutes M [--store sqlite] [--seed N]";
/// Something is wrong.
const FOUND: u8 = 6;

fn main() -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let options = options()?;
        writeln!(std::io::stderr(), "chaos on {}, seed {}, {:?}", options.store, options.seed, options.load)?;
        let verdict = Box::pin(run(&options)).await?;
        write!(std::io::stdout(), "{}", verdict.page)?;
        Ok(if verdict.clean { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
    })
}

fn options() -> Result<Options> {
    let folder = std::env::current_exe()?.parent().context("no folder")?.to_owned();
    let out = folder.parent().context("no target folder")?.join("chaos");
    let program = folder.join("aetheris-faulted");
    let micros = SystemClock.wall().micros().unsigned_abs();
    let mut options = Options { load: Duration::ZERO, seed: micros % 1_000_000, store: "sqlite".into(), out, program };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().context(USAGE)?;
        match name.as_str() {
            "--minutes" => options.load = Duration::from_secs_f64(value.parse::<f64>().context(USAGE)? * 60.0),
            "--seed" => options.seed = value.parse().context(USAGE)?,
            "--store" => options.store = value,
            _ => bail!(USAGE),
        }
    }
    if options.load.is_zero() {
        bail!(USAGE);
    }
    Ok(options)
}
