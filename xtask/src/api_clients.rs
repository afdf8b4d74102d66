//! `cargo xtask api-clients`: the OpenAPI document as others see it. A validator that is not ours reads it, a Python and
//! a TypeScript client are generated from it, and each drives a job against a real server: put the agent, send, signal,
//! wait for the end, read the events. Everything that is needed is installed below `target/`, in pinned versions with
//! their hashes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{api_fuzz, say};

/// What the TypeScript client is made of, as it stands in `xtask/clients`.
const TYPESCRIPT: [&str; 4] = ["package.json", "package-lock.json", "tsconfig.json", "drive.ts"];

/// Runs the command; whether all of it went well.
pub(crate) fn run(root: &Path) -> bool {
    let folder = root.join("target").join("api-clients");
    let done = drive(root, &folder);
    say(&match &done {
        Ok(()) => "api-clients: the document is valid, and clients made of it drive a job".to_owned(),
        Err(why) => format!("api-clients: {why}"),
    });
    done.is_ok()
}

fn drive(root: &Path, folder: &Path) -> Result<(), String> {
    let sources = root.join("xtask/clients");
    let document = root.join("crates/server/openapi.json");
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let python = api_fuzz::environment(&sources.join("requirements.txt"), folder)?;
    step("the document is valid", Command::new(beside(&python, "openapi-spec-validator")).arg(&document))?;
    let client = python_client(&sources, &document, folder, &python)?;
    let script = typescript_client(&sources, &document, folder)?;
    if !crate::run(root, &["build", "--quiet", "--locked", "-p", "aetheris-cli", "--bin", "aetheris"]) {
        return Err("the server cannot be built".to_owned());
    }
    let server = Server::start(root, folder)?;
    let agent = fs::read_to_string(sources.join("agent.json")).map_err(|error| error.to_string())?;
    let mut driven = Command::new(&python);
    driven.arg(sources.join("drive.py")).args([&server.url, &agent]);
    driven.env("PYTHONPATH", client).env("PYTHONDONTWRITEBYTECODE", "1");
    step("a job, driven from Python", &mut driven)?;
    step("a job, driven from TypeScript", Command::new("node").arg(script).args([&server.url, &agent]))
}

/// A program of the same environment.
fn beside(python: &Path, program: &str) -> PathBuf {
    python.with_file_name(program)
}

/// Generates the Python client; the folder to import it from.
fn python_client(sources: &Path, document: &Path, folder: &Path, python: &Path) -> Result<PathBuf, String> {
    let parent = folder.join("python");
    fs::create_dir_all(&parent).map_err(|error| error.to_string())?;
    let mut generate = Command::new(beside(python, "openapi-python-client"));
    generate.args(["generate", "--meta", "none", "--overwrite", "--path"]).arg(document);
    generate.arg("--output-path").arg(parent.join("aetheris_client"));
    generate.arg("--config").arg(sources.join("openapi-python-client.yaml"));
    step("a Python client", &mut generate)?;
    Ok(parent)
}

/// Generates the types, and compiles the program that is written against them; where it is.
fn typescript_client(sources: &Path, document: &Path, folder: &Path) -> Result<PathBuf, String> {
    let folder = folder.join("typescript");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let (stamp, lock) = (folder.join("holds.json"), sources.join("package-lock.json"));
    for file in TYPESCRIPT {
        fs::copy(sources.join(file), folder.join(file)).map_err(|error| format!("{file}: {error}"))?;
    }
    let wanted = fs::read(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        let mut install = Command::new("npm");
        install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&folder);
        step("installing the TypeScript tools", &mut install)
            .map_err(|why| format!("{why}; Node.js 20 or later with npm is needed"))?;
        fs::write(&stamp, wanted).map_err(|error| error.to_string())?;
    }
    let tools = folder.join("node_modules/.bin");
    let mut types = Command::new(tools.join("openapi-typescript"));
    types.arg(document).args(["--output", "schema.d.ts"]).current_dir(&folder);
    step("TypeScript types", &mut types)?;
    step("a TypeScript client", Command::new(tools.join("tsc")).args(["--project", "."]).current_dir(&folder))?;
    Ok(folder.join("out/drive.js"))
}

/// Runs a part and tells its name; what it says goes where this program's does.
fn step(name: &str, command: &mut Command) -> Result<(), String> {
    say(&format!("── {name}"));
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {} ended with {status}", command.get_program().to_string_lossy())),
        Err(error) => Err(format!("{name}: {} cannot be started: {error}", command.get_program().to_string_lossy())),
    }
}

/// A server on a folder of its own. Dropping it kills it.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(root: &Path, folder: &Path) -> Result<Self, String> {
        let data = folder.join("data");
        if data.exists() {
            fs::remove_dir_all(&data).map_err(|error| error.to_string())?;
        }
        let mut command = Command::new(crate::target_dir(root).join("debug/aetheris"));
        command.arg("dev").arg("--data").arg(&data).args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let process = command.spawn().map_err(|error| format!("the server cannot be started: {error}"))?;
        let mut server = Self { process, url: String::new() };
        let mut line = String::new();
        if let Some(out) = server.process.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(|error| error.to_string())?;
        }
        server.url = url(&line).ok_or_else(|| format!("the server does not say where it listens: {line:?}"))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The address in what a server says first.
fn url(line: &str) -> Option<String> {
    let start = line.find("http://")?;
    line[start..].split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_where_it_listens() {
        let line = "aetheris dev: listening on http://127.0.0.1:41234\n";
        assert_eq!(url(line).as_deref(), Some("http://127.0.0.1:41234"));
        assert_eq!(url("aetheris: the folder is in use\n"), None);
    }

    #[test]
    fn a_part_that_fails_or_is_missing_is_named() {
        assert!(step("good", &mut Command::new("true")).is_ok());
        assert!(step("bad", &mut Command::new("false")).unwrap_err().starts_with("bad: false ended with"));
        let missing = step("gone", &mut Command::new("no-such-program-here")).unwrap_err();
        assert!(missing.starts_with("gone: no-such-program-here cannot be started"), "{missing}");
    }
}
