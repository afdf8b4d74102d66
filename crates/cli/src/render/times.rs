//! Moments and durations as people say them.

use aetheris_core::time::{Span, Timestamp};

/// The moment to which relative times refer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now(pub Timestamp);

impl Now {
    /// The moment by this machine's clock: for display only, nothing is decided by it.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self(Timestamp::from_micros(jiff::Timestamp::now().as_microsecond()))
    }

    /// How long ago a moment is, or how far ahead.
    #[must_use]
    pub fn relative(self, at: Timestamp) -> String {
        let (ago, ahead) = (self.0.since(at), at.since(self.0));
        if ahead >= Span::from_secs(1) {
            format!("in {}", coarse(ahead))
        } else if ahead > Span::ZERO {
            "in a moment".to_owned()
        } else if ago < Span::from_secs(1) {
            "just now".to_owned()
        } else {
            format!("{} ago", coarse(ago))
        }
    }
}

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The largest unit only: `3s`, `5m`, `2h`, `4d`.
#[must_use]
pub fn coarse(span: Span) -> String {
    match span.micros() {
        0..SECOND => "0s".to_owned(),
        us @ SECOND..MINUTE => format!("{}s", us / SECOND),
        us @ MINUTE..HOUR => format!("{}m", us / MINUTE),
        us @ HOUR..DAY => format!("{}h", us / HOUR),
        us => format!("{}d", us / DAY),
    }
}

/// A duration with as many digits as matter: `340µs`, `12.5ms`, `1.24s`, `2m 05s`, `3h 10m`, `2d 4h`.
#[must_use]
pub fn span(span: Span) -> String {
    match span.micros() {
        us @ 0..1_000 => format!("{us}µs"),
        us @ 1_000..SECOND => format!("{}ms", decimals(us, 1_000)),
        us @ SECOND..MINUTE => format!("{}s", decimals(us, SECOND)),
        us @ MINUTE..HOUR => format!("{}m {:02}s", us / MINUTE, us % MINUTE / SECOND),
        us @ HOUR..DAY => format!("{}h {:02}m", us / HOUR, us % HOUR / MINUTE),
        us => format!("{}d {}h", us / DAY, us % DAY / HOUR),
    }
}

/// Three significant digits.
fn decimals(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    match whole {
        0..10 => format!("{whole}.{:02}", rest * 100 / unit),
        10..100 => format!("{whole}.{}", rest * 10 / unit),
        _ => whole.to_string(),
    }
}

/// How long something took, or has taken until now; nothing where its beginning and its end were
/// recorded at once, as the store's clock says nothing of it then.
#[must_use]
pub fn elapsed(from: Option<Timestamp>, to: Option<Timestamp>, now: Now) -> String {
    match from {
        Some(from) if to != Some(from) => span(to.unwrap_or(now.0).since(from)),
        Some(_) | None => String::new(),
    }
}

/// A moment in UTC to the second.
#[must_use]
pub fn clock(at: Timestamp) -> String {
    at.to_the_second()
}

/// A moment from which something is allowed, in UTC: of a second that has begun, the next one.
#[must_use]
pub fn clock_from(at: Timestamp) -> String {
    clock(at.after(Span::from_micros(SECOND - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_relative_to_now() {
        let now = Now(Timestamp::from_micros(1_000_000_000_000));
        let back = |secs: i64| now.relative(Timestamp::from_micros(1_000_000_000_000 - secs * 1_000_000));
        assert_eq!(back(0), "just now");
        assert_eq!(back(3), "3s ago");
        assert_eq!(back(61), "1m ago");
        assert_eq!(back(7_300), "2h ago");
        assert_eq!(back(200_000), "2d ago");
        assert_eq!(back(-90), "in 1m");
        assert_eq!(now.relative(Timestamp::from_micros(1_000_000_000_001)), "in a moment");
    }

    #[test]
    fn durations() {
        let of = |us: u64| span(Span::from_micros(us));
        assert_eq!(of(0), "0µs");
        assert_eq!(of(340), "340µs");
        assert_eq!(of(1_240), "1.24ms");
        assert_eq!(of(12_540), "12.5ms");
        assert_eq!(of(312_999), "312ms");
        assert_eq!(of(1_249_999), "1.24s");
        assert_eq!(of(125 * SECOND), "2m 05s");
        assert_eq!(of(11_400 * SECOND), "3h 10m");
        assert_eq!(of(52 * HOUR), "2d 4h");
    }

    /// The last of each unit, and the first of the next.
    #[test]
    fn units_end_where_the_next_begins() {
        for (end, told, next) in [
            (SECOND, ["0s", "999ms"], ["1s", "1.00s"]),
            (MINUTE, ["59s", "59.9s"], ["1m", "1m 00s"]),
            (HOUR, ["59m", "59m 59s"], ["1h", "1h 00m"]),
            (DAY, ["23h", "23h 59m"], ["1d", "1d 0h"]),
        ] {
            let of = |us| [coarse(Span::from_micros(us)), span(Span::from_micros(us))];
            assert_eq!((of(end - 1), of(end)), (told.map(str::to_owned), next.map(str::to_owned)));
        }
        let of = |us| span(Span::from_micros(us));
        assert_eq!(
            [of(999), of(1_000), of(9_999), of(10_000), of(99_999), of(100_000)],
            ["999\u{b5}s", "1.00ms", "9.99ms", "10.0ms", "99.9ms", "100ms"]
        );
        let now = Now(Timestamp::from_micros(1_000_000_000_000));
        let ago = |us: i64| now.relative(Timestamp::from_micros(1_000_000_000_000 - us));
        assert_eq!(
            [ago(999_999), ago(1_000_000), ago(-999_999), ago(-1_000_000)],
            ["just now", "1s ago", "in a moment", "in 1s"]
        );
    }

    #[test]
    fn moments_to_the_second() {
        assert_eq!(clock(Timestamp::from_micros(0)), "1970-01-01 00:00:00Z");
    }

    #[test]
    fn what_is_allowed_from_a_moment_on_is_not_refused_at_the_second_that_is_shown() {
        let from = |text: &str| clock_from(text.parse().unwrap());
        assert_eq!(from("2026-11-24T23:09:14.833Z"), "2026-11-24 23:09:15Z");
        assert_eq!(from("2026-11-24T23:09:14Z"), "2026-11-24 23:09:14Z");
    }
}
