//! Rows in columns: names to the left, numbers to the right, and on a narrow screen fewer of them.

use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use crate::text::{truncate, width};

/// What a column of names keeps before others are left out.
const NAME: usize = 12;

/// The least that is worth beginning a text in.
const REST: usize = 6;

/// Names make room for so much of a text.
const REST_WANTED: usize = 24;

/// A name, numbers from the most to the least important, and a text that takes what is left of the line.
pub(super) struct Row<const N: usize> {
    pub(super) cells: [String; N],
    pub(super) rest: String,
    pub(super) style: Style,
    pub(super) selected: bool,
}

pub(super) struct Table<const N: usize> {
    pub(super) head: [&'static str; N],
    pub(super) rest: &'static str,
    pub(super) rows: Vec<Row<N>>,
}

impl<const N: usize> Table<N> {
    /// The heading, and a line for each row, at most so wide. What is selected has a marker before it.
    pub(super) fn lines(self, columns: usize) -> Vec<Line<'static>> {
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = self.rows.iter().map(|row| width(&row.cells[column]));
            cells.max().unwrap_or(0).max(self.head[column].len())
        });
        let mut kept = 1;
        let mut left = columns.saturating_sub(2);
        let least = widths[0].min(NAME);
        for number in &widths[1..] {
            let Some(less) = left.checked_sub(2 + number).filter(|less| *less >= least) else { break };
            (kept, left) = (kept + 1, less);
        }
        let rest = self.rows.iter().map(|row| width(&row.rest)).max().unwrap_or(0).min(REST_WANTED);
        let for_rest = if kept == N && rest > 0 && left >= least + 2 + REST { 2 + rest } else { 0 };
        let name = widths[0].min(left.saturating_sub(for_rest).max(least).min(left));
        left -= name;
        let line = |marker: &str, cells: [&str; N], rest: &str, style: Style| {
            let first = truncate(cells[0], name);
            let mut line = format!("{marker}{first}{:padding$}", "", padding = name - width(&first));
            for (cell, width) in cells.iter().zip(widths).take(kept).skip(1) {
                line += &format!("  {cell:>width$}");
            }
            if kept == N && left >= 2 + REST && !rest.is_empty() {
                line += &format!("  {}", truncate(rest, left - 2));
            }
            Line::styled(truncate(&line, columns), style)
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let heading = line("  ", self.head, self.rest, bold);
        let rows = self.rows.iter().map(|row| {
            let (marker, style) = match row.selected {
                true => ("> ", row.style.add_modifier(Modifier::REVERSED)),
                false => ("  ", row.style),
            };
            line(marker, row.cells.each_ref().map(String::as_str), &row.rest, style)
        });
        std::iter::once(heading).chain(rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(columns: usize) -> Vec<String> {
        let row = |name: &str, numbers: [&str; 2], selected| Row {
            cells: [name, numbers[0], numbers[1]].map(str::to_owned),
            rest: "as it should be".into(),
            style: Style::new(),
            selected,
        };
        let rows = vec![row("日本の輸出の許可証", ["1", "4294967295"], true), row("b", ["12", "3"], false)];
        let table = Table { head: ["NAME", "HELD", "LIMIT"], rest: "STATE", rows };
        table.lines(columns).iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn columns_are_aligned() {
        let expected = [
            "  NAME                HELD       LIMIT  STATE",
            "> 日本の輸出の許可証     1  4294967295  as it should be",
            "  b                     12           3  as it should be",
        ];
        assert_eq!(shown(80), expected);
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out_from_the_last() {
        assert_eq!(shown(49)[1], "> 日本の輸出…      1  4294967295  as it should be");
        assert_eq!(shown(42)[1], "> 日本の輸出…      1  4294967295  as it s…");
        assert_eq!(shown(38)[1], "> 日本の輸出の許可証     1  4294967295");
        assert_eq!(shown(33)[1], "> 日本の輸出の…     1  4294967295");
        assert_eq!(shown(31)[1], "> 日本の輸出の許可証     1");
        assert_eq!(shown(20)[1], "> 日本の輸出…      1");
        assert_eq!(shown(12), ["  NAME", "> 日本の輸…", "  b"]);
    }

    #[test]
    fn no_width_is_too_small() {
        for columns in 0..60 {
            for line in shown(columns) {
                assert!(width(&line) <= columns, "{line:?} in {columns}");
            }
        }
    }
}
