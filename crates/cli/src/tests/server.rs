//! A small server that gives canned answers, and a place that keeps what was printed.

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::Router;
use clap::Parser;

use crate::args::Args;
use crate::commands::{self, Context};
use crate::config::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::out::Out;
use crate::render::{Now, Style};

/// Columns of the terminal of [`run_on`].
pub(super) const COLUMNS: usize = 80;

/// The moment of every command here, a few days after what the samples tell.
fn now() -> Now {
    Now("2026-11-24T12:00:00Z".parse().unwrap())
}

/// Serves on a free port until the test ends.
pub(super) async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// What was written.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Kept {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// How a command ended, and what it printed.
pub(super) struct Ran {
    pub(super) ended: Result<Exit, Error>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ran {
    pub(super) fn exit(&self) -> Exit {
        match &self.ended {
            Ok(exit) => *exit,
            Err(error) => error.exit(),
        }
    }

    pub(super) fn error(&self) -> String {
        self.ended.as_ref().unwrap_err().to_string()
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// Runs a command against a server.
pub(super) async fn run(server: &str, words: &[&str]) -> Ran {
    run_on(server, words, false).await
}

/// The same where nothing but the command line names the server.
pub(super) async fn run_elsewhere(server: &str, words: &[&str]) -> Ran {
    run_in(server, words, [Style::default(); 2], false, &Environment::of(&[])).await
}

/// The same where stdout and stderr are so many columns wide.
pub(super) async fn run_at(server: &str, words: &[&str], columns: usize, live: bool) -> Ran {
    let style = Style { columns: Some(columns), ..Style::default() };
    run_in(server, words, [style; 2], live, &Environment::of(&[("AETHERIS_SERVER", server)])).await
}

/// The same on a terminal.
pub(super) async fn run_on(server: &str, words: &[&str], live: bool) -> Ran {
    let style = Style { columns: live.then_some(COLUMNS), ..Style::default() };
    run_in(server, words, [style; 2], live, &Environment::of(&[("AETHERIS_SERVER", server)])).await
}

/// The same, with colours on stdout or on stderr.
pub(super) async fn run_in_colours(server: &str, words: &[&str], colours: [bool; 2]) -> Ran {
    let styles = colours.map(|color| Style { color, columns: None });
    run_in(server, words, styles, false, &Environment::of(&[("AETHERIS_SERVER", server)])).await
}

async fn run_in(server: &str, words: &[&str], styles: [Style; 2], live: bool, env: &Environment) -> Ran {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let line = ["aetheris", "--server", server].into_iter().chain(words.iter().copied());
    let args = Args::try_parse_from(line).unwrap();
    let (stdout, stderr) = (Kept::default(), Kept::default());
    let out = Out::to(Box::new(stdout.clone()), Box::new(stderr.clone()), args.global.json, live, styles);
    let context = Context::new(out, &args.global, env.clone()).at(now);
    let ended = commands::run(args, &context).await;
    Ran { ended, stdout: stdout.text(), stderr: stderr.text() }
}
