//! The part of the system that a client needs: threads and runtimes in the background, random numbers, the
//! identity of the process; also percent-encoding in URLs, and guesses at a misspelt name.

pub mod background;
pub mod block_on;
pub mod entropy;
pub mod percent;
pub mod process;
pub mod similar;
