//! Values that must never be seen in events, logs or errors (INVARIANTS Z3).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use aetheris_core::json::Json;
use reqwest::Url;
use serde_json::Value;

use crate::OF_WORKER;

/// Shorter values cannot be secrets, and taking them out would garble every message.
const SECRET_BYTES_MIN: usize = 4;
/// What an answer may echo without being a secret: a name of a region, a version.
const ECHO_BYTES_MIN: usize = 8;

const REDACTED: &str = "[redacted]";

/// A text that is neither shown nor written anywhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

type Read = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Where `env.NAME` of a tool's url and headers comes from: names that the operator allows, and who
/// knows their values. A value is asked for at each send and kept nowhere.
#[derive(Clone)]
pub struct EnvSource {
    allowed: BTreeSet<String>,
    read: Arc<Read>,
}

impl EnvSource {
    /// These names, read by `read`.
    pub fn new(
        allowed: impl IntoIterator<Item = String>,
        read: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { allowed: allowed.into_iter().collect(), read: Arc::new(read) }
    }

    /// Exactly these values.
    #[must_use]
    pub fn fixed(values: BTreeMap<String, String>) -> Self {
        Self::new(values.keys().cloned().collect::<Vec<_>>(), move |name| values.get(name).cloned())
    }

    /// Whether a name may be used at all. `whose` configuration is asked is said in the error.
    ///
    /// # Errors
    /// A sentence for people.
    pub(crate) fn allows(&self, name: &str, whose: &str) -> Result<(), String> {
        if self.allowed.contains(name) {
            return Ok(());
        }
        Err(format!("`env.{name}` is not among the names that `tools.env` of {whose} allows"))
    }

    /// The value of a name.
    ///
    /// # Errors
    /// A sentence for people: the name is not allowed, or has no value here.
    pub(crate) fn get(&self, name: &str) -> Result<String, String> {
        self.allows(name, OF_WORKER)?;
        (self.read)(name).ok_or_else(|| format!("`env.{name}` is allowed but not set where this worker runs"))
    }
}

impl Default for EnvSource {
    fn default() -> Self {
        Self::new([], |_| None)
    }
}

impl fmt::Debug for EnvSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvSource").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}

/// Takes secrets out of texts that are about to be kept.
#[derive(Default)]
pub(crate) struct Scrubber {
    /// Every form in which a secret may come back, the longest first.
    forms: Vec<String>,
    /// The texts that an answer must not bring into the log, the longest first.
    echoes: Vec<String>,
    /// Those of them that a header carried: where one is a number, the answer may have it as one.
    sent: Vec<String>,
}

impl Scrubber {
    /// `secrets` must not be in messages; `sent` are those of them that travel in headers, which some
    /// servers echo in their answers.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>, sent: impl IntoIterator<Item = &'a str>) -> Self {
        let mut forms: Vec<String> =
            secrets.into_iter().filter(|secret| secret.len() >= SECRET_BYTES_MIN).flat_map(forms).collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        let sent: Vec<String> = sent.into_iter().map(str::to_owned).collect();
        let mut scrubber = Self { forms, echoes: Vec::new(), sent: Vec::new() };
        scrubber.echoed(sent.iter().cloned());
        Self { sent, ..scrubber }
    }

    /// Takes these secrets out of answers too, in every form: they stand in the address behind its host, which some
    /// servers repeat, in links to the next page for one.
    pub(crate) fn in_address<'a>(&mut self, secrets: impl IntoIterator<Item = &'a str>) {
        let secrets = secrets.into_iter().filter(|secret| secret.len() >= ECHO_BYTES_MIN);
        self.echoed(secrets.flat_map(in_writing));
    }

    fn echoed(&mut self, texts: impl IntoIterator<Item = String>) {
        self.echoes.extend(texts.into_iter().filter(|text| text.len() >= ECHO_BYTES_MIN));
        self.echoes.sort_by_key(|echo| std::cmp::Reverse(echo.len()));
        self.echoes.dedup();
    }

    /// Takes these texts out too, where they are not too short to be telling.
    pub(crate) fn hide<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>) {
        self.forms.extend(texts.into_iter().filter(|text| text.len() >= SECRET_BYTES_MIN).map(str::to_owned));
        self.forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    }

    /// The text without secrets.
    pub(crate) fn text(&self, text: &str) -> String {
        self.forms.iter().fold(text.to_owned(), |text, form| text.replace(form, REDACTED))
    }

    /// The beginning of a text that goes on, without secrets: also without what may be the beginning of one at its end.
    pub(crate) fn beginning(&self, text: &str) -> String {
        // The last character may be half there too.
        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let mut kept = text;
        while let Some(tail) = self.forms.iter().filter_map(|form| begun(form, kept)).max() {
            kept = &kept[..kept.len() - tail];
        }
        let goes_on = if kept.len() < text.len() { "…" } else { "" };
        self.text(kept) + goes_on
    }

    /// The value without secrets in its texts and keys.
    pub(crate) fn json(&self, json: &Json) -> Json {
        if self.echoes.is_empty() { json.clone() } else { Json::new(self.value(json.value().clone())) }
    }

    fn is_sent(&self, number: &str) -> bool {
        number.len() >= ECHO_BYTES_MIN && self.sent.iter().any(|sent| sent == number)
    }

    fn value(&self, value: Value) -> Value {
        let clean = |text: String| self.echoes.iter().fold(text, |text, echo| text.replace(echo, REDACTED));
        match value {
            Value::String(text) => Value::String(clean(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => fields.into_iter().map(|(key, field)| (clean(key), self.value(field))).collect(),
            Value::Number(number) if self.is_sent(&number.to_string()) => Value::String(REDACTED.to_owned()),
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }
}

/// How many bytes at the end of a text a form begins with, or is.
fn begun(form: &str, text: &str) -> Option<usize> {
    let lengths = form.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|length| *length <= text.len());
    lengths.filter(|length| text.ends_with(&form[..*length])).last()
}

/// Every form of a secret.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = in_writing(secret);
    // Hosts lose their capitals.
    forms.push(secret.to_lowercase());
    forms.retain(|form| form.len() >= SECRET_BYTES_MIN);
    forms
}

/// A secret as it is, as JSON writes it, as a URL's path and query write it, and percent-encoded throughout.
fn in_writing(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    forms.push(Value::from(secret).to_string().trim_matches('"').to_owned());
    if let Ok(mut url) = Url::parse("http://x/") {
        url.set_query(Some(secret));
        forms.extend(url.query().map(str::to_owned));
        url.set_path(secret);
        forms.push(url.path().trim_start_matches('/').to_owned());
    }
    forms.push(secret.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
        text
    }));
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_taken_out_in_every_form() {
        let secret = "pa ss\"w/ö?rd";
        let scrubber = Scrubber::new([secret], [secret]);
        for form in [secret, "pa ss\\\"w/ö?rd", "pa%20ss%22w/%C3%B6?rd", "pa%20ss%22w%2F%C3%B6%3Frd"] {
            assert_eq!(scrubber.text(&format!("<{form}>")), "<[redacted]>", "{form}");
        }
        let echoed = serde_json::json!({"headers": [{"x": format!("Bearer {secret}")}], "n": 1});
        assert_eq!(scrubber.value(echoed), serde_json::json!({"headers": [{"x": "Bearer [redacted]"}], "n": 1}));
        assert_eq!(format!("{:?}", Secret::new("abc")), "[redacted]");
    }

    #[test]
    fn what_is_long_enough_to_be_telling_is_taken_out() {
        for (secret, in_words, echoed) in [
            ("abc", "abc", "abc"),
            ("abcd", "[redacted]", "abcd"),
            ("abcdefg", "[redacted]", "abcdefg"),
            ("abcdefgh", "[redacted]", "[redacted]"),
        ] {
            let scrubber = Scrubber::new([secret], [secret]);
            assert_eq!(scrubber.text(secret), in_words, "{secret}");
            let answer = Json::new(serde_json::json!({ secret: [[secret], { "k": secret }] }));
            let kept = Json::new(serde_json::json!({ echoed: [[echoed], { "k": echoed }] }));
            assert_eq!(scrubber.json(&answer), kept, "{secret}");
            let mut hidden = Scrubber::new([], []);
            hidden.hide([secret]);
            assert_eq!(hidden.text(secret), in_words, "{secret}");
        }
        // A host is written without capitals, whatever its author wrote.
        assert_eq!(
            Scrubber::new(["AbCdEf"], []).text("no answer from abcdef.example"),
            "no answer from [redacted].example"
        );
        // What did not travel is no echo.
        let sent = Scrubber::new(["abcdefgh"], []);
        assert_eq!(sent.json(&Json::new("abcdefgh".into())), Json::new("abcdefgh".into()));
    }

    #[test]
    fn what_is_hidden_later_leaves_no_piece_of_a_longer_text() {
        let mut scrubber = Scrubber::new([], []);
        scrubber.hide(["s3cr", "s3cret-path"]);
        assert_eq!(scrubber.text("<s3cret-path>"), "<[redacted]>");
    }

    #[test]
    fn an_echo_leaves_no_piece_of_a_longer_secret_and_no_number_that_is_one() {
        let scrubber = Scrubber::new([], ["hunter22", "hunter22-and-more", "12345678"]);
        let echoed = Json::new(
            serde_json::json!({ "a": "<hunter22-and-more>", "b": [12_345_678, 912_345_678], "hunter22": "x" }),
        );
        let kept = serde_json::json!({ "a": "<[redacted]>", "b": ["[redacted]", 912_345_678], "[redacted]": "x" });
        assert_eq!(scrubber.json(&echoed), Json::new(kept));
    }

    #[test]
    fn a_secret_of_an_address_is_taken_out_of_answers_in_every_form() {
        let mut scrubber = Scrubber::new([], []);
        scrubber.in_address(["s3cret/kéy", "s3cret7", "12345678", "Production"]);
        let kept = serde_json::json!({ "n": 12_345_678, "place": "production", "text": "[redacted]" });
        let answer = serde_json::json!({ "n": 12_345_678, "place": "production", "text": "12345678" });
        assert_eq!(
            scrubber.json(&Json::new(answer)),
            Json::new(kept),
            "a number, and a word in other letters, are no echo"
        );
        let forms = ["s3cret/kéy", "s3cret/k%C3%A9y", "s3cret%2Fk%C3%A9y"];
        for form in forms {
            let echoed = serde_json::json!({ "next": format!("https://x/?key={form}&page=2"), form: "s3cret7" });
            let kept = serde_json::json!({ "next": "https://x/?key=[redacted]&page=2", "[redacted]": "s3cret7" });
            assert_eq!(scrubber.json(&Json::new(echoed)), Json::new(kept), "{form}");
        }
    }

    #[test]
    fn the_beginning_of_a_text_ends_with_no_piece_of_a_secret() {
        let scrubber = Scrubber::new(["abcXabc", "pa ss/wörd"], []);
        for (text, shown) in [
            ("key: abcX", "key: …"),
            ("key: a", "key: …"),
            // All of it, which begins as it ends.
            ("key: abcXabc", "key: …"),
            ("abcXabc, key: abcXab", "[redacted], key: …"),
            ("key: pa%20ss%2Fw", "key: …"),
            ("key: pa ss/w\u{fffd}", "key: …"),
            ("no key\u{fffd}", "no key"),
            ("key: abcX.", "key: abcX."),
            ("", ""),
        ] {
            assert_eq!(scrubber.beginning(text), shown, "{text}");
        }
        // A piece of one secret before the piece of another.
        assert_eq!(Scrubber::new(["abcd1", "cdef2"], []).beginning("<abcde"), "<…");
        assert_eq!(Scrubber::new(["abcd", "abcdefgh"], []).beginning("<abcdef"), "<…");
    }

    #[test]
    fn a_name_that_is_not_allowed_is_never_read() {
        let source = EnvSource::new(["A".to_owned()], |name| {
            assert_eq!(name, "A", "only allowed names are asked for");
            None
        });
        assert!(source.get("B").unwrap_err().ends_with("`tools.env` of the worker's configuration allows"));
        assert!(source.get("A").unwrap_err().contains("not set"));
    }
}
