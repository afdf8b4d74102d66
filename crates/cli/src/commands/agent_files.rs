//! Agent files as commands read them: all of them, with every mistake of each.

use std::io::Read;
use std::path::{Path, PathBuf};

use aetheris_agentfile::{Code, FileError};
use aetheris_core::agent::Agent;
use serde_json::{Value, json};

use crate::error::{Error, counted};
use crate::payload;
use crate::render::safe;

/// A file, and what is in it or why nothing can be said of it.
pub(super) struct Checked<'f> {
    pub(super) path: &'f Path,
    pub(super) parsed: Result<Good, Bad>,
}

/// A file without a mistake.
pub(super) struct Good {
    pub(super) agent: Agent,
    pub(super) text: String,
}

/// A file that cannot be used.
pub(super) enum Bad {
    Mistakes(Vec<FileError>),
    Unreadable(String),
}

/// Reads files; `-` is stdin. One that cannot be read hides nothing of the others.
pub(super) fn read(files: &[PathBuf]) -> Vec<Checked<'_>> {
    files.iter().map(|path| Checked { path, parsed: one(path) }).collect()
}

fn one(path: &Path) -> Result<Good, Bad> {
    let text = text(path, std::io::stdin()).map_err(|error| Bad::Unreadable(error.to_string()))?;
    match aetheris_agentfile::parse(&text) {
        Ok(agent) => Ok(Good { agent, text }),
        Err(_) if is_configuration(&text) => {
            let message = "this is a configuration and no agent file: `aetheris config check --config FILE` checks it";
            Err(Bad::Mistakes(vec![FileError {
                code: Code::Syntax,
                line: 1,
                message: message.to_owned(),
                path: String::new(),
            }]))
        }
        Err(mistakes) => Err(Bad::Mistakes(mistakes)),
    }
}

/// Whether a text has sections of a configuration, and nothing that every agent file has.
fn is_configuration(text: &str) -> bool {
    let has = |key: &str| text.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')));
    let sections = ["server", "jobstore", "worker", "models"];
    sections.into_iter().any(has) && !has("agent") && !has("plan")
}

fn text(path: &Path, mut stdin: impl Read) -> Result<String, Error> {
    if path.as_os_str() != "-" {
        return payload::file(path);
    }
    let mut text = String::new();
    let read = stdin.read_to_string(&mut text);
    read.map(|_| text).map_err(|source| Error::File { path: PathBuf::from("stdin"), source })
}

/// Whether every file can be used.
pub(super) fn all_good(files: &[Checked<'_>]) -> bool {
    files.iter().all(|file| file.parsed.is_ok())
}

/// Every mistake of every file on a line, and their count at the end.
pub(super) fn mistakes(files: &[Checked<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    for file in files {
        match &file.parsed {
            Ok(_) => {}
            Err(Bad::Unreadable(why)) => lines.push(safe::one_line(why)),
            Err(Bad::Mistakes(errors)) => {
                for error in errors {
                    let path = if error.path.is_empty() { String::new() } else { format!("{}: ", error.path) };
                    let line = format!("{}:{}: {path}{}", shown(file.path), error.line, error.message);
                    lines.push(safe::one_line(&line));
                }
            }
        }
    }
    if !lines.is_empty() {
        lines.push(counted(lines.len(), "mistake"));
    }
    lines
}

/// The same for `--json`.
pub(super) fn report(files: &[Checked<'_>]) -> Value {
    let of = |file: &Checked<'_>| match &file.parsed {
        Ok(Good { agent, .. }) => json!({
            "file": file.path, "ok": true, "agent": agent.agent, "version": agent.version, "errors": [],
        }),
        Err(Bad::Mistakes(errors)) => json!({ "file": file.path, "ok": false, "errors": errors }),
        Err(Bad::Unreadable(why)) => {
            let error = json!({ "code": "unreadable", "line": 1, "message": why, "path": "" });
            json!({ "file": file.path, "ok": false, "errors": [error] })
        }
    };
    let files: Vec<Value> = files.iter().map(of).collect();
    json!({ "ok": files.iter().all(|file| file["ok"] == true), "files": files })
}

/// A file's name for people.
pub(super) fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "stdin".to_owned() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    #[test]
    fn a_dash_is_what_comes_in() {
        assert_eq!(text(Path::new("-"), &b"agent: a"[..]).unwrap(), "agent: a");
        let error = text(Path::new("-"), &b"\xff"[..]).unwrap_err();
        assert!(error.to_string().contains("stdin"), "{error}");
        assert!(text(Path::new("/does/not/exist"), &b"agent: a"[..]).is_err());
        assert_eq!(shown(Path::new("-")), "stdin");
    }

    #[test]
    fn one_file_that_cannot_be_read_hides_nothing_of_the_others() {
        let folder = Folder::new("agent-files");
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let good = "agent: a\nplan: { nodes: [{ id: n, kind: transform, output: 1 }] }\n";
        let paths = [
            file("first.yaml", "agent: A\nplan: { nodes: [] }\n"),
            folder.join("gone.yaml"),
            file("good.yaml", good),
            file("last.yaml", "agent: b\n"),
            file("settings.yaml", "server: { listen: \"127.0.0.1:1\" }\ntools: { http: { allow: [] } }\n"),
            file("red.yaml", "agent: \"\\e[31mred\"\nplan: { nodes: [{ id: n, kind: transform, output: 1 }] }\n"),
        ];
        let files = read(&paths);
        assert!(!all_good(&files));
        let lines = mistakes(&files);
        let at = |name: &str| lines.iter().filter(|line| line.contains(name)).count();
        assert_eq!((at("first.yaml"), at("gone.yaml"), at("good.yaml"), at("last.yaml")), (2, 1, 0, 1), "{lines:#?}");
        let settings = lines.iter().find(|line| line.contains("settings.yaml")).unwrap();
        assert!(settings.contains("settings.yaml:1: this is a configuration and no agent file"), "{settings}");
        assert_eq!(lines.last().map(String::as_str), Some("6 mistakes"));
        assert!(
            at("red.yaml") == 1 && !lines.concat().contains('\u{1b}'),
            "what a file says moves no cursor: {lines:#?}"
        );
        let report = report(&files);
        let ok: Vec<_> = report["files"].as_array().unwrap().iter().map(|file| file["ok"] == true).collect();
        assert_eq!((report["ok"].as_bool(), ok), (Some(false), vec![false, false, true, false, false, false]));
        assert_eq!(report["files"][1]["errors"][0]["code"], "unreadable");
    }
}
