//! The meaning of an option is written once: as the first paragraph of its documentation in Rust. The types
//! of the packages for Python and Node, the options of the Go package, the help of the command's flags, the
//! schema of the lines and the reference page are made of it.
//!
//! `PERMITS_ACCEPT=1 cargo test -p permits --all-features --test vocabulary` writes these files. A field that
//! this file does not know fails the test, and so does a field without documentation. The other modules do
//! the same for errors, changes and inspections.

mod changes;
mod errors;
mod inspection;
mod operations;
mod twins;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use permits::AcquireOptions;
use quote::ToTokens as _;
use syn::{Attribute, Expr, ImplItem, Item, Lit, Meta, Type};

/// The type of an option. Its unit differs by language for a time.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Whole,
    Time,
    Text,
    Flag,
    Recovery,
}

/// An option: its name in JSON, the flag of `permits run`, its bounds, as its sentence has them, and the page
/// that teaches it.
struct Row(&'static str, Kind, &'static str, &'static str, &'static str);

const REQUEST: &[Row] = &[
    Row("weight", Kind::Whole, "`--weight`", "at least 1, at most the limit", "[waiting](../use/waiting.md)"),
    Row("timeout_ms", Kind::Time, "`--wait`, `--no-wait`", "", "[waiting](../use/waiting.md)"),
    Row(
        "holder",
        Kind::Text,
        "`--holder`",
        "1 to 200 bytes",
        "[names](../use/slots.md#one-permit-for-each-host-holder)",
    ),
    Row(
        "label",
        Kind::Text,
        "`--label`",
        "at most 120 bytes",
        "[names](../use/slots.md#what-people-read-label)",
    ),
    Row("lane", Kind::Text, "`--lane NAME`", "1 to 120 bytes", "[lanes](../use/lanes.md)"),
    Row("share", Kind::Whole, "`--lane NAME=SHARE`", "1 to 1,000", "[lanes](../use/lanes.md)"),
    Row(
        "lane_limit",
        Kind::Whole,
        "`--lane-limit`",
        "at least 1",
        "[lanes](../use/lanes.md#a-limit-for-each-lane)",
    ),
    Row(
        "lane_floor",
        Kind::Whole,
        "`--lane-floor`",
        "at most the limits",
        "[lanes](../use/lanes.md#a-floor-for-each-lane)",
    ),
    Row(
        "lane_waiters",
        Kind::Whole,
        "`--lane-waiters`",
        "at least 1",
        "[lanes](../use/lanes.md#a-bound-for-the-line-of-a-lane)",
    ),
    Row("lease_ms", Kind::Time, "`--lease`", "100 ms to 1 day", "[losing](../use/losing.md)"),
    Row("at_least_ms", Kind::Time, "`--at-least`", "up to 1 day", "[rates](../use/rates.md)"),
    Row(
        "max_hold_ms",
        Kind::Time,
        "`--max-hold`",
        "at least 100 ms",
        "[losing](../use/losing.md#the-longest-hold)",
    ),
    Row("auto_renew", Kind::Flag, "–", "", "[losing](../use/losing.md)"),
    Row("supersede", Kind::Text, "`--supersede`", "1 to 120 bytes", "[the newest](../use/newest.md)"),
];

const CLIENT: &[Row] = &[
    Row("prefix", Kind::Text, "`--prefix`, `PERMITS_PREFIX`", "1 to 64 printable ASCII characters", ""),
    Row(
        "label",
        Kind::Text,
        "`--label`, `PERMITS_LABEL`",
        "at most 120 bytes",
        "[names](../use/slots.md#what-people-read-label)",
    ),
    Row("lease_ms", Kind::Time, "`--lease`", "100 ms to 1 day", "[losing](../use/losing.md)"),
    Row("keep_ms", Kind::Time, "–", "at most a third of the lease", "[keep](../use/keep.md)"),
    Row("recovery", Kind::Recovery, "`--recovery`", "", "[what they mean](../inside/protocol.md#recovery)"),
    Row("max_waiters", Kind::Whole, "–", "", "[waiting](../use/waiting.md)"),
    Row("replicas", Kind::Whole, "–", "", "[stores](../operate/stores.md#failover)"),
    Row("store_timeout_ms", Kind::Time, "`--store-timeout`", "", "[errors](errors.md)"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The first paragraph of a documentation.
fn paragraph(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(line) => Some(line.value().trim().to_owned()),
                other => panic!("{}", other.to_token_stream()),
            },
            _ => None,
        },
        _ => None,
    });
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The first paragraph of the documentation of each method of `of` in `file`, by the name of the method.
fn documented(file: &str, of: &str) -> Vec<(String, String)> {
    let items = syn::parse_file(&read(file)).expect("it compiles").items;
    let mut found = Vec::new();
    for item in items {
        let Item::Impl(item) = item else { continue };
        let is_of = matches!(&*item.self_ty, Type::Path(path) if path.path.is_ident(of));
        for function in item.items.iter().filter(|_| is_of && item.trait_.is_none()) {
            let ImplItem::Fn(function) = function else { continue };
            found.push((function.sig.ident.to_string(), paragraph(&function.attrs)));
        }
    }
    found
}

/// Each row with its sentences.
fn sentences(rows: &'static [Row], file: &str, of: &str) -> Vec<(&'static Row, String)> {
    let documented = documented(file, of);
    let sentence = |row: &'static Row| {
        let name = row.0.trim_end_matches("_ms");
        let found = documented.iter().find(|(method, text)| method == name && !text.is_empty());
        let (_, text) = found.unwrap_or_else(|| panic!("{of}::{name} has no documentation"));
        assert!(
            !text.contains("]("),
            "{of}::{name}: a link in its first paragraph, which other languages have: {text}"
        );
        assert!(text.contains(row.3), "{of}::{name} has no {:?}: {text}", row.3);
        (row, text.clone())
    };
    rows.iter().map(sentence).collect()
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &capital(word))
}

fn capital(word: &str) -> String {
    word.get(..1).map_or_else(String::new, |first| first.to_uppercase() + &word[1..])
}

/// The sentence without what it says of the default, and that.
fn without_default(text: &str) -> (String, Option<String>) {
    let Some(at) = text.find(" unless set") else { return (text.to_owned(), None) };
    let begin = [". ", "; ", ": ", ", "].iter().filter_map(|end| Some(text[..at].rfind(end)? + 2)).max();
    let begin = begin.unwrap_or(0);
    let end = text[at..].find(['.', ';']).map_or(text.len(), |end| at + end);
    let default = text[begin..end].replace(" unless set", "");
    let before = text[..begin].trim_end_matches([' ', ';', ':', ',', '.']);
    let rest = capital(text[end..].trim_start_matches(['.', ';', ' ']));
    let without = if rest.is_empty() { format!("{before}.") } else { format!("{before}. {rest}") };
    (without, Some(default[..1].to_lowercase() + &default[1..]))
}

/// The words of a text in lines of at most 120 columns, the first behind `first`, the others behind `indent`.
fn wrapped(first: &str, text: &str, indent: &str) -> String {
    wrapped_at(120, first, text, indent)
}

fn wrapped_at(columns: usize, first: &str, text: &str, indent: &str) -> String {
    let (mut lines, mut line) = (String::new(), first.to_owned());
    for (number, word) in text.split(' ').enumerate() {
        if number > 0 && line.chars().count() + 1 + word.chars().count() > columns {
            lines += &(std::mem::replace(&mut line, indent.to_owned()) + "\n");
        } else if number > 0 {
            line.push(' ');
        }
        line += word;
    }
    lines + &line
}

fn in_python(text: &str) -> String {
    text.replace("`true`", "`True`").replace("`false`", "`False`")
}

fn python(rows: &[(&Row, String)]) -> String {
    let field = |(Row(name, kind, ..), text): &(&Row, String)| {
        let kind = match kind {
            Kind::Whole => "int",
            Kind::Time => "Seconds",
            Kind::Text => "str",
            Kind::Flag => "bool",
            Kind::Recovery => "Recovery",
        };
        let text = in_python(text);
        let text = wrapped("    \"\"\"", &format!("{text}\"\"\""), "    ");
        format!("    {}: Optional[{kind}]\n{text}\n", name.trim_end_matches("_ms"))
    };
    rows.iter().map(field).collect()
}

fn docstring(rows: &[(&Row, String)]) -> String {
    let option = |(Row(name, ..), text): &(&Row, String)| {
        let first = format!("        - `{}`: ", name.trim_end_matches("_ms"));
        wrapped(&first, &in_python(text), "          ") + "\n"
    };
    rows.iter().map(option).collect()
}

fn typescript(rows: &[(&Row, String)]) -> String {
    let field = |(Row(name, kind, ..), text): &(&Row, String)| {
        let kind = match kind {
            Kind::Whole | Kind::Time => "number",
            Kind::Text => "string",
            Kind::Flag => "boolean",
            Kind::Recovery => "'off' | 'interval' | 'strict'",
        };
        let short = format!("  /** {text} */");
        let text = if short.chars().count() <= 120 {
            short
        } else {
            format!("  /**\n{}\n   */", wrapped("   * ", text, "   * "))
        };
        format!("{text}\n  {}?: {kind} | undefined;\n", camel_case(name.trim_end_matches("_ms")))
    };
    rows.iter().map(field).collect()
}

/// The number at the beginning of a text, a time in milliseconds.
fn number(text: &str) -> Option<u64> {
    let digits = text.chars().filter(|c| *c != ',').take_while(char::is_ascii_digit);
    let number: u64 = digits.collect::<String>().parse().ok()?;
    Some(if text.contains(" day") { number * 86_400_000 } else { number })
}

/// The options as the properties of a JSON schema.
fn schema(rows: &[(&Row, String)]) -> String {
    let property = |(Row(name, kind, _, bounds, _), text): &(&Row, String)| {
        let (least, most) = match bounds.split_once(" to ") {
            Some((least, most)) => (number(least), number(most)),
            None => (
                bounds.strip_prefix("at least ").and_then(number),
                bounds.strip_prefix("at most ").and_then(number),
            ),
        };
        let (kind, least, most, bound) = match kind {
            Kind::Whole => {
                ("integer", least.or(Some(0)), most.or(Some(u32::MAX.into())), ["minimum", "maximum"])
            }
            Kind::Time => ("number", least.or(Some(0)), most, ["minimum", "maximum"]),
            Kind::Text | Kind::Recovery => ("string", least, most, ["minLength", "maxLength"]),
            Kind::Flag => ("boolean", None, None, [""; 2]),
        };
        let bounds = bound.iter().zip([least, most]);
        let bounds: String =
            bounds.filter_map(|(name, bound)| Some(format!(", \"{name}\": {}", bound?))).collect();
        let text = text.replace('"', "\\\"");
        format!(
            "    \"{name}\": {{ \"description\": \"{text}\", \"type\": [\"{kind}\", \"null\"]{bounds} }},\n"
        )
    };
    rows.iter().map(property).collect()
}

/// Compares the options in the description of the HTTP endpoints: those that mean the same there. For the
/// others it has sentences of its own.
fn openapi(rows: &[(&Row, String)]) -> Option<String> {
    let others = ["timeout_ms", "lease_ms", "auto_renew", "max_hold_ms"];
    let same = rows.iter().filter(|(row, _)| !others.contains(&row.0)).cloned().collect::<Vec<_>>();
    let made = schema(&same).replace("    \"", "          \"");
    let begin = "is in force\", \"type\": [\"boolean\", \"null\"] },\n";
    replace("docs/reference/openapi.json", begin, "          \"timeout_ms\"", &made)
}

/// Compares the options in the schema of the lines: in a request, in one of `also`, and as names.
fn schemas(rows: &[(&Row, String)]) -> [Option<String>; 3] {
    let file = "docs/reference/hold-many.schema.json";
    let names = |each: fn(&str) -> String, between: &str| {
        rows.iter().map(|(row, _)| each(row.0)).collect::<Vec<_>>().join(between)
    };
    let of_also = |name: &str| format!("        \"{name}\": {{ \"$ref\": \"#/properties/{name}\" }}");
    [
        replace(file, "is in force\", \"type\": [\"boolean\", \"null\"] },\n", "    \"also\"", &schema(rows)),
        replace(file, "\"#/properties/require_limit\" },\n", "\n      },", &names(of_also, ",\n")),
        replace(file, "\"require_limit\", \"also\", ", "]", &names(|name| format!("\"{name}\""), ", ")),
    ]
}

fn page(rows: &[(&Row, String)]) -> String {
    let mut page = "| Python, Rust | Node | JSON | command | unless set | bounds | page |\n|---|---|---|---|---|---|---|\n".to_owned();
    for (Row(name, _, flag, bounds, link), text) in rows {
        let short = name.trim_end_matches("_ms");
        let default = without_default(text).1.unwrap_or_else(|| "none".to_owned());
        page += &format!(
            "| `{short}` | `{}` | `{name}` | {flag} | {default} | {bounds} | {link} |\n",
            camel_case(short)
        );
    }
    for (Row(name, ..), text) in rows {
        page += &format!("\n**`{}`**: {text}\n", name.trim_end_matches("_ms"));
    }
    page
}

/// The help of a flag of the command: of the option, or of two that it has.
fn flags(rows: &[&[(&Row, String)]]) -> Vec<String> {
    let mut helps: Vec<(String, String)> = Vec::new();
    for (Row(_, _, flag, ..), text) in rows.iter().copied().flatten() {
        let Some(flag) = flag.strip_prefix("`--") else { continue };
        let flag = flag.split([' ', '`']).next().unwrap_or_default().replace('-', "_");
        let text = text.replace(['`', '*'], "").replace(" ms", "ms").replace("1 day", "1d");
        match helps.iter_mut().find(|(known, _)| *known == flag) {
            // The client has this flag, too. The text of the request's option says more.
            Some(_) if ["label", "lease"].contains(&&*flag) => (),
            Some((_, help)) => *help += &format!(" {text}"),
            None => helps.push((flag, text)),
        }
    }
    let args = |name| format!("crates/permits-cli/src/args/{name}.rs");
    let replaced = |(flag, text): &(String, String)| {
        let field = format!("    pub(crate) {flag}: ");
        let is_of_request = read(&args("request")).contains(&field);
        let file = args(if is_of_request { "request" } else { "mod" });
        replace_comment(&file, &[&field], "    /// ", text, "")
    };
    helps.iter().filter_map(replaced).collect()
}

/// The text that Go adds to the sentence of an option, or has in place of its part about the default.
const GO: [(&str, &str); 8] = [
    ("timeout_ms", "The error is then [ErrNotNow]. The end of the context ends the wait, too."),
    ("holder", "The second request gets the error [ErrNotNow]."),
    ("label", "The label is the text of [WithLabel] unless set."),
    ("share", "It needs [Lane]."),
    ("lane_limit", "It needs [Lane]."),
    ("lane_floor", "It needs [Lane]."),
    ("lane_waiters", "It needs [Lane]."),
    ("lease_ms", "15 s unless set."),
];

/// The file of Go's options: those that a flag sets.
fn go(rows: &[(&Row, String)]) -> Option<String> {
    let option = |(Row(name, kind, ..), text): &(&Row, String)| {
        let function = capital(&camel_case(name.trim_end_matches("_ms")));
        let own = GO.iter().find(|(option, _)| option == name).map(|(_, own)| *own);
        let is_default = own.is_some_and(|own| own.contains("unless set"));
        let text = if is_default { without_default(text).0 } else { text.clone() };
        let text = format!("{function} is {}", text[..1].to_lowercase() + &text[1..]);
        let own = own.map_or_else(String::new, |own| format!("//\n{}\n", wrapped_at(110, "// ", own, "// ")));
        let argument = camel_case(name.trim_end_matches("_ms"));
        let (of, value) = match kind {
            Kind::Whole => ("int", argument.clone()),
            Kind::Time => ("time.Duration", format!("milliseconds({argument})")),
            Kind::Text => ("string", argument.clone()),
            Kind::Flag | Kind::Recovery => panic!("{name} has no form in Go"),
        };
        format!(
            "\n{}\n{own}func {function}({argument} {of}) Option {{\n\treturn func(f fields) {{ f[\"{name}\"] = {value} }}\n}}\n",
            wrapped_at(110, "// ", &text, "// ")
        )
    };
    let options = rows.iter().filter(|(row, _)| row.2 != "–").map(option).collect::<String>();
    whole_go("options", "permits", &format!("import \"time\"\n{options}"))
}

/// Compares the file of Go's driver that reads the options of a line.
fn go_driver(rows: &[(&Row, String)]) -> Option<String> {
    let rows: Vec<&Row> = rows.iter().map(|(row, _)| *row).filter(|row| row.2 != "–").collect();
    let function = |name: &str| capital(&camel_case(name.trim_end_matches("_ms")));
    let longest = rows.iter().map(|row| function(row.0).len()).max().unwrap_or_default();
    let (mut fields, mut names, mut all) = (String::new(), String::new(), String::new());
    for Row(name, kind, ..) in rows {
        let field = function(name);
        let (of, option) = match kind {
            Kind::Whole => ("*int", format!("permits.{field}")),
            Kind::Time => ("*float64", format!("milliseconds(permits.{field})")),
            Kind::Text => ("*string", format!("permits.{field}")),
            Kind::Flag | Kind::Recovery => panic!("{name} has no form in Go"),
        };
        fields += &format!("\t{field:longest$} {of:8} `json:\"{name}\"`\n");
        names += &format!("\t\"{name}\",\n");
        all += &format!("\tall = with(all, o.{field}, {option})\n");
    }
    let made = format!(
        "import permits \"github.com/permits-rs/permits/bindings/go\"\n\n\
         var names = []string{{\n{names}}}\n\n\
         type options struct {{\n{fields}}}\n\n\
         func (o *options) all() (all []permits.Option) {{\n{all}\treturn all\n}}\n"
    );
    whole_go("internal/driver/options", "main", &made)
}

/// Compares a file of the package for Go that is generated as a whole.
fn whole_go(name: &str, package: &str, made: &str) -> Option<String> {
    let file = format!("bindings/go/{name}.go");
    let code = read(&file);
    let what = "Code generated from the documentation of the library by the test vocabulary. DO NOT EDIT.";
    put(&file, &code, 0..code.len(), &format!("// {what}\n\npackage {package}\n\n{made}"))
}

/// Replaces the comment before an item, which is found by the texts of `path`, up to a line that begins
/// otherwise. What follows is the item's own: if it says what the default is, the text does not.
fn replace_comment(file: &str, path: &[&str], start: &str, text: &str, before: &str) -> Option<String> {
    let code = read(file);
    let at = found(file, &code, path).start;
    let begin = code[..at].rfind("\n\n").map_or(0, |begin| begin + 2);
    let made = code[begin..at].split_inclusive('\n').take_while(|line| line.starts_with(start));
    let end = begin + made.map(str::len).sum::<usize>();
    let own = &code[end..at];
    let of_its_own = own.contains("[default") || own.contains("unless set");
    let mut text = if of_its_own { without_default(text).0 } else { text.to_owned() };
    if own.lines().any(|line| line.starts_with(&format!("{start}[default"))) {
        text.truncate(text.len() - 1);
    }
    let made = wrapped_at(110, start, &format!("{before}{text}"), start) + "\n";
    put(file, &code, begin..end, &made)
}

/// Replaces what is between two texts of a file.
fn replace(file: &str, begin: &str, end: &str, made: &str) -> Option<String> {
    replace_in(file, &[begin], end, made)
}

fn replace_in(file: &str, path: &[&str], end: &str, made: &str) -> Option<String> {
    let text = read(file);
    let from = found(file, &text, path).end;
    let to = text[from..].find(end).unwrap_or_else(|| panic!("{file} has no {end:?} behind {path:?}"));
    put(file, &text, from..from + to, made)
}

/// The place of the last of some texts, each of which follows the previous one.
fn found(file: &str, text: &str, path: &[&str]) -> Range<usize> {
    path.iter().fold(0..0, |before, item| {
        let at =
            text[before.end..].find(item).unwrap_or_else(|| panic!("{file} has no {item:?} of {path:?}"));
        before.end + at..before.end + at + item.len()
    })
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).expect("it is text")
}

/// Replaces a part of the text of a file. Returns the difference, if it was another text.
fn put(file: &str, text: &str, at: Range<usize>, made: &str) -> Option<String> {
    if text[at.clone()] == *made {
        return None;
    }
    if std::env::var_os("PERMITS_ACCEPT").is_some() {
        let (before, after) = (&text[..at.start], &text[at.end..]);
        fs::write(root().join(file), format!("{before}{made}{after}")).expect("it can be written");
        return None;
    }
    Some(format!("{file}: in place of\n{}\nthe vocabulary has\n{made}", &text[at]))
}

fn none(differences: impl Iterator<Item = String>) {
    let differences: Vec<String> = differences.collect();
    assert!(differences.is_empty(), "PERMITS_ACCEPT=1 writes what is made:\n{}", differences.join("\n"));
}

#[test]
fn every_language_and_the_reference_have_the_sentences_of_the_library() {
    let request = sentences(REQUEST, "crates/permits/src/options/mod.rs", "AcquireOptions");
    let client = sentences(CLIENT, "crates/permits/src/client/builder.rs", "ClientBuilder");
    let fields: Vec<&str> = REQUEST.iter().map(|row| row.0).collect();
    assert_eq!(
        fields,
        AcquireOptions::FIELDS,
        "add the field to REQUEST, with its type, its bounds and its page"
    );
    let types = "bindings/python/python/permits/_types.py";
    let absent = "One that is absent or `None` has its default.\"\"\"\n\n";
    let differences = [
        replace(
            types,
            &format!("\"\"\"The options of `Semaphore.acquire`. {absent}"),
            "\n\nclass ",
            &python(&request),
        ),
        replace(types, &format!("\"\"\"The settings of `connect`. {absent}"), "\n\nclass ", &python(&client)),
        replace(
            "bindings/python/python/permits/_semaphore.py",
            "waiting in line: `with`, `async with`, `await`, or `.wait()`.\n\n",
            "        \"\"\"",
            &docstring(&request),
        ),
        replace(
            "bindings/node/lib/semaphore.ts",
            "export interface AcquireOptions {\n",
            "  /** Ends the wait:",
            &typescript(&request),
        ),
        replace(
            "bindings/node/lib/client.ts",
            "export interface ConnectOptions {\n",
            "  /**\n   * A function that returns the password",
            &typescript(&client),
        ),
        replace(
            "docs/reference/options.md",
            "<!-- made of the options of a request -->\n\n",
            "\n<!-- end -->",
            &page(&request),
        ),
        replace(
            "docs/reference/options.md",
            "<!-- made of the settings of a client -->\n\n",
            "\n<!-- end -->",
            &page(&client),
        ),
    ];
    let differences = differences.into_iter().chain(schemas(&request)).chain([
        openapi(&request),
        go(&request),
        go_driver(&request),
    ]);
    let differences = differences.flatten();
    none(differences.chain(flags(&[&request, &client])));
}
