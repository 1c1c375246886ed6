//! The text of the Lua files: the headers agree with the code, and numbers stay exact.
//!
//! A header is read by people alone, so it drifts. These tests compare as much of it with the code as they
//! can.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use permits_core::protocol::OperationKind;
use permits_redis::acl_rules;

/// Executed when a connection is made.
const ACL_PROBE: &str = "acl_probe";

/// The one place where `..` joins: texts, never a number.
const JOINED: [&str; 1] = ["redis.call('$PUBLISH', channel_prefix .. to, message)"];

fn source() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "src"].iter().collect()
}

fn folder() -> PathBuf {
    source().join("script/lua")
}

fn text(name: &str) -> String {
    let path = folder().join(format!("{name}.lua"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of all Lua files.
fn files() -> BTreeSet<String> {
    let files = fs::read_dir(folder()).expect("the folder is there").map(|file| {
        let name = file.expect("it can be read").file_name().into_string().expect("it is UTF-8");
        name.strip_suffix(".lua").map(str::to_owned).unwrap_or(name)
    });
    files.collect()
}

/// The files that are named after an operation.
fn commands() -> impl Iterator<Item = &'static str> {
    OperationKind::ALL.iter().map(|kind| kind.name())
}

/// The files of scripts: all but the probe.
fn of_scripts() -> impl Iterator<Item = String> {
    files().into_iter().filter(|name| name != ACL_PROBE)
}

/// The comment at the beginning of a file, and the rest.
fn split(text: &str) -> (String, String) {
    let is_comment = |line: &&str| line.starts_with("--");
    let header: Vec<&str> = text.lines().take_while(is_comment).collect();
    let code: Vec<&str> = text.lines().skip_while(is_comment).collect();
    (header.join("\n"), code.join("\n"))
}

/// The code of a line, without its comment. No text in the Lua has two hyphens.
fn code_of(line: &str) -> &str {
    line.split_once("--").map_or(line, |(code, _)| code).trim()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The Rust of the Redis store.
fn rust() -> String {
    let texts = rust_files(&source()).into_iter().map(fs::read_to_string);
    texts.collect::<Result<String, _>>().expect("it can be read")
}

#[test]
fn every_lua_file_is_part_of_a_script_and_has_a_header() {
    let rust = rust();
    for name in files() {
        assert!(rust.contains(&format!("lua/{name}.lua\")")), "{name}.lua is not included");
        let text = text(&name);
        assert!(text.starts_with("-- "), "{name}.lua has no header");
        assert!(text.lines().count() < 80, "{name}.lua has {} lines", text.lines().count());
    }
}

#[test]
fn every_command_file_says_what_it_takes_returns_and_costs() {
    for name in commands() {
        let (header, _) = split(&text(name));
        assert!(header.starts_with(&format!("-- {name}: ")), "{name} begins with {header}");
        for part in ["KEYS ", "ARGV ", "Returns ", "Idempotent", "Cost "] {
            let lines = header.lines().filter(|line| line.starts_with(&format!("-- {part}"))).count();
            assert_eq!(lines, 1, "{name} has {lines} lines for {part:?}");
        }
    }
}

/// The texts in quotes after each `start`.
fn quoted_after(text: &str, start: &str) -> BTreeSet<String> {
    let quoted = |part: &str| part.split(['\'', '"']).next().expect("it is closed").to_owned();
    text.split(start).skip(1).map(quoted).collect()
}

/// The commands that the scripts run, and the commands that run scripts and receive their messages.
fn commands_of_permits() -> BTreeSet<String> {
    let run = of_scripts().flat_map(|name| quoted_after(&text(&name), "redis.call('"));
    // PUBLISH has another name in a cluster, so it is filled in.
    let run = run.filter(|name| name != "$PUBLISH");
    run.chain(["EVALSHA", "PING", "PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"].map(str::to_owned)).collect()
}

#[test]
fn the_acl_probe_knows_every_command_that_is_needed() {
    let probe = text(ACL_PROBE);
    let quoted = probe.split('\'').skip(1).step_by(2);
    let probed =
        quoted.filter(|word| word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase()));
    let probed: BTreeSet<_> = probed.filter(|word| *word != "LIMIT").map(str::to_owned).collect();
    let in_cluster = ["ASKING".to_owned()];
    assert_eq!(probed, commands_of_permits().into_iter().chain(in_cluster).collect());
}

#[test]
fn the_rights_allow_every_command_that_is_run_and_no_other() {
    let allowed = |needed: bool| -> BTreeSet<String> {
        let groups = acl_rules("permits").expect("the prefix is valid").into_iter();
        let rules = groups.filter(|group| group.needed == needed).flat_map(|group| group.rules);
        rules.filter_map(|rule| Some(rule.strip_prefix('+')?.to_uppercase())).collect()
    };
    // The probe itself is run by EVAL, and so is a script that the server has not loaded.
    let needed: BTreeSet<_> = commands_of_permits().into_iter().chain(["EVAL".to_owned()]).collect();
    assert_eq!(allowed(true), needed);

    let mut run = quoted_after(&rust(), "cmd(\"");
    // Sentinels are other servers, with users of their own. A test of the connection has no server.
    for elsewhere in ["SENTINEL", "ECHO"] {
        run.remove(elsewhere);
    }
    // Every user may log in, and choose the protocol.
    for login in ["AUTH", "HELLO"] {
        run.remove(login);
    }
    let whole = |name: &String| name.replace("CONFIG", "CONFIG|GET").replace("CLUSTER", "CLUSTER|SLOTS");
    let others: BTreeSet<_> = run.difference(&needed).map(whole).collect();
    // The client selects a database by itself; and these are variables.
    let variables = ["SELECT", "SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"].map(str::to_owned);
    assert_eq!(allowed(false), others.into_iter().chain(variables).collect());
}

#[test]
fn headers_count_the_arguments_as_the_code_does() {
    for name in commands() {
        let (header, code) = split(&text(name));
        let (_, argv) = header.split_once("-- ARGV").expect("it has the line");
        let (argv, _) = argv.split_once("\n-- Returns").expect("the line after it");
        let argv = argv.replace("\n--", " ").split_whitespace().collect::<Vec<_>>().join(" ");
        for line in code.lines() {
            // `ARGV[8]`: the header names 8.
            for part in line.split("ARGV[").skip(1) {
                let index: String = part.chars().take_while(char::is_ascii_digit).collect();
                assert!(argv.contains(&index), "{name} reads ARGV[{index}]: {argv}");
            }
        }
        // A batch begins where the Rust puts it.
        if code.contains("for k = 1, count do") {
            let rust = source().join(format!("script/ops/{name}.rs"));
            let rust = fs::read_to_string(rust).expect("each operation has a file");
            let (_, first) = rust.split_once("HOLDERS_AT: u32 = ").expect("it takes a batch");
            let first = first.split(';').next().expect("the constant ends");
            assert!(argv.contains(&format!("{first}… 2 a request: ")), "{name} begins at {first}: {argv}");
        }
    }
    let (header, _) = split(&text("read"));
    let shared = of_scripts().filter(|name| !commands().any(|command| command == name));
    let shared: String = shared.map(|name| text(&name)).collect();
    for index in 1..8 {
        assert!(shared.contains(&format!("ARGV[{index}]")), "nothing reads ARGV[{index}]");
        assert!(
            header.contains(&format!("  {index} ")) || header.contains(&format!("ARGV  {index} ")),
            "{index}"
        );
    }
}

#[test]
fn headers_list_every_answer_that_the_code_gives() {
    for name in ["acquire", "release", "renew", "revoke"] {
        let (header, mut code) = split(&text(name));
        if name == "renew" {
            code += &text("reclaim");
        }
        for tag in ["granted", "held", "waiting", "lost", "again", "exceeds_limit", "line_closed", "unknown"]
        {
            let (listed, given) = (header.contains(tag), code.contains(&format!("'{tag}'")));
            // A refused acquire gives its reason, and there are many.
            assert!(listed == given || (name == "acquire" && given), "{name}, {tag}: {listed} {given}");
        }
    }
}

#[test]
fn numbers_never_go_through_a_text_that_rounds_them() {
    for name in of_scripts() {
        for (number, line) in text(&name).lines().enumerate() {
            let code = code_of(line);
            for word in ["cjson", "math.random", "tostring"] {
                assert!(!code.contains(word), "{name}:{} has {word}", number + 1);
            }
            // `...` passes arguments on and joins nothing.
            let joins = code.replace("...", "").contains("..");
            assert!(!joins || JOINED.contains(&code), "{name}:{} joins with ..: {code}", number + 1);
            // A token or a time has 16 digits. `%g` is never exact for such a number, and `%d` not on every
            // server.
            let formats = code.contains("string.format(") && (code.contains("%d ") || code.contains("%g"));
            assert!(!formats, "{name}:{} formats a number by another format than %.0f", number + 1);
        }
    }
}

/// The names that a line declares: local variables, loop variables and parameters.
fn declared(code: &str) -> Vec<&str> {
    let list = if let Some((_, rest)) = code.split_once("function") {
        rest.split_once('(').map_or("", |(_, rest)| rest.split(')').next().unwrap_or_default())
    } else if let Some(rest) = code.strip_prefix("local ") {
        rest.split('=').next().unwrap_or_default()
    } else if let Some(rest) = code.strip_prefix("for ") {
        let names = rest.split('=').next().unwrap_or_default();
        names.split(" in ").next().unwrap_or_default()
    } else {
        ""
    };
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

#[test]
fn no_variable_shadows_a_function() {
    let texts: Vec<(String, String)> = of_scripts().map(|name| (name.clone(), text(&name))).collect();
    let functions: BTreeSet<&str> = texts
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| line.trim().strip_prefix("local function ")?.split('(').next())
        .collect();
    assert!(functions.contains("promote"));
    for (name, text) in &texts {
        for line in text.lines() {
            let shadow = declared(code_of(line)).into_iter().find(|name| functions.contains(name));
            assert_eq!(shadow, None, "{name}: {line}");
        }
    }
}
