//! What an option means is written once: as the first paragraph of its documentation in Rust. The types of
//! the packages for Python and Node, the schema of the lines and the reference page are made of it.
//!
//! `PERMITS_ACCEPT=1 cargo test -p permits --all-features --test vocabulary` writes these files. A field that
//! this file does not know fails the test, and so does one without documentation.

use std::fs;
use std::path::{Path, PathBuf};

use permits::AcquireOptions;
use quote::ToTokens as _;
use syn::{Expr, ImplItem, Item, Lit, Meta, Type};

/// The type of an option. Its unit differs by language for a time.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Whole,
    Time,
    Text,
    Flag,
    Recovery,
}

/// An option: its name in JSON, the flag of `permits run`, what it is unless set, its bounds, and the page
/// that teaches it.
struct Row(&'static str, Kind, &'static str, &'static str, &'static str, &'static str);

const REQUEST: &[Row] = &[
    Row("weight", Kind::Whole, "`--weight`", "1", "1 to the limit", "[waiting](../use/waiting.md)"),
    Row(
        "timeout_ms",
        Kind::Time,
        "`--wait`, `--no-wait`",
        "no limit",
        "0: does not wait",
        "[waiting](../use/waiting.md)",
    ),
    Row(
        "holder",
        Kind::Text,
        "`--holder`",
        "a unique name",
        "1 to 200 bytes",
        "[names](../use/slots.md#one-permit-for-each-host-holder)",
    ),
    Row(
        "label",
        Kind::Text,
        "`--label`",
        "the client's",
        "at most 120 bytes",
        "[names](../use/slots.md#what-people-read-label)",
    ),
    Row("lane", Kind::Text, "`--lane NAME`", "none", "1 to 120 bytes", "[lanes](../use/lanes.md)"),
    Row(
        "share",
        Kind::Whole,
        "`--lane NAME=SHARE`",
        "1",
        "1 to 1,000, with a lane",
        "[lanes](../use/lanes.md)",
    ),
    Row("lease_ms", Kind::Time, "`--lease`", "the client's", "100 ms to 1 day", "[losing](../use/losing.md)"),
    Row("at_least_ms", Kind::Time, "`--at-least`", "0", "at most 1 day", "[rates](../use/rates.md)"),
    Row(
        "max_hold_ms",
        Kind::Time,
        "`--max-hold`",
        "no limit",
        "at least 100 ms",
        "[losing](../use/losing.md#the-longest-hold)",
    ),
    Row("auto_renew", Kind::Flag, "–", "true", "", "[losing](../use/losing.md)"),
    Row(
        "supersede",
        Kind::Text,
        "`--supersede`",
        "none",
        "1 to 120 bytes, with a wait",
        "[the newest](../use/newest.md)",
    ),
];

const CLIENT: &[Row] = &[
    Row("prefix", Kind::Text, "`--prefix`, `PERMITS_PREFIX`", "`permits`", "1 to 64 ASCII characters", ""),
    Row(
        "label",
        Kind::Text,
        "`--label`, `PERMITS_LABEL`",
        "the program's name",
        "at most 120 bytes",
        "[names](../use/slots.md#what-people-read-label)",
    ),
    Row("lease_ms", Kind::Time, "`--lease`", "15 s", "100 ms to 1 day", "[losing](../use/losing.md)"),
    Row("keep_ms", Kind::Time, "–", "0", "at most a third of the lease", "[keep](../use/keep.md)"),
    Row(
        "recovery",
        Kind::Recovery,
        "`--recovery`",
        "`interval`",
        "`off`, `interval`, `strict`",
        "[what they mean](../inside/protocol.md#recovery)",
    ),
    Row(
        "max_waiters",
        Kind::Whole,
        "–",
        "100,000",
        "`local:`: at most 10,000",
        "[waiting](../use/waiting.md)",
    ),
    Row("replicas", Kind::Whole, "–", "0", "", "[stores](../operate/stores.md#failover)"),
    Row("store_timeout_ms", Kind::Time, "`--store-timeout`", "30 s", "", "[errors](errors.md)"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The first paragraph of the documentation of each method of `of` in `file`, by the name of the method.
fn documented(file: &str, of: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join(file)).expect("it is text");
    let items = syn::parse_file(&text).expect("it compiles").items;
    let mut found = Vec::new();
    for item in items {
        let Item::Impl(item) = item else { continue };
        let is_of = matches!(&*item.self_ty, Type::Path(path) if path.path.is_ident(of));
        for function in item.items.iter().filter(|_| is_of && item.trait_.is_none()) {
            let ImplItem::Fn(function) = function else { continue };
            let lines = function.attrs.iter().filter_map(|attribute| match &attribute.meta {
                Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
                    Expr::Lit(literal) => match &literal.lit {
                        Lit::Str(line) => Some(line.value().trim().to_owned()),
                        other => panic!("{}", other.to_token_stream()),
                    },
                    _ => None,
                },
                _ => None,
            });
            let paragraph: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            found.push((function.sig.ident.to_string(), paragraph.join(" ")));
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
        (row, text.clone())
    };
    rows.iter().map(sentence).collect()
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| format!("{name}{}{}", word[..1].to_uppercase(), &word[1..]))
}

/// The words of a text in lines of at most 120 columns, the first behind `first`, the others behind `indent`.
fn wrapped(first: &str, text: &str, indent: &str) -> String {
    let (mut lines, mut line) = (String::new(), first.to_owned());
    for (number, word) in text.split(' ').enumerate() {
        if number > 0 && line.chars().count() + 1 + word.chars().count() > 120 {
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

fn page(rows: &[(&Row, String)]) -> String {
    let mut page = "| Python, Rust | Node | JSON | command | unless set | bounds | page |\n|---|---|---|---|---|---|---|\n".to_owned();
    for (Row(name, _, flag, default, bounds, link), _) in rows {
        let short = name.trim_end_matches("_ms");
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

/// Replaces what is between two lines of a file. Returns the difference, if it was another text.
fn replace(file: &str, begin: &str, end: &str, made: &str) -> Option<String> {
    let path = root().join(file);
    let text = fs::read_to_string(&path).expect("it is text");
    let (before, rest) = text.split_once(begin).unwrap_or_else(|| panic!("{file} has no line {begin:?}"));
    let at = rest.find(end).unwrap_or_else(|| panic!("{file} has no {end:?} behind {begin:?}"));
    let (stored, after) = rest.split_at(at);
    if stored == made {
        return None;
    }
    if std::env::var_os("PERMITS_ACCEPT").is_some() {
        fs::write(&path, format!("{before}{begin}{made}{after}")).expect("it can be written");
        return None;
    }
    Some(format!("{file}, behind {begin:?}: in place of\n{stored}\nthe vocabulary has\n{made}"))
}

#[test]
fn every_language_and_the_reference_have_the_sentences_of_the_library() {
    let request = sentences(REQUEST, "crates/permits/src/options/mod.rs", "AcquireOptions");
    let client = sentences(CLIENT, "crates/permits/src/client.rs", "ClientBuilder");
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
            "}\n",
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
    let schema = request.iter().map(|(Row(name, ..), text)| {
        let begin = format!("\"{name}\": {{ \"description\": \"");
        replace("docs/reference/hold-many.schema.json", &begin, "\", \"type\"", &text.replace('"', "\\\""))
    });
    let differences: Vec<String> = differences.into_iter().chain(schema).flatten().collect();
    assert!(differences.is_empty(), "PERMITS_ACCEPT=1 writes what is made:\n{}", differences.join("\n"));
}
