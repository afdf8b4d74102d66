//! Help that fits the terminal. The parser's own wrapping would need a terminal library more.

use crate::render::{width, wrap};

/// Widest help: longer lines are hard to read.
const COLUMNS_MAX: usize = 100;
/// Fewest columns for what stands beside an option; where there are fewer, it goes on below it.
const BESIDE_MIN: usize = 24;

/// Help as the parser gives it, each line within so many columns. Commands to copy stay on one line.
#[must_use]
pub fn fitted(text: &str, columns: Option<usize>) -> String {
    let columns = columns.unwrap_or(COLUMNS_MAX).min(COLUMNS_MAX);
    let mut fitted: String = text.lines().map(|line| format!("{}\n", fit(line, columns))).collect();
    if !text.ends_with('\n') {
        fitted.pop();
    }
    fitted
}

fn fit(line: &str, columns: usize) -> String {
    let words = line.trim_start();
    let before = width(line) - width(words);
    let is_command = before > 0
        && (words.starts_with("aetheris ") || words.starts_with("AETHERIS_") || words.contains(" | aetheris "));
    if width(line) <= columns || is_command {
        return line.to_owned();
    }
    let indent = beside(words).map_or(before, |at| before + at);
    let indent = if indent + BESIDE_MIN > columns { before + 4 } else { indent };
    wrap(line, Some(columns), 0, indent)
}

/// Where the text beside an option or a command begins.
fn beside(words: &str) -> Option<usize> {
    let gap = words.find("  ")?;
    let rest = &words[gap..];
    let text = rest.trim_start();
    (!text.is_empty()).then(|| width(&words[..gap]) + rest.len() - text.len())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// The help of every command, with those below it.
    fn all(command: &clap::Command) -> Vec<String> {
        let below = command.get_subcommands().flat_map(all);
        below
            .chain([command.clone().render_help().to_string(), command.clone().render_long_help().to_string()])
            .collect()
    }

    #[test]
    fn help_is_within_the_terminal_and_loses_nothing() {
        let mut command = super::super::Args::command();
        command.build();
        for help in all(&command) {
            for columns in [60, 80, 100, 200] {
                let fitted = fitted(&help, Some(columns));
                let is_command =
                    |line: &str| line.trim_start().starts_with("aetheris ") || line.contains(" | aetheris ");
                for line in fitted.lines().filter(|line| !is_command(line)) {
                    // A name with its values may be longer by itself.
                    let word = line.split_whitespace().map(width).max().unwrap_or(0);
                    assert!(width(line) <= columns || word + 8 > columns, "{columns}: {line}\n{help}");
                }
                let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(words(&fitted), words(&help), "{columns}");
            }
        }
    }

    #[test]
    fn what_stands_beside_an_option_stays_beside_it() {
        let line = "      --label <KEY=VALUE>  A label, as team=billing; may be repeated as often as one likes";
        let beside = " ".repeat(27);
        let expected = format!(
            "      --label <KEY=VALUE>  A label, as team=billing; may\n{beside}be repeated as often as one\n{beside}likes"
        );
        assert_eq!(fitted(line, Some(56)), expected);
        // Where there is no room beside it, it goes on below.
        let expected = "      --label <KEY=VALUE>  A label, as\n          team=billing; may be repeated\n          as often as one likes";
        assert_eq!(fitted(line, Some(40)), expected);
    }
}
