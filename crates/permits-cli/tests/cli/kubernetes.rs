//! The commands of `contrib/kubernetes/`, as a pod starts them. The Python package tests the manifests.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::documents::copies::{command, log_of};
use crate::serve::{Serve, TOKEN};
use crate::support::{Local, Running, Store as _, permits, prepare, until_counts};

#[track_caller]
fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/kubernetes").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The values of a key that are lists of words in one line.
#[track_caller]
fn words(manifest: &str, key: &str) -> Vec<String> {
    let line = manifest.lines().find_map(|line| line.trim().strip_prefix(key)).expect("the key is there");
    serde_json::from_str(line).expect("it is a list of words")
}

#[test]
fn the_deployment_answers_its_probes_and_shows_metrics_for_the_token() {
    let manifest = manifest("serve.yaml");
    let secret = TempDir::new().expect("a directory");
    let token = secret.path().join("token");
    fs::write(&token, TOKEN).expect("it can be written");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o440)).expect("it is ours");
    let mounted = secret.path().to_str().expect("text");
    let words: Vec<String> = words(&manifest, "args: ")
        .iter()
        .map(|word| word.replace("/run/secrets/permits", mounted).replace(":9710", ":0"))
        .collect();

    let store = Local::new();
    let mut serve = Serve::of(&mut permits(&store.url(), &words), None);
    assert!(serve.address.ip().is_unspecified(), "pods of other nodes reach it: {}", serve.address);
    serve.address.set_ip(Ipv4Addr::LOCALHOST.into());
    let probe = manifest.lines().find_map(|line| line.trim().strip_prefix("httpGet: { path: "));
    let probe = probe.and_then(|rest| rest.split(',').next()).expect("there is a probe");
    assert_eq!(serve.read(probe).status, 200);
    assert_eq!(serve.read("/metrics").status, 401);
    assert_eq!(serve.get("/metrics").bearer(TOKEN).send().status, 200);
    serve.end(Signal::TERM);
}

#[test]
fn one_of_the_clusters_runs_the_job() {
    let manifest = manifest("cronjob.yaml");
    let lines: String = manifest.lines().map(|line| command("yaml", line)).collect();
    assert!(lines.starts_with("'permits' 'run' ") && lines.lines().count() == 1, "{lines}");
    let log = log_of(&lines, 4, &["backup.sh"]);
    assert_eq!(log.lines().filter(|line| line.ends_with('+')).count(), 1, "{log}");
}

#[test]
fn the_sidecar_holds_the_permits_of_its_pod() {
    let manifest = manifest("sidecar.yaml");
    let directory = TempDir::new().expect("a directory");
    let mounted = |word: &str| word.replace("/run/permits", directory.path().to_str().expect("text"));
    let words: Vec<String> = words(&manifest, "args: ").iter().map(|word| mounted(word)).collect();
    let store = Local::new();
    prepare(&store, "exports");
    let sidecar = Running::until(&mut permits(&store.url(), &words), "listening on unix:");

    let mut lines = manifest.lines().skip_while(|line| !line.contains("name: PERMITS_SOCKET"));
    let socket = lines.nth(1).and_then(|line| line.trim().strip_prefix("value: ")).expect("a path");
    let mut worker = BufReader::new(UnixStream::connect(mounted(socket)).expect("it listens"));
    worker.get_mut().write_all(b"{\"id\":1,\"acquire\":\"exports\",\"limit\":1}\n").expect("it reads");
    let mut event = String::new();
    worker.read_line(&mut event).expect("it greets");
    assert!(event.starts_with("{\"event\":\"hello\""), "{event}");
    event.clear();
    worker.read_line(&mut event).expect("it answers");
    assert!(event.starts_with("{\"id\":1,\"event\":\"granted\""), "{event}");
    drop(worker);
    until_counts(&store, "exports", (0, 0));
    sidecar.signal(Signal::TERM);
    sidecar.finish().ends(143);
}
