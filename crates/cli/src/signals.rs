//! The signals that ask a server or worker process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// A signal that asks the process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// SIGHUP: the terminal or the connection that the process was started from has closed.
    Hangup,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl StopSignal {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hangup => "SIGHUP",
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// Whether a person or a supervisor sends it on purpose, so that a second one means it. A closing terminal sends
    /// SIGHUP more than once: the kernel to the foreground, the shell to its jobs.
    const fn insists(self) -> bool {
        match self {
            Self::Hangup => false,
            Self::Interrupt | Self::Terminate => true,
        }
    }
}

/// Requests to stop: SIGTERM, SIGINT and SIGHUP.
pub(crate) struct StopRequests {
    /// `None` where whoever started the process has it ignore SIGHUP, as `nohup` does.
    hangup: Option<Signal>,
    interrupt: Signal,
    terminate: Signal,
}

impl StopRequests {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system does not let the process listen.
    pub(crate) fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(anyhow::Error::from);
        let hangup = if ignores_hangup() { None } else { Some(listen(SignalKind::hangup())?) };
        Ok(Self { hangup, interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> StopSignal {
        let Self { hangup, interrupt, terminate } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => StopSignal::Terminate,
            _ = interrupt.recv() => StopSignal::Interrupt,
            _ = hung_up => StopSignal::Hangup,
        }
    }

    /// The next request that insists on an earlier one.
    pub(crate) async fn insisted(&mut self) -> StopSignal {
        loop {
            let next = self.next().await;
            if next.insists() {
                return next;
            }
        }
    }
}

/// Whether this process was started with SIGHUP ignored.
fn ignores_hangup() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignored(&status) & 1 != 0)
}

/// The ignored signals in the kernel's words about a process, SIGHUP lowest.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_kernels_words() {
        assert_eq!(ignored("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n"), 0x1001);
        assert_eq!(ignored("SigIgn:\tnothing\n"), 0);
        assert_eq!(ignored(""), 0);
    }
}
