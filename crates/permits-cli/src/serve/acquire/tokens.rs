//! The tokens of `--acquire-tokens`, and the names that each of them may use.
//!
//! Each line of the file has a token and, behind it, the prefixes of the names that the token may use. A
//! token without prefixes may use any name. The prefixes of `--allow` hold for every token, beside its own.
//! A comment has a line of its own: behind a token its words would be prefixes, which widen what the token
//! may use, or narrow it.
//!
//! The file is read again when it has changed, so tokens rotate without a restart. A file that cannot be used
//! leaves the tokens as they were, and the reason is reported. Half of a file may be a valid one, so it is
//! replaced by a rename.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode};
use permits::check;

use super::super::access::{Refusal, SecretFile, Token, shown, unknown_token, wrong};
use crate::exit::Failure;
use crate::report;

/// The shortest time between two looks at the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The largest file, in bytes.
const MAX_FILE: usize = 256 * 1024;

/// The most tokens. A request is compared with each of them.
const MAX_TOKENS: usize = 1_000;

pub(in super::super) struct Tokens {
    path: PathBuf,
    /// The prefixes of `--allow`.
    allowed: Vec<String>,
    /// Makes [`Caller::id`].
    ids: RandomState,
    read: Mutex<Read>,
}

type Callers = Arc<[Arc<Caller>]>;

/// The file when it was read last.
struct Read {
    callers: Callers,
    version: Option<Version>,
    looked_at: Instant,
}

/// The parts of a file's metadata that change with its contents: device, inode, size, and the times of the
/// last changes of its contents and of the metadata.
#[derive(Clone, Copy, PartialEq)]
struct Version([u64; 3], [i64; 4]);

/// The programs that show the same token.
pub(super) struct Caller {
    token: Token,
    /// A number that only this token has in this process.
    pub(super) id: u64,
    prefixes: Vec<String>,
}

impl Version {
    fn of(file: &Metadata) -> Self {
        let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        Self([file.dev(), file.ino(), file.size()], times)
    }
}

impl Tokens {
    /// Reads the file.
    pub(in super::super) fn new(path: PathBuf, allowed: Vec<String>) -> Result<Self, Failure> {
        let ids = RandomState::new();
        let (callers, version) = read(&path, &ids)?;
        let read = Mutex::new(Read { callers, version: Some(version), looked_at: Instant::now() });
        Ok(Self { path, allowed, ids, read })
    }

    /// The caller of a request, by the token that it shows.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Arc<Caller>, Refusal> {
        let shown = shown(headers)?;
        let mut found = None;
        // Compare with all of them, so that the time tells nothing about a token.
        for caller in &*self.callers() {
            if caller.token.matches(shown) {
                found = Some(caller.clone());
            }
        }
        found.ok_or_else(unknown_token)
    }

    /// Checks that the caller may use this name.
    pub(super) fn check_name(&self, caller: &Caller, name: &str) -> Result<(), Refusal> {
        for prefixes in [&self.allowed, &caller.prefixes] {
            if !prefixes.is_empty() && !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
                let known: Vec<_> = prefixes.iter().map(|prefix| format!("{prefix:?}")).collect();
                let reason = format!(
                    "this token may not use the name {name:?}, only names that begin with {}",
                    known.join(" or ")
                );
                return Err((StatusCode::FORBIDDEN, reason));
            }
        }
        Ok(())
    }

    /// The callers that the file names now. The file is read again if it has changed, but looked at only if
    /// the last look was some time ago.
    fn callers(&self) -> Callers {
        let mut last = self.read.lock().expect("no code panics with it");
        if last.looked_at.elapsed() >= LOOK_EVERY {
            last.looked_at = Instant::now();
            let version = fs::metadata(&self.path).ok().map(|file| Version::of(&file));
            if version != last.version {
                match read(&self.path, &self.ids) {
                    Ok((callers, version)) => {
                        let number = callers.len();
                        report::say(format_args!("read {} again: tokens: {number}", self.path.display()));
                        (last.callers, last.version) = (callers, Some(version));
                    }
                    Err(failure) => {
                        report::say(format_args!("{}; the tokens stay as they were", failure.message));
                        last.version = version;
                    }
                }
            }
        }
        last.callers.clone()
    }
}

/// Reads all tokens of a file.
fn read(path: &Path, ids: &RandomState) -> Result<(Callers, Version), Failure> {
    let file = SecretFile::open(path)?;
    let version = Version::of(&file.metadata);
    let text = file.read(MAX_FILE + 1)?;
    let callers = parse(&text, ids).map_err(|problem| wrong(path, &problem))?;
    Ok((callers, version))
}

fn parse(text: &str, ids: &RandomState) -> Result<Callers, String> {
    if text.len() > MAX_FILE {
        return Err(format!("has more than {MAX_FILE} bytes"));
    }
    let (mut callers, mut known) = (Vec::new(), HashSet::new());
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split_ascii_whitespace();
        let Some(token) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let of_line = |problem: String| format!("in line {number} {problem}");
        let id = ids.hash_one(token);
        if !known.insert(id) {
            return Err(of_line("has a token of a line above".to_owned()));
        }
        let token = Token::new(token).map_err(of_line)?;
        let prefixes: Vec<String> = words.map(str::to_owned).collect();
        for prefix in &prefixes {
            if prefix.starts_with('#') {
                return Err(of_line(format!(
                    "has {prefix:?} behind the token: a comment needs its own line"
                )));
            }
            check::name(prefix).map_err(|error| of_line(format!("has a wrong prefix: {error}")))?;
        }
        callers.push(Arc::new(Caller { token, id, prefixes }));
    }
    match callers.len() {
        0 => Err("has no token: create one with: openssl rand -hex 32".to_owned()),
        number if number > MAX_TOKENS => Err(format!("has {number} tokens, more than {MAX_TOKENS}")),
        _ => Ok(callers.into()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::AUTHORIZATION;

    use super::*;

    const ONE: &str = "0123456789abcdef";
    const TWO: &str = "fedcba9876543210";

    fn tokens(text: &str, allowed: &[&str]) -> Tokens {
        let ids = RandomState::new();
        let callers = parse(text, &ids).expect("it is valid");
        let allowed = allowed.iter().map(|prefix| (*prefix).to_owned()).collect();
        let read = Mutex::new(Read { callers, version: None, looked_at: Instant::now() });
        Tokens { path: PathBuf::new(), allowed, ids, read }
    }

    fn status(tokens: &Tokens, token: &str, name: &str) -> u16 {
        let shown = format!("Bearer {token}").parse().expect("a value");
        let caller = tokens.caller(&HeaderMap::from_iter([(AUTHORIZATION, shown)]));
        let checked = caller.and_then(|caller| tokens.check_name(&caller, name));
        checked.map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn each_token_has_its_names_and_those_of_the_command_line_hold_for_all() {
        let file = format!("# two\n\n{ONE}\n  {TWO} exports/ web\n");
        let any = tokens(&file, &[]);
        for (token, name, expected) in [
            (ONE, "backup", 200),
            (TWO, "exports/7", 200),
            (TWO, "exports", 403),
            (TWO, "Exports/7", 403),
            (TWO, "my/exports/7", 403),
            (TWO, "website", 200),
            (TWO, "backup", 403),
            (&ONE[1..], "backup", 401),
            ("#", "backup", 401),
            ("exports/", "exports/7", 401),
        ] {
            assert_eq!(status(&any, token, name), expected, "{token} {name}");
        }
        let some = tokens(&file, &["exports/", "x"]);
        let of = |token, name| status(&some, token, name);
        assert_eq!((of(ONE, "backup"), of(ONE, "xy"), of(TWO, "exports/7")), (403, 200, 200));
        assert_eq!((of(TWO, "web"), of(TWO, "xy")), (403, 403), "neither list is enough");
    }

    #[test]
    fn a_file_that_is_not_valid_has_no_tokens() {
        let ids = RandomState::new();
        let many: String = (0..=MAX_TOKENS).map(|number| format!("{number:032}\n")).collect();
        for (text, problem) in [
            (String::new(), "has no token"),
            ("# nothing\n".to_owned(), "has no token"),
            (format!("{ONE}\nshort\n"), "in line 2 has 5 bytes in place of a token of 16 to 1024"),
            (format!("{ONE} a/\n{ONE} b/\n"), "in line 2 has a token of a line above"),
            (format!("{ONE} # any\n"), "in line 1 has \"#\" behind the token: a comment needs its own line"),
            (format!("{ONE}\n{TWO} web #until May\n"), "in line 2 has \"#until\" behind the token"),
            (format!("{ONE} {}\n", "x".repeat(201)), "in line 1 has a wrong prefix: "),
            (many, "has 1001 tokens, more than 1000"),
            (" ".repeat(MAX_FILE + 1), "has more than 262144 bytes"),
        ] {
            let refused = parse(&text, &ids).map(|callers| callers.len()).expect_err("it is wrong");
            assert!(refused.starts_with(problem), "{refused}");
        }
    }
}
