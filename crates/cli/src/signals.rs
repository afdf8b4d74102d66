//! The signals that ask a server or worker process to stop.

use aetheris_core::limits;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

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
    /// Whether there was one.
    asked: bool,
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
        let (interrupt, terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(Self { asked: false, hangup, interrupt, terminate })
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> StopSignal {
        let Self { asked, hangup, interrupt, terminate } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let next = tokio::select! {
            _ = terminate.recv() => StopSignal::Terminate,
            _ = interrupt.recv() => StopSignal::Interrupt,
            _ = hung_up => StopSignal::Hangup,
        };
        *asked = true;
        next
    }

    /// The next request that insists on an earlier one. What follows the first one closely is still the same:
    /// `timeout` signals its child and then its process group, to which the child belongs.
    pub(crate) async fn insisted(&mut self) -> StopSignal {
        insisting(self.asked, async || self.next().await).await
    }
}

/// The next signal that insists. `asked` is whether there was a request before.
async fn insisting(asked: bool, mut next: impl AsyncFnMut() -> StopSignal) -> StopSignal {
    let begun = Instant::now();
    loop {
        let next = next().await;
        let same = asked && begun.elapsed() < limits::STOP_REPEATED_WITHIN.to_std();
        if next.insists() && !same {
            return next;
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

    /// Without the system's signals: they arrive by its clock, whichever a test has set.
    #[tokio::test(start_paused = true)]
    async fn one_stop_may_be_several_signals() {
        let within = limits::STOP_REPEATED_WITHIN.to_std();
        let (raise, mut raised) = tokio::sync::mpsc::unbounded_channel();
        let next = async || raised.recv().await.unwrap();
        let mut insisted = std::pin::pin!(insisting(true, next));
        let mut heard = async |time| tokio::time::timeout_at(Instant::now() + time, insisted.as_mut()).await.ok();
        for signal in [StopSignal::Terminate, StopSignal::Interrupt, StopSignal::Hangup] {
            raise.send(signal).unwrap();
            assert_eq!(heard(within / 5).await, None, "{signal:?}");
        }
        assert_eq!(heard(within).await, None);
        raise.send(StopSignal::Hangup).unwrap();
        assert_eq!(heard(within).await, None);
        raise.send(StopSignal::Terminate).unwrap();
        assert_eq!(heard(within).await, Some(StopSignal::Terminate));
    }

    /// To the instant: what comes when the time is over insists.
    #[tokio::test(start_paused = true)]
    async fn a_second_signal_insists_from_the_end_of_the_time_on() {
        let within = limits::STOP_REPEATED_WITHIN.to_std();
        for (after, insists) in [(within - std::time::Duration::from_millis(1), false), (within, true)] {
            let (began, mut first) = (Instant::now(), true);
            let next = async || {
                let pause = if std::mem::take(&mut first) { after } else { within };
                tokio::time::sleep(pause).await;
                StopSignal::Interrupt
            };
            assert_eq!(insisting(true, next).await, StopSignal::Interrupt);
            assert_eq!(began.elapsed() == after, insists, "{after:?}");
        }
    }

    #[tokio::test]
    async fn a_first_request_insists_only_where_nobody_has_asked() {
        use rustix::process::Signal;
        let raise = |signal| rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
        let mut signals = StopRequests::new().unwrap();
        raise(Signal::TERM);
        assert_eq!(signals.next().await, StopSignal::Terminate);
        assert!(signals.asked);
        // Nobody has asked before where a part of the process has died: who stops it then has seen it end already.
        let mut signals = StopRequests::new().unwrap();
        raise(Signal::INT);
        assert_eq!(signals.insisted().await, StopSignal::Interrupt);
    }

    #[test]
    fn ignored_signals_are_read_from_the_kernels_words() {
        assert_eq!(ignored("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n"), 0x1001);
        assert_eq!(ignored("SigIgn:\tnothing\n"), 0);
        assert_eq!(ignored(""), 0);
    }
}
