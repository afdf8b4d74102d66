//! `aetheris-soak (--jobs N | --minutes M) [--bug NAME]` lets one `aetheris dev` work for so long and fails if anything
//! of it grows that should not. It needs `aetheris-faulted` beside it. Exit 0 even, 6 something drifts.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use aetheris_proof::soak::{self, Length, Options};
use aetheris_proof::verdict;
use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: aetheris-soak (--jobs N | --minutes M) [--bug NAME]";

#[tokio::main]
async fn main() -> ExitCode {
    match soak().await {
        Ok(code) => code,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn soak() -> Result<ExitCode> {
    let (mut bug, mut length) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().context(USAGE)?;
        match name.as_str() {
            "--bug" => bug = Some(value),
            "--jobs" => length = Some(Length::Jobs(value.parse().context(USAGE)?)),
            "--minutes" => {
                length = Some(Length::Time(Duration::from_secs_f64(value.parse::<f64>().context(USAGE)? * 60.0)));
            }
            _ => bail!(USAGE),
        }
    }
    let program = std::env::current_exe()?.parent().context("no folder")?.join("aetheris-faulted");
    let options = Options { bug, length: length.context(USAGE)?, program };
    let mut out = std::io::stdout();
    writeln!(out, "{}", soak::head())?;
    let told = |line: &str| drop(writeln!(std::io::stdout(), "{line}"));
    let soaked = Box::pin(soak::run(&options, told)).await?;
    write!(out, "\n{soaked}")?;
    Ok(verdict(soaked.drifts.is_empty()))
}
