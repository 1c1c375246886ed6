//! Linux: a word in a page that the kernel clears in a forked child.
//!
//! Invariant: every number that a process has seen is at most [`LAST`]. A child has a copy of both, so the
//! number that it takes is above all numbers in its memory.
//!
//! Nothing here waits for another thread, because a child has only the thread that forked. One
//! compare-and-swap publishes the page, and another sets the word. If two threads come at once, the second
//! takes what the first has set.

#![expect(unsafe_code, reason = "memory that a fork clears")]

use std::num::NonZeroU64;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The word: the number of the process, or 0 if it has not taken one yet. At first this points to [`UNSET`].
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const UNSET).cast_mut());

/// Stands in for the word before the first call. Always 0.
static UNSET: AtomicU64 = AtomicU64::new(0);

/// Stands in for the word if the kernel clears no pages: then the pid is the number. Always 0.
static BY_PID: AtomicU64 = AtomicU64::new(0);

/// The last number that was taken by this process and those that it was forked from.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The size of the mapping, which the kernel rounds up to a page.
const SIZE: usize = size_of::<AtomicU64>();

/// The number of the calling process.
#[inline]
pub(crate) fn number() -> NonZeroU64 {
    let word = word();
    // Relaxed, because the number guards no other memory: it is compared.
    NonZeroU64::new(word.load(Ordering::Relaxed)).unwrap_or_else(|| take(word))
}

/// The word as it is now.
#[inline]
fn word() -> &'static AtomicU64 {
    // Acquire, so that a thread that sees the page sees it as it was mapped.
    let word = WORD.load(Ordering::Acquire);
    // SAFETY: `WORD` has only ever pointed to one of the two statics, or to a page that `map` returned and
    // `publish` has put there; such a page is never unmapped. A child has the page at the same address: the
    // kernel copies the mapping and clears only its content, and all zeros is a valid `AtomicU64`. An atomic
    // may be shared by threads.
    unsafe { &*word }
}

/// Takes a number. Only the first call in a program, and the first one in a forked child, come here.
#[cold]
fn take(mut word: &'static AtomicU64) -> NonZeroU64 {
    if ptr::eq(word, &UNSET) {
        word = publish(map().unwrap_or(&raw const BY_PID));
    }
    if ptr::eq(word, &BY_PID) {
        return super::pid();
    }
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let number = match word.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => number,
        // Another thread of this process was faster: use its number.
        Err(taken) => taken,
    };
    NonZeroU64::new(number).expect("it is above 0")
}

/// Makes `new` the word, unless another thread has published a page already. Returns the word.
fn publish(new: *const AtomicU64) -> &'static AtomicU64 {
    let unset = (&raw const UNSET).cast_mut();
    let published = WORD.compare_exchange(unset, new.cast_mut(), Ordering::AcqRel, Ordering::Acquire);
    if published.is_err() && !ptr::eq(new, &BY_PID) {
        unmap(new);
    }
    word()
}

/// Maps a page that the kernel clears in a forked child. `None` if there is no memory, or the kernel has no
/// such pages.
fn map() -> Option<*const AtomicU64> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: without an address and without MAP_FIXED the kernel chooses addresses that nothing uses, so no
    // other memory changes. The page is readable, writable, and all zeros.
    let page = unsafe { libc::mmap(ptr::null_mut(), SIZE, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range is the page that was just mapped, to which there is no reference yet. The advice
    // changes what a fork does to it. An advice that does not exist changes nothing.
    let advise = |advice| unsafe { libc::madvise(page, SIZE, advice) };
    // Emulators such as qemu up to 5.0 ignore every advice and report success. They give themselves away
    // because they also accept an advice that does not exist.
    if advise(-1) == 0 || advise(libc::MADV_WIPEONFORK) != 0 {
        unmap(page.cast());
        return None;
    }
    // A page is aligned for every type.
    Some(page.cast())
}

/// Unmaps a page that was not published.
fn unmap(page: *const AtomicU64) {
    // SAFETY: the page is one that `map` has mapped, with this size, and no other code has a pointer to it.
    // An error, which these arguments exclude, would leave it mapped.
    unsafe { libc::munmap(page.cast_mut().cast(), SIZE) };
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Makes the process behave from now on as if the kernel had refused the page.
    pub(crate) fn use_pid() {
        WORD.store((&raw const BY_PID).cast_mut(), Ordering::Release);
    }
}
