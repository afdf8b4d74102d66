//! Commands of `aetheris` that answers and pages tell people to run. Every such line is made here: what came from
//! outside gets into it as one word of a shell and as nothing else.

use std::fmt;

use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::json::Json;
use aetheris_core::plan::WaitType;
use serde_json::Value;

use crate::jobs::WaitingView;
use crate::shell::word;
use crate::waits::WaitView;

/// What stands for a result in a command that a person completes. As it is, it is not accepted.
pub const RESULT: &str = "{RESULT}";
/// What stands for a note in a command that a person completes. As it is, it is not accepted.
pub const HOW_YOU_KNOW: &str = "{HOW YOU KNOW}";

/// A command to paste. Its text begins with `aetheris`; [`Command::line`] takes another beginning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Command<'a> {
    /// Ends a job.
    Cancel(JobId),
    /// Lists the calls whose outcome is unknown.
    InDoubt,
    /// Lists those of a job.
    InDoubtOf(JobId),
    /// Says what became of a call; the answer itself is left to be added.
    Resolve {
        /// The call.
        invocation: IdempotencyKey,
        /// Its job.
        job: JobId,
        /// The permission whose outcome is unknown.
        permit: u32,
    },
    /// Puts a backup in place.
    Restore {
        /// Its file.
        file: &'a str,
        /// Where to: an option of the command, without its hyphens, and its value.
        place: Option<(&'static str, &'a str)>,
    },
    /// Lets a paused job go on.
    Resume(JobId),
    /// Lists the jobs that workers hold.
    Running,
    /// Sends what a wait is for.
    Signal {
        /// The job.
        job: JobId,
        /// The correlation key of the wait.
        key: &'a str,
        /// What its payload must fit, where the agent's file says so.
        schema: Option<&'a Json>,
    },
    /// Shows what a job did.
    Trace(JobId),
    /// Lists the calls that the end of a job left unresolved.
    Unresolved(JobId),
    /// Checks what is stored of a job.
    Verify(JobId),
    /// Follows a job to its end.
    Watch(JobId),
    /// Says why a job is where it is.
    Why(JobId),
    /// Starts a worker.
    Worker,
}

impl Command<'_> {
    /// The line, of a program that is called so; `program` may have options and stands there as it is given.
    #[must_use]
    pub fn line(&self, program: &str) -> String {
        format!("{program} {}", self.words())
    }

    fn words(&self) -> String {
        match self {
            Self::Cancel(job) => format!("cancel {job}"),
            Self::InDoubt => "in-doubt".to_owned(),
            Self::InDoubtOf(job) => format!("in-doubt --job {job}"),
            Self::Resolve { invocation, job, permit } => {
                format!("in-doubt resolve {job} {invocation} --permit {permit}")
            }
            Self::Restore { file, place } => {
                let place = place.map(|(option, value)| format!(" --{option} {}", path(value))).unwrap_or_default();
                format!("restore {}{place}", path(file))
            }
            Self::Resume(job) => format!("resume {job}"),
            Self::Running => "jobs --status running".to_owned(),
            Self::Signal { job, key, schema } => {
                // A key that begins with a hyphen would be read as an option.
                let end = if key.starts_with('-') { "-- " } else { "" };
                format!("signal {end}{job} {} {}", word(key), word(&payload(*schema)))
            }
            Self::Trace(job) => format!("trace {job}"),
            Self::Unresolved(job) => format!("in-doubt --unresolved --job {job}"),
            Self::Verify(job) => format!("verify {job}"),
            Self::Watch(job) => format!("watch {job}"),
            Self::Why(job) => format!("why {job}"),
            Self::Worker => "worker --config FILE".to_owned(),
        }
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line("aetheris"))
    }
}

/// A path, which is no option whatever it begins with.
fn path(path: &str) -> String {
    if path.starts_with('-') { word(&format!("./{path}")) } else { word(path) }
}

/// What a signal may bring. Where a schema asks for yes or no it says yes; else it stands for what is to be written in
/// its place, and is refused where it is sent as it is.
fn payload(schema: Option<&Json>) -> String {
    const PLACE: &str = "{ANSWER}";
    let place = |schema: &Value| match schema["type"].as_str() {
        Some("boolean") => "true",
        Some("string") => "TEXT",
        Some("integer" | "number") => "NUMBER",
        Some("array") => "LIST",
        Some(_) | None => "VALUE",
    };
    let Some(schema) = schema.map(Json::value) else { return PLACE.to_owned() };
    if schema["type"] == "boolean" {
        return "true".to_owned();
    }
    let (Some(fields), Some(required)) = (schema["properties"].as_object(), schema["required"].as_array()) else {
        return PLACE.to_owned();
    };
    let names: Vec<&str> = required.iter().filter_map(Value::as_str).collect();
    let said = |name: &&str| Some(format!("{}: {}", Value::from(*name), place(fields.get(*name)?)));
    let said: Option<Vec<String>> = names.iter().map(said).collect();
    match said.filter(|said| !said.is_empty()) {
        // A word in place of a value is no JSON.
        Some(said) => format!("{{{}}}", said.join(", ")),
        None => PLACE.to_owned(),
    }
}

/// The command that answers a wait; none where only time ends it.
fn answer<'a>(
    job: JobId,
    (doubt, wait_type): (bool, WaitType),
    key: Option<&'a str>,
    schema: Option<&'a Json>,
) -> Option<Command<'a>> {
    match (doubt, wait_type) {
        (true, _) => Some(Command::InDoubtOf(job)),
        (false, WaitType::Timer | WaitType::Child) => None,
        (false, WaitType::Human | WaitType::Signal | WaitType::Webhook) => {
            key.map(|key| Command::Signal { job, key, schema })
        }
    }
}

impl WaitingView {
    /// The command that answers what a job waits for; none where only time ends the wait.
    #[must_use]
    pub fn answer(&self, job: JobId) -> Option<Command<'_>> {
        answer(job, (self.doubt, self.wait_type), self.correlation_key.as_deref(), self.schema.as_ref())
    }
}

impl WaitView {
    /// The command that answers it; none where only time ends it.
    #[must_use]
    pub fn answer(&self) -> Option<Command<'_>> {
        answer(self.job_id, (self.doubt, self.wait_type), self.correlation_key.as_deref(), self.schema.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_came_from_outside_is_one_word() {
        let job = JobId::from_u128(1);
        let signal = |key| Command::Signal { job, key, schema: None }.line("aetheris --server 'http://h'");
        assert_eq!(
            signal("approve-x; touch PWNED #"),
            format!("aetheris --server 'http://h' signal {job} 'approve-x; touch PWNED #' '{{ANSWER}}'")
        );
        assert_eq!(
            signal("--server=http://evil"),
            format!("aetheris --server 'http://h' signal -- {job} --server=http://evil '{{ANSWER}}'")
        );
        let restore = Command::Restore { file: "a b", place: Some(("data", "c d")) };
        assert_eq!(restore.to_string(), "aetheris restore 'a b' --data 'c d'");
        let restore = Command::Restore { file: "-x.db", place: Some(("data", "-y")) };
        assert_eq!(restore.to_string(), "aetheris restore ./-x.db --data ./-y");
    }

    #[test]
    fn what_is_offered_as_an_answer_fits_or_is_refused() {
        let of = |schema: serde_json::Value| payload(Some(&Json::new(schema)));
        let boolean = json!({ "type": "boolean" });
        let yes =
            json!({ "required": ["send", "it's"], "properties": { "send": boolean, "it's": boolean, "note": {} } });
        assert_eq!(of(yes), r#"{"send": true, "it's": true}"#);
        assert_eq!(of(boolean.clone()), "true");
        let [text, number, list] = ["string", "integer", "array"].map(|kind| json!({ "type": kind }));
        let fields = json!({ "send": boolean, "to": text, "cents": number, "who": list, "how": { "enum": [1] } });
        let shape = of(json!({ "required": ["send", "to", "cents", "who", "how"], "properties": fields }));
        assert_eq!(shape, r#"{"send": true, "to": TEXT, "cents": NUMBER, "who": LIST, "how": VALUE}"#);
        assert!(Json::parse(shape.as_bytes()).is_err());
        for other in [
            json!({ "type": "string" }),
            json!({ "required": ["send", "to"], "properties": { "send": boolean } }),
            json!({ "properties": { "send": boolean } }),
            json!({ "required": [] , "properties": {} }),
            json!(true),
        ] {
            assert_eq!(of(other), "{ANSWER}");
        }
        assert_eq!(payload(None), "{ANSWER}");
    }
}
