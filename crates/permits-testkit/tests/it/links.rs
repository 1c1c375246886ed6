//! The links of the documents to files of the repository and to their headings. A tree without the laboratory
//! has no faulty links: those into `lab/` are checked where it is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::tidy::{files, repository};

/// The lines outside blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The anchors that GitHub gives to the headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let kept = |character: &char| character.is_alphanumeric() || "-_ ".contains(*character);
    headings
        .map(|line| line.trim_start_matches('#').trim().chars().filter(kept).collect::<String>())
        .map(|heading| heading.to_lowercase().replace(' ', "-"))
        .collect()
}

/// The targets of the links, without those to other sites.
fn targets(text: &str) -> Vec<&str> {
    let links = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = links.filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).collect()
}

/// The fault of a link in the document at `path`.
fn fault(path: &Path, text: &str, target: &str) -> Option<&'static str> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let linked = path.with_file_name(file);
    if !file.is_empty() && !linked.exists() {
        return Some("no such file");
    }
    if anchor.is_empty() || !(file.is_empty() || file.ends_with(".md")) {
        return None;
    }
    let other = (!file.is_empty()).then(|| fs::read_to_string(&linked).expect("it exists"));
    let has_anchor = anchors(other.as_deref().unwrap_or(text)).contains(anchor);
    (!has_anchor).then_some("no such heading")
}

#[test]
fn each_link_leads_to_a_file_and_a_heading() {
    let (root, mut documents) = (repository(), Vec::new());
    files(&root, &mut documents);
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    let (mut checked, mut faults) = (0, Vec::new());
    let has_lab = root.join("lab").exists();
    for path in documents {
        let text = fs::read_to_string(&path).expect("it is a text");
        for target in targets(&text) {
            let is_in_lab = target.trim_start_matches("../").starts_with("lab/");
            if is_in_lab && !has_lab {
                continue;
            }
            checked += 1;
            if let Some(fault) = fault(&path, &text, target) {
                faults.push(format!("{}: {target}: {fault}", path.display()));
            }
        }
    }
    assert!(checked > 100, "only {checked} links were found");
    assert!(faults.is_empty(), "{faults:#?}");
}
