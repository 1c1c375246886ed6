//! The imports of the files of the library, the command and the packages: they only go down, and no files
//! import each other in a circle. Between crates the compiler sees to that; this is for the inside of each.
//!
//! # The rule
//! - An *import* is a path that begins with `crate`, `self`, `super` or a name of its module, in a `use` or
//!   in code. Code under `#[cfg(test)]` does not count; code under other conditions does. Arguments of macros
//!   count if they are expressions.
//! - An import *goes to the file that defines the item*: re-exports are followed. An import of a module goes
//!   to its file.
//! - An import goes to the same or a lower layer, with one exception: the session may import `error.rs`.
//! - A `pub use` of a name that its file does not mention again only passes it on, and is no import for the
//!   search of circles. So a `mod.rs` may re-export its children, and they may import what it defines; but it
//!   may not use a child that imports what it defines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use quote::ToTokens as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItemFn, Item, ItemMod, ItemUse, Macro, Token, UseTree, Visibility};

/// The crates, each with its layers from the top, and of each layer the modules at the crate's root. `lib`
/// and
/// `main` are the root. A crate without layers is only searched for circles.
const CRATES: &[(&str, &[&str])] = &[
    (
        "crates/permits",
        &[
            "lib client semaphore options inspection acquire permit several handle hand_over reply requests \
             check json error",
            "session",
            "diagnostics",
            "store",
        ],
    ),
    ("crates/permits-core", &["lib", "acquisition keeping", "model", "protocol", "timing clock"]),
    ("crates/permits-store", &[]),
    ("crates/permits-redis", &[]),
    (
        "crates/permits-cli",
        &[
            "main",
            "administer doctor generate handle hold list revoke run serve status top watch",
            "acquire connect each names reader",
            "args help",
            "exit output report",
            "clock holder inspected order posix table text units",
        ],
    ),
    ("crates/permits-tower", &[]),
    ("bindings/common", &[]),
    ("bindings/node", &[]),
    ("bindings/python", &[]),
];

type Names = Vec<String>;

/// A module: what it declares, and the paths in its code.
#[derive(Debug, Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    uses: Vec<Use>,
    paths: BTreeSet<Names>,
}

/// A name that a `use` declares, `*` for a glob.
#[derive(Debug)]
struct Use {
    path: Names,
    name: String,
    is_public: bool,
}

/// The modules of a crate by path.
#[derive(Default)]
struct Library {
    modules: BTreeMap<Names, Module>,
    /// The modules in files of their own that are for tests.
    tests: BTreeSet<Names>,
    /// The module that is read.
    here: Names,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    from: String,
    to: String,
    path: String,
    is_passed_on: bool,
}

impl Library {
    fn read(sources: &Path) -> Self {
        let mut library = Self::default();
        let mut open = vec![sources.to_owned()];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(
                    fs::read_dir(path).expect("it is there").map(|entry| entry.expect("it is read").path()),
                );
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.strip_prefix(sources).expect("it is below").to_string_lossy().into_owned();
                let names = file.trim_end_matches(".rs").split('/');
                library.here =
                    names.filter(|name| !["mod", "lib", "main"].contains(name)).map(str::to_owned).collect();
                library.module().file = file;
                let text = fs::read_to_string(&path).expect("it is text");
                library.visit_file(&syn::parse_file(&text).expect("it compiles"));
            }
        }
        let Self { modules, tests, .. } = &mut library;
        modules.retain(|path, _| !(1..=path.len()).any(|length| tests.contains(&path[..length])));
        library
    }

    fn module(&mut self) -> &mut Module {
        self.modules.entry(self.here.clone()).or_default()
    }

    fn child(&self, module: &[String], name: &str) -> Option<Names> {
        let path = [module, &[name.to_owned()]].concat();
        self.modules.contains_key(&path).then_some(path)
    }

    fn imports(&self) -> BTreeSet<Import> {
        let mut imports = BTreeSet::new();
        for (here, module) in &self.modules {
            let of_file = self.modules.values().filter(|other| other.file == module.file);
            let mentioned: BTreeSet<&String> =
                of_file.flat_map(|other| other.paths.iter().flatten()).collect();
            let uses = module
                .uses
                .iter()
                .map(|used| (&used.path, used.is_public && !mentioned.contains(&used.name)));
            for (path, is_passed_on) in
                uses.chain(module.paths.iter().filter(|path| path.len() > 1).map(|path| (path, false)))
            {
                let to = self.file_of(here, path, 0).filter(|to| *to != module.file);
                imports.extend(to.map(|to| Import {
                    from: module.file.clone(),
                    to: to.to_owned(),
                    path: path.join("::"),
                    is_passed_on,
                }));
            }
        }
        imports
    }

    /// The file that defines the item of `path`, seen from the module `here`. `None` for items of other
    /// crates.
    fn file_of(&self, here: &[String], path: &[String], depth: usize) -> Option<&str> {
        let (first, mut rest) = path.split_first()?;
        let mut module = match first.as_str() {
            // Re-exports that lead to each other do not compile; this bounds a wrong resolution.
            _ if depth > 20 => return None,
            "crate" => Names::new(),
            "self" => here.to_vec(),
            "super" => here[..here.len().checked_sub(1)?].to_vec(),
            _ => {
                // A child, or an item or import of this module; else another crate.
                let declared = self.modules.get(here)?;
                let is_used =
                    declared.uses.iter().any(|it| it.name == *first && it.path.first() != Some(first));
                let is_here = is_used || declared.items.contains(first) || self.child(here, first).is_some();
                is_here.then(|| rest = path)?;
                here.to_vec()
            }
        };
        while let Some((name, after)) = rest.split_first() {
            if name == "super" {
                module.pop()?;
            } else if let Some(child) = self.child(&module, name) {
                module = child;
            } else {
                return self.file_of_item(&module, name, after, depth);
            }
            rest = after;
        }
        Some(&self.modules.get(&module)?.file)
    }

    /// The file that defines `name`, which is in `module` and no module.
    fn file_of_item(&self, module: &[String], name: &String, after: &[String], depth: usize) -> Option<&str> {
        let declared = self.modules.get(module)?;
        if !declared.items.contains(name) {
            if let Some(used) =
                declared.uses.iter().find(|used| used.name == *name && used.path != [name.clone()])
            {
                // The rest of the path may go through a module that was re-exported.
                return self.file_of(module, &[&used.path, after].concat(), depth + 1);
            }
            for glob in declared.uses.iter().filter(|used| used.name == "*") {
                let target = self.file_of(module, &glob.path, depth + 1).and_then(|target| {
                    let is_it = |other: &&Module| {
                        other.file == target
                            && (other.items.contains(name) || other.uses.iter().any(|it| it.name == *name))
                    };
                    self.modules.values().find(is_it)
                });
                if target.is_some() {
                    let path = [&glob.path[..], std::slice::from_ref(name), after].concat();
                    return self.file_of(module, &path, depth + 1);
                }
            }
        }
        // What macros define is not seen: it counts for the file of the module.
        Some(&declared.file)
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
            UseTree::Glob(_) => {
                return self.module().uses.push(Use { path, name: "*".to_owned(), is_public });
            }
            UseTree::Name(name) => (&name.ident, &name.ident),
            UseTree::Rename(renamed) => (&renamed.ident, &renamed.rename),
        };
        // `a::{self}` is `a`.
        if last != "self" || path.is_empty() {
            path.push(last.to_string());
        }
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name.to_string() };
        self.module().uses.push(Use { path, name, is_public });
    }
}

/// Returns true if an item is there for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.meta.to_token_stream().to_string();
        text.starts_with("cfg (")
            && text.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == "test")
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
            self.tests.insert([&self.here[..], &[module.ident.to_string()]].concat());
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
        }
    }
}

fn shown<'a>(imports: impl Iterator<Item = &'a Import>) -> String {
    imports.map(|it| format!("{} -> {} ({})\n", it.from, it.to, it.path)).collect()
}

/// The files that each file imports, directly or by others.
fn reached(imports: &BTreeSet<Import>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in imports.iter().filter(|import| !import.is_passed_on) {
        all.entry(&import.from).or_default().insert(&import.to);
    }
    loop {
        let next: BTreeMap<_, BTreeSet<&str>> = all
            .iter()
            .map(|(from, to)| {
                (
                    *from,
                    to.iter()
                        .copied()
                        .chain(to.iter().filter_map(|to| all.get(to)).flatten().copied())
                        .collect(),
                )
            })
            .collect();
        if next == all {
            return all;
        }
        all = next;
    }
}

#[test]
fn imports_go_down_and_in_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut faults = String::new();
    for (of, layers) in CRATES {
        let library = Library::read(&root.join(of).join("src"));
        let imports = library.imports();
        assert!(!imports.is_empty(), "the imports of {of} are recognized");
        let layer = |file: &str| {
            let module = file.split('/').next().unwrap_or_default().trim_end_matches(".rs");
            layers.iter().position(|modules| modules.split_whitespace().any(|it| it == module))
        };
        if !layers.is_empty() {
            let files = library.modules.values().map(|module| module.file.as_str());
            let unknown: BTreeSet<&str> = files.filter(|file| layer(file).is_none()).collect();
            assert!(unknown.is_empty(), "add these to the layers of {of}: {unknown:?}");
            let goes_up = |it: &&Import| {
                layer(&it.from) > layer(&it.to) && !(it.from.starts_with("session/") && it.to == "error.rs")
            };
            let up = shown(imports.iter().filter(goes_up));
            if !up.is_empty() {
                faults += &format!("imports that go up in {of}:\n{up}\n");
            }
        }
        let reached = reached(&imports);
        let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
        let in_circle = imports.iter().filter(|it| !it.is_passed_on && reaches(&it.to, &it.from));
        let circle: BTreeSet<String> = in_circle.map(|it| format!("{} -> {}\n", it.from, it.to)).collect();
        if !circle.is_empty() {
            faults += &format!("circles of files in {of}:\n{}\n", String::from_iter(circle));
        }
    }
    assert!(faults.is_empty(), "{faults}");
}
