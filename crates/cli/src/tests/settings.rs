//! What the configuration says, where it has its effect.

use aetheris_core::id::TenantId;
use aetheris_core::time::Span;
use aetheris_runtime::Models as _;
use aetheris_server::Hosts;
use aetheris_store::NewAgent;

use crate::config::{Environment, from_text};
use crate::role::Role;
use crate::stored_agents::unusable;
use crate::wiring::{Wired, agent_check};

fn wired(text: &str) -> Wired {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let text = format!("jobstore: {{ type: memory }}\n{text}");
    let config = from_text(Some((std::path::Path::new("a.yaml"), &text)), &Environment::of(&[]), &[]).unwrap();
    Wired::new(config, &Environment::of(&[]), Role::Dev, false).unwrap()
}

#[tokio::test]
async fn each_key_reaches_the_part_that_it_is_for() {
    let by_default = wired("");
    let settings = &by_default.rt.settings;
    assert_eq!((settings.max_attempts, settings.step_timeout), (3, Span::from_secs(300)));
    assert_eq!(settings.max_parallel_steps, 0);
    assert_eq!(settings.execution_version, aetheris_runtime::Settings::default().execution_version);
    assert!(by_default.worker_id().as_str().ends_with(&format!("-{}", by_default.instance)));
    let chosen = wired(
        "worker: { id: w-7, max_attempts: 5 }\nexecutor: { step_timeout: 11s, max_parallel_steps: 7 }\nversions: { execution: build-9 }\n",
    );
    let settings = &chosen.rt.settings;
    assert_eq!((settings.max_attempts, settings.step_timeout), (5, Span::from_secs(11)));
    assert_eq!(settings.max_parallel_steps, 7);
    assert_eq!((settings.execution_version.as_str(), chosen.worker_id().as_str()), ("build-9", "w-7"));
    assert!(chosen.models.knows("local/x").is_err());
    assert!(wired("models: { local: { base_url: http://127.0.0.1:9/v1 } }\n").models.knows("local/x").is_ok());
    for (keys, dialect, most) in [
        ("", "ChatCompletions", "None"),
        (", dialect: openai, max_concurrent: 3", "ChatCompletions", "Some(3)"),
        (", dialect: anthropic", "Messages", "None"),
        (", requests_per_minute: 60, tokens_per_minute: 90000, stream: false", "ChatCompletions", "None"),
    ] {
        let models = wired(&format!("models: {{ local: {{ base_url: http://127.0.0.1:9/v1{keys} }} }}\n")).models;
        let told = format!("{models:?}");
        let both = told.contains(&format!("dialect: {dialect}")) && told.contains(&format!("max_concurrent: {most}"));
        assert!(both, "{told}");
        let limited = keys.contains("stream");
        let (requests, tokens) = if limited { ("Some(60)", "Some(90000)") } else { ("None", "None") };
        let rate = format!("rate: RateLimits {{ requests_per_minute: {requests}, tokens_per_minute: {tokens} }}");
        assert!(told.contains(&rate) && told.contains(&format!("stream: {}", !limited)), "{told}");
    }
}

/// An unknown model is found before a job asks it, wherever a file names it.
#[test]
fn a_model_that_is_not_there_is_found_wherever_an_agent_names_it() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let config = from_text(None, &Environment::of(&[]), &[]).unwrap();
    let check = agent_check(&config, &Environment::of(&[]), Role::Dev).unwrap();
    let plan = |model: &str| {
        format!("{{ nodes: [ {{ id: a, kind: map, over: [1], do: {{ kind: llm, prompt: p, model: {model} }} }} ] }}")
    };
    let planned = "planner: llm\nplanning: { prompt: p, model: scripted/echo }\n";
    for (file, pointer) in [
        (format!("plan: {}\n", plan("no/one")), "/plan/nodes/0/do/model"),
        (
            format!(
                "planner: rules\nrules: [ {{ when: 'true', plan: {} }}, {{ plan: {} }} ]\n",
                plan("scripted/echo"),
                plan("no/one")
            ),
            "/rules/1/plan/nodes/0/do/model",
        ),
        (planned.replace("scripted/echo", "no/one"), "/planning/model"),
        (format!("model: no/one\n{planned}"), "/model"),
    ] {
        let agent = aetheris_agentfile::parse(&format!("agent: a\n{file}")).unwrap();
        let found: Vec<String> =
            check(&agent).into_iter().flat_map(|problem| problem.pointers.into_iter().take(1)).collect();
        assert_eq!(found, [pointer], "{file}");
    }
}

/// Whoever is reached by everybody is asked by any name.
#[tokio::test]
async fn names_of_hosts_are_asked_for_on_loopback_alone() {
    let own = Hosts::Own(vec!["box.example".to_owned()]);
    for (listen, hosts) in [
        ("127.0.0.1:0", own.clone()),
        ("127.0.0.2:0", own.clone()),
        ("[::1]:0", own.clone()),
        ("[::ffff:127.0.0.1]:0", own),
        ("0.0.0.0:0", Hosts::Any),
        ("[::]:0", Hosts::Any),
        ("192.0.2.1:0", Hosts::Any),
    ] {
        let wired = wired(&format!("server: {{ listen: \"{listen}\", hosts: [box.example] }}\n"));
        assert_eq!(wired.app_state().hosts, hosts, "{listen}");
    }
}

/// A worker beside `dev`, or a restart without the configuration: what the one accepts the other fails.
#[tokio::test]
async fn agents_that_a_process_cannot_run_are_told_when_it_starts() {
    let file = "agent: a\nversion: \"1\"\nplanner: static\nplan:\n  nodes:\n    - { id: n, kind: llm, model: m/x, prompt: hello }\n";
    let put = async |wired: &Wired| {
        let agent = std::sync::Arc::new(aetheris_agentfile::parse(file).unwrap());
        let new = NewAgent { agent, source: file.to_owned(), tenant: TenantId::default() };
        wired.rt.store.put_agent(new).await.unwrap();
        let found = unusable(wired).await.unwrap();
        assert!(found.all);
        found.unusable
    };
    assert_eq!(put(&wired("models: { m: { base_url: http://127.0.0.1:9/v1 } }\n")).await, []);
    let told = put(&wired("")).await;
    assert!(matches!(&told[..], [(agent, why)] if agent == "a" && why.contains("no model provider `m`")), "{told:?}");
}

/// Whoever is out of reach answers to its own names only.
#[test]
fn loopback_is_known_in_every_form() {
    for (address, loopback) in [
        ("127.0.0.1:80", true),
        ("127.9.9.9:80", true),
        ("[::1]:80", true),
        ("[::ffff:127.0.0.1]:80", true),
        ("0.0.0.0:80", false),
        ("[::]:80", false),
        ("10.0.0.1:80", false),
        ("[::ffff:10.0.0.1]:80", false),
    ] {
        assert_eq!(crate::wiring::is_loopback(address.parse().unwrap()), loopback, "{address}");
    }
}
