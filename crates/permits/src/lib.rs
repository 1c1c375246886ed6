//! permits
#![forbid(unsafe_code)]

mod clock;
pub mod model;
pub mod protocol;
pub mod store;
