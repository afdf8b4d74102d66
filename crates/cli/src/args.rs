//! The command line.

mod help;
mod people;
mod processes;
mod refusal;

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use aetheris_core::limits;
use aetheris_core::time::{Span, Timestamp};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::commands::ChildArgs;
use crate::commands::demo::PaymentsArgs;
use crate::commands::prove::ProveArgs;

pub use self::help::fitted;
pub use self::people::{InDoubt, InDoubtAction, ListInDoubt, Resolve, Signal, Then, Waits};
pub use self::processes::{Backup, Bench, Configured, Demo, Dev, Init, Restore};
pub use self::refusal::parse;

/// Where the client commands look for a server when nobody says otherwise.
pub const SERVER_DEFAULT: &str = "http://127.0.0.1:8080";

const MAIN_HELP: &str = "\
Start here:
  aetheris demo                a refund, with a real kill -9 in the middle
  aetheris init greeter        a working agent, its configuration, and the commands to try it

Exit codes:
  0    done
  1    the job failed, or the command could not do its work
  2    usage
  3    not found
  4    conflict
  5    server unreachable
  6    a check found something wrong
  7    still running after --timeout
  70   a part of a server or worker stopped unexpectedly
  74   the disk failed, or the database was removed
  130  interrupted by Ctrl-C";

/// The arguments of one call of the program.
#[derive(Debug, Parser)]
#[command(name = "aetheris", version, about = "A durable execution runtime for AI agents", after_help = MAIN_HELP)]
pub struct Args {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// What holds for every command.
#[derive(Debug, Clone, ClapArgs)]
pub struct Global {
    /// The server that client commands talk to [env: AETHERIS_SERVER] [default: http://127.0.0.1:8080]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub server: Option<String>,
    /// Print one JSON value on stdout instead of text
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// When to colour the output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Global options")]
    pub color: Color,
    /// More logs on stderr: -v info, -vv debug, -vvv trace; AETHERIS_LOG takes a filter
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub verbose: u8,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a working agent and its configuration, and print the commands to try it
    #[command(after_help = "Example:\n  aetheris init greeter\n\nFiles that are there are never overwritten.")]
    Init(Init),
    /// Run a server and a worker in one process, with SQLite in a folder
    #[command(after_help = "Example:\n  aetheris dev --data ./data --agent refund.yaml\n\n\
        Safe to kill at any instant and to start again on the same folder. SIGTERM, Ctrl-C and SIGHUP (the terminal \
        closes) let calls in flight finish; a second SIGTERM or Ctrl-C gives them up.")]
    Dev(Dev),
    /// Run the API, timers and sweeps
    #[command(after_help = "Example:\n  aetheris serve --config aetheris.yaml\n\n\
        SIGTERM, Ctrl-C and SIGHUP stop it cleanly.")]
    Serve(Configured),
    /// Claim jobs and run their steps
    #[command(after_help = "Example:\n  aetheris worker --config aetheris.yaml\n\n\
        SIGTERM, Ctrl-C and SIGHUP let calls in flight finish; a second SIGTERM or Ctrl-C gives them up.")]
    Worker(Configured),
    /// The refund story with a real kill -9, checked against the payment service's own log
    #[command(after_help = "Example:\n  aetheris demo")]
    Demo(Demo),
    /// The payments service of `demo`
    #[command(
        hide = true,
        after_help = "Example:\n  aetheris demo-payments --log bookings.jsonl --listen 127.0.0.1:9000\n\n\
        Commands are lines on stdin, with the quotes: \"hold\" books as ever and keeps the answers back, \"release\" \
        answers again. It ends with stdin."
    )]
    DemoPayments(PaymentsArgs),
    /// Another call of this program, as a process that ends with the one that starts it
    #[command(hide = true)]
    Child(ChildArgs),
    /// Prove the guarantees against your own configuration, with real kills; exit 6 if one does not hold
    #[command(after_help = "Examples:\n  aetheris prove --config aetheris.yaml --report proof.md\n  \
        aetheris prove --data ./data --quick\n  aetheris prove --only doubts --only stopped --keep\n\n\
        Processes of this program are killed, stopped and locked out in a new folder beside your data; \
        tools are fake, your data is not touched, no model is asked. About a minute with the default \
        configuration. The time is printed first; it grows with worker.lease_ttl.")]
    Prove(ProveArgs),
    /// Measure this machine: steps, jobs, signals, beside bare database commits
    #[command(after_help = "Example:\n  aetheris bench --quick")]
    Bench(Bench),
    /// Check, put or list agents
    #[command(subcommand, arg_required_else_help = true, after_help = "Example:\n  aetheris agent check refund.yaml")]
    Agent(Agent),
    /// Send a message to an agent
    #[command(after_help = "Examples:\n  aetheris send greeter '{\"name\": \"Ada\"}' --wait\n  \
        aetheris send refund @message.json --key order-A-1\n  echo hello | aetheris send greeter -\n\n\
        MESSAGE is JSON when it parses as JSON, else text; what begins with { or [ and is not JSON is refused \
        unless --text. `-` reads stdin, `@FILE` reads a file.")]
    Send(Send),
    /// List jobs, newest first
    #[command(after_help = "Example:\n  aetheris jobs --status parked --agent refund --limit 50")]
    Jobs(Jobs),
    /// Show a job: its steps, what it waits for, its result
    #[command(after_help = "Examples:\n  aetheris show JOB\n  aetheris show JOB --full")]
    Show(Told),
    /// Explain why a job is where it is: what it waits for, since when, and what helps
    #[command(after_help = "Example:\n  aetheris why JOB")]
    Why(Job),
    /// Follow a job's steps until it ends; exit 1 if it failed
    #[command(after_help = "Example:\n  aetheris watch JOB")]
    Watch(Watch),
    /// Print a job's events
    #[command(after_help = "Example:\n  aetheris events JOB --follow --after 12\n\n\
        With --json it is one list; with --json --follow one event a line, as it happens.")]
    Events(Events),
    /// Show a job's steps with times, attempts, versions, and where each result came from
    #[command(after_help = "Examples:\n  aetheris trace JOB\n  aetheris trace JOB --full")]
    Trace(Told),
    /// Fold a job's events again and compare with its live state; exit 6 if they differ
    #[command(after_help = "Example:\n  aetheris replay JOB")]
    Replay(Job),
    /// Check a job's hash chain and rows; exit 6 if something is wrong
    #[command(after_help = "Example:\n  aetheris verify JOB")]
    Verify(Job),
    /// Answer what a job waits for
    #[command(after_help = "Example:\n  aetheris signal JOB approve-JOB '{\"approved\": true}'\n\n\
        PAYLOAD is JSON when it parses as JSON, else text; what begins with { or [ and is not JSON is refused \
        unless --text. `-` reads stdin, `@FILE` reads a file. \
        The same key again answers as the first time and changes nothing.")]
    Signal(Signal),
    /// Cancel a job
    #[command(after_help = "Example:\n  aetheris cancel JOB")]
    Cancel(Job),
    /// Hold a job still until it is resumed
    #[command(after_help = "Example:\n  aetheris pause JOB\n\n\
        No new step starts. An at_most_once call that is under way is waited for; every other call is dropped and \
        made again after the resume. What arrives meanwhile is kept: signals, timers and answers to doubts count, \
        and the job's deadline still ends it.")]
    Pause(Job),
    /// Let a paused job go on, or all that a restore has held
    #[command(after_help = "Examples:\n  aetheris resume JOB\n  aetheris resume --all-restored --agent refund")]
    Resume(Resume),
    /// List everything that waits for someone
    #[command(after_help = "Example:\n  aetheris waits --type human")]
    Waits(Waits),
    /// List calls whose outcome is unknown, or resolve one
    #[command(after_help = "Examples:\n  aetheris in-doubt\n  aetheris in-doubt --unresolved --job JOB\n  \
        aetheris in-doubt resolve JOB INVOCATION --happened --result '{\"refund\": \"r-1\"}' --note 'in the bank log'\n  \
        aetheris in-doubt resolve JOB INVOCATION --did-not-happen --note 'asked the bank'")]
    InDoubt(InDoubt),
    /// Check a database against the invariants; changes nothing; exit 6 if something is wrong
    #[command(after_help = "Examples:\n  aetheris check-consistency --data ./data\n  \
        aetheris check-consistency --config aetheris.yaml")]
    CheckConsistency(CheckConsistency),
    /// Copy the database to a file, also while it is in use
    #[command(after_help = "Example:\n  aetheris backup aetheris-monday.db --data ./data\n\n\
        The copy is checked and durable when this ends. `aetheris restore` makes it a database again.")]
    Backup(Backup),
    /// Put a backup in the place of the database; its unfinished jobs are held until they are resumed
    #[command(after_help = "Example:\n  aetheris restore aetheris-monday.db --data ./data\n\n\
        Nothing may run on the folder. The database that is there is kept under another name. What jobs did after the \
        backup is not in it: look at each before `aetheris resume JOB`, or let all go on with \
        `aetheris resume --all-restored`.")]
    Restore(Restore),
    /// Print what is guaranteed and what is not
    #[command(after_help = "Example:\n  aetheris guarantees")]
    Guarantees,
    /// Show or check the configuration
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Example:\n  aetheris config show --config aetheris.yaml"
    )]
    Config(Config),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  aetheris completions bash > ~/.local/share/bash-completion/completions/aetheris"
    )]
    Completions(Completions),

    /// Reopen a failed job
    #[command(hide = true)]
    Retry(NotYet),
    /// Plan a job again
    #[command(hide = true)]
    Replan(NotYet),
    /// Start a job from a step of another
    #[command(hide = true)]
    Fork(NotYet),
    /// Export a job's evidence
    #[command(hide = true)]
    Export(NotYet),
    /// List the tasks of a job
    #[command(hide = true)]
    Tasks(NotYet),
    /// Talk to an agent
    #[command(hide = true)]
    Chat(NotYet),
    /// List schedules
    #[command(hide = true)]
    Schedules(NotYet),
    /// Check an installation
    #[command(hide = true)]
    Doctor(NotYet),
    /// Migrate a store
    #[command(hide = true)]
    Migrate(NotYet),
}

impl Command {
    /// The command's name, where it is one that this build does not have.
    #[must_use]
    pub const fn not_yet(&self) -> Option<&'static str> {
        match self {
            Self::Retry(_) => Some("retry"),
            Self::Replan(_) => Some("replan"),
            Self::Fork(_) => Some("fork"),
            Self::Export(_) => Some("export"),
            Self::Tasks(_) => Some("tasks"),
            Self::Chat(_) => Some("chat"),
            Self::Schedules(_) => Some("schedules"),
            Self::Doctor(_) => Some("doctor"),
            Self::Migrate(_) => Some("migrate"),
            _ => None,
        }
    }
}

/// Commands about agents.
#[derive(Debug, Subcommand)]
pub enum Agent {
    /// Check agent files without a server; exit 6 if one has mistakes
    #[command(after_help = "Example:\n  aetheris agent check agents/*.yaml")]
    Check {
        /// The agent files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Check agent files and put them on the server
    #[command(after_help = "Example:\n  aetheris agent put refund.yaml")]
    Put {
        /// The agent files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// List the server's agents
    #[command(after_help = "Example:\n  aetheris agent list")]
    List,
}

/// Arguments of `send`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Send {
    /// The agent
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// The message: JSON or text, `-` for stdin, `@FILE` for a file
    #[arg(value_name = "MESSAGE", allow_hyphen_values = true)]
    pub message: String,
    /// Treat MESSAGE as text, even if it looks like JSON
    #[arg(long)]
    pub text: bool,
    /// Wait for the job's end and print its result; exit 1 if it failed
    #[arg(long)]
    pub wait: bool,
    /// With --wait: stop waiting after this time (exit 7); the job goes on
    #[arg(long, value_name = "DURATION", requires = "wait", allow_hyphen_values = true)]
    pub timeout: Option<Span>,
    /// The session whose jobs run one after the other
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Idempotency key: the same key again is the same job [default: a new one]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// A label, as team=billing; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Fail the job if it has not ended after this time, as 72h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub deadline: Option<Span>,
    /// Higher runs earlier
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true, value_parser = priority)]
    pub priority: Option<i32>,
    /// Not before this time, as 2026-11-21T09:30:00Z
    #[arg(long, value_name = "TIME")]
    pub run_at: Option<Timestamp>,
}

/// A whole number. What it is read as knows only that a digit is wrong.
fn number<T: FromStr + Display + PartialOrd>(text: &str, from: T, to: T) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| (&from..=&to).contains(&number));
    number.ok_or_else(|| format!("expected a whole number from {from} to {to}"))
}

fn priority(text: &str) -> Result<i32, String> {
    number(text, i32::MIN, i32::MAX)
}

fn limit(text: &str) -> Result<u32, String> {
    number(text, 1, 500)
}

/// The place of an event; 0 is before the first.
fn place(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected the `seq` of an event, as 12, or 0 for all".to_owned())
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, _)) if key.contains(limits::LABEL_SEPARATORS) => Err("a label's key has no `:`".to_owned()),
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected KEY=VALUE, as team=billing".to_owned()),
    }
}

/// Arguments of `jobs`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Jobs {
    /// Only jobs in this status; several are separated by commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = STATUSES)]
    pub status: Vec<String>,
    /// Only jobs of this agent
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Only jobs of this session
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Only jobs with this label
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Option<(String, String)>,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 20, allow_hyphen_values = true, value_parser = limit)]
    pub limit: u32,
    /// All of them, page by page
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
}

const STATUSES: [&str; 8] = ["pending", "running", "waiting", "parked", "completed", "failed", "cancelled", "paused"];

/// Arguments of commands about one job.
#[derive(Debug, Clone, ClapArgs)]
pub struct Job {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: String,
}

/// Arguments of `resume`.
#[derive(Debug, Clone, ClapArgs)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub struct Resume {
    /// The job
    #[arg(value_name = "JOB", group = "which")]
    pub job: Option<String>,
    /// Every job that is paused since the store was restored from a backup
    #[arg(long, group = "which")]
    pub all_restored: bool,
    /// With --all-restored: only jobs of this agent
    #[arg(long, value_name = "AGENT", conflicts_with = "job")]
    pub agent: Option<String>,
}

/// Arguments of `show` and `trace`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Told {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Inputs and outputs of steps whole; inputs that are not recorded are rendered again and marked
    #[arg(long)]
    pub full: bool,
}

/// Arguments of `watch`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Watch {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Stop watching after this time (exit 7); the job goes on
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Span>,
}

/// Arguments of `events`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Events {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Go on until the job ends
    #[arg(long)]
    pub follow: bool,
    /// Only events after this one
    #[arg(long, value_name = "SEQ", default_value_t = 0, allow_hyphen_values = true, value_parser = place)]
    pub after: u64,
}

/// Arguments of `check-consistency`.
#[derive(Debug, Clone, ClapArgs)]
pub struct CheckConsistency {
    /// The data folder [default: ./data]
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub data: Option<PathBuf>,
    /// The configuration file that names the database
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Commands about the configuration.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print every key that has a value, the value and where it comes from
    #[command(after_help = "Example:\n  AETHERIS__WORKER__SLOTS=4 aetheris config show")]
    Show {
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check a configuration; exit 6 if it has mistakes
    #[command(after_help = "Example:\n  aetheris config check --config aetheris.yaml")]
    Check {
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// Arguments of `completions`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Whatever follows a command that this build does not have.
#[derive(Debug, Clone, ClapArgs)]
pub struct NotYet {
    /// Whatever was given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub rest: Vec<String>,
}
