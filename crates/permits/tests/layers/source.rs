//! The tokens of a file: what it declares and imports.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::mem;
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::{ItemUse, UseTree};

/// A file of a crate.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path below the root, with `/`.
    pub(crate) file: String,
    /// The modules of the file: those in its text, and its own. Each with the path from the crate's root.
    pub(crate) modules: Vec<Module>,
    /// The modules in other files that this file declares under `#[cfg(test)]`.
    pub(crate) test_modules: Vec<Vec<String>>,
}

/// A module.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) path: Vec<String>,
    /// The names of the items that it defines.
    pub(crate) items: BTreeSet<String>,
    pub(crate) uses: Vec<Use>,
    /// The paths in its code that begin with `crate`, `self` or `super`.
    pub(crate) paths: Vec<Vec<String>>,
    /// The names in its code.
    pub(crate) names: BTreeSet<String>,
}

/// A name that a `use` declares.
#[derive(Debug, Clone)]
pub(crate) struct Use {
    pub(crate) path: Vec<String>,
    /// The name; `*` for a glob.
    pub(crate) name: String,
    /// True if other modules can use the name.
    pub(crate) public: bool,
}

/// Reads all files below `root`.
pub(crate) fn read_tree(root: &Path) -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let below = path.strip_prefix(root).expect("it is below the root");
                let file: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
                sources.push(Source::parse(&file.join("/"), &fs::read_to_string(&path)?));
            }
        }
    }
    sources.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(sources)
}

/// The keywords before the name of an item.
const DEFINES: &[&str] = &["fn", "struct", "enum", "union", "trait", "type", "const", "static"];

impl Source {
    /// Parses the text of a file.
    pub(crate) fn parse(file: &str, text: &str) -> Self {
        let mut path: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if path.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
            path.pop();
        }
        let mut source = Self { file: file.to_owned(), modules: Vec::new(), test_modules: Vec::new() };
        source.read_module(path, text.parse().expect("the file consists of tokens"));
        source
    }

    fn read_module(&mut self, path: Vec<String>, tokens: TokenStream) {
        let mut module = Module { path, ..Module::default() };
        self.read(&mut module, tokens, true);
        self.modules.push(module);
    }

    /// Reads tokens of a module: its items if `top`, else the inside of one.
    fn read(&mut self, module: &mut Module, tokens: TokenStream, top: bool) {
        let tokens = Tokens(tokens.into_iter().collect());
        let (mut at, mut in_test) = (0, false);
        while at < tokens.0.len() {
            let word = tokens.word(at);
            match word.as_str() {
                "#" => {
                    at += 1 + usize::from(tokens.word(at + 1) == "!");
                    in_test |= tokens.group(at, Delimiter::Bracket).is_some_and(is_test);
                    at += 1;
                }
                "pub" => at += 1 + usize::from(tokens.group(at + 1, Delimiter::Parenthesis).is_some()),
                "mod" if tokens.word(at + 2) == ";" => {
                    if mem::take(&mut in_test) {
                        self.test_modules.push(module.child(tokens.word(at + 1)));
                    }
                    at += 3;
                }
                _ if mem::take(&mut in_test) => at = tokens.after_item(at),
                "use" => at = tokens.read_use(at, &mut module.uses),
                "crate" | "self" | "super"
                    if tokens.is_separator(at + 1) && !tokens.is_separator(at - at.min(2)) =>
                {
                    let mut path = vec![word];
                    while tokens.is_separator(at + 1) && tokens.is_name(at + 3) {
                        path.push(tokens.word(at + 3));
                        at += 3;
                    }
                    module.paths.push(path);
                    at += 1;
                }
                // A lifetime.
                "'" => at += 2,
                "macro_rules" if top => {
                    module.items.insert(tokens.word(at + 2));
                    at += 3;
                }
                _ => {
                    if let Some(TokenTree::Group(group)) = tokens.0.get(at) {
                        let opens =
                            at > 1 && tokens.word(at - 2) == "mod" && group.delimiter() == Delimiter::Brace;
                        if opens {
                            self.read_module(module.child(tokens.word(at - 1)), group.stream());
                        } else {
                            self.read(module, group.stream(), false);
                        }
                    } else if tokens.is_name(at) {
                        let defined = top && at > 0 && DEFINES.contains(&tokens.word(at - 1).as_str());
                        let names = if defined { &mut module.items } else { &mut module.names };
                        names.insert(word);
                    }
                    at += 1;
                }
            }
        }
    }
}

impl Module {
    fn child(&self, name: String) -> Vec<String> {
        self.path.iter().cloned().chain([name]).collect()
    }
}

/// The tokens between two brackets, or of a file. A group in brackets is one token.
struct Tokens(Vec<TokenTree>);

impl Tokens {
    /// The name or the character at `at`; empty for a literal, a group and after the end.
    fn word(&self, at: usize) -> String {
        match self.0.get(at) {
            Some(TokenTree::Ident(name)) => name.to_string(),
            Some(TokenTree::Punct(punctuation)) => punctuation.as_char().to_string(),
            _ => String::new(),
        }
    }

    fn is_name(&self, at: usize) -> bool {
        matches!(self.0.get(at), Some(TokenTree::Ident(_)))
    }

    /// Returns true if `::` is at `at`.
    fn is_separator(&self, at: usize) -> bool {
        self.word(at) == ":" && self.word(at + 1) == ":"
    }

    fn group(&self, at: usize, delimiter: Delimiter) -> Option<&Group> {
        match self.0.get(at) {
            Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
            _ => None,
        }
    }

    /// The place behind the item at `at`: behind its semicolon, comma or block.
    fn after_item(&self, at: usize) -> usize {
        let is_end = |at: &usize| {
            matches!(self.word(*at).as_str(), ";" | ",") || self.group(*at, Delimiter::Brace).is_some()
        };
        (at..self.0.len()).find(is_end).map_or(self.0.len(), |end| end + 1)
    }

    /// Reads the `use` at `at`. Returns the place behind it.
    fn read_use(&self, at: usize, uses: &mut Vec<Use>) -> usize {
        let end = (at..self.0.len()).find(|at| self.word(*at) == ";").unwrap_or(self.0.len() - 1);
        // Others are no items: `use $crate::name` in a macro, and `impl Trait + use<'a>`.
        let Ok(item) = syn::parse2::<ItemUse>(self.0[at..=end].iter().cloned().collect()) else {
            return at + 1;
        };
        let public = self.word(at - at.min(1)) == "pub"
            || at > 1 && self.word(at - 2) == "pub" && self.group(at - 1, Delimiter::Parenthesis).is_some();
        // `::redis`: another crate.
        let root = item.leading_colon.map(|_| String::new());
        declare(&item.tree, root.into_iter().collect(), public, uses);
        end + 1
    }
}

/// Adds the names that `tree` declares, below `path`.
fn declare(tree: &UseTree, mut path: Vec<String>, public: bool, uses: &mut Vec<Use>) {
    let (last, name) = match tree {
        UseTree::Path(parent) => {
            path.push(parent.ident.to_string());
            return declare(&parent.tree, path, public, uses);
        }
        UseTree::Group(group) => {
            return group.items.iter().for_each(|tree| declare(tree, path.clone(), public, uses));
        }
        UseTree::Glob(_) => return uses.push(Use { path, name: "*".to_owned(), public }),
        UseTree::Name(name) => (&name.ident, None),
        UseTree::Rename(renamed) => (&renamed.ident, Some(renamed.rename.to_string())),
    };
    // `a::{self}` is `a`.
    if last != "self" || path.is_empty() {
        path.push(last.to_string());
    }
    let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
    uses.push(Use { path, name, public });
}

/// Returns true if an attribute is a condition on tests.
fn is_test(attribute: &Group) -> bool {
    let text = attribute.stream().to_string();
    let mut words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.next() == Some("cfg") && words.any(|word| word == "test")
}
