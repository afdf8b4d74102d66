//! The program `aetheris`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Threads that free what others have allocated wait for each other in the system's allocator; an answer over HTTP is
/// such a thing, from the store's writer to its connection.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    aetheris_cli::main()
}
