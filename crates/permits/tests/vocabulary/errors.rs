//! What an error means is written once: as the first paragraph of its documentation in Rust. The classes of
//! Python, the codes of Node and the reference pages are made of it, and of the code that sorts errors: into
//! codes (`bindings/common/src/failure.rs`) and exit codes (`crates/permits-cli/src/exit.rs`).

use quote::ToTokens as _;
use syn::Item;

use super::{capital, none, paragraph, put, read, replace, wrapped};

/// The enums of errors that have a code. If several have the same code, the sentence of the first one counts.
const ENUMS: [(&str, &str); 9] = [
    ("crates/permits/src/error.rs", "AcquireError"),
    ("crates/permits/src/error.rs", "AdminError"),
    ("crates/permits/src/error.rs", "RenewError"),
    ("crates/permits/src/error.rs", "AdoptError"),
    ("crates/permits/src/error.rs", "CloseError"),
    ("crates/permits/src/error.rs", "Ended"),
    ("crates/permits/src/error.rs", "ConnectError"),
    ("crates/permits/src/error.rs", "Lost"),
    ("crates/permits-store/src/error.rs", "StoreError"),
];

/// The pages that teach what an error is about.
const PAGES: [(&str, &str); 10] = [
    ("COOLING", "[rates](../use/rates.md)"),
    ("PAUSED", "[pause](../use/pause.md)"),
    ("LANE_FULL", "[lanes](../use/lanes.md#a-limit-for-each-lane)"),
    ("EXCEEDS_LANE_LIMIT", "[lanes](../use/lanes.md#a-limit-for-each-lane)"),
    ("LINE_CLOSED", "[pause](../use/pause.md)"),
    ("RECOVERING", "[waiting](../use/waiting.md#when-the-server-has-just-started)"),
    ("SUPERSEDED", "[the newest](../use/newest.md)"),
    ("LIMIT_MISMATCH", "[limits](../use/limits.md)"),
    ("REVOKED", "[losing](../use/losing.md)"),
    ("FORKED", "[the end](../use/ending.md#programs-that-fork)"),
];

/// A code, the kind of it, its variants in Rust, its sentence, and its exit code.
#[derive(Debug)]
struct Error {
    code: String,
    kind: String,
    variants: Vec<String>,
    text: String,
    exit: String,
}

impl Error {
    fn class(&self) -> String {
        match &*self.code {
            "INVALID_URL" => "UrlError".to_owned(),
            "TIMED_OUT" => "TimeoutError".to_owned(),
            code => code.split('_').map(|word| capital(&word.to_lowercase())).collect::<String>() + "Error",
        }
    }

    fn group(&self) -> &'static str {
        match (&*self.kind, &*self.code) {
            ("Lost", _) => "",
            (_, "OTHER") => "EndedCode",
            ("NotNow", _) => "NotNowCode",
            ("Store", _) => "StoreCode",
            ("Invalid", _) => "NeverCode",
            _ if self.text.starts_with("Never: ") => "NeverCode",
            _ => "EndedCode",
        }
    }

    /// The sentence without what its table says.
    fn sentence(&self) -> String {
        let text = self.text.trim_start_matches("Not now: ").trim_start_matches("Never: ");
        capital(text)
    }
}

/// The arms of the matches in a file: the variants of [`ENUMS`] that one has, the kind that it names, and the
/// first of its words that is a value.
fn arms(text: &str, is_value: impl Fn(&str) -> bool) -> Vec<(Vec<&str>, Option<&str>, &str)> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let words = code.flat_map(|line| line.split(|c: char| c.is_whitespace() || "(){},&|".contains(c)));
    let (mut found, mut variants, mut kind, mut is_pattern) = (Vec::new(), Vec::new(), None, true);
    for word in words.filter(|word| !word.is_empty()) {
        if word.split_once("::").is_some_and(|(of, _)| ENUMS.iter().any(|(_, known)| *known == of)) {
            if !is_pattern {
                variants.clear();
            }
            is_pattern = true;
            variants.push(word);
        } else if let Some(named) = word.strip_prefix("Kind::") {
            kind = Some(named);
        } else if word == "=>" {
            is_pattern = false;
        } else if word == "_" && !is_pattern || word.ends_with(';') && !is_value(word) {
            variants.clear();
        } else if is_value(word) {
            found.push((std::mem::take(&mut variants), kind, word));
        }
    }
    found
}

/// The first paragraph of the documentation of each variant, without links.
fn documented() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (file, of) in ENUMS {
        for item in syn::parse_file(&read(file)).expect("it compiles").items {
            let Item::Enum(item) = item else { continue };
            for variant in item.variants.iter().filter(|_| item.ident == of) {
                let text = without_links(&paragraph(&variant.attrs));
                found.push((format!("{of}::{}", variant.ident), text));
            }
        }
    }
    found
}

pub(super) fn without_links(text: &str) -> String {
    let mut made = String::new();
    for part in text.split('[') {
        let (name, rest) = part.split_once(']').unwrap_or(("", part));
        let rest =
            rest.strip_prefix('(').and_then(|link| link.split_once(')')).map_or(rest, |(_, rest)| rest);
        made += &format!("{name}{rest}");
    }
    made
}

fn errors() -> Vec<Error> {
    let exits = read("crates/permits-cli/src/exit.rs");
    let number = |name: &str| {
        let (_, number) = exits.split_once(&format!("const {name}: u8 = ")).expect("it is there");
        number.split(';').next().expect("a number").to_owned()
    };
    let is_exit = |word: &str| ["USAGE", "UNAVAILABLE", "SYSTEM", "NOT_NOW"].contains(&word);
    let exits_of = arms(&exits, is_exit);
    let documented = documented();
    let is_code = |word: &str| {
        let code = word.trim_end_matches(';').strip_prefix('"').and_then(|word| word.strip_suffix('"'));
        code.is_some_and(|code| code.len() > 2 && code.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    let mut errors: Vec<Error> = Vec::new();
    let failures = read("bindings/common/src/failure.rs");
    for (variants, kind, code) in arms(&failures, is_code) {
        let code = code.trim_matches(['"', ';']);
        let kind = match variants.first().and_then(|variant| variant.split("::").next()) {
            Some("StoreError") => "Store",
            Some("Ended") => "Other",
            _ => kind.unwrap_or("Other"),
        };
        // All of its kinds are one code.
        let variants = if code == "INVALID_INPUT" { vec!["AcquireError::Invalid"] } else { variants };
        let of = |variant: &&str| {
            let found = documented.iter().find(|(name, text)| name == variant && !text.is_empty());
            found.unwrap_or_else(|| panic!("{variant} has no documentation")).1.clone()
        };
        let texts: Vec<String> = variants.iter().map(of).collect();
        let text = texts.join(" Or: ").replace(" Or: The", " Or: the");
        let exit = exits_of.iter().find(|(known, ..)| known.iter().any(|known| variants.contains(known)));
        let exit = match (exit, kind) {
            (Some((_, _, exit)), _) => number(exit),
            (None, "NotNow") => number("NOT_NOW"),
            (None, "Store") => number("UNAVAILABLE"),
            _ => "–".to_owned(),
        };
        let variants = variants.into_iter().map(str::to_owned).collect();
        let (code, kind) = (code.to_owned(), kind.to_owned());
        match errors.iter_mut().find(|error| error.code == code) {
            Some(error) => {
                error.variants.extend(variants);
                error.variants.dedup();
            }
            None => errors.push(Error { code, kind, variants, text, exit }),
        }
    }
    errors
}

fn table(errors: &[Error], group: &str) -> String {
    let mut made =
        "| what happened | Rust | Python | Node `code` | exit code |\n|---|---|---|---|---|\n".to_owned();
    for error in errors.iter().filter(|error| error.group() == group && !error.text.is_empty()) {
        let page = PAGES.iter().find(|(code, _)| *code == error.code);
        let page = page.map_or_else(String::new, |(_, link)| format!(" ({link})"));
        let rust = error.variants.iter().map(|variant| format!("`{variant}`")).collect::<Vec<_>>().join(", ");
        let (text, class) = (error.sentence(), error.class());
        made += &format!("| {text}{page} | {rust} | `{class}` | `{}` | {} |\n", error.code, error.exit);
    }
    made
}

/// Replaces the documentation of a class in Python.
fn python(error: &Error) -> Option<String> {
    let file = "bindings/python/python/permits/errors.py";
    let (text, class) = (read(file), format!("\nclass {}(", error.class()));
    let class = text.find(&class).unwrap_or_else(|| panic!("{file} has no {class:?}"));
    let begin = class + text[class..].find("    \"\"\"").expect("it is documented");
    let end = begin + 7 + text[begin + 7..].find("\"\"\"").expect("it ends") + 3;
    put(file, &text, begin..end, &wrapped("    \"\"\"", &format!("{}\"\"\"", error.sentence()), "    "))
}

/// The words for the ways in which a permit is lost, with their sentences.
fn losses() -> Vec<(String, String)> {
    let documented = documented();
    let is_word = |word: &str| word.starts_with('"') && word.len() > 2 && !word.contains(char::is_uppercase);
    let keywords = read("crates/permits/src/session/keywords.rs");
    let (_, keywords) = keywords.split_once("impl Lost {").expect("its keywords are there");
    let keywords = keywords.replace("Self::", "Lost::");
    let words = arms(&keywords, is_word).into_iter().filter_map(|(variants, _, word)| {
        let variant = variants.first().filter(|variant| variant.starts_with("Lost::"))?;
        let (_, text) = documented.iter().find(|(name, _)| name == variant).expect("it is a variant");
        Some((word.trim_matches('"').to_owned(), text.clone()))
    });
    words.collect()
}

/// Compares what the packages and the reference say of losses.
fn of_losses() -> [Option<String>; 4] {
    let losses = losses();
    assert!(losses.len() > 3, "losses are not found: {losses:?}");
    let words = |quote: &str, between: &str| {
        let words = losses.iter().map(|(word, _)| word.as_str()).chain(["other"]);
        words.map(|word| format!("{quote}{word}{quote}")).collect::<Vec<_>>().join(between)
    };
    let row = |(word, text): &(String, String)| format!("| `{word}` | {text} |\n");
    let table: String = losses.iter().map(row).collect();
    let sentences: Vec<String> = losses.iter().map(|(word, text)| format!("`{word}`: {text}")).collect();
    let (python, errors) = ("bindings/python/python/permits/errors.py", "docs/reference/errors.md");
    let text = wrapped("    \"\"\"", &format!("{}\"\"\"", sentences.join(" ")), "    ");
    [
        replace(python, "    cause: Literal[", "]\n", &words("\"", ", ")),
        replace(python, "\"other\"]\n", "\n\n    reason: str", &text),
        replace("bindings/node/lib/errors.ts", "export type Loss = ", ";", &words("'", " | ")),
        replace(errors, "| `cause`, `loss` | what happened |\n|---|---|\n", "\n<!-- end -->", &table),
    ]
}

/// The exit codes of the command, with what their constants say.
fn exit_codes() -> String {
    let mut made = "| exit code | meaning |\n|---|---|\n".to_owned();
    for item in syn::parse_file(&read("crates/permits-cli/src/exit.rs")).expect("it compiles").items {
        let Item::Const(item) = item else { continue };
        let code = item.expr.to_token_stream();
        made += &format!("| {code} | {} |\n", paragraph(&item.attrs));
    }
    made
}

#[test]
fn every_language_and_the_reference_have_the_errors_of_the_library() {
    let errors = errors();
    let groups = ["NotNowCode", "NeverCode", "StoreCode", "EndedCode"];
    let page = groups.iter().map(|group| {
        let begin = format!("<!-- made of {group} -->\n\n");
        replace("docs/reference/errors.md", &begin, "\n<!-- end -->", &table(&errors, group))
    });
    let page = page.chain([replace(
        "docs/reference/command.md",
        "<!-- made of the exit codes -->\n\n",
        "\n<!-- end -->",
        &exit_codes(),
    )]);
    let node = groups.iter().map(|group| {
        let codes = errors.iter().filter(|error| error.group() == *group);
        let codes: String = codes.map(|error| format!("  | '{}'\n", error.code)).collect();
        let made = format!("{};", codes.trim_end());
        replace("bindings/node/lib/errors.ts", &format!("export type {group} =\n"), "\n\n", &made)
    });
    let python = errors.iter().filter(|error| !error.text.is_empty()).map(python);
    none(page.chain(node).chain(python).chain(of_losses()).flatten());
}
