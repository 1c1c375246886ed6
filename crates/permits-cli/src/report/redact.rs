//! Text from outside without passwords.

use std::fmt::Write as _;

use serde_json::Value;

/// `text` without possible passwords in URLs: the part before an `@`, and the query. A password may contain
/// any character, so rather too much is redacted.
pub(crate) fn redacted(text: &str) -> String {
    let mut pieces = text.split("://");
    let mut result = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // A question mark before a space, or at the end, belongs to the sentence.
        let is_query = |query: &str| query.contains('@') || !query.is_empty() && !query.starts_with(' ');
        let query = piece.split_once('?').filter(|(_, query)| is_query(query));
        let (location, query) = query.map_or((piece, None), |(location, query)| (location, Some(query)));
        // The `@` may be in a query, or follow a password with a question mark: then no part is safe to show.
        let shown = if query.is_some_and(|query| query.contains('@')) { "" } else { location };
        let (user, shown) = match shown.rfind('@') {
            // The words of a hint, which says how to write a password.
            Some(at) if &shown[..at] == "USER:PASSWORD" => ("USER:PASSWORD", &shown[at..]),
            Some(at) => ("***", &shown[at..]),
            None => ("", shown),
        };
        let query = if query.is_some() { "?***" } else { "" };
        let _ = write!(result, "://{user}{shown}{query}");
    }
    result
}

/// Redacts every text in a value.
pub(super) fn redact_all(value: &mut Value) {
    match value {
        Value::String(text) => *text = redacted(text),
        Value::Array(values) => values.iter_mut().for_each(redact_all),
        Value::Object(values) => values.values_mut().for_each(redact_all),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_redacted() {
        for (text, expected) in [
            ("no url", "no url"),
            ("redis://host:1/", "redis://host:1/"),
            ("'redis://:secret@host/' found", "'redis://***@host/' found"),
            ("'redis://:a 'secret\" @host/' found", "'redis://***@host/' found"),
            ("redis://u:se@cret@h and redis://u:secret@g", "redis://***@h and redis://***@g"),
            ("'redis+unix:///run/r.sock?pass=a secret'", "'redis+unix:///run/r.sock?***"),
            ("redis+unix:///run/r.sock?pass=a@secret", "redis+unix://?***"),
            ("redis://:a?secret@host/", "redis://?***"),
            ("redis+sentinel://h/s?sentinel_password=secret", "redis+sentinel://h/s?***"),
            ("did you mean redis://host?", "did you mean redis://host?"),
            ("write to me@example.org", "write to me@example.org"),
            ("write redis://USER:PASSWORD@HOST, both", "write redis://USER:PASSWORD@HOST, both"),
            ("redis://USER:PASSWORD:secret@HOST", "redis://***@HOST"),
        ] {
            assert_eq!(redacted(text), expected);
            assert!(!redacted(text).contains("secret"));
        }
    }
}
