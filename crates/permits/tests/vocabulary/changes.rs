//! The meaning of a change by an operator is written once: as the first paragraph of its method's
//! documentation in Rust, and its fields in the documentation of the fields of `Change`. The methods of
//! Python and Node, the types of Go, the schema of the lines, the page about HTTP and the help of the
//! command's flags are made of these texts.

use std::fmt::Write as _;

use permits::Change;
use quote::ToTokens as _;
use syn::{Field, Fields, Item};

use super::errors::without_links;
use super::{
    camel_case, capital, documented, none, paragraph, put, read, replace, replace_comment, whole_go, wrapped,
    wrapped_at,
};

/// The flags that are a field of a change: the struct of the verb, its field, the change and the field.
const FLAGS: [(&str, &str, &str, &str); 8] = [
    ("SetAlert", "wait", "set_alert", "wait_ms"),
    ("SetAlert", "waiting", "set_alert", "waiting"),
    ("SetLane", "limit", "set_lane", "limit"),
    ("SetLane", "floor", "set_lane", "floor"),
    ("Pause", "time", "pause", "time_ms"),
    ("Pause", "reason", "pause", "reason"),
    ("Close", "reason", "close_line", "reason"),
    ("Revoke", "reason", "revoke", "reason"),
];

/// A change, with its fields and what they are.
type Described = (String, Vec<(String, String)>);

fn snake_case(name: &str) -> String {
    name.chars().fold(String::new(), |mut snake, letter| {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
        snake
    })
}

/// The name of a field in JSON, and its sentence.
fn field(field: &Field) -> (String, String) {
    let attributes: String =
        field.attrs.iter().map(|attribute| attribute.to_token_stream().to_string()).collect();
    let renamed = attributes.split_once("rename = \"").and_then(|(_, name)| name.split('"').next());
    let name = field.ident.as_ref().expect("it has a name").to_string();
    (renamed.map_or(name, str::to_owned), paragraph(&field.attrs))
}

/// The fields of the struct of this name, or of each variant of the enum.
pub(super) fn fields(file: &str, of: &str) -> Vec<Described> {
    for item in syn::parse_file(&read(file)).expect("it compiles").items {
        match item {
            Item::Struct(item) if item.ident == of => {
                return vec![(of.to_owned(), item.fields.iter().map(field).collect())];
            }
            Item::Enum(item) if item.ident == of => {
                let described = item.variants.iter().map(|variant| {
                    let fields = match &variant.fields {
                        Fields::Unnamed(_) => {
                            fields("crates/permits-core/src/protocol/change.rs", "Alert").remove(0).1
                        }
                        fields => fields.iter().map(field).collect(),
                    };
                    (snake_case(&variant.ident.to_string()), fields)
                });
                return described.collect();
            }
            _ => (),
        }
    }
    panic!("{file} has no {of}")
}

/// The names in a text as another language has them.
pub(super) fn renamed(text: &str, name: impl Fn(&str) -> String) -> String {
    let part = |(index, part): (usize, &str)| match index % 2 {
        0 => part.to_owned(),
        _ => format!("`{}`", name(part.rsplit("::").next().unwrap_or(part))),
    };
    text.split('`').enumerate().map(part).collect()
}

/// Replaces the first paragraph of the documentation of a method in Python.
fn python(method: &str, text: &str) -> Option<String> {
    let file = "bindings/python/python/permits/_semaphore.py";
    let (code, method) = (read(file), format!("    def {method}("));
    let method = code.find(&method).unwrap_or_else(|| panic!("{file} has no {method:?}"));
    let begin = method + code[method..].find("        \"\"\"").expect("it is documented");
    let (from, text) = (begin + 11, renamed(text, str::to_owned));
    let end =
        from + ["\"\"\"", "\n\n"].iter().filter_map(|end| code[from..].find(end)).min().expect("it ends");
    let made = wrapped("        \"\"\"", &format!("{text}\"\"\""), "        ");
    put(file, &code, begin..end, made.trim_end_matches('"'))
}

/// Replaces the documentation of a method in Node.
fn node(method: &str, text: &str) -> Option<String> {
    let file = "bindings/node/lib/semaphore.ts";
    let (code, method) = (read(file), camel_case(method));
    let at =
        [format!("\n  async {method}("), format!("\n  {method}(")].iter().find_map(|item| code.find(item));
    let end = at.unwrap_or_else(|| panic!("{file} has no {method}"));
    let begin = code[..end].rfind("  /**").expect("it is documented");
    let own = code[begin..end].split_once("\n   *\n");
    let text = renamed(text, camel_case);
    let made = match own {
        None if text.len() < 110 => format!("  /** {text} */"),
        None => format!("  /**\n{}\n   */", wrapped("   * ", &text, "   * ")),
        Some((_, own)) => format!("  /**\n{}\n   *\n{own}", wrapped("   * ", &text, "   * ")),
    };
    put(file, &code, begin..end, &made)
}

/// The sentences of a method that are about a change, and not about what the method returns.
fn of_the_change(text: &str) -> String {
    let sentences = text.split_inclusive(". ").filter(|sentence| !sentence.starts_with("Returns "));
    sentences.collect::<String>().trim_end().to_owned()
}

/// The file of Go's changes: a type for each, whose fields have the zero value if they are not set.
fn go(changes: &[Described], method: impl Fn(&str) -> String) -> Option<String> {
    let is_change = |name: &str| changes.iter().any(|(change, _)| change == name);
    let documented = |indent: &str, before: &str, text: &str| {
        let part = |(index, part): (usize, &str)| match (index % 2, part.rsplit("::").next()) {
            (1, Some(name)) if is_change(name) => format!("[{}]", capital(&camel_case(name))),
            _ => part.to_owned(),
        };
        let text = text.split('`').enumerate().map(part).collect::<String>();
        let comment = format!("{indent}// ");
        wrapped_at(110, &comment, &format!("{before}{text}"), &comment) + "\n"
    };
    let mut made = "import \"time\"\n".to_owned();
    for (change, fields) in changes {
        let kind = capital(&camel_case(change));
        let text = of_the_change(&method(change));
        let text = text[..1].to_lowercase() + &text[1..];
        let open = if fields.is_empty() { "struct{" } else { "struct {\n" };
        made += &format!("\n{}type {kind} {open}", documented("", &format!("{kind} "), &text));
        let mut values = format!("\"change\": \"{change}\"");
        for (name, text) in fields {
            let field = capital(&camel_case(name.trim_end_matches("_ms")));
            let value = format!("c.{field}");
            let (kind, value) = match &**name {
                "limit" if change == "set_lane" => ("int", format!("orNull({value})")),
                "limit" | "by" => ("int", value),
                "if_version" => ("*int64", value),
                "waiting" | "floor" => ("int", format!("orNull({value})")),
                "token" => ("int64", format!("orNull({value})")),
                "time_ms" | "wait_ms" => ("time.Duration", format!("orNull(milliseconds({value}))")),
                "holder" | "reason" | "lane" => ("string", value),
                "unreadable" => ("bool", value),
                _ => panic!("{name} has no type in Go"),
            };
            made += &format!("{}\t{field} {kind}\n", documented("\t", "", text));
            values += &format!(", \"{name}\": {value}");
        }
        let receiver = if fields.is_empty() { kind } else { format!("c {kind}") };
        made += &format!("}}\n\nfunc ({receiver}) fields() fields {{\n\treturn fields{{{values}}}\n}}\n");
    }
    whole_go("changes", "permits", &made)
}

#[test]
fn every_language_and_the_reference_have_the_changes_of_the_library() {
    let changes = fields("crates/permits/src/semaphore/change/mod.rs", "Change");
    let methods = documented("crates/permits/src/semaphore/operator.rs", "Semaphore");
    let method = |name: &str| {
        let found = methods.iter().find(|(method, text)| method == name && !text.is_empty());
        without_links(&found.unwrap_or_else(|| panic!("Semaphore::{name} has no documentation")).1)
    };

    let of_methods = changes.iter().map(|(name, _)| &**name).chain(["revoke_cooling", "available"]);
    let of_methods = of_methods.flat_map(|name| [python(name, &method(name)), node(name, &method(name))]);

    let mut page = "| `change` | what it does | fields |\n|---|---|---|\n".to_owned();
    for (name, fields) in &changes {
        let fields: Vec<String> = fields.iter().map(|(name, text)| format!("`{name}`: {text}")).collect();
        // The reply of HTTP is the state.
        let text = renamed(&of_the_change(&method(name)), str::to_owned);
        let _ = writeln!(page, "| `{name}` | {text} | {} |", fields.join(" "));
    }
    let page =
        replace("docs/reference/serve.md", "<!-- made of the changes -->\n\n", "\n<!-- end -->", &page);

    let schema = "docs/reference/hold-many.schema.json";
    let names: Vec<String> = changes.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let enumerated = replace(schema, "\"A change by an operator\", \"enum\": [", "]", &names.join(", "));
    let known: Vec<String> = Change::FIELDS[1..].iter().map(|name| format!("\"{name}\"")).collect();
    let begin = "\"propertyNames\": { \"enum\": [\"id\", \"change\", \"name\", ";
    let allowed = replace(schema, begin, "]", &known.join(", "));
    // A request has the others, too.
    let described =
        Change::FIELDS[1..].iter().filter(|name| !["limit", "holder", "lane"].contains(name)).map(|name| {
            let has = |(change, fields): &Described| {
                Some((change.clone(), fields.iter().find(|(field, _)| field == name)?.1.clone()))
            };
            let of: Vec<(String, String)> = changes.iter().filter_map(has).collect();
            let (_, text) = of.first().unwrap_or_else(|| panic!("{name} is a field of no change"));
            let of: Vec<&str> = of.iter().map(|(change, _)| &**change).collect();
            let begin = format!("    \"{name}\": {{ \"description\": \"");
            replace(schema, &begin, "\", \"type\"", &format!("Of {}: {text}", of.join(", ")))
        });

    let flags = FLAGS.iter().map(|(verb, flag, change, field)| {
        let (_, fields) = changes.iter().find(|(name, _)| name == change).expect("it is a change");
        let (_, text) = fields.iter().find(|(name, _)| name == field).expect("it is a field");
        let text = text.replace(" ms", "ms").replace(" days", "d");
        let verb = format!("pub(crate) struct {verb} {{");
        let item = format!("    pub(crate) {flag}: ");
        replace_comment("crates/permits-cli/src/args/mod.rs", &[&verb, &item], "    /// ", &text, "")
    });
    let go = go(&changes, method);
    none(of_methods.chain([go, page, enumerated, allowed]).chain(described).chain(flags).flatten());
}
