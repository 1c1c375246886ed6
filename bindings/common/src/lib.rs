//! The common part of the packages of `permits` for Python and Node: arguments, operations, errors, permits
//! until their end, calls, and mailboxes, which tell an event loop the calls that it has to poll.
//!
//! A language adds its classes, its errors, and the signal that wakes its event loop.

mod arguments;
mod call;
mod client;
mod credentials;
mod events;
mod failure;
mod held;
mod mailbox;
mod operation;
mod semaphore;

pub use self::arguments::{Language, camel_case};
pub use self::call::{Call, Value, unparks};
pub use self::client::Client;
pub use self::credentials::Asked;
pub use self::events::events;
pub use self::failure::{Attribute, Failure, Kind};
pub use self::held::Held;
pub use self::mailbox::{Mailbox, Signal};
pub use self::semaphore::Semaphore;
