//! Why a template or condition is refused or fails.

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
    /// It names a value that exists, but not at this place.
    #[error("`{name}` cannot be used here: {}", allowed(.name))]
    NotAllowedHere {
        /// The first part of the name.
        name: String,
    },
    /// It asks for more work than one template may do.
    #[error("the template does more than {} units of work: use smaller loops and values", limits::TEMPLATE_FUEL)]
    Budget,
    /// It is too long, or what it makes is too large or nested too deep.
    #[error(
        "the template is longer than {} bytes, or what it makes is larger than {} bytes or deeper than {} levels",
        limits::TEMPLATE_BYTES_MAX,
        limits::TEMPLATE_OUTPUT_BYTES_MAX,
        limits::JSON_DEPTH_MAX
    )]
    TooLarge,
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

fn place(line: Option<u32>) -> String {
    line.map(|line| format!(" (line {line} of the template)")).unwrap_or_default()
}

fn allowed(name: &str) -> &'static str {
    match name {
        "env" => "environment variables exist only in a tool's url and headers",
        "input" => "it exists only in tools; use `message` or `nodes.<id>.output`",
        "message" | "nodes" => "it exists only in the plan; in a tool use `input`",
        _ => "no value of this name is at hand",
    }
}
