//! How many connections the limit of open files allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The files of this process that are no connections, at most: of the store, the token files, the runtime.
const OTHER_FILES: usize = 64;

/// Raises the limit of open files for `wanted` connections, and returns how many the system allows. Some
/// files are left for others: a server without one to spare could not even connect to its store again.
pub(crate) fn places(wanted: usize) -> usize {
    let files = (wanted + OTHER_FILES) as u64;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let Some(now) = current.filter(|now| *now < files) else { return wanted };
    let raised = maximum.map_or(files, |maximum| files.min(maximum));
    let now = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        Err(_) => now,
    };
    usize::try_from(now).map_or(wanted, |now| now.saturating_sub(OTHER_FILES)).clamp(1, wanted)
}
