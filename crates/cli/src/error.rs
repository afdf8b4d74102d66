//! What users are told when something does not work: what happened, where, and what to do.

use std::path::PathBuf;

use aetheris_api::Problem;

use crate::config::Mistake;
use crate::exit::Exit;

/// Whatever ends a command early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Arguments that cannot be right.
    #[error("{0}")]
    Usage(String),
    /// A command or option that this build does not have.
    #[error("`{0}` is not supported yet by this build")]
    NotYet(&'static str),
    /// The configuration has mistakes.
    #[error("the configuration has {}:\n{}", counted(.0.len(), "mistake"), lines(.0))]
    Config(Vec<Mistake>),
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nobody answers.
    #[error(
        "no answer from {server}: {reason}\nis `aetheris dev` running at {server}? --server or AETHERIS_SERVER names another"
    )]
    Unreachable {
        /// The server.
        server: String,
        /// What the connection said.
        reason: String,
    },
    /// The call has left, and no answer has come: it may have been accepted.
    #[error("no answer from {server} to {call}: {reason}\nit may have been accepted all the same. {advice}")]
    Unanswered {
        /// How to find out, or to try again without harm.
        advice: String,
        /// What was asked.
        call: String,
        /// What the connection said.
        reason: String,
        /// The server.
        server: String,
    },
    /// The server answered something that is not of this interface.
    #[error("{server} answered something unexpected to {call}: {reason}\nis it an Aetheris server of this version?")]
    Unexpected {
        /// The server.
        server: String,
        /// The status of the answer.
        status: u16,
        /// What was asked.
        call: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The server refused.
    #[error("{}", refused(.0))]
    Problem(Box<Problem>),
    /// A server or worker process cannot start or go on because of the state it finds.
    #[error("{0}")]
    Conflict(String),
    /// A failure with its exit and words already chosen.
    #[error("{message}")]
    Other {
        /// What happened, and what to do.
        message: String,
        /// How the program ends.
        exit: Exit,
    },
    /// Whoever read stdout has gone.
    #[error("nobody reads the output")]
    OutputClosed,
    /// The output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(std::io::Error),
    /// Anything else.
    #[error("{}", causes(.0))]
    Internal(#[from] anyhow::Error),
}

impl Error {
    /// How the program ends.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::NotYet(_) | Self::Config(_) | Self::File { .. } => Exit::Usage,
            Self::Unreachable { .. } | Self::Unanswered { .. } | Self::Unexpected { .. } => Exit::Unreachable,
            Self::Problem(problem) => Exit::of_problem(problem.code.as_str(), problem.status),
            Self::Conflict(_) => Exit::Conflict,
            Self::Other { exit, .. } => *exit,
            Self::OutputClosed => Exit::Done,
            Self::Output(_) | Self::Internal(_) => Exit::Failed,
        }
    }

    /// Whether the same question may be answered a little later: nobody was there, or a server, or a proxy before it, said
    /// that it cannot answer now.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        let passes = |status: u16| matches!(status, 429 | 502 | 503 | 504);
        match self {
            Self::Unreachable { .. } => true,
            Self::Problem(problem) => passes(problem.status),
            Self::Unexpected { status, .. } => passes(*status),
            Self::Usage(_)
            | Self::NotYet(_)
            | Self::Config(_)
            | Self::File { .. }
            | Self::Unanswered { .. }
            | Self::Conflict(_)
            | Self::Other { .. }
            | Self::OutputClosed
            | Self::Output(_)
            | Self::Internal(_) => false,
        }
    }

    /// The stable code of the error, for `--json`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage(_) | Self::File { .. } => "usage",
            Self::NotYet(_) => "not_supported_yet",
            Self::Config(_) => "invalid_config",
            Self::Unreachable { .. } | Self::Unanswered { .. } => "server_unreachable",
            Self::Unexpected { .. } => "unexpected_answer",
            Self::Problem(problem) => problem.code.as_str(),
            Self::Conflict(_) => "state_conflict",
            Self::Other { .. } | Self::OutputClosed | Self::Output(_) | Self::Internal(_) => "failed",
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Output(error),
        }
    }
}

/// An error with its causes. One whose words an error before it has already said is not said again.
fn causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(&format!(": {cause}"));
        }
    }
    text
}

/// `1 mistake`, `2 mistakes`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

impl Error {
    /// What happened, without its code, which stands beside it.
    #[must_use]
    pub fn message(&self) -> String {
        let text = self.to_string();
        let code = format!(" ({})", self.code());
        text.replacen(&code, "", usize::from(matches!(self, Self::Problem(_))))
    }
}

fn lines(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(|mistake| format!("  {mistake}")).collect::<Vec<_>>().join("\n")
}

fn refused(problem: &Problem) -> String {
    let mut text = problem.to_string();
    for error in problem.errors.iter().filter(|error| !problem.detail.contains(&error.message)) {
        let path = if error.path.is_empty() { String::new() } else { format!("{}: ", error.path) };
        let line = if error.line == 0 { String::new() } else { format!("line {}: ", error.line) };
        text.push_str(&format!("\n  {line}{path}{}", error.message));
    }
    text
}

#[cfg(test)]
mod tests {
    use aetheris_api::{ErrorCode, ProblemError};

    use super::*;

    fn text() -> String {
        "x".to_owned()
    }

    fn problem(code: ErrorCode) -> Error {
        Error::Problem(Box::new(Problem::new(code, "x")))
    }

    #[test]
    fn every_error_has_an_exit_a_code_and_a_word_on_whether_it_passes() {
        let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let unexpected = |status| Error::Unexpected { server: text(), status, call: text(), reason: text() };
        let unanswered = Error::Unanswered { advice: text(), call: text(), reason: text(), server: text() };
        let table = [
            (Error::Usage(text()), Exit::Usage, "usage", false),
            (Error::NotYet("x"), Exit::Usage, "not_supported_yet", false),
            (Error::Config(Vec::new()), Exit::Usage, "invalid_config", false),
            (Error::File { path: PathBuf::from("x"), source: gone() }, Exit::Usage, "usage", false),
            (Error::Unreachable { server: text(), reason: text() }, Exit::Unreachable, "server_unreachable", true),
            // It may have been accepted: asking again is for whoever asked.
            (unanswered, Exit::Unreachable, "server_unreachable", false),
            (unexpected(200), Exit::Unreachable, "unexpected_answer", false),
            (unexpected(404), Exit::Unreachable, "unexpected_answer", false),
            (unexpected(429), Exit::Unreachable, "unexpected_answer", true),
            (unexpected(499), Exit::Unreachable, "unexpected_answer", false),
            (unexpected(500), Exit::Unreachable, "unexpected_answer", false),
            (unexpected(501), Exit::Unreachable, "unexpected_answer", false),
            (unexpected(502), Exit::Unreachable, "unexpected_answer", true),
            (problem(ErrorCode::RateLimited), Exit::Unreachable, "rate_limited", true),
            (problem(ErrorCode::StoreUnavailable), Exit::Unreachable, "store_unavailable", true),
            (problem(ErrorCode::NotSupportedYet), Exit::Usage, "not_supported_yet", false),
            (problem(ErrorCode::JobFinished), Exit::Conflict, "job_finished", false),
            (Error::Conflict(text()), Exit::Conflict, "state_conflict", false),
            (Error::Other { message: text(), exit: Exit::CheckFailed }, Exit::CheckFailed, "failed", false),
            // Whoever reads no more has all that was wanted.
            (Error::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)), Exit::Done, "failed", false),
            (Error::from(gone()), Exit::Failed, "failed", false),
            (Error::Internal(anyhow::anyhow!("x")), Exit::Failed, "failed", false),
        ];
        for (error, exit, code, passes) in table {
            assert_eq!((error.exit(), error.code(), error.may_pass()), (exit, code, passes), "{error:?}");
        }
    }

    #[test]
    fn each_mistake_is_told_with_its_line_and_place() {
        let mut problem = Problem::new(ErrorCode::InvalidAgent, "the file has 3 mistakes");
        let mistake = |line, path: &str, message: &str| ProblemError {
            path: path.to_owned(),
            line,
            code: "c".to_owned(),
            message: message.to_owned(),
        };
        problem.errors =
            vec![mistake(3, "plan.nodes[0]", "no"), mistake(0, "/a", "nor this"), mistake(7, "", "at all")];
        let said = Error::Problem(Box::new(problem)).to_string();
        assert!(said.ends_with("\n  line 3: plan.nodes[0]: no\n  /a: nor this\n  line 7: at all"), "{said}");
        assert_eq!(
            (counted(0, "job"), counted(1, "job"), counted(2, "job")),
            ("0 jobs".into(), "1 job".into(), "2 jobs".into())
        );
    }
}
