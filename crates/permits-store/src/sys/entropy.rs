//! Random bytes from the operating system, from which session ids are made.

/// Bytes that no other process has. They do not come from a generator in this process, because a forked child
/// and a restored snapshot have a copy of the generator's state.
///
/// # Errors
/// The operating system's error, if it provides no entropy.
pub fn unique_bytes() -> Result<[u8; 9], getrandom::Error> {
    let mut bytes = [0; 9];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
