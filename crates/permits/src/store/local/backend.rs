//! `local:` URLs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::LocalStore;
use super::place::parse;
use crate::store::backend::{Backend, Location, ParsedUrl, Store, StoreOptions};
use crate::store::error::StoreError;

/// Files of this machine.
pub(crate) struct Local;

impl Backend for Local {
    fn schemes(&self) -> Vec<String> {
        vec!["local:".into()]
    }

    fn parse(&self, url: &str) -> Option<ParsedUrl> {
        let path = parse(url.strip_prefix("local:")?);
        Some(path.map(|path| (Box::new(FilePath(path)) as Box<dyn Location>, None)))
    }
}

/// The path of a file.
pub(crate) struct FilePath(PathBuf);

impl FilePath {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Location for FilePath {
    fn open(&self, options: StoreOptions) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        Box::pin(async move {
            let store: Arc<dyn Store> = Arc::new(LocalStore::open(&self.0, options)?);
            Ok(store)
        })
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}
