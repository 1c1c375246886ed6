//! The option that is meant by one of another program, in place of the parser's tip, which takes it for a
//! value.

use clap::error::{ContextKind, ContextValue, Error};

/// The verbs that request a permit.
const REQUESTS: [&str; 3] = ["permits run", "permits hold", "permits acquire"];

/// Options that programs with the same purpose have, and ours. Those of waiting are accepted as they are.
const MEANT: [(&[&str], &str); 3] = [
    (
        &[
            "-c",
            "-j",
            "-l",
            "--concurrency",
            "--count",
            "--jobs",
            "--max",
            "--max-concurrency",
            "--permits",
            "--size",
            "--slots",
        ],
        "--limit",
    ),
    (&["--expiration", "--expire", "--expiry", "--ttl"], "--lease"),
    (&["--cost", "--tokens", "--units"], "--weight"),
];

/// Adds our tip to the error of an unknown option of a request.
pub(crate) fn with_tip(mut error: Error) -> Error {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    if let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg)
        && let Some((_, meant)) = MEANT.iter().find(|(others, _)| others.contains(&given.as_str()))
        && REQUESTS.iter().any(|verb| usage.contains(verb))
    {
        let tip = format!("did you mean {meant}?").into();
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}
