//! The text of a file as tokens, and what it declares and imports.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// A file of a library.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path below the root, with `/`.
    pub(crate) file: String,
    /// The modules of the file: first its own, then those in its text. Each with the path from the crate's
    /// root.
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

impl Source {
    /// Parses the text of a file.
    pub(crate) fn parse(file: &str, text: &str) -> Self {
        let mut path: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if path.last().is_some_and(|last| last == "mod" || last == "lib") {
            path.pop();
        }
        let mut parser =
            Parser { tokens: tokens(text), at: 0, modules: Vec::new(), test_modules: Vec::new() };
        parser.module(path);
        parser.modules.reverse();
        Self { file: file.to_owned(), modules: parser.modules, test_modules: parser.test_modules }
    }
}

/// The tokens of a text: names, `::`, and single characters. Without comments, literals and lifetimes.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let is_name = |char: char| char.is_alphanumeric() || char == '_';
    let (mut tokens, mut i) = (Vec::new(), 0);
    while i < chars.len() {
        match at(i) {
            '/' if at(i + 1) == '/' => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 || i >= chars.len() {
                        break;
                    }
                }
            }
            '"' => i = after_string(&chars, i),
            '\'' if at(i + 1) == '\\' || at(i + 2) == '\'' => {
                i += 2 + usize::from(at(i + 1) == '\\');
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            }
            // A lifetime.
            '\'' => {
                i += 1;
                while is_name(at(i)) {
                    i += 1;
                }
            }
            char if is_name(char) => {
                let start = i;
                while is_name(at(i)) {
                    i += 1;
                }
                let name: String = chars[start..i].iter().collect();
                let hashes = chars[i..].iter().take_while(|char| **char == '#').count();
                if matches!(name.as_str(), "r" | "br") && at(i + hashes) == '"' {
                    i += hashes + 1;
                    while i < chars.len()
                        && !(at(i) == '"' && chars[i + 1..].iter().take(hashes).all(|c| *c == '#'))
                    {
                        i += 1;
                    }
                    i += 1 + hashes;
                } else {
                    tokens.push(name);
                }
            }
            ':' if at(i + 1) == ':' => {
                tokens.push("::".to_owned());
                i += 2;
            }
            char => {
                if !char.is_whitespace() {
                    tokens.push(char.to_string());
                }
                i += 1;
            }
        }
    }
    tokens
}

fn after_string(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != '"' {
        i += 1 + usize::from(chars[i] == '\\');
    }
    i + 1
}

struct Parser {
    tokens: Vec<String>,
    at: usize,
    /// Modules that are complete, the outermost last.
    modules: Vec<Module>,
    test_modules: Vec<Vec<String>>,
}

impl Parser {
    fn peek(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned().unwrap_or_default()
    }

    /// Reads a module up to its closing brace, or to the end of the file.
    fn module(&mut self, path: Vec<String>) {
        let mut module = Module { path, ..Module::default() };
        let mut depth = 0;
        let (mut in_test, mut public) = (false, false);
        while self.at < self.tokens.len() {
            match self.peek(0) {
                "#" => in_test |= self.attribute(),
                "mod" if self.peek(2) == ";" => {
                    let mut path = module.path.clone();
                    path.push(self.peek(1).to_owned());
                    if std::mem::take(&mut in_test) {
                        self.test_modules.push(path);
                    }
                    self.at += 3;
                }
                "pub" => {
                    public = true;
                    self.at += 1;
                    if self.peek(0) == "(" {
                        self.skip_brackets();
                    }
                }
                _ if std::mem::take(&mut in_test) => self.skip_item(),
                "mod" if self.peek(2) == "{" => {
                    let mut path = module.path.clone();
                    path.push(self.peek(1).to_owned());
                    self.at += 3;
                    self.module(path);
                }
                "use" => {
                    self.at += 1;
                    self.use_tree(Vec::new(), std::mem::take(&mut public), &mut module.uses);
                    self.at += 1;
                }
                "}" if depth == 0 => {
                    self.at += 1;
                    break;
                }
                _ => {
                    public = false;
                    depth = self.code(&mut module, depth);
                }
            }
        }
        self.modules.push(module);
    }

    /// Reads a token or a path of code. Returns the depth of braces after it.
    fn code(&mut self, module: &mut Module, depth: usize) -> usize {
        let before = self.at.checked_sub(1).map_or("", |before| &self.tokens[before]).to_owned();
        let token = self.next();
        let defines = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];
        match token.as_str() {
            "{" => return depth + 1,
            "}" => return depth - 1,
            "crate" | "self" | "super" if before != "::" && self.peek(0) == "::" => {
                let mut path = vec![token];
                while self.peek(0) == "::" && is_name(self.peek(1)) {
                    path.push(self.peek(1).to_owned());
                    self.at += 2;
                }
                module.paths.push(path);
            }
            "macro_rules" if depth == 0 => {
                self.at += 1;
                let name = self.next();
                module.items.insert(name);
            }
            _ if depth == 0 && defines.contains(&before.as_str()) && is_name(&token) => {
                module.items.insert(token);
            }
            _ if is_name(&token) => {
                module.names.insert(token);
            }
            _ => {}
        }
        depth
    }

    /// Reads an attribute. Returns whether it is a condition on tests.
    fn attribute(&mut self) -> bool {
        self.at += 1 + usize::from(self.peek(1) == "!");
        let start = self.at;
        self.skip_brackets();
        let tokens = &self.tokens[start..self.at];
        tokens.get(1).is_some_and(|name| name == "cfg") && tokens.iter().any(|token| token == "test")
    }

    /// Skips from an opening bracket to behind its closing one.
    fn skip_brackets(&mut self) {
        let mut depth = 0;
        loop {
            match self.next().as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                "" => return,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Skips an item: to behind its semicolon, comma or block.
    fn skip_item(&mut self) {
        loop {
            match self.peek(0) {
                "{" => return self.skip_brackets(),
                "(" | "[" => self.skip_brackets(),
                // Of the block around it.
                "}" | "" => return,
                ";" | "," => {
                    self.at += 1;
                    return;
                }
                _ => self.at += 1,
            }
        }
    }

    /// Reads what follows `use` or a `::` in it: a name, a glob, or a list.
    fn use_tree(&mut self, mut path: Vec<String>, public: bool, uses: &mut Vec<Use>) {
        loop {
            match self.peek(0) {
                "{" => {
                    self.at += 1;
                    while !matches!(self.peek(0), "}" | "") {
                        self.use_tree(path.clone(), public, uses);
                        if self.peek(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "*" => {
                    self.at += 1;
                    uses.push(Use { path, name: "*".into(), public });
                    return;
                }
                "::" => {
                    if path.is_empty() {
                        // `::redis`: another crate.
                        path.push(String::new());
                    }
                    self.at += 1;
                }
                _ => {
                    let name = self.next();
                    // `a::{self}` is `a`.
                    if name != "self" || path.is_empty() {
                        path.push(name);
                    }
                    if self.peek(0) == "::" {
                        continue;
                    }
                    let mut name = path.last().cloned().unwrap_or_default();
                    if self.peek(0) == "as" {
                        self.at += 1;
                        name = self.next();
                    }
                    uses.push(Use { path, name, public });
                    return;
                }
            }
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|char: char| char.is_alphabetic() || char == '_')
}
