//! How a process starts, stops and what it says meanwhile, seen from outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aetheris_harness::Folder;
use rustix::process::{Pid, Signal};

/// A `dev` on a folder, and where it listens.
struct Dev {
    child: Child,
    url: String,
}

impl Dev {
    /// Starts it by a shell that may set traps before.
    fn start(folder: &Path, before: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_aetheris");
        let line = format!("{before} exec {program} dev --data data --listen 127.0.0.1:0 --agent agent.yaml 2>>log");
        let mut shell = Command::new("bash");
        shell.args(["-c", &line]).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let url = ready.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        assert!(url.starts_with("http://"), "{ready}{}", log(folder));
        Self { child, url }
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its exit code, `None` where a signal ended it.
    fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    fn client(&self, words: &[&str]) -> String {
        let ran = Command::new(env!("CARGO_BIN_EXE_aetheris")).args(["--server", &self.url]).args(words).output();
        String::from_utf8(ran.unwrap().stdout).unwrap()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// A service that is asked once, as an agent's tool that must not be called twice.
fn service(folder: &Path) -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/pay", listener.local_addr().unwrap());
    let agent = format!(
        "agent: pay\ntools:\n  pay: {{ kind: http, method: POST, url: \"{url}\", timeout: 30s }}\n\
         plan:\n  nodes:\n    - {{ id: pay, kind: tool, tool: pay, input: {{ cents: 1 }} }}\n"
    );
    std::fs::write(folder.join("agent.yaml"), agent).unwrap();
    listener
}

/// The call that is in flight from now on.
fn called(listener: &TcpListener) -> TcpStream {
    let (mut call, _) = listener.accept().unwrap();
    call.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let (mut request, mut bytes) = (String::new(), [0; 4_096]);
    while !request.contains("\"cents\"") {
        let read = call.read(&mut bytes).unwrap();
        assert!(read > 0, "{request}");
        request.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    call
}

/// A terminal that closes sends SIGHUP, and not only one.
#[test]
fn a_closed_terminal_lets_a_call_in_flight_end() {
    let folder = Folder::new("hangup");
    let listener = service(&folder);
    let dev = Dev::start(&folder, "");
    let job = dev.client(&["send", "pay", "{}"]);
    let mut call = called(&listener);
    dev.signal(Signal::HUP);
    while !log(&folder).contains("stopping") {
        assert!(is_alive(dev.child.id()), "it has died\n{}", log(&folder));
        std::thread::yield_now();
    }
    dev.signal(Signal::HUP);
    call.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    assert_eq!(dev.ended(), Some(0), "{}", log(&folder));
    assert!(log(&folder).contains("stopping on SIGHUP: no new claims"), "{}", log(&folder));
    let again = Dev::start(&folder, "");
    let watched = again.client(&["watch", job.trim()]);
    assert!(watched.contains("result"), "{watched}");
    assert!(!again.client(&["events", job.trim()]).contains("step_in_doubt"));
}

/// A supervisor and a load balancer ask while a call is awaited, and so do people.
#[test]
fn a_server_that_drains_answers_until_the_call_has_ended() {
    let folder = Folder::new("drain");
    let listener = service(&folder);
    let dev = Dev::start(&folder, "");
    let job = dev.client(&["send", "pay", "{}"]);
    let mut call = called(&listener);
    dev.signal(Signal::TERM);
    while !log(&folder).contains("stopping") {
        assert!(is_alive(dev.child.id()), "it has died\n{}", log(&folder));
    }
    let shown = dev.client(&["jobs"]);
    assert!(shown.contains(job.trim()) && shown.contains("running"), "{shown}");
    let mut send = Command::new(env!("CARGO_BIN_EXE_aetheris"));
    let sent = send.args(["--server", &dev.url, "send", "pay", "{}"]).output().unwrap();
    let said = String::from_utf8_lossy(&sent.stderr);
    assert!(!sent.status.success() && said.contains("the server is shutting down"), "{said}");
    call.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    let address = dev.url.trim_start_matches("http://").to_owned();
    assert_eq!(dev.ended(), Some(0), "{}", log(&folder));
    assert!(TcpStream::connect(address).is_err());
}

/// What the log says of a death and of a wait, an operator can read.
#[test]
fn the_log_says_why_in_words() {
    let folder = Folder::new("words");
    let listener = service(&folder);
    let dev = Dev::start(&folder, "");
    dev.client(&["send", "pay", "{}"]);
    let _call = called(&listener);
    drop(dev);
    let again = Dev::start(&folder, "");
    let said = || log(&folder);
    while !again.client(&["jobs"]).contains("parked") {
        assert!(is_alive(again.child.id()), "{}", said());
    }
    again.signal(Signal::TERM);
    assert_eq!(again.ended(), Some(0));
    assert!(said().contains("reason=\"holder_died\"") && !said().contains("Dead("), "{}", said());
    let waiting: Vec<String> = said().lines().filter(|line| line.contains("waiting")).map(str::to_owned).collect();
    assert!(waiting.iter().any(|line| line.contains("node=pay on=\"in_doubt\"")), "{}", said());
}

/// What a person says of a call after the end is kept with the job, and ends it no second time.
#[test]
fn the_log_tells_the_end_of_a_job_once() {
    let folder = Folder::new("once");
    let listener = service(&folder);
    let dev = Dev::start(&folder, "");
    let job = dev.client(&["send", "pay", "{}"]);
    let _call = called(&listener);
    drop(dev);
    let again = Dev::start(&folder, "");
    while !again.client(&["jobs"]).contains("parked") {
        assert!(is_alive(again.child.id()), "{}", log(&folder));
    }
    again.client(&["cancel", job.trim()]);
    let told = again.client(&["in-doubt", "resolve", job.trim(), "--happened", "--result", "{}", "--note", "asked"]);
    assert!(told.starts_with("recorded: "), "{told}");
    again.signal(Signal::TERM);
    assert_eq!(again.ended(), Some(0));
    assert_eq!(log(&folder).matches("the job has ended").count(), 1, "{}", log(&folder));
}

/// Else the first to notice is a job, whose call fails for good.
#[test]
fn a_variable_that_is_not_set_is_warned_of_at_the_start() {
    let folder = Folder::new("unset");
    let _listener = service(&folder);
    let names = "export AETHERIS__TOOLS__ENV=AETHERIS_TEST_SET,AETHERIS_TEST_UNSET AETHERIS_TEST_SET=1;";
    let dev = Dev::start(&folder, names);
    dev.signal(Signal::TERM);
    assert_eq!(dev.ended(), Some(0));
    let warned: Vec<String> = log(&folder).lines().filter(|l| l.contains("`tools.env`")).map(str::to_owned).collect();
    assert!(
        matches!(warned.as_slice(), [line] if line.contains("WARN") && line.contains("AETHERIS_TEST_UNSET")),
        "{warned:?}"
    );
}

/// Whoever collects such logs reads each line as a value.
#[test]
fn with_a_json_log_every_line_of_a_start_that_fails_is_json() {
    let folder = Folder::new("json");
    std::fs::write(folder.join("bad.yaml"), "agent: A\nplan: { nodes: [] }\n").unwrap();
    std::fs::write(
        folder.join("model.yaml"),
        "agent: a\nmodel: nobody/x\nplan: { nodes: [{ id: n, kind: llm, prompt: p }] }\n",
    )
    .unwrap();
    std::fs::write(folder.join("config.yaml"), "jobstore: { sqlite: { path: gone/aetheris.db } }\n").unwrap();
    let command = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aetheris"));
        command.args(words).current_dir(&folder).env("AETHERIS__LOG__FORMAT", "json");
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("{line}"));
    for file in ["bad.yaml", "model.yaml"] {
        let ran = command(&["dev", "--ephemeral", "--agent", file]).wait_with_output().unwrap();
        assert_eq!(ran.status.code(), Some(6));
        let said: Vec<_> = String::from_utf8(ran.stderr).unwrap().lines().map(value).collect();
        assert!(said.iter().any(|line| line["message"].as_str().unwrap().starts_with(file)), "{said:?}");
    }
    let mut worker = command(&["worker", "--config", "config.yaml"]);
    let mut first = String::new();
    BufReader::new(worker.stderr.as_mut().unwrap()).read_line(&mut first).unwrap();
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(value(&first)["message"].as_str().unwrap().contains("waiting 10s"), "{first}");
}

/// A trial as a new user: a supervisor that starts it with an old file undoes a fix, and nobody was told.
#[test]
fn a_start_says_which_agents_it_replaces() {
    let folder = Folder::new("replaces");
    let _listener = service(&folder);
    let dev = Dev::start(&folder, "");
    let first = std::fs::read_to_string(folder.join("agent.yaml")).unwrap();
    let second = folder.join("second.yaml");
    std::fs::write(&second, format!("{first}version: \"2\"\n")).unwrap();
    let put = dev.client(&["agent", "put", second.to_str().unwrap()]);
    assert!(put.contains("pay version 2 replaces version 1, "), "{put}");
    drop(dev);
    assert!(!log(&folder).contains("replaces version"), "{}", log(&folder));
    drop(Dev::start(&folder, ""));
    assert!(log(&folder).contains("pay version 1 replaces version 2, "), "{}", log(&folder));
    drop(Dev::start(&folder, ""));
    assert_eq!(log(&folder).matches("replaces version").count(), 1, "{}", log(&folder));
}

#[test]
fn a_port_in_use_leaves_no_folder_behind() {
    let folder = Folder::new("port");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut dev = Command::new(env!("CARGO_BIN_EXE_aetheris"));
    let ran = dev.args(["dev", "--data", "new", "--listen", &address]).current_dir(&folder).output().unwrap();
    assert_eq!(ran.status.code(), Some(4), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("is in use"), "{ran:?}");
    assert!(!folder.join("new").exists());
    let mut service = Command::new(env!("CARGO_BIN_EXE_aetheris"));
    let ran = service.args(["demo-payments", "--log", "log", "--listen", &address]).current_dir(&folder).output();
    let ran = ran.unwrap();
    assert_eq!(ran.status.code(), Some(4), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains(&format!("{address} is in use")), "{ran:?}");
}

/// Every mistake is told before anything is made.
#[test]
fn agent_files_with_mistakes_leave_no_folder_behind() {
    let folder = Folder::new("mistakes");
    for name in ["one.yaml", "two.yaml"] {
        std::fs::write(folder.join(name), "agent: A\nplan: { nodes: [] }\n").unwrap();
    }
    let mut dev = Command::new(env!("CARGO_BIN_EXE_aetheris"));
    dev.args(["dev", "--data", "new", "--listen", "127.0.0.1:0", "--agent", "one.yaml", "--agent", "two.yaml"]);
    let ran = dev.current_dir(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(6), "{said}");
    assert!(said.contains("one.yaml:1: ") && said.contains("two.yaml:1: "), "{said}");
    assert!(!folder.join("new").exists());
    let mut check = Command::new(env!("CARGO_BIN_EXE_aetheris"));
    let file = std::fs::File::open(folder.join("one.yaml")).unwrap();
    let ran = check.args(["agent", "check", "-"]).stdin(file).output().unwrap();
    assert_eq!(ran.status.code(), Some(6), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("stdin:1: agent: "), "{ran:?}");
}

/// A configuration that nobody named is not read, and that is said.
#[test]
fn a_configuration_in_the_folder_that_is_not_read_is_named() {
    let folder = Folder::new("unread");
    std::fs::write(folder.join("aetheris.yaml"), "nonsense: [\n").unwrap();
    for (words, said) in [(&["config", "check"][..], true), (&["config", "check", "--config", "aetheris.yaml"], false)]
    {
        let ran = Command::new(env!("CARGO_BIN_EXE_aetheris")).args(words).current_dir(&folder).output().unwrap();
        let told = String::from_utf8_lossy(&ran.stderr).contains("./aetheris.yaml was not read");
        assert_eq!((ran.status.success(), told), (said, said), "{ran:?}");
    }
}

/// What is wrong for this server only has a line of the file too.
#[test]
fn what_a_server_cannot_execute_is_named_with_its_line() {
    let folder = Folder::new("lines");
    let _listener = service(&folder);
    let text = "agent: bad\nversion: \"1\"\nmodel: nobody/x\ntools:\n  t:\n    kind: http\n    effect: pure\n    \
                method: GET\n    url: http://127.0.0.1:1/\n    headers:\n      X-A: a\n      X-Token: \"{{ env.ORDERS_TOKEN }}\"\n\
                plan:\n  nodes:\n    - { id: ask, kind: llm, prompt: p }\n    - { id: t, kind: tool, tool: t }\n";
    std::fs::write(folder.join("bad.yaml"), text).unwrap();
    let put = |words: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_aetheris")).args(words).current_dir(&folder).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    let (code, said) = put(&["dev", "--ephemeral", "--listen", "127.0.0.1:0", "--agent", "bad.yaml"]);
    assert_eq!(code, Some(6));
    assert!(said.contains("bad.yaml:3: model: ") && said.contains("bad.yaml:12: tools.t.headers.X-Token: "), "{said}");
    let dev = Dev::start(&folder, "");
    let (code, said) = put(&["--server", &dev.url, "agent", "put", "bad.yaml"]);
    assert_eq!(code, Some(6));
    assert!(said.contains("line 3: model: ") && said.contains("line 12: tools.t.headers.X-Token: "), "{said}");
}

/// Whoever reads it in a log does not know where the command was started.
#[test]
fn a_database_that_is_not_there_is_named_by_its_whole_path() {
    let folder = Folder::new("whole");
    for words in [&["check-consistency", "--data", "x"][..], &["backup", "copy.db", "--data", "x"]] {
        let ran = Command::new(env!("CARGO_BIN_EXE_aetheris")).args(words).current_dir(&folder).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        let whole = folder.join("x/aetheris.db");
        assert!(said.contains(&format!("there is no database {}", whole.display())), "{said}");
        // Whoever names a folder means its database, whatever the environment says.
        let mut other = Command::new(env!("CARGO_BIN_EXE_aetheris"));
        other.args(words).current_dir(&folder).env("AETHERIS__JOBSTORE__TYPE", "memory");
        assert_eq!(String::from_utf8(other.output().unwrap().stderr).unwrap(), said);
    }
}

/// Ctrl-C ends the watching and not the job, and says so.
#[test]
fn whoever_stops_watching_is_told_that_the_job_goes_on() {
    let folder = Folder::new("watching");
    let listener = service(&folder);
    let dev = Dev::start(&folder, "");
    let mut send = Command::new(env!("CARGO_BIN_EXE_aetheris"));
    send.args(["--server", &dev.url, "send", "pay", "{}", "--wait"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = send.spawn().unwrap();
    let _call = called(&listener);
    // From here on Ctrl-C is the program's to handle: the mask of caught signals says so.
    let catches = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0
    };
    while !catches() {
        std::thread::yield_now();
    }
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{told}");
    assert!(told.contains("the job goes on. Follow it with: aetheris"), "{told}");
}

/// Measuring holds threads for long, and nobody who presses Ctrl-C wants to wait for it or to clear up after it.
#[test]
fn a_benchmark_that_is_stopped_leaves_nothing_behind() {
    let folder = Folder::new("bench");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_aetheris"));
    bench.arg("bench").current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = bench.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("measuring bare commits")));
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest.iter().any(|line| line.contains("stopped")), "{rest:?}");
    // One may have begun meanwhile; the rest, which would take minutes, does not.
    assert!(rest.iter().filter(|line| line.contains("measuring")).count() <= 1, "{rest:?}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.lines().any(|line| line.starts_with("State:") && line.contains('Z'))
}

/// `nohup` has a process ignore SIGHUP, and means it.
#[test]
fn a_process_that_was_started_to_ignore_a_closed_terminal_goes_on() {
    let folder = Folder::new("nohup");
    let _listener = service(&folder);
    let dev = Dev::start(&folder, "trap '' HUP;");
    dev.signal(Signal::HUP);
    assert!(dev.client(&["agent", "list"]).contains("pay"));
    dev.signal(Signal::TERM);
    assert_eq!(dev.ended(), Some(0));
    assert!(log(&folder).contains("stopping on SIGTERM"), "{}", log(&folder));
}

/// A program that reads stdout finds what is wrong there.
#[test]
fn arguments_that_cannot_be_right_are_one_json_value_too() {
    for words in [&["jobs", "--json", "--nope"][..], &["--json", "send"], &["nosuch", "--json"]] {
        let ran = Command::new(env!("CARGO_BIN_EXE_aetheris")).args(words).output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{words:?}");
        let value: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(value["error"]["code"], "usage", "{value}");
        let said = value["error"]["message"].as_str().unwrap();
        assert!(!said.starts_with("error") && !said.is_empty(), "{said}");
        assert!(String::from_utf8(ran.stderr).unwrap().contains(said.lines().next().unwrap()), "{said}");
    }
    let plain = Command::new(env!("CARGO_BIN_EXE_aetheris")).args(["jobs", "--nope"]).output().unwrap();
    assert!(plain.stdout.is_empty());
}
