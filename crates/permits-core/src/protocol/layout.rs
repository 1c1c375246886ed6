//! The layout: the version of all that outlives a program. The state and the entries in a server, a local
//! file and a handle carry it, and a program reads and writes those of its own layout alone.
//! docs/operate/upgrade.md has the rules for a change.

/// The layout that this build reads and writes. From 1 to 15, because the first byte of an entry has it
/// beside four flags.
pub(super) const LAYOUT: u8 = 11;

/// The layout of this process.
#[cfg(not(feature = "testing"))]
pub fn layout() -> u8 {
    LAYOUT
}

#[cfg(feature = "testing")]
static PRETENDED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(LAYOUT);

/// The layout of this process.
#[cfg(feature = "testing")]
pub fn layout() -> u8 {
    PRETENDED.load(std::sync::atomic::Ordering::Relaxed)
}

/// Makes this process one of another version, for a test of what two versions do to each other.
#[cfg(feature = "testing")]
pub fn pretend_layout(layout: u8) {
    PRETENDED.store(layout, std::sync::atomic::Ordering::Relaxed);
}
