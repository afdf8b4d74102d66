//! The program `aetheris`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// In the system's allocator, a thread that frees what another one allocated waits for that thread's arena. The store's
/// writer allocates what connections free.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    aetheris_cli::main()
}
