//! Messages and payloads as they are given on the command line.

use std::io::Read;
use std::path::{Path, PathBuf};

use aetheris_core::json::{Json, JsonError};
use serde_json::Value;

use crate::error::Error;

/// How a text that is not JSON is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As JSON where it is JSON, as text elsewhere; what begins like JSON and is not is a slip of quoting.
    Either,
    /// As text, whatever it looks like.
    Text,
}

impl Form {
    /// What `--text` says.
    #[must_use]
    pub const fn of_flag(text: bool) -> Self {
        if text { Self::Text } else { Self::Either }
    }
}

/// Reads the argument called `name`: `-` is stdin, `@FILE` a file, everything else stands for itself. The
/// text is JSON when it parses as JSON, else text.
///
/// # Errors
/// [`Error::File`] where it cannot be read; [`Error::Usage`] where it is empty, JSON beyond the limits, or begins
/// with `{` or `[` and is not JSON.
pub fn read(name: &str, argument: &str, form: Form, stdin: impl Read) -> Result<Json, Error> {
    let text = text(argument, stdin)?;
    if form == Form::Text {
        return checked(name, Value::from(text));
    }
    if text.is_empty() {
        return Err(Error::Usage(format!(
            "{name} is empty: is a variable of the shell not set, or a file empty?\n\
             nothing was sent. Write '\"\"' or add --text to send an empty text, null to send no value"
        )));
    }
    match Json::parse(text.as_bytes()) {
        Ok(json) => Ok(json),
        Err(JsonError::Syntax(why)) => match text.trim_start().chars().next() {
            Some(open @ ('{' | '[')) => Err(Error::Usage(format!(
                "{name} begins with `{open}` and is not JSON: {why}\n\
                 nothing was sent. Check the quotes, as in '{{\"approved\": true}}', or add --text to send it as text"
            ))),
            Some(_) | None => checked(name, Value::from(text)),
        },
        Err(error) => Err(unsent(name, &error)),
    }
}

fn unsent(name: &str, error: &JsonError) -> Error {
    Error::Usage(format!("{name}: {error}\nnothing was sent"))
}

/// Reads an argument that must be JSON.
///
/// # Errors
/// [`Error::Usage`] where it is not.
pub fn read_json(argument: &str, stdin: impl Read) -> Result<Json, Error> {
    let text = text(argument, stdin)?;
    Json::parse(text.as_bytes()).map_err(|error| match error {
        JsonError::Syntax(why) => Error::Usage(format!(
            "--result is not JSON: {why}\nnothing was recorded. A text needs quotes of its own, as in --result '\"rf-2\"'; \
             null says that the call answered nothing"
        )),
        error => Error::Usage(format!("--result: {error}\nnothing was recorded")),
    })
}

fn checked(name: &str, value: Value) -> Result<Json, Error> {
    Json::checked(value).map_err(|error| unsent(name, &error))
}

fn text(argument: &str, mut stdin: impl Read) -> Result<String, Error> {
    let text = match argument.strip_prefix('@') {
        Some(path) => file(Path::new(path))?,
        None if argument == "-" => {
            let mut bytes = Vec::new();
            let path = PathBuf::from("stdin");
            stdin.read_to_end(&mut bytes).map_err(|source| Error::File { path: path.clone(), source })?;
            utf8(bytes, &path)?
        }
        None => return Ok(argument.to_owned()),
    };
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

/// Reads a file of text.
///
/// # Errors
/// [`Error::File`].
pub fn file(path: &Path) -> Result<String, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    utf8(bytes, path)
}

/// Text without the byte order mark that some editors and shells put before it.
fn utf8(bytes: Vec<u8>, path: &Path) -> Result<String, Error> {
    let utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned)),
        Err(_) if utf16 => Err(Error::Usage(format!("{} is UTF-16: save it as UTF-8", path.display()))),
        Err(_) => Err(Error::Usage(format!("{} is not UTF-8 text", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;
    use serde_json::json;

    fn given(argument: &str) -> Value {
        read("MESSAGE", argument, Form::Either, std::io::empty()).unwrap().value().clone()
    }

    #[test]
    fn json_where_it_parses_and_text_elsewhere() {
        assert_eq!(given("{\"a\": 1}"), json!({"a": 1}));
        assert_eq!(given("17"), json!(17));
        assert_eq!(given("\"quoted\""), json!("quoted"));
        assert_eq!(given("hello there"), json!("hello there"));
        assert_eq!(given("\"\""), json!(""));
    }

    /// `"$UNSET"` would use up an approval.
    #[test]
    fn an_empty_argument_is_refused_and_an_empty_text_has_to_be_meant() {
        for (argument, stdin) in [("", ""), ("-", ""), ("-", "\n")] {
            let error = read("PAYLOAD", argument, Form::Either, stdin.as_bytes()).unwrap_err();
            assert_eq!(error.exit(), crate::exit::Exit::Usage);
            assert!(error.to_string().starts_with("PAYLOAD is empty"), "{error}");
        }
        assert_eq!(read("PAYLOAD", "", Form::Text, std::io::empty()).unwrap().value(), &json!(""));
    }

    #[test]
    fn what_begins_like_json_and_is_not_is_a_slip_of_quoting() {
        for text in ["{approved: true}", "{not json", " [1, 2", "{'a': 1}", "{\"a\": 1} x"] {
            let error = read("PAYLOAD", text, Form::Either, std::io::empty()).unwrap_err();
            assert_eq!(error.exit(), crate::exit::Exit::Usage, "{text}");
            assert!(error.to_string().starts_with("PAYLOAD begins with `"), "{error}");
            assert!(error.to_string().contains("--text"), "{error}");
            let taken = read("PAYLOAD", text, Form::Text, std::io::empty()).unwrap();
            assert_eq!(taken.value(), &json!(text));
        }
        assert_eq!(read("PAYLOAD", "17", Form::Text, std::io::empty()).unwrap().value(), &json!("17"));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let value = |bytes: &[u8]| read("MESSAGE", "-", Form::Either, bytes);
        assert_eq!(value(b"\xef\xbb\xbf{\"a\": 1}\r\n").unwrap().value(), &json!({"a": 1}));
        assert_eq!(value(b"\xef\xbb\xbfhello").unwrap().value(), &json!("hello"));
        assert_eq!(value(b"\xff\xfe{\0").unwrap_err().to_string(), "stdin is UTF-16: save it as UTF-8");
        assert_eq!(value(b"\xc3(").unwrap_err().to_string(), "stdin is not UTF-8 text");
    }

    #[test]
    fn stdin_and_files() {
        let value = read("MESSAGE", "-", Form::Either, "hello\n".as_bytes()).unwrap();
        assert_eq!(value.value(), &json!("hello"));
        // The end of the last line is no part of the text; what stands before it is.
        let text = read("MESSAGE", "-", Form::Text, " two \n\n".as_bytes()).unwrap();
        assert_eq!(text.value(), &json!(" two \n"));
        let folder = Folder::new("payload");
        let path = folder.join("payload.json");
        std::fs::write(&path, "{\"a\": [1]}\n").unwrap();
        assert_eq!(given(&format!("@{}", path.display())), json!({"a": [1]}));
        let error = read("MESSAGE", "@/does/not/exist", Form::Either, std::io::empty()).unwrap_err();
        assert!(error.to_string().starts_with("/does/not/exist cannot be read"), "{error}");
    }

    #[test]
    fn json_beyond_the_limits_is_not_taken_for_text() {
        assert!(matches!(
            read("MESSAGE", "18446744073709551616", Form::Either, std::io::empty()),
            Err(Error::Usage(_))
        ));
        assert!(matches!(read_json("not json", std::io::empty()), Err(Error::Usage(_))));
    }
}
