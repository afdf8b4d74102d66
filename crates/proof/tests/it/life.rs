//! How a server process lives and ends: no part of it is missed in silence, and its log is in nobody's way.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use aetheris_harness::Folder;
use aetheris_proof::drive::client::Client;
use reqwest::Method;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How long a process may take for what it is to do.
const PATIENCE: Duration = Duration::from_secs(60);
const CONFIG: &str =
    "worker: { lease_ttl: 1500ms, heartbeat: 100ms, poll_interval: 100ms }\nlog: { filter: trace, format: FORMAT }\n";
const AGENT: &str = "agent: a\nplan:\n  nodes:\n    - { id: n, kind: transform, output: 1 }\n    - { id: s, kind: sleep, duration: 50ms, needs: [n] }\n";

/// One `dev` that was started.
struct Dev {
    child: Child,
    /// Its first line; empty if it ended before it had one.
    ready: String,
}

impl Dev {
    /// Starts one and waits for its first line.
    fn start(scratch: &Folder, format: &str, stderr: impl Into<Stdio>, crash: Option<&str>) -> Self {
        let config = scratch.path().join("config.yaml");
        std::fs::write(&config, CONFIG.replace("FORMAT", format)).unwrap();
        let mut command = Command::new(crate::program());
        command.arg("dev").arg("--config").arg(&config).arg("--data").arg(scratch.path().join("data"));
        command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        command.env_remove("AETHERIS_CRASH").env_remove("AETHERIS_BUG").env_remove("AETHERIS_LOG");
        if let Some(crash) = crash {
            command.env("AETHERIS_CRASH", crash);
        }
        let mut child = command.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        Self { child, ready }
    }

    /// Where it listens.
    fn url(&self) -> String {
        let at = self.ready.find("http://").unwrap();
        self.ready[at..].chars().take_while(|c| !c.is_whitespace() && *c != '"').collect()
    }

    fn client(&self) -> Client {
        Client::new(watch::channel(self.url()).1).unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end, and asks it something meanwhile: whoever reads is reached by questions only.
    async fn ended(mut self) -> ExitStatus {
        let until = tokio::time::Instant::now() + PATIENCE;
        let address = self.ready.contains("http://").then(|| self.url().replace("http://", ""));
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(tokio::time::Instant::now() < until, "it still runs after {PATIENCE:?}");
            if let Some(address) = &address {
                let _whatever_it_says = ask(address).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Asks whether it is ready; it may be dying.
async fn ask(address: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").await?;
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

/// Sends messages, and waits for the end of each job.
async fn play(client: &Client, times: usize) {
    client.put("a", AGENT).await.unwrap();
    for _ in 0..times {
        let path = "/api/agents/a/message?wait=30s";
        let (status, job) = client.ask(&Method::POST, path, Some("{\"message\":1}"), None).await.unwrap();
        assert!(status.is_success() && job["status"] == "completed", "{status}: {job}");
    }
}

/// A file for the log.
fn log(scratch: &Folder) -> (PathBuf, File) {
    let path = scratch.path().join("log");
    let file = File::create(&path).unwrap();
    (path, file)
}

/// Each thread and task, killed by a panic at its second round; the server's accept loop is begun once.
#[test]
fn a_process_ends_with_any_of_its_parts_and_says_which() {
    let parts = ["store-write", "store-read", "lease-keeper", "worker", "timers", "leases", "outbox", "server"];
    crate::block_on(async {
        for part in parts {
            let scratch = Folder::new("life");
            let (path, stderr) = log(&scratch);
            let hit = if part == "server" { 1 } else { 2 };
            let dev = Dev::start(&scratch, "text", stderr, Some(&format!("vital.{part}@{hit}@panic")));
            let status = dev.ended().await;
            let told = std::fs::read_to_string(&path).unwrap();
            assert_eq!(status.code(), Some(70), "{part}: {status}\n{told}");
            assert!(told.contains(&format!("`{part}")) && told.contains("stopped unexpectedly"), "{part}:\n{told}");
        }
    });
}

#[test]
fn a_log_that_nobody_reads_costs_nobody_anything() {
    crate::block_on(async {
        // Whoever read it has gone; whoever is to read it sleeps.
        for gone in [true, false] {
            let scratch = Folder::new("life");
            let (reader, writer) = std::io::pipe().unwrap();
            let reader = Some(reader).filter(|_| !gone);
            let dev = Dev::start(&scratch, "text", writer, None);
            let client = dev.client();
            play(&client, 100).await;
            let (status, ready) = client.ask(&Method::GET, "/readyz", None, None).await.unwrap();
            assert_eq!(status.as_u16(), 200, "{ready}");
            dev.signal(Signal::TERM);
            assert_eq!(dev.ended().await.code(), Some(0));
            drop(reader);
        }
    });
}

#[test]
fn with_json_every_line_is_an_object() {
    crate::block_on(async {
        let scratch = Folder::new("life");
        let (path, stderr) = log(&scratch);
        let dev = Dev::start(&scratch, "json", stderr, None);
        let ready: Value = serde_json::from_str(&dev.ready).unwrap();
        assert_eq!(ready["listening"], dev.url());
        play(&dev.client(), 3).await;
        dev.signal(Signal::TERM);
        assert_eq!(dev.ended().await.code(), Some(0));
        let told = std::fs::read_to_string(&path).unwrap();
        let object = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let lines: Vec<Value> = told.lines().map(object).collect();
        let message = |line: &Value| line["message"].as_str().unwrap_or_default().to_owned();
        for said in ["started", "claimed", "the job has ended", "stopping on SIGTERM: no new claims", "stopped"] {
            assert!(lines.iter().any(|line| message(line).starts_with(said)), "`{said}` is missing:\n{told}");
        }
        let steps = lines.iter().filter(|line| line["level"] == "DEBUG" && message(line) == "a step has completed");
        assert!(steps.count() >= 3, "{told}");
    });
}

const WAITS: &str =
    "agent: a\nplan:\n  nodes:\n    - { id: w, kind: wait, wait_type: human, correlation_key: k, park: true }\n";

/// Whoever copies the database of a stopped process takes all of it: its log is copied into it, also where clients were
/// still there.
#[test]
fn a_stop_leaves_one_file_whoever_still_reads() {
    crate::block_on(async {
        for _ in 0..4 {
            let scratch = Folder::new("life");
            let (_, stderr) = log(&scratch);
            let dev = Dev::start(&scratch, "text", stderr, None);
            let client = dev.client();
            client.put("a", WAITS).await.unwrap();
            let mut streams = Vec::new();
            for n in 0..4 {
                let path = "/api/agents/a/message";
                let (status, job) = client.ask(&Method::POST, path, Some("{\"message\":1}"), None).await.unwrap();
                assert!(status.is_success(), "{n}: {job}");
                let mut stream = TcpStream::connect(dev.url().replace("http://", "")).await.unwrap();
                let follow = format!("GET /api/jobs/{}/events/stream", job["job_id"].as_str().unwrap());
                stream.write_all(format!("{follow} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()).await.unwrap();
                assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
                streams.push(stream);
            }
            dev.signal(Signal::TERM);
            assert_eq!(dev.ended().await.code(), Some(0));
            let files = std::fs::read_dir(scratch.path().join("data")).unwrap();
            let names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            assert!(!names.iter().any(|name| name.ends_with("-wal") || name.ends_with("-shm")), "{names:?}");
        }
    });
}
