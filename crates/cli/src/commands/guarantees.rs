//! `guarantees`: what is promised, and what is not. Nothing here may be stronger than the specification.

use serde_json::json;

use super::Context;
use super::guarantee::Guarantee;
use crate::error::Error;
use crate::exit::Exit;
use crate::render::{Style, Tone, wrap};

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
    let promises: Vec<&str> = Guarantee::promises().collect();
    if context.out.json {
        context.out.value(&json!({ "guaranteed": promises, "not_guaranteed": NOT_GUARANTEED }))?;
        return Ok(Exit::Done);
    }
    let style = context.out.style;
    let mut text = format!("{}\n", style.paint(Tone::Strong, "What is guaranteed, exactly, and nothing stronger"));
    text.extend(promises.iter().map(|line| item(&style.paint(Tone::Good, "✓"), line, style)));
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
