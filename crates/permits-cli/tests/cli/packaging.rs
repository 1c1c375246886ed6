//! The pieces of a release: each names the program, the files and the commands that there are.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use permits_testkit::skip;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::documents::copies::{command, log_of};
use crate::support::add_program;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

#[track_caller]
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The output of a program that is started in the repository.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().expect("it can be started");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.env("CARGO_NET_OFFLINE", "true");
    cargo
}

/// The packages of the workspace, as cargo reads them.
fn packages() -> Vec<Value> {
    let metadata = output(cargo().args(["metadata", "--format-version=1", "--no-deps"]));
    let metadata: Value = serde_json::from_str(&metadata).expect("it is JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

#[track_caller]
fn package(name: &str) -> Value {
    packages().into_iter().find(|package| package["name"] == name).expect("it is a member")
}

#[track_caller]
fn package_field(name: &str, field: &str) -> String {
    package(name)[field].as_str().expect("a text").to_owned()
}

#[test]
fn each_published_crate_has_its_licences_its_readme_and_the_words_that_find_it() {
    let is_published = |package: &Value| package["publish"] != json!([]);
    let published: Vec<Value> = packages().into_iter().filter(is_published).collect();
    assert_eq!(published.len(), 7, "permits, the four crates below, the tower layer, and the command");
    for package in published {
        let name = package["name"].as_str().expect("a name");
        let listed = output(cargo().args(["package", "--list", "--allow-dirty", "--package", name]));
        let readme = package["readme"].as_str().map(Path::new).and_then(Path::file_name).expect("a readme");
        for file in ["LICENSE-APACHE", "LICENSE-MIT", readme.to_str().expect("text"), "src"] {
            assert!(listed.lines().any(|path| path.starts_with(file)), "{name} has no {file}: {listed}");
        }
        for field in ["description", "license", "rust_version", "repository"] {
            assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {field}");
        }
        for field in ["keywords", "categories"] {
            let number = package[field].as_array().map_or(0, Vec::len);
            assert!((1..=5).contains(&number), "{name} has {number} {field}");
        }
        // A dependency without a version cannot be published. Cargo leaves out dependencies that only tests
        // have.
        for dependency in package["dependencies"].as_array().expect("a list") {
            let is_published = dependency["path"].is_null() || dependency["req"] != "*";
            assert!(is_published || dependency["kind"] == "dev", "{name}: {dependency}");
        }
    }
}

/// The value of a key in the metadata of a packager.
#[track_caller]
fn metadata(key: &str) -> Value {
    package("permits-cli")["metadata"][key].clone()
}

#[test]
fn the_files_of_the_debian_package_are_there_or_are_made() {
    let made = TempDir::new().expect("a directory");
    output(Command::new("scripts/more/package-files").arg(env!("CARGO_BIN_EXE_permits")).arg(made.path()));
    let deb = metadata("deb");
    let of_crate = Path::new(env!("CARGO_MANIFEST_DIR"));
    for asset in deb["assets"].as_array().expect("a list") {
        let source = asset[0].as_str().expect("a path");
        let path = match source.strip_prefix("target/release/package-files/") {
            Some(name) => made.path().join(name),
            None if source == "target/release/permits" => continue,
            None => of_crate.join(source),
        };
        // A pattern stands for all files of a directory, of one extension or of any.
        let found = output(Command::new("sh").args(["-c", "ls -d $0"]).arg(path));
        assert!(!found.is_empty(), "there is no {source}");
    }
    for target in ["usr/bin/permits", "usr/share/man/man1/", "usr/share/bash-completion/completions/permits"]
    {
        let is_target = |asset: &Value| asset[1] == target;
        assert!(
            deb["assets"].as_array().into_iter().flatten().any(is_target),
            "nothing is installed as {target}"
        );
    }
    assert!(of_crate.join(deb["license-file"][0].as_str().expect("a path")).exists());
}

#[test]
fn the_image_and_the_archive_name_the_program_and_scripts_that_can_be_executed() {
    let image = read("Dockerfile");
    for line in [
        "RUN cargo build --release --locked --package permits-cli",
        "COPY --from=build /source/target/release/permits /usr/bin/permits",
        "ENTRYPOINT [\"/usr/bin/permits\"]",
    ] {
        assert!(image.lines().any(|of_image| of_image == line), "the Dockerfile has no line {line:?}");
    }
    // cargo-binstall looks for the archive that the script makes.
    let binstall = metadata("binstall");
    let archive = "permits-{ version }-{ target }";
    let url = binstall["pkg-url"].as_str().expect("a URL");
    assert!(url.ends_with(&format!("/{archive}.tar.gz")), "{url}");
    assert!(binstall["bin-dir"].as_str().is_some_and(|path| path.starts_with(&format!("{archive}/"))));
    let script = read("scripts/more/package-archive");
    assert!(script.contains("\nname=permits-$version-$target\n"), "the archive has another name");

    let texts = read(".github/workflows/release.yml") + &read("scripts/package");
    // The registry of npm refuses a package with provenance that does not name the repository of the run.
    for package in ["bindings/node/package.json", "scripts/more/package-npm-command"] {
        let url = format!("\"git+{}.git\"", package_field("permits", "repository"));
        assert!(read(package).contains(&url), "{package} does not name {url}");
    }
    for script in texts.split_whitespace().filter(|word| word.starts_with("scripts/")) {
        let mode = fs::metadata(root().join(script)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{script} cannot be executed");
    }
}

#[test]
fn each_copy_of_the_version_is_that_of_the_workspace() {
    let version = package_field("permits", "version");
    let (minor, _) = version.rsplit_once('.').expect("three numbers");
    for (file, before, expected) in [
        ("bindings/node/package.json", "\n  \"version\": \"", version.as_str()),
        ("bindings/node/package-lock.json", "\"name\": \"permits\",\n      \"version\": \"", &version),
        ("contrib/kubernetes/README.md", "registry.example/permits:", &version),
        ("contrib/kubernetes/serve.yaml", "registry.example/permits:", &version),
        ("docs/operate/install.md", "permits = \"", minor),
        ("README.md", "crates/permits\" } # \"", minor),
        ("bindings/python/pyproject.toml", "permits-cli==", &format!("{minor}.*")),
        ("contrib/go/permitsasynq/go.mod", "/bindings/go v", &version),
        ("contrib/go/permitshttp/go.mod", "/bindings/go v", &version),
    ] {
        let text = read(file);
        let found = text.split(before).skip(1);
        let found = found.map(|rest| rest.split(['"', ' ', '\n']).next().expect("the first part"));
        assert_eq!(found.collect::<BTreeSet<_>>(), BTreeSet::from([expected]), "{file}");
    }
    // A crate that is published needs the others of its own version.
    for package in packages() {
        for dependency in package["dependencies"].as_array().expect("a list") {
            let expected = [format!("^{version}"), "*".to_owned()].map(Value::from);
            assert!(
                dependency["path"].is_null() || expected.contains(&dependency["req"]),
                "{}: {dependency}",
                package["name"]
            );
        }
    }
}

#[test]
fn what_a_release_is_built_by_is_named_by_its_hash() {
    let is_hash =
        |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for file in fs::read_dir(root().join(".github/workflows")).expect("it is there") {
        let file = file.expect("it can be read").path();
        let workflow = fs::read_to_string(&file).expect("it is there");
        for action in workflow.lines().filter_map(|line| line.trim_start().strip_prefix("- uses: ")) {
            let (hash, version) =
                action.split_once('@').and_then(|(_, at)| at.split_once(" # ")).expect(action);
            assert!(is_hash(hash, 40) && !version.is_empty(), "{}: {action}", file.display());
        }
    }
    for base in read("Dockerfile").lines().filter_map(|line| line.strip_prefix("FROM ")) {
        let image = base.split(' ').next().expect("a word");
        let hash = image.split_once("@sha256:").map(|(_, hash)| hash);
        assert!(image == "scratch" || hash.is_some_and(|hash| is_hash(hash, 64)), "{base}");
    }

    for lock in ["bindings/node/package-lock.json", "bindings/node/runners/package-lock.json"] {
        let lock: Value = serde_json::from_str(&read(lock)).expect("it is JSON");
        for (name, package) in lock["packages"].as_object().expect("an object") {
            assert!(name.is_empty() || package["integrity"].is_string(), "{name}: {package}");
            assert!(package["resolved"].is_null(), "the registry is that of the machine: {package}");
        }
    }
    for (script, directory) in
        [("scripts/more/package-npm", "$built"), ("scripts/test-node", "$built/$tools")]
    {
        let install = format!(r#"npm --prefix "{directory}" ci "#);
        assert!(read(script).contains(&install), "{script} does not use the lock file");
    }
    assert!(
        read("scripts/check").contains("cargo deny --all-features check\n"),
        "advisories are not checked"
    );
    assert!(read("deny.toml").contains("[advisories]"));
}

#[test]
fn the_image_of_a_release_has_what_the_dockerfile_says_and_equal_inputs_make_equal_files() {
    if ["python3", "sha256sum"].into_iter().any(skip::without_program) {
        return;
    }
    let made = TempDir::new().expect("a directory");
    let program = made.path().join("program");
    fs::write(&program, "a program").expect("it can be written");
    let image = |target: &str, name: &str| {
        let directory = made.path().join(name);
        fs::create_dir(&directory).expect("it is new");
        let mut image = Command::new("scripts/more/package-image");
        image.arg(&program).arg(target).arg(directory).current_dir(root());
        image
    };
    let file = output(&mut image("aarch64-unknown-linux-musl", "first"));
    let file = file.trim_end();
    let again = output(&mut image("aarch64-unknown-linux-musl", "second"));
    assert!(fs::read(file).expect("it is made") == fs::read(again.trim_end()).expect("it is made"));

    // Each blob has its hash as its name, and the two tables of contents name the same blobs.
    let unpack = r#"mkdir image layer; tar -xf "$0" -C image; cd image/blobs/sha256
        for blob in *; do echo "$blob  $blob"; done | sha256sum --check --quiet"#;
    output(Command::new("sh").args(["-euc", &format!("cd \"$1\"; {unpack}"), file]).arg(made.path()));
    let at = |path: &str| made.path().join("image").join(path);
    let json = |path: &str| serde_json::from_slice::<Value>(&fs::read(at(path)).expect("it is there"));
    let json = |path: &str| json(path).expect("it is JSON");
    let archive = json("manifest.json")[0].clone();
    let blob = |digest: &Value| digest.as_str().expect("a digest").replace("sha256:", "blobs/sha256/");
    let manifest = json(&blob(&json("index.json")["manifests"][0]["digest"]));
    assert_eq!(archive["Config"], blob(&manifest["config"]["digest"]));
    assert_eq!(archive["Layers"], json!([blob(&manifest["layers"][0]["digest"])]));
    let config = json(archive["Config"].as_str().expect("a path"));
    assert_eq!(config["architecture"], "arm64");
    assert_eq!(config["rootfs"]["diff_ids"], json!([manifest["layers"][0]["digest"]]));
    let expected = json!({
        "Env": ["PATH=/usr/bin", "PERMITS_REQUIRE_SERVER=1"],
        "User": "65532:65532",
        "Entrypoint": ["/usr/bin/permits"],
        "Cmd": ["--help"],
    });
    assert_eq!(config["config"], expected);

    let (layer, unpacked) = (at(archive["Layers"][0].as_str().expect("a path")), made.path().join("layer"));
    let listed = output(Command::new("tar").arg("-xvf").arg(&layer).arg("-C").arg(&unpacked));
    let listed = listed.lines().filter(|path| !path.ends_with('/')).collect::<Vec<_>>();
    let certificates = "etc/ssl/certs/ca-certificates.crt";
    let [apache, mit] = ["APACHE", "MIT"].map(|name| format!("usr/share/doc/permits/LICENSE-{name}"));
    assert_eq!(listed, [certificates, "usr/bin/permits", &apache, &mit]);
    let contents = |path: &str| fs::read(unpacked.join(path)).expect("it is there");
    assert!(contents("usr/bin/permits") == b"a program");
    assert!(contents(certificates) == fs::read(Path::new("/").join(certificates)).expect("it is there"));
    let mode = fs::metadata(unpacked.join("usr/bin/permits")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    if !skip::without_program("skopeo") {
        for kind in ["docker-archive", "oci-archive"] {
            let copy = format!("dir:{}", made.path().join(kind).display());
            output(Command::new("skopeo").args(["copy", "--quiet", &format!("{kind}:{file}"), &copy]));
        }
    }

    let refused = image("x86_64-unknown-linux-gnu", "third").output().expect("it can be started");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("aarch64-unknown-linux-musl"), "{said}");
}

#[test]
fn the_archive_has_nothing_of_its_builder() {
    if skip::without_program("python3") {
        return;
    }
    let (made, programs) = (TempDir::new().expect("a directory"), TempDir::new().expect("a directory"));
    add_program(programs.path(), "cargo", "#!/bin/sh\n");
    let release = made.path().join("any-target/release");
    fs::create_dir_all(&release).expect("it is new");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_permits"), release.join("permits")).expect("it is new");
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").expect("a path"));
    let mut package = Command::new("sh");
    package.args(["-c", "umask 077 && exec scripts/more/package-archive any-target"]);
    let file = output(package.env("PATH", path).env("CARGO_TARGET_DIR", made.path()));

    let list = "import sys, tarfile\nfor entry in tarfile.open(sys.argv[1]): \
                print(entry.uid, entry.gid, entry.uname + entry.gname, oct(entry.mode), entry.name)";
    let listed = output(Command::new("python3").args(["-c", list, file.trim_end()]));
    let of = |end: &str| {
        let line =
            listed.lines().find(|line| line.ends_with(end)).unwrap_or_else(|| panic!("{end}: {listed}"));
        line.rsplit_once(' ').expect("a name").0
    };
    assert_eq!(of("-any-target"), "0 0  0o755");
    assert_eq!(of("-any-target/permits"), "0 0  0o755");
    assert_eq!(of("/man/permits.1"), "0 0  0o644");
    assert!(listed.lines().all(|line| line.starts_with("0 0  ")), "{listed}");
}

#[test]
fn the_npm_command_of_an_x64_node_runs_on_an_arm64_mac() {
    let (made, programs) = (TempDir::new().expect("a directory"), TempDir::new().expect("a directory"));
    let uname = "#!/bin/sh\ncase $1 in -s) echo Darwin ;; -m) echo arm64 ;; esac\n";
    add_program(programs.path(), "uname", uname);
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").expect("a path"));
    let npm = made.path().join("permits-cli");
    fs::create_dir(&npm).expect("it is new");
    fs::copy(root().join("crates/permits-cli/npm/permits"), npm.join("permits")).expect("it is there");
    // The one for the processor comes first.
    for machine in ["x64", "arm64"] {
        let package = made.path().join(format!("permits-cli-darwin-{machine}"));
        fs::create_dir(&package).expect("it is new");
        add_program(&package, "permits", &format!("#!/bin/sh\necho {machine}\n"));
        let mut permits = Command::new("sh");
        permits.arg(npm.join("permits")).env("PATH", &path);
        assert_eq!(output(&mut permits).trim_end(), machine);
    }
}

#[test]
fn a_release_has_its_hashes_and_says_what_it_was_made_of() {
    if ["python3", "sha256sum", "git"].into_iter().any(skip::without_program) {
        return;
    }
    let made = TempDir::new().expect("a directory");
    fs::write(made.path().join("permits.tar"), "an archive").expect("it can be written");
    let mut provenance = Command::new("scripts/more/package-provenance");
    output(provenance.arg(made.path()).args(["scripts/package --partial", "image: no certificates"]));
    let checked = output(
        Command::new("sh").arg("-c").arg("cd \"$0\" && sha256sum --check SHA256SUMS").arg(made.path()),
    );
    assert_eq!(checked, "PROVENANCE.json: OK\nSBOM.json: OK\npermits.tar: OK\n");

    let json = |name: &str| {
        let text = fs::read_to_string(made.path().join(name)).expect("it is made");
        serde_json::from_str::<Value>(&text).expect("it is JSON")
    };
    let crates = json("SBOM.json")["components"].as_array().expect("a list").clone();
    let names: BTreeSet<&str> = crates.iter().filter_map(|of| of["name"].as_str()).collect();
    assert!(["ratatui", "pyo3", "napi", "tokio"].iter().all(|name| names.contains(name)), "{names:?}");
    assert!(!names.contains("proptest") && !names.contains("permits"), "of tests, or our own: {names:?}");
    for of in &crates {
        let (license, hash) = (&of["licenses"][0]["expression"], &of["hashes"][0]["content"]);
        assert!(license.is_string() && hash.as_str().is_some_and(|hash| hash.len() == 64), "{of}");
    }

    let said = json("PROVENANCE.json");
    let git = |arguments: &[&str]| output(Command::new("git").args(arguments)).trim_end().to_owned();
    let tree = if git(&["status", "--porcelain"]).is_empty() { "clean" } else { "dirty" };
    let lock = output(Command::new("sha256sum").arg("Cargo.lock"));
    for (field, expected) in [
        ("version", package("permits")["version"].clone()),
        ("commit", json!(git(&["rev-parse", "HEAD"]))),
        ("commit_date", json!(git(&["log", "-1", "--format=%cI"]))),
        ("tree", json!(tree)),
        ("command", json!("scripts/package --partial")),
        ("skipped", json!(["image: no certificates"])),
        ("target", json!(output(Command::new("rustc").args(["--print", "host-tuple"])).trim_end())),
        ("rustc", json!(output(Command::new("rustc").arg("--version")).trim_end())),
        ("cargo_lock_sha256", json!(lock.split(' ').next())),
    ] {
        assert_eq!(said[field], expected, "{field}");
    }
}

#[test]
fn a_release_of_changes_that_are_not_committed_is_refused() {
    if skip::without_program("git") {
        return;
    }
    let tree = TempDir::new().expect("a directory");
    fs::create_dir(tree.path().join("scripts")).expect("it is new");
    fs::copy(root().join("scripts/package"), tree.path().join("scripts/package")).expect("it is there");
    let package = |arguments: &[&str]| {
        // Read by its interpreter: a file that was just written cannot be executed while a process that
        // another test is starting has it open.
        let script = tree.path().join("scripts/package");
        let package = Command::new("bash").arg(script).args(arguments).output();
        let package = package.expect("it can be started");
        (package.status.code(), String::from_utf8_lossy(&package.stderr).into_owned())
    };
    let (code, said) = package(&["--partial"]);
    assert!(code == Some(1) && said.contains("no clone of git"), "{said}");

    output(Command::new("git").args(["init", "--quiet"]).arg(tree.path()));
    let (code, said) = package(&[]);
    assert!(code == Some(1) && said.contains("?? scripts/") && said.contains("--allow-dirty"), "{said}");

    let (code, said) = package(&["--dirty"]);
    assert!(code == Some(64) && said.starts_with("usage:"), "{said}");
}

/// The units of contrib, with the programs of this machine.
fn units() -> Vec<(String, String)> {
    let directory = fs::read_dir(root().join("contrib/systemd")).expect("it is there");
    let mut units: Vec<_> = directory
        .map(|file| {
            let name = file.expect("it can be read").file_name().into_string().expect("text");
            let text = read(&format!("contrib/systemd/{name}"));
            (name, text.replace("/usr/bin/permits", env!("CARGO_BIN_EXE_permits")))
        })
        .collect();
    units.sort();
    units
}

#[test]
fn the_units_are_valid() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    }
    let [programs, directory] = [(); 2].map(|()| TempDir::new().expect("a directory"));
    for name in ["backup-nightly", "exporter", "worker"] {
        add_program(programs.path(), name, "#!/bin/sh\n");
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]);
    for (name, text) in units() {
        let path = directory.path().join(name);
        let text = text.replace("/usr/local/bin", programs.path().to_str().expect("text"));
        fs::write(&path, text).expect("it can be written");
        verify.arg(path);
    }
    let verified = verify.output().expect("it can be started");
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && said.is_empty(), "{said}");
}

#[test]
fn a_stop_of_a_unit_is_no_failure_and_a_restart_has_a_pause() {
    for (name, text) in units() {
        let starts = |verb: &str| text.contains(&format!("/permits {verb} "));
        let has = |key: &str| text.lines().any(|line| line.starts_with(key));
        if starts("run") || starts("hold") {
            assert!(has("SuccessExitStatus=143"), "{name}: permits ends with 128 + 15 because of SIGTERM");
        }
        assert!(!has("Restart=") || has("RestartSec="), "{name}: systemd would give up within a second");
    }
}

#[test]
fn the_commands_of_the_crontab_and_of_the_units_run() {
    let crontab = read("contrib/crontab");
    let lines = crontab.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    let of_cron: Vec<String> = lines.map(|line| command("crontab", line)).collect();
    let of_units: Vec<String> = units()
        .iter()
        .filter_map(|(_, text)| text.lines().find_map(|line| line.strip_prefix("ExecStart=")))
        // The tests of `permits hold` start it as systemd does.
        .filter(|line| line.contains("permits run "))
        .map(|line| line.replace("%H", "host").replace("/usr/local/bin/", "") + "\n")
        .collect();
    assert_eq!((of_cron.len(), of_units.len()), (2, 3), "{of_cron:?} {of_units:?}");

    for (command, program, runs) in [
        (&of_cron[0], "backup-nightly", 1),
        (&of_cron[1], "report-hourly", 4),
        (&of_units[0], "exporter", 4),
        (&of_units[1], "backup-nightly", 1),
        (&of_units[2], "worker", 4),
    ] {
        // The examples have their programs in the path.
        let command = command.replace(program, &format!("./{program}"));
        let log = log_of(&command, 4, &[program]);
        let begun = log.lines().filter(|line| line.ends_with('+')).count();
        assert_eq!(begun, runs, "{command}{log}");
    }
}
