//! Opening a store, with retries.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::backend::{Location, Store, StoreOptions};
use crate::error::StoreError;
use crate::observe::events;

/// The timeout of one attempt to open a store.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The first and the longest delay between two attempts.
const DELAYS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Opens a store for a session, with retries and growing delays while the store cannot be reached. The first
/// attempt takes 5 seconds at most. No further attempt begins after `within`, and a running one ends then.
/// The time for which an attempt waits for credentials does not count.
/// Call this on the session's runtime.
pub async fn open(
    location: &dyn Location,
    options: StoreOptions,
    within: Duration,
) -> Result<Arc<dyn Store>, StoreError> {
    let began = Instant::now();
    let mut delay_max = DELAYS.0;
    let mut earlier: Option<StoreError> = None;
    loop {
        let limit = match &earlier {
            None => ATTEMPT_TIMEOUT,
            Some(_) => within.saturating_sub(began.elapsed()).min(ATTEMPT_TIMEOUT),
        };
        let mut opening = location.open(options.clone());
        let attempt = loop {
            match timeout(limit, &mut opening).await {
                // A slow command for the password is no slow store.
                Err(_) if location.awaits_credentials() => {}
                attempt => break attempt,
            }
        };
        let error = match attempt {
            Ok(Err(error)) if error.is_temporary() => error,
            Ok(result) => return result,
            Err(_) => match &earlier {
                // An earlier attempt's error says more than the timeout of an attempt that was cut short.
                Some(earlier) if limit < ATTEMPT_TIMEOUT => earlier.clone(),
                _ => {
                    let reason = format!("{location}: no connection within {limit:?}");
                    StoreError::Unreachable { reason }
                }
            },
        };
        if earlier.is_none() && !within.is_zero() {
            events::store_unreachable(location, &error, &format_args!("{within:?}"));
        }
        let delay = delay_max.mul_f64(0.5 + fastrand::f64() / 2.0);
        if began.elapsed() + delay >= within {
            return Err(error);
        }
        earlier = Some(error);
        sleep(delay).await;
        delay_max = (delay_max * 2).min(DELAYS.1);
    }
}
