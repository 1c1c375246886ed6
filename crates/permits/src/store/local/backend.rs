//! `local:` URLs, and the path of the file that such a URL names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::local_store::LocalStore;
use crate::store::backend::{Backend, Location, ParsedUrl, Store, StoreOptions};
use crate::store::error::StoreError;

/// The most waiters of a semaphore. A command takes some 6 µs for each, and with this many their renewals
/// take about a quarter of the thread's time with the default lease.
const MAX_WAITERS: u32 = 10_000;

/// Files of this machine.
pub(crate) struct Local;

impl Backend for Local {
    fn schemes(&self) -> Vec<String> {
        vec!["local:".into()]
    }

    fn parse(&self, url: &str) -> Option<ParsedUrl> {
        let path = parse(url.strip_prefix("local:")?);
        Some(path.map(|path| (Box::new(LocalFile(path)) as Box<dyn Location>, None)))
    }
}

/// The file of a URL.
pub(crate) struct LocalFile(PathBuf);

impl LocalFile {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Location for LocalFile {
    fn uses_sockets(&self) -> bool {
        false
    }

    fn max_waiters(&self) -> u32 {
        MAX_WAITERS
    }

    fn open(&self, options: StoreOptions) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        Box::pin(async move {
            let store: Arc<dyn Store> = Arc::new(LocalStore::open(&self.0, options).await?);
            Ok(store)
        })
    }
}

impl fmt::Display for LocalFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

/// The path in the part of a URL behind `local:`.
fn parse(rest: &str) -> Result<PathBuf, String> {
    let path = match rest.strip_prefix("//") {
        Some(path) if path.is_empty() || path.starts_with('/') => path,
        // In other URLs this is a host. A guess could open another file than the other programs use.
        Some(_) => return Err("write local:/path/file.db, or local:file.db for the working directory".into()),
        None => rest,
    };
    if path.contains('?') {
        return Err("a local: URL has no options, and a path in it no question mark".into());
    }
    let path = match (path.strip_prefix("~/"), directory_of("HOME")) {
        _ if path.is_empty() => return default_path(),
        // A shell expands no tilde in the middle of a word.
        (Some(below), Some(home)) => home.join(below),
        _ => path.into(),
    };
    // Absolute, so that it stays the same file when the program changes its working directory.
    std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The path without one in the URL: in the user's state directory, else in the runtime directory.
fn default_path() -> Result<PathBuf, String> {
    let state = directory_of("XDG_STATE_HOME").or_else(|| Some(directory_of("HOME")?.join(".local/state")));
    match state.or_else(|| directory_of("XDG_RUNTIME_DIR")) {
        Some(directory) => Ok(directory.join("permits/semaphores.db")),
        None => Err(
            "neither HOME nor XDG_STATE_HOME nor XDG_RUNTIME_DIR is set: name a file, local:/path/file.db"
                .into(),
        ),
    }
}

fn directory_of(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_used_verbatim() {
        let directory = std::env::current_dir().expect("tests run somewhere");
        for (rest, path) in [
            ("/var/lib/s.db", PathBuf::from("/var/lib/s.db")),
            ("///var/lib/s.db", "/var/lib/s.db".into()),
            ("/with space/100%25 & more#1.db", "/with space/100%25 & more#1.db".into()),
            ("s.db", directory.join("s.db")),
            ("below/s.db", directory.join("below/s.db")),
            ("~user/s.db", directory.join("~user/s.db")),
        ] {
            assert_eq!(parse(rest), Ok(path), "{rest}");
        }
    }

    #[test]
    fn ambiguous_urls_are_refused() {
        for rest in ["//host/s.db", "//s.db", "/s.db?mode=ro", "?", "///s.db?"] {
            assert!(parse(rest).is_err(), "{rest}");
        }
    }

    #[test]
    fn without_a_path_and_with_a_tilde_it_is_under_home() {
        // Not set by the test, because all tests of the process share the environment.
        let Some(home) = directory_of("HOME") else { return println!("skipped: HOME is not set") };
        assert_eq!(parse("~/s.db"), Ok(home.join("s.db")));
        let state = directory_of("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state"));
        for rest in ["", "//"] {
            assert_eq!(parse(rest), Ok(state.join("permits/semaphores.db")), "{rest:?}");
        }
    }
}
