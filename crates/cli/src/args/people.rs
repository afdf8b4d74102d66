//! Arguments of what people do for jobs that wait for them.

use aetheris_core::id::IdempotencyKey;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};

/// Arguments of `signal`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Signal {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: String,
    /// The correlation key of the wait
    #[arg(value_name = "KEY")]
    pub key: String,
    /// What the wait's node gets as its output: JSON or text, `-` for stdin, `@FILE` for a file
    #[arg(value_name = "PAYLOAD", allow_hyphen_values = true)]
    pub payload: String,
    /// Take PAYLOAD for text, also where it begins like JSON
    #[arg(long)]
    pub text: bool,
    /// Refuse unless the wait is of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = SIGNAL_TYPES)]
    pub wait_type: Option<String>,
}

const SIGNAL_TYPES: [&str; 3] = ["signal", "human", "webhook"];

const WAIT_TYPES: [&str; 4] = ["signal", "human", "webhook", "timer"];

/// Arguments of `waits`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Waits {
    /// Only waits of this type; without it, all but those that only time ends
    #[arg(long = "type", value_name = "TYPE", value_parser = WAIT_TYPES)]
    pub wait_type: Option<String>,
}

/// Arguments of `in-doubt`.
#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct InDoubt {
    /// What to do; the list without it.
    #[command(subcommand)]
    pub action: Option<InDoubtAction>,
    /// Which calls are listed.
    #[command(flatten)]
    pub list: ListInDoubt,
}

/// Arguments of `in-doubt list`.
#[derive(Debug, Clone, ClapArgs)]
pub struct ListInDoubt {
    /// The calls that were given up, or that their job's end left unresolved; an answer is kept with the job
    #[arg(long)]
    pub unresolved: bool,
    /// Only those of this job, as in `aetheris in-doubt --unresolved --job JOB`
    #[arg(long, value_name = "JOB", conflicts_with = "of")]
    pub job: Option<String>,
    /// The same as `--job JOB`
    #[arg(value_name = "JOB", value_parser = named_job)]
    pub of: Option<String>,
}

/// What stands where a command may: a slip of its name is no job.
fn named_job(text: &str) -> Result<String, String> {
    if text.starts_with("job_") {
        return Ok(text.to_owned());
    }
    Err("it is neither a job's id, which begins with job_, nor one of the commands list and resolve".to_owned())
}

/// Commands about calls whose outcome is unknown.
#[derive(Debug, Subcommand)]
pub enum InDoubtAction {
    /// List them
    List(ListInDoubt),
    /// Record the outcome of one
    #[command(
        after_help = "Example:\n  aetheris in-doubt resolve JOB INVOCATION --did-not-happen --note 'asked the bank'\n\n\
        Say --did-not-happen only if you looked after the time that the list shows under CAN ARRIVE UNTIL: until then \
        the call may still arrive, and the answer is refused. Aetheris cannot know when you looked. With --refused you \
        say that the other side refuses this call from now on; the answer then counts at once.\n\n\
        After --did-not-happen the tool is called again, unless --then fail or the job has ended: an answer about an \
        ended job is kept with it, and nothing is called."
    )]
    Resolve(Resolve),
}

/// Arguments of `in-doubt resolve`.
#[derive(Debug, Clone, ClapArgs)]
#[command(group = clap::ArgGroup::new("outcome").required(true))]
pub struct Resolve {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: String,
    /// The invocation, as the list names it; not needed where the job has one call in doubt
    #[arg(value_name = "INVOCATION")]
    pub invocation: Option<IdempotencyKey>,
    /// The permit that you looked at, as the list names it; without it, the one in doubt now
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true, value_parser = permit)]
    pub permit: Option<u32>,
    /// The call had its effect
    #[arg(long, group = "outcome")]
    pub happened: bool,
    /// The call had no effect, and can no longer arrive
    #[arg(long, group = "outcome")]
    pub did_not_happen: bool,
    /// With --did-not-happen: the other side now refuses this call, so that the answer counts at once
    #[arg(long, conflicts_with = "happened")]
    pub refused: bool,
    /// With --happened: what the call answered, which becomes the step's output; `null` if it answered nothing
    #[arg(long, value_name = "JSON", conflicts_with = "did_not_happen")]
    pub result: Option<String>,
    /// With --did-not-happen: what follows, one more try or the failure of the step [default: retry]
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "happened")]
    pub then: Option<Then>,
    /// How you know; kept with the job
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub note: String,
}

fn permit(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected the number of a permit, as the list names it".to_owned())
}

/// What follows a call that did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Then {
    /// One more try
    Retry,
    /// The step fails
    Fail,
}
