//! The hash slots of a cluster.

/// The number of hash slots.
pub const SLOTS: u16 = 16_384;

/// The hash slot of `key`: CRC16 of its hash tag if it has one, else of the whole key, modulo 16384.
///
/// The hash tag is the text between the first `{` and the next `}`, unless it is empty.
///
/// # Examples
///
/// ```
/// use permits_testkit::cluster::slot;
///
/// assert_eq!(slot("permits:{exports}:queue"), slot("exports"));
/// ```
pub fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("foo"), 12_182);
    }

    #[test]
    fn only_the_first_tag_counts_and_only_if_it_is_not_empty() {
        assert_eq!(slot("{user}.a"), slot("user"));
        assert_eq!(slot("a{user}{other}"), slot("user"));
        assert_eq!(slot("a{{user}}"), slot("{user"));
        assert_ne!(slot("a{}{user}"), slot("user"));
        assert_ne!(slot("a{user"), slot("user"));
        assert_ne!(slot("a}user{"), slot("user"));
    }
}
