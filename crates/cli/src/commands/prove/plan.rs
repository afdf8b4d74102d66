//! What is to be run, where, and with which settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use aetheris_core::time::Span;
use serde_json::{Map, Value, json};

use super::args::ProveArgs;
use crate::config::Config;
use crate::error::Error;

/// Reclaims that a job of an experiment survives: it is killed more often than a job of users ever is.
const ATTEMPTS_MIN: u32 = 50;
/// Calls of different kinds that experiments hold at once.
const SLOTS_MIN: usize = 2;
/// With `--quick`, leases are no longer than this.
const QUICK_LEASE: Span = Span::from_millis(4_000);

/// What is to be run, where, and with which settings.
pub(super) struct Plan {
    /// The user's folder, beside whose files everything happens in a folder of its own.
    pub(super) beside: PathBuf,
    /// Heartbeats of the children.
    pub(super) heartbeat: Duration,
    /// Leases of the children.
    pub(super) lease: Duration,
    /// What differs from the user's configuration, in words.
    pub(super) notes: Vec<String>,
    /// This program.
    pub(super) program: PathBuf,
    /// Fewer rounds and shorter leases.
    pub(super) quick: bool,
    /// Jobs that one worker runs at once.
    pub(super) slots: usize,
    settings: Value,
}

impl Plan {
    /// From the user's configuration and the command line.
    ///
    /// # Errors
    /// The configuration has no store whose durability could be proved.
    pub(super) fn new(given: &ProveArgs, config: &Config) -> Result<Self, Error> {
        let Some(database) = config.jobstore.database() else {
            return Err(Error::Usage(
                "jobstore.type is memory: nothing outlives the process, and there is nothing to prove over a kill; \
                 --data DIR proves SQLite in that folder"
                    .to_owned(),
            ));
        };
        let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty());
        // What is printed is to be found from anywhere.
        let beside = std::path::absolute(folder.unwrap_or(Path::new("."))).map_err(anyhow::Error::from)?;
        let worker = &config.worker;
        let mut notes = Vec::new();
        let lease = lease(given, worker.lease_ttl, &mut notes);
        let mut heartbeat = worker.heartbeat;
        if lease != worker.lease_ttl {
            // As often within a lease as the user has it.
            let scaled = u128::from(heartbeat.micros()) * u128::from(lease.micros());
            let scaled = scaled / u128::from(worker.lease_ttl.micros().max(1));
            heartbeat =
                Span::from_millis(u64::try_from(scaled / 1_000).unwrap_or(u64::MAX)).max(Span::from_millis(100));
            notes.push(format!("worker.heartbeat is {heartbeat} instead of {}, in proportion", worker.heartbeat));
        }
        let attempts = worker.max_attempts.max(ATTEMPTS_MIN);
        if attempts != worker.max_attempts {
            notes.push(format!(
                "worker.max_attempts is {attempts} instead of {}: the same jobs are killed again and again here",
                worker.max_attempts
            ));
        }
        let slots = worker.slots.max(SLOTS_MIN);
        if slots != worker.slots {
            notes.push(format!("worker.slots is {slots} instead of {}: two calls are held at once", worker.slots));
        }
        notes.push(
            "models, tools.env, worker.id and log are not used: tools are fake, and no model is asked".to_owned(),
        );
        Ok(Self {
            beside,
            heartbeat: heartbeat.to_std(),
            lease: lease.to_std(),
            notes,
            program: std::env::current_exe().map_err(anyhow::Error::from)?,
            quick: given.quick,
            settings: settings(config, (lease, heartbeat), (slots, attempts)),
            slots,
        })
    }

    /// A count of rounds: a few where it is to be quick.
    pub(super) const fn rounds(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// As many jobs as are wanted at once, and a worker runs at once.
    pub(super) fn jobs(&self, wanted: usize) -> usize {
        wanted.min(self.slots).max(1)
    }

    /// How long a held call may take: longer than every phase in which it is held.
    pub(super) fn held_s(&self) -> u64 {
        self.lease.as_secs() * 3 + 60
    }

    /// The configuration of a child whose database is here.
    pub(super) fn settings(&self, database: &Path) -> Value {
        let mut settings = self.settings.clone();
        settings["jobstore"] = json!({ "type": "sqlite", "sqlite": { "path": database } });
        settings
    }
}

/// The lease of the children, with a word about it where it is not the user's.
fn lease(given: &ProveArgs, configured: Span, notes: &mut Vec<String>) -> Span {
    let (lease, why) = match given.lease_ttl {
        Some(lease) => (lease, "--lease-ttl"),
        None if given.quick && configured > QUICK_LEASE => (QUICK_LEASE, "--quick"),
        None => (configured, ""),
    };
    if lease != configured {
        notes.push(format!("worker.lease_ttl is {lease} instead of {configured}, because of {why}"));
    }
    lease
}

/// The user's settings as a file has them, with what experiments need laid over them.
fn settings(config: &Config, (lease, heartbeat): (Span, Span), (slots, attempts): (usize, u32)) -> Value {
    let mut whole = Map::new();
    for setting in &config.settings {
        let Some((section, key)) = setting.key.split_once('.') else { continue };
        let used = ["effect_store", "executor", "invocation_ledger", "limits", "versions", "wakeup_queue", "worker"];
        if used.contains(&section) && !setting.value.is_null() {
            let section = whole.entry(section).or_insert_with(|| json!({}));
            section[key] = setting.value.clone();
        }
    }
    let mut whole = Value::Object(whole);
    whole["server"] = json!({ "listen": "127.0.0.1:0" });
    whole["tools"] = json!({ "http": { "allow": ["127.0.0.0/8"] } });
    whole["worker"]["id"] = json!("auto");
    whole["worker"]["lease_ttl"] = json!(lease.to_string());
    whole["worker"]["heartbeat"] = json!(heartbeat.to_string());
    whole["worker"]["slots"] = json!(slots);
    whole["worker"]["max_attempts"] = json!(attempts);
    whole
}
