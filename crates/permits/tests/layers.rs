//! The imports of the files of the library, the command, the tower layer and the packages: they only go down,
//! and no files import each other in a circle. Between crates the compiler sees to that; this is for the
//! inside of each.
//!
//! - An *import* is a path that begins with `crate`, `self`, `super` or a name of its module, in a `use` or
//!   in code. Code under `#[cfg(test)]` does not count; code under other conditions does. Arguments of macros
//!   count if they are expressions or statements.
//! - An import *goes to the file that defines the item*: re-exports are followed. An import of a module goes
//!   to its file.
//! - An import goes to the same or a lower layer.
//! - A `pub use` of a name that its file does not mention again only passes it on, and is no import for the
//!   search of circles. So a `mod.rs` may re-export its children, and they may import what it defines; but it
//!   may not use a child that imports what it defines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, ImplItemFn, Item, ItemMod, ItemUse, Macro, Token, UseTree, Visibility};

/// The crates, each with its layers from the lowest, and of each layer the modules at the crate's root. All
/// other modules are the highest layer, so that you add a module here when a lower one imports it.
const CRATES: &[(&str, &[&[&str]])] = &[
    ("crates/permits", &[&["inspection", "obstacles", "store"], &["diagnostics", "error"], &["session"]]),
    ("crates/permits-core", &[&["timing", "clock"], &["protocol"], &["model"], &["acquisition", "keeping"]]),
    ("crates/permits-store", &[]),
    ("crates/permits-redis", &[]),
    (
        "crates/permits-cli",
        &[
            &["clock", "inspected", "order", "password", "posix", "stdout", "table", "text", "units"],
            &["exit", "output", "report"],
            &["args", "help"],
            &["acquire", "connect", "each", "names", "reader"],
        ],
    ),
    ("crates/permits-tower", &[]),
    ("bindings/common", &[]),
    ("bindings/node", &[]),
    ("bindings/python", &[]),
];

/// A path, such as the path of a module from the crate's root.
type Names = Vec<String>;

/// A module: what it declares, and the paths in its code.
#[derive(Debug, Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    /// The names that `use` declares, `*` for a glob, each with true if other modules can use it.
    uses: Vec<(String, Names, bool)>,
    paths: BTreeSet<Names>,
}

/// The modules of a crate.
#[derive(Default)]
struct Library {
    modules: BTreeMap<Names, Module>,
    /// The modules in files of their own that are for tests.
    tests: Vec<Names>,
    /// The module that is read.
    here: Names,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    from: String,
    to: String,
    path: String,
    is_passed_on: bool,
}

impl Library {
    fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut library = Self::default();
        for (file, text) in files {
            let names = file.trim_end_matches(".rs").split('/').map(str::to_owned);
            library.here = names.filter(|name| !["mod", "lib", "main"].contains(&name.as_str())).collect();
            library.module().file = file.to_owned();
            library.visit_file(&syn::parse_file(text).expect("it compiles"));
        }
        let Self { modules, tests, .. } = &mut library;
        modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
        library
    }

    fn module(&mut self) -> &mut Module {
        self.modules.entry(self.here.clone()).or_default()
    }

    fn imports(&self) -> BTreeSet<Import> {
        let mut imports = BTreeSet::new();
        for (here, module) in &self.modules {
            let of_file = self.modules.values().filter(|other| other.file == module.file);
            let mentioned: BTreeSet<&String> = of_file.flat_map(|it| it.paths.iter().flatten()).collect();
            let uses = module.uses.iter();
            let uses = uses.map(|(name, path, is_public)| (path, *is_public && !mentioned.contains(name)));
            let paths = module.paths.iter().filter(|path| path.len() > 1).map(|path| (path, false));
            imports.extend(uses.chain(paths).filter_map(|(path, is_passed_on)| {
                let to = self.file_of(here, path, 0).filter(|to| *to != module.file)?;
                let (from, to, path) = (module.file.clone(), to.to_owned(), path.join("::"));
                Some(Import { from, to, path, is_passed_on })
            }));
        }
        imports
    }

    /// The file that defines the item of `path`, seen from the module `here`; `None` if another crate does.
    fn file_of(&self, here: &[String], path: &[String], depth: usize) -> Option<&str> {
        let mut at = here.to_vec();
        for (index, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => _ = at.pop()?,
                _ if self.modules.contains_key(&[&at[..], &path[index..=index]].concat()) => {
                    at.push(name.clone());
                }
                _ => return self.file_of_item(&at, &path[index..], index > 0, depth),
            }
        }
        Some(&self.modules.get(&at)?.file)
    }

    /// The file that defines the item at the beginning of `path` in the module `here`. What macros define is
    /// not seen: if it `is_here`, it counts for the file of the module.
    fn file_of_item(&self, here: &[String], path: &[String], is_here: bool, depth: usize) -> Option<&str> {
        let module = self.modules.get(here)?;
        let (name, rest) = path.split_first()?;
        // The bound is for a wrong resolution: re-exports that lead to each other do not compile.
        if module.items.contains(name) || depth > 20 {
            return Some(&module.file);
        }
        // A `use` of another crate has the name of that crate.
        if let Some((_, used, _)) = module.uses.iter().find(|(of, used, _)| of == name && used[0] != *name) {
            return self.file_of(here, &[&used[..], rest].concat(), depth + 1);
        }
        let mut globs = module.uses.iter().filter(|(name, ..)| name == "*");
        globs
            .find_map(|(_, used, _)| self.file_of_item(&[here, used].concat(), path, false, depth + 1))
            .or_else(|| is_here.then_some(&module.file))
    }

    /// Adds the names that `tree` declares, below `path`.
    fn declare(&mut self, tree: &UseTree, mut path: Names, is_public: bool) {
        let (last, name) = match tree {
            UseTree::Path(parent) => {
                path.push(parent.ident.to_string());
                return self.declare(&parent.tree, path, is_public);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.declare(tree, path.clone(), is_public));
            }
            UseTree::Glob(_) => (None, "*".to_owned()),
            UseTree::Name(name) if name.ident == "self" => (None, path.last().cloned().unwrap_or_default()),
            UseTree::Name(name) => (Some(&name.ident), name.ident.to_string()),
            UseTree::Rename(renamed) => (Some(&renamed.ident), renamed.rename.to_string()),
        };
        path.extend(last.filter(|last| *last != "self").map(ToString::to_string));
        self.module().uses.push((name, path, is_public));
    }
}

/// Returns true if an item is there for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let words = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        attribute.path().is_ident("cfg")
            && words.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == "test")
    })
}

impl<'ast> Visit<'ast> for Library {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = match item {
            Item::Const(it) => (&it.attrs, Some(&it.ident)),
            Item::Enum(it) => (&it.attrs, Some(&it.ident)),
            Item::Fn(it) => (&it.attrs, Some(&it.sig.ident)),
            Item::Impl(it) => (&it.attrs, None),
            Item::Macro(it) => (&it.attrs, it.ident.as_ref()),
            Item::Mod(it) => (&it.attrs, None),
            Item::Static(it) => (&it.attrs, Some(&it.ident)),
            Item::Struct(it) => (&it.attrs, Some(&it.ident)),
            Item::Trait(it) => (&it.attrs, Some(&it.ident)),
            Item::Type(it) => (&it.attrs, Some(&it.ident)),
            Item::Use(it) => (&it.attrs, None),
            _ => return,
        };
        if !is_test(attributes) {
            self.module().items.extend(name.map(ToString::to_string));
            visit::visit_item(self, item);
        } else if let Item::Mod(module) = item {
            self.tests.push([&self.here[..], &[module.ident.to_string()]].concat());
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.content.is_some() {
            let file = self.module().file.clone();
            self.here.push(module.ident.to_string());
            self.module().file = file;
            visit::visit_item_mod(self, module);
            self.here.pop();
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        // `::name` is another crate.
        let root = item.leading_colon.map(|_| String::new());
        self.declare(&item.tree, root.into_iter().collect(), !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.module().paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, it: &'ast Macro) {
        if let Ok(arguments) = it.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated) {
            arguments.iter().for_each(|argument| self.visit_expr(argument));
        } else if let Ok(statements) = it.parse_body_with(Block::parse_within) {
            statements.iter().for_each(|statement| self.visit_stmt(statement));
        }
    }
}

/// The files below a directory by their paths, each with its text.
fn read(root: &Path, directory: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("it is read").path();
        if path.is_dir() {
            read(root, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(root).expect("it is below").to_string_lossy().into_owned();
            files.insert(file, fs::read_to_string(path).expect("it is text"));
        }
    }
}

/// The imports that go up, and those that are part of a circle, a line each.
fn faults(layers: &[&[&str]], files: &BTreeMap<String, String>) -> Vec<String> {
    let imports = Library::of(files.iter().map(|(file, text)| (file.as_str(), text.as_str()))).imports();
    let height = |file: &str| {
        let module = file.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        layers.iter().position(|modules| modules.contains(&module)).unwrap_or(layers.len())
    };
    let is_up = |it: &Import| height(&it.from) < height(&it.to);
    let is_in_circle = |it: &Import| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![&it.to]);
        while let Some(file) = open.pop() {
            if reached.insert(file) {
                open.extend(
                    imports.iter().filter(|it| !it.is_passed_on && it.from == *file).map(|it| &it.to),
                );
            }
        }
        !it.is_passed_on && reached.contains(&it.from)
    };
    let fault = |it: &Import| {
        let what = if is_up(it) { "goes up" } else { "is in a circle" };
        (is_up(it) || is_in_circle(it)).then(|| format!("{} -> {} ({}) {what}", it.from, it.to, it.path))
    };
    imports.iter().filter_map(fault).collect()
}

#[test]
fn imports_go_down_and_in_no_circle() {
    let mut all = Vec::new();
    for (of, layers) in CRATES {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(of).join("src");
        let mut files = BTreeMap::new();
        read(&root, &root, &mut files);
        let is_there = |module: &&&str| {
            files.contains_key(&format!("{module}.rs")) || files.contains_key(&format!("{module}/mod.rs"))
        };
        let gone: Vec<_> = layers.iter().copied().flatten().filter(|it| !is_there(it)).collect();
        assert!(gone.is_empty(), "the layers of {of} name modules that it does not have: {gone:?}");
        all.extend(faults(layers, &files).into_iter().map(|fault| format!("{of}: {fault}\n")));
    }
    assert!(all.is_empty(), "{}", all.concat());
}

/// The test above can fail: each of these would be a fault there.
#[test]
fn an_import_that_goes_up_and_a_circle_are_found() {
    let found = |low: &str, a: &str, b: &str| {
        let lib = "mod low; mod high; pub use high::Item;";
        let high = "pub struct Item;";
        let files =
            [("lib.rs", lib), ("high.rs", high), ("low/mod.rs", low), ("low/a.rs", a), ("low/b.rs", b)];
        faults(&[&["low"]], &files.map(|(file, text)| (file.to_owned(), text.to_owned())).into())
    };
    let up = found("use crate::Item;", "fn make() { vec![crate::Item] }", "#[cfg(test)] use crate::Item;");
    assert_eq!(
        up,
        ["low/a.rs -> high.rs (crate::Item) goes up", "low/mod.rs -> high.rs (crate::Item) goes up"]
    );
    let circle =
        found("mod a; mod b; pub use a::f;", "pub fn f() { super::b::g() }", "pub fn g() { super::f() }");
    assert_eq!(
        circle,
        [
            "low/a.rs -> low/b.rs (super::b::g) is in a circle",
            "low/b.rs -> low/a.rs (super::f) is in a circle"
        ]
    );
}
