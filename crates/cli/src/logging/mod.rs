//! Logs: always on stderr, so that stdout has results only, and never in anybody's way ([`sink`]).
//!
//! With `log.format: json` every line of a server process is one JSON object: what it logs, what it says when it
//! starts and stops, and its last words.

mod fields;
mod sink;

use std::sync::OnceLock;

use aetheris_core::limits;
use aetheris_store::system::{Clock, SystemClock};
use tracing_subscriber::EnvFilter;

use self::fields::OneLine;
use self::sink::Sink;
use crate::config::{Environment, Log, LogFormat};
use crate::error::Error;
use crate::out::Out;

/// The variable that chooses what is logged, as `info,aetheris_worker=debug`.
pub const VARIABLE: &str = "AETHERIS_LOG";

/// What a process says of its own beginning and end with `log.format: json`: no filter takes it away.
const PROCESS: &str = "process";

struct Started {
    json: bool,
    sink: Sink,
}

static STARTED: OnceLock<Started> = OnceLock::new();

/// Starts logging: `-v` wins over the variable, the variable over the configuration. Where nobody says anything,
/// servers and workers, which have a configuration, log at `info`, and commands warnings only.
///
/// # Errors
/// [`Error::Usage`] for a filter that makes no sense; the thread that writes cannot be started.
pub fn start(verbose: u8, env: &Environment, log: Option<&Log>, color: bool) -> Result<(), Error> {
    let default = if log.is_some() { "info" } else { "warn" };
    // A variable that is empty says as little as one that is not set.
    let variable = env.get(VARIABLE).filter(|text| !text.is_empty());
    let filter = filter(verbose, variable, log.and_then(|log| log.filter.as_deref()), default)?;
    let filter = match format!("{PROCESS}=info").parse() {
        Ok(always) => filter.add_directive(always),
        Err(_) => filter,
    };
    let json = log.is_some_and(|log| log.format == LogFormat::Json);
    if STARTED.get().is_none() {
        let sink = Sink::start(std::io::stderr(), move |lines| lost(lines, json))
            .map_err(|error| anyhow::anyhow!("the thread that writes the log cannot be started: {error}"))?;
        // In one process with several commands, as tests have, the first one decides.
        let _already_started = STARTED.set(Started { json, sink });
    }
    let Some(started) = STARTED.get() else {
        return Ok(());
    };
    // What cannot be written is dropped; `tracing` would else tell stderr, and panic where that fails.
    let lines = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    let lines = lines.with_writer(move || &started.sink);
    let _already_started = if started.json {
        tracing::subscriber::set_global_default(lines.json().flatten_event(true).finish())
    } else {
        tracing::subscriber::set_global_default(lines.with_ansi(color).fmt_fields(OneLine::default()).finish())
    };
    Ok(())
}

/// Whether the lines of this process are JSON objects.
#[must_use]
pub fn is_json() -> bool {
    STARTED.get().is_some_and(|started| started.json)
}

/// Says something on stderr about the process itself, whatever the filter. Nobody waits for its being read.
pub fn say(out: &Out, line: &str) {
    match STARTED.get() {
        Some(started) if started.json => tracing::info!(target: PROCESS, "{line}"),
        Some(started) => started.sink.line(format!("{line}\n").as_bytes()),
        None => out.note(line),
    }
}

/// Tells a person at a terminal something of a process that starts, in the form of its log.
pub fn note(out: &Out, line: &str) {
    if is_json() { tracing::info!(target: PROCESS, "{line}") } else { out.note(line) }
}

/// The same of what is not to be overlooked.
pub fn warn(out: &Out, line: &str) {
    if is_json() { tracing::warn!(target: PROCESS, "{line}") } else { out.warn(line) }
}

/// The same of one of the mistakes for which it does not start.
pub fn mistake(out: &Out, line: &str) {
    if is_json() { tracing::error!(target: PROCESS, "{line}") } else { out.note(line) }
}

/// Says on stderr what ended the process, or a part of it. False where logging has not begun.
pub fn say_error(line: &str) -> bool {
    match STARTED.get() {
        Some(started) if started.json => tracing::error!(target: PROCESS, "{line}"),
        Some(started) => started.sink.line(format!("error: {line}\n").as_bytes()),
        None => return false,
    }
    true
}

/// Waits until what was logged is written: at the end of the process, for a moment at most.
pub fn flush() {
    if let Some(started) = STARTED.get() {
        started.sink.flush(limits::LOG_LAST_WORDS_MAX.to_std());
    }
}

fn lost(lines: u64, json: bool) -> String {
    let message = format!("{lines} lines of the log were dropped: it could not be written");
    if !json {
        return format!("{message}\n");
    }
    let line = serde_json::json!({
        "timestamp": SystemClock.wall().to_string(), "level": "WARN", "message": message, "target": PROCESS,
    });
    format!("{line}\n")
}

fn filter(
    verbose: u8,
    variable: Option<&str>,
    configured: Option<&str>,
    default: &'static str,
) -> Result<EnvFilter, Error> {
    let (text, place) = match (verbose, variable, configured) {
        (1, _, _) => ("info", "-v"),
        (2, _, _) => ("debug", "-vv"),
        (3.., _, _) => ("trace", "-vvv"),
        (0, Some(text), _) => (text, VARIABLE),
        (0, None, Some(text)) => (text, "log.filter"),
        (0, None, None) => (default, "default"),
    };
    parsed(text).map_err(|error| Error::Usage(format!("{place}: `{text}` is not a log filter: {error}")))
}

/// Reads a log filter. A bare word that is no level is refused, as is a name that no module can have: of a name that
/// nothing has nothing is logged, so that whoever has mistyped `info` or forgotten a comma would have no log.
///
/// # Errors
/// What is wrong, and in which part.
pub fn parsed(text: &str) -> Result<EnvFilter, String> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let levels = LEVELS.join(", ");
    let is_level = |word: &str| {
        LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
            || word.parse::<usize>().is_ok_and(|number| number < LEVELS.len())
    };
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let is_module = |path: &str| path.split("::").all(is_name);
    // What names spans and their fields has a syntax of its own.
    for part in parts.iter().filter(|part| !part.contains('[')) {
        match part.split_once('=') {
            None if !is_level(part) => {
                return Err(format!("`{part}` is not a log level: expected one of {levels}, or MODULE=LEVEL"));
            }
            Some((module, _)) if !is_module(module) => {
                return Err(format!(
                    "`{part}`: what precedes `=` cannot be a module; \
                     expected LEVEL or MODULE=LEVEL, separated by commas"
                ));
            }
            Some((_, level)) if !is_level(level) => {
                return Err(format!("`{part}` is not MODULE=LEVEL: the level is one of {levels}"));
            }
            None | Some(_) => {}
        }
    }
    if parts.is_empty() {
        return Err(format!("it is empty: expected one of {levels}, or MODULE=LEVEL"));
    }
    EnvFilter::try_new(parts.join(",")).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_decides() {
        let shown = |filter: EnvFilter| filter.to_string();
        assert_eq!(shown(filter(0, None, None, "warn").unwrap()), "warn");
        assert_eq!(shown(filter(0, None, Some("error"), "info").unwrap()), "error");
        assert_eq!(shown(filter(0, Some("debug"), Some("error"), "info").unwrap()), "debug");
        for (times, level) in [(1, "info"), (2, "debug"), (3, "trace"), (9, "trace")] {
            assert_eq!(shown(filter(times, Some("error"), Some("error"), "warn").unwrap()), level);
        }
        let error = filter(0, Some("a=b=c"), None, "info").unwrap_err().to_string();
        assert!(error.starts_with("AETHERIS_LOG: `a=b=c` is not a log filter"), "{error}");
        for (wrong, why) in [
            ("inof", "`inof` is not a log level: expected one of error, warn"),
            ("inf,,=x", "`inf` is not a log level"),
            ("info,aetheris_worker", "`aetheris_worker` is not a log level"),
            ("6", "`6` is not a log level"),
            (
                "info,aetheris_worker=debg",
                "`aetheris_worker=debg` is not MODULE=LEVEL: the level is one of error, warn",
            ),
            ("aetheris_worker=", "`aetheris_worker=` is not MODULE=LEVEL"),
            ("=debug", "`=debug`: what precedes `=` cannot be a module"),
            ("info,a b=debug", "`a b=debug`: what precedes `=` cannot be a module"),
            ("info aetheris_worker=debug", "`info aetheris_worker=debug`: what precedes"),
            ("info; aetheris_worker=debug", "`info; aetheris_worker=debug`: what precedes"),
            ("aetheris-worker=debug", "`aetheris-worker=debug`: what precedes"),
            ("aetheris:worker=debug", "`aetheris:worker=debug`: what precedes"),
            ("::=debug", "`::=debug`: what precedes"),
            ("info,[run", "invalid filter directive"),
            (" ,", "it is empty"),
        ] {
            let error = filter(0, None, Some(wrong), "info").unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        for (text, read) in [
            ("INFO,", "info"),
            ("3", "info"),
            ("warn, hyper::client=trace", "hyper::client=trace,warn"),
            ("aetheris_worker=2", "aetheris_worker=warn"),
            ("info,[run{job}]=debug", "info,[run{job}]=debug"),
            ("aetheris_worker[run]", "aetheris_worker[run]=trace"),
        ] {
            assert_eq!(shown(filter(0, None, Some(text), "info").unwrap()), read);
        }
    }

    #[test]
    fn dropped_lines_are_told_in_the_form_of_the_log() {
        assert!(lost(3, false).starts_with("3 lines of the log were dropped"));
        let line: serde_json::Value = serde_json::from_str(lost(3, true).trim_end()).unwrap();
        assert_eq!((line["level"].as_str(), line["target"].as_str()), (Some("WARN"), Some(PROCESS)));
    }
}
