//! The services, with a mock behind them and a store in memory; and the example of a server, with a real
//! store.
//!
//! Each test ends with conservation: nothing is held, and no request waits.

mod bodies;
mod calling;
mod counting;
mod fixture;
mod losing;
mod refusing;
mod requests;
mod reserving;
mod serving;
