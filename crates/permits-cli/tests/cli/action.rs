//! `contrib/action/`, with the environment that a runner of GitHub gives to its scripts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use permits_testkit::{skip, wait};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    Holder, Local, Output, Running, Store as _, counts, output, revoke, status, until_counts,
};

const NAME: &str = "exports";

/// A job: its inputs, and the files of the runner.
struct Job<'a> {
    store: &'a Local,
    inputs: Vec<(&'static str, String)>,
    temp: TempDir,
}

fn action() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/action")
}

/// The file that `action.yml` names for a key of `runs`.
#[track_caller]
fn script(key: &str) -> PathBuf {
    let text = fs::read_to_string(action().join("action.yml")).expect("it is there");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("  {key}: ")).map(str::to_owned));
    action().join(line.expect("the key is there"))
}

impl<'a> Job<'a> {
    fn new(store: &'a Local, name: &str, inputs: &[(&'static str, &str)]) -> Self {
        let mut inputs: Vec<_> = inputs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        // The first of a name counts.
        inputs.extend([("url", store.url()), ("name", name.to_owned())]);
        inputs.push(("program", env!("CARGO_BIN_EXE_permits").to_owned()));
        Self { store, inputs, temp: TempDir::new().expect("a directory") }
    }

    /// A script of the action. Inputs that are not set are empty, as a runner sets them.
    #[track_caller]
    fn script(&self, key: &str) -> Command {
        let mut command = Command::new("node");
        command.arg(script(key)).stdin(Stdio::null()).env("RUNNER_TEMP", self.temp.path());
        for file in ["STATE", "OUTPUT"] {
            command.env(format!("GITHUB_{file}"), self.temp.path().join(file));
        }
        let text = fs::read_to_string(action().join("action.yml")).expect("it is there");
        let inputs = text.split("\noutputs:").next().and_then(|text| text.split("inputs:\n").nth(1));
        for input in inputs.expect("it has inputs").lines().filter(|line| !line.starts_with("    ")) {
            let name = input.trim().trim_end_matches(':');
            let value = self.inputs.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value);
            command.env(format!("INPUT_{}", name.to_uppercase()), value);
        }
        for (key, value) in self.file("STATE") {
            command.env(format!("STATE_{key}"), value);
        }
        command
    }

    /// The lines of a file of the runner.
    fn file(&self, name: &str) -> BTreeMap<String, String> {
        let text = fs::read_to_string(self.temp.path().join(name)).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[track_caller]
    fn main(&self) -> BTreeMap<String, String> {
        let main = output(&mut self.script("main"));
        assert_eq!(main.code, 0, "{} {}", main.stdout, main.stderr);
        let outputs = self.file("OUTPUT");
        // As the runner reads it.
        let masked = outputs["handle"].replace('%', "%25");
        assert!(main.stdout.starts_with(&format!("::add-mask::{masked}\n")), "{}", main.stdout);
        outputs
    }

    #[track_caller]
    fn post(&self) -> Output {
        output(&mut self.script("post"))
    }

    /// True if a process of this job runs.
    fn is_running(&self) -> bool {
        let directory = self.temp.path().to_str().expect("text").as_bytes();
        let processes = fs::read_dir("/proc").expect("it is Linux").flatten();
        processes
            .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
            .any(|command| command.windows(directory.len()).any(|window| window == directory))
    }

    #[track_caller]
    fn leaves_nothing(&self, name: &str) {
        assert_eq!(counts(self.store, name), (0, 0));
        assert!(wait::until(|| !self.is_running()), "the renewals end");
        let left = fs::read_dir(self.temp.path()).expect("it is there").flatten();
        assert_eq!(left.filter(|file| file.path().is_dir()).count(), 0);
    }
}

#[test]
fn the_permit_is_renewed_until_the_post_step_releases_it() {
    if skip::without_program("node") {
        return;
    }
    let store = Local::new();
    // A label that is too long is cut between characters.
    let label = "ü".repeat(100);
    let inputs = [("limit", "3"), ("weight", "2"), ("lease", "4s"), ("label", label.as_str())];
    let job = Job::new(&store, NAME, &inputs);
    let outputs = job.main();
    let held = || status(&store, NAME)["holders"][0].clone();
    assert_eq!((&held()["label"], &held()["weight"]), (&json!("ü".repeat(60)), &json!(2)));
    assert_eq!(held()["token"].to_string(), outputs["token"]);
    assert_eq!(held()["slot"].to_string(), outputs["slot"]);
    // Longer than a lease, by the store's clock.
    assert!(wait::until(|| held()["age_ms"].as_u64().is_none_or(|age| age > 4500)));
    assert_eq!(held()["token"].to_string(), outputs["token"]);

    let post = job.post();
    assert_eq!((post.code, post.stdout.as_str(), post.stderr.as_str()), (0, "", ""));
    job.leaves_nothing(NAME);
}

#[test]
fn the_permit_of_a_runner_that_crashes_ends_with_its_lease() {
    if skip::without_program("node") {
        return;
    }
    let store = Local::new();
    let job = Job::new(&store, NAME, &[("limit", "1"), ("lease", "5s")]);
    // A runner that runs the step, and goes on.
    let step = job.script("main");
    let mut runner = Command::new("sh");
    runner.args(["-c", "\"$@\"; exec sleep 600", "sh"]).arg(step.get_program()).args(step.get_args());
    runner.envs(step.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let runner = Running::start(&mut runner);
    until_counts(&store, NAME, (1, 0));
    // Longer than a lease, by the store's clock.
    let age = || status(&store, NAME)["holders"][0]["age_ms"].as_u64();
    assert!(wait::until(|| age().is_none_or(|age| age > 5500)));
    assert_eq!(counts(&store, NAME), (1, 0), "it is renewed");
    runner.signal(Signal::KILL);
    runner.finish();
    until_counts(&store, NAME, (0, 0));
    assert!(wait::until(|| !job.is_running()), "the renewals end");
}

#[test]
fn a_permit_that_cannot_be_noted_is_released() {
    if skip::without_program("node") {
        return;
    }
    let store = Local::new();
    let job = Job::new(&store, NAME, &[("limit", "1")]);
    let main = output(job.script("main").env("RUNNER_TEMP", "/nowhere"));
    assert_eq!(main.code, 1, "{main:?}");
    assert!(main.stdout.contains("::error::the permit was released"), "{}", main.stdout);
    assert_eq!(counts(&store, NAME), (0, 0));
    // The handle has a `%`, which commands to the runner escape.
    let job = Job::new(&store, "50%", &[("limit", "1")]);
    job.main();
    job.post().ends(0);
    job.leaves_nothing("50%");
}

#[test]
fn a_permit_that_was_lost_fails_the_post_step() {
    if skip::without_program("node") {
        return;
    }
    let store = Local::new();
    let job = Job::new(&store, NAME, &[("limit", "1"), ("holder", "job-7"), ("lease", "1m")]);
    job.main();
    revoke(&store, NAME, "job-7", "maintenance");
    let post = job.post();
    post.ends(1);
    assert!(post.stdout.contains("::error::the permit was lost during the job"), "{}", post.stdout);
    job.leaves_nothing(NAME);
}

#[test]
fn a_step_without_a_permit_fails_and_its_post_step_does_nothing() {
    if skip::without_program("node") {
        return;
    }
    let store = Local::new();
    let holder = Holder::start(&store, NAME, "--limit 1");
    for (name, input, says) in [
        (NAME, ("timeout", "0"), "::error::no permit of exports: permits ended with 75"),
        (NAME, ("timeout", "50ms"), "::error::no permit of exports: permits ended with 75"),
        (NAME, ("program", "/nowhere/permits"), "::error::/nowhere/permits cannot be started"),
        ("s\n::add-mask::deploy\r::stop", ("limit", "1"), "no permit of s%0A::add-mask::deploy%0D::stop"),
    ] {
        let job = Job::new(&store, name, &[input]);
        let main = output(&mut job.script("main"));
        assert_eq!((main.code, main.stdout.lines().count()), (1, 1), "{main:?}");
        assert!(main.stdout.contains(says), "{}", main.stdout);
        job.post().ends(0);
    }
    // A job that is cancelled leaves the line.
    let job = Job::new(&store, NAME, &[]);
    let waiting = Running::start(&mut job.script("main"));
    until_counts(&store, NAME, (1, 1));
    waiting.signal(Signal::INT);
    waiting.finish().ends(1);
    until_counts(&store, NAME, (1, 0));
    job.post().ends(0);
    holder.release();
    job.leaves_nothing(NAME);
}

#[test]
fn the_post_step_needs_the_directory_of_the_main_step_and_deletes_no_other() {
    if skip::without_program("node") {
        return;
    }
    let store = Local::new();
    let job = Job::new(&store, NAME, &[("limit", "1")]);
    for directory in ["permits-1/permits-2", "other"] {
        let directory = job.temp.path().join(directory);
        fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("handle");
        fs::write(&file, "a handle").expect("a file");
        let post = output(job.script("post").env("STATE_file", &file));
        assert_eq!((post.code, post.stderr.as_str()), (1, ""));
        assert!(post.stdout.starts_with("::error::the state of the step was changed"), "{}", post.stdout);
        assert!(file.exists());
    }
    // A file with a URL that the runner's environment names does not count.
    let main = output(job.script("main").env("PERMITS_URL_FILE", "/nowhere/url"));
    main.ends(0);
    fs::remove_file(&job.file("STATE")["file"]).expect("it is there");
    let post = output(job.script("post").env("PERMITS_URL_FILE", "/nowhere/url"));
    assert_eq!((post.code, post.stderr.as_str()), (1, ""));
    assert!(post.stdout.starts_with("::error::the file with the handle was removed"), "{}", post.stdout);
}
