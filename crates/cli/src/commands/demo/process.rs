//! Processes that the demonstration starts, hears, pauses and kills. None of them outlives it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::sync::watch;

use super::fault::Fault;

/// Longest wait for anything that is to happen.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);
/// Lines of a process that are kept in memory; its files have them all.
const LINES_MAX: usize = 10_000;
/// Lines that are shown of a process that did not do what it should.
const LINES_SHOWN: usize = 12;

/// Waits for something, not for ever.
///
/// # Errors
/// It has not happened in [`WAIT_MAX`].
#[expect(clippy::disallowed_methods, reason = "surrounds waits for other processes; no database is asked in them")]
pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Fault> {
    tokio::time::timeout(WAIT_MAX, future).await.map_err(|_| Fault::NotInTime { what: what.to_owned() })
}

/// A process of the demonstration. Dropping it kills it.
pub(super) struct Process {
    child: Child,
    err: Lines,
    name: String,
    out: Lines,
    stdin: Option<ChildStdin>,
}

/// What a process has written on one of its outputs.
struct Lines {
    kept: watch::Receiver<Vec<String>>,
    /// How many of them have been looked at.
    read: usize,
}

impl Process {
    /// Starts this program again with other arguments; what it writes is also kept in `folder`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(name: &str, program: &Path, args: &[&OsStr], folder: &Path) -> Result<Self, Fault> {
        let failed = |error: std::io::Error| Fault::Setup(format!("{name} cannot be started: {error}"));
        let file = |kind: &str| -> std::io::Result<File> { File::create(named(folder, name, kind)) };
        let (out_file, err_file) = (file("stdout").map_err(failed)?, file("stderr").map_err(failed)?);
        let mut command = Command::new(program);
        // Settings for another server must not reach this one, and Ctrl-C is for the demonstration, which
        // then ends them all.
        command.args(args).env_clear().process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let out = Lines::of(child.stdout.take(), out_file);
        let err = Lines::of(child.stderr.take(), err_file);
        let stdin = child.stdin.take();
        Ok(Self { child, err, name: name.to_owned(), out, stdin })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The first line of stdout from here on that `pick` takes.
    ///
    /// # Errors
    /// It does not come in time, or the process ends without it.
    pub(super) async fn line<T>(&mut self, what: &str, pick: impl FnMut(&str) -> Option<T>) -> Result<T, Fault> {
        let found = within(what, self.out.next(pick)).await;
        self.explained(what, found)
    }

    /// The same of stderr.
    ///
    /// # Errors
    /// As [`Self::line`].
    pub(super) async fn err_line<T>(&mut self, what: &str, pick: impl FnMut(&str) -> Option<T>) -> Result<T, Fault> {
        let found = within(what, self.err.next(pick)).await;
        self.explained(what, found)
    }

    fn explained<T>(&self, what: &str, found: Result<Option<T>, Fault>) -> Result<T, Fault> {
        match found {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(self.fault(&format!("{what}; {} has ended", self.name))),
            Err(_) => Err(self.fault(what)),
        }
    }

    /// A fault with the last words of this process.
    pub(super) fn fault(&self, what: &str) -> Fault {
        Fault::Process { last_words: self.err.last(LINES_SHOWN), name: self.name.clone(), what: what.to_owned() }
    }

    /// Returns when the process has ended, by itself or by someone else's hand.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + use<> {
        let mut kept = self.out.kept.clone();
        async move { while kept.changed().await.is_ok() {} }
    }

    /// Writes a line to its stdin.
    ///
    /// # Errors
    /// It reads no more.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), Fault> {
        let told = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()));
        match told {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => Err(self.fault(&format!("{} was to be told `{line}`", self.name))),
        }
    }

    /// SIGKILL; returns when it is gone.
    pub(super) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Both fail only where it is gone already.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// SIGSTOP; returns when it has stopped.
    ///
    /// # Errors
    /// It does not stop.
    pub(super) async fn pause(&self) -> Result<(), Fault> {
        let what = format!("{} was to be stopped by SIGSTOP", self.name);
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::STOP).map_err(|_| self.fault(&what))?;
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let waiting = tokio::task::spawn_blocking(move || rustix::process::waitid(WaitId::Pid(pid), options));
        match within(&what, waiting).await {
            Ok(Ok(Ok(Some(status)))) if status.stopped() => Ok(()),
            Ok(_) | Err(_) => Err(self.fault(&what)),
        }
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn resume(&self) -> Result<(), Fault> {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::CONT)
            .map_err(|_| self.fault(&format!("{} was to go on by SIGCONT", self.name)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn named(folder: &Path, name: &str, kind: &str) -> PathBuf {
    folder.join(format!("{}.{kind}", name.replace(' ', "-")))
}

impl Lines {
    /// Reads an output on a thread of its own until it ends.
    fn of(pipe: Option<impl Read + Send + 'static>, mut file: File) -> Self {
        let (sender, kept) = watch::channel(Vec::new());
        if let Some(pipe) = pipe {
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    // The file is for whoever looks afterwards; nothing depends on it.
                    let _written = writeln!(file, "{line}");
                    sender.send_modify(|kept: &mut Vec<String>| {
                        if kept.len() < LINES_MAX {
                            kept.push(line);
                        }
                    });
                }
            });
        }
        Self { kept, read: 0 }
    }

    /// The next line that `pick` takes; `None` when the output has ended without one.
    async fn next<T>(&mut self, mut pick: impl FnMut(&str) -> Option<T>) -> Option<T> {
        loop {
            while let Some(line) = self.kept.borrow_and_update().get(self.read) {
                self.read += 1;
                if let Some(found) = pick(line) {
                    return Some(found);
                }
            }
            self.kept.changed().await.ok()?;
        }
    }

    fn last(&self, count: usize) -> Vec<String> {
        let kept = self.kept.borrow();
        kept.iter().skip(kept.len().saturating_sub(count)).cloned().collect()
    }
}
