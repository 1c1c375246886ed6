//! Cases that a client in any language must pass. They run against the driver of the client: a program that
//! reads and writes the lines of `permits hold --many`, and does what they say with the client's own API.
//! `permits hold --many` is the driver of the Rust library.
//!
//! The cases are data, in `cases/`; `docs/inside/porting.md` says how to read them. A case that uses a line
//! or an option which is missing from the driver's `hello` is outside of what the client has, and is not run.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::process::{ChildGuard, Lines};
use crate::wait::HANGS;

/// Cases call the command by this name, whatever driver they run against. It makes changes and inspections.
const OPERATOR: &str = "operator";

/// The profiles, which are the files of `cases/`, and their texts.
const PROFILES: [(&str, &str); 5] = [
    ("base", include_str!("../cases/base.txt")),
    ("rates", include_str!("../cases/rates.txt")),
    ("lanes", include_str!("../cases/lanes.txt")),
    ("several", include_str!("../cases/several.txt")),
    ("operators", include_str!("../cases/operators.txt")),
];

/// A behaviour that every client must have.
#[derive(Debug)]
pub struct Case {
    /// The file of the case.
    pub profile: &'static str,
    /// The behaviour that the case shows.
    pub name: &'static str,
    /// The prefix of the case's keys, which keeps cases apart.
    prefix: String,
    steps: Vec<&'static str>,
}

/// The result of a case with a driver.
#[derive(Debug)]
pub enum Outcome {
    /// The client does what the case says.
    Passed,
    /// The client does not have these lines or options.
    Outside(BTreeSet<String>),
    /// The step, what was expected, and what was there.
    Failed(String),
}

/// All cases, in the order of their files.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::<Case>::new();
    for (profile, text) in PROFILES {
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("//")) {
            match (line.strip_prefix("# "), cases.last_mut()) {
                (Some(name), _) => {
                    let prefix = format!("case-{}", cases.len());
                    cases.push(Case { profile, name, prefix, steps: Vec::new() });
                }
                (None, Some(case)) => case.steps.push(line),
                (None, None) => panic!("{profile}: a step before the name of a case: {line}"),
            }
        }
    }
    cases
}

/// The store and the driver that cases run against.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The driver: a program and its arguments.
    pub driver: Vec<PathBuf>,
    /// The command `permits`.
    pub command: PathBuf,
    /// The URL of an empty store.
    pub url: String,
    /// The longest wait for an event. A wait that reaches it has found something that hangs.
    pub patience: Duration,
}

impl Subject {
    /// The command itself, as the driver of the Rust library.
    pub fn command(command: &Path, url: String) -> Self {
        let driver = [command, Path::new("hold"), Path::new("--many")].map(Path::to_owned).to_vec();
        Self { driver, command: command.to_owned(), url, patience: HANGS }
    }

    /// The call of a program, which is a driver or the command, on the store of `url`.
    pub(crate) fn command_of(&self, arguments: &[PathBuf], url: &str, prefix: &str) -> Command {
        let mut command = Command::new(&arguments[0]);
        command.args(&arguments[1..]).env("PERMITS_URL", url).env("PERMITS_PREFIX", prefix);
        command.env("PERMITS_PROGRAM", &self.command);
        command
    }

    /// The lines and options that the driver names in its `hello`.
    ///
    /// # Errors
    ///
    /// The driver does not begin with a `hello`. The text says what happened instead.
    pub fn has(&self) -> Result<BTreeSet<String>, String> {
        let mut command = self.command_of(&self.driver, &self.url, "hello");
        Program::start("driver", &mut command, self.patience).map(|program| program.has)
    }

    /// Runs cases, several at once. The outcomes are in the order of the cases.
    pub fn run_all(&self, cases: &[Case]) -> Vec<Outcome> {
        let next = AtomicUsize::new(0);
        let mut outcomes = thread::scope(|scope| {
            let row = || {
                let mut outcomes = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(number) else { return outcomes };
                    outcomes.push((number, self.run(case)));
                }
            };
            let rows: Vec<_> = (0..8).map(|_| scope.spawn(row)).collect();
            rows.into_iter().flat_map(|row| row.join().expect("a failure is an outcome")).collect::<Vec<_>>()
        });
        outcomes.sort_unstable_by_key(|(number, _)| *number);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Runs a case.
    pub fn run(&self, case: &Case) -> Outcome {
        let mut run = Run { subject: self, case, programs: BTreeMap::new(), bound: Map::new() };
        match run.steps() {
            Ok(()) => Outcome::Passed,
            Err(Stop::Outside(missing)) => Outcome::Outside(missing),
            Err(Stop::Failed(text)) => Outcome::Failed(text),
        }
    }
}

/// Why a case ends before its last step.
enum Stop {
    Outside(BTreeSet<String>),
    Failed(String),
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

/// A case that runs.
struct Run<'a> {
    subject: &'a Subject,
    case: &'a Case,
    programs: BTreeMap<&'static str, Program>,
    /// The values of the names with a `$`.
    bound: Map<String, Value>,
}

impl Run<'_> {
    fn steps(&mut self) -> Result<(), Stop> {
        self.start(OPERATOR)?;
        let mut semaphores = BTreeSet::new();
        for step in &self.case.steps {
            self.step(step, &mut semaphores).map_err(|stop| match stop {
                Stop::Failed(text) => Stop::Failed(format!("{step}\n    {text}")),
                outside @ Stop::Outside(_) => outside,
            })?;
        }
        self.end(&semaphores)?;
        Ok(())
    }

    fn step(&mut self, step: &'static str, semaphores: &mut BTreeSet<String>) -> Result<(), Stop> {
        let (word, rest) = step.split_once(' ').ok_or_else(|| "a step has two parts".to_owned())?;
        match (word, word.split_at(word.len() - 1)) {
            ("sleep", _) => {
                thread::sleep(Duration::from_millis(
                    rest.parse().map_err(|_| "not milliseconds".to_owned())?,
                ));
            }
            ("kill", _) => self.program(rest)?.child.kill(),
            ("until", _) => {
                let (name, wanted) = rest.split_once(' ').ok_or_else(|| "until NAME STATE".to_owned())?;
                self.until(name, &parsed(wanted)?)?;
            }
            (_, (name, ">")) => {
                let line = self.filled(parsed(rest)?)?;
                semaphores.extend(named(&line));
                self.start(name)?;
                let program = self.program(name)?;
                if name != OPERATOR {
                    program.has(&line)?;
                }
                program.write(&line)?;
            }
            (_, (name, "<")) => {
                let wanted = parsed(rest)?;
                let event = self.program(name)?.event(&wanted)?;
                self.matches(&wanted, &event).map_err(|text| format!("{text}\n    in {event}"))?;
            }
            _ => return Err("no step begins so".to_owned().into()),
        }
        Ok(())
    }

    /// Starts a program that does not run yet.
    fn start(&mut self, name: &'static str) -> Result<(), String> {
        if !self.programs.contains_key(name) {
            let subject = self.subject;
            let arguments = match name {
                OPERATOR => &Subject::command(&subject.command, String::new()).driver,
                _ => &subject.driver,
            };
            let mut command = subject.command_of(arguments, &subject.url, &self.case.prefix);
            self.programs.insert(name, Program::start(name, &mut command, subject.patience)?);
        }
        Ok(())
    }

    fn program(&mut self, name: &str) -> Result<&mut Program, String> {
        self.programs.get_mut(name).ok_or_else(|| format!("{name} has not begun"))
    }

    /// Waits until an inspection of the semaphore matches `wanted`.
    fn until(&mut self, name: &str, wanted: &Value) -> Result<(), String> {
        let end = Instant::now() + self.subject.patience;
        loop {
            let operator = self.program(OPERATOR)?;
            operator.write(&json!({"id": "until", "inspect": name}))?;
            let event = operator.event(&json!({"id": "until"}))?;
            match self.matches(wanted, &event["inspection"]) {
                Ok(()) => return Ok(()),
                Err(text) if Instant::now() > end => {
                    return Err(format!("{text}\n    in {}", event["inspection"]));
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Checks the end of a case: nothing is left to read, the drivers end by themselves, and the store keeps
    /// nothing of them.
    fn end(&mut self, semaphores: &BTreeSet<String>) -> Result<(), String> {
        let mut drivers: Vec<_> =
            self.programs.values_mut().filter(|program| program.name != OPERATOR).collect();
        for driver in &mut drivers {
            driver.has_no_more()?;
        }
        // The end of a driver may grant the requests of another, so all have been checked before.
        for driver in drivers {
            driver.end()?;
        }
        for name in semaphores {
            self.until(name, &json!({"held": 0, "waiting": 0}))
                .map_err(|text| format!("the programs have ended, and {name} is in use: {text}"))?;
        }
        Ok(())
    }

    /// A line with the values of its names.
    fn filled(&self, mut line: Value) -> Result<Value, String> {
        for value in line.as_object_mut().into_iter().flat_map(Map::values_mut) {
            if let Some(name) = value.as_str().filter(|text| text.starts_with('$')) {
                *value = self.bound.get(name).ok_or_else(|| format!("{name} is not known"))?.clone();
            }
        }
        Ok(line)
    }

    /// Compares the fields that are wanted.
    fn matches(&mut self, wanted: &Value, found: &Value) -> Result<(), String> {
        let matches = match (wanted, found) {
            (Value::Object(wanted), Value::Object(found)) => {
                for (field, value) in wanted {
                    self.matches(value, found.get(field).unwrap_or(&Value::Null))
                        .map_err(|text| format!("{field}: {text}"))?;
                }
                true
            }
            (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
                wanted.iter().zip(found).try_for_each(|(wanted, found)| self.matches(wanted, found))?;
                true
            }
            (Value::String(text), _) if text.starts_with('$') => {
                self.bound.entry(text).or_insert_with(|| found.clone()) == found
            }
            (Value::String(text), Value::Number(number)) => {
                let number = number.as_u64();
                match (text.strip_prefix('>'), text.split_once("..")) {
                    (Some(name), _) => number > self.bound.get(name).and_then(Value::as_u64),
                    (_, Some((from, to))) => number >= from.parse().ok() && number <= to.parse().ok(),
                    _ => false,
                }
            }
            _ => wanted == found,
        };
        if matches { Ok(()) } else { Err(format!("{wanted} is expected, and {found} is there")) }
    }
}

/// A driver that runs, or the command.
struct Program {
    name: &'static str,
    child: ChildGuard,
    patience: Duration,
    /// Closed at the end.
    input: Option<ChildStdin>,
    lines: Lines,
    /// The operations that its `hello` lists.
    has: BTreeSet<String>,
    /// Events that have been read, and not been expected yet.
    events: Vec<Value>,
}

impl Program {
    fn start(name: &'static str, command: &mut Command, patience: Duration) -> Result<Self, String> {
        let mut child = ChildGuard::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let (input, lines) = (Some(child.stdin()), child.lines());
        let mut program =
            Self { name, child, patience, input, lines, has: BTreeSet::new(), events: Vec::new() };
        let hello = program.read()?.ok_or("no hello came")?;
        if hello["event"] != "hello" || hello["lines"] != 1 {
            return Err(format!("the first line is no hello: {hello}"));
        }
        program.has = fields_of(&hello);
        Ok(program)
    }

    /// Fails if a line has a field that this driver does not have.
    fn has(&self, line: &Value) -> Result<(), Stop> {
        let fields = line.as_object().into_iter().flat_map(Map::keys);
        let missing: BTreeSet<_> =
            fields.filter(|field| *field != "id" && !self.has.contains(*field)).cloned().collect();
        // The fields of an inspection and of a change are not in a hello.
        let is_call =
            ["inspect", "change"].iter().any(|call| line.get(call).is_some() && self.has.contains(*call));
        if missing.is_empty() || is_call { Ok(()) } else { Err(Stop::Outside(missing)) }
    }

    fn write(&mut self, line: &Value) -> Result<(), String> {
        let input = self.input.as_mut().expect("open until the end");
        writeln!(input, "{line}").map_err(|error| format!("{} does not read: {error}", self.name))
    }

    /// Reads a line.
    fn read(&mut self) -> Result<Option<Value>, String> {
        let line = self.lines.next_line(self.patience);
        line.map(|line| parsed(&line)).transpose()
    }

    /// The next event of the id that is wanted, without those that need not come.
    fn event(&mut self, wanted: &Value) -> Result<Value, String> {
        loop {
            let fits = |event: &Value| {
                event["id"] == wanted["id"] && (!is_optional(event) || event["event"] == wanted["event"])
            };
            if let Some(number) = self.events.iter().position(fits) {
                return Ok(self.events.remove(number));
            }
            let Some(event) = self.read()? else {
                return Err(format!("it does not come; not expected yet were {:?}", self.events));
            };
            self.events.push(event);
        }
    }

    /// Demands that no event has come that no step expects.
    fn has_no_more(&mut self) -> Result<(), String> {
        while let Some(line) = self.lines.next_line(Duration::ZERO) {
            self.events.push(parsed(&line)?);
        }
        match self.events.iter().find(|event| !is_optional(event)) {
            Some(event) => Err(format!("{} has written what no step expects: {event}", self.name)),
            None => Ok(()),
        }
    }

    /// Closes the input, and demands that nothing but releases come, and grants to those that still wait.
    fn end(&mut self) -> Result<(), String> {
        let name = self.name;
        if !self.child.is_running() {
            return Ok(());
        }
        self.input = None;
        while let Some(event) = self.read()? {
            self.events.push(event);
        }
        let status = self.child.wait_timeout(self.patience).ok_or_else(|| format!("{name} does not end"))?;
        if !status.success() {
            return Err(format!("{name} has ended with {status}"));
        }
        match self.events.iter().find(|event| {
            !is_optional(event) && !["granted", "released"].iter().any(|last| event["event"] == *last)
        }) {
            Some(event) => Err(format!("{name} has written what no step expects: {event}")),
            None => Ok(()),
        }
    }
}

/// Returns whether a driver may leave an event out, or write it when nobody expects it.
fn is_optional(event: &Value) -> bool {
    event.get("answers").is_none() && ["waiting", "held", "unsure"].iter().any(|name| event["event"] == *name)
}

/// The lines and options that a `hello` names.
pub(crate) fn fields_of(hello: &Value) -> BTreeSet<String> {
    hello["has"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The semaphores of a line.
fn named(line: &Value) -> Vec<String> {
    let also = line["also"].as_array().into_iter().flatten().map(|request| &request["acquire"]);
    also.chain([&line["acquire"]]).filter_map(Value::as_str).map(str::to_owned).collect()
}

fn parsed(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}: {text}"))
}
