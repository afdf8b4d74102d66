//! The stage of an act: a folder, a payments service, and the runtime's processes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use aetheris_api::AgentPut;
use serde_json::{Value, json};

use super::payments::{Booking, Command, Notice};
use super::story::Story;
use crate::client::Client;
use crate::commands::process_control::Fault;
use crate::commands::process_control::{Process, Surroundings};

/// The address in the agent files, in whose place the service's own comes.
const ADDRESS_IN_FILES: &str = "http://127.0.0.1:9000";

/// Where an act plays.
pub(super) struct Stage<'s> {
    pub(super) folder: PathBuf,
    program: &'s Path,
    pub(super) story: &'s Story,
}

/// A server of ours and how it is spoken to.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) process: Process,
}

impl<'s> Stage<'s> {
    /// A new folder in `parent`.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn set(parent: &Path, name: &str, program: &'s Path, story: &'s Story) -> Result<Self, Fault> {
        let folder = parent.join(name);
        std::fs::create_dir(&folder).map_err(|error| setup(&folder, &error))?;
        Ok(Self { folder, program, story })
    }

    /// The database of this act.
    pub(super) fn database(&self) -> PathBuf {
        self.data().join("aetheris.db")
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Starts the payments service.
    ///
    /// # Errors
    /// It does not come to serve.
    pub(super) async fn payments(&self) -> Result<Payments, Fault> {
        let log = self.folder.join("payments.log");
        let args: [&OsStr; 3] = ["demo-payments".as_ref(), "--log".as_ref(), log.as_ref()];
        let mut process = Process::start("payments", self.program, &args, &self.folder, Surroundings::Nothing)?;
        let listening = process.line("the payments service listens", |line| match serde_json::from_str(line) {
            Ok(Notice::Listening { url }) => Some(url),
            Ok(Notice::Holding { .. } | Notice::Booked { .. } | Notice::Closed { .. }) | Err(_) => None,
        });
        let url = listening.await?;
        let what = format!("a process of its own, pid {}, with its own fsynced log of bookings", process.id());
        self.story.tell("payments", &what);
        Ok(Payments { log, process, url })
    }

    /// Writes an agent's file for this act's payments service.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn agent(&self, text: &str, payments: &Payments) -> Result<PathBuf, Fault> {
        self.write("refund.yaml", &text.replace(ADDRESS_IN_FILES, &payments.url))
    }

    /// Puts an agent for this act's payments service on a server.
    ///
    /// # Errors
    /// It is refused.
    pub(super) async fn put_agent(&self, text: &str, payments: &Payments, server: &Server) -> Result<(), Fault> {
        let text = text.replace(ADDRESS_IN_FILES, &payments.url);
        let put = server.client.put_file::<AgentPut>(&["api", "agents", "refund"], text).await;
        put.map(|_| ()).map_err(|error| Fault::api("the agent `refund`", error))
    }

    /// Starts `aetheris dev` on this act's data folder.
    ///
    /// # Errors
    /// It does not come to serve.
    pub(super) async fn dev(&self, name: &str, agent: &Path) -> Result<Server, Fault> {
        let data = self.data();
        let args: [&OsStr; 7] = [
            "dev".as_ref(),
            "--data".as_ref(),
            data.as_ref(),
            "--listen".as_ref(),
            "127.0.0.1:0".as_ref(),
            "--agent".as_ref(),
            agent.as_ref(),
        ];
        let process = Process::start(name, self.program, &args, &self.folder, Surroundings::Nothing)?;
        Self::serving(process, "aetheris dev: listening on ").await
    }

    /// Starts `aetheris serve` on this act's database.
    ///
    /// # Errors
    /// It does not come to serve.
    pub(super) async fn serve(&self) -> Result<Server, Fault> {
        std::fs::create_dir(self.data()).map_err(|error| setup(&self.data(), &error))?;
        // A server that may not reach the tools of an agent refuses its file.
        let tools = json!({ "http": { "allow": ["127.0.0.0/8"] } });
        let settings = json!({ "server": { "listen": "127.0.0.1:0" }, "tools": tools });
        let config = self.config("serve", &settings, &[])?;
        let args: [&OsStr; 3] = ["serve".as_ref(), "--config".as_ref(), config.as_ref()];
        let process = Process::start("serve", self.program, &args, &self.folder, Surroundings::Nothing)?;
        Self::serving(process, "aetheris serve: listening on ").await
    }

    async fn serving(mut process: Process, words: &str) -> Result<Server, Fault> {
        let url = process.line("the server listens", |line| line.strip_prefix(words).map(str::to_owned)).await?;
        let client = Client::new(url.trim()).map_err(|error| Fault::api("the server's own address", error))?;
        Ok(Server { client, process })
    }

    /// Starts `aetheris worker` on this act's database, with a short lease.
    ///
    /// # Errors
    /// It does not get ready.
    pub(super) async fn worker(&self, id: &str) -> Result<Process, Fault> {
        let tools = json!({ "http": { "allow": ["127.0.0.0/8"] } });
        let config = self.config(id, &json!({ "log": { "filter": "info" }, "tools": tools }), &[("id", id)])?;
        let args: [&OsStr; 3] = ["worker".as_ref(), "--config".as_ref(), config.as_ref()];
        let mut process = Process::start(id, self.program, &args, &self.folder, Surroundings::Nothing)?;
        process.line("the worker is ready", |line| line.starts_with("aetheris worker: ready").then_some(())).await?;
        self.story.tell(id, &format!("pid {}, lease 1500 ms, heartbeat 300 ms", process.id()));
        Ok(process)
    }

    /// A configuration file: JSON, which is YAML. Sweeps look as often as the lease of workers asks for.
    fn config(&self, name: &str, settings: &Value, worker: &[(&str, &str)]) -> Result<PathBuf, Fault> {
        let mut settings = settings.clone();
        settings["jobstore"] = json!({ "type": "sqlite", "sqlite": { "path": self.database() } });
        settings["worker"] = json!({ "lease_ttl": "1500ms", "heartbeat": "300ms", "poll_interval": "100ms" });
        for (key, value) in worker {
            settings["worker"][*key] = json!(value);
        }
        self.write(&format!("{name}.config.yaml"), &settings.to_string())
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Fault> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|error| setup(&path, &error))?;
        Ok(path)
    }
}

fn setup(path: &Path, error: &std::io::Error) -> Fault {
    Fault::Setup(format!("{} cannot be made: {error}", path.display()))
}

/// The payments service of an act.
pub(super) struct Payments {
    /// Its own log.
    pub(super) log: PathBuf,
    process: Process,
    pub(super) url: String,
}

/// How a connection that had asked for a refund ended.
pub(super) struct Closed {
    pub(super) answered: bool,
    pub(super) by_client: bool,
}

impl Payments {
    /// From here on answers to refunds are held back, or no longer.
    ///
    /// # Errors
    /// It does not say so.
    pub(super) async fn hold(&mut self, wanted: bool) -> Result<(), Fault> {
        let command = if wanted { Command::Hold } else { Command::Release };
        let line = serde_json::to_string(&command).map_err(|error| Fault::Setup(error.to_string()))?;
        self.process.tell(&line)?;
        let what = "the payments service says whether it holds its answers";
        let said = self.process.line(what, |line| match serde_json::from_str(line) {
            Ok(Notice::Holding { held }) if held == wanted => Some(()),
            Ok(_) | Err(_) => None,
        });
        said.await
    }

    /// The next booking, which is on disk, and the connection that asked for it.
    ///
    /// # Errors
    /// None comes.
    pub(super) async fn booked(&mut self) -> Result<(Booking, u64), Fault> {
        let next = self.process.line("the payments service books a refund", |line| match serde_json::from_str(line) {
            Ok(Notice::Booked { booking, connection }) => Some((booking, connection)),
            Ok(_) | Err(_) => None,
        });
        next.await
    }

    /// The end of a connection.
    ///
    /// # Errors
    /// It does not end.
    pub(super) async fn closed(&mut self, wanted: u64) -> Result<Closed, Fault> {
        let what = "the connection of the refund call ends";
        let end = self.process.line(what, |line| match serde_json::from_str(line) {
            Ok(Notice::Closed { answered, by_client, connection }) if connection == wanted => {
                Some(Closed { answered, by_client })
            }
            Ok(_) | Err(_) => None,
        });
        end.await
    }
}
