//! The option or verb that is meant by one of another program, in place of the parser's tip, which takes it
//! for a value.

use std::env;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use permits::check::similar;

use super::Args;
use crate::text::shell_word;

/// The verbs that request a permit.
const REQUESTS: [&str; 3] = ["permits run", "permits hold", "permits acquire"];

/// Options of flock, sem, consul lock and others, and the tip for them. Their options about waiting are
/// accepted as they are.
const OPTIONS: [(&[&str], &str); 14] = [
    (
        &[
            "-j",
            "-l",
            "--concurrency",
            "--count",
            "--jobs",
            "--limits",
            "--max",
            "--max-concurrency",
            "--permits",
            "--size",
            "--slots",
        ],
        "did you mean --limit?",
    ),
    (&["-n"], "-n is --no-wait; the limit is --limit N"),
    (&["-c", "--command"], "there is no shell: write sh -c 'COMMAND' as the command; the limit is --limit N"),
    (&["--expiration", "--expire", "--expiry", "--ttl", "-monitor-retry"], "did you mean --lease?"),
    (&["--cost", "--tokens", "--units"], "did you mean --weight?"),
    (&["-t", "-try", "-timeout", "--st", "--semaphoretimeout"], "did you mean --wait?"),
    (
        &["--id", "--semaphorename", "--semaphore-name", "--name", "-name"],
        "the name is the first argument: permits run NAME",
    ),
    (&["-x", "-e", "--exclusive"], "that is --limit 1"),
    (&["-s", "--shared"], "readers and a writer: --limit 100 for all, and --weight 100 for the writer"),
    (&["-u", "--unlock"], "the permit is released when the command ends: leave it out"),
    (&["-o", "--close"], "the command inherits no permit: leave it out"),
    (
        &["-F", "--no-fork", "--fg"],
        "permits waits for the command, and releases the permit then: leave it out",
    ),
    (&["--bg"], "write & behind the whole command"),
    (
        &["--pipe", "--pass-stdin", "-pass-stdin", "-child-exit-code", "-shell"],
        "standard input and the exit code are those of the command, which no shell starts: leave it out",
    ),
];

/// Words that are no verbs, and the call that is meant.
const VERBS: [(&[&str], &str); 13] = [
    (&["lock", "sem", "exec", "with", "flock"], "permits run NAME COMMAND"),
    (&["unlock", "free", "return"], "permits release HANDLE; permits run releases by itself"),
    (&["ps", "show", "info", "inspect", "get", "holders"], "permits status NAME"),
    (&["ls"], "permits list"),
    (&["monitor", "tail", "follow"], "permits watch NAME"),
    (&["pin", "set", "resize"], "permits limit NAME N"),
    (&["unpin"], "permits limit NAME --unpin"),
    (&["kill", "evict", "steal"], "permits revoke NAME HOLDER"),
    (&["stop", "suspend"], "permits pause NAME"),
    (&["start", "unpause", "continue"], "permits resume NAME"),
    (&["rm", "remove", "del", "destroy"], "permits delete NAME"),
    (&["metrics", "exporter", "web"], "permits serve"),
    (&["health", "check", "ping"], "permits doctor"),
];

/// The options by which other servers are told where to listen.
const ADDRESSES: [&str; 7] = ["-p", "-b", "--port", "--bind", "--host", "--addr", "--address"];

/// Adds our tip to the error of an unknown option of a request, of an unknown verb, or of a prefix without
/// its option.
pub(crate) fn with_tip(mut error: Error) -> Error {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let given = |kind| match error.get(kind) {
        Some(ContextValue::String(given)) => Some(given.as_str()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => given(ContextKind::InvalidSubcommand)
            .and_then(|given| of_verb(given, error.get(ContextKind::SuggestedSubcommand).is_some())),
        ErrorKind::UnknownArgument => given(ContextKind::InvalidArg).and_then(|given| {
            if REQUESTS.iter().any(|verb| usage.contains(verb)) {
                of_option(given)
            } else if usage.contains("permits serve") && ADDRESSES.contains(&given) {
                Some("did you mean --listen 127.0.0.1:PORT?".to_owned())
            } else if usage.contains("permits list") && !given.starts_with('-') {
                Some(format!("did you mean --under {}?", shell_word(given)))
            } else {
                None
            }
        }),
        _ => None,
    };
    // A misspelt option, not a name that begins with two hyphens.
    if given(ContextKind::InvalidArg).is_some_and(|given| given.starts_with("--")) {
        error.remove(ContextKind::Suggested);
    }
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn of_option(given: &str) -> Option<String> {
    // The parser takes a word such as -name or -n3 for several options of one letter.
    let words: Vec<String> = env::args().skip(1).take_while(|word| word != "--").collect();
    let is_number = |word: &str| {
        word.strip_prefix("-n").is_some_and(|rest| rest.starts_with(|c: char| c == '=' || c.is_ascii_digit()))
    };
    let named = |word: &str| OPTIONS.iter().find(|(others, _)| others.contains(&word));
    let option = if given.starts_with("--") {
        named(given)
    } else if words.iter().any(|word| is_number(word)) {
        named("-n")
    } else {
        let names = words.iter().map(|word| word.split('=').next().unwrap_or_default());
        names
            .filter(|word| word.len() > 2 && !word.starts_with("--"))
            .find_map(named)
            .or_else(|| named(given))
    };
    option.map(|(_, tip)| (*tip).to_owned())
}

fn of_verb(given: &str, is_similar: bool) -> Option<String> {
    if let Some((_, call)) = VERBS.iter().find(|(others, _)| others.contains(&given)) {
        return Some(format!("did you mean: {call}?"));
    }
    // The parser finds none for a short word with two letters in the wrong order.
    let verbs = Args::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    match similar(given, verbs).first() {
        _ if is_similar => None,
        Some(verb) => Some(format!("did you mean: permits {verb}?")),
        None => Some(format!("a semaphore comes after a verb: permits status {}", shell_word(given))),
    }
}
