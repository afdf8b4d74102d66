//! What tools and models share in talking HTTP: one time limit, bounded bodies, causes in words.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use reqwest::{ClientBuilder, Response, Url, header};
use tokio::time::Instant;

use crate::BuildError;
use crate::secret::Scrubber;

/// Longest quotation of what the other side says.
const QUOTE_CHARS_MAX: usize = 200;
/// How long a refusal's body is waited for: its status is known, the words are a courtesy.
const QUOTE_TIME: Duration = Duration::from_secs(1);
/// Longest time to a connection.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// A client without retries, redirects and proxies of its own, speaking HTTP/1.1 only: with it there is
/// no retry of refused streams to be switched off.
pub(crate) fn client_builder() -> Result<ClientBuilder, BuildError> {
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(crate::tls::client_config()?)
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .user_agent(concat!("aetheris/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIME_MAX))
}

/// The end of the time that a call may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

/// The time is over.
#[derive(Debug)]
pub(crate) struct Elapsed;

impl Deadline {
    /// So long from now.
    pub(crate) fn after(time: Duration) -> Self {
        let now = Instant::now();
        // A time that the clock cannot count to is as good as a year.
        Self(now.checked_add(time).unwrap_or(now + Duration::from_secs(365 * 24 * 3600)))
    }

    /// This moment, or so long from now if that is earlier.
    pub(crate) fn at_most(self, time: Duration) -> Self {
        Self(self.0.min(Self::after(time).0))
    }

    /// Whether the time is over.
    pub(crate) fn is_over(self) -> bool {
        Instant::now() >= self.0
    }

    /// Runs something that is outside of this process until the time is over, and drops it then.
    pub(crate) async fn within<T>(self, call: impl Future<Output = T>) -> Result<T, Elapsed> {
        tokio::time::timeout_at(self.0, call).await.map_err(|_| Elapsed)
    }
}

/// Why a body could not be read.
#[derive(Debug)]
pub(crate) enum BodyError {
    Broken(String),
    TooLarge(usize),
}

/// The whole body, if it is not larger than `max`.
pub(crate) async fn read_body(response: &mut Response, max: usize) -> Result<Vec<u8>, BodyError> {
    let announced = response.content_length().map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
    if announced > max {
        return Err(BodyError::TooLarge(max));
    }
    let mut body = Vec::with_capacity(announced);
    while let Some(chunk) = response.chunk().await.map_err(|error| BodyError::Broken(cause(&error)))? {
        if chunk.len() > max - body.len() {
            return Err(BodyError::TooLarge(max));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Words of the other side, as they came: they may quote a secret.
pub(crate) struct Quotation {
    /// Whether nothing is missing at its end.
    ended: bool,
    text: String,
}

impl Quotation {
    /// All of these words.
    pub(crate) const fn all(text: String) -> Self {
        Self { ended: true, text }
    }

    /// The beginning of words that go on.
    pub(crate) const fn beginning(text: String) -> Self {
        Self { ended: false, text }
    }

    /// Whether these words stand in it, wherever it is cut when it is shown.
    pub(crate) fn has(&self, words: &str) -> bool {
        self.text.contains(words)
    }

    /// Their beginning on one line. Secrets are taken out before anything is cut, so that no half of one is left.
    pub(crate) fn shown(&self, scrubber: &Scrubber) -> String {
        let text = if self.ended { scrubber.text(&self.text) } else { scrubber.beginning(&self.text) };
        cut(&scrubber.text(&one_line(&text)))
    }
}

/// Whether the body says where it ends.
fn is_delimited(response: &Response) -> bool {
    response.content_length().is_some() || response.headers().contains_key(header::TRANSFER_ENCODING)
}

/// A refusal's body, as far as it comes soon; one that breaks or stalls takes nothing away from the status.
pub(crate) async fn quote(response: &mut Response, deadline: Deadline) -> Quotation {
    let deadline = deadline.at_most(QUOTE_TIME);
    let mut body = Vec::new();
    let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
    while body.len() < QUOTE_CHARS_MAX * 4 {
        match deadline.within(response.chunk()).await {
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            // Where only the connection's end ends the body, it may have broken off.
            Ok(Ok(None)) if is_delimited(response) => return Quotation::all(text(&body)),
            Ok(Ok(None)) => break,
            Ok(Err(_)) | Err(Elapsed) => break,
        }
    }
    Quotation::beginning(text(&body))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(QUOTE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The innermost cause in words. The errors around it repeat the URL, which may hold secrets.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// The first error of a type among the causes.
pub(crate) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    causes(error).find_map(|error| error.downcast_ref::<E>())
}

/// Whether this process, or its machine, has no open file left: nothing of the other side's.
pub(crate) fn is_out_of_files(error: &(dyn Error + 'static)) -> bool {
    /// `ENFILE` and `EMFILE`, which have the same numbers on every system that this runs on.
    const OUT_OF_FILES: [i32; 2] = [23, 24];
    let number = |error: &(dyn Error + 'static)| error.downcast_ref::<std::io::Error>()?.raw_os_error();
    let mine = causes(error).filter_map(number).any(|number| OUT_OF_FILES.contains(&number));
    mine && !aetheris_fault::planted!("want-of-files-is-theirs")
}

/// The error and what lies behind it.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| behind(*error))
}

/// What lies behind an error.
fn behind<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    // An input/output error does not name the error that it carries as its source.
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(carried) => Some(carried),
        None => error.source(),
    }
}

/// Where a URL leads, without what may be secret in it.
pub(crate) fn origin(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What other sides say is cut at two hundred characters, wherever their bytes end.
    #[test]
    fn a_quotation_has_two_hundred_characters() {
        let shown = |text: String| Quotation::all(text).shown(&Scrubber::new([], []));
        for character in ["a", "é"] {
            assert_eq!(shown(character.repeat(200)), character.repeat(200));
            assert_eq!(shown(character.repeat(201)), format!("{}…", character.repeat(200)));
        }
        // On one line, and counted as it is shown.
        assert_eq!(shown(format!(" a \r\n\t{}\u{7}", "b".repeat(198))), format!("a {}", "b".repeat(198)));
    }

    #[test]
    fn want_of_files_is_told_however_deep_it_lies() {
        let os = std::io::Error::from_raw_os_error;
        for (number, ours) in [(23, true), (24, true), (111, false), (2, false)] {
            assert_eq!(is_out_of_files(&os(number)), ours, "{number}");
            assert_eq!(is_out_of_files(&std::io::Error::other(std::io::Error::other(os(number)))), ours, "{number}");
        }
        assert!(!is_out_of_files(&std::io::Error::other("no number")));
    }
}
