//! Each operation of Python that blocks has a twin for asyncio, with an `a` before its name. The twin is made
//! of the operation's own text, whose `block_on(…)` becomes `await result(…)`.

use super::{none, put, read};

const FILES: [&str; 3] = ["_client", "_permit", "_semaphore"];

/// The operations that block and have no twin of their text: a coroutine needs no timeout, which asyncio has.
const OF_THEIR_OWN: [&str; 1] = ["wait_lost"];

/// The part of `code` from a definition at `begin` to the next one that is not inside of it.
fn definition(code: &str, begin: usize) -> &str {
    let rest = &code[begin..];
    let indent = |text: &str| text.len() - text.trim_start_matches(' ').len();
    let is_end = |at: &usize| indent(rest[*at..].trim_start_matches('\n')) <= indent(rest);
    let end = rest.match_indices("\n\n").map(|(at, _)| at).find(is_end);
    &rest[..end.unwrap_or(rest.trim_end().len())]
}

/// The name of the operation that a definition is, if it blocks.
fn operation(definition: &str) -> Option<String> {
    let name = definition.trim_start_matches(' ').strip_prefix("def ")?.split('(').next()?;
    let (_, body) = definition.split_once("\"\"\"\n")?;
    let blocks = ["block_on(", "_wait_for_all("].iter().any(|call| body.contains(call));
    (blocks && !name.starts_with('_') && !OF_THEIR_OWN.contains(&name)).then(|| name.to_owned())
}

/// The twin of an operation. What the present one says beyond the first sentence stays.
fn twin(name: &str, operation: &str, present: &str) -> String {
    let documented = |text: &str| text.split("\"\"\"").nth(1).map(str::to_owned);
    let first = format!("As `{name}`, on asyncio.");
    let says = documented(present).filter(|text| text.starts_with(&first)).unwrap_or(first);
    let (head, rest) = operation.split_once("\"\"\"").expect("it is documented");
    let (_, body) = rest.split_once("\"\"\"\n").expect("it has a body");
    let head = head.replace(&format!("def {name}("), &format!("async def a{name}("));
    let body = body.replace("_wait_for_all(", "await _results_of_all(").replace("block_on(", "await result(");
    format!("{head}\"\"\"{says}\"\"\"\n{body}")
}

/// Replaces the twin of the operation that begins at `begin`, if one does. Returns the difference, if it was
/// another.
fn made(file: &str, code: &str, begin: usize) -> Option<String> {
    let blocking = definition(code, begin);
    let name = operation(blocking)?;
    let behind = &code[begin + blocking.len()..];
    let at = code.len() - behind.trim_start_matches('\n').len();
    let present = definition(code, at);
    if !present.trim_start().starts_with(&format!("async def a{name}(")) {
        return Some(format!("{file}: {name} has no a{name} behind it"));
    }
    put(file, code, at..at + present.len(), &twin(&name, blocking, present))
}

#[test]
fn twins_on_asyncio_are_made_of_what_blocks() {
    let mut differences = Vec::new();
    for file in FILES.map(|file| format!("bindings/python/python/permits/{file}.py")) {
        let (mut code, mut begin) = (read(&file), 0);
        while let Some(line) = code[begin..].split_inclusive('\n').next() {
            differences.extend(made(&file, &code, begin));
            begin += line.len();
            code = read(&file);
        }
    }
    none(differences.into_iter());
}
