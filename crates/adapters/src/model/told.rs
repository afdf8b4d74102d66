//! What providers say of their limits in the headers of an answer, in both forms that are in use.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap};

use crate::retry_after::retry_after;

/// What is left of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// All that there is.
    pub(super) limit: u64,
    /// What is left of it.
    pub(super) remaining: u64,
    /// How long until there is all of it again.
    pub(super) reset: Duration,
}

/// What is left of each limit that is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    pub(super) requests: Option<Left>,
    pub(super) tokens: Option<Left>,
}

/// Reads what is left.
pub(super) fn left(headers: &HeaderMap) -> Told {
    // `x-ratelimit-*` says how long, `anthropic-ratelimit-*` until when.
    let openai = |of: &str| {
        let name = |part: &str| format!("x-ratelimit-{part}-{of}");
        left_by(headers, &name("limit"), &name("remaining"), &name("reset"))
    };
    let anthropic = |of: &str| {
        let name = |part: &str| format!("anthropic-ratelimit-{of}-{part}");
        left_by(headers, &name("limit"), &name("remaining"), &name("reset"))
    };
    Told {
        requests: openai("requests").or_else(|| anthropic("requests")),
        tokens: openai("tokens").or_else(|| anthropic("tokens")).or_else(|| anthropic("input-tokens")),
    }
}

/// How long until what is used up is there again, as far as the counts tell: for others, not for the one that was refused, whose
/// policy knows more.
pub(super) fn until_some(headers: &HeaderMap) -> Option<Duration> {
    let Told { requests, tokens } = left(headers);
    // Of requests one is there soon; of tokens nobody knows how many are wanted.
    let request = requests.filter(|left| left.remaining == 0).map(|left| left.reset / one_of(left.limit));
    let tokens = tokens.filter(|left| left.remaining == 0).map(|left| left.reset);
    request.max(tokens)
}

/// How long a refusal asks to wait: in milliseconds, in seconds or until a date.
pub(super) fn asked_to_wait(headers: &HeaderMap) -> Option<Duration> {
    let millis = text(headers, "retry-after-ms").and_then(|text| text.parse::<f64>().ok());
    let millis = millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1_000.0).ok());
    let asked = millis.or_else(|| retry_after(headers).map(aetheris_core::time::Span::to_std));
    // Whoever asks for no time says nothing: the policy of the step knows more.
    asked.filter(|wait| !wait.is_zero())
}

fn left_by(headers: &HeaderMap, limit: &str, remaining: &str, reset: &str) -> Option<Left> {
    let count = |name| text(headers, name).and_then(|text| text.parse().ok());
    let reset = text(headers, reset)?;
    let reset = span(reset).or_else(|| until(reset, headers))?;
    Some(Left { limit: count(limit)?, remaining: count(remaining)?, reset })
}

fn one_of(limit: u64) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX).max(1)
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// A duration such as `6m0s`, `120ms` or `2m59.56s`; a number alone is of seconds.
fn span(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let (mut rest, mut whole) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(end);
        let unit_end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let seconds = match &unit[..unit_end] {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        whole = whole.checked_add(part)?;
        rest = &unit[unit_end..];
    }
    Some(whole)
}

/// How long until a moment, by the sender's own clock: without its `Date` it says nothing.
fn until(moment: &str, headers: &HeaderMap) -> Option<Duration> {
    let at: Timestamp = moment.parse().ok()?;
    let answered = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text(headers, DATE.as_str())?).ok()?;
    let left = at.as_millisecond().saturating_sub(answered.as_millisecond());
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn durations_are_read_as_they_are_written() {
        for (text, millis) in [
            ("1s", 1_000),
            ("6m0s", 360_000),
            ("120ms", 120),
            ("2m59.56s", 179_560),
            ("1h0m0s", 3_600_000),
            ("1d2h", 93_600_000),
            ("7.5", 7_500),
            ("0s", 0),
        ] {
            assert_eq!(span(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["soon", "5 minutes", "1.2.3s", "m", "-5s", "5", "1e400s"].iter().filter(|text| **text != "5") {
            assert_eq!(span(text), None, "{text}");
        }
    }

    #[test]
    fn both_kinds_of_headers_say_what_is_left() {
        let left_of = |limit, remaining, millis| Some(Left { limit, remaining, reset: Duration::from_millis(millis) });
        let openai = headers(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        let told = Told { requests: left_of(60, 59, 1_000), tokens: left_of(150_000, 149_984, 360_000) };
        assert_eq!(left(&openai), told);
        let mut anthropic = headers(&[
            ("date", "Sat, 28 Nov 2026 18:00:00 GMT"),
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-28T18:00:07Z"),
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-input-tokens-remaining", "39000"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-28T17:59:00Z"),
        ]);
        assert_eq!(left(&anthropic), Told { requests: left_of(50, 0, 7_000), tokens: left_of(40_000, 39_000, 0) });
        assert_eq!(
            (asked_to_wait(&anthropic), until_some(&anthropic)),
            (None, Some(Duration::from_millis(140))),
            "one of fifty"
        );
        anthropic.remove("date");
        assert_eq!(left(&anthropic), Told::default(), "our clock is not asked");
    }

    #[test]
    fn a_refusal_says_how_long_in_the_finest_way_it_has() {
        let wait = |pairs: &[(&'static str, &str)]| asked_to_wait(&headers(pairs)).map(|wait| wait.as_millis());
        assert_eq!(wait(&[("retry-after-ms", "250"), ("retry-after", "1")]), Some(250));
        assert_eq!(wait(&[("retry-after", "3")]), Some(3_000));
        assert_eq!(wait(&[("retry-after-ms", "soon"), ("retry-after", "1")]), Some(1_000));
        assert_eq!(wait(&[("retry-after", "0")]), None);
        assert_eq!(wait(&[("retry-after-ms", "-5")]), None);
        assert_eq!(wait(&[]), None);
    }
}
