//! Steps that cannot fail in a sound test. One that does panics with its error, at the place of its caller.

use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;

use permits::{Client, Limit, Semaphore};

/// An operation that succeeds.
pub trait Succeeds<T> {
    /// The value of it.
    #[track_caller]
    fn succeeds(self) -> impl Future<Output = T>;
}

impl<F, T, E> Succeeds<T> for F
where
    F: Future<Output = Result<T, E>>,
    E: Debug,
{
    #[track_caller]
    fn succeeds(self) -> impl Future<Output = T> {
        let caller = Location::caller();
        async move { self.await.unwrap_or_else(|error| panic!("{error:?}, at {caller}")) }
    }
}

/// A client whose semaphores have valid names and limits.
pub trait Named {
    /// The semaphore of this name.
    #[track_caller]
    fn named(&self, name: impl AsRef<str>, limit: impl Into<Limit>) -> Semaphore;
}

impl Named for Client {
    #[track_caller]
    fn named(&self, name: impl AsRef<str>, limit: impl Into<Limit>) -> Semaphore {
        self.semaphore(name, limit).expect("the name and the limit are valid")
    }
}
