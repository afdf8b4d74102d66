//! `aetheris-golden NAME`: leaves a golden folder of this build. It needs `aetheris-faulted` beside it and is run from the
//! project's folder.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name] = arguments.as_slice() else { bail!("usage: aetheris-golden NAME") };
    let program = std::env::current_exe()?.parent().context("no folder")?.join("aetheris-faulted");
    let (golden, histories) = (Path::new("crates/proof/golden"), Path::new("crates/core/tests/golden"));
    aetheris_proof::golden::make(program, &golden.join(name), &histories.join(name)).await?;
    Ok(ExitCode::SUCCESS)
}
