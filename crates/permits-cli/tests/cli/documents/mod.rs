//! The blocks of the documents that use the command, as they stand there: CONTRIBUTING.md, "Blocks of code".

mod console;
pub(crate) mod copies;
mod http;
mod languages;
mod situations;
