//! What a schema costs: to judge a part of a value, and in memory.

use aetheris_core::limits;
use serde_json::Number;

use crate::bounds::{IN_PLACE, UNEVALUATED};
use crate::pattern::{REMEMBERED_BYTES, TRIED_BYTES};

/// What a part takes when it is compiled, in bytes.
const COPY_BYTES: usize = 1024;
/// The library has a matcher for each of so many threads, once they have used it; on more processors than that, more.
pub const MATCHERS: usize = 9;
/// What a matcher keeps that has walked short texts only: what it remembers, in both directions.
const MATCHER_BYTES: usize = 2 * REMEMBERED_BYTES;
/// What one matcher of each pattern of a schema keeps together of the places that they have tried in short texts.
const TRIED_IN_SHORT_BYTES: usize = 64 * 1024;
/// The tables of states that one matcher of each pattern of a schema may have together while the schema is kept.
const TABLES_KEPT_BYTES_MAX: usize = 64 * 1024;
/// An exact division takes as long as so many comparisons.
const DIVISION: usize = 16;
/// The same by a factor that is so small or so large that what it divides has thousands of digits.
const EXTREME: usize = 64;
/// A number beyond this has so many digits itself.
const LARGE_NUMBER: f64 = 1e18;

// A state takes at least 24 bytes, and each place that is tried in it a bit.
const _: () = assert!(limits::SCHEMA_PATTERN_WORK_MAX / crate::LONG_PATTERNS / 24 / 8 <= TRIED_IN_SHORT_BYTES);

/// As how many numbers one counts where it is divided.
pub(crate) fn digits(number: &Number) -> usize {
    if number.as_f64().is_some_and(|number| number.abs() > LARGE_NUMBER) { EXTREME } else { 1 }
}

/// What a schema costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measured {
    /// To judge one part of a value.
    pub(crate) judge: Size,
    /// The most memory that it takes while it is kept, in bytes: compiled, and after it has judged what leaves little
    /// behind.
    pub(crate) memory: usize,
    /// The tables of states of all its patterns, in bytes.
    tables: usize,
    /// What its matchers hold while one value is judged that leaves much behind, in bytes.
    pub(crate) walking: usize,
}

impl Measured {
    /// Of a schema with patterns that stand at so many `places`, take `compiled` bytes and at all places `tables`.
    pub(crate) fn new(judge: Size, compiled: usize, places: usize, tables: usize) -> Self {
        let of_short_texts = if places == 0 { 0 } else { TRIED_IN_SHORT_BYTES + tables.min(TABLES_KEPT_BYTES_MAX) };
        let matchers = MATCHERS * (places * MATCHER_BYTES + of_short_texts);
        let memory = judge.copies.saturating_mul(COPY_BYTES).saturating_add(compiled) + matchers;
        Self { judge, memory, tables, walking: tables.saturating_add(places * (MATCHER_BYTES + TRIED_BYTES)) }
    }

    /// Whether its tables of states are more than may be kept.
    pub(crate) const fn has_large_tables(&self) -> bool {
        self.tables > TABLES_KEPT_BYTES_MAX
    }
}

/// What judging one part of a value may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// Subschemas, listed values and texts that are copied wherever a reference leads to them.
    pub(crate) copies: usize,
    /// Exact divisions of a number, weighed by the time that they take.
    pub(crate) divisions: usize,
    /// Subschemas and keywords that it may be asked about.
    pub(crate) parts: usize,
    /// Compiled patterns that it may be matched with, in bytes.
    pub(crate) pattern_bytes: usize,
}

impl Size {
    pub(crate) const NONE: Self = Self::of(0);
    pub(crate) const ONE: Self = Self::of(1);

    /// Of parts that are copied and take as long as each other.
    pub(crate) const fn of(parts: usize) -> Self {
        Self { copies: parts, divisions: 0, parts, pattern_bytes: 0 }
    }

    fn with(self, other: Self, both: fn(usize, usize) -> usize) -> Self {
        Self {
            copies: both(self.copies, other.copies),
            divisions: both(self.divisions, other.divisions),
            parts: both(self.parts, other.parts),
            pattern_bytes: both(self.pattern_bytes, other.pattern_bytes),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.with(other, usize::saturating_add)
    }

    pub(crate) fn times(self, factor: usize) -> Self {
        let each = Self { copies: factor, divisions: factor, parts: factor, pattern_bytes: factor };
        self.with(each, usize::saturating_mul)
    }
}

/// What a schema costs, in its two uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// To say whether a value fits.
    pub(crate) judge: Size,
    /// To say which parts of a value it has evaluated, for an `unevaluated` keyword of a schema that it stands in.
    pub(crate) mark: Size,
}

impl Cost {
    pub(crate) const NONE: Self = Self { judge: Size::NONE, mark: Size::NONE };
    pub(crate) const ONE: Self = Self { judge: Size::ONE, mark: Size::NONE };

    /// Of a keyword without a schema.
    pub(crate) fn of(parts: usize) -> Self {
        Self { judge: Size::of(parts), mark: Size::NONE }
    }

    /// Of a division by this factor.
    pub(crate) fn division(factor: Option<f64>) -> Self {
        let usual = factor.is_some_and(|factor| (1e-9..=1e15).contains(&factor.abs()));
        let divisions = if usual { DIVISION } else { EXTREME };
        Self { judge: Size { divisions, ..Size::ONE }, mark: Size::NONE }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { judge: self.judge.plus(other.judge), mark: self.mark.plus(other.mark) }
    }

    /// What a keyword of this cost adds to the marking of the schema that it stands in. A schema in place is judged
    /// and marks; of `contains` and of the `unevaluated` keywords themselves, what fits is evaluated; patterns are
    /// matched with names again; of the others the names and places are enough.
    pub(crate) fn marking(self, keyword: &str) -> Size {
        if IN_PLACE.contains(&keyword) {
            self.judge.plus(self.mark)
        } else if keyword == "contains" || UNEVALUATED.contains(&keyword) {
            self.judge
        } else if keyword == "patternProperties" {
            self.mark
        } else {
            Size::NONE
        }
    }
}
