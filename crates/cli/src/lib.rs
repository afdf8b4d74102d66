//! The program `aetheris`: a thin shell over the other crates.
//!
//! Reading order: `args` (the command line), [`config`] (what a server and a worker are told),
//! [`commands`] (what is done), [`client`] (how a server is asked), [`render`] (what people read),
//! [`exit`] and [`error`] (how it ends).
//!
//! Results go to stdout, everything else to stderr; with `--json` stdout has exactly one JSON value.
//! No error is shown as a stack of calls: each says what happened, where, and what to do.

pub mod args;
pub mod client;
pub mod commands;
pub mod config;
pub mod error;
pub mod exit;
mod folder;
mod last_words;
mod life;
mod listen_addresses;
mod lock;
pub mod logging;
mod open_files;
pub mod out;
pub mod payload;
mod pid;
mod progress;
pub mod pulses;
pub mod render;
pub mod role;
mod signals;
mod stored_agents;
mod supervise;
#[cfg(test)]
mod tests;
pub mod wiring;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use crate::args::Color;
use crate::commands::Context;
use crate::config::{Environment, stderr_is_terminal, stdout_is_terminal, stdout_size};
use crate::error::Error;
use crate::exit::Exit;
use crate::out::Out;
use crate::render::Style;

/// Most threads of the asynchronous runtime, however many cores there are, are its cores; this is the
/// fewest.
const THREADS_MIN: usize = 2;

/// Runs the program with the arguments and the environment of this process.
#[must_use]
pub fn main() -> ExitCode {
    // Fails only where one is installed already, which is as good.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    std::panic::set_hook(Box::new(|panic| say_bug(&panic.to_string())));
    start(std::env::args_os(), Environment::of_process()).into()
}

/// A mistake of the program itself, in a few words instead of its stack.
fn say_bug(panic: &str) {
    if logging::say_error(&format!("this is a bug of aetheris, please report it: {panic}")) {
        return;
    }
    // If stderr is gone as well, there is nobody left to tell.
    let _unheard = writeln!(std::io::stderr(), "error: this is a bug of aetheris, please report it: {panic}");
}

/// How long the end of a process waits for its store to be closed.
const CLOSING_MAX: std::time::Duration = std::time::Duration::from_secs(5);

fn start(arguments: impl IntoIterator<Item = OsString>, env: Environment) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let args = match args::parse(arguments.iter().cloned()) {
        Ok(args) => args,
        Err(refusal) => {
            // Help goes to stdout and mistakes to stderr; if nobody reads it, nothing is lost.
            let _unread = say_refusal(&refusal, &env);
            if refusal.use_stderr() && arguments.iter().any(|argument| argument == "--json") {
                // Whoever asked for JSON reads what is wrong there too.
                let _unread = Out::of_process(true, false, [Style::default(); 2]).value(&refused(&refusal));
            }
            return if refusal.use_stderr() { Exit::Usage } else { Exit::Done };
        }
    };
    let live = stdout_is_terminal();
    let color = |terminal: bool| match args.global.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => terminal && !env.no_color(),
    };
    let columns = if live { stdout_size().map(|(columns, _)| columns) } else { None };
    let styles = [live, stderr_is_terminal()].map(|terminal| Style { color: color(terminal), columns });
    let out = Out::of_process(args.global.json, live && !args.global.json, styles);
    let context = Context::new(out.clone(), &args.global, env);
    let opens_store =
        matches!(args.command, args::Command::Dev(_) | args::Command::Serve(_) | args::Command::Worker(_));
    let ended = runtime().and_then(|runtime| {
        let ended = runtime.block_on(Box::pin(commands::run(args, &context)));
        if opens_store {
            // Tasks of clients that are still there have the store in their hands. Only when the last of them is gone,
            // it copies its log into the database, which then is the one file that holds everything.
            runtime.shutdown_timeout(CLOSING_MAX);
        } else {
            runtime.shutdown_background();
        }
        ended
    });
    let exit = match ended {
        Ok(exit) => exit,
        Err(error) => report(&out, &error),
    };
    logging::flush();
    exit
}

/// What is wrong with the arguments, as `--json` has it.
fn refused(refusal: &clap::Error) -> serde_json::Value {
    let text = refusal.render().to_string();
    let text = text.trim();
    failure(&Error::Usage(text.strip_prefix("error: ").unwrap_or(text).to_owned()))
}

/// An error as `--json` has it.
fn failure(error: &Error) -> serde_json::Value {
    serde_json::json!({ "error": { "code": error.code(), "message": error.message() } })
}

/// Prints help, or what is wrong with the arguments, within the terminal.
fn say_refusal(refusal: &clap::Error, env: &Environment) -> std::io::Result<()> {
    let aside = refusal.use_stderr();
    let terminal = if aside { stderr_is_terminal() } else { stdout_is_terminal() };
    let columns = stdout_size().filter(|_| terminal).map(|(columns, _)| columns);
    let text = refusal.render();
    let text = if terminal && !env.no_color() { text.ansi().to_string() } else { text.to_string() };
    let text = args::fitted(&text, columns);
    if aside { std::io::stderr().write_all(text.as_bytes()) } else { std::io::stdout().write_all(text.as_bytes()) }
}

fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    let cores = std::thread::available_parallelism().map_or(THREADS_MIN, std::num::NonZero::get);
    let threads = cores.max(THREADS_MIN);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    Ok(runtime.map_err(|error| anyhow::anyhow!("the threads of this process cannot be started: {error}"))?)
}

/// Says what went wrong, and how the program ends for it.
pub(crate) fn report(out: &Out, error: &Error) -> Exit {
    if let Error::OutputClosed = error {
        return error.exit();
    }
    if out.json {
        // Where it cannot be written, stderr has it all the same.
        let _unwritten = out.value(&failure(error));
    }
    if logging::is_json() {
        logging::say_error(&error.to_string());
        return error.exit();
    }
    out.error(&error.to_string());
    error.exit()
}
