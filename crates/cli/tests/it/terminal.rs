//! A terminal as a page names it: a shell that reads what is typed and says what it prints.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::markdown::{Block, normal};

/// Longest silence of a terminal while something is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The terminals of a page, with a port of its own for each that the page names.
pub(crate) struct Desk {
    folder: PathBuf,
    /// From the port that the page names to the one that is free here.
    ports: BTreeMap<u16, u16>,
    terminals: BTreeMap<String, Terminal>,
}

struct Terminal {
    shell: Child,
    stdin: ChildStdin,
    printed: Arc<(Mutex<Vec<u8>>, Condvar)>,
    sent: usize,
}

impl Desk {
    pub(crate) fn new(folder: &Path, ports: &[u16]) -> Self {
        // All are taken before one is given back, so that they differ.
        let taken: Vec<_> = ports.iter().map(|port| (*port, TcpListener::bind("127.0.0.1:0").unwrap())).collect();
        let ports = taken.iter().map(|(port, free)| (*port, free.local_addr().unwrap().port())).collect();
        Self { folder: folder.to_owned(), ports, terminals: BTreeMap::new() }
    }

    /// A text of the page with the ports that are free here.
    pub(crate) fn local(&self, text: &str) -> String {
        self.ports.iter().fold(text.to_owned(), |text, (page, free)| {
            text.replace(&format!(":{page}"), &format!(":{free}"))
                .replace(&format!("--port {page}"), &format!("--port {free}"))
        })
    }

    fn terminal(&mut self, name: &str) -> &mut Terminal {
        let server = self.ports.get(&8080).copied().unwrap_or(1);
        let folder = self.folder.clone();
        self.terminals.entry(name.to_owned()).or_insert_with(|| Terminal::open(&folder, server))
    }

    /// Types commands that go on running, and waits until they say that they listen.
    pub(crate) fn start(&mut self, block: &Block) {
        let typed: Vec<String> = block.commands().iter().map(|line| self.local(line)).collect();
        let terminal = self.terminal(&block.name);
        // Not that somebody else is listening there. The payments service says it in JSON.
        let listens =
            |text: &str| text.matches("listening on ").count() + text.matches("\"notice\":\"listening\"").count();
        let before = listens(&terminal.text());
        typed.iter().for_each(|line| terminal.line(line));
        terminal.until("it listens", |text| listens(text) > before);
    }

    /// Types commands one after the other, waits for each, and holds what the page shows against what is
    /// printed. Answers all that was printed.
    pub(crate) fn run(&mut self, block: &Block) -> String {
        let typed: Vec<String> = block.commands().iter().map(|line| self.local(line)).collect();
        let shown: Vec<String> = block.printed().iter().map(|line| normal(&self.local(line))).collect();
        let terminal = self.terminal(&block.name);
        let before = terminal.text().len();
        for line in typed {
            // Whoever types is slower than a worker, which on a busy machine has yet to come to the wait.
            if line.contains("/$JOB/why") {
                let waits = line.rsplit(' ').next().unwrap_or_default().split("/jobs").next().unwrap_or_default();
                terminal.line(&format!("until curl -s {waits}/waits | grep -q $JOB; do sleep 0.05; done"));
            }
            terminal.sent += 1;
            let end = format!("@done {}@", terminal.sent);
            terminal.line(&line);
            terminal.line(&format!("echo; echo '@done' \"{}@\"", terminal.sent));
            terminal.until(&line, |text| text.contains(&end));
        }
        let text = terminal.text()[before..].to_owned();
        let lines: Vec<String> = text.lines().map(normal).collect();
        for line in shown {
            assert!(lines.contains(&line), "the page shows\n  {line}\nand this was printed:\n{text}");
        }
        text
    }

    /// Types a line and does not wait.
    pub(crate) fn line(&mut self, name: &str, line: &str) {
        self.terminal(name).line(line);
    }
}

impl Terminal {
    fn open(folder: &Path, server: u16) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_aetheris"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut search = vec![program.parent().unwrap().to_owned()];
        search.extend(std::env::split_paths(&path));
        let mut shell = Command::new("bash");
        shell.args(["--norc", "--noprofile"]).current_dir(folder).process_group(0);
        shell.env("PATH", std::env::join_paths(search).unwrap());
        shell.env("AETHERIS_SERVER", format!("http://127.0.0.1:{server}"));
        shell.env("AETHERIS__SERVER__LISTEN", format!("127.0.0.1:{server}"));
        // Both outputs in one, as a terminal has them.
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = shell.spawn().expect("bash is there");
        let mut stdin = shell.stdin.take().unwrap();
        stdin.write_all(b"exec 2>&1\n").unwrap();
        let mut stdout = shell.stdout.take().unwrap();
        let printed: Arc<(Mutex<Vec<u8>>, Condvar)> = Arc::default();
        let reader = Arc::clone(&printed);
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(read @ 1..) = stdout.read(&mut bytes) {
                reader.0.lock().unwrap().extend_from_slice(&bytes[..read]);
                reader.1.notify_all();
            }
        });
        Self { shell, stdin, printed, sent: 0 }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
        self.stdin.flush().unwrap();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.printed.0.lock().unwrap()).into_owned()
    }

    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let mut printed = self.printed.0.lock().unwrap();
        loop {
            let text = String::from_utf8_lossy(&printed).into_owned();
            if is_so(&text) {
                return;
            }
            let (more, waited) = self.printed.1.wait_timeout(printed, PATIENCE).unwrap();
            assert!(!waited.timed_out(), "this did not happen: {what}\n{text}");
            printed = more;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The whole group: what was started in it as well.
        if let Some(group) = rustix::process::Pid::from_raw(i32::try_from(self.shell.id()).unwrap_or(0)) {
            let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ended = self.shell.wait();
    }
}
