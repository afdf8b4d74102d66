//! What the configuration says, where it has its effect.

use aetheris_core::time::Span;
use aetheris_runtime::Models as _;
use aetheris_server::Hosts;

use crate::config::{Environment, from_text};
use crate::role::Role;
use crate::wiring::Wired;

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
    assert_eq!(settings.execution_version, aetheris_runtime::Settings::default().execution_version);
    assert!(by_default.worker_id().as_str().ends_with(&format!("-{}", by_default.instance)));
    let chosen = wired(
        "worker: { id: w-7, max_attempts: 5 }\nexecutor: { step_timeout: 11s }\nversions: { execution: build-9 }\n",
    );
    let settings = &chosen.rt.settings;
    assert_eq!((settings.max_attempts, settings.step_timeout), (5, Span::from_secs(11)));
    assert_eq!((settings.execution_version.as_str(), chosen.worker_id().as_str()), ("build-9", "w-7"));
    assert!(chosen.models.knows("local/x").is_err());
    assert!(wired("models: { local: { base_url: http://127.0.0.1:9/v1 } }\n").models.knows("local/x").is_ok());
}

/// Whoever is reached by everybody is asked by any name.
#[tokio::test]
async fn names_of_hosts_are_asked_for_on_loopback_alone() {
    let own = Hosts::Own(vec!["box.example".to_owned()]);
    for (listen, hosts) in [
        ("127.0.0.1:0", own.clone()),
        ("127.0.0.2:0", own.clone()),
        ("[::1]:0", own),
        ("0.0.0.0:0", Hosts::Any),
        ("[::]:0", Hosts::Any),
        ("192.0.2.1:0", Hosts::Any),
    ] {
        let wired = wired(&format!("server: {{ listen: \"{listen}\", hosts: [box.example] }}\n"));
        assert_eq!(wired.app_state().hosts, hosts, "{listen}");
    }
}
