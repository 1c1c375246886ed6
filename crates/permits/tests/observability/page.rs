//! The events and spans that `docs/reference/metrics.md` lists.

use permits_testkit::documents::{quoted, read, table};

const PAGE: &str = "reference/metrics.md";

/// An event: target, level, fields.
pub(crate) type EventRow = (String, String, Vec<String>);

pub(crate) fn events() -> Vec<EventRow> {
    let row = |cells: Vec<String>| (quoted(&cells[0]).remove(0), cells[1].clone(), quoted(&cells[2]));
    table(PAGE, "Events").into_iter().map(row).collect()
}

pub(crate) fn span_fields() -> Vec<String> {
    let rows = table(PAGE, "The span of an acquisition");
    let mut fields: Vec<String> = rows.iter().flat_map(|cells| quoted(&cells[0])).collect();
    fields.sort();
    fields
}

/// The paragraphs about the keywords of outcomes and of losses.
#[test]
fn the_page_lists_the_keywords_of_the_code_and_no_others() {
    let page = read(PAGE);
    let section = page.split("\n### Outcomes and reasons\n\n").nth(1).expect("the section is there");
    let mut paragraphs = section.split("\n\n").map(quoted);

    let source = include_str!("../../src/error/keywords.rs");
    let of = |name: &str| {
        let (_, code) = source.split_once(&format!("impl {name} {{")).expect("it is there");
        let code = code.split("\n}").next().expect("it ends");
        code.split('"').skip(1).step_by(2).collect::<Vec<_>>()
    };
    let outcomes = [of("AcquireError"), of("Ended"), vec!["granted", "invalid_input"]].concat();
    for mut keywords in [outcomes, of("Lost")] {
        keywords.sort_unstable();
        assert!(keywords.contains(&"forked"), "no keywords: {keywords:?}");
        assert_eq!(paragraphs.next().expect("a paragraph for each part"), keywords);
    }
}
