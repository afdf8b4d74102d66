//! The command line of `prove`.

use std::path::PathBuf;

use aetheris_core::time::Span;

/// Arguments of `prove`.
#[derive(Debug, Clone, clap::Args)]
pub struct ProveArgs {
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder beside whose files it is done [default: that of jobstore.sqlite.path]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Fewer rounds and leases of at most 4 s: about half a minute
    #[arg(long)]
    pub quick: bool,
    /// Another worker.lease_ttl than the configured one, which the report says
    #[arg(long, value_name = "DURATION", value_parser = lease)]
    pub lease_ttl: Option<Span>,
    /// Only the experiments whose name contains this; may be repeated. A name that none contains is answered with all of them
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Write the report to a file, as markdown; an older report is replaced, no other file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Keep the folder with databases and logs; it is always kept where something does not hold
    #[arg(long)]
    pub keep: bool,
}

/// A lease as the configuration takes it.
fn lease(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    let good = (Span::from_secs(1)..=Span::from_secs(3_600)).contains(&span);
    if good { Ok(span) } else { Err("expected 1s to 1h".to_owned()) }
}
