//! What is said to arguments that cannot be right: the help of the command that was meant, and names that
//! are really near.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Parser};

use super::Args;
use crate::config::nearest;

/// Reads the arguments of one call.
///
/// # Errors
/// What is to be printed instead: help, the version, or what is wrong.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    Args::try_parse_from(&arguments).map_err(|refusal| match refusal.kind() {
        ErrorKind::MissingSubcommand => {
            let help = format!("which command?\n\n{}", meant(&arguments).render_help());
            clap::Error::raw(ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, help)
        }
        ErrorKind::InvalidSubcommand => with_near_names(refusal, &meant(&arguments)),
        _ => refusal,
    })
}

/// The command that the arguments name, as far as they name one.
fn meant(arguments: &[OsString]) -> Command {
    let mut command = Args::command();
    command.build();
    for word in arguments.iter().skip(1).filter_map(|argument| argument.to_str()) {
        if let Some(below) = command.find_subcommand(word) {
            command = below.clone();
        }
    }
    command
}

/// The same refusal with the one name that can be meant, or none.
fn with_near_names(mut refusal: clap::Error, command: &Command) -> clap::Error {
    let Some(ContextValue::String(given)) = refusal.get(ContextKind::InvalidSubcommand) else { return refusal };
    let names = command.get_subcommands().filter(|known| !known.is_hide_set()).map(Command::get_name);
    let near = nearest(given, names).map(str::to_owned);
    refusal.remove(ContextKind::SuggestedSubcommand);
    refusal.remove(ContextKind::Suggested);
    if let Some(near) = near {
        refusal.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near]));
    }
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> (i32, String) {
        let words = std::iter::once("aetheris").chain(line.split_whitespace()).map(OsString::from);
        let refusal = parse(words).err().unwrap_or_else(|| panic!("{line} was accepted"));
        (refusal.exit_code(), refusal.to_string())
    }

    #[test]
    fn a_command_without_its_word_shows_its_own_help() {
        for (line, own) in [("agent", "agent check"), ("config", "config show"), ("agent --json", "agent check")] {
            let (exit, help) = said(line);
            assert_eq!(exit, 2, "{line}");
            assert!(help.contains(&format!("aetheris {own}")) && !help.contains("Start here"), "{line}: {help}");
        }
        let (exit, help) = said("");
        assert!(exit == 2 && help.contains("Start here"), "{help}");
    }

    #[test]
    fn help_is_a_command() {
        let (exit, help) = said("help");
        assert!(exit == 0 && help.contains("Start here"), "{help}");
        let (exit, help) = said("help send");
        assert!(exit == 0 && help.contains("aetheris send refund"), "{help}");
    }

    #[test]
    fn only_near_names_are_offered() {
        let (exit, text) = said("watsh job_1");
        assert!(exit == 2 && text.contains("'watch'"), "{text}");
        for (line, unlike) in [("nosuch", "bench"), ("agent remove", "similar")] {
            let (exit, text) = said(line);
            assert!(exit == 2 && !text.contains(unlike), "{line}: {text}");
        }
        assert!(said("agent chek").1.contains("'check'"));
    }
}
