//! The semaphores that exist: SCAN by prefix, in steps, so that the server can execute other commands in
//! between.
//!
//! A semaphore that has state has a `state` key; its name is read back from that key.

use std::collections::BTreeSet;
use std::time::Duration;

use super::resp::{FromValue, Value, cmd};
use super::server::connection::Connection;
use super::{error, keys};
use crate::protocol::Name;
use permits_store::StoreError;

/// The number of keys that the server examines in one step.
const STEP: u32 = 1000;

/// The names on one server.
pub(super) async fn list(
    connection: &Connection,
    prefix: &str,
    timeout: Duration,
) -> Result<BTreeSet<Name>, StoreError> {
    let pattern = keys::state_pattern(prefix);
    let mut names = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
        let scanning = connection.query::<Value>(&scan);
        let value = match tokio::time::timeout(timeout, scanning).await {
            Ok(Ok(found)) => found,
            Ok(Err(failed)) => return Err(error::of_listing(&failed)),
            Err(_) => {
                return Err(StoreError::NoAnswer { reason: format!("SCAN: no answer within {timeout:?}") });
            }
        };
        let malformed = |_| StoreError::Malformed { reason: "SCAN".into() };
        let (next, keys): (String, Vec<Vec<u8>>) = FromValue::from_value(value).map_err(malformed)?;
        names.extend(keys.iter().filter_map(|key| keys::name_of_state(prefix, key)));
        if next == "0" {
            return Ok(names);
        }
        cursor = next;
    }
}
