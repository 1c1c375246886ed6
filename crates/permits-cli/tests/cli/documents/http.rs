//! The programs in blocks with the words `run=http.rs`, which use `permits serve --acquire`: those whose
//! programs this machine has.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use permits_testkit::{documents, skip, wait};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::serve::http::Request;
use crate::serve::{Serve, TOKEN};
use crate::support::{
    Holder, Local, Output, Running, Store as _, add_program, counts, output, prepare, until_counts,
    without_home,
};

/// A directory with the programs of the page, and a server of permits.
struct Example {
    directory: TempDir,
    store: Local,
    serve: Serve,
}

impl Example {
    #[track_caller]
    fn new() -> Self {
        let (directory, store) = (TempDir::new().expect("a directory"), Local::new());
        prepare(&store, "exports");
        let serve = Serve::acquiring(&store.url(), TOKEN, &[]);
        let example = Self { directory, store, serve };
        example.write("tokens", &format!("{TOKEN}\n"));
        add_program(example.path(), "export.sh", "#!/bin/sh\necho exported\n");
        example
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    #[track_caller]
    fn write(&self, file: &str, text: &str) {
        fs::write(self.path().join(file), text).expect("it can be written");
    }

    /// The one block in this language, which uses this server.
    #[track_caller]
    fn block(&self, language: &str) -> String {
        let pages = documents::pages();
        let blocks = documents::blocks_of(&pages, "http.rs");
        let mut found = blocks.iter().filter(|block| block.language == language);
        let text = found.next().expect("there is one").text.to_owned() + "\n";
        assert!(found.next().is_none(), "there are several in {language}");
        assert!(text.contains("127.0.0.1:9710"), "{text}");
        text.replace("127.0.0.1:9710", &self.serve.address.to_string())
    }

    fn command(&self, program: &str, argument: &str) -> Command {
        let mut command = Command::new(program);
        command.arg(argument).current_dir(self.path()).env("PERMITS_BEARER", TOKEN);
        without_home(&mut command);
        command
    }

    /// Demands that the program waits for a permit, works with it, and releases it.
    #[track_caller]
    fn is_kept_by(&self, program: &str, argument: &str) -> Output {
        let holder = Holder::start(&self.store, "exports", "--limit 4 --weight 4");
        let running = Running::start(&mut self.command(program, argument));
        until_counts(&self.store, "exports", (1, 1));
        holder.release();
        let ended = running.finish();
        assert!(ended.code == 0 && ended.stdout.contains("exported"), "{program}: {ended:?}");
        assert_eq!(counts(&self.store, "exports"), (0, 0));
        ended
    }

    /// Demands that the program does not work without a permit.
    #[track_caller]
    fn fails_without_a_permit(&self, program: &str, argument: &str) {
        let close = ["close", "exports", "--reason", "moved to another line"];
        output(&mut crate::support::permits(&self.store.url(), close)).ends(0);
        let ended = output(&mut self.command(program, argument));
        let said = ended.stdout.clone() + &ended.stderr;
        assert!(ended.code != 0 && said.contains("moved to another line"), "{program}: {ended:?}");
        assert!(!ended.stdout.contains("exported"), "{program}: {ended:?}");
    }
}

#[test]
fn each_block_of_the_page_is_run() {
    let pages = documents::pages();
    let blocks = documents::blocks_of(&pages, "http.rs");
    let mut languages: Vec<&str> = blocks.iter().map(|block| block.language).collect();
    languages.sort_unstable();
    assert_eq!(languages, ["javascript", "nginx", "php", "sh"]);
}

#[test]
fn curl_waits_works_and_releases() {
    if skip::without_program("curl") {
        return;
    }
    let example = Example::new();
    example.write("program.sh", &example.block("sh"));
    let ended = example.is_kept_by("bash", "program.sh");
    assert!(ended.stdout.ends_with("{\"released\":true}\n"), "{ended:?}");
    example.fails_without_a_permit("bash", "program.sh");
}

#[test]
fn php_waits_works_and_releases() {
    if skip::without_program("php") {
        return;
    }
    let example = Example::new();
    example.write("program.php", &example.block("php"));
    example.is_kept_by("php", "program.php");
    example.fails_without_a_permit("php", "program.php");
}

#[test]
fn a_function_waits_works_and_releases() {
    if skip::without_program("node") {
        return;
    }
    let example = Example::new();
    example.write("function.mjs", &example.block("javascript"));
    example.write("work.mjs", "export const work = async (event) => `${event} exported`;\n");
    let call = "import { handler } from './function.mjs';\nconsole.log(await handler('x'));\n";
    example.write("call.mjs", call);
    example.is_kept_by("node", "call.mjs");
    example.fails_without_a_permit("node", "call.mjs");
}

/// A port that was free a moment ago.
fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("there is one")
}

#[test]
fn nginx_admits_at_the_rate_and_says_when_to_come_again() {
    if skip::without_program("nginx") {
        return;
    }
    let example = Example::new();
    prepare(&example.store, "api");
    let block = example.block("nginx");
    assert!(block.contains("\"limit\":100,"), "{block}");
    let (front, back) = (free_port(), free_port());
    let block =
        block.replace("Bearer TOKEN", &format!("Bearer {TOKEN}")).replace("\"limit\":100,", "\"limit\":2,");
    let block = block.replace("127.0.0.1:8080", &back.to_string());
    let of = |name: &str| example.path().join(name).display().to_string();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {};\n", of(kind)))
        .concat();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {};\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n\
         {temporary}server {{\nlisten {front};\n{block}}}\nserver {{\nlisten {back};\nreturn 200 'served';\n}}\n}}\n",
        of("nginx.pid")
    );
    example.write("nginx.conf", &text);
    let mut nginx = Command::new("nginx");
    nginx.args(["-p", &of("."), "-c", &of("nginx.conf"), "-e", "stderr"]);
    let nginx = Running::start(&mut nginx);
    let listens = || std::net::TcpStream::connect(front).is_ok();
    assert!(wait::until(listens), "{}", nginx.stderr());
    // The server of permits gets no header that the client sends.
    let get = || {
        Request::new(front, "GET", "/").header("Idempotency-Key", "mine").header("Prefer", "wait=60").send()
    };
    for _ in 0..2 {
        let served = get();
        assert_eq!((served.status, &*served.body), (200, "served"), "{}", nginx.stderr());
    }
    // The permit is held for a second, and counts on after that.
    let knows_when = || {
        let refused = get();
        assert_eq!(refused.status, 429, "{refused:?}");
        refused
            .header("retry-after")
            .and_then(|after| after.parse::<u64>().ok())
            .is_some_and(|after| after > 30)
    };
    assert!(wait::until(knows_when), "{:?}", get());
    assert_eq!(Request::new(front, "GET", "/permits").send().status, 404, "it is internal");
    example.serve.end(Signal::TERM).ends(0);
    let away = Request::new(front, "GET", "/").send();
    assert_eq!(away.status, 503, "{away:?}");
    nginx.signal(Signal::TERM);
    nginx.finish();
}
