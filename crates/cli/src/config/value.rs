//! What a key takes, and reading it from a file's value or a variable's text.

use std::net::SocketAddr;

use aetheris_core::time::Span;
use serde_json::Value;

/// What a key takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A whole number within bounds.
    Count { min: u64, max: u64 },
    /// A duration within bounds, as `30s`.
    Span { min: Span, max: Span },
    /// A number of bytes within bounds, as `1MiB`.
    Size { min: u64, max: u64 },
    /// `true` or `false`; `false` is not supported yet where `only_true`.
    Switch { only_true: bool },
    /// One of these; the second list are names of the format that this build does not have.
    Choice { known: &'static [&'static str], not_yet: &'static [&'static str] },
    /// An address and port.
    Listen,
    /// A list of networks, as `10.0.0.0/8`.
    Networks,
    /// The name of an environment variable.
    EnvName,
    /// A list of names of environment variables.
    EnvNames,
    /// A list of names of hosts.
    HostNames,
    /// An http or https URL.
    Url,
    /// What is logged, as `info,aetheris_worker=debug`.
    LogFilter,
    /// Text that is not empty.
    Text,
    /// A file. Nothing in it is replaced.
    Path,
    /// A key of the format for something that this build does not have.
    NotYet { what: &'static str },
}

/// Why a value is refused.
pub(super) type Refusal = String;

/// The value in its normal form.
pub(super) fn read(kind: Kind, value: &Value) -> Result<Value, Refusal> {
    match kind {
        Kind::Count { min, max } => count(value, min, max),
        Kind::Span { min, max } => span(value, min, max),
        Kind::Size { min, max } => size(value, min, max),
        Kind::Switch { only_true } => switch(value, only_true),
        Kind::Choice { known, not_yet } => choice(value, known, not_yet),
        Kind::Listen => {
            let text = text(value)?;
            match text.parse::<SocketAddr>() {
                Ok(_) => Ok(Value::from(text)),
                Err(_) => Err(format!("`{text}` is not an address: expected IP:PORT, as 127.0.0.1:8080")),
            }
        }
        Kind::Networks => list(value, network),
        Kind::EnvName => env_name(&text(value)?).map(Value::from),
        Kind::EnvNames => list(value, env_name),
        Kind::HostNames => list(value, host_name),
        Kind::Url => url(&text(value)?).map(Value::from),
        Kind::LogFilter => {
            let filter = text(value)?;
            crate::logging::parsed(&filter)?;
            Ok(Value::from(filter))
        }
        Kind::Text => text(value).map(Value::from),
        Kind::Path => path(&text(value)?).map(Value::from),
        Kind::NotYet { what } => Err(format!("{what} is not supported yet by this build: remove the key")),
    }
}

fn text(value: &Value) -> Result<String, Refusal> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::String(_) | Value::Null => Err("is empty: expected text".to_owned()),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(format!("expected text, found {}", name(value))),
    }
}

/// A folder with the name `~` is nothing that anybody wants, and its jobs are nowhere to be found.
fn path(text: &str) -> Result<String, Refusal> {
    let what = match text {
        _ if text.starts_with('~') => "begins with `~`",
        _ if text.contains("${") => "contains `${`",
        _ => return Ok(text.to_owned()),
    };
    Err(format!("`{text}` {what}, which only a shell replaces, and nothing here does: write the path as it is"))
}

/// What is refused is not shown: it may have a secret in it.
fn url(text: &str) -> Result<String, Refusal> {
    let Some(url) = reqwest::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return Err("expected an http or https URL, as https://host/v1".to_owned());
    };
    if url.username().is_empty() && url.password().is_none() {
        return Ok(text.to_owned());
    }
    Err("must not contain a name or a password: name a variable in api_key_env instead".to_owned())
}

fn count(value: &Value, min: u64, max: u64) -> Result<Value, Refusal> {
    let number = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(Value::from(number)),
        Some(number) if max == 0 => Err(format!("{number} is not supported yet by this build: only 0 is")),
        Some(_) | None => Err(format!("expected a whole number from {min} to {max}, found {}", shown(value))),
    }
}

fn span(value: &Value, min: Span, max: Span) -> Result<Value, Refusal> {
    if let Value::Number(number) = value {
        return Err(format!("{number} has no unit: write {number}s or {number}ms"));
    }
    let span: Span = text(value)?.parse()?;
    if span < min || span > max {
        return Err(format!("{span} is out of bounds: expected {min} to {max}"));
    }
    Ok(Value::from(span.to_string()))
}

/// Units of sizes, largest first.
const SIZES: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("kB", 1_000),
    ("B", 1),
];

/// A number of bytes, from `1MiB` or a bare number.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit = unit.trim_start();
    let factor = if unit.is_empty() { 1 } else { SIZES.iter().find(|(name, _)| *name == unit)?.1 };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// A number of bytes in the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    let unit = SIZES.iter().take(3).find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    unit.map_or_else(|| format!("{bytes}B"), |(name, size)| format!("{}{name}", bytes / size))
}

fn size(value: &Value, min: u64, max: u64) -> Result<Value, Refusal> {
    let given = text(value)?;
    let bytes = bytes(&given).ok_or_else(|| format!("`{given}` is not a size: expected 512KiB, 1MiB or bytes"))?;
    if bytes != min && min == max {
        return Err(format!("{given} is not supported yet by this build: only {} is", size_text(min)));
    }
    if bytes < min || bytes > max {
        return Err(format!("{given} is out of bounds: expected {} to {}", size_text(min), size_text(max)));
    }
    Ok(Value::from(size_text(bytes)))
}

fn switch(value: &Value, only_true: bool) -> Result<Value, Refusal> {
    let on = match value {
        Value::Bool(on) => Some(*on),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    };
    match on {
        Some(false) if only_true => {
            Err("`false` is not supported yet by this build: it stands between a crash and a second call of a tool"
                .to_owned())
        }
        Some(on) => Ok(Value::from(on)),
        None => Err(format!("expected true or false, found {}", shown(value))),
    }
}

fn choice(value: &Value, known: &[&str], not_yet: &[&str]) -> Result<Value, Refusal> {
    let given = text(value)?;
    let all = known.join(", ");
    if known.contains(&given.as_str()) {
        return Ok(Value::from(given));
    }
    if not_yet.contains(&given.as_str()) {
        return Err(format!("`{given}` is not supported yet by this build: it has {all}"));
    }
    let hint = super::suggest::nearest(&given, known.iter().copied());
    let hint = hint.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Err(format!("`{given}` is not one of {all}{hint}"))
}

fn list(value: &Value, item: fn(&str) -> Result<String, Refusal>) -> Result<Value, Refusal> {
    let texts: Vec<Result<String, Refusal>> = match value {
        Value::Array(values) => values.iter().map(text).collect(),
        Value::String(line) => line.split(',').map(str::trim).filter(|t| !t.is_empty()).map(|t| Ok(t.into())).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(format!("expected a list, found {}", name(value)));
        }
    };
    let several = texts.len() > 1;
    let (mut good, mut refusals) = (Vec::new(), Vec::new());
    for (entry, text) in (1..).zip(texts) {
        match text.and_then(|text| item(&text)) {
            Ok(text) => good.push(text),
            Err(refusal) if several => refusals.push(format!("entry {entry}: {refusal}")),
            Err(refusal) => refusals.push(refusal),
        }
    }
    if refusals.is_empty() { Ok(Value::from(good)) } else { Err(refusals.join("; ")) }
}

fn network(text: &str) -> Result<String, Refusal> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let bits = match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return Err(format!("`{text}` is not a network: expected 10.0.0.0/8, 192.168.1.7 or fd00::/8")),
    };
    match prefix.map_or(Ok(bits), str::parse::<u8>) {
        Ok(prefix) if prefix <= bits => Ok(format!("{address}/{prefix}")),
        Ok(_) | Err(_) => Err(format!("`{text}` is not a network: the part after / is a number from 0 to {bits}")),
    }
}

fn env_name(text: &str) -> Result<String, Refusal> {
    let letters = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let good = letters && !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit());
    if good {
        return Ok(text.to_owned());
    }
    Err("expected the name of an environment variable, not a value: letters, digits and _".to_owned())
}

fn host_name(text: &str) -> Result<String, Refusal> {
    let good = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if good {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not the name of a host: expected box.example, without scheme and port"))
    }
}

/// The kind of a value, for messages.
pub(super) const fn name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a yes or no",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a section",
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => name(value).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(bytes("1MiB"), Some(1_048_576));
        assert_eq!(bytes("64 KiB"), Some(65_536));
        assert_eq!(bytes("2MB"), Some(2_000_000));
        assert_eq!(bytes("17"), Some(17));
        assert_eq!(bytes("1mib"), None);
        assert_eq!(bytes("-1"), None);
        assert_eq!(bytes("99999999999GiB"), None);
        assert_eq!(size_text(1_048_576), "1MiB");
        assert_eq!(size_text(1_500), "1500B");
    }

    #[test]
    fn sizes_have_bounds() {
        let kind = Kind::Size { min: 1_024, max: 1 << 20 };
        assert_eq!(read(kind, &json!("64KiB")), Ok(json!("64KiB")));
        assert_eq!(read(kind, &json!(2_048)), Ok(json!("2KiB")));
        assert_eq!(read(kind, &json!("2MiB")), Err("2MiB is out of bounds: expected 1KiB to 1MiB".to_owned()));
        assert!(read(kind, &json!("much")).is_err());
        // Both bounds are in, and nothing beyond them.
        assert_eq!(read(kind, &json!(1_024)), Ok(json!("1KiB")));
        assert_eq!(read(kind, &json!(1 << 20)), Ok(json!("1MiB")));
        for (beyond, said) in [(1_023, "1023"), ((1 << 20) + 1, "1048577")] {
            let refusal = format!("{said} is out of bounds: expected 1KiB to 1MiB");
            assert_eq!(read(kind, &json!(beyond)), Err(refusal));
        }
    }

    #[test]
    fn networks_keep_their_prefix_and_single_hosts_get_one() {
        let kind = Kind::Networks;
        assert_eq!(read(kind, &json!(["10.0.0.0/8", "::1"])), Ok(json!(["10.0.0.0/8", "::1/128"])));
        assert_eq!(read(kind, &json!("127.0.0.1, 10.0.0.0/8")), Ok(json!(["127.0.0.1/32", "10.0.0.0/8"])));
        assert!(read(kind, &json!(["10.0.0.0/33"])).is_err());
        assert!(read(kind, &json!(["example.org"])).is_err());
    }

    /// Whoever corrects a list wants to do it once, and of a name that may be a secret only its place is told.
    #[test]
    fn a_list_names_each_entry_that_is_wrong() {
        let refusal = read(Kind::Networks, &json!(["10.0.0.0/33", "10.0.0.0/8", "home", 7])).unwrap_err();
        assert_eq!(
            refusal,
            "entry 1: `10.0.0.0/33` is not a network: the part after / is a number from 0 to 32; entry 3: `home` is not \
             a network: expected 10.0.0.0/8, 192.168.1.7 or fd00::/8; entry 4: `7` is not a network: expected \
             10.0.0.0/8, 192.168.1.7 or fd00::/8"
        );
        let refusal = read(Kind::EnvNames, &json!("GOOD,sk-1,A,sk-2")).unwrap_err();
        assert!(
            refusal.contains("entry 2: ") && refusal.contains("entry 4: ") && !refusal.contains("sk-"),
            "{refusal}"
        );
    }

    #[test]
    fn a_path_that_only_a_shell_could_read_is_refused() {
        for good in ["./data/aetheris.db", "/srv/a~b/$x/aetheris.db", "./~/aetheris.db"] {
            assert_eq!(read(Kind::Path, &json!(good)), Ok(json!(good)));
        }
        for (wrong, why) in
            [("~/a.db", "begins with `~`"), ("~me/a.db", "begins with"), ("${HOME}/a.db", "contains `${`")]
        {
            let refusal = read(Kind::Path, &json!(wrong)).unwrap_err();
            assert!(refusal.contains(why) && refusal.contains(wrong), "{refusal}");
        }
    }

    #[test]
    fn a_url_has_no_secret_in_it() {
        assert_eq!(read(Kind::Url, &json!("https://host/v1")), Ok(json!("https://host/v1")));
        for text in ["https://token@host", "https://a:hunter2@host", "hunter2", "ftp://hunter2"] {
            let refusal = read(Kind::Url, &json!(text)).unwrap_err();
            assert!(!refusal.contains("hunter2") && !refusal.contains("token"), "{refusal}");
        }
    }

    #[test]
    fn a_key_for_a_variables_name_takes_no_secret() {
        assert_eq!(read(Kind::EnvName, &json!("OPENAI_API_KEY")), Ok(json!("OPENAI_API_KEY")));
        let refusal = read(Kind::EnvName, &json!("sk-live-123")).unwrap_err();
        assert!(!refusal.contains("sk-live"), "{refusal}");
    }
}
