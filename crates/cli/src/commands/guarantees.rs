//! `guarantees`: what is promised, and what is not. Nothing here may be stronger than the specification.

use serde_json::json;

use super::Context;
use crate::error::Error;
use crate::exit::Exit;
use crate::render::{Style, Tone, wrap};

/// What is promised: the first column of docs/guarantees.md, word for word.
const GUARANTEED: [&str; 10] = [
    "A call of an `at_most_once` tool is sent at most once per recorded permission.",
    "A second permission needs proof or a person.",
    "Where the outside outcome cannot be known, the job says so.",
    "An acknowledged job or signal is not lost while the store keeps what it acknowledged.",
    "No writer without the newest fence changes a job.",
    "A never-retry tool's body starts at most once per key.",
    "An idempotent tool may be called again with the same key.",
    "Replay calls nothing.",
    "Every decision can be replayed and audited.",
    "A wait ends exactly once, whatever is repeated or raced.",
];

/// What is not.
const NOT_GUARANTEED: [&str; 7] = [
    "A process frozen between its last check and its send for longer than every bound: no runtime can promise \
     that such a call does not arrive late. A tool that honours the key (Idempotency-Key) or the fence header \
     (Aetheris-Fence) closes this gap.",
    "A receiver may act on a call long after we have given it up: it stood in a queue. A reconcile tool that only \
     looks is asked after the deadline and `settle`; one with `refuses: true`, or a receiver that recognises the \
     key, closes this gap.",
    "Calls of idempotent tools may be sent again, always with the same key. Calls of pure tools may be sent again.",
    "A crash before a model's answer is recorded asks the model again: tokens twice, no effect twice.",
    "What the disk loses after it has said that it is written is lost. SQLite's processes share one host and no \
     network file system.",
    "With --ephemeral or a jobstore of type memory nothing outlives the process.",
    "A data folder that is put back as a whole cannot be told from the newest one: what was done since is done again. \
     `aetheris restore` puts a backup in place and holds what was unfinished in it.",
];

pub(super) fn run(context: &Context) -> Result<Exit, Error> {
    if context.out.json {
        context.out.value(&json!({ "guaranteed": GUARANTEED, "not_guaranteed": NOT_GUARANTEED }))?;
        return Ok(Exit::Done);
    }
    let style = context.out.style;
    let mut text = format!("{}\n", style.paint(Tone::Strong, "What is guaranteed, exactly, and nothing stronger"));
    text.extend(GUARANTEED.iter().map(|line| item(&style.paint(Tone::Good, "✓"), line, style)));
    text.push_str(&format!("\n{}\n", style.paint(Tone::Strong, "What is not")));
    text.extend(NOT_GUARANTEED.iter().map(|line| item(&style.paint(Tone::Attention, "–"), line, style)));
    context.out.text(&text)?;
    Ok(Exit::Done)
}

/// Most columns of a line.
const COLUMNS: usize = 96;

/// A sign and a text in lines of a bounded width.
fn item(sign: &str, text: &str, style: Style) -> String {
    let columns = style.columns.map_or(COLUMNS, |columns| columns.min(COLUMNS));
    format!("  {sign} {}\n", wrap(text, Some(columns), 4, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_promises_what_the_page_does() {
        let page = include_str!("../../../../docs/guarantees.md");
        let table = page.split("\n## ").find(|part| part.starts_with("What is guaranteed")).unwrap();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        assert_eq!(rows.skip(1).collect::<Vec<_>>(), GUARANTEED);
    }
}
