//! The Lua where random histories do not come: its text, keys that are not permits', memory that is full, and
//! keys of which only some are left.
//!
//! The headers of Lua files drift: nobody reads them but people. So what can be checked of them is, and with
//! it the rules that keep numbers exact.

mod support {
    pub(crate) mod dump;
    pub(crate) mod packed;
}

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use permits::model::{self, Part, ServerClock as Told, State};
use permits::protocol::{
    AcquireRequest, AdoptRequest, Answers, Command, Declaration, Grant, Holder, Label, LimitChange,
    LimitOutcome, Name, Operation, Recovery, ReleaseRequest, RenewOutcome, RenewRequest, Reply, RequestId,
    SessionId,
};
use permits::store::StoreError;
use permits::store::redis::rights;
use permits::store::redis::testing::{SERVER_KEY, FixedClockStore, keys_of};
use permits_testkit::{Connection, Resp, Server};
use tokio::runtime::Runtime;

use support::dump;

const COMMANDS: [&str; 8] =
    ["acquire", "adopt", "inspect", "pause", "release", "renew", "revoke", "set_limit"];
const SHARED: [&str; 9] =
    ["begin", "changes", "clock", "entries", "finish", "judge", "promote", "reclaim", "slots"];

/// Executed when a connection is made.
const CHECK: &str = "check";

/// Where `..` joins texts, and never a number.
const JOINED: [&str; 1] = ["redis.call(PUBLISH, ARGV[2] .. to, message)"];

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "src/store/redis/lua"].iter().collect()
}

fn text(name: &str) -> String {
    let path = folder().join(format!("{name}.lua"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
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

#[test]
fn every_lua_file_is_known_here() {
    let files = fs::read_dir(folder()).expect("the folder is there").map(|file| {
        let name = file.expect("it can be read").file_name().into_string().expect("it is UTF-8");
        name.strip_suffix(".lua").map(str::to_owned).unwrap_or(name)
    });
    let known = COMMANDS.into_iter().chain(SHARED).chain([CHECK]).map(str::to_owned);
    assert_eq!(files.collect::<BTreeSet<_>>(), known.collect::<BTreeSet<_>>());
}

#[test]
fn every_command_file_is_short_and_says_what_it_takes_returns_and_costs() {
    for name in COMMANDS {
        let text = text(name);
        let (header, _) = split(&text);
        assert!(text.lines().count() < 80, "{name} has {} lines", text.lines().count());
        assert!(header.starts_with(&format!("-- {name}: ")), "{name} begins with {header}");
        for part in ["KEYS ", "ARGV ", "Returns ", "Idempotent", "Cost "] {
            let said = header.lines().filter(|line| line.starts_with(&format!("-- {part}"))).count();
            assert_eq!(said, 1, "{name} has {said} lines for {part:?}");
        }
    }
}

/// What stands in single quotes after each `start`, or in double ones.
fn quoted_after(text: &str, start: &str) -> BTreeSet<String> {
    let quoted = |part: &str| part.split(['\'', '"']).next().expect("it is closed").to_owned();
    text.split(start).skip(1).map(quoted).collect()
}

/// The commands that the scripts run, and those with which they are run and heard of.
fn commands_of_permits() -> BTreeSet<String> {
    let scripts = COMMANDS.into_iter().chain(SHARED);
    let run = scripts.flat_map(|name| quoted_after(&text(name), "redis.call('"));
    // PUBLISH has another name in a cluster, so it is a variable there.
    run.chain(["EVALSHA", "PING", "PUBLISH", "SUBSCRIBE"].map(str::to_owned)).collect()
}

#[test]
fn the_check_of_rights_knows_every_command_that_is_needed() {
    let check = text(CHECK);
    let quoted = check.split('\'').skip(1).step_by(2);
    let checked =
        quoted.filter(|word| word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase()));
    let checked: BTreeSet<_> = checked.filter(|word| *word != "LIMIT").map(str::to_owned).collect();
    assert_eq!(checked, commands_of_permits());
}

#[test]
fn the_rights_allow_every_command_that_is_run_and_no_other() {
    let allowed = |needed: bool| -> BTreeSet<String> {
        let rights = rights("permits").expect("the prefix is valid").into_iter();
        let rules = rights.filter(|rights| rights.needed == needed).flat_map(|rights| rights.rules);
        rules.filter_map(|rule| Some(rule.strip_prefix('+')?.to_uppercase())).collect()
    };
    // The check itself is run by EVAL, and so is a script that the server does not have.
    let needed: BTreeSet<_> = commands_of_permits().into_iter().chain(["EVAL".to_owned()]).collect();
    assert_eq!(allowed(true), needed);

    let mut run = BTreeSet::new();
    for file in rust_files(&folder().join("..")) {
        run.extend(quoted_after(&fs::read_to_string(file).expect("it can be read"), "cmd(\""));
    }
    // Sentinels are other servers, with users of their own.
    run.remove("SENTINEL");
    // No user lacks the right to log in.
    run.remove("AUTH");
    let whole = |name: &String| name.replace("CONFIG", "CONFIG|GET").replace("CLUSTER", "CLUSTER|SLOTS");
    let others: BTreeSet<_> = run.difference(&needed).map(whole).collect();
    // The client selects a database by itself; and these are variables.
    let variables = ["SELECT", "SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"].map(str::to_owned);
    assert_eq!(allowed(false), others.into_iter().chain(variables).collect());
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

#[test]
fn headers_count_the_arguments_as_the_code_does() {
    for name in COMMANDS {
        let (header, code) = split(&text(name));
        let argv = header.lines().find(|line| line.starts_with("-- ARGV")).expect("it has the line");
        for line in code.lines() {
            // `ARGV[8]`: the header names 8.
            for part in line.split("ARGV[").skip(1) {
                let index: String = part.chars().take_while(char::is_ascii_digit).collect();
                assert!(argv.contains(&index), "{name} reads ARGV[{index}]: {argv}");
            }
            // `for i = 9, #ARGV, 5 do`: the header says that so many come for each request.
            let Some((_, range)) = line.split_once("for i = ") else { continue };
            let Some((first, rest)) = range.split_once(", #ARGV, ") else { continue };
            let each = rest.strip_suffix(" do").or(rest.split_once(" do ").map(|(each, _)| each));
            let each = each.unwrap_or_else(|| panic!("{name}: {line}"));
            assert!(argv.contains(&format!("{each} a request")), "{name} takes {each} each: {argv}");
            let fixed = first.parse::<u32>().expect("a number") - 1;
            let named = argv.contains(&format!("{first}…")) || argv.contains(&format!("{fixed} the"));
            assert!(named, "{name} begins at {first}: {argv}");
        }
    }
    let (header, _) = split(&text("begin"));
    let shared: String = SHARED.map(text).concat();
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
        for tag in ["granted", "held", "waiting", "lost", "again", "exceeds_limit", "unknown"] {
            let (said, given) = (header.contains(tag), code.contains(&format!("'{tag}'")));
            // A refused acquire is a reason, and there are many.
            assert!(said == given || (name == "acquire" && given), "{name}, {tag}: {said} {given}");
        }
    }
}

#[test]
fn numbers_never_go_through_a_text_that_rounds_them() {
    for name in COMMANDS.into_iter().chain(SHARED) {
        for (number, line) in text(name).lines().enumerate() {
            let code = code_of(line);
            for word in ["cjson", "math.random", "tostring"] {
                assert!(!code.contains(word), "{name}:{} has {word}", number + 1);
            }
            // `...` passes arguments on and joins nothing.
            let joins = code.replace("...", "").contains("..");
            assert!(!joins || JOINED.contains(&code), "{name}:{} joins with ..: {code}", number + 1);
            // A token or a time has 16 digits. %d is exact in no Lua of a server, and %g in none.
            let formats = code.contains("string.format(") && (code.contains("%d ") || code.contains("%g"));
            assert!(!formats, "{name}:{} formats a number by something else than %.0f", number + 1);
        }
    }
}

/// A semaphore on a real server and in the model, at one moment.
struct Both {
    store: FixedClockStore,
    connection: Connection,
    state: Option<State>,
    now_us: u64,
    keys: [String; 5],
    // Dropped behind the store, which has tasks on it.
    runtime: Runtime,
    _server: Server,
}

impl Both {
    fn start() -> Self {
        let server = Server::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let url = server.url();
        let connecting =
            FixedClockStore::connect(&url, "permits-test", SessionId::new("session").expect("it is plain"));
        let store = runtime.block_on(connecting).expect("the server runs");
        let connection = server.connect().expect("the server runs");
        let (state, now_us, keys) = (None, 0, keys_of("permits-test", &name()));
        let mut both = Self { store, connection, state, now_us, keys, runtime, _server: server };
        both.set_time(4_102_444_800_000_000);
        both
    }

    /// From an empty server again, later.
    fn again(&mut self) {
        let now_us = self.now_us + 100_000_000;
        self.call(&["FLUSHALL"]);
        self.state = None;
        self.set_time(now_us);
    }

    fn set_time(&mut self, now_us: u64) {
        self.now_us = now_us;
        let told = ["now_us", &now_us.to_string(), "run_id", "run", "uptime_ms", "1000000000"];
        self.call(&[&["HSET", SERVER_KEY], &told[..]].concat());
    }

    fn call(&mut self, command: &[&str]) -> Resp {
        let reply = self.connection.call(command).expect("the server runs");
        assert!(!matches!(reply, Resp::Error(_)), "{command:?}: {reply:?}");
        reply
    }

    fn execute(&mut self, operation: &Operation) -> Result<Reply, StoreError> {
        self.runtime.block_on(self.store.execute(&command(operation)))
    }

    /// Executes it on both, and demands the same.
    fn same(&mut self, operation: &Operation) -> Answers {
        let told = Told { now_us: self.now_us, run_id: "run", uptime_ms: 1_000_000_000 };
        let (wanted, _) = model::apply(&mut self.state, &told, &command(operation));
        let got = self.execute(operation).unwrap_or_else(|error| panic!("{operation:?}: {error}"));
        assert_eq!(got, wanted, "{operation:?}");
        self.unchanged();
        got.answers
    }

    /// The server has what the model has.
    #[track_caller]
    fn unchanged(&mut self) {
        let dump = dump::read(&mut self.connection, &self.keys).expect("it can be read");
        assert_eq!(dump.state, self.state);
        assert_eq!(dump.check_expiry(), Ok(()));
    }

    /// A and B hold, C and D wait, and the slot of another one is free.
    fn full() -> Self {
        let mut both = Self::start();
        both.fill();
        both
    }

    fn fill(&mut self) {
        self.same(&acquire(&["x", "a", "b"]));
        self.same(&release("x"));
        self.same(&change_limit("l1", LimitChange::Set(2)));
        self.same(&change_limit("l2", LimitChange::Unpin));
        self.same(&acquire(&["c", "d"]));
    }

    fn fill_memory(&mut self) {
        self.call(&["CONFIG", "SET", "maxmemory", "1"]);
    }

    fn free_memory(&mut self) {
        self.call(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

fn id(text: &str) -> RequestId {
    RequestId::new(text).expect("it is plain")
}

fn name() -> Name {
    Name::new("exports").expect("it is valid")
}

fn holder(name: &str) -> Holder {
    Holder::new(name).expect("it is valid")
}

fn command(operation: &Operation) -> Command {
    Command {
        semaphore: name(),
        session: SessionId::new("session").expect("it is plain"),
        lease_ms: 3_000,
        recovery: Recovery::Off,
        declaration: Declaration::Fallback(3),
        operation: operation.clone(),
    }
}

fn acquire(holders: &[&str]) -> Operation {
    acquire_among(holders, 10)
}

fn acquire_among(holders: &[&str], queue_max: u32) -> Operation {
    let requests = holders.iter().map(|name| AcquireRequest {
        holder: holder(name),
        request: id(name),
        weight: 1,
        lease_ms: 3_000,
        wait: true,
        label: Label::new("night %s").expect("it is valid"),
    });
    Operation::Acquire { queue_max, requests: requests.collect() }
}

fn release(name: &str) -> Operation {
    Operation::Release(vec![ReleaseRequest { holder: holder(name), request: id(name) }])
}

fn renew(name: &str, grant: Option<Grant>) -> Operation {
    Operation::Renew(vec![RenewRequest {
        holder: holder(name),
        request: id(name),
        weight: 1,
        lease_ms: 3_000,
        grant,
        label: Label::default(),
    }])
}

fn change_limit(request: &str, change: LimitChange) -> Operation {
    Operation::SetLimit { request: id(request), change, expected_version: None }
}

/// One of each.
fn every_operation() -> [Operation; 8] {
    [
        acquire(&["new"]),
        release("a"),
        renew("b", None),
        Operation::Adopt(AdoptRequest {
            holder: holder("b"),
            request: id("b"),
            weight: 1,
            lease_ms: 3_000,
            grant: Grant { token: 1, slot: 0 },
            new_request: id("c"),
        }),
        change_limit("l3", LimitChange::Adjust(2)),
        Operation::Pause(true),
        Operation::Revoke { request: id("r1"), holder: holder("a"), reason: "".into() },
        Operation::Inspect { max: 10 },
    ]
}

#[test]
fn a_key_of_another_program_is_left_alone() {
    let mut both = Both::start();
    for key in both.keys.clone() {
        both.call(&["SET", &key, "not ours"]);
        for operation in every_operation() {
            let error = both.execute(&operation).expect_err("the key is not ours");
            assert!(matches!(error, StoreError::WrongType { .. }), "{key}, {operation:?}: {error:?}");
            assert_eq!(both.call(&["GET", &key]).text(), "not ours");
            assert_eq!(both.call(&["DBSIZE"]).int(), 2, "{key} and what the server is told");
        }
        both.call(&["DEL", &key]);
    }
    both.same(&acquire(&["a"]));
}

/// Not so for the last key, the free slots: it is looked at only when a slot comes or goes, which can be
/// behind other writes, and a look at it in every command would cost more than it protects.
#[test]
fn a_key_overwritten_by_another_program_stops_everything_that_needs_it() {
    for number in 1..4 {
        let mut both = Both::full();
        let key = both.keys[number].clone();
        let others: Vec<String> = both.keys.iter().filter(|other| **other != key).cloned().collect();
        both.call(&["DEL", &key]);
        both.call(&["SET", &key, "not ours"]);
        let dump = |both: &mut Both| {
            others
                .iter()
                .map(|key| both.connection.call(&["DUMP", key]).expect("it runs"))
                .collect::<Vec<_>>()
        };
        for operation in every_operation() {
            let before = dump(&mut both);
            match both.execute(&operation) {
                Err(StoreError::WrongType { .. }) => {
                    assert_eq!(dump(&mut both), before, "{key}, {operation:?}: failed, and wrote something");
                }
                Err(error) => panic!("{key}, {operation:?}: {error:?}"),
                // It has no need of that key.
                Ok(_) => {}
            }
            assert_eq!(both.call(&["GET", &key]).text(), "not ours");
        }
    }
}

#[test]
fn without_memory_nothing_is_acquired_and_nothing_half_done() {
    let mut both = Both::full();
    both.fill_memory();
    for operation in [acquire(&["new"]), acquire(&["a"]), acquire(&["new", "a", "c"])] {
        let error = both.execute(&operation).expect_err("there is no memory");
        assert!(matches!(error, StoreError::OutOfMemory { .. }), "{error:?}");
        both.unchanged();
    }
    both.free_memory();
    both.same(&acquire(&["new"]));
}

#[test]
fn without_memory_a_new_semaphore_is_not_begun() {
    let mut both = Both::start();
    both.fill_memory();
    let error = both.execute(&acquire(&["a"])).expect_err("there is no memory");
    assert!(matches!(error, StoreError::OutOfMemory { .. }), "{error:?}");
    both.unchanged();
    both.free_memory();
    both.same(&acquire(&["a"]));
}

#[test]
fn without_memory_what_is_there_is_kept_freed_and_handed_on() {
    let mut both = Both::full();
    both.fill_memory();
    both.same(&renew("b", None));
    both.same(&renew("c", None));
    assert_eq!(both.same(&release("a")), Answers::Release(vec![permits::protocol::ReleaseOutcome::Held]));
    both.same(&Operation::Pause(true));
    both.same(&Operation::Revoke { request: id("r2"), holder: holder("b"), reason: "late".into() });
    both.same(&Operation::Pause(false));
    both.same(&change_limit("l3", LimitChange::Set(1)));
    both.same(&change_limit("l4", LimitChange::Unpin));
    both.same(&Operation::Inspect { max: 10 });
    // Leases end as ever.
    both.free_memory();
    both.set_time(both.now_us + 3_500_000);
    both.fill_memory();
    both.same(&renew("c", None));
    both.same(&Operation::Inspect { max: 10 });
}

#[test]
fn without_memory_a_forgotten_permit_is_put_back() {
    let mut both = Both::full();
    let entry = &both.state.as_ref().expect("there is one").entries[&holder("b")];
    let model::EntryState::Holding(grant) = entry.place else { panic!("b holds: {entry:?}") };
    let now_us = both.now_us + 1_000_000;
    both.call(&["FLUSHALL"]);
    both.state = None;
    both.set_time(now_us);
    both.fill_memory();
    assert_eq!(both.same(&renew("b", Some(grant))), Answers::Renew(vec![RenewOutcome::Held]));
}

/// Every subset of the parts of a semaphore, but none of them.
fn subsets() -> impl Iterator<Item = Vec<Part>> {
    let parts = [Part::State, Part::Entries, Part::Queue, Part::Leases, Part::Free];
    (1..1 << parts.len()).map(move |bits: usize| {
        let chosen = parts.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0);
        chosen.map(|(_, part)| *part).collect()
    })
}

impl Both {
    /// These keys vanish: evicted, or deleted by hand.
    fn lose(&mut self, parts: &[Part]) {
        for part in parts {
            let key = self.keys[*part as usize].clone();
            self.call(&["DEL", &key]);
        }
        self.state = self.state.take().and_then(|state| state.lose(parts));
    }
}

#[test]
fn any_subset_of_the_keys_may_vanish_before_any_command() {
    let mut both = Both::start();
    for parts in subsets() {
        for operation in every_operation() {
            for is_full in [false, true] {
                both.again();
                if is_full {
                    both.fill();
                }
                both.lose(&parts);
                both.same(&operation);
                both.same(&renew("b", None));
                both.same(&acquire(&["e"]));
            }
        }
    }
}

#[test]
fn any_subset_of_the_keys_of_a_crowd_may_vanish() {
    let names: Vec<String> = (0..300).map(|number| format!("h{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut both = Both::start();
    for parts in subsets() {
        both.again();
        both.same(&change_limit("l1", LimitChange::Set(200)));
        both.same(&acquire_among(&names, 1_000));
        both.same(&release("h7"));
        both.lose(&parts);
        let held = both.state.as_ref().is_some_and(|state| state.damage.is_none());
        let Answers::Inspect(seen) = both.same(&Operation::Inspect { max: 10 }) else { unreachable!() };
        assert_eq!(seen.held, if held { 200 } else { 0 }, "{parts:?}");
        both.same(&renew("h1", None));
        both.same(&acquire_among(&names, 1_000));
        both.set_time(both.now_us + 4_000_000);
        both.same(&Operation::Renew(Vec::new()));
        both.same(&Operation::Renew(Vec::new()));
        both.same(&Operation::Renew(Vec::new()));
    }
}

#[test]
fn the_last_changes_are_remembered_and_earlier_ones_are_made_again() {
    let mut both = Both::start();
    let changed = |both: &mut Both, number: u32| {
        both.same(&change_limit(&format!("l{number}"), LimitChange::Set(10 + number)))
    };
    for number in 0..=32 {
        changed(&mut both, number);
    }
    let done = |limit, version| Answers::SetLimit(LimitOutcome::Done { limit, version });
    assert_eq!(changed(&mut both, 1), done(11, 2), "the 32nd before the last is remembered");
    assert_eq!(changed(&mut both, 32), done(42, 33));
    assert_eq!(changed(&mut both, 0), done(10, 34), "the one before is forgotten, and made again");
    assert_eq!(changed(&mut both, 1), done(11, 35), "so is now the next one");
}
