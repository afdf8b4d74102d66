//! The program `aetheris` with crash points and planted bugs in it.

use std::process::ExitCode;

fn main() -> ExitCode {
    aetheris_cli::main()
}
