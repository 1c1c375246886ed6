//! The meaning of an error is written once: as the first paragraph of its documentation in Rust. The classes
//! of Python, the codes of Node and the reference pages are made of this text, the keyword of the error, and
//! its exit code (`crates/permits-cli/src/exit.rs`).

use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens as _;
use syn::visit::Visit;
use syn::{Expr, ImplItem, Item, Lit, Stmt};

use super::{capital, none, paragraph, put, read, replace, wrapped};

/// The enums of errors, in the order of the reference, and where each has its keywords. If several errors
/// have the same keyword, the sentence of the first one counts.
const ENUMS: [(&str, &str, &str); 8] = [
    (LIBRARY, KEYWORDS, "AcquireError"),
    (LIBRARY, KEYWORDS, "AdminError"),
    (LIBRARY, KEYWORDS, "RenewError"),
    (LIBRARY, KEYWORDS, "AdoptError"),
    (LIBRARY, KEYWORDS, "CloseError"),
    (LIBRARY, KEYWORDS, "Ended"),
    (LIBRARY, KEYWORDS, "ConnectError"),
    (STORE, STORE, "StoreError"),
];

const LIBRARY: &str = "crates/permits/src/error/mod.rs";
const NOT_NOW: &str = "crates/permits/src/error/not_now.rs";
const KEYWORDS: &str = "crates/permits/src/error/keywords.rs";
const STORE: &str = "crates/permits-store/src/error.rs";

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
    kind: &'static str,
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
        match (self.kind, &*self.code) {
            ("NotNow", _) => "NotNowCode",
            ("Store", _) => "StoreCode",
            (_, "INVALID_INPUT" | "INVALID_URL") => "NeverCode",
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

/// The body of a method of a type.
fn method(file: &str, of: &str, name: &str) -> Vec<Stmt> {
    for item in syn::parse_file(&read(file)).expect("it compiles").items {
        let Item::Impl(item) = item else { continue };
        if item.trait_.is_some() || item.self_ty.to_token_stream().to_string() != of {
            continue;
        }
        for item in item.items {
            match item {
                ImplItem::Fn(item) if item.sig.ident == name => return item.block.stmts,
                _ => {}
            }
        }
    }
    panic!("{file} has no {of}::{name}")
}

/// The variants that code names, as `AcquireError::NoPermits`.
fn variants_of(of: &str, code: &impl quote::ToTokens) -> Vec<String> {
    let code = code.to_token_stream().to_string();
    let names = code.split("Self :: ").skip(1).map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next());
    names.map(|name| format!("{of}::{}", name.unwrap_or_default())).collect()
}

/// The keywords of an enum, with the variants that have each. A variant that passes on the keyword of its
/// cause is left out.
fn keywords(file: &str, of: &str) -> Vec<(String, Vec<String>)> {
    let consts: BTreeMap<String, String> = syn::parse_file(&read(file))
        .expect("it compiles")
        .items
        .into_iter()
        .filter_map(|item| match item {
            Item::Const(item) => Some((item.ident.to_string(), literal(&item.expr)?)),
            _ => None,
        })
        .collect();
    let body = method(file, of, "keyword");
    let [Stmt::Expr(Expr::Match(body), None)] = &*body else { panic!("{of}::keyword is no match") };
    let keyword =
        |expr: &Expr| literal(expr).or_else(|| consts.get(&expr.to_token_stream().to_string()).cloned());
    let arms = body.arms.iter().filter_map(|arm| Some((keyword(&arm.body)?, variants_of(of, &arm.pat))));
    arms.collect()
}

fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(expr) => match &expr.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The exit code of each variant that the command names.
fn exit_codes_of(file: &str) -> Vec<(String, String)> {
    struct Exits(BTreeMap<String, String>, Vec<(String, String)>);
    impl<'a> Visit<'a> for Exits {
        fn visit_arm(&mut self, arm: &'a syn::Arm) {
            let pattern = arm.pat.to_token_stream().to_string().replace(" :: ", "::");
            let body = arm.body.to_token_stream().to_string();
            let variants = pattern.split(' ').filter(|word| word.contains("Error::"));
            if let Some(number) = self.0.get(body.trim_matches(['{', '}', ' '])) {
                self.1.extend(variants.map(|variant| (variant.to_owned(), number.clone())));
            }
        }
    }
    let file = syn::parse_file(&read(file)).expect("it compiles");
    let numbers = file.items.iter().filter_map(|item| match item {
        Item::Const(item) => Some((item.ident.to_string(), item.expr.to_token_stream().to_string())),
        _ => None,
    });
    let mut exits = Exits(numbers.collect(), Vec::new());
    exits.visit_file(&file);
    exits.1
}

/// The first paragraph of the documentation of each variant, without links.
fn documented() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (file, _, of) in ENUMS.into_iter().chain([(LIBRARY, KEYWORDS, "Lost")]) {
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
    let exits = exit_codes_of("crates/permits-cli/src/exit.rs");
    let documented = documented();
    let passing: Vec<String> = ["AcquireError", "AdminError"]
        .into_iter()
        .flat_map(|of| {
            let body = method(NOT_NOW, of, "is_not_now");
            body.iter().flat_map(|code| variants_of(of, code)).collect::<Vec<_>>()
        })
        .collect();
    assert!(passing.len() > 10 && exits.len() > 10, "the code is read wrongly: {passing:?}, {exits:?}");
    let mut errors: Vec<Error> = Vec::new();
    for (_, file, of) in ENUMS {
        for (keyword, variants) in keywords(file, of).into_iter().filter(|(keyword, _)| keyword != "lost") {
            let text = |variant: &String| {
                let found = documented.iter().find(|(name, text)| name == variant && !text.is_empty());
                found.unwrap_or_else(|| panic!("{variant} has no documentation")).1.clone()
            };
            let text =
                variants.iter().map(text).collect::<Vec<_>>().join(" Or: ").replace(" Or: The", " Or: the");
            let kind = match &variants[0] {
                variant if passing.contains(variant) => "NotNow",
                variant if variant.starts_with("StoreError::") => "Store",
                _ => "Other",
            };
            let exit = match (exits.iter().find(|(known, _)| variants.contains(known)), kind) {
                (Some((_, exit)), _) => exit,
                (None, "NotNow") => "75",
                (None, "Store") => "69",
                _ => "–",
            };
            let (code, exit) = (keyword.to_uppercase(), exit.to_owned());
            match errors.iter_mut().find(|error| error.code == code) {
                // All of its kinds are one code.
                Some(_) if code == "INVALID_INPUT" => {}
                Some(error) => error.variants.extend(variants),
                None => errors.push(Error { code, kind, variants, text, exit }),
            }
        }
    }
    errors
}

fn table(errors: &[Error], group: &str) -> String {
    let mut made =
        "| what happened | Rust | Python | Node `code` | exit code |\n|---|---|---|---|---|\n".to_owned();
    for error in errors.iter().filter(|error| error.group() == group) {
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

/// The classes of Python by their keywords. The first two do not belong to an error of an enum: they are for
/// a permit that was released, and for the reason of a loss.
fn classes(errors: &[Error]) -> Option<String> {
    let row = |error: &Error| format!("    \"{}\": {},\n", error.code.to_lowercase(), error.class());
    let rows: String = errors.iter().map(row).collect();
    let made = format!("    \"released\": ReleasedError,\n    \"lost\": LostError,\n{rows}");
    let begin = "CLASSES: dict[str, type[PermitsError]] = {\n";
    replace("bindings/python/python/permits/errors.py", begin, "}\n", &made)
}

/// The words for the ways in which a permit is lost, with their sentences.
fn losses() -> Vec<(String, String)> {
    let documented = documented();
    let words = keywords(KEYWORDS, "Lost").into_iter().map(|(word, variants)| {
        let (_, text) = documented.iter().find(|(name, _)| *name == variants[0]).expect("it is a variant");
        (word, text.clone())
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

/// The outcomes of the alert `PermitsAcquisitionsFail`: the errors of the store, and others of which the
/// store is the cause.
fn alert(errors: &[Error]) -> Option<String> {
    let of_the_store =
        errors.iter().filter(|error| error.kind == "Store").map(|error| error.code.to_lowercase());
    let others = ["recovering", "session_failed", "not_replicated"].map(str::to_owned);
    let reasons: Vec<String> = of_the_store.chain(others).collect();
    replace("contrib/alerts.yml", "permits_refusals_total{reason=~\"", "\"}", &reasons.join("|"))
}

/// What follows the label `reason` in a file, as in `reason=~"expired|gone"`.
fn reasons_in(file: &str) -> Vec<String> {
    let text = read(file);
    let matchers = text.split("reason").skip(1).filter(|rest| rest.starts_with(['=', '!']));
    let values = matchers.filter_map(|rest| rest.split_once('"')?.1.split(['"', '\\']).next());
    values.flat_map(|value| value.split('|')).map(str::to_owned).collect()
}

#[test]
fn alerts_name_only_reasons_that_there_are() {
    let errors = errors().into_iter().map(|error| error.code.to_lowercase());
    let losses = keywords(KEYWORDS, "Lost").into_iter().map(|(keyword, _)| keyword);
    let known: BTreeSet<String> = errors.chain(losses).collect();
    for (file, least) in [("contrib/alerts.yml", 20), ("contrib/alerts.test.yml", 10)] {
        let named = reasons_in(file);
        assert!(named.len() >= least, "{file} is read wrongly: {named:?}");
        let unknown: Vec<&String> = named.iter().filter(|reason| !known.contains(*reason)).collect();
        assert!(unknown.is_empty(), "{file}: nothing has the reasons {unknown:?}");
    }
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
        // A permit that was released is no error of the library: its methods take it.
        let released = (*group == "EndedCode").then_some("RELEASED");
        let codes = released.into_iter().chain(codes.map(|error| &*error.code));
        let codes: String = codes.map(|code| format!("  | '{code}'\n")).collect();
        let made = format!("{};", codes.trim_end());
        replace("bindings/node/lib/errors.ts", &format!("export type {group} =\n"), "\n\n", &made)
    });
    let python = errors.iter().map(python).chain([classes(&errors)]);
    none(page.chain(node).chain(python).chain(of_losses()).chain([alert(&errors)]).flatten());
}
