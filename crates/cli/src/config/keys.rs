//! Every key of the configuration, in one table: what it takes and what holds without it.
//!
//! A `*` stands for a name that the user chooses. Keys with underscores may be written with hyphens.

use aetheris_core::limits;
use aetheris_core::time::Span;

use super::value::Kind;

/// One key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    /// Its place, as `worker.lease_ttl`.
    pub(super) path: &'static str,
    /// What it takes.
    pub(super) kind: Kind,
    /// What holds when nobody sets it; nothing where it is unset then.
    pub(super) default: Option<&'static str>,
}

const fn key(path: &'static str, kind: Kind, default: &'static str) -> Key {
    Key { path, kind, default: Some(default) }
}

const fn unset(path: &'static str, kind: Kind) -> Key {
    Key { path, kind, default: None }
}

const fn not_yet(path: &'static str, what: &'static str) -> Key {
    Key { path, kind: Kind::NotYet { what }, default: None }
}

const fn millis(min: u64, max: u64) -> Kind {
    Kind::Span { min: Span::from_millis(min), max: Span::from_millis(max) }
}

const TASKS: &str = "task ownership, which this key governs,";
const POSTGRES: &str = "PostgreSQL";
const REDIS: &str = "Redis";
const HOUR: u64 = 3_600_000;
/// The bound is a constant of the core in this build: another one would be accepted and not kept.
const PAYLOAD: u64 = limits::PAYLOAD_BYTES_MAX as u64;

/// The table, in the order in which `config show` prints it.
pub(super) const KEYS: &[Key] = &[
    key("jobstore.type", Kind::Choice { known: &["sqlite", "memory"], not_yet: &["postgres"] }, "sqlite"),
    key("jobstore.sqlite.path", Kind::Path, "./data/aetheris.db"),
    not_yet("jobstore.postgres.dsn", POSTGRES),
    key("effect_store.enabled", Kind::Switch { only_true: true }, "true"),
    key("effect_store.type", Kind::Choice { known: &["same", "sqlite", "memory"], not_yet: &["postgres"] }, "same"),
    not_yet("effect_store.postgres.dsn", POSTGRES),
    not_yet("effect_store.sqlite.path", "an effect store of its own"),
    key("invocation_ledger.enabled", Kind::Switch { only_true: true }, "true"),
    key(
        "invocation_ledger.type",
        Kind::Choice { known: &["same", "sqlite", "memory"], not_yet: &["postgres"] },
        "same",
    ),
    not_yet("invocation_ledger.postgres.dsn", POSTGRES),
    key("wakeup_queue.type", Kind::Choice { known: &["memory"], not_yet: &["postgres", "redis"] }, "memory"),
    not_yet("wakeup_queue.redis.addr", REDIS),
    key("server.listen", Kind::Listen, "127.0.0.1:8080"),
    key("server.hosts", Kind::HostNames, ""),
    key("worker.id", Kind::Text, "auto"),
    key("worker.slots", Kind::Count { min: 1, max: limits::WORKER_SLOTS_MAX as u64 }, "16"),
    key("worker.lease_ttl", millis(1_000, HOUR), "30s"),
    key("worker.heartbeat", millis(100, HOUR), "10s"),
    key("worker.poll_interval", millis(10, 60_000), "2s"),
    key("worker.drain_timeout", millis(0, HOUR), "20s"),
    key("worker.max_attempts", Kind::Count { min: 1, max: 100 }, "3"),
    key("executor.step_timeout", Kind::Span { min: Span::from_millis(1), max: limits::SPAN_MAX }, "5m"),
    key("executor.max_parallel_steps", Kind::Count { min: 0, max: limits::PARALLEL_STEPS_MAX as u64 }, "0"),
    not_yet("executor.poll_interval_ms", TASKS),
    not_yet("executor.instance_id", TASKS),
    not_yet("executor.claim.batch_size", TASKS),
    not_yet("executor.claim.max_per_tick", TASKS),
    not_yet("executor.claim.ready_first", TASKS),
    not_yet("executor.claim.refining_max_ratio", TASKS),
    not_yet("executor.claim.refining_min_per_tick", TASKS),
    not_yet("executor.claim.lease_seconds", TASKS),
    not_yet("executor.claim.heartbeat_seconds", TASKS),
    not_yet("executor.execution.timeout_ms", TASKS),
    not_yet("executor.execution.timeout_retry_max", TASKS),
    not_yet("executor.worker.core_size", TASKS),
    not_yet("executor.worker.max_size", TASKS),
    not_yet("executor.worker.queue_capacity", TASKS),
    not_yet("executor.worker.rejection_policy", TASKS),
    not_yet("executor.observability.audit_log_enabled", TASKS),
    not_yet("executor.observability.audit_success_log_enabled", TASKS),
    key("tools.http.allow", Kind::Networks, ""),
    key("tools.env", Kind::EnvNames, ""),
    unset("models.*.base_url", Kind::Url),
    unset("models.*.api_key_env", Kind::EnvName),
    unset("models.*.api_key_file", Kind::Path),
    unset("models.*.dialect", Kind::Choice { known: &["openai", "anthropic"], not_yet: &[] }),
    unset("models.*.max_concurrent", Kind::Count { min: 1, max: 10_000 }),
    unset("models.*.requests_per_minute", Kind::Count { min: 1, max: 1_000_000 }),
    unset("models.*.stream", Kind::Switch { only_true: false }),
    unset("models.*.timeout", millis(1, 24 * HOUR)),
    unset("models.*.tokens_per_minute", Kind::Count { min: 1, max: 4_000_000_000 }),
    key("limits.payload", Kind::Size { min: PAYLOAD, max: PAYLOAD }, "1MiB"),
    unset("versions.execution", Kind::Text),
    key("versions.mismatch", Kind::Choice { known: &["warn"], not_yet: &["strict", "migrate"] }, "warn"),
    key("log.format", Kind::Choice { known: &["text", "json"], not_yet: &[] }, "text"),
    unset("log.filter", Kind::LogFilter),
];

/// What stands at a place of the format.
pub(super) enum Place {
    /// A key that takes a value.
    Leaf(&'static Key),
    /// A section with keys below.
    Section,
    /// Nothing.
    Unknown,
}

/// What stands at `path`.
pub(super) fn place(path: &[String]) -> Place {
    for key in KEYS {
        let mut parts = key.path.split('.');
        let matches = path.iter().all(|given| parts.next().is_some_and(|part| part == "*" || part == given));
        if matches {
            return if parts.next().is_none() { Place::Leaf(key) } else { Place::Section };
        }
    }
    Place::Unknown
}

/// The names that exist directly below `section`; none where the user chooses them.
pub(super) fn names_below(section: &[String]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for key in KEYS {
        let mut parts = key.path.split('.');
        let inside = section.iter().all(|given| parts.next().is_some_and(|part| part == "*" || part == given));
        if let Some(name) = parts.next()
            && inside
            && name != "*"
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::value;
    use super::*;
    use serde_json::Value;

    #[test]
    fn defaults_are_values_that_their_keys_take() {
        for key in KEYS {
            if let Some(default) = key.default {
                assert!(value::read(key.kind, &Value::from(default)).is_ok(), "{}", key.path);
            }
        }
    }

    #[test]
    fn places() {
        let path = |text: &str| -> Vec<String> { text.split('.').map(str::to_owned).collect() };
        assert!(matches!(place(&path("worker")), Place::Section));
        assert!(matches!(place(&path("worker.slots")), Place::Leaf(key) if key.path == "worker.slots"));
        assert!(matches!(place(&path("models.local.timeout")), Place::Leaf(_)));
        assert!(matches!(place(&path("worker.slots.more")), Place::Unknown));
        assert!(matches!(place(&path("workers")), Place::Unknown));
        assert_eq!(names_below(&path("limits")), ["payload"]);
        assert!(names_below(&[]).contains(&"jobstore"));
    }
}
