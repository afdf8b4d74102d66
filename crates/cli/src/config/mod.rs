//! Configuration: built-in defaults, then the YAML file, then variables `AETHERIS__SECTION__KEY`, then
//! flags, each over the one before, key by key.
//!
//! All mistakes are reported at once, each with its place. What this build does not have is refused by
//! name, never ignored. Secrets are references to variables or files; a secret itself is never part of
//! a configuration.
//!
//! Reading order: `keys` (the table), `value` (what keys take), `layers`, then the types below.

mod check;
mod env;
mod file;
mod keys;
mod layers;
mod suggest;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use aetheris_core::time::Span;
use serde::{Deserialize, Deserializer};

pub use self::env::{Environment, stderr_is_terminal, stdout_is_terminal, stdout_size};
use self::layers::{Layers, nested};
pub use self::layers::{Origin, Override, Setting};
pub(crate) use self::suggest::nearest;

/// One mistake in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {}{message}", if key.is_empty() { String::new() } else { format!("{key}: ") })]
pub struct Mistake {
    /// Where it stands.
    pub origin: Origin,
    /// The key; empty for the file as a whole.
    pub key: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// What becomes of a variable of `tools.env` that is not set.
pub(crate) const UNSET: &str = "calls of tools whose url or headers name it fail for good";

/// The configuration that holds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where jobs and their events are kept.
    pub jobstore: JobStore,
    /// Where effects are kept.
    pub effect_store: Part,
    /// Where permissions to call tools are kept.
    pub invocation_ledger: Part,
    /// How workers learn of new work.
    pub wakeup_queue: WakeupQueue,
    /// The HTTP server.
    pub server: Server,
    /// This process as a worker.
    pub worker: Worker,
    /// How steps are run.
    pub executor: Executor,
    /// What tools may reach.
    pub tools: Tools,
    /// Model providers by name.
    #[serde(default)]
    pub models: BTreeMap<String, Model>,
    /// Bounds.
    pub limits: Limits,
    /// Versions of the code that runs jobs.
    pub versions: Versions,
    /// Logs.
    pub log: Log,
    /// Every key with its value and where that comes from.
    #[serde(skip)]
    pub settings: Vec<Setting>,
}

impl Config {
    /// The folder of the database: what `--data` names, or where the configuration puts the file.
    #[must_use]
    pub fn data_folder(&self) -> &Path {
        let folder = self.jobstore.sqlite.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new("."))
    }

    /// Names of `tools.env` that have no value here: calls of tools that name them fail for good.
    pub fn unset_names<'c>(&'c self, env: &'c Environment) -> impl Iterator<Item = &'c str> {
        self.tools.env.iter().map(String::as_str).filter(|name| env.get(name).is_none())
    }
}

/// Where jobs and their events are kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobStore {
    /// Which store.
    #[serde(rename = "type")]
    pub kind: StoreKind,
    /// The embedded database.
    pub sqlite: Sqlite,
}

impl JobStore {
    /// The database's file; none where nothing is kept beyond the process.
    #[must_use]
    pub fn database(&self) -> Option<&Path> {
        match self.kind {
            StoreKind::Sqlite => Some(&self.sqlite.path),
            StoreKind::Memory => None,
        }
    }
}

/// A store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// One file, no server.
    Sqlite,
    /// Nothing is kept beyond the process.
    Memory,
}

/// The embedded database.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sqlite {
    /// Its file.
    pub path: PathBuf,
}

/// A part of the store that may live elsewhere in other builds; here it lives with the jobs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Whether it is used.
    pub enabled: bool,
    /// `same`, or the job store's type.
    #[serde(rename = "type")]
    pub kind: String,
}

/// How workers learn of new work.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeupQueue {
    /// `memory`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The HTTP server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Names under which a server that listens on loopback answers beside `localhost` and addresses.
    pub hosts: Vec<String>,
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
}

/// This process as a worker.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// Its name; `auto` makes one of the host and the process.
    pub id: String,
    /// Jobs that it runs at once.
    pub slots: usize,
    /// How long a claim holds without a heartbeat.
    pub lease_ttl: Span,
    /// How often claims are renewed.
    pub heartbeat: Span,
    /// How often it looks for work without a hint.
    pub poll_interval: Span,
    /// How long a shutdown waits for what runs.
    pub drain_timeout: Span,
    /// Reclaims without progress after which a job fails.
    pub max_attempts: u32,
}

impl Worker {
    /// The chosen name; `None` where one is to be made.
    #[must_use]
    pub fn chosen_id(&self) -> Option<&str> {
        (self.id != "auto").then_some(self.id.as_str())
    }
}

/// How steps are run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Executor {
    /// Time a step may take when nothing narrower says otherwise.
    pub step_timeout: Span,
    /// Steps of one job that run at once, where its agent does not say; 0 or 1 is one after the other.
    pub max_parallel_steps: u32,
}

/// What tools may reach.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tools {
    /// HTTP tools.
    pub http: HttpTools,
    /// Variables that templates of urls and headers may name.
    pub env: Vec<String>,
}

/// HTTP tools.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTools {
    /// Networks beyond the public ones, each as `10.0.0.0/8`.
    pub allow: Vec<String>,
}

/// How a model provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelDialect {
    /// Anthropic's messages.
    Anthropic,
    /// OpenAI's chat completions.
    #[default]
    Openai,
}

/// A model provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Where it is.
    pub base_url: String,
    /// The variable that holds its key.
    pub api_key_env: Option<String>,
    /// The file that holds its key.
    pub api_key_file: Option<PathBuf>,
    /// How it is spoken to.
    #[serde(default)]
    pub dialect: ModelDialect,
    /// How many questions may be under way at once.
    pub max_concurrent: Option<usize>,
    /// How many questions each of its models is asked in a minute.
    pub requests_per_minute: Option<u32>,
    /// Whether answers are asked for as streams.
    #[serde(default = "streams")]
    pub stream: bool,
    /// Time one answer may take.
    pub timeout: Span,
    /// How many tokens each of its models is asked for in a minute.
    pub tokens_per_minute: Option<u32>,
}

const fn streams() -> bool {
    true
}

impl Model {
    /// The reference to its key, where it needs one.
    #[must_use]
    pub fn api_key(&self) -> Option<Secret> {
        let file = || self.api_key_file.clone().map(Secret::File);
        self.api_key_env.clone().map(Secret::Env).or_else(file)
    }
}

/// Where a secret is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// In a variable of the environment.
    Env(String),
    /// In a file.
    File(PathBuf),
}

/// Bounds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Largest message, signal or result, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub payload: usize,
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let text = String::deserialize(deserializer)?;
    let bytes = value::bytes(&text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a size")))
}

/// Versions of the code that runs jobs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// Recorded with each job; the program's own where it is not set.
    pub execution: Option<String>,
    /// What happens when a job of another version is resumed.
    pub mismatch: String,
}

/// Logs, always on stderr.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// `text` or `json`.
    pub format: LogFormat,
    /// A filter, as `info,aetheris_worker=debug`.
    pub filter: Option<String>,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Reads and checks a configuration.
///
/// # Errors
/// Every mistake, in the order of the layers.
pub fn load(file: Option<&Path>, env: &Environment, flags: &[Override]) -> Result<Config, Vec<Mistake>> {
    let text = file.map(|path| (path, std::fs::read_to_string(path)));
    let file = match text {
        None => None,
        Some((path, Ok(text))) => Some((path, text)),
        Some((path, Err(error))) => {
            let origin = Origin::Flag("--config");
            let message = format!("{} cannot be read: {error}", path.display());
            return Err(vec![Mistake { origin, key: String::new(), message }]);
        }
    };
    from_text(file.as_ref().map(|(path, text)| (*path, text.as_str())), env, flags)
}

/// The same of a file's text.
///
/// # Errors
/// Every mistake, in the order of the layers.
pub fn from_text(file: Option<(&Path, &str)>, env: &Environment, flags: &[Override]) -> Result<Config, Vec<Mistake>> {
    let mut layers = Layers::defaults();
    if let Some((path, text)) = file {
        layers.file(path, text);
    }
    layers.env(env);
    layers.flags(flags);
    check::all(&mut layers);
    if !layers.mistakes.is_empty() {
        return Err(layers.mistakes);
    }
    let settings = layers.into_settings();
    match serde_json::from_value::<Config>(nested(&settings)) {
        Ok(config) => Ok(Config { settings, ..config }),
        Err(error) => Err(vec![Mistake { origin: Origin::Default, key: String::new(), message: error.to_string() }]),
    }
}
