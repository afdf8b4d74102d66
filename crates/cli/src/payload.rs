//! Messages and payloads as they are given on the command line.

use std::io::Read;
use std::path::{Path, PathBuf};

use aetheris_core::json::{Json, JsonError};
use serde_json::Value;

use crate::error::Error;

/// Reads an argument: `-` is stdin, `@FILE` a file, everything else stands for itself. The text is JSON
/// when it parses as JSON, else text.
///
/// # Errors
/// [`Error::File`] where it cannot be read, [`Error::Usage`] where it is JSON beyond the limits.
pub fn read(argument: &str, stdin: impl Read) -> Result<Json, Error> {
    let text = text(argument, stdin)?;
    match Json::parse(text.as_bytes()) {
        Ok(json) => Ok(json),
        Err(JsonError::Syntax(_)) => checked(Value::from(text)),
        Err(error) => Err(Error::Usage(error.to_string())),
    }
}

/// Reads an argument that must be JSON.
///
/// # Errors
/// [`Error::Usage`] where it is not.
pub fn read_json(argument: &str, stdin: impl Read) -> Result<Json, Error> {
    let text = text(argument, stdin)?;
    Json::parse(text.as_bytes()).map_err(|error| Error::Usage(format!("--result: {error}")))
}

fn checked(value: Value) -> Result<Json, Error> {
    Json::checked(value).map_err(|error| Error::Usage(error.to_string()))
}

fn text(argument: &str, mut stdin: impl Read) -> Result<String, Error> {
    let text = match argument.strip_prefix('@') {
        Some(path) => file(Path::new(path))?,
        None if argument == "-" => {
            let mut text = String::new();
            let read = stdin.read_to_string(&mut text);
            read.map_err(|source| Error::File { path: PathBuf::from("stdin"), source })?;
            text
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
    std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn given(argument: &str) -> Value {
        read(argument, std::io::empty()).unwrap().value().clone()
    }

    #[test]
    fn json_where_it_parses_and_text_elsewhere() {
        assert_eq!(given("{\"a\": 1}"), json!({"a": 1}));
        assert_eq!(given("17"), json!(17));
        assert_eq!(given("\"quoted\""), json!("quoted"));
        assert_eq!(given("hello there"), json!("hello there"));
        assert_eq!(given("{not json"), json!("{not json"));
        assert_eq!(given(""), json!(""));
    }

    #[test]
    fn stdin_and_files() {
        let value = read("-", "hello\n".as_bytes()).unwrap();
        assert_eq!(value.value(), &json!("hello"));
        let path = std::env::temp_dir().join(format!("aetheris-payload-{}.json", std::process::id()));
        std::fs::write(&path, "{\"a\": [1]}\n").unwrap();
        assert_eq!(given(&format!("@{}", path.display())), json!({"a": [1]}));
        std::fs::remove_file(&path).unwrap();
        let error = read("@/does/not/exist", std::io::empty()).unwrap_err();
        assert!(error.to_string().starts_with("/does/not/exist cannot be read"), "{error}");
    }

    #[test]
    fn json_beyond_the_limits_is_not_taken_for_text() {
        assert!(matches!(read("18446744073709551616", std::io::empty()), Err(Error::Usage(_))));
        assert!(matches!(read_json("not json", std::io::empty()), Err(Error::Usage(_))));
    }
}
