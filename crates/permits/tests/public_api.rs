//! `public-api.txt` has the public API: a change of it is seen in review, and is in the changelog.
//!
//! The signatures are read from the sources, including those of the crates below: every item that `lib.rs`
//! exports or that is in a public module, unless it is hidden from the documentation. `PERMITS_ACCEPT=1 cargo
//! test -p permits --test public_api` writes the file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, Type, UseTree, Visibility};

/// A source file, by its path below `src`.
struct Source {
    path: String,
    items: Vec<Item>,
}

fn sources(directory: &Path, root: &Path, all: &mut Vec<Source>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(directory)
        .expect("it is there")
        .map(|entry| entry.expect("it is read").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, root, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("it is text");
            let items = syn::parse_file(&text).expect("it compiles").items;
            let path = path.strip_prefix(root).expect("it is below").to_string_lossy().into_owned();
            all.push(Source { path, items });
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns true if the item is hidden, or is only there for tests.
fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string();
        text.contains("hidden") || text.contains("cfg (test)") || text.contains("\"testing\"")
    })
}

fn text(tokens: impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    let close = [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" :", ":"),
        ("& ", "&"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" ;", ";"),
        ("' ", "'"),
        ("impl<", "impl <"),
        (",)", ")"),
    ];
    for (from, to) in close {
        text = text.replace(from, to);
    }
    text.replace("->", " ->").replace("  ", " ")
}

fn derives(attributes: &[Attribute]) -> String {
    let list = |attribute: &&Attribute| attribute.path().is_ident("derive");
    // Some are not so for the test kit.
    let non_exhaustive = attributes.iter().any(|attribute| text(&attribute.meta).contains("non_exhaustive"));
    let lists = attributes.iter().filter(list).map(|attribute| text(&attribute.meta));
    let marks = non_exhaustive.then(|| "non_exhaustive".to_owned());
    lists.chain(marks).map(|mark| format!("#[{mark}] ")).collect()
}

fn fields(fields: &Fields) -> Vec<String> {
    let of_struct = |field: &syn::Field| {
        is_public(&field.vis).then(|| {
            let name = field.ident.as_ref().map_or_else(String::new, |name| format!("{name}: "));
            format!("    pub {name}{}", text(&field.ty))
        })
    };
    fields.iter().filter_map(of_struct).collect()
}

/// The lines of an item's own definition.
fn definition(item: &Item) -> Option<(String, Vec<String>)> {
    match item {
        Item::Struct(item) if is_public(&item.vis) => {
            let mut lines =
                vec![format!("{}pub struct {}{}", derives(&item.attrs), item.ident, text(&item.generics))];
            lines.extend(fields(&item.fields));
            Some((item.ident.to_string(), lines))
        }
        Item::Enum(item) if is_public(&item.vis) => {
            let mut lines = vec![format!("{}pub enum {}", derives(&item.attrs), item.ident)];
            lines.extend(item.variants.iter().map(|variant| {
                let fields: Vec<String> = variant
                    .fields
                    .iter()
                    .map(|field| match &field.ident {
                        Some(name) => format!("{name}: {}", text(&field.ty)),
                        None => text(&field.ty),
                    })
                    .collect();
                if fields.is_empty() {
                    format!("    {}", variant.ident)
                } else {
                    format!("    {}({})", variant.ident, fields.join(", "))
                }
            }));
            Some((item.ident.to_string(), lines))
        }
        Item::Fn(item) if is_public(&item.vis) => {
            Some((item.sig.ident.to_string(), vec![format!("pub {}", text(&item.sig))]))
        }
        Item::Const(item) if is_public(&item.vis) => {
            Some((item.ident.to_string(), vec![format!("pub const {}: {}", item.ident, text(&item.ty))]))
        }
        _ => None,
    }
}

fn self_name(item: &ItemImpl) -> Option<String> {
    match &*item.self_ty {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

/// The lines of an implementation.
fn implementation(item: &ItemImpl) -> Vec<String> {
    if let Some((_, of, _)) = &item.trait_ {
        return vec![format!("    impl {}", text(of))];
    }
    item.items
        .iter()
        .filter_map(|item| match item {
            ImplItem::Fn(function) if is_public(&function.vis) && !is_hidden(&function.attrs) => {
                Some(format!("    pub {}", text(&function.sig)))
            }
            ImplItem::Const(constant) if is_public(&constant.vis) && !is_hidden(&constant.attrs) => {
                Some(format!("    pub const {}: {}", constant.ident, text(&constant.ty)))
            }
            _ => None,
        })
        .collect()
}

/// The names that a `pub use` exports, with the path that each is from.
fn exports(tree: &UseTree, path: &mut Vec<String>, all: &mut Vec<(Vec<String>, String)>) {
    match tree {
        UseTree::Path(next) => {
            path.push(next.ident.to_string());
            exports(&next.tree, path, all);
            path.pop();
        }
        UseTree::Name(name) => all.push((path.clone(), name.ident.to_string())),
        UseTree::Rename(rename) => all.push((path.clone(), rename.rename.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| exports(tree, path, all)),
        UseTree::Glob(_) => panic!("a glob export hides what it exports"),
    }
}

fn public_api() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    sources(&root, &root, &mut all);
    let of_library: BTreeSet<String> =
        all.iter().flat_map(|source| &source.items).filter_map(definition).map(|(name, _)| name).collect();
    let mut inside = Vec::new();
    for below in ["permits-redis", "permits-store", "permits-core"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(below).join("src");
        sources(&root, &root, &mut inside);
    }
    // The modules of these crates are not modules of the library.
    inside.iter_mut().for_each(|source| source.path.insert_str(0, "below/"));
    // A message of the core is no type of the library that has its name.
    let is_other = |item: &Item| match item {
        Item::Impl(item) => self_name(item).is_some_and(|name| of_library.contains(&name)),
        item => definition(item).is_some_and(|(name, _)| of_library.contains(&name)),
    };
    for source in &mut inside {
        source.items.retain(|item| !is_other(item));
    }
    all.extend(inside);
    let library = all.iter().find(|source| source.path == "lib.rs").expect("it has a root");
    let mut exported = BTreeSet::new();
    let mut modules = BTreeSet::new();
    for item in &library.items {
        match item {
            Item::Use(item) if is_public(&item.vis) => {
                let mut names = Vec::new();
                exports(&item.tree, &mut Vec::new(), &mut names);
                exported.extend(names.into_iter().map(|(path, name)| (path.join("::"), name)));
            }
            Item::Mod(item) if is_public(&item.vis) && !is_hidden(&item.attrs) => {
                modules.insert(item.ident.to_string());
            }
            _ => {}
        }
    }
    // The name of a type stands for the type that its own file defines, or else for the type that the root
    // exports.
    let mut lines: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let exported_names: BTreeSet<&String> = exported.iter().map(|(_, name)| name).collect();
    for source in &all {
        let module = modules.iter().find(|module| {
            source.path == format!("{module}.rs") || source.path == format!("{module}/mod.rs")
        });
        let own: BTreeSet<String> =
            source.items.iter().filter_map(definition).map(|(name, _)| name).collect();
        let place = |name: &String| match module {
            Some(module) if own.contains(name) => Some(format!("{module}::")),
            _ if exported_names.contains(name) => Some(String::new()),
            _ => None,
        };
        for item in &source.items {
            if let Some((name, definition)) = definition(item)
                && let Some(place) = place(&name)
            {
                let exported_from_here = module.is_some() || exported_names.contains(&name);
                if exported_from_here {
                    let entry = lines.entry((place, name)).or_default();
                    entry.splice(0..0, definition);
                }
            }
            if let Item::Impl(item) = item
                && !is_hidden(&item.attrs)
                && let Some(name) = self_name(item)
                && let Some(place) = place(&name)
            {
                lines.entry((place, name)).or_default().extend(implementation(item));
            }
            if let (Item::Use(item), Some(module)) = (item, module)
                && is_public(&item.vis)
            {
                let mut names = Vec::new();
                exports(&item.tree, &mut Vec::new(), &mut names);
                for (path, name) in names {
                    let line = format!("pub use {}::{name}", path.join("::"));
                    lines.entry((format!("{module}::"), name)).or_default().push(line);
                }
            }
        }
    }
    for (path, name) in &exported {
        lines.entry((String::new(), name.clone())).or_insert_with(|| vec![format!("pub use {path}::{name}")]);
    }
    let mut api = String::new();
    for ((place, name), lines) in lines {
        api += &format!("## permits::{place}{name}\n");
        for line in lines {
            api += &format!("{line}\n");
        }
        api += "\n";
    }
    api
}

#[test]
fn the_public_api_is_the_stored_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("public-api.txt");
    let now = public_api();
    if std::env::var_os("PERMITS_ACCEPT").is_some() {
        std::fs::write(&path, &now).expect("it can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let (stored_lines, now_lines): (BTreeSet<&str>, BTreeSet<&str>) =
        (stored.lines().collect(), now.lines().collect());
    let gone = stored_lines.difference(&now_lines).map(|line| format!("- {line}"));
    let new = now_lines.difference(&stored_lines).map(|line| format!("+ {line}"));
    let changes: Vec<String> = gone.chain(new).collect();
    assert!(
        stored == now,
        "the public API has changed; if that is meant, PERMITS_ACCEPT=1 writes public-api.txt:\n{}",
        changes.join("\n")
    );
}
