//! A holder or waiter in a sentence: its label first, because its name is random unless the program sets one.

/// `"nightly" (web-1:4711/Zk3.0)`, or the name alone if the label is empty.
pub(crate) fn told(label: &str, name: &str) -> String {
    if label.is_empty() { name.to_owned() } else { format!("{label:?} ({name})") }
}
