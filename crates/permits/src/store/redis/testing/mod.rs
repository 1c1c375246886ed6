//! For the project's own tests: a store with a fixed clock, recordings of commands, and the decoders on any
//! input.

mod decoding;
mod fixed_clock;
mod recording;

pub use self::decoding::{decode_message, decode_reply, keys_of, name_of_state, nodes_of_hash_slots};
pub use self::fixed_clock::{FixedClockStore, SERVER_KEY};
pub use self::recording::{CHANNEL, Record, record};
