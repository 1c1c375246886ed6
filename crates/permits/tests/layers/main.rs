//! The imports of the files of the library, its core and the command: they only go down, and no files import
//! each other in a circle.
//!
//! # The rule
//! - An *import* is a path that begins with `crate`, `self`, `super` or a child module, in a `use` or in
//!   code. Code under `#[cfg(test)]` and comments do not count; code under other conditions does.
//! - An import *goes to the file that defines the item*: re-exports are followed. An import of a module goes
//!   to its file.
//! - Each crate has *layers*: [`LIBRARY`], [`CORE`], [`COMMAND`]. An import goes to the same or a lower
//!   layer, with one exception: the session of the library may import `error.rs` of the face.
//! - Files have no circle of imports. A `pub use` of a name that its file does not mention again only passes
//!   it on, and is no import here. So a `mod.rs` may re-export its children, and they may import what it
//!   defines; but it may not use a child that imports what it defines. `mod` lines are no imports.
//!
//! The sources are read as tokens: see `source` for what they declare and `graph` for the resolution of
//! paths. Paths in the arguments of macros count; the expansions of macros do not.

mod graph;
mod source;

use std::path::Path;

use graph::{Graph, circles};
use source::Source;

/// A crate, and the layers of its modules.
#[derive(Debug, Clone, Copy)]
struct Layered {
    /// The directory of the sources, seen from this crate.
    sources: &'static str,
    /// From the top, each with its modules of the crate's root. `lib` and `main` are the root.
    layers: &'static [(&'static str, &'static [&'static str])],
}

const LIBRARY: Layered = Layered {
    sources: "src",
    layers: &[
        (
            "face",
            &[
                "lib",
                "client",
                "semaphore",
                "options",
                "inspection",
                "acquire",
                "permit",
                "several",
                "handle",
                "hand_over",
                "reply",
                "requests",
                "check",
                "json",
                "error",
            ],
        ),
        ("session", &["session"]),
        ("diagnostics", &["diagnostics"]),
        ("stores", &["store"]),
    ],
};

const CORE: Layered = Layered {
    sources: "../permits-core/src",
    layers: &[
        ("root", &["lib"]),
        ("clients", &["acquisition", "keeping"]),
        ("model", &["model"]),
        ("protocol", &["protocol"]),
        ("time", &["timing", "clock"]),
    ],
};

const COMMAND: Layered = Layered {
    sources: "../permits-cli/src",
    layers: &[
        ("main", &["main"]),
        (
            "verbs",
            &[
                "administer",
                "doctor",
                "generate",
                "handle",
                "hold",
                "list",
                "revoke",
                "run",
                "serve",
                "status",
                "top",
                "watch",
            ],
        ),
        ("ways to a store", &["acquire", "connect", "each", "names", "reader"]),
        ("arguments", &["args", "help"]),
        ("output", &["exit", "output", "report"]),
        ("values", &["clock", "holder", "inspected", "order", "posix", "table", "text", "units"]),
    ],
};

const CRATES: [Layered; 3] = [LIBRARY, CORE, COMMAND];

impl Layered {
    /// The files of the crate. Those of tests are among them; [`Graph`] leaves them out.
    fn files(self) -> Vec<Source> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(self.sources);
        source::read_tree(&root).expect("the sources can be read")
    }

    fn graph(self) -> Graph {
        let graph = Graph::of(&self.files());
        assert!(graph.imports.len() > 30, "the imports are recognized: {}", graph.imports.len());
        graph
    }

    /// The name of the layer of a file, and its distance from the top.
    fn layer(self, file: &str) -> Option<(&'static str, usize)> {
        let root = file.split('/').next()?.trim_end_matches(".rs");
        let depth = self.layers.iter().position(|(_, modules)| modules.contains(&root))?;
        Some((self.layers[depth].0, depth))
    }

    fn allows(self, from: &str, to: &str) -> bool {
        let (Some((layer_from, depth_from)), Some((_, depth_to))) = (self.layer(from), self.layer(to)) else {
            return false;
        };
        depth_from <= depth_to || layer_from == "session" && to == "error.rs"
    }
}

#[test]
fn every_file_has_a_layer() {
    for layered in CRATES {
        let files = layered.files().into_iter().map(|source| source.file);
        let missing: Vec<String> = files.filter(|file| layered.layer(file).is_none()).collect();
        assert!(missing.is_empty(), "add these to the layers of {}: {missing:?}", layered.sources);
    }
}

#[test]
fn imports_only_go_down() {
    for layered in CRATES {
        let imports = layered.graph().imports;
        let up = imports.iter().filter(|import| !layered.allows(&import.from, &import.to));
        let up: Vec<String> = up.map(ToString::to_string).collect();
        assert!(up.is_empty(), "imports that go up in {}:\n{}", layered.sources, up.join("\n"));
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for layered in CRATES {
        let circles = circles(&layered.graph());
        assert!(circles.is_empty(), "circles of files in {}:\n{}", layered.sources, circles.join("\n\n"));
    }
}
