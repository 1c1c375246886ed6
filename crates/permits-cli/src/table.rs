//! Tables for people: columns aligned as terminals show them, names to the left, numbers to the right.

use std::fmt::Write as _;

use crate::text;

/// To which side of its column a cell is put.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A head and rows, a line each. No line ends with spaces, except one whose last cell does.
pub(crate) fn table<const N: usize>(
    head: [(&str, Side); N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let titles = head.map(|(title, _)| title.to_owned());
    let rows: Vec<[String; N]> = std::iter::once(titles).chain(rows).collect();
    let length = |cell: &String| text::width(cell);
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0));
    let mut lines = String::new();
    for row in rows {
        // What is empty at the end of a row needs no room.
        let used = row.iter().rposition(|cell| !cell.is_empty()).map_or(0, |last| last + 1);
        for (column, cell) in row.iter().enumerate().take(used) {
            let room = widths[column] - length(cell);
            let (before, after) = match head[column].1 {
                Side::Left => (0, if column + 1 == used { 0 } else { room }),
                Side::Right => (room, 0),
            };
            let gap = if column == 0 { 0 } else { 2 };
            let _ = write!(lines, "{:gap$}{:before$}{cell}{:after$}", "", "", "");
        }
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_as_terminals_show_them() {
        let rows = [["ünï", "7", "yes"], ["日本", "1000", ""], ["", "2", "no"]];
        let head = [("NAME", Side::Left), ("N", Side::Right), ("", Side::Left)];
        let text = table(head, rows.map(|row| row.map(str::to_owned)).into_iter());
        assert_eq!(text, "NAME     N\nünï      7  yes\n日本  1000\n         2  no\n");
    }
}
