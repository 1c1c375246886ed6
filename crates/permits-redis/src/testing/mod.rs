//! Support for the project's own tests: a store with a fixed clock, the words of its calls, and the decoders
//! for any input.

mod decoding;
mod fixed_clock;

pub use self::decoding::{decode_message, decode_reply, keys_of, name_of_state, nodes_of_hash_slots};
pub use self::fixed_clock::{FixedClockStore, SERVER_KEY, call_with_fixed_clock};
