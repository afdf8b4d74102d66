//! The command line, as a person or a script uses it: one process per command, whose exit and stdout are taken.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::process::{Child, Command};

/// How long a command may take that follows nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// How commands are run.
#[derive(Debug, Clone)]
pub struct Commands {
    /// What is added to their environment.
    pub env: Vec<(String, String)>,
    /// The program.
    pub program: PathBuf,
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    /// How it ended; nothing where a signal ended it.
    pub exit: Option<i32>,
    /// What it printed, as JSON; `null` where that is none.
    pub value: Value,
}

impl Commands {
    /// Starts a command with `--json` against a server. Its stdout is a pipe, what it says on stderr is not kept.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, server: &str, arguments: &[&str]) -> Result<Child> {
        self.spawn(&[arguments, &["--server", server]].concat())
    }

    fn spawn(&self, arguments: &[&str]) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--json");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.spawn().with_context(|| format!("{arguments:?}"))
    }

    /// Runs a command with `--json` against a server to its end.
    ///
    /// # Errors
    /// It cannot be started, or does not end.
    pub async fn run(&self, server: &str, arguments: &[&str]) -> Result<Said> {
        ended(self.start(server, arguments)?, arguments).await
    }

    /// Runs a command with `--json` that works on the database itself to its end.
    ///
    /// # Errors
    /// It cannot be started, or does not end.
    pub async fn beside(&self, arguments: &[&str]) -> Result<Said> {
        ended(self.spawn(arguments)?, arguments).await
    }
}

async fn ended(child: Child, arguments: &[&str]) -> Result<Said> {
    let output = tokio::select! {
        output = child.wait_with_output() => output?,
        () = tokio::time::sleep(PATIENCE) => bail!("{arguments:?} has not ended within {PATIENCE:?}"),
    };
    let value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    Ok(Said { exit: output.status.code(), value })
}
