//! The tables of `status`, `list` and `top`: names to the left, numbers to the right, a text at the end.
//!
//! Columns are as wide as terminals show them. A narrow window leaves columns out, the last first: those that
//! are not `essential`, then the text, then the others. The first column that is not `essential` and has no
//! values is left out in any window, with those behind it. A text with several forms is never left out: it
//! takes a shorter form, and numbers go first.

use crate::text::{printable, truncate, truncate_middle, width};

/// The width down to which names are truncated to make room for a number.
const MIN_NAME: usize = 11;

/// The least width in which a text is begun.
const MIN_TEXT: usize = 6;

/// The width of a text for which names are truncated.
const WANTED_TEXT: usize = 24;

/// The least width of a name beside a text with several forms, unless it is more than half of the line.
const MIN_NAME_WITH_FORMS: usize = 8;

/// The width down to which the longer forms of a text are kept in place of numbers: the width of a word.
const WORD: usize = 10;

/// A name, numbers from the most to the least important, and a text in the rest of the line.
pub(crate) struct Row<const N: usize> {
    pub(crate) cells: [String; N],
    pub(crate) text: Text,
}

/// A text at the end of a line.
#[derive(Default)]
pub(crate) struct Text {
    /// The same text in several lengths, the longest first. One of them is always shown.
    pub(crate) forms: Vec<String>,
    /// A text after the longest form, cut off at the end of the line.
    pub(crate) rest: String,
}

impl From<String> for Text {
    fn from(rest: String) -> Self {
        Self { forms: Vec::new(), rest }
    }
}

impl Text {
    /// The lane in brackets and the label of a holder or waiter, as far as it has them.
    pub(crate) fn of(lane: Option<&str>, label: Option<&str>) -> Self {
        let lane = lane.map(|lane| format!("[{lane}]"));
        let parts = [lane.as_deref(), label].into_iter().flatten();
        parts.collect::<Vec<_>>().join(" ").into()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.forms.iter().all(String::is_empty)
    }

    fn width(&self) -> usize {
        self.forms.first().map_or(0, |form| width(form)) + width(&self.rest)
    }

    /// The width for which numbers are left out.
    fn least(&self) -> usize {
        let widths = || self.forms.iter().map(|form| width(form));
        widths().find(|width| *width <= WORD).or(widths().next_back()).unwrap_or(0)
    }

    /// The longest form that fits.
    pub(crate) fn fitted(&self, columns: usize) -> String {
        match self.forms.iter().position(|form| width(form) <= columns) {
            Some(form @ 1..) => self.forms[form].clone(),
            None if !self.forms.is_empty() => truncate(&self.forms[self.forms.len() - 1], columns),
            _ => {
                let form = self.forms.first().map_or("", String::as_str);
                let is_cut_short = columns < width(form) + MIN_TEXT.min(width(&self.rest));
                if is_cut_short {
                    form.to_owned()
                } else {
                    truncate(&format!("{form}{}", self.rest), columns)
                }
            }
        }
    }
}

pub(crate) struct Table<const N: usize> {
    pub(crate) head: [&'static str; N],
    /// The number of columns that matter more than the text.
    pub(crate) essential: usize,
    /// The title of the texts.
    pub(crate) text: &'static str,
    pub(crate) rows: Vec<Row<N>>,
}

impl<const N: usize> Table<N> {
    /// The heading and a line for each row, each at most `columns` wide.
    pub(crate) fn lines(&self, columns: usize) -> Vec<String> {
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = self.rows.iter().map(|row| width(&printable(&row.cells[column])));
            cells.max().unwrap_or(0).max(self.head[column].len())
        });
        let least = self.rows.iter().map(|row| row.text.least()).max().unwrap_or(0);
        let most = columns.saturating_sub(MIN_NAME_WITH_FORMS).max(columns / 2);
        let for_forms = if least == 0 { 0 } else { (2 + least).min(most) };
        let mut kept = 1;
        let mut left = columns - for_forms;
        let least = widths[0].min(MIN_NAME);
        let text = self.rows.iter().map(|row| row.text.width()).max().unwrap_or(0).min(WANTED_TEXT);
        for (column, number) in widths.iter().enumerate().skip(1) {
            let is_essential = kept < self.essential || text == 0;
            if kept >= self.essential && self.rows.iter().all(|row| row.cells[column].is_empty()) {
                break;
            }
            let needed = least + if is_essential { 0 } else { (2 + text).saturating_sub(for_forms) };
            let Some(less) = left.checked_sub(2 + number).filter(|less| *less >= needed) else { break };
            (kept, left) = (kept + 1, less);
        }
        let shows_text = kept >= self.essential;
        let has_room = shows_text && text > 0 && (for_forms > 0 || left >= least + 2 + MIN_TEXT);
        let for_text = if has_room { (2 + text).saturating_sub(for_forms) } else { 0 };
        let name = widths[0].min(left.saturating_sub(for_text).max(least).min(left));
        left = left - name + for_forms;
        let with_text = for_forms > 2 || (shows_text && left >= 2 + MIN_TEXT);
        let line = |cells: [&str; N], text: &Text| {
            let first = truncate_middle(&printable(cells[0]), name);
            let mut line = format!("{first}{:padding$}", "", padding = name - width(&first));
            for (cell, width) in cells.iter().zip(widths).take(kept).skip(1) {
                line += &format!("  {cell:>width$}");
            }
            if with_text && !text.is_empty() {
                line += &format!("  {}", printable(&text.fitted(left - 2)));
            }
            line
        };
        let rows = self.rows.iter().map(|row| line(row.cells.each_ref().map(String::as_str), &row.text));
        let title = Text { forms: vec![self.text.to_owned()], rest: String::new() };
        std::iter::once(line(self.head, &title)).chain(rows).collect()
    }

    /// The heading and the rows, in lines of at most `columns`.
    pub(crate) fn print(&self, columns: usize) -> String {
        self.lines(columns).into_iter().map(|line| line + "\n").collect()
    }

    /// Prints as [`print`](Self::print) does, without the column `spared` if the table does not fit with it.
    pub(crate) fn print_sparing(mut self, spared: usize, columns: usize) -> String {
        if self.lines(usize::MAX).iter().any(|line| width(line) > columns) {
            self.head[spared..].rotate_left(1);
            for row in &mut self.rows {
                row.cells[spared..].rotate_left(1);
                // An empty column behind the essential ones is left out.
                row.cells[N - 1].clear();
            }
            self.essential = self.essential.min(N - 1);
        }
        self.print(columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<3> {
        let row = |name: &str, numbers: [&str; 2]| Row {
            cells: [name, numbers[0], numbers[1]].map(str::to_owned),
            text: "as it should be".to_owned().into(),
        };
        let mut rows = vec![row("日本の輸出の許可証", ["1", "4294967295"]), row("b", ["12", "3"])];
        rows[1].text = Text::default();
        Table { head: ["NAME", "HELD", "LIMIT"], essential: 3, text: "STATE", rows }
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
        assert_eq!(table().print(usize::MAX), expected);
        assert_eq!(table().lines(78).join("\n"), expected.trim_end());
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out_from_the_last() {
        assert_eq!(lines(47)[1], "日本の輸…証      1  4294967295  as it should be");
        assert_eq!(lines(40)[1], "日本の…証       1  4294967295  as it sh…");
        assert_eq!(lines(36)[1], "日本の輸出の許可証     1  4294967295");
        assert_eq!(lines(31)[1], "日本の輸…可証     1  4294967295");
        assert_eq!(lines(28)[1], "日本の輸出の許可証     1");
        assert_eq!(lines(18)[1], "日本の輸…証      1");
        assert_eq!(lines(10), ["NAME", "日本の…証", "b"]);
    }

    #[test]
    fn a_text_is_shown_in_place_of_numbers_that_are_not_essential() {
        let line =
            |essential, columns| Table { essential, ..table() }.lines(columns)[1].trim_end().to_owned();
        assert_eq!(line(2, 52), "日本の輸出…可証       1  4294967295  as it should be");
        assert_eq!(line(2, 42), "日本の輸出の許可証     1  as it should be");
        assert_eq!(line(3, 42), "日本の…証       1  4294967295  as it shou…");
        assert_eq!(line(2, 24), "日本の輸出の許可証     1");
    }

    #[test]
    fn a_text_with_forms_is_shortened_and_never_left_out() {
        let mut table = table();
        let forms = ["PAUSED, limit pinned", "PAUSED pinned", "PL"].map(str::to_owned).into();
        table.rows[0].text = Text { forms, rest: " (by hand)".into() };
        let line = |columns| table.lines(columns)[1].trim_end().to_owned();
        assert_eq!(line(80), "日本の輸出の許可証     1  4294967295  PAUSED, limit pinned (by hand)");
        assert_eq!(line(64), "日本の輸出の許可証     1  4294967295  PAUSED, limit pinned (by …");
        assert_eq!(line(60), "日本の輸出…可証      1  4294967295  PAUSED, limit pinned");
        assert_eq!(line(40), "日本の…証       1  4294967295  PL");
        assert_eq!(line(20), "日本の輸出…可証   PL");
        assert_eq!(line(12), "日本…証   PL");
    }

    #[test]
    fn the_spared_column_goes_first() {
        let first = |columns| table().print_sparing(1, columns).lines().nth(1).map(str::to_owned);
        let whole = "日本の輸出の許可証     1  4294967295  as it should be";
        assert_eq!(first(usize::MAX).as_deref(), Some(whole));
        assert_eq!(first(width(whole)).as_deref(), Some(whole));
        assert_eq!(first(48).as_deref(), Some("日本の輸出の許可証  4294967295  as it should be"));
    }

    #[test]
    fn no_width_is_too_small() {
        let mut with_forms = table();
        with_forms.rows[0].text = Text { forms: vec!["PAUSED".into(), "P".into()], rest: " (why)".into() };
        for columns in 0..60 {
            for line in lines(columns).into_iter().chain(with_forms.lines(columns)) {
                assert!(width(&line) <= columns, "{line:?} in {columns}");
            }
        }
    }
}
