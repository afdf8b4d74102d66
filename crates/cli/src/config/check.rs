//! What only several keys together show.

use std::collections::BTreeSet;

use aetheris_core::time::Span;

use super::layers::{Layers, Origin, Setting};

/// Time an answer of a model may take when nobody says otherwise.
const MODEL_TIMEOUT: &str = "60s";

/// All checks; mistakes go to the layers.
pub(super) fn all(layers: &mut Layers) {
    heartbeat(layers);
    for part in ["effect_store", "invocation_ledger"] {
        same_store(layers, part);
    }
    models(layers);
}

fn heartbeat(layers: &mut Layers) {
    let span = |setting: Option<&Setting>| setting.and_then(|s| s.value.as_str()?.parse::<Span>().ok());
    let (lease, beat) = (span(layers.get("worker.lease_ttl")), span(layers.get("worker.heartbeat")));
    let (Some(lease), Some(beat)) = (lease, beat) else { return };
    if beat.micros() * 2 < lease.micros() {
        return;
    }
    let origin = origin(layers, &["worker.heartbeat", "worker.lease_ttl"]);
    // Both, as it may be the other one that is meant to change.
    let from = |key: &str| layers.get(key).map(|setting| setting.origin.to_string()).unwrap_or_default();
    let message = format!(
        "{beat} ({}) is too slow for a lease_ttl of {lease} ({}): it must be less than half, so that one lost \
         heartbeat costs no lease",
        from("worker.heartbeat"),
        from("worker.lease_ttl")
    );
    layers.wrong(&origin, "worker.heartbeat", message);
}

/// The place of the first key that someone has set.
fn origin(layers: &Layers, keys: &[&str]) -> Origin {
    let set = |key: &&str| {
        let wrong = || layers.mistakes.iter().find(|mistake| mistake.key == *key).map(|mistake| mistake.origin.clone());
        layers.get(key).map(|setting| setting.origin.clone()).or_else(wrong)
    };
    keys.iter().filter_map(set).find(|origin| *origin != Origin::Default).unwrap_or(Origin::Default)
}

fn same_store(layers: &mut Layers, part: &str) {
    let text = |key: &str| layers.get(key).and_then(|setting| setting.value.as_str()).map(str::to_owned);
    let key = format!("{part}.type");
    let (Some(kind), Some(store)) = (text(&key), text("jobstore.type")) else { return };
    if kind != "same" && kind != store {
        let origin = origin(layers, &[&key]);
        let message =
            format!("`{kind}` beside a jobstore of type `{store}` is not supported yet by this build: write `same`");
        layers.wrong(&origin, &key, message);
    }
}

fn models(layers: &mut Layers) {
    let names: BTreeSet<String> = layers.names_below("models.").into_iter().collect();
    for name in names {
        let key = |leaf: &str| format!("models.{name}.{leaf}");
        let section = format!("models.{name}");
        let [url, env, file, timeout] = ["base_url", "api_key_env", "api_key_file", "timeout"].map(key);
        let [dialect, most, stream] = ["dialect", "max_concurrent", "stream"].map(key);
        let [requests, tokens] = ["requests_per_minute", "tokens_per_minute"].map(key);
        let place = origin(layers, &[&env, &file, &dialect, &most, &requests, &stream, &timeout, &tokens, &url]);
        if name == "scripted" {
            layers.wrong(&place, &section, "is built in and cannot be configured: choose another name");
        }
        if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_')) {
            layers.wrong(&place, &section, "the name of a provider has lower-case letters, digits, - and _");
        }
        if layers.get(&url).is_none() && !layers.mistakes.iter().any(|mistake| mistake.key == url) {
            layers.wrong(&place, &section, "has no base_url: say where the provider is, as https://host/v1");
        }
        if layers.get(&env).is_some() && layers.get(&file).is_some() {
            layers.wrong(&place, &section, "has both api_key_env and api_key_file: keep one");
        }
        layers.fill(&timeout, MODEL_TIMEOUT);
    }
}
