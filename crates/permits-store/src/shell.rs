//! Words for a shell, for messages that tell the reader which command to run.

use std::borrow::Cow;

/// `word` as a shell has to read it: as it is, or in quotes.
pub(crate) fn word(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"%+,-./:@_".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

/// `name` as the last argument of a command. If it begins with a hyphen, `--` goes before it, so that it is
/// not read as an option.
pub(crate) fn argument(name: &str) -> String {
    let marker = if name.starts_with('-') { "-- " } else { "" };
    format!("{marker}{}", word(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_word() {
        assert_eq!(["exports", "", "a b'c", "$(x)"].map(word), ["exports", "''", r"'a b'\''c'", "'$(x)'"]);
        assert_eq!(["a b", "-f"].map(argument), ["'a b'", "-- -f"]);
    }
}
