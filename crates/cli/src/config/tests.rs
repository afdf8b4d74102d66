//! Every kind of mistake with its place, and which layer wins.

use aetheris_harness::Folder;
use std::path::Path;

use super::*;
use serde_json::json;

fn read(text: &str) -> Result<Config, Vec<Mistake>> {
    read_with(text, &[])
}

fn read_with(text: &str, vars: &[(&str, &str)]) -> Result<Config, Vec<Mistake>> {
    from_text(Some((Path::new("aetheris.yaml"), text)), &Environment::of(vars), &[])
}

fn mistakes(text: &str) -> Vec<String> {
    read(text).unwrap_err().iter().map(Mistake::to_string).collect()
}

#[track_caller]
fn one(text: &str) -> String {
    let mut found = mistakes(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

#[test]
fn an_agent_file_is_told_from_a_configuration() {
    let text = "agent: a\ntools: { x.y: { kind: http } }\nplan: { nodes: [] }\n";
    assert_eq!(
        one(text),
        "aetheris.yaml:1: this is an agent file, not a configuration: start it with `aetheris dev --agent FILE`"
    );
}

#[test]
fn the_defaults_are_a_configuration() {
    let config = from_text(None, &Environment::default(), &[]).unwrap();
    assert_eq!(config.jobstore.kind, StoreKind::Sqlite);
    assert_eq!(config.jobstore.sqlite.path, Path::new("./data/aetheris.db"));
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.worker.slots, 16);
    assert_eq!(config.worker.lease_ttl, Span::from_secs(30));
    assert_eq!(config.worker.chosen_id(), None);
    assert_eq!(config.executor.step_timeout, Span::from_secs(300));
    assert_eq!(config.limits.payload, 1024 * 1024);
    assert_eq!(config.tools.http.allow, Vec::<String>::new());
    assert_eq!(config.versions.execution, None);
    assert!(config.models.is_empty());
}

#[test]
fn a_file_may_write_hyphens_or_underscores() {
    let config =
        read("worker:\n  lease-ttl: 20s\n  poll_interval: 500ms\n  heartbeat: 5s\nlimits: { payload: 1024KiB }\n");
    let config = config.unwrap();
    assert_eq!(config.worker.lease_ttl, Span::from_secs(20));
    assert_eq!(config.worker.poll_interval, Span::from_millis(500));
    assert_eq!(config.limits.payload, 1_048_576);
}

#[test]
fn the_interface_page_is_accepted() {
    let text = r#"
jobstore: { type: sqlite, sqlite: { path: ./x/aetheris.db } }
effect_store: { enabled: true, type: same }
invocation_ledger: { enabled: true, type: sqlite }
wakeup_queue: { type: memory }
server: { listen: "127.0.0.1:0" }
worker: { id: auto, slots: 16, lease_ttl: 30s, heartbeat: 10s, poll_interval: 2s, drain_timeout: 20s, max_attempts: 3 }
executor: { step_timeout: 5m, max_parallel_steps: 0 }
tools: { http: { allow: [127.0.0.0/8] }, env: [PAYMENTS_TOKEN] }
models: { local-one: { base_url: "http://127.0.0.1:9/v1", api_key_env: LOCAL_KEY, timeout: 30s } }
limits: { payload: 1MiB }
versions: { execution: "7", mismatch: warn }
"#;
    let config = read(text).unwrap();
    let model = &config.models["local-one"];
    assert_eq!(model.timeout, Span::from_secs(30));
    assert_eq!(model.api_key(), Some(Secret::Env("LOCAL_KEY".to_owned())));
    assert_eq!(config.tools.env, ["PAYMENTS_TOKEN"]);
    assert_eq!(config.versions.execution.as_deref(), Some("7"));
}

#[test]
fn unknown_keys_are_rejected_with_a_suggestion_and_their_line() {
    assert_eq!(
        one("worker:\n  slots: 4\n  lease_tl: 30s\n"),
        "aetheris.yaml:3: worker.lease_tl: unknown key; did you mean `lease_ttl`?"
    );
    assert_eq!(
        one("sever: { listen: \"127.0.0.1:1\" }\n"),
        "aetheris.yaml:1: sever: unknown key; did you mean `server`?"
    );
    assert_eq!(one("limits:\n  banana: 1\n"), "aetheris.yaml:2: limits.banana: unknown key; known here: payload");
    assert_eq!(
        one("models:\n  a:\n    base_url: http://x\n    api_key: sk-1\n"),
        "aetheris.yaml:4: models.a.api_key: unknown key; did you mean `api_key_env`?"
    );
}

#[test]
fn what_this_build_lacks_is_refused_by_name() {
    let expected = [
        ("jobstore: { type: postgres }", "jobstore.type: `postgres` is not supported yet by this build"),
        ("wakeup_queue: { type: redis }", "wakeup_queue.type: `redis` is not supported yet by this build"),
        ("executor:\n  claim: { batch-size: 10 }", "executor.claim.batch_size: task ownership, which this key"),
        ("executor: { max_parallel_steps: 257 }", "executor.max_parallel_steps"),
        ("versions: { mismatch: strict }", "versions.mismatch: `strict` is not supported yet by this build"),
        ("effect_store: { enabled: false }", "effect_store.enabled: `false` is not supported yet by this build"),
        ("effect_store: { type: postgres }", "effect_store.type: `postgres` is not supported yet by this build"),
        ("effect_store: { type: memory }", "effect_store.type: `memory` beside a jobstore of type `sqlite` is not"),
    ];
    for (text, message) in expected {
        let found = one(text);
        assert!(found.contains(message), "{found}");
    }
    let secret = one("jobstore:\n  postgres: { dsn: \"postgres://user:hunter2@host/db\" }\n");
    assert!(secret.starts_with("aetheris.yaml:2: jobstore.postgres.dsn: PostgreSQL is not"), "{secret}");
    assert!(!secret.contains("hunter2"), "{secret}");
}

#[test]
fn values_of_the_wrong_kind_say_what_is_expected() {
    let expected = [
        ("worker: { slots: many }", "worker.slots: expected a whole number from 1 to 4096, found \"many\""),
        ("worker: { slots: 0 }", "worker.slots: expected a whole number from 1 to 4096, found 0"),
        ("worker: { lease_ttl: 30 }", "worker.lease_ttl: 30 has no unit: write 30s or 30ms"),
        ("worker: { lease_ttl: soon }", "worker.lease_ttl: `soon` is not a duration"),
        ("worker: { poll_interval: 1us }", "worker.poll_interval: 1us is out of bounds: expected 10ms to 1m"),
        ("limits: { payload: 2MiB }", "limits.payload: 2MiB is not supported yet by this build: only 1MiB is"),
        ("server: { listen: 8080 }", "server.listen: `8080` is not an address: expected IP:PORT"),
        ("server: 8080", "server: expected a section with keys, found a number"),
        ("worker: { slots: { a: 1 } }", "worker.slots: expected a value, found a section"),
        ("worker:", "worker: has no value: write one, or remove the key"),
        ("jobstore: { type: sqlit }", "jobstore.type: `sqlit` is not one of sqlite, memory; did you mean `sqlite`?"),
        ("tools: { env: [\"A-B\"] }", "tools.env: expected the name of an environment variable"),
        ("log: { format: xml }", "log.format: `xml` is not one of text, json"),
        ("- a\n- b", "expected keys and values"),
        ("worker.slots: 4", "`worker.slots` has a dot: write sections below each other"),
        ("models: { \"a.b\": { base_url: http://x } }", "models: `a.b` has a dot"),
        ("models: { a: {} }", "models.a: has nothing in it"),
        ("models: { A: { base_url: http://x } }", "models.A: the name of a provider has lower-case letters"),
    ];
    for (text, message) in expected {
        let found = one(text);
        assert!(found.starts_with("aetheris.yaml:1: ") && found.contains(message), "{found}");
    }
}

#[test]
fn keys_are_checked_against_each_other() {
    assert_eq!(
        one("worker:\n  lease_ttl: 30s\n  heartbeat: 15s\n"),
        "aetheris.yaml:3: worker.heartbeat: 15s (aetheris.yaml:3) is too slow for a lease_ttl of 30s (aetheris.yaml:2): \
         it must be less than half, so that one lost heartbeat costs no lease"
    );
    assert!(
        one("worker:\n  lease_ttl: 5s\n").starts_with("aetheris.yaml:2: worker.heartbeat: 10s (default) is too slow")
    );
    let short = read_with("worker: { heartbeat: 6s }", &[("AETHERIS__WORKER__LEASE_TTL", "10s")]).unwrap_err();
    let told = "6s (aetheris.yaml:1) is too slow for a lease_ttl of 10s (AETHERIS__WORKER__LEASE_TTL)";
    assert!(short[0].to_string().contains(told), "{short:?}");
    assert!(
        one("worker:\n  lease-ttl: 40s\n  lease_ttl: 30s\n")
            .contains(":3: worker.lease_ttl: is set twice: also in line 2")
    );
    assert!(one("models: { a: { timeout: 1s } }").starts_with("aetheris.yaml:1: models.a: has no base_url"));
    assert!(one("models: { scripted: { base_url: http://x } }").contains("models.scripted: is built in"));
    let both = "models: { a: { base_url: http://x, api_key_env: A, api_key_file: b } }";
    assert!(one(both).contains("models.a: has both api_key_env and api_key_file"));
}

#[test]
fn all_mistakes_come_at_once() {
    let found = mistakes("worker:\n  slots: 0\n  lease: 1s\nserver:\n  listen: x\n");
    assert_eq!(found.len(), 3, "{found:#?}");
}

#[test]
fn malformed_files_name_a_line() {
    let found = one("worker:\n  slots: 1\n  slots: 2\n");
    assert!(found.starts_with("aetheris.yaml:3: "), "{found}");
}

#[test]
fn the_environment_is_laid_over_the_file_and_flags_over_both() {
    let vars = [("AETHERIS__WORKER__SLOTS", "8"), ("AETHERIS__TOOLS__ENV", "A,B"), ("AETHERIS_SERVER", "x")];
    let flags = [Override { key: "server.listen", value: json!("127.0.0.1:9"), flag: "--listen" }];
    let text = "worker: { slots: 4, heartbeat: 1s }\nserver: { listen: \"127.0.0.1:7\" }\n";
    let path = Path::new("aetheris.yaml");
    let config = from_text(Some((path, text)), &Environment::of(&vars), &flags).unwrap();
    assert_eq!(config.worker.slots, 8);
    assert_eq!(config.tools.env, ["A", "B"]);
    assert_eq!(config.server.listen.port(), 9);
    let origin = |key: &str| config.settings.iter().find(|s| s.key == key).unwrap().origin.to_string();
    assert_eq!(origin("worker.slots"), "AETHERIS__WORKER__SLOTS");
    assert_eq!(origin("worker.heartbeat"), "aetheris.yaml:1");
    assert_eq!(origin("server.listen"), "--listen");
    assert_eq!(origin("worker.lease_ttl"), "default");
}

#[test]
fn mistakes_in_the_environment_name_the_variable() {
    let found = |name: &str, text: &str| read_with("", &[(name, text)]).unwrap_err().remove(0).to_string();
    assert_eq!(
        found("AETHERIS__WORKER__SLOT", "1"),
        "AETHERIS__WORKER__SLOT: worker.slot: unknown key; did you mean `slots`?"
    );
    assert!(found("AETHERIS__WORKER", "1").contains("is a section"));
    assert!(found("AETHERIS__JOBSTORE__TYPE", "postgres").contains("not supported yet by this build"));
}

#[test]
fn secrets_are_read_where_they_are_used() {
    let env = Environment::of(&[("KEY", "s3cret")]);
    assert_eq!(env.secret(&Secret::Env("KEY".to_owned())), Ok("s3cret".to_owned()));
    assert!(env.secret(&Secret::Env("OTHER".to_owned())).unwrap_err().contains("OTHER is not set"));
    let folder = Folder::new("secret");
    let path = folder.join("secret");
    let file = || env.secret(&Secret::File(path.clone()));
    assert!(file().unwrap_err().contains("cannot be read"));
    for (text, read) in [("s3cret", Some("s3cret")), (" s3 cret\n", Some("s3 cret")), ("", None), (" \n", None)] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(file().ok().as_deref(), read, "{text:?}");
    }
    assert!(file().unwrap_err().ends_with("is empty: the configuration reads a key from it"));
}

/// Of each key that has bounds both are values, and nothing beyond them is.
#[test]
fn every_bound_is_taken_and_nothing_beyond_it() {
    for (key, good, bad) in [
        ("worker.slots", ["1", "4096"], &["0", "4097"][..]),
        ("worker.max_attempts", ["1", "100"], &["0", "101"]),
        ("worker.lease_ttl", ["1s", "1h"], &["999ms", "3600001ms"]),
        ("worker.heartbeat", ["100ms", "1h"], &["99ms", "3600001ms"]),
        ("worker.poll_interval", ["10ms", "1m"], &["9ms", "60001ms"]),
        ("worker.drain_timeout", ["0s", "1h"], &["3600001ms"]),
        ("executor.step_timeout", ["1ms", "5m"], &["999us"]),
        ("executor.max_parallel_steps", ["0", "256"], &["257"]),
        ("models.a.timeout", ["1ms", "24h"], &["999us", "86400001ms"]),
        ("limits.payload", ["1MiB", "1048576"], &["1048575", "1048577"]),
        ("tools.http.allow", ["10.0.0.0/0", "10.0.0.0/32"], &["10.0.0.0/33", "10.0.0.0/-1"]),
        ("tools.http.allow", ["fd00::/0", "fd00::/128"], &["fd00::/129"]),
    ] {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        let super::keys::Place::Leaf(known) = super::keys::place(&path) else { panic!("{key}") };
        let read = |text: &str| super::value::read(known.kind, &json!(text));
        for good in good {
            assert!(read(good).is_ok(), "{key}: {good}: {:?}", read(good));
        }
        for bad in bad {
            assert!(read(bad).is_err(), "{key}: {bad}: {:?}", read(bad));
        }
    }
    // A heartbeat is less than half of its lease.
    for (beat, good) in [("14999ms", true), ("15s", false), ("15001ms", false)] {
        assert_eq!(read(&format!("worker: {{ heartbeat: {beat} }}")).is_ok(), good, "{beat}");
    }
}

#[test]
fn what_is_not_said_of_a_model_holds_all_the_same() {
    let config = read("models: { a: { base_url: http://x }, b: { base_url: http://y, timeout: 5s, api_key_file: k } }");
    let config = config.unwrap();
    assert_eq!((config.models["a"].timeout, config.models["a"].api_key()), (Span::from_secs(60), None));
    let file = Secret::File("k".into());
    assert_eq!((config.models["b"].timeout, config.models["b"].api_key()), (Span::from_secs(5), Some(file)));
    let timeout = config.settings.iter().find(|setting| setting.key == "models.a.timeout").unwrap();
    assert_eq!((&timeout.value, &timeout.origin), (&json!("60s"), &Origin::Default));
    // All that holds is listed, in the order of the table, and names that were chosen in theirs.
    let listed: Vec<&str> = config.settings.iter().map(|setting| setting.key.as_str()).collect();
    let place = |key: &str| listed.iter().position(|listed| *listed == key).unwrap();
    assert!(place("jobstore.type") < place("worker.slots") && place("models.a.timeout") < place("models.b.base_url"));
    assert!(place("tools.env") < place("models.a.base_url") && place("models.b.timeout") < place("limits.payload"));
}

#[test]
fn colours_are_unwanted_where_somebody_says_so() {
    for (vars, unwanted) in [
        (&[][..], false),
        (&[("NO_COLOR", "1")], true),
        (&[("NO_COLOR", "")], false),
        (&[("TERM", "dumb")], true),
        (&[("TERM", "xterm")], false),
    ] {
        assert_eq!(Environment::of(vars).no_color(), unwanted, "{vars:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let found = load(Some(Path::new("/does/not/exist.yaml")), &Environment::default(), &[]).unwrap_err();
    assert!(found[0].to_string().starts_with("--config: /does/not/exist.yaml cannot be read"));
}

const PAGE: &str = include_str!("../../../../docs/configuration.md");

#[test]
fn the_page_has_every_key_with_its_default() {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: Vec<(String, String)> = rows
        .map(|row| {
            let mut cells = row.split(" | ");
            let mut cell = || cells.next().unwrap_or_default().trim_matches('`').to_owned();
            (cell(), cell())
        })
        .collect();
    let known = |key: &&super::keys::Key| !matches!(key.kind, super::value::Kind::NotYet { .. });
    let default = |key: &super::keys::Key| match key.default {
        None | Some("") => "none".to_owned(),
        Some(value) => value.to_owned(),
    };
    let expected: Vec<(String, String)> =
        super::keys::KEYS.iter().filter(known).map(|key| (key.path.replace('*', "NAME"), default(key))).collect();
    assert_eq!(told, expected);
    for key in super::keys::KEYS.iter().filter(|key| !known(key)) {
        let name = key.path.strip_prefix("executor.").unwrap_or(key.path);
        assert!(PAGE.contains(&format!("`{name}`")), "docs/configuration.md does not name {}", key.path);
    }
}

/// A variable that the page shows is one that somebody types.
#[test]
fn the_pages_variables_are_accepted() {
    let shown: Vec<(&str, &str)> = PAGE
        .split('`')
        .filter_map(|text| text.split_once('='))
        .filter(|(name, _)| name.starts_with("AETHERIS__"))
        .collect();
    assert!(!shown.is_empty());
    for pair in shown {
        let read = from_text(None, &Environment::of(&[pair]), &[]);
        assert!(read.is_ok(), "{pair:?}: {read:?}");
    }
}

#[test]
fn a_name_that_tools_may_use_and_nobody_has_set_is_told() {
    let read = |vars: &[(&str, &str)]| {
        let env = Environment::of(vars);
        let config = from_text(Some((Path::new("a.yaml"), "tools: { env: [A, B, C] }")), &env, &[]).unwrap();
        config.unset_names(&env).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(read(&[("A", "1"), ("B", "")]), ["B", "C"]);
    assert!(read(&[("A", "1"), ("B", "2"), ("C", "3")]).is_empty());
}

#[test]
fn the_pages_example_is_a_configuration_and_names_every_section() {
    let example = PAGE.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let file = std::path::Path::new("aetheris.yaml");
    let config = from_text(Some((file, example)), &Environment::of(&[]), &[]).unwrap();
    let set = |key: &&super::keys::Key| {
        config.settings.iter().any(|setting| setting.key == key.path && setting.origin != Origin::Default)
    };
    let left_out: Vec<&str> = super::keys::KEYS
        .iter()
        .filter(|key| !matches!(key.kind, super::value::Kind::NotYet { .. }) && !key.path.contains('*') && !set(key))
        .map(|key| key.path)
        .collect();
    assert!(left_out.is_empty(), "{left_out:?}");
    assert_eq!(config.models.len(), 3);
}
