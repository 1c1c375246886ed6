//! The hash slots of a cluster.

/// The number of hash slots.
pub const SLOTS: u16 = 16_384;

/// The hash slot of `key`: CRC16 of its hash tag if it has one, else of the whole key, modulo 16384.
///
/// The hash tag is the text between the first `{` and the next `}`, unless it is empty.
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
