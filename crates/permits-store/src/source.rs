//! A URL that is in a file, such as a mounted secret: `file:/run/secrets/permits`.

use std::path::{Path, PathBuf};

/// The beginning of a URL that names a file with the URL.
pub const SCHEME: &str = "file:";

/// The file that `url` names, if it names one.
pub fn file_of(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix(SCHEME)?;
    Some(path.strip_prefix("//").unwrap_or(path).into())
}

/// Reads the URL in a file, which has one line. Errors repeat nothing of it.
pub fn url_in(file: &Path) -> Result<String, String> {
    let wrong = |problem: &str| format!("{file:?} {problem}");
    if std::fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        // A pipe gives its text only once, and waiting for it would hang.
        return Err(wrong("is no regular file, and the URL is read again for each connection"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let url = text.trim();
    match url.lines().count() {
        1 if file_of(url).is_some() => Err(wrong("names another file: write the URL of a store into it")),
        1 => Ok(url.to_owned()),
        0 => Err(wrong("is empty: write the URL of a store into it")),
        _ => Err(wrong("has several lines: write the URL of a store into it, and nothing else")),
    }
}
