//! A URL that is in a file, such as a mounted secret: `file:/run/secrets/permits`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The most bytes of a file with a URL or a password.
const LONGEST: u64 = 16 << 10;

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
    let text = small_text_in(file).map_err(|problem| wrong(&problem))?;
    let url = text.trim();
    match url.lines().count() {
        1 if file_of(url).is_some() => Err(wrong("names another file: write the URL of a store into it")),
        1 => Ok(url.to_owned()),
        0 => Err(wrong("is empty: write the URL of a store into it")),
        _ => Err(wrong("has several lines: write the URL of a store into it, and nothing else")),
    }
}

/// The text of a file that is read again and again. The error goes behind the name of the file.
pub(crate) fn small_text_in(file: &Path) -> Result<String, String> {
    if std::fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        // A pipe gives its text once, and to wait for it would hang.
        return Err("is no regular file, and it is read again for each connection".to_owned());
    }
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > LONGEST {
        return Err("has more than 16 kB: is it the right file?".to_owned());
    }
    Ok(text)
}
