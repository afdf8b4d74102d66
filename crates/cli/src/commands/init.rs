//! `init`: a working agent, its configuration, and the commands to try it.

use std::io::Write;
use std::path::{Path, PathBuf};

use aetheris_api::shell::word;

use super::Context;
use crate::args;
use crate::error::Error;
use crate::exit::Exit;
use crate::render::{Style, Tone};

/// The agent's file; `NAME` stands for its name.
const AGENT: &str = include_str!("../../init/agent.yaml");
/// The configuration.
const CONFIG: &str = include_str!("../../init/aetheris.yaml");

/// The agent's name where nobody gives one.
const NAME: &str = "greeter";

/// Writes both files into a folder, which is made where it is not there. A configuration that is there stays and is used.
///
/// # Errors
/// The name is no agent's, its file is there already, or the folder cannot be written.
pub(super) fn run(given: &args::Init, context: &Context) -> Result<Exit, Error> {
    let name = given.name.as_deref().unwrap_or(NAME);
    let agent = AGENT.replace("NAME", name);
    // A name with a quote in it may still be a file's, and another name there.
    if !aetheris_agentfile::parse(&agent).is_ok_and(|parsed| parsed.agent.as_str() == name) {
        return Err(Error::Usage(format!("`{name}` is not the name of an agent: expected 1 to 64 of a-z 0-9 -")));
    }
    if name == "aetheris" {
        return Err(Error::Usage(
            "`aetheris` is the name of the configuration's file: give the agent another".to_owned(),
        ));
    }
    let folder = given.dir.clone().unwrap_or_else(|| PathBuf::from(name));
    let files = [(folder.join(format!("{name}.yaml")), agent.as_str()), (folder.join("aetheris.yaml"), CONFIG)];
    let [(agent_path, _), (config, _)] = &files;
    if agent_path.symlink_metadata().is_ok() {
        return Err(Error::Conflict(format!("{} exists: nothing was written", agent_path.display())));
    }
    if folder.symlink_metadata().is_ok() && !folder.is_dir() {
        return Err(Error::Conflict(format!("{} exists and is no folder: nothing was written", folder.display())));
    }
    // A second agent of a folder goes with the configuration that is there.
    let kept = config.is_file();
    // A folder, or a link that leads nowhere: found before anything is written.
    if !kept && config.symlink_metadata().is_ok() {
        return Err(Error::Conflict(format!("{} exists and is no file: nothing was written", config.display())));
    }
    let files = if kept { &files[..1] } else { &files[..] };
    let cannot = |path: &Path, error| Error::Other {
        message: format!("{} cannot be written: {error}", path.display()),
        exit: Exit::Failed,
    };
    std::fs::create_dir_all(&folder).map_err(|error| cannot(&folder, error))?;
    for (path, text) in files {
        // Whoever made it meanwhile keeps it.
        let made = std::fs::File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
        made.map_err(|error| cannot(path, error))?;
    }
    if context.out.json {
        let files: Vec<&PathBuf> = files.iter().map(|(path, _)| path).collect();
        context.out.value(&serde_json::json!({ "agent": name, "files": files }))?;
        return Ok(Exit::Done);
    }
    context.out.text(&told(name, &folder, kept, context.out.style))?;
    Ok(Exit::Done)
}

/// The commands, each on a line to copy.
fn told(name: &str, folder: &Path, kept: bool, style: Style) -> String {
    let dim = |text: &str| style.paint(Tone::Dim, text);
    let made = if kept {
        format!("made {name}.yaml; kept the existing aetheris.yaml")
    } else {
        format!("made {name}.yaml and aetheris.yaml")
    };
    // A name may begin as a flag does.
    let path = |path: String| if path.starts_with('-') { format!("./{path}") } else { path };
    let enter = format!("cd {}", word(&path(folder.display().to_string())));
    let file = path(format!("{name}.yaml"));
    let to = if name.starts_with('-') { format!("-- {name}") } else { name.to_owned() };
    let running = format!("  # or, where a server runs on this configuration: aetheris agent put {file}\n");
    let running = if kept { dim(&running) } else { String::new() };
    let elsewhere = "  # where aetheris.yaml says another server.listen: export AETHERIS_SERVER=http://HOST:PORT\n";
    let elsewhere = if kept { dim(elsewhere) } else { String::new() };
    format!(
        "{made} in {}\n\n\
         {}\n  {enter}\n  aetheris dev --config aetheris.yaml --agent {file}\n{running}\n\
         {}\n  {enter}\n{elsewhere}  JOB=$(aetheris send {to} '{{\"name\": \"Ada\"}}')\n  aetheris show $JOB\n  \
         aetheris signal $JOB approve-$JOB '{{\"approved\": true}}'\n  aetheris watch $JOB\n",
        folder.display(),
        dim("In one terminal, the server:"),
        dim("In another one:"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_begins_as_a_flag_is_printed_as_none() {
        let text = told("-x", Path::new("-x"), true, Style::default());
        for line in ["  cd ./-x\n", " --agent ./-x.yaml\n", "agent put ./-x.yaml\n", "$(aetheris send -- -x '{"] {
            assert!(text.contains(line), "{text}");
        }
        let text = told("x", Path::new("/x"), true, Style::default());
        for line in ["  cd /x\n", " --agent x.yaml\n", "agent put x.yaml\n", "$(aetheris send x '{"] {
            assert!(text.contains(line), "{text}");
        }
    }
}
