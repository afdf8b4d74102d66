//! Logs: always on stderr, so that stdout has results only.

use tracing_subscriber::EnvFilter;

use crate::config::{Environment, Log, LogFormat};
use crate::error::Error;

/// The variable that chooses what is logged, as `info,aetheris_worker=debug`.
pub const VARIABLE: &str = "AETHERIS_LOG";

/// Starts logging: `-v` wins over the variable, the variable over the configuration, and warnings are
/// logged when nobody says anything.
///
/// # Errors
/// [`Error::Usage`] for a filter that makes no sense.
pub fn start(verbose: u8, env: &Environment, log: Option<&Log>, color: bool) -> Result<(), Error> {
    let filter = filter(verbose, env.get(VARIABLE), log.and_then(|log| log.filter.as_deref()))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let json = log.is_some_and(|log| log.format == LogFormat::Json);
    let started = if json {
        tracing::subscriber::set_global_default(lines.json().flatten_event(true).finish())
    } else {
        tracing::subscriber::set_global_default(lines.with_ansi(color).finish())
    };
    // In one process with several commands, as tests have, the first one decides.
    let _already_started = started;
    Ok(())
}

fn filter(verbose: u8, variable: Option<&str>, configured: Option<&str>) -> Result<EnvFilter, Error> {
    let (text, place) = match (verbose, variable, configured) {
        (1, _, _) => ("info", "-v"),
        (2, _, _) => ("debug", "-vv"),
        (3.., _, _) => ("trace", "-vvv"),
        (0, Some(text), _) => (text, VARIABLE),
        (0, None, Some(text)) => (text, "log.filter"),
        (0, None, None) => ("warn", "default"),
    };
    EnvFilter::try_new(text).map_err(|error| Error::Usage(format!("{place}: `{text}` is no log filter: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_decides() {
        let shown = |filter: EnvFilter| filter.to_string();
        assert_eq!(shown(filter(0, None, None).unwrap()), "warn");
        assert_eq!(shown(filter(0, None, Some("error")).unwrap()), "error");
        assert_eq!(shown(filter(0, Some("debug"), Some("error")).unwrap()), "debug");
        assert_eq!(shown(filter(1, Some("debug"), None).unwrap()), "info");
        let error = filter(0, Some("a=b=c"), None).unwrap_err().to_string();
        assert!(error.starts_with("AETHERIS_LOG: `a=b=c` is no log filter"), "{error}");
    }
}
