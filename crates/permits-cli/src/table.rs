//! The tables of `status`, `list` and `top`: names to the left, numbers to the right, a text at the end.
//!
//! Columns are as wide as terminals show them. In a narrow window columns are left out, the last ones first, because
//! they matter least.

use crate::text::{truncate, width};

/// The width down to which names are truncated to make room for a number.
const MIN_NAME: usize = 12;

/// The least width in which a text is begun.
const MIN_TEXT: usize = 6;

/// The width of a text for which names are truncated.
const WANTED_TEXT: usize = 24;

/// A name, numbers from the most to the least important, and a text in the rest of the line.
pub(crate) struct Row<const N: usize> {
    pub(crate) cells: [String; N],
    pub(crate) text: String,
}

pub(crate) struct Table<const N: usize> {
    pub(crate) head: [&'static str; N],
    /// The title of the texts.
    pub(crate) text: &'static str,
    pub(crate) rows: Vec<Row<N>>,
}

impl<const N: usize> Table<N> {
    /// The title of the labels: empty if no row has one.
    pub(crate) fn label_title(rows: &[Row<N>]) -> &'static str {
        if rows.iter().all(|row| row.text.is_empty()) { "" } else { "LABEL" }
    }

    /// The heading and a line for each row, each at most `columns` wide.
    pub(crate) fn lines(&self, columns: usize) -> Vec<String> {
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = self.rows.iter().map(|row| width(&row.cells[column]));
            cells.max().unwrap_or(0).max(self.head[column].len())
        });
        let mut kept = 1;
        let mut left = columns;
        let least = widths[0].min(MIN_NAME);
        for number in &widths[1..] {
            let Some(less) = left.checked_sub(2 + number).filter(|less| *less >= least) else { break };
            (kept, left) = (kept + 1, less);
        }
        let text = self.rows.iter().map(|row| width(&row.text)).max().unwrap_or(0).min(WANTED_TEXT);
        let for_text = if kept == N && text > 0 && left >= least + 2 + MIN_TEXT { 2 + text } else { 0 };
        let name = widths[0].min(left.saturating_sub(for_text).max(least).min(left));
        left -= name;
        let line = |cells: [&str; N], text: &str| {
            let first = truncate(cells[0], name);
            let mut line = format!("{first}{:padding$}", "", padding = name - width(&first));
            for (cell, width) in cells.iter().zip(widths).take(kept).skip(1) {
                line += &format!("  {cell:>width$}");
            }
            if kept == N && left >= 2 + MIN_TEXT && !text.is_empty() {
                line += &format!("  {}", truncate(text, left - 2));
            }
            line
        };
        let rows = self.rows.iter().map(|row| line(row.cells.each_ref().map(String::as_str), &row.text));
        std::iter::once(line(self.head, self.text)).chain(rows).collect()
    }

    /// The heading and the rows as lines of any width.
    pub(crate) fn print(&self) -> String {
        self.lines(usize::MAX).into_iter().map(|line| line + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<3> {
        let row = |name: &str, numbers: [&str; 2]| Row {
            cells: [name, numbers[0], numbers[1]].map(str::to_owned),
            text: "as it should be".into(),
        };
        let mut rows = vec![row("日本の輸出の許可証", ["1", "4294967295"]), row("b", ["12", "3"])];
        rows[1].text.clear();
        Table { head: ["NAME", "HELD", "LIMIT"], text: "STATE", rows }
    }

    fn lines(columns: usize) -> Vec<String> {
        table().lines(columns).iter().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn columns_are_aligned() {
        let expected = "\
NAME                HELD       LIMIT  STATE
日本の輸出の許可証     1  4294967295  as it should be
b                     12           3
";
        assert_eq!(table().print(), expected);
        assert_eq!(table().lines(78).join("\n"), expected.trim_end());
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out_from_the_last() {
        assert_eq!(lines(47)[1], "日本の輸出…      1  4294967295  as it should be");
        assert_eq!(lines(40)[1], "日本の輸出…      1  4294967295  as it s…");
        assert_eq!(lines(36)[1], "日本の輸出の許可証     1  4294967295");
        assert_eq!(lines(31)[1], "日本の輸出の…     1  4294967295");
        assert_eq!(lines(29)[1], "日本の輸出の許可証     1");
        assert_eq!(lines(18)[1], "日本の輸出…      1");
        assert_eq!(lines(10), ["NAME", "日本の輸…", "b"]);
    }

    #[test]
    fn no_width_is_too_small() {
        for columns in 0..60 {
            for line in lines(columns) {
                assert!(width(&line) <= columns, "{line:?} in {columns}");
            }
        }
    }
}
