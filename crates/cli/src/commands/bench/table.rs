//! The rows of a benchmark, and how they are read.

use serde::Serialize;

use crate::commands::prove;
use crate::render::Table;

/// What a figure is to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// Only told.
    None,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) name: String,
    /// The figure.
    pub(crate) value: f64,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// What it is to be.
    pub(crate) goal: Goal,
    /// What stands behind it.
    pub(crate) detail: String,
}

/// All figures of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Rows {
    rows: Vec<Row>,
}

impl Row {
    fn meets(&self) -> Option<bool> {
        match self.goal {
            Goal::AtLeast(goal) => Some(self.value >= goal),
            Goal::AtMost(goal) => Some(self.value <= goal),
            Goal::None => None,
        }
    }
}

impl Rows {
    /// Adds a figure.
    pub(crate) fn add(
        &mut self,
        name: &str,
        (value, unit): (f64, &'static str),
        goal: Goal,
        detail: impl Into<String>,
    ) {
        self.rows.push(Row { name: name.to_owned(), value, unit, goal, detail: detail.into() });
    }
}

fn number(value: f64) -> String {
    if value >= 1_000.0 {
        let digits = format!("{value:.0}");
        let mut grouped = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        grouped
    } else if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

impl Rows {
    /// The figures as a table.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(&["what", ">figure", ">goal", "", "~how"]);
        for row in &self.rows {
            let goal = match row.goal {
                Goal::AtLeast(goal) => format!("≥ {}", number(goal)),
                Goal::AtMost(goal) => format!("≤ {}", number(goal)),
                Goal::None => String::new(),
            };
            let verdict = match row.meets() {
                Some(true) => "met",
                Some(false) => "missed",
                None => "",
            };
            let figure = format!("{} {}", number(row.value), row.unit);
            table.row(vec![row.name.clone(), figure, goal, verdict.to_owned(), row.detail.clone()]);
        }
        table
    }
}

/// Sorted durations to a percentile, in microseconds.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> f64 {
    prove::percentile(sorted, percent) as f64
}
