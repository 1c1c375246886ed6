//! The system, as a client needs it: threads and runtimes in the background, random numbers, the identity of
//! the process, texts of URLs, and what was meant by a misspelt name.

pub(crate) mod background;
pub(crate) mod block_on;
pub(crate) mod entropy;
pub(crate) mod percent;
pub(crate) mod process;
pub(crate) mod similar;
