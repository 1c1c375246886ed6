//! The part that the packages of `permits` for Python and Node have in common.

mod arguments;
mod client;
mod failure;
mod held;
mod stage;

pub use self::arguments::{Language, camel_case, count, limit};
pub use self::client::diagnosis;
pub use self::failure::{Attribute, Failure, Kind};
pub use self::held::{Held, HeldError};
pub use self::stage::Stage;
