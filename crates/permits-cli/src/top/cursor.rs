//! Which row is selected, and which part of the rows is on the screen.

use std::ops::Range;

/// How far to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Motion {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// A place among rows, whose number may change at any time: it is right when [`Cursor::fit`] has been called.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    selected: usize,
    top: usize,
    height: usize,
}

impl Cursor {
    pub(super) fn selected(&self) -> usize {
        self.selected
    }

    /// The lines on the screen, as last fitted.
    pub(super) fn visible(&self) -> Range<usize> {
        self.top..self.top + self.height
    }

    pub(super) fn go(&mut self, motion: Motion, rows: usize) {
        let last = rows.saturating_sub(1);
        // A line of the page before stays in sight.
        let page = self.height.saturating_sub(1).max(1);
        let to = match motion {
            Motion::Up => self.selected.saturating_sub(1),
            Motion::Down => self.selected + 1,
            Motion::PageUp => self.selected.saturating_sub(page),
            Motion::PageDown => self.selected + page,
            Motion::Home => 0,
            Motion::End => last,
        };
        self.selected = to.min(last);
    }

    /// Selects the row at this place. `None` if what was selected is gone: then what took its place is.
    pub(super) fn follow(&mut self, row: Option<usize>) {
        self.selected = row.unwrap_or(self.selected);
    }

    /// Brings the selected row into sight, among so many rows that are laid out on so many lines, that row on
    /// the one that `line` says. A screen that has room for what comes before the first row shows it.
    pub(super) fn fit(&mut self, height: usize, rows: usize, lines: usize, line: impl Fn(usize) -> usize) {
        self.selected = self.selected.min(rows.saturating_sub(1));
        self.height = height;
        let line = if rows == 0 { 0 } else { line(self.selected) };
        let lowest = (line + 1).saturating_sub(height.max(1));
        let highest = if self.selected == 0 { lowest } else { line };
        self.top = self.top.clamp(lowest, highest).min(lines.saturating_sub(height.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that are lines.
    fn fit(cursor: &mut Cursor, height: usize, rows: usize) -> (usize, Range<usize>) {
        cursor.fit(height, rows, rows, |row| row);
        (cursor.selected(), cursor.visible())
    }

    #[test]
    fn the_selected_row_is_always_in_sight() {
        let mut cursor = Cursor::default();
        assert_eq!(fit(&mut cursor, 3, 10), (0, 0..3));
        for (motion, expected) in [
            (Motion::Down, (1, 0..3)),
            (Motion::PageDown, (3, 1..4)),
            (Motion::End, (9, 7..10)),
            (Motion::Down, (9, 7..10)),
            (Motion::PageUp, (7, 7..10)),
            (Motion::Up, (6, 6..9)),
            (Motion::Home, (0, 0..3)),
            (Motion::Up, (0, 0..3)),
        ] {
            cursor.go(motion, 10);
            assert_eq!(fit(&mut cursor, 3, 10), expected, "{motion:?}");
        }
    }

    #[test]
    fn fewer_rows_or_lines_move_it() {
        let mut cursor = Cursor::default();
        cursor.go(Motion::End, 10);
        assert_eq!(fit(&mut cursor, 4, 10), (9, 6..10));
        assert_eq!(fit(&mut cursor, 4, 5), (4, 1..5));
        assert_eq!(fit(&mut cursor, 9, 5), (4, 0..9));
        assert_eq!(fit(&mut cursor, 1, 5), (4, 4..5));
        assert_eq!(fit(&mut cursor, 0, 5).0, 4);
        assert_eq!(fit(&mut cursor, 2, 0), (0, 0..2));
        cursor.go(Motion::End, 0);
        assert_eq!(fit(&mut cursor, 2, 3), (0, 0..2));
    }

    #[test]
    fn the_first_row_brings_its_heading_with_it() {
        let mut cursor = Cursor::default();
        cursor.go(Motion::End, 10);
        let under_a_heading = |row| row + 1;
        cursor.fit(3, 10, 11, under_a_heading);
        assert_eq!(cursor.visible(), 8..11);
        cursor.go(Motion::Home, 10);
        cursor.fit(3, 10, 11, under_a_heading);
        assert_eq!(cursor.visible(), 0..3);
        cursor.fit(1, 10, 11, under_a_heading);
        assert_eq!(cursor.visible(), 1..2, "if there is room");
    }
}
