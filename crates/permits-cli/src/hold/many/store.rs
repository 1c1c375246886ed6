//! The client that all programs share, and the bound of their requests.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use permits::{Acquire, Client, InvalidInput};

use super::request::Request;
use crate::acquire::{LEASE, LEAVE_TIMEOUT, close};
use crate::args::Common;
use crate::connect::Target;
use crate::exit::Failure;
use crate::report;

/// The most requests at once, waiting or held.
pub(super) const MAX_REQUESTS: usize = 100_000;

/// The default store timeout, also of the first connection.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to the store. `label` is that of requests that name none.
pub(super) async fn connect(common: &Common, label: String) -> Result<Client, Failure> {
    let mut target = Target::of(common)?.with_label(label);
    if common.verbose > 0 {
        report::say(format_args!("store {}", target.store));
    }
    target.builder = target.builder.lease(LEASE);
    target.connect(common.store_timeout.unwrap_or(STORE_TIMEOUT)).await
}

/// The client of all programs, and the number of their requests.
pub(super) struct Store {
    client: Client,
    requests: Cell<usize>,
}

/// One of the requests, until it is dropped.
pub(super) struct Place(Rc<Store>);

impl Store {
    pub(super) fn new(client: Client) -> Rc<Self> {
        Rc::new(Self { client, requests: Cell::default() })
    }

    /// A place for another request. `None` if there are [`MAX_REQUESTS`].
    pub(super) fn place(self: &Rc<Self>) -> Option<Place> {
        let requests = self.requests.get();
        (requests < MAX_REQUESTS).then(|| {
            self.requests.set(requests + 1);
            Place(self.clone())
        })
    }

    /// A request, which is sent when it is polled.
    pub(super) fn acquire(&self, request: Request) -> Result<Acquire, InvalidInput> {
        let Request { name, limit, options, .. } = request;
        Ok(self.client.semaphore(name, limit)?.acquire_with(options))
    }

    /// Closes the client, which waits until the store has confirmed that all requests are ended.
    pub(super) async fn close(&self) {
        close(self.client.clone(), LEAVE_TIMEOUT).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let requests = &self.0.requests;
        requests.set(requests.get() - 1);
    }
}
