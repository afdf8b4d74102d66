//! A process that does not outlive the one that started it, not even if that one is killed with SIGKILL.
//!
//! The kernel is asked for it by the process itself, before it becomes what it is to be: the request
//! survives `exec`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::error::Error;
use crate::exit::Exit;

/// Arguments of the hidden `child`.
#[derive(Debug, Clone, clap::Args)]
pub struct ChildArgs {
    /// The process with which it is to end
    #[arg(long, value_name = "PID")]
    pub parent: i32,
    /// What this program is called with
    #[arg(last = true, required = true)]
    pub rest: Vec<OsString>,
}

/// Becomes this program with other arguments.
///
/// # Errors
/// Whoever started it has gone already, or the program cannot be started.
pub(in crate::commands) fn run(args: &ChildArgs) -> Result<Exit, Error> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| anyhow::anyhow!("the end of the parent cannot be waited for: {error}"))?;
    // It may have ended before the kernel was asked.
    if rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero).map(i32::from) != Some(args.parent) {
        return Err(anyhow::anyhow!("whoever started this has gone").into());
    }
    let program = std::env::current_exe().map_err(anyhow::Error::from)?;
    let error = Command::new(program).args(&args.rest).exec();
    Err(anyhow::anyhow!("this program cannot be started again: {error}").into())
}
