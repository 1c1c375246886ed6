//! The system, as a client needs it: threads and runtimes in the background, random numbers, the identity of
//! the process, texts of URLs, and what was meant by a misspelt name.

pub mod background;
pub mod block_on;
pub mod entropy;
pub mod percent;
pub mod process;
pub mod similar;
