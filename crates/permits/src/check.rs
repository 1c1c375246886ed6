//! Checks of input, for programs that take it before they have a client: from command lines, forms or
//! configuration files.
//!
//! Each operation of this crate checks its own input by the same rules. To check the options of a request,
//! use [`AcquireOptions::checked`](crate::AcquireOptions::checked).
//!
//! # Examples
//! ```
//! assert!(permits::check::name("exports").is_ok());
//! assert!(permits::check::name("two\nlines").is_err());
//! ```

use std::time::Duration;

use crate::protocol::{self, Holder, InvalidInput, Label, Name};
pub use crate::sys::similar::similar;

/// An unknown name is cut to this many characters in a message.
const SHOWN: usize = 40;

/// Checks the name of a field, as of a request in JSON, against the known names.
///
/// # Errors
/// [`InvalidInput::Unknown`], with the name that was probably meant, if `name` is not among `known`.
pub fn field(name: &str, known: &[&str]) -> Result<(), InvalidInput> {
    if known.contains(&name) {
        return Ok(());
    }
    let meant = similar(name, known.iter().map(|&known| known.to_owned()).collect());
    let advice = match meant.first() {
        Some(meant) => format!("write {meant:?}"),
        None => format!("there are {}", known.join(", ")),
    };
    let name = match name.char_indices().nth(SHOWN) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}…", &name[..end]),
    };
    Err(InvalidInput::Unknown { name, advice })
}

/// Checks the name of a semaphore: 1 to 200 bytes of printable UTF-8.
///
/// # Errors
/// [`InvalidInput`] if it is empty, too long or has control characters.
pub fn name(name: &str) -> Result<(), InvalidInput> {
    Name::new(name).map(drop)
}

/// Checks a holder: 1 to 200 bytes of printable UTF-8.
///
/// # Errors
/// [`InvalidInput`] if it is empty, too long or has control characters.
pub fn holder(holder: &str) -> Result<(), InvalidInput> {
    Holder::new(holder).map(drop)
}

/// Checks the label of a holder: at most 120 bytes of printable UTF-8.
///
/// # Errors
/// [`InvalidInput`] if it is too long or has control characters.
pub fn label(label: &str) -> Result<(), InvalidInput> {
    Label::new(label).map(drop)
}

/// Makes a label of any text, such as the name of a program: control characters are replaced, and what goes
/// beyond 120 bytes is cut off.
#[must_use]
pub fn label_from(text: &str) -> String {
    protocol::label_from(text).as_str().to_owned()
}

/// Checks the reason of a revocation, a pause or a closed line: at most 1,000 bytes of printable UTF-8.
///
/// # Errors
/// [`InvalidInput`] if it is too long or has control characters.
pub fn reason(reason: &str) -> Result<(), InvalidInput> {
    protocol::check_reason(reason).map(drop)
}

/// Checks the prefix of keys: 1 to 64 printable ASCII characters without braces and spaces.
///
/// # Errors
/// [`InvalidInput::Prefix`] if it is anything else.
pub fn prefix(prefix: &str) -> Result<(), InvalidInput> {
    protocol::check_prefix(prefix)
}

/// Checks the time of a pause: more than 0, at most 366 days.
///
/// # Errors
/// [`InvalidInput::Pause`] if it is out of range.
pub fn pause(time: Duration) -> Result<(), InvalidInput> {
    protocol::check_pause(time).map(drop)
}
