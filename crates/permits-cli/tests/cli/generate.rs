//! `permits completions` in bash, and `permits man` in a formatter of manual pages.

use std::process::Command;

use crate::support::{CLOSED_PORT, output, permits};

const VERBS: &str = "run hold acquire renew release status list top watch serve limit alert lane pause resume close open \
    revoke delete doctor completions man";

/// The output of a call that asks no store.
#[track_caller]
fn generated<const N: usize>(arguments: [&str; N]) -> String {
    let output = output(&mut permits(CLOSED_PORT, arguments));
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{arguments:?}");
    output.stdout
}

#[test]
fn every_shell_has_a_script_that_knows_the_verbs() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = generated(["completions", shell]);
        for verb in VERBS.split(' ') {
            assert!(script.contains(verb), "{shell} {verb}");
        }
    }
}

#[test]
fn bash_completes_verbs_options_and_values() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("permits.bash");
    std::fs::write(&path, generated(["completions", "bash"])).expect("it can be written");
    assert_eq!(output(Command::new("bash").arg("-n").arg(&path)).stderr, "");
    // Calls the registered completion function, which fills COMPREPLY, as bash does.
    let script = r#"
        source "$1"; shift
        function=$(complete -p permits | sed 's/.*-F \([^ ]*\).*/\1/')
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "$function" permits "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    for (words, expected) in [
        (&["permits", "ru"][..], &["run"][..]),
        (&["permits", "l"], &["list", "limit", "lane"]),
        (&["permits", "limit", "x", "--unp"], &["--unpin"]),
        (&["permits", "limit", "x", "3", "--de"], &["--declare"]),
        (&["permits", "run", "x", "--no"], &["--no-wait"]),
        (&["permits", "completions", "f"], &["fish"]),
    ] {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", script, "bash"]).arg(&path).args(words);
        let completed = output(&mut bash);
        assert_eq!(completed.stderr, "");
        assert!(completed.stdout.lines().eq(expected.iter().copied()), "{words:?}: {}", completed.stdout);
    }
}

#[test]
fn every_verb_has_a_manual_page() {
    let overview = generated(["man"]);
    assert!(overview.contains("\n.TH permits 1 "), "{overview}");
    for verb in VERBS.split(' ') {
        assert!(overview.contains(&format!("permits\\-{verb}(1)\n")), "{verb}: {overview}");
        let page = generated(["man", verb]);
        assert!(page.contains(&format!("\n.TH permits-{verb} 1 ")), "{page}");
        let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let of_all = "\"OPTIONS OF EVERY VERB\"";
        assert_eq!(sections[..5], ["NAME", "SYNOPSIS", "OPTIONS", of_all, "EXAMPLES"], "{verb}");
        assert!(page.contains(&format!("\npermits\\-{verb} \\- ")), "{page}");
        assert!(page.contains(&format!("\n\\fBpermits {verb} ")), "{page}");
        formats(&page);
    }
    formats(&overview);
    assert!(generated(["man", "run"]).contains("\n.SH \"EXIT CODE\"\n"));
}

/// If a formatter is installed, it has no complaints and shows the examples unchanged.
#[track_caller]
fn formats(page: &str) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), page).expect("it can be written");
    let mut formatter = Command::new("groff");
    formatter.args(["-man", "-Tascii", "-Kutf8", "-ww", "-P-cbou", "-rLL=80n"]).arg(file.path());
    if Command::new("groff").arg("--version").output().is_err() {
        return;
    }
    let formatted = output(&mut formatter);
    assert_eq!((formatted.code, formatted.stderr.as_str()), (0, ""), "{page}");
    let examples = formatted.stdout.split("EXAMPLES\n").nth(1).expect("a section");
    assert!(examples.lines().any(|line| line.starts_with("       permits ")), "{examples}");
}

/// A text of a manual page without its escapes.
fn unescaped(roff: &str) -> String {
    roff.replace("\\*(Aq", "'").replace('\\', "")
}

#[test]
fn each_text_about_a_verb_begins_alike() {
    let overview = generated(["--help"]);
    let verbs = overview.split("\nVerbs:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    let verbs = verbs.expect("a list of verbs").lines().filter_map(|line| line.trim().split_once(' '));
    let verbs: Vec<_> =
        verbs.map(|(verb, about)| (verb, about.trim())).filter(|(verb, _)| *verb != "help").collect();
    assert_eq!(verbs.iter().map(|(verb, _)| *verb).collect::<Vec<_>>().join(" "), VERBS);
    for (verb, about) in verbs {
        for help in [generated([verb, "--help"]), generated([verb, "-h"]), generated(["help", verb])] {
            assert_eq!(help.lines().next(), Some(about), "{verb}");
        }
        let name = format!("permits-{verb} - {about}");
        let page = unescaped(&generated(["man", verb]));
        assert!(page.lines().any(|line| line == name), "{name}: {page}");
    }
}

#[test]
fn an_unknown_verb_is_64() {
    let output = output(&mut permits(CLOSED_PORT, ["man", "frobnicate"]));
    output.prints(64, "");
    assert!(output.stderr.contains("the verbs are run, hold, acquire, "), "{}", output.stderr);
}
