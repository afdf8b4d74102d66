//! What tools can reach: names, rebinding, redirects. The forms of addresses are tested beside the guard.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aetheris_adapters::{EnvSource, Lookup, OwnAddresses, Toolbox};
use aetheris_core::plan::{EffectClass, ToolKind};
use aetheris_runtime::ports::{OUT_OF_FILES, Tools};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::peer::{Nobody, Peer, Reply, answer};
use crate::{CLASSES, SHORT, call_of, dev, failure, http, http_call, kind};

/// Answers by a rule, and counts how often it was asked.
struct Names<F>(F, AtomicUsize);

impl<F: Fn(usize, &str) -> Vec<SocketAddr> + Send + Sync> Lookup for Names<F> {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let addresses = self.0(self.1.fetch_add(1, Ordering::SeqCst), &name);
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

fn names(rule: impl Fn(usize, &str) -> Vec<SocketAddr> + Send + Sync + 'static) -> Arc<dyn Lookup> {
    Arc::new(Names(rule, AtomicUsize::new(0)))
}

fn address(text: &str) -> SocketAddr {
    format!("{text}:0").parse().unwrap()
}

#[tokio::test]
async fn loopback_is_reached_only_where_it_is_allowed() {
    let peer = Peer::answering("200 OK", "", "{}").await;
    let port = peer.port();
    let closed = Toolbox::builder().build().unwrap();
    let urls = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.0.0.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://user:password@127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        "file:///etc/hostname".to_owned(),
        "ftp://8.8.8.8/".to_owned(),
    ];
    for url in urls {
        for class in CLASSES {
            let outcome = closed.call(http_call(class, http("GET", url.clone()))).await;
            assert_eq!(kind(&outcome), "not sent, permanent", "{url} {class:?}: {outcome:?}");
            assert_eq!(failure(&outcome).code, "blocked_address", "{url}");
            assert!(!failure(&outcome).message.contains("password@"), "{outcome:?}");
        }
    }
    assert_eq!(peer.connections(), 0);
    let listed = Toolbox::builder().allow_networks(["127.0.0.0/8".parse().unwrap()]).build().unwrap();
    for tools in [dev(), listed] {
        for host in ["127.0.0.1", "127.1", "localhost"] {
            let url = format!("http://{host}:{port}/");
            assert_eq!(kind(&tools.call(http_call(EffectClass::Pure, http("GET", url))).await), "done", "{host}");
        }
    }
}

#[tokio::test]
async fn a_name_is_as_good_as_the_addresses_it_stands_for() {
    let peer = Peer::answering("200 OK", "", "{}").await;
    let url = format!("http://rebind.example:{}/", peer.port());
    // Every answer is judged, whatever the one before it was: nothing looks a name up twice for one call.
    let tools = Toolbox::builder()
        .lookup(names(|_, name| {
            assert_eq!(name, "rebind.example");
            vec![address("127.0.0.1"), address("[::1]"), address("169.254.169.254")]
        }))
        .build()
        .unwrap();
    for class in CLASSES {
        let outcome = tools.call(http_call(class, http("POST", url.clone()))).await;
        assert_eq!(kind(&outcome), "not sent, permanent", "{class:?}");
        assert_eq!(failure(&outcome).code, "blocked_address");
        assert!(!failure(&outcome).message.contains("169.254"), "a message does not map the network");
    }
    assert_eq!(peer.connections(), 0);

    let mixed = names(|_, _| vec![address("10.0.0.1"), address("127.0.0.1"), address("[fd00::1]")]);
    let tools = Toolbox::builder().allow_loopback().lookup(mixed).build().unwrap();
    assert_eq!(kind(&tools.call(http_call(EffectClass::AtMostOnce, http("POST", url.clone()))).await), "done");

    let empty = Toolbox::builder().lookup(names(|_, _| vec![])).build().unwrap();
    let outcome = empty.call(http_call(EffectClass::AtMostOnce, http("POST", url))).await;
    assert_eq!(kind(&outcome), "not sent", "a name without addresses is no refusal: {outcome:?}");
}

/// What the processes of this store listen on.
struct Own(Vec<SocketAddr>);

impl OwnAddresses for Own {
    fn listening(&self) -> io::Result<Vec<SocketAddr>> {
        if self.0.is_empty() { Err(io::Error::other("gone")) } else { Ok(self.0.clone()) }
    }
}

/// A process that has no open file left.
struct OutOfFiles;

impl OwnAddresses for OutOfFiles {
    fn listening(&self) -> io::Result<Vec<SocketAddr>> {
        Err(io::Error::from_raw_os_error(24))
    }
}

#[tokio::test]
async fn that_no_file_is_left_to_find_out_who_listens_is_nobodys_try() {
    let peer = Peer::answering("200 OK", "", "{}").await;
    let tools = Toolbox::builder().allow_loopback().own_addresses(Arc::new(OutOfFiles)).build().unwrap();
    for class in CLASSES {
        let outcome = tools.call(http_call(class, http("POST", peer.url("/")))).await;
        assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("not sent", OUT_OF_FILES), "{class:?}");
    }
    assert_eq!(peer.connections(), 0);
}

#[tokio::test]
async fn no_tool_reaches_a_server_of_its_own_store() {
    let server = Peer::answering("200 OK", "", "{}").await;
    let port = server.port();
    let other = Peer::answering("200 OK", "", "{}").await;
    let location = format!("http://own.example:{port}/api");
    let elsewhere =
        Peer::new(move |_| Reply::Last(answer("302 Found", &format!("location: {location}\r\n"), ""))).await;
    for wildcard in ["127.0.0.1", "0.0.0.0", "[::]"] {
        let own = Own(vec![format!("{wildcard}:{port}").parse().unwrap(), "127.0.0.1:1".parse().unwrap()]);
        let tools = Toolbox::builder()
            .allow_loopback()
            .allow_networks(["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()])
            .lookup(names(|_, _| vec![address("127.0.0.1"), address("[::ffff:127.0.0.1]")]))
            .own_addresses(Arc::new(own))
            .build()
            .unwrap();
        for class in CLASSES {
            for host in ["127.0.0.1", "127.1", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0", "own.example"] {
                let outcome = tools.call(http_call(class, http("POST", format!("http://{host}:{port}/api")))).await;
                assert_eq!(kind(&outcome), "not sent, permanent", "{wildcard} {host} {class:?}: {outcome:?}");
                assert_eq!(failure(&outcome).code, "blocked_address");
                assert!(failure(&outcome).message.contains("no tool may call"), "{outcome:?}");
            }
            let free = format!("http://own.example:{}/", other.port());
            assert_eq!(kind(&tools.call(http_call(class, http("POST", free))).await), "done", "{class:?}");
        }
        for class in [EffectClass::Pure, EffectClass::Idempotent] {
            let outcome = tools.call(http_call(class, http("GET", elsewhere.url("/")))).await;
            assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("refused", "blocked_address"), "{class:?}");
        }
    }
    assert_eq!(server.connections(), 0);
    // An address that names no port has the usual one.
    for (own, url) in [("127.0.0.1:80", "http://127.0.0.1/api"), ("0.0.0.0:443", "https://127.0.0.1/api")] {
        let own = Own(vec![own.parse().unwrap()]);
        let tools = Toolbox::builder().allow_loopback().own_addresses(Arc::new(own)).build().unwrap();
        let outcome = tools.call(http_call(EffectClass::Pure, http("GET", url))).await;
        assert_eq!(
            (kind(&outcome), failure(&outcome).code.as_str()),
            ("not sent, permanent", "blocked_address"),
            "{url}"
        );
    }
    let blind = Toolbox::builder().allow_loopback().own_addresses(Arc::new(Own(vec![]))).build().unwrap();
    let outcome = blind.call(http_call(EffectClass::Pure, http("GET", other.url("/")))).await;
    assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("not sent", "own_addresses_unknown"));
}

#[tokio::test]
async fn what_could_never_be_called_is_known_before() {
    let env = EnvSource::fixed(BTreeMap::from([("KEY".to_owned(), "k".to_owned())]));
    let tools = Toolbox::builder().env(env).build().unwrap();
    let problems = |url: &str, header: &str| {
        let mut tool = http("GET", url);
        tool.headers.insert("X".to_owned(), header.to_owned());
        let call = http_call(EffectClass::Pure, tool);
        tools.unusable(&call.tool_name, &call.tool)
    };
    for (url, header, expected) in [
        ("https://example.com/{{ env.OTHER }}", "{{ env.KEY }}", &["env.OTHER"][..]),
        ("https://example.com/", "{{ env.A }}{{ env.B }}", &["env.A", "env.B"]),
        ("http://10.0.0.1/{{ input.x }}", "", &["private"]),
        ("http://169.254.169.254?x={{ input.x }}", "", &["metadata"]),
        ("http://127.0.0.1:9000/", "{{ env.A }}", &["env.A", "loopback"]),
        ("http://user@example.com/{{ input.x }}", "", &["user name"]),
        // Nothing is known of these.
        ("http://127.0.0.1{{ env.KEY }}", "", &[]),
        ("{{ env.KEY }}/x", "{{ env.KEY }}", &[]),
        ("http://{{ input.host | raw }}/", "", &[]),
        ("http://localhost/", "", &[]),
    ] {
        let found = problems(url, header);
        assert_eq!(found.len(), expected.len(), "{url} {header}: {found:?}");
        assert!(found.iter().zip(expected).all(|(found, expected)| found.why.contains(expected)), "{found:?}");
        assert!(found.iter().all(|found| found.why.starts_with("the tool `shop.send`: ")), "{found:?}");
    }
    let places = |url, header| -> Vec<String> { problems(url, header).into_iter().map(|found| found.place).collect() };
    assert_eq!(places("http://10.0.0.1/{{ env.A }}", "{{ env.B }}{{ env.A }}"), ["/url", "/headers/X", "/url"]);
    let unknown = call_of(EffectClass::Pure, ToolKind::Function("nope".into()), serde_json::json!({}));
    assert!(tools.unusable(&unknown.tool_name, &unknown.tool)[0].why.contains("`nope`"));
}

#[tokio::test]
async fn a_name_that_changes_between_two_calls_is_judged_again() {
    let peer = Peer::new(|_| Reply::Last(answer("200 OK", "connection: close\r\n", "{}"))).await;
    let url = format!("http://rebind.example:{}/", peer.port());
    let rule = |asked: usize, _: &str| vec![address(if asked == 0 { "127.0.0.1" } else { "10.0.0.1" })];
    let tools = Toolbox::builder().allow_loopback().lookup(names(rule)).build().unwrap();
    assert_eq!(kind(&tools.call(http_call(EffectClass::AtMostOnce, http("GET", url.clone()))).await), "done");
    let second = tools.call(http_call(EffectClass::AtMostOnce, http("GET", url))).await;
    assert_eq!(failure(&second).code, "blocked_address");
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn a_redirect_is_judged_like_a_first_address() {
    let inside = Peer::inside().await;
    let port = inside.port();
    let locations = [
        format!("http://127.0.0.2:{port}/"),
        format!("http://127.2:{port}/"),
        format!("http://2130706434:{port}/"),
        format!("http://[::ffff:7f00:2]:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://inside.example:{port}/"),
        format!("//169.254.169.254:{port}/latest/meta-data"),
        format!("http://user:pass@public.example:{port}/"),
        "file:///etc/passwd".to_owned(),
        "gopher://public.example/".to_owned(),
    ];
    // One address of this machine stands for the public ones; the rest of loopback does not.
    let rule = |_: usize, name: &str| vec![address(if name == "public.example" { "127.0.0.1" } else { "127.0.0.2" })];
    let tools =
        Toolbox::builder().allow_networks(["127.0.0.1/32".parse().unwrap()]).lookup(names(rule)).build().unwrap();
    for location in locations {
        let header = format!("location: {location}\r\n");
        let public = Peer::answering("302 Found", &header, "").await;
        for class in [EffectClass::Pure, EffectClass::Idempotent] {
            let url = format!("http://public.example:{}/", public.port());
            let outcome = tools.call(http_call(class, http("GET", url))).await;
            assert_eq!(kind(&outcome), "refused", "{location}: {outcome:?}");
            assert_eq!(failure(&outcome).code, "blocked_address", "{location}");
        }
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_takes_too_long_was_not_sent() {
    struct Silent;
    impl Lookup for Silent {
        fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            Box::pin(std::future::pending())
        }
    }
    let tools = Toolbox::builder().lookup(Arc::new(Silent)).build().unwrap();
    let mut call = http_call(EffectClass::AtMostOnce, http("POST", "http://slow.example/"));
    call.timeout = SHORT;
    let begun = Instant::now();
    let outcome = tools.call(call).await;
    assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("not sent", "connect_timeout"));
    // Well before the call's own end, after which nothing would be known.
    let took = begun.elapsed();
    assert!(took >= SHORT / 4 * 3 && took < SHORT / 8 * 7, "{took:?}");
}

#[tokio::test]
async fn a_redirect_to_a_dead_end_may_be_tried_again() {
    let nobody = Nobody::new();
    let peer = Peer::answering("302 Found", &format!("location: {}\r\n", nobody.url()), "").await;
    let outcome = dev().call(http_call(EffectClass::Idempotent, http("GET", peer.url("/")))).await;
    assert_eq!((kind(&outcome), failure(&outcome).code.as_str()), ("unknown", "connection_refused"));
}

#[tokio::test]
async fn an_address_that_a_model_or_message_made_up_is_judged_as_it_was_rendered() {
    let peer = Peer::answering("200 OK", "", "{}").await;
    let tools = Toolbox::builder().build().unwrap();
    for (url, host, code) in [
        ("http://{{ input.host | raw }}/", format!("127.0.0.1:{}", peer.port()), "blocked_address"),
        ("http://{{ input.host | raw }}/", format!("public.example@127.0.0.1:{}", peer.port()), "blocked_address"),
        ("http://public.example{{ input.host | raw }}/", format!("@127.0.0.1:{}", peer.port()), "blocked_address"),
        ("{{ input.host | raw }}", format!("http://[::ffff:127.0.0.1]:{}/", peer.port()), "blocked_address"),
        ("{{ input.host | raw }}", "file://h/etc/passwd".to_owned(), "blocked_address"),
        ("{{ input.host | raw }}", "file:///etc/passwd".to_owned(), "invalid_url"),
        // A plan of an older build may let a value become the host without saying so.
        ("http://{{ input.host }}/", "public.example".to_owned(), "invalid_url"),
        ("http://{% if input.no %}h{% endif %}/{{ input.host }}/x", "public.example".to_owned(), "invalid_url"),
    ] {
        let kind_of_tool = ToolKind::Http(http("POST", url));
        let call = call_of(EffectClass::AtMostOnce, kind_of_tool, serde_json::json!({ "host": host, "no": false }));
        let outcome = tools.call(call).await;
        assert_eq!(kind(&outcome), "not sent, permanent", "{url} {host}: {outcome:?}");
        assert_eq!(failure(&outcome).code, code, "{url} {host}");
    }
    assert_eq!(peer.connections(), 0);
}

/// Variables are those of a process: the call is made by a child, which is this test once more.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test whose subject is the environment")]
async fn no_proxy_of_the_environment_is_asked() {
    const TARGET: &str = "AETHERIS_TEST_TARGET";
    if let Ok(url) = std::env::var(TARGET) {
        assert_eq!(kind(&dev().call(http_call(EffectClass::AtMostOnce, http("POST", url))).await), "done");
        return;
    }
    let (peer, proxy) = (Peer::answering("200 OK", "", "{}").await, Peer::answering("200 OK", "", "{}").await);
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "reach::no_proxy_of_the_environment_is_asked", "--nocapture"]);
    child.env(TARGET, format!("http://127.0.0.1:{}/", peer.port()));
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        child.env(name, format!("http://127.0.0.1:{}/", proxy.port()));
    }
    child.env_remove("no_proxy").env_remove("NO_PROXY");
    let output = tokio::task::spawn_blocking(move || child.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((peer.connections(), proxy.connections()), (1, 0));
}
