//! `local:` URLs, and the path of the directory that they name.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::diagnosis::diagnose;
use super::local_store::LocalStore;
use crate::backend::{Backend, DiagnoseOptions, Location, ParsedUrl, Store, StoreOptions};
use crate::error::StoreError;
use crate::finding::Finding;

/// How many waiters a semaphore may have. A command takes some 3 µs for each. With this many, their renewals
/// take about a quarter of the thread's time with the default lease.
const MAX_WAITERS: u32 = 10_000;

/// The kind of store that is a directory of this machine.
pub struct Local;

impl Backend for Local {
    fn schemes(&self) -> Vec<String> {
        vec!["local:".into()]
    }

    fn parse(&self, url: &str) -> Option<ParsedUrl> {
        let path = parse(url.strip_prefix("local:")?);
        Some(path.map(|path| (Box::new(LocalDirectory(path)) as Box<dyn Location>, None)))
    }
}

/// The directory of a URL.
struct LocalDirectory(PathBuf);

impl Location for LocalDirectory {
    fn uses_sockets(&self) -> bool {
        false
    }

    fn max_waiters(&self) -> u32 {
        MAX_WAITERS
    }

    fn open(&self, options: StoreOptions) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        Box::pin(async move {
            let store: Arc<dyn Store> = Arc::new(LocalStore::open(&self.0, options)?);
            Ok(store)
        })
    }

    fn diagnose<'a>(&'a self, inspection: DiagnoseOptions<'a>) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(diagnose(self, &self.0, inspection))
    }
}

impl fmt::Display for LocalDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

/// Reads the path in the part of a URL behind `local:`.
fn parse(rest: &str) -> Result<PathBuf, String> {
    let path = match rest.strip_prefix("//") {
        Some(path) if path.is_empty() || path.starts_with('/') => path,
        // A host stands in this place in other URLs. A guess could open another directory than the other
        // programs use.
        Some(_) => return Err("write local:/path, or local:path for one below the working directory".into()),
        None => rest,
    };
    if path.contains('?') {
        return Err("a local: URL has no options, and a path in it no question mark".into());
    }
    let path = match (if path == "~" { Some("") } else { path.strip_prefix("~/") }, directory_of("HOME")) {
        _ if path.is_empty() => return default_path(),
        // A shell expands a tilde only at the beginning of a word, so it is expanded here.
        (Some(below), Some(home)) => home.join(below),
        (Some(_), None) => return Err("HOME is not set: name a directory, local:/path".into()),
        _ => path.into(),
    };
    // Make the path absolute, so that it stays the same when the program changes its working directory.
    let absolute = std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    // Drop a slash at the end, which would hide that the path is a symbolic link.
    Ok(absolute.components().collect())
}

/// The path if the URL names no path: in the user's state directory, or else in the runtime directory.
fn default_path() -> Result<PathBuf, String> {
    let state = directory_of("XDG_STATE_HOME").or_else(|| Some(directory_of("HOME")?.join(".local/state")));
    match state.or_else(|| directory_of("XDG_RUNTIME_DIR")) {
        Some(directory) => Ok(directory.join("permits")),
        None => {
            Err("neither HOME nor XDG_STATE_HOME nor XDG_RUNTIME_DIR is set: name a directory, local:/path"
                .into())
        }
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
            ("/var/lib/s", PathBuf::from("/var/lib/s")),
            ("///var/lib/s/", "/var/lib/s".into()),
            ("/with space/100%25 & more#1", "/with space/100%25 & more#1".into()),
            ("s", directory.join("s")),
            ("below/s", directory.join("below/s")),
            ("~user/s", directory.join("~user/s")),
        ] {
            assert_eq!(parse(rest), Ok(path), "{rest}");
        }
    }

    #[test]
    fn ambiguous_urls_are_refused() {
        for rest in ["//host/s", "//s", "/s?mode=ro", "?", "///s?"] {
            assert!(parse(rest).is_err(), "{rest}");
        }
    }

    #[test]
    fn without_a_path_and_with_a_tilde_it_is_under_home() {
        // The test does not set HOME itself, because all tests of the process share the environment.
        let Some(home) = directory_of("HOME") else { return println!("skipped: HOME is not set") };
        assert_eq!(parse("~/s"), Ok(home.join("s")));
        let state = directory_of("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state"));
        for rest in ["", "//"] {
            assert_eq!(parse(rest), Ok(state.join("permits")), "{rest:?}");
        }
    }
}
