//! Hard circumstances that a process is started in: few files that it may open, and a log that nobody takes.
//!
//! A shell makes them and then becomes the process, so that its number and its parent are those of any other start.

use crate::drive::process::Launch;

/// What becomes of what a process says on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stderr {
    /// It goes to the log.
    #[default]
    Log,
    /// There is none.
    Closed,
    /// It is a pipe whose reader has gone.
    Broken,
    /// It is a pipe that is full soon: nobody reads it.
    Unread,
}

/// How a process has it from its start on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hardship {
    /// How many files it may have open, where that is fewer than usual.
    pub open_files: Option<u64>,
    /// Its stderr.
    pub stderr: Stderr,
}

impl Hardship {
    /// Whether it would stand in the way of whoever counts on the bounds of a run that is healed. A process works as well
    /// without a log as with one.
    #[must_use]
    pub const fn is_to_be_healed(self) -> bool {
        self.open_files.is_some()
    }

    /// The same start under these circumstances.
    #[must_use]
    pub fn around(self, launch: Launch) -> Launch {
        if self == Self::default() {
            return launch;
        }
        let pipe = launch.log.with_extension("pipe");
        let few = self.open_files.map_or_else(String::new, |files| format!("ulimit -n {files}; "));
        let made = "[ -p \"$PIPE\" ] || mkfifo \"$PIPE\"; ";
        // A pipe that its own writer has open for reading is read by nobody, and stays.
        let (made, redirected) = match self.stderr {
            Stderr::Log => ("", ""),
            Stderr::Closed => ("", " 2>&-"),
            Stderr::Broken => (made, " 3<>\"$PIPE\" 2>\"$PIPE\" 3>&-"),
            Stderr::Unread => (made, " 2<>\"$PIPE\""),
        };
        let script = format!("{made}{few}exec \"$0\" \"$@\"{redirected}");
        let mut args = vec!["-c".to_owned(), script, launch.program.display().to_string()];
        args.extend(launch.args);
        let mut env = launch.env;
        env.push(("PIPE".to_owned(), pipe.display().to_string()));
        Launch { args, env, program: "sh".into(), ..launch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::process::Started;
    use aetheris_harness::Folder;

    /// What a process that writes to stderr finds there, and how many files it may open.
    async fn found(hardship: Hardship) -> (String, String) {
        let scratch = Folder::new("starts");
        let script = "at=; [ -e /proc/$$/fd/2 ] && at=$(readlink /proc/$$/fd/2); \
            echo \"ready $(ulimit -n) $at\"; while :; do sleep 0.01; done";
        let args = vec!["-c".to_owned(), script.to_owned()];
        let log = scratch.path().join("log");
        let launch = Launch { args, crash: None, env: Vec::new(), log, program: "sh".into() };
        let Started::Ready(mut running) = hardship.around(launch).start().await.unwrap() else { panic!("killed") };
        running.signal(rustix::process::Signal::KILL).unwrap();
        running.wait().await.unwrap();
        let mut words = running.ready.split(' ').skip(1).map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap_or_default())
    }

    #[tokio::test]
    async fn a_process_has_the_stderr_and_the_files_that_it_was_given() {
        let few = |stderr| Hardship { open_files: Some(40), stderr };
        assert_eq!(found(few(Stderr::Closed)).await, ("40".to_owned(), String::new()));
        for stderr in [Stderr::Broken, Stderr::Unread] {
            let (files, at) = found(few(stderr)).await;
            assert!(files == "40" && at.ends_with("/log.pipe"), "{files} {at}");
        }
        let (files, at) = found(Hardship::default()).await;
        assert!(files != "40" && at.ends_with("/log"), "{files} {at}");
    }
}
