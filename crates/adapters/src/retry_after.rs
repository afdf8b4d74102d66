//! The header `Retry-After`.

use aetheris_core::time::Span;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// When an answer asks to be called again. A date is measured from the answer's own `Date`, so that no
/// clock of ours is compared with the sender's; without one it says nothing.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Span> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse::<u64>() {
        return Some(Span::from_secs(seconds));
    }
    let at = PARSER.parse_timestamp(asked).ok()?;
    let answered = PARSER.parse_timestamp(text(DATE)?).ok()?;
    let seconds = at.as_second().saturating_sub(answered.as_second());
    Some(Span::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(retry: &str, date: Option<&str>) -> Option<Span> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry.parse().unwrap());
        if let Some(date) = date {
            headers.insert(DATE, date.parse().unwrap());
        }
        retry_after(&headers)
    }

    #[test]
    fn seconds_and_dates_are_understood_and_the_rest_says_nothing() {
        let date = Some("Sat, 21 Nov 2026 09:30:00 GMT");
        assert_eq!(asked("120", None), Some(Span::from_secs(120)));
        assert_eq!(asked(" 0 ", None), Some(Span::ZERO));
        assert_eq!(asked("Sat, 21 Nov 2026 09:31:30 GMT", date), Some(Span::from_secs(90)));
        assert_eq!(asked("Sat, 21 Nov 2026 09:00:00 GMT", date), Some(Span::ZERO));
        assert_eq!(asked("Sat, 21 Nov 2026 09:31:30 GMT", None), None);
        for text in ["-1", "soon", "", "1.5", "99999999999999999999999"] {
            assert_eq!(asked(text, date), None, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
