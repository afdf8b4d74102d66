//! Processes that are started, heard, paused and killed. None of them outlives whoever started it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::sync::watch;

use super::Fault;

/// Longest wait for anything that is to happen.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Lines of a process that are kept in memory, the last ones; its files have them all.
const LINES_MAX: usize = 10_000;
/// Lines that are shown of a process that did not do what it should.
const LINES_SHOWN: usize = 12;

/// What a process finds in its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Surroundings {
    /// Nothing: settings for another server must not reach it.
    Nothing,
    /// What there is here, without this program's own settings.
    Inherited,
}

/// Waits for something, not for ever.
///
/// # Errors
/// It has not happened in [`WAIT_MAX`].
pub(in crate::commands) async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Fault> {
    within_of(WAIT_MAX, what, future).await
}

/// The same with another bound.
///
/// # Errors
/// It has not happened in `max`.
#[expect(clippy::disallowed_methods, reason = "surrounds waits for other processes; no database is asked in them")]
pub(in crate::commands) async fn within_of<T>(
    max: Duration,
    what: &str,
    future: impl Future<Output = T>,
) -> Result<T, Fault> {
    tokio::time::timeout(max, future).await.map_err(|_| Fault::NotInTime { what: what.to_owned() })
}

/// A process. Dropping it kills it.
pub(in crate::commands) struct Process {
    child: Child,
    err: Lines,
    name: String,
    out: Lines,
    stdin: Option<ChildStdin>,
}

/// What a process has written on one of its outputs.
struct Lines {
    kept: watch::Receiver<Kept>,
    /// How many lines have been looked at, or dropped before that.
    read: usize,
}

/// The last lines of an output.
#[derive(Default)]
struct Kept {
    /// How many came before them.
    dropped: usize,
    lines: VecDeque<String>,
}

impl Kept {
    fn push(&mut self, line: String) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line);
    }
}

impl Process {
    /// Starts this program again with other arguments; what it writes is also kept in `folder`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(in crate::commands) fn start(
        name: &str,
        program: &Path,
        args: &[&OsStr],
        folder: &Path,
        surroundings: Surroundings,
    ) -> Result<Self, Fault> {
        let failed = |error: std::io::Error| Fault::Setup(format!("{name} cannot be started: {error}"));
        let file = |kind: &str| -> std::io::Result<File> { File::create(named(folder, name, kind)) };
        let (out_file, err_file) = (file("stdout").map_err(failed)?, file("stderr").map_err(failed)?);
        let mut command = Command::new(program);
        match surroundings {
            Surroundings::Nothing => drop(command.env_clear()),
            Surroundings::Inherited => without_settings(&mut command),
        }
        // It ends with this process. Ctrl-C is for this one alone, which then ends them all.
        let parent = std::process::id().to_string();
        command.args(["child", "--parent", &parent, "--"]).args(args).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let out = Lines::of(child.stdout.take(), out_file);
        let err = Lines::of(child.stderr.take(), err_file);
        let stdin = child.stdin.take();
        Ok(Self { child, err, name: name.to_owned(), out, stdin })
    }

    pub(in crate::commands) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The first line of stdout from here on that `pick` takes.
    ///
    /// # Errors
    /// It does not come in time, or the process ends without it.
    pub(in crate::commands) async fn line<T>(
        &mut self,
        what: &str,
        pick: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Fault> {
        let found = within(what, self.out.next(pick)).await;
        self.explained(what, found)
    }

    /// The same of stderr.
    ///
    /// # Errors
    /// As [`Self::line`].
    pub(in crate::commands) async fn err_line<T>(
        &mut self,
        what: &str,
        pick: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Fault> {
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
    pub(in crate::commands) fn fault(&self, what: &str) -> Fault {
        Fault::Process { last_words: self.err.last(LINES_SHOWN), name: self.name.clone(), what: what.to_owned() }
    }

    /// Returns when the process has ended, by itself or by someone else's hand, and all that it wrote is read.
    pub(in crate::commands) fn ended(&self) -> impl Future<Output = ()> + use<> {
        let outputs = [self.out.kept.clone(), self.err.kept.clone()];
        async move {
            for mut kept in outputs {
                while kept.changed().await.is_ok() {}
            }
        }
    }

    /// SIGTERM; returns its exit code when it has ended, `None` where a signal ended it.
    ///
    /// # Errors
    /// It does not end.
    pub(in crate::commands) async fn stop(mut self) -> Result<Option<i32>, Fault> {
        // Fails only where it is gone already.
        let _gone = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.code("stopped by SIGTERM").await
    }

    /// Waits for its end, which comes by itself, and returns its exit code.
    ///
    /// # Errors
    /// It does not end.
    pub(in crate::commands) async fn code(&mut self, what: &str) -> Result<Option<i32>, Fault> {
        let what = format!("{} ends, {what}", self.name);
        if within(&what, self.ended()).await.is_err() {
            return Err(self.fault(&what));
        }
        // Its outputs are closed: it is over, or about to be.
        Ok(self.child.wait().map_err(|error| Fault::Setup(format!("{what}: {error}")))?.code())
    }

    /// What it has written on stderr, its last lines.
    pub(in crate::commands) fn last_words(&self) -> String {
        self.err.last(LINES_SHOWN).join("\n")
    }

    /// What it has written on stdout.
    pub(in crate::commands) fn told(&self) -> String {
        self.out.last(LINES_MAX).join("\n")
    }

    /// Writes a line to its stdin.
    ///
    /// # Errors
    /// It reads no more.
    pub(in crate::commands) fn tell(&mut self, line: &str) -> Result<(), Fault> {
        let told = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()));
        match told {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => Err(self.fault(&format!("{} was to be told `{line}`", self.name))),
        }
    }

    /// SIGKILL; returns when it is gone.
    pub(in crate::commands) fn kill(mut self) {
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
    pub(in crate::commands) async fn pause(&self) -> Result<(), Fault> {
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
    pub(in crate::commands) fn resume(&self) -> Result<(), Fault> {
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

/// The configuration that is meant comes in a file: variables must not lay themselves over it.
fn without_settings(command: &mut Command) {
    let settings = |name: &OsStr| {
        let name = name.to_string_lossy();
        name.starts_with("AETHERIS__") || ["AETHERIS_LOG", "AETHERIS_SERVER"].contains(&name.as_ref())
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| settings(name)) {
        command.env_remove(name);
    }
}

fn named(folder: &Path, name: &str, kind: &str) -> PathBuf {
    folder.join(format!("{}.{kind}", name.replace(' ', "-")))
}

impl Lines {
    /// Reads an output on a thread of its own until it ends.
    fn of(pipe: Option<impl Read + Send + 'static>, mut file: File) -> Self {
        let (sender, kept) = watch::channel(Kept::default());
        if let Some(pipe) = pipe {
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    // The file is for whoever looks afterwards; nothing depends on it.
                    let _written = writeln!(file, "{line}");
                    sender.send_modify(|kept| kept.push(line));
                }
            });
        }
        Self { kept, read: 0 }
    }

    /// The next line that `pick` takes; `None` when the output has ended without one.
    async fn next<T>(&mut self, mut pick: impl FnMut(&str) -> Option<T>) -> Option<T> {
        loop {
            {
                let kept = self.kept.borrow_and_update();
                self.read = self.read.max(kept.dropped);
                while let Some(line) = kept.lines.get(self.read - kept.dropped) {
                    self.read += 1;
                    if let Some(found) = pick(line) {
                        return Some(found);
                    }
                }
            }
            self.kept.changed().await.ok()?;
        }
    }

    fn last(&self, count: usize) -> Vec<String> {
        let lines = &self.kept.borrow().lines;
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Folder;
    use super::*;

    #[tokio::test]
    async fn the_last_words_of_a_process_are_there_when_its_end_is_told() {
        let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-words").unwrap();
        let file = |name: &str| File::create(folder.path().join(name)).unwrap();
        // What it wrote is read after its end: here, because it is written after it.
        let script = "exec 1>&-; (sleep 0.2; echo in use >&2) & exit 4";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (out, err) = (Lines::of(out, file("out")), Lines::of(err, file("err")));
        let mut process = Process { child, err, name: "it".to_owned(), out, stdin: None };
        assert_eq!(process.code("by itself").await.unwrap(), Some(4));
        assert_eq!(process.last_words(), "in use");
    }

    #[tokio::test]
    async fn of_a_long_output_the_last_lines_are_kept_and_each_is_looked_at_once() {
        let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-lines").unwrap();
        let file = File::create(folder.path().join("out")).unwrap();
        let (output, mut input) = std::io::pipe().unwrap();
        let mut lines = Lines::of(Some(output), file);
        writeln!(input, "first").unwrap();
        assert_eq!(lines.next(|line| Some(line.to_owned())).await.unwrap(), "first");
        for number in 0..LINES_MAX + 5 {
            writeln!(input, "{number}").unwrap();
        }
        drop(input);
        let last = (LINES_MAX + 4).to_string();
        assert_eq!(lines.next(|line| (line == last).then(|| line.to_owned())).await.unwrap(), last);
        assert_eq!(lines.next(|line| Some(line.to_owned())).await, None);
        let kept = lines.last(LINES_MAX);
        assert_eq!((kept.len(), kept[0].as_str(), lines.last(1)), (LINES_MAX, "5", vec![last]));
    }
}
