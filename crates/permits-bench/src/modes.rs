//! The modes of a measurement: the state of the cores and of the network while it runs.
//!
//! A core without work halts, and waking it takes 20 to 30 µs, several times in each cycle of acquire and
//! release. On a machine that other work keeps awake, those times vanish. So figures that depend on it are
//! taken in both modes, and a ratio compares two figures of one mode.
//!
//! The mode *awake* puts the server on one core and its clients on another, and a process of the idle class
//! spins on each. The system lets the spinner run when the core would halt, and takes the core from it at
//! once. The spinners are child processes. They end with [`Awake`], and on Linux also when this process is
//! killed.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use permits_testkit::ChildGuard;

use crate::Failure;

/// The conditions of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The machine as it is: idle cores halt.
    Quiet,
    /// Cores never halt; server and clients have a core each.
    Awake,
    /// Quiet, with a link to the server that takes 0.5 ms each way.
    Delayed,
}

/// The delay of the link in one direction.
pub const LINK_DELAY: Duration = Duration::from_micros(500);

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Quiet, Self::Awake, Self::Delayed];

    /// The name on the command line, on pages and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Awake => "awake",
            Self::Delayed => "delayed",
        }
    }
}

/// The modes among these that this machine has, and the reason if it lacks the mode awake.
pub fn available(mut modes: Vec<Mode>) -> (Vec<Mode>, Option<String>) {
    if !modes.contains(&Mode::Awake) {
        return (modes, None);
    }
    let lacking = Awake::lacking();
    if let Some(reason) = &lacking {
        eprintln!("without the mode awake: {reason}");
        modes.retain(|mode| *mode != Mode::Awake);
    }
    (modes, lacking)
}

/// The mode awake, from its start until it is dropped. Processes that were pinned stay pinned, unless
/// [`free`](Self::free) is called.
#[derive(Debug)]
pub struct Awake {
    cores: Cores,
    _spinners: Vec<ChildGuard>,
}

/// Cores, as `taskset` writes them.
#[derive(Debug)]
struct Cores {
    server: String,
    clients: String,
    /// All that this process may use.
    all: String,
}

impl Awake {
    /// Starts the spinners.
    ///
    /// # Errors
    /// If the machine lacks this mode.
    pub fn start() -> Result<Self, Failure> {
        let cores = Cores::find()?;
        let mut spinners: Vec<_> = [&cores.server, &cores.clients].map(|core| spinner(core)).into();
        // A spinner that cannot run ends at once.
        sleep(Duration::from_millis(20));
        if spinners.iter_mut().all(ChildGuard::is_running) {
            Ok(Self { cores, _spinners: spinners })
        } else {
            Err("a spinner of the idle class does not run".into())
        }
    }

    /// The reason why this machine lacks the mode; `None` if it has the mode.
    fn lacking() -> Option<String> {
        for tool in ["taskset", "chrt"] {
            let found = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
            if !found.is_ok_and(|status| status.success()) {
                return Some(format!("{tool} is not installed"));
            }
        }
        Self::start().err().map(|error| error.to_string())
    }

    /// Moves all threads of a server to its core.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn pin_server(&self, pid: u32) -> Result<(), Failure> {
        pin(pid, &self.cores.server)
    }

    /// Moves all threads of a client to the core of the clients. Its children start there too.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn pin_client(&self, pid: u32) -> Result<(), Failure> {
        pin(pid, &self.cores.clients)
    }

    /// Lets a process use all cores again.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn free(&self, pid: u32) -> Result<(), Failure> {
        pin(pid, &self.cores.all)
    }
}

impl Cores {
    fn find() -> Result<Self, Failure> {
        let status = fs::read_to_string("/proc/self/status").map_err(|_| "the system has no /proc")?;
        let all = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let all = all.ok_or("the system does not show the cores of a process")?.trim();
        let mut cores = all.split(',').flat_map(range);
        match (cores.next(), cores.next()) {
            (Some(server), Some(clients)) => {
                let [server, clients] = [server, clients].map(|core| core.to_string());
                Ok(Self { server, clients, all: all.to_owned() })
            }
            _ => Err("this process has one core".into()),
        }
    }
}

/// The cores of `3` or `0-3`.
fn range(cores: &str) -> impl Iterator<Item = u32> + use<> {
    let (first, last) = cores.split_once('-').unwrap_or((cores, cores));
    let [first, last] = [first, last].map(|core| core.parse::<u32>().ok());
    first.zip(last).into_iter().flat_map(|(first, last)| first..=last)
}

fn spinner(core: &str) -> ChildGuard {
    let spin = ["chrt", "-i", "0", "sh", "-c", "while :; do :; done"];
    ChildGuard::spawn(Command::new("taskset").args(["-c", core]).args(spin).stderr(Stdio::null()))
}

fn pin(pid: u32, cores: &str) -> Result<(), Failure> {
    let mut taskset = Command::new("taskset");
    let output = taskset.args(["-a", "-c", "-p", cores, &pid.to_string()]).output()?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!("process {pid} cannot be moved to core {cores}: {}", reason.trim()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_may_have_ranges() {
        let cores = |list: &str| list.split(',').flat_map(range).collect::<Vec<_>>();
        assert_eq!(cores("0-1"), [0, 1]);
        assert_eq!(cores("3"), [3]);
        assert_eq!(cores("1,4-6"), [1, 4, 5, 6]);
    }
}
