//! The metrics and labels that an expression of PromQL names. `promtool` checks the syntax.

use std::collections::BTreeSet;

/// Keywords between operands.
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// Keywords before a list of labels.
const LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

#[derive(Debug, Default)]
pub(crate) struct Expression {
    /// Each metric, with the labels of its braces.
    pub(crate) selectors: Vec<(String, BTreeSet<String>)>,
    /// The labels in the lists of aggregations and operators.
    pub(crate) grouped_by: BTreeSet<String>,
}

impl Expression {
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        let tokens = tokens(text);
        let mut expression = Self::default();
        let mut rest = &tokens[..];
        while let [token, after @ ..] = rest {
            let next = after.first().copied().unwrap_or_default();
            rest = after;
            if LISTS.contains(token) {
                let (list, after) = enclosed(after, ")");
                expression.grouped_by.extend(words(list));
                rest = after;
            } else if *token == "{" {
                // A selector without a name, as in `{__name__=~"a|b"}`.
                let (braces, after) = enclosed(after, "}");
                assert!(braces.starts_with(&["__name__", "=", "~"]), "{text}");
                let names = braces[3].trim_matches('"').split('|');
                expression.selectors.extend(names.map(|name| (name.to_owned(), BTreeSet::new())));
                rest = after;
            } else if is_word(token) && next != "(" && !OPERATORS.contains(token) && !LISTS.contains(&next) {
                let (braces, after) = if next == "{" { enclosed(after, "}") } else { (&[][..], after) };
                expression.selectors.push(((*token).to_owned(), words(braces).collect()));
                rest = after;
            }
        }
        expression
    }
}

/// Words, numbers with their units, strings with their quotation marks, and all other characters alone.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_inner =
            |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '.';
        let length = if first == '"' {
            2 + rest[1..].find('"').expect("a string has an end")
        } else if is_inner(first) {
            rest.find(|character| !is_inner(character)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The tokens up to `end`, and those after it.
#[track_caller]
fn enclosed<'a, 't>(tokens: &'a [&'t str], end: &str) -> (&'a [&'t str], &'a [&'t str]) {
    let at =
        tokens.iter().position(|token| *token == end).unwrap_or_else(|| panic!("no {end} in {tokens:?}"));
    (&tokens[..at], &tokens[at + 1..])
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

fn words<'a>(tokens: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    tokens.iter().filter(|token| is_word(token)).map(|word| (*word).to_owned())
}
