//! Text in a space of limited width, measured as terminals do: some characters take two columns, some none.

use std::time::Duration;

use ratatui::style::Style;
use ratatui::text::Span;

/// Escapes control characters, characters without width, and those that change the direction of a text. The
/// joiners stay, which some scripts and emoji need. A second call changes nothing.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let is_invisible = matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        );
        if character.is_control() || is_invisible {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// `word` as a shell has to read it: as it is, in quotes, or with the escapes of bash, zsh and ksh if a part
/// of it would not be visible.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"%+,-./:@_".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    if printable(word) == word {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut quoted = String::from("$'");
    for character in word.chars() {
        let shown = character.to_string();
        match character {
            '\'' | '\\' => quoted.extend(['\\', character]),
            _ if printable(&shown) == shown => quoted.push(character),
            _ => quoted.extend(shown.bytes().map(|byte| format!("\\{byte:03o}"))),
        }
    }
    quoted + "'"
}

/// The number of columns that `text` takes.
pub(crate) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Breaks `text` into at most `lines` lines of `columns` columns, between words where possible. A text that
/// does not fit is cut off, with an ellipsis at the end.
pub(crate) fn wrap(text: &str, columns: usize, lines: usize) -> Vec<String> {
    let whole = Span::raw(text);
    let mut rest: Vec<&str> = whole.styled_graphemes(Style::new()).map(|grapheme| grapheme.symbol).collect();
    // A wide character does not fit into a narrow column.
    rest.retain(|symbol| width(symbol) <= columns);
    let mut wrapped = Vec::new();
    while wrapped.len() < lines {
        let fitting = prefix_len(&rest, columns);
        if fitting == rest.len() {
            wrapped.push(rest.concat());
            break;
        }
        if wrapped.len() + 1 == lines {
            wrapped.push(rest[..prefix_len(&rest, columns.saturating_sub(1))].concat() + "…");
            break;
        }
        // The space at the break belongs to neither line.
        let space = rest[..=fitting].iter().rposition(|symbol| *symbol == " ").filter(|space| *space > 0);
        wrapped.push(rest[..space.unwrap_or(fitting)].concat());
        rest.drain(..space.map_or(fitting, |space| space + 1));
    }
    wrapped
}

/// The number of symbols at the start that fit into `columns`.
fn prefix_len(symbols: &[&str], columns: usize) -> usize {
    let mut left = columns;
    let fits = |symbol: &&&str| left.checked_sub(width(symbol)).map(|less| left = less).is_some();
    symbols.iter().take_while(fits).count()
}

/// Cuts `text` off after one line, with an ellipsis at the end.
pub(crate) fn truncate(text: &str, columns: usize) -> String {
    wrap(text, columns, 1).pop().unwrap_or_default()
}

/// Cuts the middle of `text` out, with an ellipsis in its place: names differ at both ends.
pub(crate) fn truncate_middle(text: &str, columns: usize) -> String {
    if width(text) <= columns || columns < 2 {
        return truncate(text, columns);
    }
    let whole = Span::raw(text);
    let mut symbols: Vec<&str> =
        whole.styled_graphemes(Style::new()).map(|grapheme| grapheme.symbol).collect();
    // More of the start, where a holder has its host and its process.
    let for_end = (columns - 1) / 3;
    let start = symbols.drain(..prefix_len(&symbols, columns - 1 - for_end)).collect::<String>();
    symbols.reverse();
    symbols.truncate(prefix_len(&symbols, for_end));
    symbols.reverse();
    format!("{start}…{}", symbols.concat())
}

/// The width of the terminal of standard output; without one there is no limit.
pub(crate) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(usize::MAX)
}

/// The two largest units, rounded down.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        0..10 => format!("{seconds}.{} s", duration.subsec_millis() / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} m {} s", seconds % 60),
        3600..86400 => format!("{hours} h {} m", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A pause, with its end and its reason.
pub(crate) fn paused(remaining: Option<Duration>, reason: Option<&str>) -> String {
    let end = remaining.map_or_else(String::new, |left| format!(" for another {}", duration(left)));
    let reason = reason.filter(|reason| !reason.is_empty());
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    format!("paused{end}{reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_not_show_is_escaped() {
        for (text, expected) in [
            ("plain äöü 日本 e\u{301} 👩\u{200d}👧", "plain äöü 日本 e\u{301} 👩\u{200d}👧"),
            ("\u{1b}[2J\r\n\u{9b}", r"\u{1b}[2J\r\n\u{9b}"),
            ("a\u{202e}b\u{2066}c\u{200f}", r"a\u{202e}b\u{2066}c\u{200f}"),
            ("a\u{200b}b\u{feff}c\u{2028}", r"a\u{200b}b\u{feff}c\u{2028}"),
        ] {
            assert_eq!(printable(text), expected);
            assert_eq!(printable(expected), expected);
        }
    }

    #[test]
    fn a_shell_reads_the_word_that_was_quoted() {
        let words =
            ["exports", "", "a b", "it's", "$HOME`id`\\", "日本", "~", "a\u{202e}'\\\u{200b}b", "-x", "#!*?"];
        let quoted = words.map(shell_word);
        assert_eq!(quoted[..4], ["exports", "''", "'a b'", r"'it'\''s'"]);
        assert_eq!(quoted[7], r"$'a\342\200\256\'\\\342\200\213b'");
        let script = format!("printf '%s\n' {}", quoted.join(" "));
        let output =
            std::process::Command::new("bash").args(["-c", &script]).output().expect("there is bash");
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().collect::<Vec<_>>(), words, "{script}");
    }

    #[test]
    fn long_texts_are_truncated_with_an_ellipsis() {
        for (text, columns, expected) in [
            ("exports", 7, "exports"),
            ("exports", 6, "expor…"),
            ("exports", 1, "…"),
            ("exports", 0, ""),
            ("", 3, ""),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("日本語", 2, "…"),
            ("日本語", 1, ""),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
        ] {
            assert_eq!(truncate(text, columns), expected, "{text:?} in {columns}");
            assert!(width(expected) <= columns);
        }
    }

    #[test]
    fn the_middle_of_a_long_name_is_cut_out() {
        for (text, columns, expected) in [
            ("api/tenant-0042", 15, "api/tenant-0042"),
            ("api/tenant-0042", 12, "api/tena…042"),
            ("api/tenant-0042", 11, "api/ten…042"),
            ("api/tenant-0042", 2, "a…"),
            ("api/tenant-0042", 1, "…"),
            ("api/tenant-0042", 0, ""),
            ("日本の輸出の許可証", 11, "日本の…証"),
            ("日本の輸出の許可証", 13, "日本の輸…可証"),
            ("日本の輸出の許可証", 2, "…"),
        ] {
            assert_eq!(truncate_middle(text, columns), expected, "{text:?} in {columns}");
            assert!(width(expected) <= columns);
        }
    }

    #[test]
    fn a_text_is_broken_into_lines() {
        assert_eq!(wrap("abcdef", 2, 3), ["ab", "cd", "ef"]);
        assert_eq!(wrap("abcdefg", 2, 3), ["ab", "cd", "e…"]);
        assert_eq!(wrap("a日b", 2, 9), ["a", "日", "b"]);
        assert_eq!(wrap("", 2, 3), [""]);
        assert_eq!(wrap("not in use now", 6, 3), ["not in", "use", "now"]);
        assert_eq!(wrap("not in use now", 6, 2), ["not in", "use n…"]);
        assert_eq!(wrap("to semaphores", 6, 9), ["to", "semaph", "ores"]);
        assert!(wrap("abc", 2, 0).is_empty());
    }

    #[test]
    fn durations_have_two_units() {
        for (milliseconds, expected) in [
            (0, "0.0 s"),
            (950, "0.9 s"),
            (9_999, "9.9 s"),
            (10_000, "10 s"),
            (59_999, "59 s"),
            (60_000, "1 m 0 s"),
            (3_599_000, "59 m 59 s"),
            (3_600_000, "1 h 0 m"),
            (86_399_000, "23 h 59 m"),
            (100 * 86_400_000, "100 d 0 h"),
        ] {
            assert_eq!(duration(Duration::from_millis(milliseconds)), expected);
        }
    }
}
