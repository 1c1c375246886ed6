//! The imports between files: paths resolved to the files that define their items, and the circles among
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::source::{Module, Source};

/// The imports of a crate.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Sorted.
    pub(crate) imports: Vec<Import>,
}

/// An import of an item by a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The path in the text.
    path: String,
    /// True if the file only passes the name on.
    passed_on: bool,
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} ({})", self.from, self.to, self.path)
    }
}

/// The modules of a crate by path, each with its file.
struct Library<'a>(BTreeMap<&'a [String], (&'a str, &'a Module)>);

impl Graph {
    pub(crate) fn of(sources: &[Source]) -> Self {
        let tests: BTreeSet<&[String]> =
            sources.iter().flat_map(|source| source.test_modules.iter().map(Vec::as_slice)).collect();
        let is_test = |path: &[String]| (1..=path.len()).any(|length| tests.contains(&path[..length]));
        let all = sources.iter().flat_map(|source| source.modules.iter().map(move |module| (source, module)));
        let modules: BTreeMap<_, _> = all
            .filter(|(_, module)| !is_test(&module.path))
            .map(|(source, module)| (module.path.as_slice(), (source.file.as_str(), module)))
            .collect();
        let library = Library(modules);
        let mut imports: Vec<Import> =
            library.0.values().flat_map(|(file, module)| library.imports_of(file, module)).collect();
        imports.sort();
        imports.dedup();
        Self { imports }
    }
}

impl Library<'_> {
    fn imports_of(&self, file: &str, module: &Module) -> Vec<Import> {
        let names_in_file: BTreeSet<&String> = self
            .0
            .values()
            .filter(|(of, _)| *of == file)
            .flat_map(|(_, module)| module.names.iter())
            .collect();
        let uses =
            module.uses.iter().map(|used| (&used.path, used.public && !names_in_file.contains(&used.name)));
        let paths = module.paths.iter().map(|path| (path, false));
        uses.chain(paths)
            .filter_map(|(path, passed_on)| {
                let to = self.file_of(&module.path, path, 0)?;
                let (from, path) = (file.to_owned(), path.join("::"));
                (to != file).then(|| Import { from, to: to.to_owned(), path, passed_on })
            })
            .collect()
    }

    /// The file that defines the item of `path`, seen from the module `here`. `None` for items of other
    /// crates.
    fn file_of(&self, here: &[String], path: &[String], depth: usize) -> Option<&str> {
        // Re-exports that lead to each other do not compile; this bounds a wrong resolution.
        if depth > 20 {
            return None;
        }
        let (first, mut rest) = path.split_first()?;
        let mut module: Vec<String> = match first.as_str() {
            "crate" => Vec::new(),
            "self" => here.to_vec(),
            "super" => here[..here.len().checked_sub(1)?].to_vec(),
            _ => {
                // A child module, or an item or import of this module; else another crate.
                let known = self.child(here, first).is_some() || self.has(here, first);
                known.then(|| rest = path)?;
                here.to_vec()
            }
        };
        while let Some((name, after)) = rest.split_first() {
            if name == "super" {
                module.pop()?;
            } else if let Some(child) = self.child(&module, name) {
                module = child;
            } else {
                return self.file_of_item(&module, name, rest, depth);
            }
            rest = after;
        }
        self.0.get(module.as_slice()).map(|(file, _)| *file)
    }

    /// The file that defines `name`, which is in `module` and no module.
    fn file_of_item(&self, module: &[String], name: &String, rest: &[String], depth: usize) -> Option<&str> {
        let (file, declared) = self.0.get(module)?;
        if declared.items.contains(name) {
            return Some(file);
        }
        if let Some(used) = declared.uses.iter().find(|used| used.name == *name) {
            // The rest of the path may go through a module that was re-exported.
            let path: Vec<String> = used.path.iter().chain(&rest[1..]).cloned().collect();
            let own_name = path.len() == 1 && used.path[0] == *name;
            return if own_name { Some(file) } else { self.file_of(module, &path, depth + 1) };
        }
        let globs = declared.uses.iter().filter(|used| used.name == "*");
        let by_glob = |used: &crate::source::Use| {
            let path: Vec<String> = used.path.iter().chain(rest).cloned().collect();
            let target = self.file_of(module, &used.path, depth + 1)?;
            let defines = |(of, module): &&(&str, &Module)| {
                *of == target
                    && (module.items.contains(name) || module.uses.iter().any(|used| used.name == *name))
            };
            self.0.values().find(defines)?;
            self.file_of(module, &path, depth + 1)
        };
        // What macros define is not seen: it counts for the file of the module.
        globs.filter_map(by_glob).next().or(Some(file))
    }

    fn child(&self, module: &[String], name: &str) -> Option<Vec<String>> {
        let mut path = module.to_vec();
        path.push(name.to_owned());
        self.0.contains_key(path.as_slice()).then_some(path)
    }

    fn has(&self, module: &[String], name: &String) -> bool {
        self.0.get(module).is_some_and(|(_, declared)| {
            // A `use` of another crate has the crate's name itself.
            let used = |used: &&crate::source::Use| used.name == *name && used.path.first() != Some(name);
            declared.items.contains(name) || declared.uses.iter().any(|it| used(&it))
        })
    }
}

/// The circles: sets of files each of which imports every other one, directly or by others. Each as the
/// imports within it, a line each.
pub(crate) fn circles(graph: &Graph) -> Vec<String> {
    let imports: Vec<&Import> = graph.imports.iter().filter(|import| !import.passed_on).collect();
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in &imports {
        next.entry(&import.from).or_default().insert(&import.to);
    }
    let reached = |from: &str| {
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> = next.get(from).into_iter().flatten().copied().collect();
        while let Some(file) = open.pop() {
            if reached.insert(file) {
                open.extend(next.get(file).into_iter().flatten());
            }
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|file| (*file, reached(file))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for file in next.keys().filter(|file| reaches(file, file)) {
        let circle: BTreeSet<&str> =
            next.keys().copied().filter(|other| reaches(file, other) && reaches(other, file)).collect();
        if !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    let shown = |circle: &BTreeSet<&str>| {
        let within =
            |import: &&&Import| circle.contains(import.from.as_str()) && circle.contains(import.to.as_str());
        let lines: Vec<String> = imports.iter().filter(within).map(ToString::to_string).collect();
        lines.join("\n")
    };
    circles.iter().map(shown).collect()
}
