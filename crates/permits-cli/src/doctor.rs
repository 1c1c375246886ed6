//! `permits doctor`: problems of the store, and their remedies.
//!
//! The library makes the diagnosis; this file prints its findings. `--acl` prints the commands that create a
//! user with just the rights that are needed, without asking a store.

use std::fmt::Write as _;

use permits::{AclRules, acl_rules};
use permits::{Diagnosis, Finding, Severity};
use serde::Serialize;

use crate::args::{Common, Doctor};
use crate::connect::{Target, prefix};
use crate::exit::{self, Failure, SUCCESS, UNHEALTHY, USAGE};

/// The user's name in the output of `--acl`.
const USER: &str = "permits";

/// The column in which advice begins, below the observation.
const INDENT: usize = 24;

/// The width of the lines of advice.
const WIDTH: usize = 100;

/// Diagnoses the store. An unreachable store is a finding like any other.
pub(crate) async fn doctor(common: &Common, options: &Doctor) -> Result<u8, Failure> {
    if options.acl {
        let rights = acl_rules(&prefix(common)?).map_err(|error| Failure::new(USAGE, error.to_string()))?;
        return Ok(exit::print(acl(&rights)));
    }
    let diagnosis = Target::of(common)?.builder.diagnose().await?;
    let printed = match options.json {
        true => exit::print_json(&DoctorJson::from(&diagnosis))?,
        false => exit::print_lines(&human(&diagnosis)),
    };
    Ok(if printed == SUCCESS && !diagnosis.is_healthy() { UNHEALTHY } else { printed })
}

/// The object that `--json` prints. Scripts depend on it: fields may be added, never changed.
#[derive(Serialize)]
struct DoctorJson<'a> {
    store: &'a str,
    findings: Vec<FindingJson<'a>>,
    healthy: bool,
}

#[derive(Serialize)]
struct FindingJson<'a> {
    subject: &'a str,
    severity: String,
    observed: &'a str,
    meaning: &'a str,
}

impl<'a> From<&'a Finding> for FindingJson<'a> {
    fn from(finding: &'a Finding) -> Self {
        let Finding { subject, severity, observed, advice: meaning, .. } = finding;
        Self { subject, severity: severity.to_string(), observed, meaning }
    }
}

impl<'a> From<&'a Diagnosis> for DoctorJson<'a> {
    fn from(diagnosis: &'a Diagnosis) -> Self {
        let Diagnosis { store, findings, .. } = diagnosis;
        let findings = findings.iter().map(FindingJson::from).collect();
        Self { store, findings, healthy: diagnosis.is_healthy() }
    }
}

/// A line for each finding, with its advice below.
fn human(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    for Finding { subject, severity, observed, advice, .. } in &diagnosis.findings {
        let sign = match severity {
            Severity::Fine => "ok",
            Severity::Note => "note",
            _ => "PROBLEM",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{sign:<7}  {subject:<13}  {observed}");
        for line in wrapped(advice) {
            let _ = writeln!(text, "{:INDENT$}{line}", "");
        }
    }
    let count = |severity, noun| {
        let count = diagnosis.findings.iter().filter(|finding| finding.severity == severity).count();
        format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
    };
    let (problems, notes) = (count(Severity::Problem, "problem"), count(Severity::Note, "note"));
    let _ = writeln!(text, "\n{}: {problems}, {notes}", diagnosis.store);
    text
}

/// Breaks `text` between words into lines that fit under the observation. A longer word keeps a line of its
/// own, since it may be a command to copy.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH - INDENT => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Commands for redis-cli, with comments. The least rights are one command, so that a user in use never has
/// only a part of them. The optional rights are comments, because each is a choice.
fn acl(rights: &[AclRules]) -> String {
    let mut text = format!(
        "# Creates the user {USER:?} with the least rights, or reduces its rights to them.\n\
         # For redis-cli:  permits doctor --acl | grep ^ACL | redis-cli\n\
         # Logging in needs a password:  ACL SETUSER {USER} >PASSWORD\n\
         # Then:  PERMITS_URL=redis://{USER}:PASSWORD@host/  (the password percent-encoded)\n\n"
    );
    let (needed, others): (Vec<_>, Vec<_>) = rights.iter().partition(|rights| rights.needed);
    for AclRules { purpose, rules, .. } in &needed {
        let _ = writeln!(text, "# {purpose}:\n#     {}", rules.join(" "));
    }
    let all: Vec<&str> = needed.iter().flat_map(|rights| &rights.rules).map(String::as_str).collect();
    let _ = writeln!(text, "ACL SETUSER {USER} {}", all.join(" "));
    text.push_str("\n# Optional rights, each for one purpose. Remove the # from those that you want.\n");
    for AclRules { purpose, rules, .. } in others {
        let _ = write!(text, "\n# {purpose}:\n# ACL SETUSER {USER} {}\n", rules.join(" "));
    }
    // The last rule takes rights away: a user without it may use every database. Servers other than Valkey
    // from 9.1 on refuse it.
    let _ = write!(
        text,
        "\n# from Valkey 9.1 on: reach no other database than 0, or the one of your URL:\n\
         # ACL SETUSER {USER} resetdbs db=0\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_words() {
        let text = "word ".repeat(40);
        let lines = wrapped(&text);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= WIDTH - INDENT), "{lines:?}");
        assert_eq!(lines.join(" "), text.trim());
        assert_eq!(wrapped(""), [""; 0]);
    }
}
