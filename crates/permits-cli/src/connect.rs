//! Which store, and a client of it.

use permits::{Client, ClientBuilder};

use crate::exit::{Failure, USAGE};

/// The environment variable that names the store.
const URL_VARIABLE: &str = "PERMITS_URL";

/// A client to be configured, for the store that `--url` names, or the environment.
pub(crate) fn client(url: Option<&str>) -> Result<ClientBuilder, Failure> {
    let from_environment = || std::env::var(URL_VARIABLE).ok();
    let url = url.map(str::to_owned).or_else(from_environment).filter(|url| !url.is_empty());
    url.or_else(default_url).map(Client::builder).ok_or_else(|| {
        let example = format!("{URL_VARIABLE}=redis://127.0.0.1/");
        Failure::new(
            USAGE,
            format!("no store is named: set {URL_VARIABLE}, for example {example}, or give --url"),
        )
    })
}

/// The store when none is named.
fn default_url() -> Option<String> {
    None
}
