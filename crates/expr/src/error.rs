//! Why a template or condition is refused or fails.

use aetheris_core::event::Draw;
use aetheris_core::limits;

/// Why a template or condition is refused when it is checked, or fails when it is rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// It is not written in the language of templates.
    #[error("{message}{}", place(*.line))]
    Syntax {
        /// What is wrong and what to write instead.
        message: String,
        /// The line inside the template, where it has more than one.
        line: Option<u32>,
    },
    /// It names a value that does not exist.
    #[error("`{name}` is not defined: correct the name, or give a fallback with `| default(...)`")]
    Undefined {
        /// The name, as far as it could be followed.
        name: String,
    },
    /// It names a node that has not ended, of which nothing can be known before what names it starts.
    #[error("`{name}` is not known yet")]
    Early {
        /// The name.
        name: String,
    },
    /// It names a value that exists, but not at this place.
    #[error("`{name}` cannot be used here: {}", allowed(.name))]
    NotAllowedHere {
        /// The first part of the name.
        name: String,
    },
    /// It asks for a value that nobody can compute again and that is not recorded.
    #[error("`{}()` is not recorded for this step", .draw.function())]
    Unrecorded {
        /// What it asks for.
        draw: Draw,
    },
    /// It names what only templates of judged nodes, or of critics, see.
    #[error("`{name}` cannot be used here: {}", of_rounds(.name))]
    NoRounds {
        /// The name.
        name: String,
    },
    /// It asks for more work than one template, or all templates of one value, may do.
    #[error(
        "the template does more than {} units of work, or all templates of this value together more than {}: use smaller loops and values",
        limits::TEMPLATE_FUEL,
        limits::VALUE_FUEL
    )]
    Budget,
    /// It is too long, or what it makes is too large or nested too deep.
    #[error(
        "the template is longer than {} bytes, or what it makes is larger than {} bytes or deeper than {} levels",
        limits::TEMPLATE_BYTES_MAX,
        limits::TEMPLATE_OUTPUT_BYTES_MAX,
        limits::JSON_DEPTH_MAX
    )]
    TooLarge,
    /// A value would be, or be part of, the host of a tool's address.
    #[error(
        "`{name}` is part of the host, so that whoever sends it chooses whom the tool calls: write the host out, take it from `env.NAME`, or add `| raw` if that is meant"
    )]
    Host {
        /// The value, as its author named it.
        name: String,
    },
    /// Nothing would be the host of a tool's address, so that URL readers take what follows for it.
    #[error(
        "the host may be empty here, and what follows would be taken for it: write a host in every branch, with an `else`"
    )]
    NoHost,
    /// A value would make another path of a tool's address.
    #[error(
        "a path segment that a template is part of {what}, which would call another address: check the value before, or add `| raw` if that is meant"
    )]
    Segment {
        /// What is wrong with the segment.
        what: &'static str,
    },
    /// An operation does not fit the values it got.
    #[error("{message}")]
    Failed {
        /// What does not fit.
        message: String,
    },
}

impl ExprError {
    pub(crate) fn syntax(message: impl Into<String>, line: u32) -> Self {
        Self::Syntax { message: message.into(), line: (line > 1).then_some(line) }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into() }
    }
}

/// A name from a template or a value for a message, cut where it is long: a message is no place for a large value, and
/// making it takes no longer than a step.
pub(crate) fn shortened(name: &str) -> String {
    const SHOWN_MAX: usize = 80;
    match name.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

fn place(line: Option<u32>) -> String {
    line.map(|line| format!(" (line {line} of the template)")).unwrap_or_default()
}

fn of_rounds(name: &str) -> &'static str {
    match name {
        "output" => {
            "by itself it exists only in a critic; use `nodes.<id>.output`, and in a further round `feedback`: a round does not see the output before it"
        }
        "feedback" => "it exists only in a node with `validate` or `critic`, not in its `when`",
        _ => "it exists only in a critic, and in a node with `validate` or `critic`, not in its `when`",
    }
}

fn allowed(name: &str) -> &'static str {
    match name {
        "env" => "environment variables exist only in a tool's url and headers",
        "raw" => "this filter is for a tool's url, where values are percent-encoded",
        "input" => "it exists only in tools; use `message` or `nodes.<id>.output`",
        "now()" | "random()" | "uuid()" => {
            "it is recorded once for a step; make a `transform` of it and name its output"
        }
        "message" | "nodes" => "it exists only in the plan; in a tool use `input`",
        _ => "no value of this name is at hand",
    }
}
