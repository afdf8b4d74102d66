use std::process::Command;

use crate::markdown::Block;
use aetheris_harness::Folder;

use crate::terminal::Desk;

/// The commands that `init` prints, in the order of its terminals.
fn printed_commands(folder: &Folder) -> Vec<Vec<String>> {
    let made = Command::new(env!("CARGO_BIN_EXE_aetheris")).args(["init", "hello"]).current_dir(folder).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{made:?}");
    let text = String::from_utf8(made.stdout).unwrap();
    let mut terminals = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("  ") {
            Some(command) => terminals.last_mut().map_or((), |lines: &mut Vec<String>| lines.push(command.to_owned())),
            None if line.ends_with(':') => terminals.push(Vec::new()),
            None => {}
        }
    }
    terminals
}

#[test]
fn what_init_writes_runs_as_it_says() {
    let folder = Folder::new("init");
    let terminals = printed_commands(&folder);
    assert_eq!(terminals.len(), 2, "{terminals:?}");
    let mut desk = Desk::new(&folder, &[8080]);
    let block = |name: &str, lines: &[String]| Block {
        language: "sh".to_owned(),
        name: name.to_owned(),
        lines: lines.to_vec(),
    };
    desk.start(&block("server", &terminals[0]));
    let printed = desk.run(&block("client", &terminals[1]));
    assert!(printed.contains("\"text\": \"Hello Ada, welcome!\""), "{printed}");
    // Of a job that ends while it is watched the events are told, of one that had ended how it ended.
    assert!(printed.contains("hello completed") || printed.contains("job_completed"), "{printed}");

    let again = Command::new(env!("CARGO_BIN_EXE_aetheris")).args(["init", "hello"]).current_dir(&folder).output();
    let again = again.unwrap();
    assert_eq!(again.status.code(), Some(4), "{again:?}");
    assert!(String::from_utf8(again.stderr).unwrap().contains("exists: nothing was written"));
    // Killed at any instant, and by its own number alone.
    let pid = std::fs::read_to_string(folder.join("hello/data/aetheris.pid")).unwrap();
    assert!(pid.trim().parse::<u32>().is_ok(), "{pid}");
}

/// An agent's file is never the configuration's, and a second agent goes with the configuration of the first.
#[test]
fn init_refuses_the_configurations_name() {
    let folder = Folder::new("init-name");
    let init = |arguments: &[&str]| {
        let ran =
            Command::new(env!("CARGO_BIN_EXE_aetheris")).arg("init").args(arguments).current_dir(&folder).output();
        let ran = ran.unwrap();
        (ran.status.code(), String::from_utf8(ran.stdout).unwrap() + &String::from_utf8(ran.stderr).unwrap())
    };
    let (code, said) = init(&["aetheris", "agents"]);
    assert!(code == Some(2) && said.contains("give the agent another"), "{said}");
    assert!(!folder.join("agents").exists());
    assert_eq!(init(&["first", "agents"]).0, Some(0));
    let (code, said) = init(&["second", "agents"]);
    assert!(code == Some(0) && said.contains("made second.yaml; kept the existing aetheris.yaml"), "{said}");
    assert!(said.contains("aetheris agent put second.yaml"), "{said}");
    assert!(said.contains("where aetheris.yaml says another server.listen"), "{said}");
    std::fs::create_dir_all(folder.join("odd/aetheris.yaml")).unwrap();
    let (code, said) = init(&["third", "odd"]);
    assert!(code == Some(4) && said.contains("aetheris.yaml exists and is no file: nothing was written"), "{said}");
    assert!(!folder.join("odd/third.yaml").exists());
    // Nor is a link that leads nowhere.
    std::fs::create_dir_all(folder.join("linked")).unwrap();
    std::os::unix::fs::symlink("nowhere.yaml", folder.join("linked/aetheris.yaml")).unwrap();
    let (code, said) = init(&["fourth", "linked"]);
    assert!(code == Some(4) && said.contains("aetheris.yaml exists and is no file: nothing was written"), "{said}");
    assert!(!folder.join("linked/fourth.yaml").exists());
    // Nor is one in the agent's own place written over or through.
    std::fs::create_dir_all(folder.join("own")).unwrap();
    std::os::unix::fs::symlink("nowhere.yaml", folder.join("own/fourth.yaml")).unwrap();
    let (code, said) = init(&["fourth", "own"]);
    assert!(code == Some(4) && said.contains("fourth.yaml exists: nothing was written"), "{said}");
    assert!(!folder.join("own/aetheris.yaml").exists() && !folder.join("own/nowhere.yaml").exists());
}

/// A slip of the fingers does not use up the approval.
#[test]
fn a_mistyped_approval_of_what_init_writes_is_refused() {
    let folder = Folder::new("init-slip");
    let terminals = printed_commands(&folder);
    let mut desk = Desk::new(&folder, &[8080]);
    let block = |name: &str, lines: &[String]| Block {
        language: "sh".to_owned(),
        name: name.to_owned(),
        lines: lines.to_vec(),
    };
    desk.start(&block("server", &terminals[0]));
    let slips = terminals[1].iter().map(|line| line.replace("approved", "aproved"));
    let lines: Vec<String> = slips.filter(|line| !line.contains("watch")).collect();
    let printed = desk.run(&block("client", &lines));
    assert!(printed.contains("invalid_payload"), "{printed}");
    let printed = desk.run(&block("client", &terminals[1][terminals[1].len() - 2..]));
    assert!(printed.contains("\"text\": \"Hello Ada, welcome!\""), "{printed}");
}

/// What YAML takes for a number or a constant is a name all the same.
#[test]
fn a_name_that_looks_like_another_value_is_written_as_a_name() {
    let folder = Folder::new("init-scalar");
    let aetheris = |arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_aetheris")).args(arguments).current_dir(&folder).output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {ran:?}");
    };
    for name in ["123", "1e3", "null", "true"] {
        aetheris(&["init", name]);
        aetheris(&["agent", "check", &format!("{name}/{name}.yaml")]);
        let text = std::fs::read_to_string(folder.join(name).join(format!("{name}.yaml"))).unwrap();
        assert!(text.contains(&format!("\nagent: \"{name}\"\n")), "{text}");
    }
}

#[test]
fn a_name_that_is_no_agents_is_refused_and_nothing_is_written() {
    let folder = Folder::new("init-name");
    for name in ["No Name", "x\" #", ""] {
        let made = Command::new(env!("CARGO_BIN_EXE_aetheris")).args(["init", name]).current_dir(&folder).output();
        assert_eq!(made.unwrap().status.code(), Some(2), "{name}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{name}");
    }
}
