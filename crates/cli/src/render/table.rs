//! Tables whose columns are as wide as their widest cell.

use super::{Style, Tone, width};

/// Between two columns.
const GAP: &str = "  ";

/// Rows of cells under a heading.
#[derive(Debug, Clone)]
pub struct Table {
    header: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; a name that begins with `>` aligns its column to the right.
    #[must_use]
    pub fn new(columns: &[&'static str]) -> Self {
        let header = columns.iter().map(|name| name.trim_start_matches('>')).collect();
        let right = columns.iter().map(|name| name.starts_with('>')).collect();
        Self { header, right, rows: Vec::new() }
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
        let widths = self.widths();
        let header: Vec<String> = self.header.iter().map(|name| style.paint(Tone::Dim, name)).collect();
        let mut text = self.line(&header, &widths);
        for row in &self.rows {
            text.push_str(&self.line(row, &widths));
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let cell = |row: &[String], column: usize| row.get(column).map_or(0, |cell| width(cell));
        let columns = self.header.iter().enumerate();
        columns
            .map(|(column, name)| self.rows.iter().map(|row| cell(row, column)).max().unwrap_or(0).max(width(name)))
            .collect()
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, columns) in widths.iter().enumerate() {
            let cell = cells.get(column).map_or("", String::as_str);
            let padding = " ".repeat(columns.saturating_sub(width(cell)));
            let (before, after) = if self.right[column] { (padding.as_str(), "") } else { ("", padding.as_str()) };
            if column > 0 {
                line.push_str(GAP);
            }
            line.extend([before, cell, after]);
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
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
}
