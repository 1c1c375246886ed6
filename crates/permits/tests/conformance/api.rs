//! Both APIs of the library by one interface: a case is written once, against the types here, and runs over
//! the async API and the blocking one.
//!
//! A call of the blocking API runs on a thread without a runtime, as in the programs that use it, and the
//! case awaits its end. A method here is the library's method of that name, and nothing more.

use std::sync::Arc;
use std::time::Duration;

use permits::{
    AcquireAllError, AcquireError, AcquireOptions, AdminError, AdoptError, ClientBuilder, CloseError,
    ConnectError, Inspection, Limit, Lost, PermitHandle, PermitStatus, ReleaseError, RenewError, blocking,
};
use tokio::sync::oneshot;

crate::listed! {
    /// The API that a case runs over.
    pub(crate) enum Api {
        Async,
        Blocking,
    }
}

/// Runs `call` on a thread of its own.
async fn on_a_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        // The case may have ended, and dropped the receiver.
        let _ = sender.send(call());
    });
    receiver.await.expect("the call does not panic")
}

/// Calls the same method of either API.
macro_rules! call {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self.clone() {
            Self::Async(face) => face.$method($($argument),*).await,
            Self::Blocking(face) => on_a_thread(move || face.$method($($argument),*)).await,
        }
    };
}

/// A client.
#[derive(Debug, Clone)]
pub(crate) enum Client {
    Async(permits::Client),
    Blocking(blocking::Client),
}

impl Client {
    pub(crate) async fn connect(api: Api, builder: ClientBuilder) -> Result<Self, ConnectError> {
        Ok(match api {
            Api::Async => Self::Async(builder.connect().await?),
            Api::Blocking => Self::Blocking(on_a_thread(move || builder.connect_blocking()).await?),
        })
    }

    pub(crate) fn semaphore(&self, name: &str, limit: impl Into<Limit>) -> Semaphore {
        match self {
            Self::Async(client) => Semaphore::Async(client.semaphore(name, limit).expect("valid")),
            Self::Blocking(client) => Semaphore::Blocking(client.semaphore(name, limit).expect("valid")),
        }
    }

    pub(crate) async fn acquire_all<const N: usize>(
        &self,
        requests: [(&Semaphore, AcquireOptions); N],
    ) -> Result<PermitSet, AcquireAllError> {
        match self.clone() {
            Self::Async(client) => {
                let requests = requests.map(|(semaphore, options)| (semaphore.as_async().clone(), options));
                client.acquire_all(requests).await.map(PermitSet::Async)
            }
            Self::Blocking(client) => {
                let requests = requests.map(|(semaphore, options)| match semaphore {
                    Semaphore::Blocking(semaphore) => (semaphore.clone(), options),
                    Semaphore::Async(_) => panic!("client and semaphore are of one API"),
                });
                let permits = on_a_thread(move || client.acquire_all(requests)).await?;
                Ok(PermitSet::Blocking(Arc::new(permits)))
            }
        }
    }

    pub(crate) async fn list(&self) -> Result<Vec<String>, AdminError> {
        match self.clone() {
            Self::Async(client) => client.list().await,
            Self::Blocking(client) => on_a_thread(move || client.list()).await,
        }
    }

    pub(crate) async fn adopt(&self, handle: &PermitHandle) -> Result<Permit, AdoptError> {
        match self.clone() {
            Self::Async(client) => client.adopt(handle).await.map(Permit::Async),
            Self::Blocking(client) => {
                let handle = handle.clone();
                on_a_thread(move || client.adopt(&handle)).await.map(Permit::from)
            }
        }
    }

    pub(crate) async fn renew(&self, handle: &PermitHandle) -> Result<bool, AdminError> {
        let handle = handle.clone();
        call!(self.renew(&handle))
    }

    pub(crate) async fn release(&self, handle: &PermitHandle) -> Result<bool, AdminError> {
        let handle = handle.clone();
        call!(self.release(&handle))
    }

    pub(crate) async fn close(self) -> Result<(), CloseError> {
        match self {
            Self::Async(client) => client.close().await,
            Self::Blocking(client) => on_a_thread(move || client.close()).await,
        }
    }
}

/// A semaphore.
#[derive(Debug, Clone)]
pub(crate) enum Semaphore {
    Async(permits::Semaphore),
    Blocking(blocking::Semaphore),
}

impl Semaphore {
    pub(crate) async fn acquire(&self) -> Result<Permit, AcquireError> {
        match self.clone() {
            Self::Async(semaphore) => semaphore.acquire().await.map(Permit::Async),
            Self::Blocking(semaphore) => on_a_thread(move || semaphore.acquire()).await.map(Permit::from),
        }
    }

    pub(crate) async fn try_acquire(&self) -> Result<Permit, AcquireError> {
        match self.clone() {
            Self::Async(semaphore) => semaphore.try_acquire().await.map(Permit::Async),
            Self::Blocking(semaphore) => on_a_thread(move || semaphore.try_acquire()).await.map(Permit::from),
        }
    }

    pub(crate) async fn acquire_with(&self, options: AcquireOptions) -> Result<Permit, AcquireError> {
        match self.clone() {
            Self::Async(semaphore) => semaphore.acquire_with(options).await.map(Permit::Async),
            Self::Blocking(semaphore) => {
                on_a_thread(move || semaphore.acquire_with(options)).await.map(Permit::from)
            }
        }
    }

    pub(crate) async fn declare(&self) -> Result<u32, AdminError> {
        call!(self.declare())
    }

    pub(crate) async fn available(&self) -> Result<u32, AdminError> {
        call!(self.available())
    }

    pub(crate) async fn set_limit(&self, limit: u32) -> Result<u64, AdminError> {
        call!(self.set_limit(limit))
    }

    pub(crate) async fn set_limit_if_version(&self, limit: u32, version: u64) -> Result<u64, AdminError> {
        call!(self.set_limit_if_version(limit, version))
    }

    pub(crate) async fn adjust_limit(&self, number: i64) -> Result<u32, AdminError> {
        call!(self.adjust_limit(number))
    }

    pub(crate) async fn unpin(&self) -> Result<u64, AdminError> {
        call!(self.unpin())
    }

    pub(crate) async fn pause(&self) -> Result<(), AdminError> {
        call!(self.pause())
    }

    pub(crate) async fn resume(&self) -> Result<(), AdminError> {
        call!(self.resume())
    }

    pub(crate) async fn close_line(&self, reason: &str) -> Result<(), AdminError> {
        let reason = reason.to_owned();
        call!(self.close_line(&reason))
    }

    pub(crate) async fn open_line(&self) -> Result<(), AdminError> {
        call!(self.open_line())
    }

    pub(crate) async fn revoke(&self, holder: &str, reason: &str) -> Result<bool, AdminError> {
        let (holder, reason) = (holder.to_owned(), reason.to_owned());
        call!(self.revoke(&holder, &reason))
    }

    pub(crate) async fn revoke_cooling(&self, holder: &str, token: u64) -> Result<bool, AdminError> {
        let holder = holder.to_owned();
        call!(self.revoke_cooling(&holder, token))
    }

    pub(crate) async fn delete(&self) -> Result<bool, AdminError> {
        call!(self.delete())
    }

    pub(crate) async fn inspect_up_to(&self, max: u32) -> Result<Inspection, AdminError> {
        call!(self.inspect_up_to(max))
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection, AdminError> {
        call!(self.inspect())
    }

    /// The semaphore of the async API, for methods that only that API has.
    pub(crate) fn as_async(&self) -> &permits::Semaphore {
        match self {
            Self::Async(semaphore) => semaphore,
            Self::Blocking(_) => panic!("the blocking API has no such method: mark the case `asynchronous`"),
        }
    }
}

/// A permit.
#[derive(Debug)]
pub(crate) enum Permit {
    Async(permits::Permit),
    /// Shared with the thread of a call, while the call lasts.
    Blocking(Arc<blocking::Permit>),
}

impl From<blocking::Permit> for Permit {
    fn from(permit: blocking::Permit) -> Self {
        Self::Blocking(Arc::new(permit))
    }
}

/// Calls the same getter of either API.
macro_rules! read {
    ($($method:ident: $of:ty,)*) => {
        $(pub(crate) fn $method(&self) -> $of {
            match self {
                Self::Async(permit) => permit.$method(),
                Self::Blocking(permit) => permit.$method(),
            }
        })*
    };
}

impl Permit {
    read! {
        semaphore: &str,
        holder: &str,
        weight: u32,
        lease: Duration,
        token: u64,
        slot: u32,
        is_held: bool,
        remaining: Duration,
        status: PermitStatus,
    }

    /// Waits for its loss until `limit` has passed.
    pub(crate) async fn lost_within(&self, limit: Duration) -> Option<Lost> {
        match self {
            Self::Async(permit) => tokio::time::timeout(limit, permit.lost()).await.ok(),
            Self::Blocking(permit) => {
                let permit = permit.clone();
                on_a_thread(move || permit.lost_within(limit)).await
            }
        }
    }

    pub(crate) async fn renew(&self) -> Result<(), RenewError> {
        match self {
            Self::Async(permit) => permit.renew().await,
            Self::Blocking(permit) => {
                let permit = permit.clone();
                on_a_thread(move || permit.renew()).await
            }
        }
    }

    pub(crate) async fn release_part(&self, units: u32) -> Result<(), RenewError> {
        match self {
            Self::Async(permit) => permit.release_part(units).await,
            Self::Blocking(permit) => {
                let permit = permit.clone();
                on_a_thread(move || permit.release_part(units)).await
            }
        }
    }

    pub(crate) async fn set_lease(&self, lease: Duration) -> Result<(), RenewError> {
        match self {
            Self::Async(permit) => permit.set_lease(lease).await,
            Self::Blocking(permit) => {
                let permit = permit.clone();
                on_a_thread(move || permit.set_lease(lease)).await
            }
        }
    }

    pub(crate) fn auto_renew(&self, renew: bool) {
        match self {
            Self::Async(permit) => permit.auto_renew(renew),
            Self::Blocking(permit) => permit.auto_renew(renew),
        }
    }

    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Async(permit) => permit.release().await,
            Self::Blocking(permit) => {
                let permit = Arc::into_inner(permit).expect("no other call is made with it");
                on_a_thread(move || permit.release()).await
            }
        }
    }

    pub(crate) async fn hand_over(self) -> Result<PermitHandle, RenewError> {
        match self {
            Self::Async(permit) => permit.hand_over().await,
            Self::Blocking(permit) => {
                let permit = Arc::into_inner(permit).expect("no other call is made with it");
                on_a_thread(move || permit.hand_over()).await
            }
        }
    }

    /// The permit of the async API, for methods that only that API has.
    pub(crate) fn as_async(&self) -> &permits::Permit {
        match self {
            Self::Async(permit) => permit,
            Self::Blocking(_) => panic!("the blocking API has no such method: mark the case `asynchronous`"),
        }
    }
}

/// Permits of several semaphores.
#[derive(Debug)]
pub(crate) enum PermitSet {
    Async(permits::PermitSet),
    /// Shared with the thread of a call, while the call lasts.
    Blocking(Arc<blocking::PermitSet>),
}

impl PermitSet {
    read! {
        is_held: bool,
        remaining: Duration,
    }

    /// The semaphores and weights, in order.
    pub(crate) fn weights(&self) -> Vec<(String, u32)> {
        match self {
            Self::Async(set) => {
                set.permits().iter().map(|permit| (permit.semaphore().to_owned(), permit.weight())).collect()
            }
            Self::Blocking(set) => {
                set.permits().iter().map(|permit| (permit.semaphore().to_owned(), permit.weight())).collect()
            }
        }
    }

    /// The token of the permit of this semaphore.
    pub(crate) fn token(&self, semaphore: &str) -> Option<u64> {
        match self {
            Self::Async(set) => set.get(semaphore).map(permits::Permit::token),
            Self::Blocking(set) => set.get(semaphore).map(blocking::Permit::token),
        }
    }

    /// Waits for a loss until `limit` has passed. Returns the semaphore and the reason.
    pub(crate) async fn lost_within(&self, limit: Duration) -> Option<(String, Lost)> {
        match self {
            Self::Async(set) => {
                let (permit, lost) = tokio::time::timeout(limit, set.lost()).await.ok()?;
                Some((permit.semaphore().to_owned(), lost))
            }
            Self::Blocking(set) => {
                let set = set.clone();
                on_a_thread(move || {
                    let (permit, lost) = set.lost_within(limit)?;
                    Some((permit.semaphore().to_owned(), lost))
                })
                .await
            }
        }
    }

    pub(crate) async fn renew(&self) -> Result<(), RenewError> {
        match self {
            Self::Async(set) => set.renew().await,
            Self::Blocking(set) => {
                let set = set.clone();
                on_a_thread(move || set.renew()).await
            }
        }
    }

    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Async(set) => set.release().await,
            Self::Blocking(set) => {
                let set = Arc::into_inner(set).expect("no other call is made with it");
                on_a_thread(move || set.release()).await
            }
        }
    }

    pub(crate) fn into_permits(self) -> Vec<Permit> {
        match self {
            Self::Async(set) => set.into_permits().into_iter().map(Permit::Async).collect(),
            Self::Blocking(set) => {
                let set = Arc::into_inner(set).expect("no other call is made with it");
                set.into_permits().into_iter().map(Permit::from).collect()
            }
        }
    }
}
