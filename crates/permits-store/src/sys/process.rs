//! Statics that a forked child does not share with its parent, and the identity and names of the process.
//!
//! A child of fork(2) has a copy of the parent's memory and none of its threads. A mutex that a thread of the
//! parent had locked at the fork stays locked in the child forever, and the child shares the descriptors of
//! the parent's connections. So each part of a session notes the process that made it, and the child neither
//! locks it, nor wakes it, nor writes to it.

use std::path::Path;
use std::sync::OnceLock;

pub use permits_process::Process;

/// A static with one value for each process. A forked child makes a new value. It does not touch its copy of
/// the parent's value, which may be locked.
pub struct PerProcess<T> {
    first: OnceLock<Box<Node<T>>>,
}

struct Node<T> {
    process: Process,
    value: T,
    /// The value of a forked child, in the child's memory.
    next: OnceLock<Box<Node<T>>>,
}

impl<T: Default> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default> PerProcess<T> {
    /// Makes a static without a value: each process makes its own when it first asks.
    pub const fn new() -> Self {
        Self { first: OnceLock::new() }
    }

    /// The value of the calling process.
    pub fn get(&self) -> &T {
        let process = Process::current();
        let mut at = &self.first;
        loop {
            match at.get() {
                Some(node) if node.process == process => return &node.value,
                Some(node) => at = &node.next,
                // Make the node first, so that the write to the cell is short, and a fork in the middle of it
                // unlikely.
                None => {
                    let node = Node { process, value: T::default(), next: OnceLock::new() };
                    // If another thread has set its value meanwhile, the loop returns that one.
                    let _ = at.set(Box::new(node));
                }
            }
        }
    }
}

/// The file name of the program; empty if the process has no such name.
pub fn program() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Host name and process id, in plain ASCII.
pub fn name() -> String {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_default();
    let plain = |character: &char| character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_');
    let host: String = host.chars().filter(plain).take(64).collect();
    format!("{}:{}", if host.is_empty() { "host" } else { &host }, std::process::id())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn all_threads_of_a_process_have_one_value() {
        static VALUE: PerProcess<Mutex<u32>> = PerProcess::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| *VALUE.get().lock().expect("no thread panics") += 1);
            }
        });
        assert_eq!(*VALUE.get().lock().expect("no thread panics"), 4);
    }
}
