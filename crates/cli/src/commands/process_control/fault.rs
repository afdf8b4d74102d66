//! What can go otherwise than the demonstration claims.

use super::Process;
use crate::error::Error;

/// Something is not as claimed.
#[derive(Debug, thiserror::Error)]
pub(in crate::commands) enum Fault {
    /// Something that was to happen has not.
    #[error("not in time: {what}")]
    NotInTime {
        /// What.
        what: String,
    },
    /// A process did not do what it was to do.
    #[error("did not happen: {what}{}", quoted(.name, .last_words))]
    Process {
        /// Its last lines on stderr.
        last_words: Vec<String>,
        /// Which.
        name: String,
        /// What was to happen.
        what: String,
    },
    /// The stage cannot be set.
    #[error("{0}")]
    Setup(String),
    /// A call of the API was refused or not answered.
    #[error("{what}: {source}")]
    Api {
        /// Why.
        source: Box<Error>,
        /// What was asked.
        what: String,
    },
    /// The store's file could not be opened, locked, read or changed from outside.
    #[error("the store's file: {0}")]
    File(#[from] rusqlite::Error),
}

impl Fault {
    /// A call of the API that failed.
    pub(in crate::commands) fn api(what: &str, source: Error) -> Self {
        Self::Api { source: Box::new(source), what: what.to_owned() }
    }

    /// The same fault with the last words of another process, which is the likelier cause.
    pub(in crate::commands) fn beside(self, process: &Process) -> Self {
        match self {
            Self::NotInTime { what } | Self::Process { what, .. } => process.fault(&what),
            Self::Api { .. } | Self::File(_) | Self::Setup(_) => self,
        }
    }
}

fn quoted(name: &str, last_words: &[String]) -> String {
    if last_words.is_empty() {
        return format!("\n    {name} wrote nothing on stderr");
    }
    let lines: String = last_words.iter().map(|line| format!("\n      {line}")).collect();
    format!("\n    the last lines of {name} on stderr:{lines}")
}
