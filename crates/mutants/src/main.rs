//! `aetheris-mutants`: the library's one command. Exit 6: too few were noticed.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> anyhow::Result<ExitCode> {
    let good = aetheris_mutants::run(&aetheris_mutants::Arguments::parse())?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(6) })
}
