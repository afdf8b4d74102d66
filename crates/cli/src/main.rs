//! The program `aetheris`.

use std::process::ExitCode;

fn main() -> ExitCode {
    aetheris_cli::main()
}
