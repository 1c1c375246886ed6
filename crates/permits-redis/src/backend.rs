//! The URLs of Redis and Valkey: one server, sentinels, or a cluster.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::address::Address;
use crate::diagnosis::diagnose;
use crate::store::RedisStore;
use permits_store::credentials::CredentialSource;
use permits_store::{
    Backend, DiagnoseOptions, Finding, Location, ParsedUrl, Store, StoreError, StoreOptions,
};

/// Redis and Valkey servers.
pub struct Redis;

impl Backend for Redis {
    fn schemes(&self) -> Vec<String> {
        Address::SCHEMES.map(|scheme| format!("{scheme}://")).to_vec()
    }

    fn parse(&self, url: &str) -> Option<ParsedUrl> {
        let (scheme, _) = url.split_once("://")?;
        if !Address::serves(scheme) {
            return None;
        }
        let parsed = Address::parse(url);
        Some(parsed.map(|(address, recovery)| (Box::new(address) as Box<dyn Location>, recovery)))
    }
}

impl Location for Address {
    fn follow(&mut self, file: &Arc<Path>) {
        self.read_logins_from(file);
    }

    fn log_in_with(&mut self, source: &Arc<CredentialSource>) -> Result<(), String> {
        self.take_password_from(source)
    }

    fn awaits_credentials(&self) -> bool {
        self.awaits_credentials()
    }

    fn open(&self, options: StoreOptions) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        Box::pin(async move {
            let store: Arc<dyn Store> = Arc::new(RedisStore::connect(self, options).await?);
            Ok(store)
        })
    }

    fn diagnose<'a>(&'a self, inspection: DiagnoseOptions<'a>) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(diagnose(self, inspection))
    }
}
