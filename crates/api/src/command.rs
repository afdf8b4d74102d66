//! Commands of `aetheris` that answers and pages tell people to run. Every such line is made here: what came from
//! outside gets into it as one word of a shell and as nothing else.

use std::fmt;

use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::plan::WaitType;

use crate::jobs::WaitingView;
use crate::shell::word;
use crate::waits::WaitView;

/// A command to paste. Its text begins with `aetheris`; [`Command::line`] takes another beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// Ends a job.
    Cancel(JobId),
    /// Lists the calls whose outcome is unknown.
    InDoubt,
    /// Says what became of a call; the answer itself is left to be added.
    Resolve {
        /// The call.
        invocation: IdempotencyKey,
        /// Its job.
        job: JobId,
        /// The permission whose outcome is unknown.
        permit: u32,
    },
    /// Puts a backup in place.
    Restore {
        /// Its file.
        file: &'a str,
    },
    /// Lets a paused job go on.
    Resume(JobId),
    /// Lists the jobs that workers hold.
    Running,
    /// Sends what a wait is for.
    Signal {
        /// The job.
        job: JobId,
        /// The correlation key of the wait.
        key: &'a str,
        /// What it waits for, which says what the payload may look like.
        wait_type: WaitType,
    },
    /// Shows what a job did.
    Trace(JobId),
    /// Checks what is stored of a job.
    Verify(JobId),
    /// Follows a job to its end.
    Watch(JobId),
    /// Says why a job is where it is.
    Why(JobId),
    /// Starts a worker.
    Worker,
}

impl Command<'_> {
    /// The line, of a program that is called so; `program` may have options and stands there as it is given.
    #[must_use]
    pub fn line(&self, program: &str) -> String {
        format!("{program} {}", self.words())
    }

    fn words(&self) -> String {
        match self {
            Self::Cancel(job) => format!("cancel {job}"),
            Self::InDoubt => "in-doubt".to_owned(),
            Self::Resolve { invocation, job, permit } => {
                format!("in-doubt resolve {job} {invocation} --permit {permit}")
            }
            Self::Restore { file } => format!("restore {} --data DIR", word(file)),
            Self::Resume(job) => format!("resume {job}"),
            Self::Running => "jobs --status running".to_owned(),
            Self::Signal { job, key, wait_type } => {
                // A key that begins with a hyphen would be read as an option.
                let end = if key.starts_with('-') { "-- " } else { "" };
                format!("signal {end}{job} {} {}", word(key), word(payload(*wait_type)))
            }
            Self::Trace(job) => format!("trace {job}"),
            Self::Verify(job) => format!("verify {job}"),
            Self::Watch(job) => format!("watch {job}"),
            Self::Why(job) => format!("why {job}"),
            Self::Worker => "worker --config FILE".to_owned(),
        }
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line("aetheris"))
    }
}

/// What a signal may bring, to be changed by whoever sends it.
const fn payload(wait_type: WaitType) -> &'static str {
    match wait_type {
        WaitType::Human => "{\"approved\": true}",
        WaitType::Signal | WaitType::Timer | WaitType::Webhook => "{}",
    }
}

/// The command that answers a wait; none where only time ends it.
fn answer(job: JobId, doubt: bool, wait_type: WaitType, key: Option<&str>) -> Option<Command<'_>> {
    match (doubt, wait_type) {
        (true, _) => Some(Command::InDoubt),
        (false, WaitType::Timer) => None,
        (false, WaitType::Human | WaitType::Signal | WaitType::Webhook) => {
            key.map(|key| Command::Signal { job, key, wait_type })
        }
    }
}

impl WaitingView {
    /// The command that answers what a job waits for; none where only time ends the wait.
    #[must_use]
    pub fn answer(&self, job: JobId) -> Option<Command<'_>> {
        answer(job, self.doubt, self.wait_type, self.correlation_key.as_deref())
    }
}

impl WaitView {
    /// The command that answers it; none where only time ends it.
    #[must_use]
    pub fn answer(&self) -> Option<Command<'_>> {
        answer(self.job_id, self.doubt, self.wait_type, self.correlation_key.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_outside_is_one_word() {
        let job = JobId::from_u128(1);
        let signal = |key, wait_type| Command::Signal { job, key, wait_type }.line("aetheris --server 'http://h'");
        assert_eq!(
            signal("approve-x; touch PWNED #", WaitType::Human),
            format!("aetheris --server 'http://h' signal {job} 'approve-x; touch PWNED #' '{{\"approved\": true}}'")
        );
        assert_eq!(
            signal("--server=http://evil", WaitType::Webhook),
            format!("aetheris --server 'http://h' signal -- {job} --server=http://evil '{{}}'")
        );
        assert_eq!(Command::Restore { file: "a b" }.to_string(), "aetheris restore 'a b' --data DIR");
    }
}
