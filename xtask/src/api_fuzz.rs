//! `cargo xtask api-fuzz`: Schemathesis against `aetheris dev`, all phases and checks; with `--kills` while
//! the server is killed and started again on its folder. Afterwards the folder must add up and every
//! acknowledged job must be there. Several generators run side by side, each with a server of its own: one is one
//! core of Python, and two on one server would take each other's agents away.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::say;

const SECONDS_DEFAULT: u32 = 240;
const EXAMPLES_DEFAULT: u32 = 400;
const GENERATORS_DEFAULT: u32 = 2;
const GENERATORS_MAX: u32 = 64;
/// One: Python 3.11 parses in one thread at a time, and Hypothesis parses ("AST constructor recursion depth").
const WORKERS_DEFAULT: u32 = 1;
/// How often a state is looked at that nothing announces: another process's end, or its port.
const LOOK: Duration = Duration::from_millis(20);
/// Looks for a server that starts: a minute.
const LOOKS_MAX: u32 = 3_000;
/// What the kills find besides: each server error is one of the named, retryable ones (`hooks.py` holds it to that), and an agent
/// that was deleted is there again, as `dev` puts its files at each start.
const KILLS: [&str; 2] = ["--exclude-checks", "not_a_server_error,use_after_free"];

const USAGE: &str = "usage: cargo xtask api-fuzz --prepare | [--seconds N] [--max-examples N] [--seed N] [--generators N] \
                     [--workers N] [--kills]";

/// What was asked for.
#[derive(Clone, Copy)]
struct Asked {
    examples: u32,
    generators: u32,
    kills: bool,
    seconds: u32,
    seed: u32,
    workers: u32,
}

/// Runs the command; whether nothing was found. `--prepare` alone installs what it needs.
pub(crate) fn run(root: &Path, arguments: &[String]) -> bool {
    if arguments == ["--prepare"] {
        return generators(root).inspect_err(|why| say(why)).is_ok();
    }
    let asked = match asked(arguments) {
        Ok(asked) => asked,
        Err(why) => {
            say(&format!("{why}\n{USAGE}"));
            return false;
        }
    };
    fuzz(root, &asked).unwrap_or_else(|why| {
        say(&why);
        false
    })
}

fn asked(arguments: &[String]) -> Result<Asked, String> {
    let mut asked = Asked {
        examples: EXAMPLES_DEFAULT,
        generators: GENERATORS_DEFAULT,
        kills: false,
        seconds: SECONDS_DEFAULT,
        seed: 1,
        workers: WORKERS_DEFAULT,
    };
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        if flag == "--kills" {
            asked.kills = true;
            continue;
        }
        let number =
            rest.next().and_then(|value| value.parse().ok()).ok_or_else(|| format!("{flag} needs a number"))?;
        match flag.as_str() {
            "--generators" if (1..=GENERATORS_MAX).contains(&number) => asked.generators = number,
            "--generators" => return Err(format!("--generators is a number from 1 to {GENERATORS_MAX}")),
            "--max-examples" => asked.examples = number,
            "--seconds" => asked.seconds = number,
            "--seed" => asked.seed = number,
            "--workers" => asked.workers = number,
            _ => return Err(format!("unknown flag `{flag}`")),
        }
    }
    Ok(asked)
}

/// Where the runs have their folders, and the Python of the generators.
fn generators(root: &Path) -> Result<(PathBuf, PathBuf), String> {
    let folder = root.join("target").join("api-fuzz");
    let python = environment(&root.join("fuzz/api/requirements.txt"), &folder)?;
    Ok((folder, python))
}

fn fuzz(root: &Path, asked: &Asked) -> Result<bool, String> {
    let (folder, python) = generators(root)?;
    let built = crate::run(root, &["build", "--quiet", "--locked", "-p", "aetheris-cli", "--bin", "aetheris"]);
    if !built {
        return Err("the server cannot be built".to_owned());
    }
    // One of its own for each way to run: what one has found is not taken away by the other.
    let way = if asked.kills { "kills" } else { "generator" };
    let folder = |number: u32| folder.join(format!("{way}-{number}"));
    let ended: Vec<Result<bool, String>> = std::thread::scope(|scope| {
        let generators: Vec<_> = (0..asked.generators)
            .map(|number| {
                let (folder, python) = (folder(number), &python);
                let asked = Asked { seed: asked.seed.wrapping_add(number), ..*asked };
                scope.spawn(move || generate(root, &folder, python, host(number), &asked))
            })
            .collect();
        let ended = generators.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("a panic".to_owned())));
        ended.collect()
    });
    // Failures last: the gate keeps only the end of a long output.
    let mut shown: Vec<(u32, &Result<bool, String>)> = (0..asked.generators).zip(&ended).collect();
    shown.sort_by_key(|(_, ended)| !matches!(ended, Ok(true)));
    for (number, _) in shown {
        for file in ["counts.json", "schemathesis.log", "verdict.txt"] {
            say(&fs::read_to_string(folder(number).join(file)).unwrap_or_default());
        }
    }
    ended.into_iter().try_fold(true, |clean, one| Ok(one? && clean))
}

/// Where a generator's server listens: a port is free again while its server is killed, and another's is not to take
/// it. Only Linux has more than one address of its own without being told.
fn host(number: u32) -> Ipv4Addr {
    let place = if cfg!(target_os = "linux") { number + 2 } else { 1 };
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 0, 0).to_bits() + place)
}

/// One generator against a server of its own; whether nothing was found.
fn generate(root: &Path, folder: &Path, python: &Path, host: Ipv4Addr, asked: &Asked) -> Result<bool, String> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| error.to_string())?;
    }
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let server = Server::new(root, folder, host)?;
    let mut process = server.start()?;
    let mut fuzzer = schemathesis(root, folder, python, &server, asked)?;
    let (ended, kills) = attend(&server, &mut process, &mut fuzzer, asked)?;
    let adds_up = process.stop() && server.check(folder)?;
    let process = server.start()?;
    let kept = python_script(root, python, &server, folder)?;
    drop(process);
    let shown = if asked.kills { format!(", {kills} kills") } else { String::new() };
    let verdict = format!(
        "api-fuzz: seed {}, schemathesis {ended}{shown}, the folder {}, acknowledged jobs {}",
        asked.seed,
        if adds_up { "adds up" } else { "DOES NOT ADD UP" },
        if kept { "kept" } else { "LOST" }
    );
    fs::write(folder.join("verdict.txt"), verdict).map_err(|error| error.to_string())?;
    Ok(ended.success() && adds_up && kept)
}

/// Where the checks of a generator say what they have seen.
fn log(folder: &Path) -> Result<fs::File, String> {
    let file = folder.join("schemathesis.log");
    fs::File::options().create(true).append(true).open(&file).map_err(|error| format!("{}: {error}", file.display()))
}

/// The Python of an environment with exactly the pinned packages; those that have hashes are held to them.
pub(crate) fn environment(pinned: &Path, folder: &Path) -> Result<PathBuf, String> {
    let wanted = fs::read_to_string(pinned).map_err(|error| format!("{}: {error}", pinned.display()))?;
    let (venv, stamp) = (folder.join("venv"), folder.join("venv-holds.txt"));
    let python = venv.join("bin/python");
    if fs::read_to_string(&stamp).is_ok_and(|holds| holds == wanted) {
        return Ok(python);
    }
    say(&format!("── installing what {} names", pinned.display()));
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv).status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("`python3 -m venv` does not work here; Python 3.10 or later with venv is needed".to_owned());
    }
    let installed =
        Command::new(&python).args(["-m", "pip", "install", "--quiet", "--no-deps", "-r"]).arg(pinned).status();
    if !installed.is_ok_and(|status| status.success()) {
        return Err(format!("the packages of {} cannot be installed", pinned.display()));
    }
    fs::write(stamp, wanted).map_err(|error| error.to_string())?;
    Ok(python)
}

/// A server on a folder and a port of its own, which stay over its restarts.
struct Server {
    address: SocketAddr,
    agents: Vec<PathBuf>,
    binary: PathBuf,
    data: PathBuf,
    log: PathBuf,
    /// Takes connections and never answers: calls to it end in doubt.
    _silent: TcpListener,
}

impl Server {
    fn new(root: &Path, folder: &Path, host: Ipv4Addr) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let data = folder.join("data");
        // The port is free again at once: nothing was accepted on it.
        let address = TcpListener::bind((host, 0)).and_then(|free| free.local_addr()).map_err(text)?;
        let silent = TcpListener::bind("127.0.0.1:0").map_err(text)?;
        let port = silent.local_addr().map_err(text)?.port().to_string();
        let agents = agents(&root.join("fuzz/api/agents"), &folder.join("agents"), &port).map_err(text)?;
        let binary = crate::target_dir(root).join("debug/aetheris");
        Ok(Self { address, agents, binary, data, log: folder.join("server.log"), _silent: silent })
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts it, and waits until it takes connections.
    fn start(&self) -> Result<Running, String> {
        let text = |error: std::io::Error| error.to_string();
        let log = fs::File::options().create(true).append(true).open(&self.log).map_err(text)?;
        let mut command = Command::new(&self.binary);
        command.arg("dev").arg("--data").arg(&self.data).arg("--listen").arg(self.address.to_string());
        for agent in &self.agents {
            command.arg("--agent").arg(agent);
        }
        command.stdout(Stdio::null()).stderr(log);
        let mut process = Running(command.spawn().map_err(text)?);
        for _ in 0..LOOKS_MAX {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(process);
            }
            if let Ok(Some(status)) = process.0.try_wait() {
                return Err(format!("the server ended with {status}; see {}", self.log.display()));
            }
            sleep(LOOK);
        }
        Err("the server does not take connections".to_owned())
    }

    /// Whether what is stored adds up.
    fn check(&self, folder: &Path) -> Result<bool, String> {
        let mut check = Command::new(&self.binary);
        check.arg("check-consistency").arg("--data").arg(&self.data).stdout(log(folder)?).stderr(log(folder)?);
        Ok(check.status().is_ok_and(|status| status.success()))
    }
}

/// The agents of the run, with the port of this run.
fn agents(from: &Path, to: &Path, silent_port: &str) -> std::io::Result<Vec<PathBuf>> {
    fs::create_dir_all(to)?;
    let mut files = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let file = to.join(entry.file_name());
        fs::write(&file, fs::read_to_string(entry.path())?.replace("SILENT_PORT", silent_port))?;
        files.push(file);
    }
    Ok(files)
}

/// A process. Dropping it kills it.
struct Running(Child);

impl Running {
    /// Kills it, without a chance to end in good order; whether that went well.
    fn stop(&mut self) -> bool {
        self.0.kill().is_ok() && self.0.wait().is_ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

fn schemathesis(root: &Path, folder: &Path, python: &Path, server: &Server, asked: &Asked) -> Result<Running, String> {
    let code = root.join("fuzz/api");
    let mut path = OsString::from(&code);
    path.push(":");
    let mut command = Command::new(python.with_file_name("schemathesis"));
    command.arg("--config-file").arg(code.join("schemathesis.toml"));
    command.arg("run").arg(format!("{}/api/openapi.json", server.url()));
    for (flag, value) in [
        ("--max-examples", asked.examples),
        ("--max-time", asked.seconds),
        ("--seed", asked.seed),
        ("--workers", asked.workers),
    ] {
        command.arg(flag).arg(value.to_string());
    }
    command.args(["--checks", "all", "--generation-database", "none", "--no-color"]);
    if asked.kills {
        command.args(KILLS).env("AETHERIS_API_FUZZ_KILLS", "1");
    }
    command.env("SCHEMATHESIS_HOOKS", "hooks").env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
    command.stdout(log(folder)?).stderr(log(folder)?);
    command.env("AETHERIS_API_FUZZ", folder).env("AETHERIS_API_FUZZ_URL", server.url()).current_dir(folder);
    command.spawn().map(Running).map_err(|error| format!("schemathesis cannot be started: {error}"))
}

/// Waits for the end of the fuzzer. With kills, the server dies every one to two seconds and is started
/// again at once; how often.
fn attend(
    server: &Server,
    process: &mut Running,
    fuzzer: &mut Running,
    asked: &Asked,
) -> Result<(ExitStatus, u32), String> {
    let (mut kills, mut looks) = (0, 0);
    let mut dice = u64::from(asked.seed);
    loop {
        if let Some(status) = fuzzer.0.try_wait().map_err(|error| error.to_string())? {
            return Ok((status, kills));
        }
        if let Ok(Some(status)) = process.0.try_wait() {
            return Err(format!("the server ended by itself with {status}; see {}", server.log.display()));
        }
        sleep(LOOK);
        looks += 1;
        if asked.kills && looks > 50 + dice % 50 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 1;
            looks = 0;
            kills += 1;
            process.stop();
            *process = server.start()?;
        }
    }
}

fn python_script(root: &Path, python: &Path, server: &Server, folder: &Path) -> Result<bool, String> {
    let mut script = Command::new(python);
    script.arg(root.join("fuzz/api/acknowledged.py")).arg(server.url()).arg(folder.join("acknowledged.txt"));
    script.stdout(log(folder)?).stderr(log(folder)?);
    Ok(script.status().is_ok_and(|status| status.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_with_whoever_holds_it() {
        let running = Running(Command::new("sleep").arg("60").spawn().unwrap());
        let place = PathBuf::from(format!("/proc/{}", running.0.id()));
        assert!(place.exists());
        drop(running);
        assert!(!place.exists());
    }
}
