//! A scratch folder with a witness, a configuration and agents, and the processes that share it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aetheris_check::{ClientHistory, Invariant, Report, check_store};
use aetheris_plain::turns::{self, Judged};
use aetheris_store_sqlite::{SqliteOptions, SqliteStore};
use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use tokio::sync::watch;

use super::client::Client;
use super::process::{Launch, Running, Started, tail};
use super::stories::Story;
use crate::witness::Witness;
use aetheris_harness::Folder;

/// Short leases, so that a cell takes seconds.
const CONFIG: &str = "\
worker: { lease_ttl: 1500ms, heartbeat: 250ms, poll_interval: 100ms, slots: 32, drain_timeout: 1s, max_attempts: 5 }
tools: { http: { allow: [\"127.0.0.0/8\"] } }
";

/// Everything that the processes of a cell share.
#[derive(Debug)]
pub struct Fleet {
    program: PathBuf,
    scratch: Folder,
    url: watch::Sender<String>,
    /// The tools.
    pub witness: Witness,
}

impl Fleet {
    /// Sets up the folder and starts the witness.
    ///
    /// # Errors
    /// Either fails.
    pub fn new(program: PathBuf) -> Result<Self> {
        let scratch = Folder::new("cell");
        let data = scratch.path().join("data");
        std::fs::create_dir_all(&data)?;
        let database = format!("jobstore: {{ sqlite: {{ path: {} }} }}\n", data.join("aetheris.db").display());
        let server = "server: { listen: \"127.0.0.1:0\" }\n";
        std::fs::write(scratch.path().join("config.yaml"), format!("{CONFIG}{server}{database}"))?;
        std::fs::write(scratch.path().join("dev.yaml"), CONFIG)?;
        let witness = Witness::start(&scratch.path().join("witness.log"))?;
        let (url, _) = watch::channel(String::from("http://127.0.0.1:9"));
        Ok(Self { program, scratch, url, witness })
    }

    /// A client that follows wherever the server goes.
    ///
    /// # Errors
    /// It cannot be set up.
    pub fn client(&self) -> Result<Client> {
        Client::new(self.url.subscribe())
    }

    /// Where the witness answers.
    #[must_use]
    pub fn witness_url(&self) -> String {
        format!("http://{}", self.witness.addr)
    }

    /// The server is there from now on.
    ///
    /// # Errors
    /// Its first line does not say where.
    pub fn serve_at(&self, running: &Running) -> Result<()> {
        self.url.send_replace(running.url()?);
        Ok(())
    }

    /// Writes the agent files of some stories.
    ///
    /// # Errors
    /// One cannot be written.
    pub fn agents(&self, stories: &[Story]) -> Result<Vec<PathBuf>> {
        let write = |story: &Story| {
            let path = self.scratch.path().join(format!("{}.yaml", story.agent));
            std::fs::write(&path, story.source(&self.witness_url())?)?;
            anyhow::Ok(path)
        };
        stories.iter().map(write).collect()
    }

    /// How a `dev` on the folder is started.
    #[must_use]
    pub fn dev(&self, agents: &[PathBuf], crash: Option<String>) -> Launch {
        let path = |name: &str| self.scratch.path().join(name).display().to_string();
        let mut args: Vec<String> =
            vec!["dev".into(), "--config".into(), path("dev.yaml"), "--data".into(), path("data")];
        args.extend(["--listen".into(), "127.0.0.1:0".into()]);
        for agent in agents {
            args.extend(["--agent".into(), agent.display().to_string()]);
        }
        self.launch(args, crash)
    }

    /// How a `serve` or a `worker` on the folder is started.
    #[must_use]
    pub fn part(&self, part: &str, crash: Option<String>) -> Launch {
        let config = self.scratch.path().join("config.yaml").display().to_string();
        self.launch(vec![part.into(), "--config".into(), config], crash)
    }

    fn launch(&self, args: Vec<String>, crash: Option<String>) -> Launch {
        Launch { args, crash, env: Vec::new(), log: self.log(), program: self.program.clone() }
    }

    fn log(&self) -> PathBuf {
        self.scratch.path().join("processes.log")
    }

    /// The end of the processes' log.
    #[must_use]
    pub fn tail(&self) -> String {
        tail(&self.log())
    }

    /// Plays every job of the stories at once.
    ///
    /// # Errors
    /// One of them ends otherwise than it must.
    pub async fn play(&self, client: &Client, stories: &[Story]) -> Result<ClientHistory> {
        let plays = stories.iter().flat_map(|story| {
            (0..story.jobs).map(move |number| async move {
                story.play(client, &format!("{}-{number}", story.agent)).await.with_context(|| story.agent)
            })
        });
        let mut whole = ClientHistory { quiet: true, ..ClientHistory::default() };
        for history in try_join_all(plays).await? {
            whole.cancels.extend(history.cancels);
            whole.pauses.extend(history.pauses);
            whole.signals.extend(history.signals);
            whole.submissions.extend(history.submissions);
        }
        Ok(whole)
    }

    /// The program under test.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The data folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    fn database(&self) -> PathBuf {
        self.data().join("aetheris.db")
    }

    /// Whether jobs began in their turn.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn turns(&self) -> Result<Judged> {
        turns::of_database(&self.database())
    }

    /// Evaluates every invariant over the database and the witness's log.
    ///
    /// # Errors
    /// One is violated, or had no case and is not excused.
    pub async fn check(&self, history: &ClientHistory, excused: &[Invariant]) -> Result<Report> {
        let turns = self.turns()?;
        ensure!(turns.violations.is_empty(), "not in its turn: {:?}\n{}", turns.violations, self.tail());
        let store = Arc::new(SqliteStore::open(SqliteOptions::new(self.database()))?);
        let report = check_store(store.as_ref(), &self.witness.lines()?, history).await?.excuse(excused);
        ensure!(report.is_proof(), "not everything holds, or was examined:\n{report}\n{}", self.tail());
        Ok(report)
    }
}

/// Starts something that must be ready.
///
/// # Errors
/// It is not.
pub async fn ready(launch: &Launch) -> Result<Running> {
    match launch.start().await? {
        Started::Ready(running) => Ok(*running),
        Started::Killed => bail!("{:?} was killed before it was ready", launch.args),
    }
}
