//! What a check of a database has found.

use aetheris_check::Report;

use super::safe::one_line;
use super::{Style, Table, wrap};

/// The invariants with their cases, and what violates them.
#[must_use]
pub fn report(report: &Report, style: Style) -> String {
    let mut table = Table::new(&["ID", "~INVARIANT", ">CASES", "VERDICT"]);
    for line in &report.lines {
        table.row(vec![line.id.id().to_owned(), line.what.to_owned(), line.examined.to_string(), line.verdict()]);
    }
    let mut text = table.render(style);
    for line in report.lines.iter().filter(|line| line.violated > 0) {
        let head = format!("{} {}", line.id, line.what);
        text.push_str(&format!("\n{}\n", wrap(&head, style.columns, 0, 2)));
        for violation in &line.violations {
            text.push_str(&format!("  - {}\n", wrap(&one_line(violation), style.columns, 4, 4)));
        }
        if line.untold() > 0 {
            text.push_str(&format!("  - and {} more\n", line.untold()));
        }
    }
    text
}
