//! Time as values. Nothing here reads a clock: a [`Timestamp`] comes from a store, which alone decides
//! about time, and is kept in microseconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::BootId;

/// A moment by the store's clock, in microseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since 1970.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// This moment and `by` later, at most the last moment that can be named.
    #[must_use]
    pub fn after(self, by: Span) -> Self {
        // Whole seconds: the calendar's last one cannot be named to its last microsecond.
        let last = (jiff::Timestamp::MAX.as_second() * 1_000_000).max(self.0);
        Self(self.0.saturating_add(by.micros_i64()).min(last))
    }

    /// This moment and `by` earlier, at least the beginning of 1970 or, from before that, this moment.
    #[must_use]
    pub fn before(self, by: Span) -> Self {
        Self(self.0.saturating_sub(by.micros_i64()).max(self.0.min(0)))
    }

    /// In UTC and to the second, as lines for people have it: `2026-11-21 09:30:00Z`.
    #[must_use]
    pub fn to_the_second(self) -> String {
        let text = self.to_string();
        match text.get(..19) {
            Some(seconds) => format!("{}Z", seconds.replace('T', " ")),
            None => text,
        }
    }

    /// How long from `earlier` to here; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => f.pad(&format!("{at:.6}")),
            Err(_) => f.pad(&format!("{}us", self.0)),
        }
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<jiff::Timestamp>()
            .map(|at| Self(at.as_microsecond()))
            .map_err(|_| format!("`{text}` is not a time: expected RFC 3339, as 2026-11-21T09:30:00Z"))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A moment of a boot clock: it counts while the machine sleeps, nobody can set it, and it means something only on
/// the clock that it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BootMoment {
    /// Time since the boot.
    pub at: Span,
    /// Which boot clock.
    pub of: BootId,
}

/// What two clocks show at one moment: the store's, which can be set, and a boot clock, which cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reading {
    /// The store's clock.
    pub at: Timestamp,
    /// The boot clock.
    pub boot: BootMoment,
}

/// A length of time in whole microseconds; written `250ms`, `30s`, `5m`, `24h`, `7d` where people read
/// or write it, and as a number of microseconds in events (fields ending in `_us`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// From microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// From milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// From seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// In microseconds.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// In microseconds, at most `i64::MAX`.
    #[must_use]
    pub fn micros_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// As the standard library's type.
    #[must_use]
    pub const fn to_std(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// From the standard library's type, cut to microseconds.
    #[must_use]
    pub fn from_std(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }

    /// Both together, at most the longest span.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// As people read it: whole seconds, below one second whole milliseconds, and below one of those as it is.
    #[must_use]
    pub const fn rounded(self) -> Self {
        let unit = if self.0 >= 1_000_000 { 1_000_000 } else { 1_000 };
        if self.0 < unit { self } else { Self(self.0 - self.0 % unit) }
    }

    /// What is left after taking `other` away; zero if nothing is.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

const UNITS: [(&str, u64); 6] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = UNITS
            .iter()
            .rev()
            .find(|(unit, size)| *unit != "d" && self.0 >= *size && self.0.is_multiple_of(*size))
            .unwrap_or(if self.0 == 0 { &UNITS[2] } else { &UNITS[0] });
        f.pad(&format!("{}{unit}", self.0 / size))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a duration: expected a number and a unit, as 250ms, 30s, 5m, 24h or 7d");
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (digits, unit) = trimmed.split_at(split);
        let size = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size).ok_or_else(wrong)?;
        if digits.is_empty() {
            return Err(wrong());
        }
        let micros = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(size));
        micros.map(Self).ok_or_else(|| format!("`{text}` is too long for a duration: at most ten years, 3650d"))
    }
}

impl Serialize for Span {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// When something is to happen. A length is turned into a moment by the store, inside the transaction
/// that writes it, so that no client's clock is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// At a named moment.
    At(Timestamp),
    /// So long after the store has written it.
    After(Span),
}

impl Due {
    /// The moment, given the store's time of the write.
    #[must_use]
    pub fn resolve(self, written: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::After(span) => written.after(span),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_survive_their_text_form() {
        for text in ["250ms", "30s", "5m", "24h", "1us", "0s", "90s"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("7d".parse::<Span>().unwrap().to_string(), "168h");
    }

    #[test]
    fn what_is_not_a_span_is_refused_with_an_example() {
        for text in ["", "5", "s", "5 s", "-1s", "1w", "99999999999999999999w"] {
            assert!(text.parse::<Span>().unwrap_err().contains("250ms"), "{text}");
        }
        for text in ["99999999999999999999s", "434142356d"] {
            let error = text.parse::<Span>().unwrap_err();
            assert!(error.contains(text) && error.contains("at most ten years"), "{error}");
        }
    }

    #[test]
    fn however_late_a_moment_has_a_name_that_can_be_read() {
        let late = Timestamp::from_micros(1).after(Span::from_micros(u64::MAX));
        assert_eq!(late.to_string().parse::<Timestamp>(), Ok(late));
        assert_eq!(late.after(Span::from_secs(1)), late);
    }

    #[test]
    fn moments_are_rfc_3339() {
        let at: Timestamp = "2026-11-21T09:30:00.000001Z".parse().unwrap();
        assert_eq!(at.to_string(), "2026-11-21T09:30:00.000001Z");
        assert_eq!(Due::After(Span::from_secs(1)).resolve(at).since(at), Span::from_secs(1));
    }

    #[test]
    fn moments_are_counted_without_overflow() {
        let (at, later) = (Timestamp::from_micros(5), Timestamp::from_micros(9));
        assert_eq!(later.micros(), 9);
        assert_eq!((later.since(at), at.since(later)), (Span::from_micros(4), Span::ZERO));
        assert_eq!(at.after(Span::from_micros(4)), later);
        let last = Timestamp::from_micros(i64::MAX);
        assert_eq!(last.after(Span::from_micros(1)), last);
        // Before 1970 too.
        let (early, earlier) = (Timestamp::from_micros(-5), Timestamp::from_micros(-9));
        assert_eq!((early.since(earlier), earlier.since(early)), (Span::from_micros(4), Span::ZERO));
        assert_eq!((at.since(early), early.since(at)), (Span::from_micros(10), Span::ZERO));
        assert_eq!((earlier.after(Span::from_micros(4)), early.after(Span::from_micros(10))), (early, at));
        let first = Timestamp::from_micros(i64::MIN);
        assert_eq!((last.since(first), first.since(last)), (Span::from_micros(i64::MAX.unsigned_abs()), Span::ZERO));
        assert_eq!(
            (early.before(Span::from_micros(4)), at.before(Span::from_micros(9))),
            (early, Timestamp::from_micros(0))
        );
        assert_eq!((first.since(first), first.after(Span::ZERO)), (Span::ZERO, first));
        assert_eq!(early.to_string(), "1969-12-31T23:59:59.999995Z");
        assert_eq!(early.to_string().parse::<Timestamp>(), Ok(early));
        assert_eq!(serde_json::from_str::<Timestamp>(&serde_json::to_string(&early).unwrap()).unwrap(), early);
        // The last second of the calendar.
        assert_eq!(at.after(Span::from_micros(u64::MAX)).micros(), 253_402_207_200_000_000);
        assert_eq!(Span::from_micros(u64::MAX).micros_i64(), i64::MAX);
        assert_eq!(Span::from_micros(7).micros_i64(), 7);
        assert_eq!(
            (Due::At(at).resolve(later), Due::After(Span::from_micros(1)).resolve(later)),
            (at, Timestamp::from_micros(10))
        );
        assert_eq!(last.to_string(), format!("{}us", i64::MAX));
        assert!("yesterday".parse::<Timestamp>().unwrap_err().contains("RFC 3339"));
        assert_eq!(serde_json::from_str::<Timestamp>(&serde_json::to_string(&at).unwrap()).unwrap(), at);
    }

    #[test]
    fn spans_are_counted_without_overflow() {
        let (short, long) = (Span::from_millis(2), Span::from_secs(3));
        assert_eq!((short.micros(), long.micros()), (2_000, 3_000_000));
        assert_eq!(short.plus(long), Span::from_micros(3_002_000));
        assert_eq!((long.minus(short), short.minus(long)), (Span::from_micros(2_998_000), Span::ZERO));
        assert_eq!(long.to_std(), Duration::from_secs(3));
        for (micros, read) in [(3_051_960, "3s"), (101_290_029, "101s"), (8_642, "8ms"), (999, "999us"), (0, "0s")] {
            assert_eq!(Span::from_micros(micros).rounded().to_string(), read);
        }
        assert_eq!(Span::from_std(Duration::from_nanos(2_999)), Span::from_micros(2));
        assert_eq!(Span::from_std(Duration::MAX), Span::from_micros(u64::MAX));
        assert_eq!(serde_json::to_value(long).unwrap(), "3s");
        assert_eq!(serde_json::from_str::<Span>("\"3s\"").unwrap(), long);
    }
}
