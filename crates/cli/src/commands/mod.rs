//! What each command does. One file a command, or a few that belong together.

mod agent;
mod agent_files;
mod backup;
pub mod bench;
pub mod check_consistency;
pub(crate) mod config;
pub mod demo;
pub mod dev;
mod evidence;
mod follow;
mod guarantee;
mod guarantees;
mod init;
mod jobs;
mod lifecycle;
mod pause;
mod process_control;
pub mod prove;
mod restore;
mod send;
pub mod serve;
mod signal;
mod waits;
pub mod worker;

use std::path::Path;

use aetheris_api::shell::word;
use clap::CommandFactory;
use serde_json::json;

pub use self::process_control::ChildArgs;

use crate::args::{self, Args, Command, Global};
use crate::client::Client;
use crate::config::{Config, Environment, Override};
use crate::error::Error;
use crate::exit::Exit;
use crate::logging;
use crate::out::Out;
use crate::render::Now;

/// The variable that names the server of client commands.
const SERVER_VARIABLE: &str = "AETHERIS_SERVER";

/// What every command works with.
#[derive(Debug, Clone)]
pub struct Context {
    /// Where output goes.
    pub out: Out,
    /// The environment.
    pub env: Environment,
    /// The server of client commands.
    pub server: String,
    clock: fn() -> Now,
    verbose: u8,
}

impl Context {
    /// From what holds for every command.
    #[must_use]
    pub fn new(out: Out, global: &Global, env: Environment) -> Self {
        let server = global.server.as_deref().or_else(|| env.get(SERVER_VARIABLE)).unwrap_or(args::SERVER_DEFAULT);
        let server = server.to_owned();
        Self { out, env, server, clock: Now::of_this_machine, verbose: global.verbose }
    }

    /// The same by another clock.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn at(self, clock: fn() -> Now) -> Self {
        Self { clock, ..self }
    }

    /// A client of the server.
    ///
    /// # Errors
    /// [`Error::Usage`] where the server is no URL.
    pub fn client(&self) -> Result<Client, Error> {
        Ok(Client::new(&self.server)?.told_on(&self.out))
    }

    /// How this program is called, for the commands that its output names.
    #[must_use]
    pub fn program(&self) -> String {
        let by_itself = self.env.get(SERVER_VARIABLE).unwrap_or(args::SERVER_DEFAULT);
        if self.server == by_itself {
            "aetheris".to_owned()
        } else {
            format!("aetheris --server {}", word(&crate::client::without_secret(&self.server)))
        }
    }

    /// The moment to which relative times refer.
    #[must_use]
    pub fn now(&self) -> Now {
        (self.clock)()
    }

    /// Reads the configuration and starts logging by it.
    fn configured(&self, file: Option<&Path>, flags: &[Override]) -> Result<Config, Error> {
        let config = crate::config::load(file, &self.env, flags).map_err(Error::Config)?;
        self.start_logging(Some(&config))?;
        Ok(config)
    }

    fn start_logging(&self, config: Option<&Config>) -> Result<(), Error> {
        let color = self.out.style_aside.color;
        logging::start(self.verbose, &self.env, config.map(|config| &config.log), color)
    }
}

/// Runs a command.
///
/// # Errors
/// What went wrong, in words for its user.
pub async fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    match args.command {
        Command::Dev(given) => {
            config::tell_unread(given.config.as_deref(), context);
            let config = context.configured(given.config.as_deref(), &dev_flags(&given))?;
            Box::pin(dev::run(&given, config, context)).await
        }
        Command::Serve(given) => {
            let config = context.configured(Some(&given.config), &[])?;
            Box::pin(serve::run(config, given.moved, context)).await
        }
        Command::Prove(given) => {
            let config = given.config.as_deref();
            let config = crate::config::load(config, &context.env, &prove::flags(&given)).map_err(Error::Config)?;
            // The configured logs are those of servers and workers.
            context.start_logging(None)?;
            Box::pin(prove::run(&given, &config, context)).await
        }
        Command::Worker(given) => {
            let config = context.configured(Some(&given.config), &[])?;
            Box::pin(worker::run(config, given.moved, context)).await
        }
        Command::Backup(given) => {
            let config = local(given.config.as_deref(), given.data.as_deref(), context)?;
            Box::pin(backup::run(&given, &config, context)).await
        }
        Command::CheckConsistency(given) => {
            let config = local(given.config.as_deref(), given.data.as_deref(), context)?;
            Box::pin(check_consistency::run(&config, context)).await
        }
        Command::Restore(given) => {
            let config = local(given.config.as_deref(), given.data.as_deref(), context)?;
            Box::pin(restore::run(&given, &config, context)).await
        }
        command => {
            context.start_logging(None)?;
            Box::pin(without_config(command, context)).await
        }
    }
}

async fn without_config(command: Command, context: &Context) -> Result<Exit, Error> {
    match command {
        Command::Demo(given) => demo::run(&given, &context.out).await,
        Command::Child(given) => process_control::run_child(&given),
        Command::DemoPayments(given) => demo::run_payments(&given).await,
        Command::Bench(given) => Box::pin(bench::run(&given, context)).await,
        Command::Agent(agent) => agent::run(agent, context).await,
        Command::Send(given) => Box::pin(send::run(given, context)).await,
        Command::Jobs(given) => jobs::list(&given, context).await,
        Command::Show(given) => jobs::show(&given, context).await,
        Command::Why(given) => jobs::why(&given.job, context).await,
        Command::Pause(given) => pause::pause(&given.job, context).await,
        Command::Resume(given) => pause::resume(&given, context).await,
        Command::Cancel(given) => jobs::cancel(&given.job, context).await,
        Command::Watch(given) => Box::pin(follow::watch(&given, context)).await,
        Command::Events(given) => follow::events(&given, context).await,
        Command::Trace(given) => evidence::trace(&given, context).await,
        Command::Replay(given) => evidence::replay(&given.job, context).await,
        Command::Verify(given) => evidence::verify(&given.job, context).await,
        Command::Signal(given) => signal::run(&given, context).await,
        Command::Waits(given) => waits::list(&given, context).await,
        Command::InDoubt(given) => waits::in_doubt(given, context).await,
        Command::Init(given) => init::run(&given, context),
        Command::Guarantees => guarantees::run(context),
        Command::Config(given) => config::run(&given, context),
        Command::Completions(given) => completions(given.shell, context),
        other => Err(Error::NotYet(other.not_yet().unwrap_or("this command"))),
    }
}

/// The configuration of a command about a data folder.
fn local(file: Option<&Path>, data: Option<&Path>, context: &Context) -> Result<Config, Error> {
    let config = crate::config::load(file, &context.env, &data_flags(data)).map_err(Error::Config)?;
    context.start_logging(None)?;
    if config.jobstore.database().is_none() {
        return Err(Error::Usage("jobstore.type memory keeps nothing: there is no database on the disk".to_owned()));
    }
    Ok(config)
}

/// What `--data` sets.
fn data_flags(data: Option<&Path>) -> Vec<Override> {
    let Some(data) = data else { return Vec::new() };
    let path = data.join("aetheris.db");
    let set = |key, value| Override { key, value, flag: "--data" };
    vec![set("jobstore.type", json!("sqlite")), set("jobstore.sqlite.path", json!(path))]
}

/// What the arguments of `dev` set in its configuration.
fn dev_flags(dev: &args::Dev) -> Vec<Override> {
    let mut flags = data_flags(dev.data.as_deref());
    if dev.ephemeral {
        flags.push(Override { key: "jobstore.type", value: json!("memory"), flag: "--ephemeral" });
    }
    if let Some(listen) = &dev.listen {
        flags.push(Override { key: "server.listen", value: json!(listen), flag: "--listen" });
    }
    flags
}

fn completions(shell: clap_complete::Shell, context: &Context) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "aetheris", &mut script);
    context.out.text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Color;

    #[test]
    fn the_command_line_names_the_server_before_the_environment_does() {
        for (given, variable, server, program) in [
            (None, None, "http://127.0.0.1:8080", "aetheris"),
            (None, Some("http://env"), "http://env", "aetheris"),
            (Some("http://given"), Some("http://env"), "http://given", "aetheris --server http://given"),
            (Some("http://env"), Some("http://env"), "http://env", "aetheris"),
            // A variable that is empty is not set.
            (None, Some(""), "http://127.0.0.1:8080", "aetheris"),
        ] {
            let vars: Vec<_> = variable.map(|value| (SERVER_VARIABLE, value)).into_iter().collect();
            let global = Global { server: given.map(str::to_owned), json: false, color: Color::Never, verbose: 0 };
            let out = Out::of_process(true, false, Default::default());
            let context = Context::new(out, &global, Environment::of(&vars));
            assert_eq!(
                (context.server.as_str(), context.program().as_str()),
                (server, program),
                "{given:?} {variable:?}"
            );
        }
    }
}
