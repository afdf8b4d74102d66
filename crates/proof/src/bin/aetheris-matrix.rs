//! `aetheris-matrix [WORD]` runs every cell of the crash matrix whose name contains the word, and prints
//! what became of each. It needs `aetheris-faulted` beside it.

use std::io::Write as _;
use std::process::ExitCode;

use aetheris_proof::drive::{cells, matrix};
use aetheris_store::system::{Clock, SystemClock};
use anyhow::{Context, Result};
use futures_util::StreamExt;

/// Cells that run at once: most of their time they wait.
const AT_ONCE: usize = 5;
/// A cell is not green.
const FOUND: u8 = 6;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let word = std::env::args().nth(1).unwrap_or_default();
    let program = std::env::current_exe()?.parent().context("no folder")?.join("aetheris-faulted");
    let cells: Vec<_> = cells::all().into_iter().filter(|cell| cell.order().contains(&word)).collect();
    let (total, began) = (cells.len(), SystemClock.boot());
    let runs = cells.into_iter().map(|cell| {
        let program = program.clone();
        async move {
            let began = SystemClock.boot();
            let done = tokio::spawn(async move { (matrix::run(program, &cell).await, cell) }).await;
            (done, SystemClock.boot() - began)
        }
    });
    let mut runs = futures_util::stream::iter(runs).buffered(AT_ONCE);
    let (mut out, mut green) = (std::io::stdout(), 0);
    while let Some((done, took)) = runs.next().await {
        let (result, cell) = done?;
        let verdict = result.as_ref().map_or_else(|error| format!("FAILED\n{error:#}\n"), |()| "green".to_owned());
        green += usize::from(result.is_ok());
        writeln!(out, "{:<44} {:>6} ms  {verdict}", cell.order(), took.as_millis())?;
    }
    let seconds = (SystemClock.boot() - began).as_secs();
    writeln!(out, "crash matrix: {total} cells, {green} green, {seconds} s")?;
    Ok(if green == total { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}
