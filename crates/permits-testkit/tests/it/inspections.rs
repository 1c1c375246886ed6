//! The types of an inspection in the packages for Python, Node and Go are those of
//! `docs/reference/status.schema.json`, with its descriptions.
//!
//! `PERMITS_ACCEPT=1 cargo test -p permits-testkit --test it -- inspections` writes them.
//!
//! Names and units are those of the language: `age` in seconds in Python, `ageMs` in Node, `AgeMS` in Go.

use serde_json::Value;

use crate::tidy::{WIDTH, repository};

/// Fields that the command adds. A client has the address of its store itself.
const OF_THE_COMMAND: &[&str] = &["store"];

/// Fields that have numbers up to a limit. They are an `int` in Go, and other whole numbers an `int64`.
const UNITS: &[&str] =
    &["limit", "floor", "held", "cooling", "may_be_kept", "waiting", "weight", "slot", "position"];

const MADE: &str =
    "Made of docs/reference/status.schema.json: the test `inspections` of permits-testkit writes it.";

#[derive(Clone, Copy)]
enum Language {
    Python,
    Node,
    Go,
}
use Language::{Go, Node, Python};

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema[key].as_str().unwrap_or_else(|| panic!("no {key}: {schema}"))
}

/// The schema of an object in a field, or in the list that a field is.
fn object_in(field: &Value) -> Option<&Value> {
    [field, &field["items"]].into_iter().find(|schema| schema["type"] == "object")
}

/// The text in lines of at most this width.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                *line += &format!(" {word}");
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn capital(word: &str) -> String {
    word.get(..1).map_or_else(String::new, |first| first.to_uppercase() + &word[1..])
}

fn lower(text: &str) -> String {
    text.get(..1).map_or_else(String::new, |first| first.to_lowercase() + &text[1..])
}

impl Language {
    fn name(self, name: &str) -> String {
        match self {
            Python => name.strip_suffix("_ms").unwrap_or(name).to_owned(),
            Node => {
                let mut words = name.split('_');
                let first = words.next().unwrap_or_default().to_owned();
                words.fold(first, |name, word| name + &capital(word))
            }
            Go => name.split('_').map(capital).collect::<String>().replace("Ms", "MS").replace("Us", "US"),
        }
    }

    /// A description as the documentation of what follows it or, in Python, is before it. What is in
    /// backticks is an option or a command.
    fn documented(self, description: &str, indent: &str) -> String {
        let parts = description.split('`').enumerate().map(|(at, part)| match (at % 2, self) {
            (0, Python) => part.replace("in milliseconds", "in seconds").replace("null", "`None`"),
            (0, Node) => part.replace("null", "`null`"),
            (0, Go) => part.replace("null", "nil"),
            (_, Go) => self.name(part),
            _ => format!("`{}`", self.name(part)),
        });
        let text = parts.collect::<String>() + ".";
        let around = if matches!(self, Go) { "// " } else { "/**  */" };
        let lines = wrapped(&text, WIDTH - indent.len() - around.len());
        match (self, &lines[..]) {
            (Python, _) => format!("{indent}\"\"\"{}\"\"\"\n", lines.join(&format!("\n{indent}"))),
            (Go, _) => format!("{indent}// {}\n", lines.join(&format!("\n{indent}// "))),
            (Node, [line]) => format!("{indent}/** {line} */\n"),
            (Node, _) => {
                format!("{indent}/**\n{indent} * {}\n{indent} */\n", lines.join(&format!("\n{indent} * ")))
            }
        }
    }

    /// The type of the field of this name.
    fn kind(self, name: &str, schema: &Value) -> String {
        if let Some(words) = schema["enum"].as_array() {
            let words = words.iter().map(Value::to_string);
            return match self {
                Python => format!("Literal[{}]", words.collect::<Vec<_>>().join(", ")),
                Node => words.map(|word| word.replace('"', "'")).collect::<Vec<_>>().join(" | "),
                Go => "string".to_owned(),
            };
        }
        let (kind, is_optional) = match &schema["type"] {
            Value::Array(kinds) => (&kinds[0], true),
            kind => (kind, false),
        };
        let kind = match (self, kind.as_str().unwrap_or_default()) {
            (_, "object") => text(schema, "title").to_owned(),
            (Python, "array") => format!("Tuple[{}, ...]", self.kind("", &schema["items"])),
            (Node, "array") => format!("{}[]", self.kind("", &schema["items"])),
            (Go, "array") => format!("[]{}", self.kind("", &schema["items"])),
            (Go, "string") => "string".to_owned(),
            (Go, "boolean") => "bool".to_owned(),
            (Go, "integer") if UNITS.contains(&name) => "int".to_owned(),
            (Go, "integer") => "int64".to_owned(),
            (Python, "string") => "str".to_owned(),
            (Python, "boolean") => "bool".to_owned(),
            (Python, "integer") if name.ends_with("_ms") => "float".to_owned(),
            (Python, "integer") => "int".to_owned(),
            (Node, "integer") => "number".to_owned(),
            (Node, kind @ ("string" | "boolean")) => kind.to_owned(),
            (_, kind) => panic!("{name}: {kind:?} is no type of an inspection"),
        };
        match (self, is_optional) {
            (_, false) => kind,
            (Python, true) => format!("Optional[{kind}]"),
            (Node, true) => format!("{kind} | null"),
            (Go, true) => format!("*{kind}"),
        }
    }

    /// The types of the objects in an object, and its own, with the fields in the order of `required`.
    fn types(self, title: &str, description: &str, schema: &Value) -> String {
        let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let (mut inner, mut fields) = (String::new(), String::new());
        for name in names.filter(|name| !OF_THE_COMMAND.contains(name)) {
            let field = &schema["properties"][name];
            if let Some(object) = object_in(field) {
                inner += &self.types(text(object, "title"), text(object, "description"), object);
            }
            let (kind, key, name) = (self.kind(name, field), name, self.name(name));
            let documentation = |indent| self.documented(text(field, "description"), indent);
            fields += &match self {
                Python => format!("    {name}: {kind}\n{}", documentation("    ")),
                Node => format!("{}  {name}: {kind};\n", documentation("  ")),
                Go => format!("{}\t{name} {kind} `json:\"{key}\"`\n", documentation("\t")),
            };
        }
        let own = match self {
            Python => {
                let documentation = self.documented(description, "    ");
                format!("\n\n@dataclass(frozen=True)\nclass {title}:\n{documentation}\n{fields}")
            }
            Node => {
                let documentation = self.documented(description, "");
                format!("\n{documentation}export interface {title} {{\n{fields}}}\n")
            }
            Go => {
                let documentation = self.documented(&format!("{title} is {}", lower(description)), "");
                format!("\n{documentation}type {title} struct {{\n{fields}}}\n")
            }
        };
        inner + &own
    }

    fn file(self, schema: &Value) -> (&'static str, String) {
        let types = self.types("Inspection", "The state of a semaphore", schema);
        match self {
            Python => {
                let imports =
                    "from dataclasses import dataclass\nfrom typing import Literal, Optional, Tuple";
                let text = format!("\"\"\"{MADE}\"\"\"\n\n{imports}\n{types}");
                ("bindings/python/python/permits/_inspection.py", text)
            }
            Node => ("bindings/node/lib/inspection.ts", format!("// {MADE}\n{types}")),
            Go => {
                let made = "Code generated from docs/reference/status.schema.json by the test inspections. DO NOT EDIT.";
                ("bindings/go/inspection.go", format!("// {made}\n\npackage permits\n{types}"))
            }
        }
    }
}

#[test]
fn the_packages_have_the_types_of_the_schema() {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap_or_default();
    let schema = serde_json::from_str(&read("docs/reference/status.schema.json")).expect("it is JSON");
    for (path, text) in [Python, Node, Go].map(|language| language.file(&schema)) {
        if std::env::var_os("PERMITS_ACCEPT").is_some() {
            std::fs::write(repository().join(path), &text).expect("it can be written");
        }
        assert!(read(path) == text, "{path} is not that of the schema: PERMITS_ACCEPT=1 writes it");
    }
}
