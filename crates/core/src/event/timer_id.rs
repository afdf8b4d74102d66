//! The names of durable timers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::path::StepPath;

/// A durable timer's name, unique in its job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerId {
    /// The job's deadline.
    Deadline,
    /// A doubt's wait.
    Doubt(StepPath),
    /// A wait's deadline or a sleep's end.
    Wait(StepPath),
}

impl fmt::Display for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("deadline"),
            Self::Doubt(node) => write!(f, "doubt:{node}"),
            Self::Wait(node) => write!(f, "wait:{node}"),
        }
    }
}

impl std::str::FromStr for TimerId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "deadline" => Ok(Self::Deadline),
            Some(("doubt", node)) => Ok(Self::Doubt(StepPath::from(node))),
            Some(("wait", node)) => Ok(Self::Wait(StepPath::from(node))),
            None | Some(_) => Err(format!("`{text}` is not a timer: expected deadline, doubt:PATH or wait:PATH")),
        }
    }
}

impl Serialize for TimerId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimerId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_timer_survives_its_text_form() {
        for (timer, text) in [
            (TimerId::Deadline, "deadline"),
            (TimerId::Doubt("a".into()), "doubt:a"),
            (TimerId::Wait("deadline".into()), "wait:deadline"),
        ] {
            assert_eq!((timer.to_string(), text.parse::<TimerId>().unwrap()), (text.to_owned(), timer.clone()));
            assert_eq!(serde_json::to_value(&timer).unwrap(), text);
            assert_eq!(serde_json::from_value::<TimerId>(text.into()).unwrap(), timer);
        }
        for text in ["", "wait", "sleep:a", "deadlines"] {
            assert!(text.parse::<TimerId>().unwrap_err().contains("is not a timer"), "{text}");
        }
    }
}
