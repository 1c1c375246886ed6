//! The selected row, and the rows on the screen.

use std::ops::Range;

/// A movement of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Motion {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// A position among rows. The number of rows may change at any time, so a position is valid after
/// [`Cursor::fit`].
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
        // A line of the previous page stays visible.
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

    /// Selects `row`. With `None`, the selected row is gone, and the row in its place is selected.
    pub(super) fn follow(&mut self, row: Option<usize>) {
        self.selected = row.unwrap_or(self.selected);
    }

    /// Scrolls so that the selected row is visible. The `rows` are laid out on `lines` lines, each on the
    /// line that `line` returns. If there is room, the lines before the first row are visible as well.
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

    /// Each row is a line.
    fn fit(cursor: &mut Cursor, height: usize, rows: usize) -> (usize, Range<usize>) {
        cursor.fit(height, rows, rows, |row| row);
        (cursor.selected(), cursor.visible())
    }

    #[test]
    fn the_selected_row_is_always_visible() {
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
