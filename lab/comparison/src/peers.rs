//! The peers: systems whose drivers `peers/build` makes, each in a directory of its own below `target/peers`.

use std::path::Path;

use permits_bench::system::{Kind, Program, System};

/// A peer, with its program as it was built, or the reason why it has no program.
pub(crate) fn peer(name: &'static str, title: &'static str) -> System {
    let directory = Path::new("target/peers").join(name);
    let run = directory.join("run");
    let program = if run.exists() {
        Program::At(run)
    } else {
        let reason = std::fs::read_to_string(directory.join("absent"));
        Program::Absent(reason.map_or_else(|_| "not built".to_owned(), |reason| reason.trim().to_owned()))
    };
    System { name, title, kind: Kind::Peer, program }
}
