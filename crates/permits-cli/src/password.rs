//! A password from a command: `PERMITS_PASSWORD_COMMAND`.
//!
//! `sh` runs it for each login, with the environment of this command, its standard error and no input. It is
//! a process group of its own, so that all of it is killed when its time is over. No message contains what it
//! prints, or its text: either may have the password.
//!
//! The shell prints the exit code behind the output. The system would tell it too, but not only here:
//! `permits run` adopts orphans and so waits for every child of this process.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use permits::Credentials;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

/// The time that the command has.
const LIMIT: Duration = Duration::from_secs(10);

/// The most bytes that it may print.
const LONGEST: usize = 16 << 10;

/// Runs its argument, and prints the exit code between a NUL and a newline.
const SHELL: &str = r#"(eval "$1"); printf '\000%d\n' $?"#;

/// A line of JSON, in place of a password.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Printed {
    password: String,
    username: Option<String>,
    expires_in_s: Option<f64>,
}

/// The password that the command prints. Blocks until it has ended.
pub(crate) fn from_command(text: &str) -> Result<Credentials, String> {
    run(text, LIMIT)
}

fn run(text: &str, limit: Duration) -> Result<Credentials, String> {
    let mut command = Command::new("sh");
    command.args(["-c", SHELL, "sh", text]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("sh: {error}"))?;
    let printed = output_of(&mut child, limit);
    if printed.is_err() {
        end(&child);
    }
    // Fails if another part of this process was faster.
    let _ = child.wait();
    credentials_in(&printed?)
}

/// Returns the output of the command, once it has ended well.
fn output_of(child: &mut Child, limit: Duration) -> Result<Vec<u8>, String> {
    let until = Instant::now() + limit;
    let late =
        || format!("it has not ended within {limit:?}: run it by hand; it gets no input, and no terminal");
    let failed = |error: io::Error| error.to_string();
    let mut out = File::from(OwnedFd::from(child.stdout.take().ok_or("it has no output")?));
    let mut printed = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| late())?;
        match poll(&mut [PollFd::new(&out, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(late()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(failed(error.into())),
        }
        let mut bytes = [0; 4096];
        match out.read(&mut bytes).map_err(failed)? {
            0 => return Err("it was killed".to_owned()),
            read => printed.extend_from_slice(&bytes[..read]),
        }
        if printed.len() > LONGEST {
            return Err("it prints more than 16 kB: let it print the password alone".to_owned());
        }
        // Look for the exit code, because a process that the command left in the background may keep the
        // output open.
        if let Some(code) = exit_code(&printed) {
            let length = printed.len() - code.len() - 2;
            if code != "0" {
                return Err(format!("it ended with exit code {code}, and says why on its standard error"));
            }
            printed.truncate(length);
            return Ok(printed);
        }
    }
}

/// The exit code behind the output, once all of it is there.
fn exit_code(printed: &[u8]) -> Option<&str> {
    let end = printed.iter().rposition(|byte| *byte == 0)? + 1;
    let code = str::from_utf8(&printed[end..]).ok()?.strip_suffix('\n')?;
    code.parse::<u8>().is_ok().then_some(code)
}

/// Kills the command with all that it has started.
fn end(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Fails if it has just ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn credentials_in(printed: &[u8]) -> Result<Credentials, String> {
    let text = str::from_utf8(printed).map_err(|_| "it prints text that is not UTF-8")?;
    if text.starts_with('{') && serde_json::from_str::<serde_json::Value>(text).is_ok() {
        // The fault of serde may contain a value.
        let printed: Printed = serde_json::from_str(text).map_err(|_| {
            "its JSON must have \"password\", and may have \"username\" and \"expires_in_s\", and nothing else"
        })?;
        let expires = printed.expires_in_s.map(|seconds| {
            let valid = Duration::try_from_secs_f64(seconds).ok().filter(|valid| !valid.is_zero());
            valid.ok_or("expires_in_s in its JSON must be a number of seconds above 0")
        });
        let mut credentials = Credentials::new(some(&printed.password)?);
        if let Some(user) = printed.username {
            credentials = credentials.user(user);
        }
        return Ok(match expires.transpose()? {
            Some(valid) => credentials.expires_in(valid),
            None => credentials,
        });
    }
    Ok(Credentials::new(some(text.lines().next().unwrap_or_default())?))
}

fn some(password: &str) -> Result<&str, &'static str> {
    if password.is_empty() { Err("it prints no password on its first line") } else { Ok(password) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_password_and_json_may_say_more() {
        for (command, expected) in [
            ("echo a b; echo more", Credentials::new("a b")),
            ("printf x", Credentials::new("x")),
            ("echo '{x'", Credentials::new("{x")),
            (
                r#"echo '{"username": "u", "password": "p", "expires_in_s": 1.5}'"#,
                Credentials::new("p").user("u").expires_in(Duration::from_millis(1500)),
            ),
            ("printf '{\n\"password\": \"p\"\n}\n'", Credentials::new("p")),
        ] {
            assert_eq!(from_command(command).as_ref(), Ok(&expected), "{command}");
        }
    }

    #[test]
    fn a_fault_is_named_without_what_was_printed() {
        for (command, fault) in [
            ("echo s3cret; exit 3", "exit code 3"),
            ("echo s3cret; kill -9 $$", "it was killed"),
            ("echo s3cret; sh -c 'kill -9 $$'", "exit code 137"),
            ("echo 's3cret", "exit code 2"),
            ("echo; echo s3cret", "no password on its first line"),
            ("true", "no password"),
            (r"printf 's3cret\377'", "not UTF-8"),
            ("yes s3cret", "more than 16 kB"),
            (r#"echo '{"passwort": "s3cret"}'"#, "must have \"password\""),
            (r#"echo '{"password": 5}'"#, "must have \"password\""),
            (r#"echo '{"password": ""}'"#, "no password"),
            (r#"echo '{"password": "s3cret", "expires_in_s": 0}'"#, "above 0"),
            (r#"echo '{"password": "s3cret", "expires_in_s": -1e300}'"#, "above 0"),
        ] {
            let found = from_command(command).expect_err(command);
            assert!(found.contains(fault) && !found.contains("s3cret"), "{command}: {found}");
        }
    }

    /// The kill reaches processes that the command has started, and processes that ignore signals.
    #[test]
    fn a_command_that_hangs_is_killed_with_all_that_it_has_started() {
        let directory = tempfile::tempdir().expect("there is room");
        let file = directory.path().join("pid");
        let text = format!("trap '' TERM INT; sleep 1000 & echo $! >{}; exec >&-; wait", file.display());
        let late = run(&text, Duration::from_secs(5)).expect_err("it hangs");
        assert!(late.starts_with("it has not ended within 5s"), "{late}");
        let pid = std::fs::read_to_string(&file).expect("five seconds are enough");
        let gone = || {
            // A killed orphan stays a zombie where nobody waits for orphans.
            let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            state.is_ok_and(|state| state.contains(") Z ")) || !state_exists(pid.trim())
        };
        assert!(permits_testkit::wait::until(gone), "{pid} runs");
    }

    fn state_exists(pid: &str) -> bool {
        std::path::Path::new("/proc").join(pid).exists()
    }

    #[test]
    fn what_it_leaves_in_the_background_is_not_waited_for() {
        // Longer than the limit.
        assert_eq!(from_command("sleep 20 & echo p"), Ok(Credentials::new("p")));
    }
}
