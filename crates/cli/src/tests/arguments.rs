//! The command line.

use aetheris_core::id::IdempotencyKey;
use aetheris_core::time::Span;
use clap::{CommandFactory, Parser};

use super::samples::{JOB, KEY};
use crate::args::{Args, Color, Command, InDoubtAction};

fn parse(line: &str) -> Args {
    Args::try_parse_from(words(line)).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn refused(line: &str) -> String {
    match Args::try_parse_from(words(line)) {
        Ok(_) => panic!("{line} was accepted"),
        Err(error) => {
            assert_eq!(error.exit_code(), 2, "{line}");
            error.to_string()
        }
    }
}

fn words(line: &str) -> Vec<&str> {
    std::iter::once("aetheris").chain(line.split_whitespace()).collect()
}

#[test]
fn the_definition_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn every_shown_command_has_an_example_and_hidden_ones_are_not_shown() {
    let help = Args::command().render_long_help().to_string();
    for command in Args::command().get_subcommands() {
        let name = command.get_name();
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert_eq!(command.is_hide_set(), !help.contains(&format!("\n  {name} ")), "{name}");
        assert!(command.is_hide_set() || after.contains("aetheris "), "{name}");
    }
}

#[test]
fn global_options_stand_before_or_after_the_command() {
    for line in
        ["--json --server http://h:1 -vv --color never jobs", "jobs --json --server http://h:1 -vv --color never"]
    {
        let args = parse(line);
        assert!(args.global.json, "{line}");
        assert_eq!(args.global.server.as_deref(), Some("http://h:1"), "{line}");
        assert_eq!((args.global.verbose, args.global.color), (2, Color::Never), "{line}");
    }
}

/// Not what the environment or a default answers as well.
#[test]
fn a_usage_line_names_what_is_missing_only() {
    let told = refused("show");
    assert!(told.contains("Usage: aetheris show") && told.contains("<JOB>") && !told.contains("--server"), "{told}");
}

#[test]
fn send_takes_all_its_options() {
    let line = "send refund hello --wait --timeout 30s --session s1 --key k1 --label a=b --label c=d=e --deadline 72h --priority -3 --run-at 2026-11-21T09:30:00+01:00";
    let Command::Send(send) = parse(line).command else { panic!("send was expected") };
    assert_eq!((send.agent.as_str(), send.message.as_str(), send.wait), ("refund", "hello", true));
    assert_eq!(send.timeout, Some(Span::from_secs(30)));
    assert_eq!(send.deadline, Some(Span::from_secs(72 * 3600)));
    assert_eq!((send.session.as_deref(), send.key.as_deref()), (Some("s1"), Some("k1")));
    let labels = [("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d=e".to_owned())];
    assert_eq!(send.labels, labels);
    assert_eq!(send.priority, Some(-3));
    assert_eq!(send.run_at.unwrap().to_string(), "2026-11-21T08:30:00.000000Z");
    assert!(refused("send refund hello --run-at tomorrow").contains("expected RFC 3339"));
    let Command::Send(send) = parse("send greeter -").command else { panic!("send was expected") };
    assert_eq!(send.message, "-");
}

#[test]
fn jobs_are_narrowed_to_several_statuses() {
    let Command::Jobs(jobs) = parse("jobs --status pending,parked").command else { panic!("jobs was expected") };
    assert_eq!(jobs.status, ["pending", "parked"]);
    assert!(refused("jobs --status pending,done").contains("completed"));
}

/// A server ends a key at the first of both, and would list the jobs of another label.
#[test]
fn a_labels_key_has_no_separator() {
    for line in ["send refund hi --label a:b=c", "jobs --label a:b=c"] {
        assert!(refused(line).contains("a label's key has no `:`"), "{line}");
    }
    let Command::Jobs(jobs) = parse("jobs --label a=b:c=d").command else { panic!("jobs was expected") };
    assert_eq!(jobs.label, Some(("a".to_owned(), "b:c=d".to_owned())));
}

#[test]
fn what_cannot_be_right_is_refused_with_exit_2() {
    assert!(refused("send refund").contains("MESSAGE"));
    assert!(refused("send refund hi --timeout 3s").contains("--wait"));
    assert!(refused("send refund hi --label nonsense").contains("expected KEY=VALUE"));
    assert!(refused("send refund hi --deadline soon").contains("is not a duration"));
    assert!(refused("jobs --status done").contains("completed"));
    assert!(refused("jobs --limit 0").contains("expected a whole number from 1 to 500"));
    for (line, expected) in [
        ("jobs --limit 501", "expected a whole number from 1 to 500"),
        ("jobs --limit -1", "expected a whole number from 1 to 500"),
        ("send refund hi --priority high", "expected a whole number from -2147483648 to 2147483647"),
        ("send refund hi --priority 2147483648", "expected a whole number from"),
        ("events J --after -1", "expected the `seq` of an event"),
        ("in-doubt resolve J --permit one --happened --note n", "expected the number of a permit"),
    ] {
        let said = refused(line);
        assert!(said.contains(expected) && !said.contains("digit"), "{line}: {said}");
    }
    assert!(refused("jobs --limit 5 --all").contains("--all"));
    assert!(refused("watsh job_1").contains("watch"));
    let resolve = |rest: &str| refused(&format!("in-doubt resolve J {KEY} {rest}"));
    assert!(resolve("--note n").contains("--happened"));
    assert!(resolve("--happened").contains("--note"));
    assert!(resolve("--happened --did-not-happen --note n").contains("cannot be used with"));
    assert!(resolve("--did-not-happen --result 1 --note n").contains("--result"));
    assert!(refused("dev --data x --ephemeral").contains("--ephemeral"));
    assert!(refused("check-consistency --data d --config f").contains("cannot be used with"));
    assert!(refused("serve").contains("--config"));
}

#[test]
fn dev_takes_several_agents() {
    let Command::Dev(dev) = parse("dev --agent a.yaml --agent b.yaml --listen 127.0.0.1:0").command else {
        panic!("dev was expected")
    };
    assert_eq!(dev.agents.len(), 2);
    assert_eq!(dev.listen.as_deref(), Some("127.0.0.1:0"));
    assert_eq!(dev.data, None);
}

#[test]
fn a_key_may_begin_like_an_option() {
    let Command::Signal(signal) = parse("signal -- J --server=http://evil {}").command else {
        panic!("signal was expected")
    };
    assert_eq!(
        (signal.job.as_str(), signal.key.as_str(), signal.payload.as_str()),
        ("J", "--server=http://evil", "{}")
    );
}

/// Before anything is asked, with a permit or without one.
#[test]
fn what_is_no_invocation_is_told_as_none() {
    for odd in ["pay", "INVOCATION", "job_01JD0000000000000000000001", &KEY[..29], "key_81JD0000000000000000000009"] {
        for permit in ["", "--permit 1"] {
            let said = refused(&format!("in-doubt resolve J {odd} {permit} --happened --note n"));
            let expected = format!("`{odd}` is not an invocation id: expected `key_` and 26 characters");
            assert!(said.contains(&expected), "{said}");
        }
    }
}

#[test]
fn in_doubt_lists_by_itself() {
    let action = |line: &str| match parse(line).command {
        Command::InDoubt(given) => given.action,
        other => panic!("in-doubt was expected, not {other:?}"),
    };
    assert!(action("in-doubt").is_none());
    // As for every other command, the job may stand by itself.
    assert!(action("in-doubt job_01JD0000000000000000000001").is_none());
    assert!(matches!(action("in-doubt list"), Some(InDoubtAction::List(_))));
    let named = Some(KEY.parse::<IdempotencyKey>().unwrap());
    for key in [KEY.to_owned(), KEY.to_lowercase()] {
        let Some(InDoubtAction::Resolve(given)) =
            action(&format!("in-doubt resolve J {key} --happened --result {{}} --note seen"))
        else {
            panic!("resolve was expected")
        };
        assert_eq!((given.happened, given.note.as_str(), given.invocation), (true, "seen", named));
    }
}

/// What is advised is understood as it was meant.
#[test]
fn the_list_of_doubts_is_narrowed_to_a_job() {
    let listed = |line: &str| match parse(line).command {
        Command::InDoubt(given) => (given.action.is_none(), given.list.unresolved, given.list.job),
        other => panic!("in-doubt was expected, not {other:?}"),
    };
    let advice = aetheris_api::Command::Unresolved(JOB.parse().unwrap()).line("aetheris");
    let line = advice.strip_prefix("aetheris ").unwrap();
    assert_eq!(listed(line), (true, true, Some(JOB.to_owned())));
    assert_eq!(listed(&format!("in-doubt --job {JOB}")), (true, false, Some(JOB.to_owned())));
    assert_eq!(listed("in-doubt --unresolved"), (true, true, None));
    assert!(refused("in-doubt --job").contains("JOB"));
    refused(&format!("in-doubt --job {JOB} resolve {JOB} --happened --note n"));
}

#[test]
fn commands_that_this_build_lacks_are_named_whatever_follows() {
    for name in ["retry", "replan", "fork", "export", "tasks", "chat", "schedules", "doctor", "migrate"] {
        let args = parse(&format!("{name} job_1 --from node --anything"));
        assert_eq!(args.command.not_yet(), Some(name));
    }
    assert_eq!(parse("jobs").command.not_yet(), None);
}
