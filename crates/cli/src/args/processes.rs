//! Arguments of the program's own processes, and of what is done to their files.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// Arguments of `init`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Init {
    /// The agent's name [default: greeter]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// The folder [default: one with the agent's name]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Arguments of `dev`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Dev {
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder for everything that is kept [default: ./data]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub data: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// An agent file to put at the start, in place of the one that is there; may be repeated
    #[arg(long = "agent", value_name = "FILE")]
    pub agents: Vec<PathBuf>,
    /// Keep nothing beyond this process
    #[arg(long)]
    pub ephemeral: bool,
    /// The data folder was moved here and its original is gone: accept a database without the file beside it
    #[arg(long, conflicts_with = "ephemeral")]
    pub moved: bool,
}

/// Arguments of `serve` and `worker`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Configured {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The data folder was moved here and its original is gone: accept a database without the file beside it
    #[arg(long)]
    pub moved: bool,
}

/// Arguments of `backup`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Backup {
    /// The file to write; it must not be there
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The data folder [default: ./data]
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub data: Option<PathBuf>,
    /// The configuration file that names the database
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Arguments of `restore`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Restore {
    /// The backup
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The data folder to put it in [default: ./data]
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub data: Option<PathBuf>,
    /// The configuration file that names the database
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Arguments of `demo`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Demo {
    /// Keep the folder with the database and the logs, and say where it is
    #[arg(long)]
    pub keep: bool,
}

/// Arguments of `bench`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Bench {
    /// Where a new folder is made to measure in, which is removed afterwards [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Fewer rounds: rougher figures, sooner
    #[arg(long)]
    pub quick: bool,
    /// Only these parts: steps, plans, http, signals, replay, restart, readers, memory; may be repeated. Only on request: large
    /// (the lists and the check of two million jobs; it takes a quarter of an hour and 5 GB)
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
}
