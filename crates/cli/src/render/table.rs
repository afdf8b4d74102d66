//! Tables that know the width of the terminal: cells of free text give way first, then each row becomes
//! a paragraph. Names and keys, which are copied, are never cut.

use super::wrap::{flow, wrap};
use super::{Style, Tone, cut, width};

/// Between two columns.
const GAP: &str = "  ";
/// Fewest columns of a cell of free text in a row: what is cut shorter says nothing to whoever has to decide by it.
const FREE_MIN: usize = 40;
/// Columns before what follows a row's first cell where the row is a paragraph.
const INDENT: usize = 2;

/// Rows of cells under a heading.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Clone, Copy)]
struct Column {
    name: &'static str,
    /// Free text, which may be cut where the terminal is narrow. It has no colours.
    free: bool,
    right: bool,
}

impl Table {
    /// A table with these columns; a name that begins with `>` aligns its column to the right, one that
    /// begins with `~` has free text without colours.
    #[must_use]
    pub fn new(columns: &[&'static str]) -> Self {
        let column = |name: &&'static str| Column {
            name: name.trim_start_matches(['>', '~']),
            free: name.starts_with('~'),
            right: name.starts_with('>'),
        };
        Self { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Whether it has no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its text, each line ended.
    #[must_use]
    pub fn render(&self, style: Style) -> String {
        let mut widths = self.widths();
        if !style.columns.is_none_or(|columns| self.narrow(&mut widths, columns)) {
            return self.rows.iter().map(|row| self.paragraph(row, style)).collect();
        }
        let header: Vec<String> = self.columns.iter().map(|column| style.paint(Tone::Dim, column.name)).collect();
        let mut text = self.line(&header, &widths);
        for row in &self.rows {
            text.push_str(&self.line(row, &widths));
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let cell = |row: &[String], place: usize| row.get(place).map_or(0, |cell| width(cell));
        let columns = self.columns.iter().enumerate();
        columns
            .map(|(place, column)| {
                self.rows.iter().map(|row| cell(row, place)).max().unwrap_or(0).max(width(column.name))
            })
            .collect()
    }

    /// Makes columns of free text narrower, the widest first, until the rows fit; whether they do.
    fn narrow(&self, widths: &mut [usize], columns: usize) -> bool {
        loop {
            let total = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
            if total <= columns {
                return true;
            }
            let free = self.columns.iter().zip(widths.iter_mut()).filter(|(column, _)| column.free);
            match free.map(|(_, width)| width).filter(|width| **width > FREE_MIN).max() {
                Some(widest) => *widest -= (total - columns).min(*widest - FREE_MIN).min((*widest / 4).max(1)),
                None => return false,
            }
        }
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (place, (column, columns)) in self.columns.iter().zip(widths).enumerate() {
            let cell = cells.get(place).map_or("", String::as_str);
            let cell = if width(cell) > *columns { cut(cell, *columns) } else { cell.to_owned() };
            let padding = " ".repeat(columns.saturating_sub(width(&cell)));
            let (before, after) = if column.right { (padding.as_str(), "") } else { ("", padding.as_str()) };
            if place > 0 {
                line.push_str(GAP);
            }
            line.extend([before, &cell, after]);
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }

    /// A row as its first cell and, below it, each other cell behind the name of its column.
    fn paragraph(&self, cells: &[String], style: Style) -> String {
        let indent = " ".repeat(INDENT);
        let below = style.columns.map(|columns| columns.saturating_sub(INDENT));
        let mut items = Vec::new();
        for (column, cell) in self.columns.iter().zip(cells).skip(1).filter(|(_, cell)| !cell.is_empty()) {
            let name = column.name.to_lowercase();
            let used = width(&name) + 1;
            let cell = if column.free { wrap(cell, below, used, used) } else { cell.clone() };
            items.push(format!("{} {cell}", style.paint(Tone::Dim, &name)));
        }
        let first = match (self.columns.first(), cells.first()) {
            // A number alone says nothing.
            (Some(column), Some(cell)) if column.right => format!("{} {cell}", column.name.to_lowercase()),
            (_, cell) => cell.cloned().unwrap_or_default(),
        };
        let rest = flow(&items, " · ", below, 0).replace('\n', &format!("\n{indent}"));
        if rest.is_empty() { format!("{first}\n") } else { format!("{first}\n{indent}{rest}\n") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let mut table = Table::new(&["NAME", ">COUNT", "NOTE"]);
        table.row(vec!["日本".to_owned(), "7".to_owned(), "wide".to_owned()]);
        table.row(vec!["\u{1b}[32mok\u{1b}[0m".to_owned(), "1234567".to_owned()]);
        let expected = "NAME    COUNT  NOTE\n日本        7  wide\n\u{1b}[32mok\u{1b}[0m    1234567\n";
        assert_eq!(table.render(Style::default()), expected);
    }

    fn sample() -> Table {
        let mut table = Table::new(&["JOB", "KEY", "~REASON"]);
        let reason = "a refund of 20 EUR for somebody who has waited long";
        table.row(vec!["job_01M7XZ5CJ7E4WSJSS650N53FT6".to_owned(), "approve-A-1".to_owned(), reason.to_owned()]);
        table
    }

    fn at(columns: usize) -> String {
        sample().render(Style { columns: Some(columns), ..Style::default() })
    }

    #[test]
    fn free_text_gives_way_first() {
        let expected = "JOB                             KEY          REASON
job_01M7XZ5CJ7E4WSJSS650N53FT6  approve-A-1  a refund of 20 EUR for somebody who has…
";
        assert_eq!(at(85), expected);
        let whole = sample().render(Style::default());
        assert!(whole.contains("somebody who has waited long\n") && at(120) == whole, "{whole}");
    }

    #[test]
    fn where_even_that_is_too_wide_a_row_is_a_paragraph_and_nothing_is_cut() {
        let expected = "job_01M7XZ5CJ7E4WSJSS650N53FT6
  key approve-A-1
  reason a refund of 20 EUR for somebody who
         has waited long
";
        assert_eq!(at(44), expected);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for columns in 34..130 {
            assert!(at(columns).lines().all(|line| width(line) <= columns), "{columns}: {}", at(columns));
        }
    }
}
