//! Programs between a terminal and the command, on either side of `permits run`: `sudo`, `tini`, `script`,
//! `expect` and `ssh`.
//!
//! Through each of them the exit code comes back, Ctrl-C reaches the command, and where a shell of the
//! terminal has job control, the job can be suspended and continued.

use std::fs;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use permits_testkit::server::own_address;
use permits_testkit::{ChildGuard, skip, wait};

use crate::support::{Local, Store, counts};
use crate::terminal::{CTRL_C, CTRL_Z, Terminal};

const RUN: &str = "\"$P\" run semaphore --limit 1";

/// A shell on a terminal, with the scripts of a command in its directory.
struct Session {
    store: Local,
    terminal: Terminal,
    directory: tempfile::TempDir,
}

impl Session {
    #[track_caller]
    fn start() -> Self {
        let (store, directory) = (Local::new(), tempfile::tempdir().expect("a directory"));
        for (name, script) in [
            ("ends", "exit 7"),
            ("traps", "trap 'echo bye; exit 5' INT; echo ready; while :; do sleep 0.02; done"),
            (
                "reads",
                "echo ready; while read line; do echo \"read: $line\"; [ \"$line\" != end ] || exit 9; done",
            ),
        ] {
            fs::write(directory.path().join(name), script).expect("it is ours");
        }
        let mut terminal = Terminal::shell(&store);
        terminal.types(&format!("cd {}\n", directory.path().display()));
        terminal.shows("prompt> ");
        Self { store, terminal, directory }
    }

    /// Types a line, and leaves its echo behind.
    #[track_caller]
    fn types(&mut self, line: &str) {
        self.terminal.types(&format!("{line}\n"));
        self.terminal.shows("\n");
    }

    /// Waits for the end of the line that was typed, with this exit code.
    #[track_caller]
    fn ends(&mut self, code: i32) {
        self.terminal.shows("prompt> ");
        self.types("echo code' '$?.");
        self.terminal.shows(&format!("code {code}."));
        self.terminal.shows("prompt> ");
        assert_eq!(counts(&self.store, "semaphore"), (0, 0), "{}", self.terminal.screen());
    }

    /// The exit code and Ctrl-C pass through `line`, which has `SCRIPT` in the place of the command's script.
    #[track_caller]
    fn passes_through(&mut self, line: &str) {
        self.types(&line.replace("SCRIPT", "ends"));
        self.ends(7);
        self.types(&line.replace("SCRIPT", "traps"));
        self.terminal.shows("ready");
        self.terminal.types(CTRL_C);
        self.terminal.shows("bye");
        self.ends(5);
    }

    /// The job of `line` can be suspended and continued twice, and has the terminal again.
    #[track_caller]
    fn suspends(&mut self, line: &str) {
        self.types(&line.replace("SCRIPT", "reads"));
        self.terminal.shows("ready");
        for round in ["one", "two"] {
            self.types(round);
            self.terminal.shows(&format!("read: {round}"));
            self.terminal.types(CTRL_Z);
            self.terminal.shows("Stopped");
            self.terminal.shows("prompt> ");
            assert_eq!(counts(&self.store, "semaphore"), (1, 0), "{}", self.terminal.screen());
            self.types("fg");
            self.terminal.shows("\n");
        }
        self.types("end");
        self.terminal.shows("read: end");
        self.ends(9);
    }

    #[track_caller]
    fn finish(mut self) {
        self.terminal.types("exit 0\n");
        assert_eq!(self.terminal.finish(), 0);
    }
}

/// `sudo` gives its command a terminal of its own if its settings say so (`use_pty`), as they do in Debian.
#[test]
fn sudo_may_be_before_or_behind_it() {
    if skip::unless_it_runs(Command::new("sudo").args(["-n", "true"])) {
        return;
    }
    let mut session = Session::start();
    for line in [
        format!("sudo -n --preserve-env=P,PERMITS_URL {RUN} -- sh SCRIPT"),
        format!("{RUN} -- sudo -n sh SCRIPT"),
    ] {
        session.passes_through(&line);
        session.suspends(&line);
    }
    session.finish();
}

/// The first process of many containers. It gives its command a process group of its own, and the terminal.
#[test]
fn tini_may_be_before_or_behind_it() {
    if skip::without_program("tini") {
        return;
    }
    let mut session = Session::start();
    for line in [format!("tini -s -- {RUN} -- sh SCRIPT"), format!("{RUN} -- tini -s -- sh SCRIPT")] {
        session.passes_through(&line);
    }
    session.finish();
}

#[test]
fn script_may_be_before_or_behind_it() {
    if skip::without_program("script") {
        return;
    }
    let mut session = Session::start();
    // A shell that waits for its last command, as dash does, would end by the signal itself.
    for line in [
        format!("script -qec 'exec {RUN} -- sh SCRIPT' /dev/null"),
        format!("{RUN} -- script -qec 'exec sh SCRIPT' /dev/null"),
    ] {
        session.passes_through(&line);
    }
    session
        .types("script -qec 'export PS1=\"prompt> \"; exec bash --norc --noprofile --noediting' /dev/null");
    session.terminal.shows("prompt> ");
    session.suspends(&format!("{RUN} -- sh SCRIPT"));
    session.types("exit");
    session.terminal.shows("prompt> ");
    session.finish();
}

/// `expect` has the terminal in raw mode and types Ctrl-C on the terminal that it has made.
#[test]
fn expect_may_be_before_or_behind_it() {
    if skip::without_program("expect") {
        return;
    }
    let mut session = Session::start();
    let interacts = "spawn -noecho {*}$argv; interact; exit [lindex [wait] 3]";
    fs::write(session.directory.path().join("interacts"), interacts).expect("it is ours");
    for line in
        [format!("expect interacts {RUN} -- sh SCRIPT"), format!("{RUN} -- expect interacts sh SCRIPT")]
    {
        session.passes_through(&line);
    }
    session.finish();
}

/// A login by `ssh -t` on a server of this test.
#[test]
fn ssh_leads_to_it() {
    if skip::without_program("ssh") || skip::without_program("ssh-keygen") {
        return;
    }
    let mut session = Session::start();
    let directory = session.directory.path().to_owned();
    let file = |name: &str| directory.join(name).display().to_string();
    for key in ["host", "user"] {
        let mut keygen = Command::new("ssh-keygen");
        let made = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(directory.join(key)).status();
        assert!(made.expect("it starts").success());
    }
    let address = own_address();
    let port = address.port();
    let sshd = |mode: &str| {
        let mut server = Command::new("/usr/sbin/sshd");
        server.args([mode, "-e", "-f", "/dev/null", "-p", &port.to_string(), "-h", &file("host")]);
        let keys = format!("AuthorizedKeysFile={}", file("user.pub"));
        for option in ["UsePAM=no", "StrictModes=no", "PidFile=none", "ListenAddress=127.0.0.1", &keys] {
            server.args(["-o", option]);
        }
        server
    };
    // The server's own check says what is missing, such as a directory that the service makes.
    if skip::unless_it_runs(&mut sshd("-t")) {
        return;
    }
    let log = fs::File::create(file("log")).expect("it is ours");
    let _server = ChildGuard::spawn(sshd("-D").stdin(Stdio::null()).stderr(log));
    let ssh = format!(
        "ssh -F /dev/null -q -tt -p {port} -i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
         -o IdentitiesOnly=yes 127.0.0.1",
        file("user"),
    );
    let reached = wait::until(|| TcpStream::connect(address).is_ok());
    assert!(reached, "{}", fs::read_to_string(file("log")).unwrap_or_default());
    // The shell of a login has an environment of its own.
    let within = format!(
        "export P={:?} PERMITS_URL={:?} PS1='prompt> ' HOME=/dev/null; cd {}",
        env!("CARGO_BIN_EXE_permits"),
        session.store.url(),
        directory.display(),
    );
    fs::write(directory.join("within"), within).expect("it is ours");
    let within = format!(". {}", file("within"));
    session.passes_through(&format!("{ssh} '{within}; {RUN} -- sh SCRIPT'"));
    session.passes_through(&format!("{RUN} -- {ssh} '{within}; sh SCRIPT'"));
    session.types(&format!("{ssh} '{within}; exec bash --norc --noprofile --noediting -i'"));
    session.terminal.shows("prompt> ");
    session.suspends(&format!("{RUN} -- sh SCRIPT"));
    session.types("exit");
    session.terminal.shows("prompt> ");
    session.finish();
}
